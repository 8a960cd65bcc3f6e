"""Read rectangles and boxes of uncompressed arrays from files, straight into the caller's memory.

Nothing is copied on the way: the operating system reads into the rows of ``out``. A call moves at most
``RUN_BYTES``, since Linux cuts every read at 2 GiB and the rest would silently be missing.

Boxes are read from files that hold the uncompressed values of an array in C order.

Axes that are read whole and are contiguous in memory take one system call. Where the last axis of
the file is not contiguous in memory (a file of (lat, lon, time), rows = time), values pass through
a small buffer and are transposed there.

The index of a Zarr shard: where in the file its inner chunks lie.

https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed: a pair (offset, bytes) of
little-endian uint64 for every inner chunk in C order, at the start or the end of the file, usually
followed by a CRC-32C. Only that checksum shows that a shard was truncated.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.encoding import Encoding, scratch
from rankfold.pipeline.chunks.geometry import Piece, Span, local, requests
from rankfold.pipeline.errors import ChunkError
from rankfold.pipeline.regular import open_descriptor

IOV_MAX = 1024
"""Largest number of buffers that one ``preadv`` takes on Linux and macOS."""

RUN_BYTES = 2**30
"""Largest number of bytes of one system call."""

SKIP_BYTES = 4096
"""Largest gap in bytes between rows of a file that is read over.

