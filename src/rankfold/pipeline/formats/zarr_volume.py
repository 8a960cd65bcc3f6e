"""A Zarr array of any number of axes in a folder; what ``zarr.py`` is for two.

Uncompressed chunks are read in part, those under one common codec are decoded whole, once for all boxes
of a read that meet them, and straight to their place if they fill it. Anything else goes through Zarr.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.encoding import (
    Encoding,
    codec_bytes,
    decode_into,
    require_sensible,
    require_whole_blosc,
    scratch,
)
from rankfold.pipeline.chunks.files import ChunkFiles, missing_message
from rankfold.pipeline.chunks.geometry import Piece, cells, local, requests
from rankfold.pipeline.chunks.reads import SCRATCH_BYTES, TURN_BYTES, read_plain_box, read_run
from rankfold.pipeline.chunks.shard import ABSENT, read_index
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.errors import ChunkError
from rankfold.pipeline.formats.zarr import OVERHEAD_BYTES, REQUEST_BYTES, opened

if TYPE_CHECKING:
    import zarr


@dataclass(frozen=True, slots=True)
class ZarrVolume:
    """A Zarr array as strings and numbers; no file stays open between two reads."""

    name: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    dtype: np.dtype[Any]
    path: str
    """Folder of the store."""

    array: str
    """Path of the array in the store, empty for the store itself."""

    chunks: tuple[int, ...]
    """Shape of what is decoded at once: inner chunks where there are shards."""

    files: ChunkFiles
    encoding: Encoding
    format: str
    fill: float | int | bool
    missing: str
    """``error`` or ``fill``: what a chunk without a file is."""

    version: str = field(repr=False)
    """Digest of the metadata, so that a store written anew is also opened anew."""

    @property
    def codec(self) -> str:
        """How chunks are compressed, in words."""
        return self.encoding.words

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Native chunks along every axis."""
        plain = self.encoding.reader == "plain"
        return tuple(
            Grid.regular(length, chunk, splittable=plain)
            for length, chunk in zip(self.shape, self.chunks, strict=True)
        )

    @property
    def chunk_bytes(self) -> int:
        """Bytes of one decoded chunk."""
        return math.prod(self.chunks) * self.dtype.itemsize

    @property
    def _all_bytes(self) -> int:
        """Bytes of all decoded chunks."""
        counts = (-(-length // chunk) for length, chunk in zip(self.shape, self.chunks, strict=True))
        return math.prod(counts) * self.chunk_bytes

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Copy every box to its place; see ``Volume``."""
        if self.encoding.reader == "zarr":
            array = opened(self.path, self.array, self.version)
            for piece in pieces:
                for request in requests(piece, self.chunks, REQUEST_BYTES // self.dtype.itemsize):
                    self._through_zarr(array, request)
            return
        for index, parts in cells(pieces, self.files.extent):
            self._read_file(index, parts)

    def read_bytes(self, elements: int) -> int:
        """Most memory of one ``read_boxes``; as for ``ZarrSource``, and a buffer to turn plain numbers in."""
        inner = math.prod(self.files.extent) // math.prod(self.chunks)
        fixed = OVERHEAD_BYTES + SCRATCH_BYTES + 3 * 16 * inner
        if self.encoding.reader == "plain":
            return fixed + min(TURN_BYTES, elements * self.dtype.itemsize)
        if self.encoding.reader == "codec":
            return fixed + codec_bytes(self.encoding.codec, self.chunk_bytes)
        request = max(self.chunk_bytes, min(REQUEST_BYTES, self._all_bytes))
        return fixed + request * self.encoding.stages * (3 if self.chunk_bytes < 32 * 2**20 else 1)

    def check(self) -> None:
        """Raise ``ChunkError`` for chunk files that are missing or of a size that cannot be right."""
        whole = self.encoding.reader == "plain" and not self.encoding.index_at
        self.files.check(
            self.name,
            expected_bytes=self.chunk_bytes if whole else None,
            fill=self.fill,
            allow_missing=self.missing == "fill",
        )

    def fingerprint(self) -> str:
        """Digest of the metadata and of size and time of the chunk files."""
        return self.files.fingerprint()

    def stored_bytes(self) -> int:
        """Bytes of all chunk files."""
        return self.files.stored_bytes()

    def _read_file(self, index: tuple[int, ...], parts: list[Piece]) -> None:
        """What lies in one file, which is a chunk or a shard."""
        key = self.files.key(*index)
        try:
            fd = os.open(self.files.path(key), os.O_RDONLY)
        except FileNotFoundError:
            self._require_fill(key)
            for part in parts:
                part.out[...] = self.fill
            return
        except OSError as error:
            raise self._broken(key, error) from error
        try:
            self._read_open(fd, index, parts)
        except MemoryError:
            raise
        except Exception as error:
            raise self._broken(key, error) from error
        finally:
            os.close(fd)

    def _read_open(self, fd: int, index: tuple[int, ...], parts: list[Piece]) -> None:
        """The chunks of an open file that are asked for."""
        size = os.fstat(fd).st_size
        if not self.encoding.index_at:
            self._read_chunk(fd, index, parts, offset=0, size=size)
            return
        counts = [extent // chunk for extent, chunk in zip(self.files.extent, self.chunks, strict=True)]
        table = read_index(fd, size, math.prod(counts), self.encoding).reshape(*counts, 2)
        for inner, held in cells(parts, self.chunks):
            within = tuple(i - at * count for i, at, count in zip(inner, index, counts, strict=True))
            offset, length = table[within].tolist()
            if offset == ABSENT:
                for part in held:
                    part.out[...] = self.fill
            else:
                self._read_chunk(fd, inner, held, offset=offset, size=length)

    def _read_chunk(
        self, fd: int, index: tuple[int, ...], parts: list[Piece], *, offset: int, size: int
    ) -> None:
        """Boxes of the chunk that is stored in ``size`` bytes from ``offset`` on."""
        corner = tuple((i * chunk, (i + 1) * chunk) for i, chunk in zip(index, self.chunks, strict=True))
        if self.encoding.reader == "plain":
            if size != self.chunk_bytes:
                raise ValueError(f"it holds {size} bytes instead of {self.chunk_bytes}")
            for part in parts:
                read_plain_box(fd, part.out, offset=offset, shape=self.chunks, at=local(part.box, corner))
        else:
            require_sensible(size, self.chunk_bytes)
            encoded = scratch.get("encoded", size)
            read_run(fd, encoded, offset)
            self._decode(encoded, parts, corner)
        if self.encoding.swapped:
            for part in parts:
                part.out.byteswap(inplace=True)

    def _decode(self, encoded: npt.NDArray[np.uint8], parts: list[Piece], corner: tuple[Any, ...]) -> None:
        """Decode a chunk straight to its place if it fills it, else into a buffer to copy from."""
        first = parts[0].out
        if first.shape == self.chunks and first.flags.c_contiguous:
            decode_into(self.encoding.codec, encoded, first.reshape(-1).view(np.uint8))
            return
        decoded = scratch.get("decoded", self.chunk_bytes)
        decode_into(self.encoding.codec, encoded, decoded)
        numbers = decoded.view(self.dtype).reshape(self.chunks)
        for part in parts:
            part.out[...] = numbers[local(part.box, corner)]

    def _through_zarr(self, array: zarr.Array[Any], request: Piece) -> None:
        """Whole chunks through Zarr, several at once."""
        from zarr.buffer.cpu import NDBuffer, buffer_prototype

        keys = [self.files.key(*index) for index, _ in cells([request], self.files.extent)]
        for key in keys:
            self._require_file(key)
        selection = tuple(slice(*span) for span in request.box)
        target = NDBuffer(cast("Any", request.out))  # Zarr's protocol is narrower than NumPy's stubs
        try:
            array.get_basic_selection(selection, out=target, prototype=buffer_prototype)
        except MemoryError:
            raise
        except Exception as error:
            chunks = list(requests(request, self.chunks, 1))
            if len(chunks) > 1:
                # One by one, so that the message names the chunk that is damaged.
                for chunk in chunks:
                    self._through_zarr(array, chunk)
                return
            raise self._broken(keys[0], error) from error

    def _require_file(self, key: str) -> None:
        """Raise for what Zarr would not notice: a file that is not there, a Blosc chunk cut short."""
        try:
            if self.encoding.codec == "blosc":
                require_whole_blosc(self.files.path(key))
            elif self.missing != "fill":
                os.stat(self.files.path(key))
        except FileNotFoundError:
            self._require_fill(key)
        except ValueError as error:
            raise self._broken(key, error) from error

    def _require_fill(self, key: str) -> None:
        """Raise for a chunk that is not there, unless it stands for fill value."""
        if self.missing != "fill":
            raise ChunkError(missing_message(self.name, [key], self.files.total, self.fill))

    def _broken(self, key: str, error: Exception) -> ChunkError:
        """The error for a chunk file that is there but cannot be made sense of."""
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        place = self.files.path(key)
        return ChunkError(
            f"{self.name}: chunk {key} cannot be read ({place}): {kind}{error}. Restore the store"
        )
