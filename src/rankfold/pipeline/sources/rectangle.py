"""Rectangles of an array and of files: cut along a grid, read straight into the caller's memory.

Nothing is copied on the way: the kernel scatters into the rows of ``out``. A call moves at most
``RUN_BYTES``, since Linux cuts every read at 2 GiB and the rest would silently be missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.source import Span

IOV_MAX = 1024
"""Buffers that one ``preadv`` takes on Linux and macOS."""

RUN_BYTES = 2**30
"""Most bytes of one system call."""

SKIP_BYTES = 4096
"""Up to this gap between rows, reading over it costs less than a system call for every row."""

SCRATCH_BYTES = 256 * 1024
"""Most memory that ``read_rectangle`` takes: a batch of row views and the bytes skipped over."""


class Tile(NamedTuple):
    """What a selection and one cell of a grid have in common."""

    i: int
    """Row of the cell in the grid."""

    j: int
    """Column of the cell in the grid."""

    rows: Span
    columns: Span
    out: npt.NDArray[Any]
    """View of the destination."""


def tiles(out: npt.NDArray[Any], rows: Span, columns: Span, extent: tuple[int, int]) -> Iterator[Tile]:
    """Cut ``out``, which is for ``rows`` and ``columns``, at multiples of ``extent``.

    >>> [tile[:4] for tile in tiles(np.empty((2, 3)), (3, 5), (0, 3), (4, 4))]
    [(0, 0, (3, 4), (0, 3)), (1, 0, (4, 5), (0, 3))]
    """
    for i, top, bottom in _pieces(rows, extent[0]):
        band = out[top - rows[0] : bottom - rows[0]]
        for j, left, right in _pieces(columns, extent[1]):
            part = band[:, left - columns[0] : right - columns[0]]
            yield Tile(i, j, (top, bottom), (left, right), part)


def _pieces(span: Span, step: int) -> Iterator[tuple[int, int, int]]:
    """Index, first and one past the last of the pieces of a span."""
    for index in range(span[0] // step, -(-span[1] // step)):
        yield index, max(span[0], index * step), min(span[1], (index + 1) * step)


def read_rectangle(fd: int, out: npt.NDArray[Any], *, offset: int, pitch: int) -> None:
    """Fill ``out`` from a file in which its row ``i`` starts at ``offset + i * pitch`` bytes.

    The rows of ``out`` are contiguous but may lie apart. Raises ``EOFError`` when the file ends first.
    """
    width = out.shape[1] * out.itemsize
    if pitch == width and out.flags.c_contiguous:
        read_run(fd, out.reshape(-1), offset)
    elif pitch - width <= SKIP_BYTES and pitch <= RUN_BYTES:
        _read_scattered(fd, out, offset, pitch)
    else:
        for i, row in enumerate(out):
            read_run(fd, row, offset + i * pitch)


def read_run(fd: int, run: npt.NDArray[Any], offset: int) -> None:
    """Fill a contiguous vector from the file, from byte ``offset`` on; ``EOFError`` if it ends first."""
    step = RUN_BYTES // run.itemsize
    for start in range(0, len(run), step):
        _fill(fd, [run[start : start + step]], offset + start * run.itemsize)


def _read_scattered(fd: int, out: npt.NDArray[Any], offset: int, pitch: int) -> None:
    """A stretch of the file into rows that lie apart, the bytes between them thrown away."""
    gap = np.empty(pitch - out.shape[1] * out.itemsize, dtype=np.uint8)
    step = max(1, min(IOV_MAX // (2 if len(gap) else 1), RUN_BYTES // pitch))
    for start in range(0, len(out), step):
        buffers = list(out[start : start + step])
        if len(gap):
            # No gap after the last row: the file may end there.
            buffers = [buffer for row in buffers for buffer in (row, gap)][:-1]
        _fill(fd, buffers, offset + start * pitch)


def _fill(fd: int, buffers: list[Any], offset: int) -> None:
    """``preadv`` until every array is full: a signal or a network file system may cut a read short."""
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