That costs less than a system call for every row.
"""

SCRATCH_BYTES = 256 * 1024
"""Largest bytes that ``read_rectangle`` takes: a batch of row views and the bytes skipped over."""


@contextmanager
def open_plain(path: str, name: str, cut_short: Callable[[], str]) -> Iterator[int]:
    """Open a file of uncompressed values and yield its descriptor, which is closed afterwards.

    Raises
    ------
    ChunkError
        The file cannot be read, with ``name`` in the message, or the block finds that it ends early
        (``EOFError``): then ``cut_short`` returns the message.
    """
    try:
        fd = open_descriptor(path)
        try:
            yield fd
        finally:
            os.close(fd)
    except EOFError:
        raise ChunkError(cut_short()) from None
    except OSError as error:
        raise ChunkError(f"{name} cannot be read: {error}") from error


class Tile(NamedTuple):
    """Intersection of a rectangle that is read and one cell of a grid."""

    i: int
    """Row of the cell in the grid."""

    j: int
    """Column of the cell in the grid."""

    rows: Span
    columns: Span
    out: npt.NDArray[Any]
    """View of the part of the destination that this intersection is read into."""


def tiles(out: npt.NDArray[Any], rows: Span, columns: Span, extent: tuple[int, int]) -> Iterator[Tile]:
    """Cut ``out``, the destination of ``rows`` and ``columns`` of an array, where cells of a grid meet.

    ``extent`` is the shape of a cell; edges are multiples of it.

    >>> [tile[:4] for tile in tiles(np.empty((2, 3)), (3, 5), (0, 3), (4, 4))]
    [(0, 0, (3, 4), (0, 3)), (1, 0, (4, 5), (0, 3))]
    """
    for i, top, bottom in _pieces(rows, extent[0]):
        band = out[top - rows[0] : bottom - rows[0]]
        for j, left, right in _pieces(columns, extent[1]):
            part = band[:, left - columns[0] : right - columns[0]]
            yield Tile(i, j, (top, bottom), (left, right), part)


def _pieces(span: Span, step: int) -> Iterator[tuple[int, int, int]]:
    """Cut a span at multiples of ``step``: index, start and stop of each piece."""
    for index in range(span[0] // step, -(-span[1] // step)):
        yield index, max(span[0], index * step), min(span[1], (index + 1) * step)


def read_rectangle(fd: int, out: npt.NDArray[Any], *, offset: int, pitch: int) -> None:
    """Fill ``out`` (rows, columns) from a file in which row ``i`` starts at byte ``offset + i * pitch``.

    The rows of ``out`` are contiguous but may lie apart. Raises ``EOFError`` when the file ends first.
    """
    width = out.shape[1] * out.itemsize
    if pitch == width and out.flags.c_contiguous:
        read_run(fd, out.reshape(-1), offset)
    elif pitch - width <= SKIP_BYTES and pitch <= RUN_BYTES:
        _read_rows(fd, out, offset, pitch)
    else:
        for i, row in enumerate(out):
            read_run(fd, row, offset + i * pitch)


def read_run(fd: int, run: npt.NDArray[Any], offset: int) -> None:
    """Fill ``run``, a contiguous vector, from the file at byte ``offset``; ``EOFError`` if it ends first."""
    step = RUN_BYTES // run.itemsize
    for start in range(0, len(run), step):
        _fill(fd, [run[start : start + step]], offset + start * run.itemsize)


def _read_rows(fd: int, out: npt.NDArray[Any], offset: int, pitch: int) -> None:
    """``read_rectangle`` for rows that are close in the file: bytes between them are read and discarded."""
    gap = np.empty(pitch - out.shape[1] * out.itemsize, dtype=np.uint8)
    step = max(1, min(IOV_MAX // (2 if len(gap) else 1), RUN_BYTES // pitch))
    for start in range(0, len(out), step):
        buffers = list(out[start : start + step])
        if len(gap):
            # No gap after the last row: the file may end there.
            buffers = [buffer for row in buffers for buffer in (row, gap)][:-1]
        _fill(fd, buffers, offset + start * pitch)


def _fill(fd: int, buffers: list[Any], offset: int) -> None:
    """Fill arrays one after the other from a file at byte ``offset``, by as many ``preadv`` as that takes.

    A signal or a network file system may cut a read short.
    """
    # Any: NumPy's stubs know the buffer protocol from Python 3.12 on only.
    if os.preadv(fd, buffers, offset) == sum(buffer.nbytes for buffer in buffers):
        return
    for buffer in buffers:
        rest = memoryview(buffer.view(np.uint8))
        while len(rest):
            got = os.preadv(fd, [rest], offset)
            if got == 0:
                raise EOFError(f"the file ends at byte {offset}")
            rest, offset = rest[got:], offset + got


# Boxes --------------------------------------------------------------------------------------------


TURN_BYTES = 4 * 2**20
"""Bytes of the buffer in which values are collected before they are transposed."""


def read_plain_box(
    fd: int, out: npt.NDArray[Any], *, offset: int, shape: tuple[int, ...], at: tuple[slice, ...]
) -> None:
    """Fill ``out`` with box ``at`` of an array of ``shape`` whose values begin at byte ``offset`` of a file.

    Raises ``EOFError`` when the file ends first.
    """
    if out.shape[-1] == 1 or out.strides[-1] == out.itemsize:
        _read(fd, out, offset, shape, at)
        return
    whole = Piece(tuple((span.start, span.stop) for span in at), out)
    for box, part in requests(whole, (1,) * out.ndim, TURN_BYTES // out.itemsize):
        rows_of = scratch.get("turned", part.nbytes)[: part.nbytes].view(out.dtype).reshape(part.shape)
        _read(fd, rows_of, offset, shape, local(box, ((0, 0),) * out.ndim))
        part[...] = rows_of


def _read(fd: int, out: npt.NDArray[Any], offset: int, shape: tuple[int, ...], at: tuple[slice, ...]) -> None:
    """Fill ``out``, whose rows are contiguous, with box ``at`` of an array in a file.

    See ``read_plain_box``.
    """
    while len(shape) > 1 and out.shape[-1] == shape[-1] and _together(out):
        wide, span = shape[-1], at[-2]
        out = out.reshape(*out.shape[:-2], out.shape[-2] * wide, copy=False)
        at = (*at[:-2], slice(span.start * wide, span.stop * wide))
        shape = (*shape[:-2], shape[-2] * wide)
    if len(shape) > 2:
        inner = math.prod(shape[1:]) * out.itemsize
        for i, part in enumerate(out):
            _read(fd, part, offset + (at[0].start + i) * inner, shape[1:], at[1:])
        return
    rows = out if out.ndim == 2 else out[None]
    pitch = shape[-1] * out.itemsize
    top = at[0].start if out.ndim == 2 else 0
    read_rectangle(fd, rows, offset=offset + top * pitch + at[-1].start * out.itemsize, pitch=pitch)


def _together(out: npt.NDArray[Any]) -> bool:
    """True if the last two axes of ``out`` are contiguous in memory."""
    return bool(out.shape[-2] == 1 or out.strides[-2] == out.shape[-1] * out.itemsize)


ABSENT = 2**64 - 1
"""Offset in the index that marks an inner chunk that was not written: it holds only the fill value."""


def read_index(fd: int, size: int, count: int, encoding: Encoding) -> npt.NDArray[np.uint64]:
    """Read the index of a shard: offset and bytes of each of its ``count`` inner chunks, (count, 2).

    ``size`` is the length of the file; ``ValueError`` if the index is damaged.
    """
    start, stop = index_span(size, count, encoding)
    head = np.empty(stop - start, np.uint8)
    read_run(fd, head, start)
    return decode_index(head, size, count, encoding)


def index_span(size: int, count: int, encoding: Encoding) -> tuple[int, int]:
    """First byte of the index of a shard of ``size`` bytes and ``count`` inner chunks, and one past its last.

    Raises ``ValueError`` for a shard that is shorter than its index.
    """
    length = 16 * count + 4 * encoding.index_checked
    if size < length:
        raise ValueError(f"it holds {size} bytes, less than the {length} of its index")
    return (0, length) if encoding.index_at == "start" else (size - length, size)


def decode_index(
    head: npt.NDArray[np.uint8], size: int, count: int, encoding: Encoding
) -> npt.NDArray[np.uint64]:
    """Decode and check the bytes of an index, ``head``; ``ValueError`` if damaged. See ``read_index``."""
    if encoding.index_checked:
        import google_crc32c

        if google_crc32c.value(head[:-4].tobytes()) != int.from_bytes(head[-4:].tobytes(), "little"):
            raise ValueError("the checksum of its index does not match: it is cut short or damaged")
    index = head[: 16 * count].view("<u8").reshape(count, 2).astype(np.uint64, copy=False)
    present = index[index[:, 0] != ABSENT]
    if len(present) and int(present.sum(axis=1).max()) > size:
        raise ValueError(f"its index points beyond its {size} bytes: it is cut short or damaged")
    return index
