"""A two-dimensional Zarr array, version 2 or 3, in a folder.

Uncompressed chunks are read by the system straight into the caller's buffer, any rows and columns of
them. Chunks under one common codec are decoded whole, also straight into it where they fit as they
are. What is encoded in any other way goes through Zarr's own reader.

Zarr reads a chunk that is not there as fill value, without a word: after a killed writer that is
silent corruption, so here it is an error unless ``missing="fill"``. An inner chunk that is absent
from a shard that is there remains fill value: a shard is written at once.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.encoding import (
    Encoding,
    codec_bytes,
    decode_into,
    encoded_bound,
    require_sensible,
    require_whole_blosc,
    scratch,
)
from rankfold.pipeline.chunks.files import ChunkFiles, missing_message
from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.chunks.reads import SCRATCH_BYTES, Tile, read_rectangle, read_run, tiles
from rankfold.pipeline.chunks.shard import ABSENT, read_index
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.errors import ChunkError

if TYPE_CHECKING:
    import zarr

REQUEST_BYTES = 16 * 2**20
"""Chunks smaller than this are asked of Zarr together: it takes about 0.3 ms for a request."""

OVERHEAD_BYTES = 2**20
"""Tasks, futures and selections of a request to Zarr, or the views and names of a read."""


@dataclass(frozen=True, slots=True)
class ZarrSource:
    """A Zarr array as strings and numbers; no file stays open between two reads."""

    name: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    path: str
    """Folder of the store."""

    array: str
    """Path of the array in the store, empty for the store itself."""

    chunks: tuple[int, int]
    """Rows and columns of what is decoded at once: inner chunks where there are shards."""

    files: ChunkFiles
    encoding: Encoding
    format: str
    """Zarr version and, where there are shards, their shape."""

    fill: float | int | bool
    missing: str
    """``error`` or ``fill``: what a chunk without a file is."""

    version: str = field(repr=False)
    """Digest of the metadata, so that a store written anew is also opened anew."""

    @property
    def codec(self) -> str:
        """How chunks are compressed, in words; ``none`` where they are not."""
        return self.encoding.words

    @property
    def row_grid(self) -> Grid:
        """Native chunks along the rows."""
        return Grid.regular(self.shape[0], self.chunks[0], splittable=self.encoding.reader == "plain")

    @property
    def column_grid(self) -> Grid:
        """Native chunks along the columns."""
        return Grid.regular(self.shape[1], self.chunks[1], splittable=self.encoding.reader == "plain")

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns of one file: a chunk or a shard."""
        down, across = self.files.extent
        return down, across

    @property
    def chunk_bytes(self) -> int:
        """Bytes of one decoded chunk."""
        return self.chunks[0] * self.chunks[1] * self.dtype.itemsize

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; see ``Source``."""
        if self.encoding.reader == "zarr":
            self._read_requests(out, rows, columns)
            return
        for tile in tiles(out, rows, columns, self.extent):
            self._read_file(tile)

    def read_bytes(self, rows: int, columns: int) -> int:
        """Most memory of one ``read_into`` besides ``out``.

        Plain numbers: the views of a read. One codec: its workspace, the compressed chunk, which is as
        large as its file, or at most ``encoded_bound`` where files were not looked at; and the decoded
        one, unless all are read whole and fit into ``out`` as they are. Whole chunks are rows from the
        edge of one on, as panels are. The thread keeps these for its next read. Left to Zarr:
        ``Encoding.stages`` times the chunks of one request, and three times that below 32 MiB, from where
        on the heap gives memory back. A shard adds its index, 16 bytes for every inner chunk, as bytes
        and as numbers.
        """
        inner = self.extent[0] // self.chunks[0] * (self.extent[1] // self.chunks[1])
        fixed = OVERHEAD_BYTES + SCRATCH_BYTES + 3 * 16 * inner
        if self.encoding.reader == "plain":
            return fixed
        if self.encoding.reader == "codec":
            placed = self._whole(rows, columns)
            return fixed + codec_bytes(
                self.encoding.codec, self.chunk_bytes, encoded=self._encoded_bytes, placed=placed
            )
        down, across = self._request(rows, columns)
        request = down * across * self.chunk_bytes
        return fixed + request * self.encoding.stages * (3 if self.chunk_bytes < 32 * 2**20 else 1)

    @property
    def _encoded_bytes(self) -> int:
        """Most bytes of a compressed chunk."""
        largest, bound = self.files.largest_bytes(), encoded_bound(self.chunk_bytes)
        return bound if largest is None else min(max(largest, 0), bound)

    def _whole(self, rows: int, columns: int) -> bool:
        """Whether so many rows from the edge of a chunk on are whole chunks, each as it lies in ``out``."""
        (down, across), (height, width) = self.shape, self.chunks
        return columns == across == width and rows % height == 0 and down % height == 0

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
        """Digest of the metadata and of name, size and time of the chunk files."""
        return self.files.fingerprint()

    def stored_bytes(self) -> int:
        """Bytes of the chunk files on disk."""
        return self.files.stored_bytes()

    def _read_file(self, tile: Tile) -> None:
        """The part of a selection that lies in one file, which is a chunk or a shard."""
        key = self.files.key(tile.i, tile.j)
        try:
            fd = os.open(self.files.path(key), os.O_RDONLY)
        except FileNotFoundError:
            if self.missing != "fill":
                raise ChunkError(missing_message(self.name, [key], self.files.total, self.fill)) from None
            tile.out[...] = self.fill
            return
        except OSError as error:
            raise self._broken(key, tile, error) from error
        try:
            self._read_open(fd, tile)
        except MemoryError:
            raise
        except Exception as error:
            raise self._broken(key, tile, error) from error
        finally:
            os.close(fd)

    def _read_open(self, fd: int, file: Tile) -> None:
        """The chunks of an open file that a selection meets."""
        size = os.fstat(fd).st_size
        if not self.encoding.index_at:
            self._read_chunk(fd, file, offset=0, size=size)
            return
        down, across = (extent // chunk for extent, chunk in zip(self.extent, self.chunks, strict=True))
        index = read_index(fd, size, down * across, self.encoding)
        for chunk in tiles(file.out, file.rows, file.columns, self.chunks):
            offset, length = index[(chunk.i - file.i * down) * across + chunk.j - file.j * across].tolist()
            if offset == ABSENT:
                chunk.out[...] = self.fill
            else:
                self._read_chunk(fd, chunk, offset=offset, size=length)

    def _read_chunk(self, fd: int, chunk: Tile, *, offset: int, size: int) -> None:
        """A rectangle of the chunk that is stored in ``size`` bytes from ``offset`` on."""
        top, left = chunk.rows[0] - chunk.i * self.chunks[0], chunk.columns[0] - chunk.j * self.chunks[1]
        if self.encoding.reader == "plain":
            if size != self.chunk_bytes:
                raise ValueError(f"it holds {size} bytes instead of {self.chunk_bytes}")
            pitch = self.chunks[1] * self.dtype.itemsize
            start = offset + top * pitch + left * self.dtype.itemsize
            read_rectangle(fd, chunk.out, offset=start, pitch=pitch)
        else:
            require_sensible(size, self.chunk_bytes)
            encoded = scratch.get("encoded", size)
            read_run(fd, encoded, offset)
            if chunk.out.shape == self.chunks and chunk.out.flags.c_contiguous:
                decode_into(self.encoding.codec, encoded, chunk.out.reshape(-1).view(np.uint8))
            else:
                decoded = scratch.get("decoded", self.chunk_bytes)
                decode_into(self.encoding.codec, encoded, decoded)
                height, width = chunk.out.shape
                numbers = decoded.view(self.dtype).reshape(self.chunks)
                chunk.out[...] = numbers[top : top + height, left : left + width]
        if self.encoding.swapped:
            chunk.out.byteswap(inplace=True)

    def _read_requests(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Whole chunks through Zarr, as many to a request as fit into ``REQUEST_BYTES``."""
        for file in tiles(out, rows, columns, self.extent):
            self._require_file(self.files.key(file.i, file.j), file)
        array = opened(self.path, self.array, self.version)
        down, across = self._request(rows[1] - rows[0], columns[1] - columns[0])
        for request in tiles(out, rows, columns, (down * self.chunks[0], across * self.chunks[1])):
            self._decode(array, request)

    def _require_file(self, key: str, tile: Tile) -> None:
        """Raise for what Zarr would not notice: a file that is not there, a Blosc chunk cut short."""
        try:
            if self.encoding.codec == "blosc":
                require_whole_blosc(self.files.path(key))
            elif self.missing != "fill":
                os.stat(self.files.path(key))
        except FileNotFoundError:
            if self.missing != "fill":
                raise ChunkError(missing_message(self.name, [key], self.files.total, self.fill)) from None
        except ValueError as error:
            raise self._broken(key, tile, error) from error

    def _request(self, rows: int, columns: int) -> tuple[int, int]:
        """Chunks of one request down and across: a row of chunks first, then several rows.

        A selection may start inside a chunk, hence one chunk more than fits.
        """
        most = max(1, REQUEST_BYTES // self.chunk_bytes)
        across = min(most, columns // self.chunks[1] + 2, -(-self.shape[1] // self.chunks[1]))
        return max(1, min(most // across, rows // self.chunks[0] + 2)), across

    def _decode(self, array: zarr.Array[Any], request: Tile) -> None:
        """One request; if it fails, chunk by chunk, so that the message names the one that is damaged."""
        try:
            _through_zarr(array, request)
        except MemoryError:
            raise
        except Exception as error:
            chunks = list(tiles(request.out, request.rows, request.columns, self.chunks))
            if len(chunks) > 1:
                for chunk in chunks:
                    self._decode(array, chunk)
                return
            file = next(tiles(request.out, request.rows, request.columns, self.extent))
            raise self._broken(self.files.key(file.i, file.j), request, error) from error

    def _broken(self, key: str, tile: Tile, error: Exception) -> ChunkError:
        """The error for a chunk file that is there but cannot be made sense of."""
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        return ChunkError(
            f"{self.name}: chunk {key} cannot be read ({self.files.path(key)}, rows {tile.rows[0]}:"
            f"{tile.rows[1]}, columns {tile.columns[0]}:{tile.columns[1]}): {kind}{error}. Restore the store"
        )


def _through_zarr(array: zarr.Array[Any], request: Tile) -> None:
    """A selection that Zarr copies from the decoded chunks straight into ``request.out``."""
    from zarr.buffer.cpu import NDBuffer, buffer_prototype

    selection = (slice(*request.rows), slice(*request.columns))
    target = NDBuffer(cast("Any", request.out))  # Zarr's protocol is narrower than NumPy's stubs
    array.get_basic_selection(selection, out=target, prototype=buffer_prototype)


@functools.lru_cache(maxsize=32)
def opened(path: str, array: str, version: str) -> zarr.Array[Any]:
    """The array, opened once in a process; ``version`` only tells one state of a store from the next."""
    from zarr.storage import LocalStore

    from rankfold.pipeline.chunks.bounded_store import open_bounded

    return open_bounded(LocalStore(path, read_only=True), array)
