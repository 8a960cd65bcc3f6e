"""A Zarr array, version 2 or 3, in a folder: ``ZarrSource`` of two axes, ``ZarrVolume`` of any number.

Any box of uncompressed chunks is read straight into the caller's buffer. Chunks with one common codec are
decoded whole, once for all boxes of a read that overlap them, and straight into their destination if they
fill it. Chunks in any other encoding are read by Zarr.

Zarr silently reads a missing chunk as fill value, and so does this module, since Zarr does not write chunks,
and inner chunks of shards, that are all fill value. Missing chunks are counted, and refused on request. In a
result they are damage.

The chunks that no file holds are counted by a look at existing files, and at the indexes of shards.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.absence import Absence, chunk_count, estimate_absence, inner_counts
from rankfold.pipeline.chunks.encoding import (
    codec_bytes,
    decode_into,
    encoded_bound,
    require_sensible,
    require_whole_blosc,
    scratch,
)
from rankfold.pipeline.chunks.files import ABSENT as NO_FILE
from rankfold.pipeline.chunks.files import LISTING_LIMIT, absent_message, lost_message, missing_message
from rankfold.pipeline.chunks.geometry import Box, Piece, cells, local, requests
from rankfold.pipeline.chunks.reads import (
    ABSENT,
    SCRATCH_BYTES,
    TURN_BYTES,
    read_index,
    read_plain_box,
    read_rectangle,
    read_run,
    tiles,
)
from rankfold.pipeline.chunks.row_marks import RowMarks, digest_of, digest_of_rows
from rankfold.pipeline.data.grid import Grid, regular_grids
from rankfold.pipeline.data.names import Axis, Names
from rankfold.pipeline.data.selection import Readable
from rankfold.pipeline.data.source import Matrix
from rankfold.pipeline.errors import ChunkError, RankfoldError
from rankfold.pipeline.formats.naming import written_names, zarr_axis
from rankfold.pipeline.formats.zarr.metadata import (
    Layout,
    read_through_zarr,
    require_described,
    require_same_metadata,
)
from rankfold.pipeline.regular import open_descriptor

if TYPE_CHECKING:
    import zarr


REQUEST_BYTES = 16 * 2**20
"""Largest number of bytes of chunks that are requested from Zarr together: a request takes about 0.3 ms."""

OVERHEAD_BYTES = 2**20
"""Bytes of memory for tasks, futures and selections of a request to Zarr, or views and names of a read."""


@dataclass(frozen=True, slots=True)
class ZarrArray(Layout):
    """Picklable description of a Zarr array in a folder; its files are open only during a read."""

    path: str
    """Folder of the store."""

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Native chunks along every axis."""
        return regular_grids(self.shape, self.chunks, splittable=self.encoding.reader == "plain")

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Read every box into ``out`` of its piece; see ``Volume``."""
        if self.encoding.reader == "zarr":
            self._read_requests(pieces)
        else:
            for index, parts in self._cells(pieces, self.files.extent):
                self._read_file(index, parts)
        if self.edition is not None:
            self.edition.require()

    def check(self) -> None:
        """Raise ``ChunkError`` for chunk files of a wrong size, or for chunks that may not be missing."""
        if self.edition is not None:
            self.edition.require()
        require_same_metadata(self)
        whole = self.encoding.reader == "plain" and not self.encoding.index_at
        self.files.check(
            self.name,
            expected_bytes=self.chunk_bytes if whole else None,
            fill=self.fill,
            allow_missing=self.missing == "fill",
        )
        if self.missing != "fill" and is_indexed(self) and (absence := count_absent(self)).count:
            raise ChunkError(absent_message(self.name, absence.count, absence.total, self.fill))

    def absent_chunks(self, most: int = LISTING_LIMIT) -> Absence:
        """Number of chunks that read as fill value because no file holds them.

        It is estimated if the array has more files than ``most``.
        """
        return count_absent(self, most if self.missing == "fill" else 0)

    def fingerprint(self) -> str:
        """Digest of the metadata and of name, size and time of the chunk files."""
        return self.files.fingerprint()

    def row_marks(self, rows: int) -> RowMarks:
        """Digests that change if the first ``rows`` indices of the first axis have: see ``GrowingSource``."""
        tall, lengths = self.files.extent[0], self.shape[1:]
        slabs = rows // tall
        facts = self.dtype.str, lengths, self.chunks, self.files.extent, self.codec, self.fill
        numbers = digest_of_rows(self.read_boxes, (slabs * tall, rows), lengths, self.chunks, self.dtype)
        files = self.files.first_fingerprint(slabs * math.prod(self.files.counts[1:]))
        return RowMarks(digest_of(*facts), files, numbers)

    def stored_bytes(self) -> int:
        """Bytes of the chunk files on disk."""
        return self.files.stored_bytes()

    @property
    def _fixed_bytes(self) -> int:
        """Bytes of memory that any read takes: views, names, and the index of a shard, stored and decoded.

        The index takes 16 bytes for every inner chunk.
        """
        inner = math.prod(self.files.extent) // math.prod(self.chunks)
        return OVERHEAD_BYTES + SCRATCH_BYTES + 3 * 16 * inner

    # Chunks that are read here

    def _read_file(self, index: tuple[int, ...], parts: list[Piece]) -> None:
        """Read ``parts``, pieces of the array, from the one file that holds them, a chunk or a shard.

        ``index`` is that of the file in the grid of files.
        """
        key = self.files.key(*index)
        try:
            fd = open_descriptor(self.files.path(key))
        except FileNotFoundError:
            self._require_fill(key)
            self._fill(parts)
            return
        except OSError as error:
            raise self._broken(key, parts[0], error) from error
        try:
            self._read_open(fd, index, parts)
        except MemoryError:
            raise
        except Exception as error:
            raise self._broken(key, parts[0], error) from error
        finally:
            os.close(fd)

    def _read_open(self, fd: int, index: tuple[int, ...], parts: list[Piece]) -> None:
        """Read ``parts``, pieces of the array, from the open file ``fd``, which has grid index ``index``."""
        size = os.fstat(fd).st_size
        if not self.encoding.index_at:
            self._read_chunk(fd, index, parts, offset=0, size=size)
            return
        counts = [extent // chunk for extent, chunk in zip(self.files.extent, self.chunks, strict=True)]
        table = read_index(fd, size, math.prod(counts), self.encoding).reshape(*counts, 2)
        for inner, inside in self._cells(parts, self.chunks):
            place = tuple(i - at * count for i, at, count in zip(inner, index, counts, strict=True))
            offset, length = table[place].tolist()
            if offset == ABSENT:
                self._require_fill(f"{'/'.join(map(str, inner))}, in shard {self.files.key(*index)}")
                self._fill(inside)
            else:
                self._read_chunk(fd, inner, inside, offset=offset, size=length)

    def _fill(self, parts: list[Piece]) -> None:
        for part in parts:
            part.out[...] = self.fill

    def _read_chunk(
        self, fd: int, index: tuple[int, ...], parts: list[Piece], *, offset: int, size: int
    ) -> None:
        """Read ``parts``, pieces of one chunk, stored in ``size`` bytes of the file from ``offset`` on.

        ``index`` is that of the chunk in the grid of chunks.
        """
        if self.encoding.reader == "plain":
            if size != self.chunk_bytes:
                raise ValueError(f"it holds {size} bytes instead of {self.chunk_bytes}")
            for part in parts:
                self._read_plain(fd, index, part, offset)
        else:
            require_sensible(size, self.chunk_bytes)
            stream = scratch.get("encoded", size)
            read_run(fd, stream, offset)
            self._decode_chunk(stream, index, parts)
        if self.encoding.swapped:
            for part in parts:
                part.out.byteswap(inplace=True)

    def _read_plain(self, fd: int, index: tuple[int, ...], part: Piece, offset: int) -> None:
        """Read ``part`` of the uncompressed chunk at grid index ``index``.

        The chunk starts at byte ``offset`` of the open file ``fd``.
        """
        at = local(part.box, self._corner(index))
        read_plain_box(fd, part.out, offset=offset, shape=self.chunks, at=at)

    def _decode_chunk(
        self, stream: npt.NDArray[np.uint8], index: tuple[int, ...], parts: list[Piece]
    ) -> None:
        """Decode ``stream``, the bytes of the chunk at grid index ``index``, and copy ``parts`` from it.

        It is decoded straight into the destination of the first part if it fills that, else into a buffer.
        """
        first = parts[0].out
        if first.shape == self.chunks and first.flags.c_contiguous:
            decode_into(self.encoding.codec, stream, first.reshape(-1).view(np.uint8))
            return
        block = scratch.get("decoded", self.chunk_bytes)
        decode_into(self.encoding.codec, stream, block)
        numbers = block.view(self.dtype).reshape(self.chunks)
        corner = self._corner(index)
        for part in parts:
            part.out[...] = numbers[local(part.box, corner)]

    def _corner(self, index: tuple[int, ...]) -> Box:
        """Box of the chunk at a grid index, of which callers use only the start."""
        return tuple((i * chunk, (i + 1) * chunk) for i, chunk in zip(index, self.chunks, strict=True))

    def _cells(
        self, pieces: Sequence[Piece], extent: tuple[int, ...]
    ) -> Iterator[tuple[tuple[int, ...], list[Piece]]]:
        """Yield the chunks, or files, that overlap the pieces: grid index, and the parts of pieces in it.

        ``extent`` is the shape of a chunk, or of what a file covers.
        """
        return cells(pieces, extent)

    # Chunks that are left to Zarr

    def _read_requests(self, pieces: Sequence[Piece]) -> None:
        """Read pieces through Zarr, in requests of as many whole chunks as fit into ``REQUEST_BYTES``."""
        for index, parts in cells(pieces, self.files.extent):
            self._require_file(self.files.key(*index), parts[0])
            if self.missing != "fill" and is_indexed(self):
                require_inner(self, index)
        require_described(self)
        array = open_array(self.path, self.array, self.version)
        for piece in pieces:
            for request in self._requests(piece):
                self._decode_request(array, request)
        require_described(self)

    def _requests(self, piece: Piece) -> Iterator[Piece]:
        """Cut a piece into parts, each of which is one request to Zarr."""
        return requests(piece, self.chunks, REQUEST_BYTES // self.dtype.itemsize)

    def _require_file(self, key: str, part: Piece) -> None:
        """Raise ``ChunkError`` for what Zarr would not notice: a missing file, a truncated Blosc chunk.

        ``key`` is that of the file, ``part`` the piece that is read from it, for the message.
        """
        try:
            if self.encoding.codec == "blosc":
                require_whole_blosc(self.files.path(key))
            elif self.missing != "fill":
                os.stat(self.files.path(key))
        except FileNotFoundError:
            self._require_fill(key)
        except ValueError as error:
            raise self._broken(key, part, error) from error

    def _decode_request(self, array: zarr.Array[Any], request: Piece) -> None:
        """Read one request into its ``out``; if that fails, chunk by chunk, to name the damaged one."""
        try:
            self._select(array, request)
        except MemoryError:
            raise
        except Exception as error:
            chunks = list(requests(request, self.chunks, 1))
            if len(chunks) > 1:
                for chunk in chunks:
                    self._decode_request(array, chunk)
                return
            index, _ = next(cells([request], self.files.extent))
            raise self._broken(self.files.key(*index), request, error) from error

    def _select(self, array: zarr.Array[Any], request: Piece) -> None:
        """Read the box of one request from an open array into its ``out``."""
        read_through_zarr(array, request)

    # Errors

    def _require_fill(self, key: str) -> None:
        """Raise ``ChunkError`` for a missing chunk, called ``key``, unless it may be read as fill value."""
        if self.edition is not None:
            self.edition.require()
            raise ChunkError(lost_message(self.name, [key], self.files.total)) from None
        if self.missing != "fill":
            raise ChunkError(missing_message(self.name, [key], self.files.total, self.fill)) from None
        require_described(self)

    def _broken(self, key: str, part: Piece, error: Exception) -> ChunkError:
        """The error for chunk file ``key``, which exists, if ``part`` cannot be read because of ``error``."""
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        return ChunkError(
            f"{self.name}: chunk {key} cannot be read ({self.files.path(key)}{self._place(part.box)}): {kind}"
            f"{error}. Restore the store"
        )

    def _place(self, box: Box) -> str:
        """Text of a box, added to the file in messages; empty here."""
        return ""


@dataclass(frozen=True, slots=True, repr=False)
class ZarrSource(Readable, Matrix, ZarrArray):
    """A Zarr array as a matrix of its two axes."""

    shape: tuple[int, int]
    chunks: tuple[int, int]
    dims: tuple[str, ...] = field(default=(), kw_only=True)
    """Names of both axes; empty if the store has none, or has names of rows and columns by rankfold."""

    def names(self, axis: int) -> Names | None:
        """Names of the rows (0) or columns (1); None if it has none."""
        written = written_names(self.path, self.array, axis)
        return written or Names.of([self.axis(axis)])

    def axis(self, number: int) -> Axis:
        """Axis ``number``, rows (0) or columns (1), with its labels."""
        return zarr_axis(self.path, self.array, number, None, self.shape[number])

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound in bytes on the memory of one ``read_into`` of that size, in addition to ``out``.

        For uncompressed chunks: the views of a read. For chunks with one codec: its workspace, the compressed
        chunk, and the decoded chunk. The compressed chunk is as large as its file, or at most
        ``encoded_bound`` if sizes of files are not known. The decoded chunk needs no buffer if all chunks are
        read whole and fit into ``out`` as they are; this assumes rows from the edge of a chunk on, as sweeps
        read them. The thread keeps these buffers for its next read. For chunks that Zarr reads: those of one
        request in every stage of decoding.
        """
        if self.encoding.reader == "plain":
            return self._fixed_bytes
        if self.encoding.reader == "codec":
            place = self._whole(rows, columns)
            return self._fixed_bytes + codec_bytes(
                self.encoding.codec, self.chunk_bytes, encoded=self._encoded_bytes, placed=place
            )
        down, across = self._request(rows, columns)
        return self._fixed_bytes + self.decoding_bytes(down * across * self.chunk_bytes)

    @property
    def _encoded_bytes(self) -> int:
        """Upper bound on the bytes of a compressed chunk."""
        largest, bound = self.files.largest_bytes(), encoded_bound(self.chunk_bytes)
        return bound if largest is None else min(max(largest, 0), bound)

    def _whole(self, rows: int, columns: int) -> bool:
        """True if a read of that size from a chunk edge on takes whole chunks, each contiguous in ``out``."""
        (down, across), (height, width) = self.shape, self.chunks
        return columns == across == width and rows % height == 0 and down % height == 0

    def _request(self, rows: int, columns: int) -> tuple[int, int]:
        """Number of chunks, along rows and along columns, of one request to Zarr in a read of that size.

        A request takes chunks side by side first, then several rows of chunks. A selection may start inside a
        chunk, hence one chunk more than fits.
        """
        most = max(1, REQUEST_BYTES // self.chunk_bytes)
        across = min(most, columns // self.chunks[1] + 2, -(-self.shape[1] // self.chunks[1]))
        return max(1, min(most // across, rows // self.chunks[0] + 2)), across

    def _requests(self, piece: Piece) -> Iterator[Piece]:
        """Cut a piece into requests to Zarr, of the size that ``read_bytes`` assumes."""
        down, across = self._request(*piece.out.shape)
        for _, (part,) in cells([piece], (down * self.chunks[0], across * self.chunks[1])):
            yield part

    # The two innermost steps of a read, for two axes alone: half the time, which matters for small chunks.

    def _cells(
        self, pieces: Sequence[Piece], extent: tuple[int, ...]
    ) -> Iterator[tuple[tuple[int, ...], list[Piece]]]:
        """Yield the chunks, or files, that overlap the only piece: grid index, and the part of it there.

        ``extent`` is the shape of a chunk, or of what a file covers.
        """
        (piece,), (down, across) = pieces, extent
        selection_rows, selection_columns = piece.box
        for i, j, rows, columns, out in tiles(piece.out, selection_rows, selection_columns, (down, across)):
            yield (i, j), [Piece((rows, columns), out)]

    def _read_plain(self, fd: int, index: tuple[int, ...], part: Piece, offset: int) -> None:
        """Read ``part`` of the uncompressed chunk at grid index ``index``.

        The chunk starts at byte ``offset`` of the open file ``fd``.
        """
        ((top, _), (left, _)), (height, width) = part.box, self.chunks
        start = (top - index[0] * height) * width + left - index[1] * width
        item = self.dtype.itemsize
        read_rectangle(fd, part.out, offset=offset + start * item, pitch=width * item)

    def _place(self, box: Box) -> str:
        """Text of the rows and columns of a box, added to the file in messages."""
        (top, bottom), (left, right) = box
        return f", rows {top}:{bottom}, columns {left}:{right}"


@dataclass(frozen=True, slots=True)
class ZarrVolume(ZarrArray):
    """A Zarr array of any number of axes."""

    axes: tuple[str, ...]

    def axis(self, number: int) -> Axis:
        """Axis ``number`` with its labels."""
        return zarr_axis(self.path, self.array, number, self.axes[number], self.shape[number])

    def read_bytes(self, elements: int) -> int:
        """Upper bound in bytes on the memory of one read of that many elements, beside its destination.

        It is as in ``ZarrSource``, with a buffer to transpose values of uncompressed chunks.
        """
        if self.encoding.reader == "plain":
            return self._fixed_bytes + min(TURN_BYTES, elements * self.dtype.itemsize)
        if self.encoding.reader == "codec":
            return self._fixed_bytes + codec_bytes(self.encoding.codec, self.chunk_bytes)
        return self._fixed_bytes + self.decoding_bytes(self.request_bytes(REQUEST_BYTES))


@functools.lru_cache(maxsize=32)
def open_array(path: str, array: str, version: str) -> zarr.Array[Any]:
    """Open the array ``array`` of the store in the folder ``path``, once in a process for each ``version``.

    ``version`` is the digest of its metadata.
    """
    from rankfold.pipeline.chunks.bounded_store import open_bounded
    from rankfold.pipeline.chunks.regular_store import RegularStore

    return open_bounded(RegularStore(path, read_only=True), array)


FETCHES = 16
"""Number of threads that read indexes of shards, one index each."""

ReadIndex = Callable[[str, int, int], npt.NDArray[np.uint64]]
"""Function that reads the index of a shard: (offset, length) of each inner chunk in its file, (count, 2).

It takes the key and size in bytes of the file, and ``count``, the number of inner chunks.
"""


def count_absent(layout: Layout, most: int = LISTING_LIMIT) -> Absence:
    """Number of chunks that an array lacks, estimated from up to ``most`` of its files; 0 if ``most`` is 0.

    Raises
    ------
    ChunkError
        The index of a shard cannot be read.
    """
    absent = examined = 0
    for place, state in layout.files.sample(most):
        inside = chunks_inside(layout, place)
        examined += math.prod(inside)
        if state.size == NO_FILE:
            absent += math.prod(inside)
        elif is_indexed(layout):
            absent += absent_inside(layout, state.key, state.size, inside, _reader(layout))
    return estimate_absence(absent, examined, chunk_count(layout.shape, layout.chunks), layout.fill)


def count_listed(
    layout: Layout, present: Mapping[tuple[int, ...], int], read: ReadIndex, most: int
) -> Absence:
    """Number of chunks that an array lacks, from a listing of files and up to ``most`` indexes of shards.

    ``present`` maps the grid index of each existing file to its size in bytes; ``read`` reads the index of
    one.
    """
    total, places = chunk_count(layout.shape, layout.chunks), sorted(present)
    inside = sum(math.prod(chunks_inside(layout, place)) for place in places)
    count = min(len(places), most) if is_indexed(layout) else 0
    if not count:
        return estimate_absence(total - inside, total, total, layout.fill)
    sample = [places[i * len(places) // count] for i in range(count)]

    def absent(place: tuple[int, ...]) -> int:
        key, within = layout.files.key(*place), chunks_inside(layout, place)
        return absent_inside(layout, key, present[place], within, read)

    with ThreadPoolExecutor(FETCHES) as pool:
        found = sum(pool.map(absent, sample))
    examined = sum(math.prod(chunks_inside(layout, place)) for place in sample)
    inner = estimate_absence(found, examined, inside, layout.fill)
    return Absence(total - inside + inner.count, total, inner.fills, inner.sampled)


def is_indexed(layout: Layout) -> bool:
    """True if files are shards whose indexes are read here."""
    return bool(layout.encoding.index_at) and layout.encoding.index_plain


def chunks_inside(layout: Layout, place: tuple[int, ...]) -> tuple[int, ...]:
    """Number of chunks along every axis in the file at a grid index, without those beyond the array."""
    return inner_counts(layout.shape, layout.files.extent, layout.chunks, place)


def absent_inside(layout: Layout, key: str, size: int, inside: tuple[int, ...], read: ReadIndex) -> int:
    """Number of inner chunks that a shard lacks, without those beyond the end of the array.

    ``key`` and ``size`` (bytes) are those of its file, ``inside`` is the number of its chunks along every
    axis within the array, ``read`` reads its index.
    """
    counts = [extent // chunk for extent, chunk in zip(layout.files.extent, layout.chunks, strict=True)]
    try:
        offsets = read(key, size, math.prod(counts))[:, 0].reshape(counts)
    except RankfoldError:
        raise
    except (ValueError, EOFError, OSError) as error:
        raise ChunkError(
            f"{layout.name}: the index of chunk {key} cannot be read: {error}. Restore the store"
        ) from error
    return int((offsets[tuple(map(slice, inside))] == ABSENT).sum())


def require_inner(layout: Layout, place: tuple[int, ...]) -> None:
    """Raise ``ChunkError`` if the shard at ``place``, its index in the grid of files, lacks inner chunks."""
    key, inside = layout.files.key(*place), chunks_inside(layout, place)
    size = os.stat(layout.files.path(key)).st_size
    if absent := absent_inside(layout, key, size, inside, _reader(layout)):
        name = f"{layout.name}, shard {key}"
        raise ChunkError(absent_message(name, absent, math.prod(inside), layout.fill))


def _reader(layout: Layout) -> ReadIndex:
    def read(key: str, size: int, count: int) -> npt.NDArray[np.uint64]:
        fd = open_descriptor(layout.files.path(key))
        try:
            return read_index(fd, size, count, layout.encoding)
        finally:
            os.close(fd)

    return read
