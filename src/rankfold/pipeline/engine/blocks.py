"""Pure arithmetic of how a long axis is cut: grids, grains, panels, streams.

A *grid* is what the store gives: edges between native chunks. A *grain* is the rows of one GEMM. A
*panel* is what is read at once: whole native chunks, or a single grain where the store can be read
at any row. A *stream* is a run of panels folded in order into one accumulator. Every number here is
a function of shape, item size, native chunks and the kind of device alone; memory, workers and measured
speed never enter, since the cut decides the last bits of the answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.grid import GRAIN_BYTES_CEILING, Even, Grid, require_few_edges

Int64 = npt.NDArray[np.int64]

GRAIN_BYTES = {"cpu": 8 * 2**20, "gpu": 64 * 2**20}
"""Bytes of a grain, by kind of device.

On a host a grain and its basis stay in the last-level cache between the two products of a fused pass. On a
device that takes a few dozen microseconds for 64 MiB, less than asking for it: there a grain is as large as
pinned memory for a few panels allows.
"""

GRAIN_ROWS_FLOOR = 256
"""Fewest rows of a grain, unless they are very long.

With fewer, the update Z += D'Y waits for memory, as it moves 16 bytes of Z per 2 rows flops.
"""


READ_SPEED = {"cpu": 1, "gpu": 16}
"""Factor by which a byte is read and multiplied faster than on a host, by kind of device.

Accumulators are written at the same speed on all.
"""

READS_PER_BYTE = 64
"""Least bytes that a stream reads for each byte of its accumulator.

A pass is bound by reading: writing and merging an accumulator takes some 4 ns a byte, reading and multiplying
the data about 1.5.
"""


@dataclass(frozen=True, slots=True)
class Cut:
    """An axis cut into panels (rows read at once), panels into grains; streams are runs of panels."""

    panels: npt.NDArray[np.int64]
    """Edges of the panels as row indices, (panels + 1,)."""

    streams: npt.NDArray[np.int64]
    """Edges of the streams as indices of panels, (streams + 1,)."""

    grain_rows: int
    """Largest number of rows in one grain, the rows of one matrix product."""

    panel_rows: int = field(init=False, repr=False, compare=False)
    """Rows of the tallest panel."""

    def __post_init__(self) -> None:
        """Compute ``panel_rows`` once: panels may be millions."""
        object.__setattr__(self, "panel_rows", int(np.diff(self.panels).max()))

    @property
    def length(self) -> int:
        """Number of rows: the length of the axis."""
        return int(self.panels[-1])

    @property
    def stream_count(self) -> int:
        """Number of streams."""
        return len(self.streams) - 1

    @property
    def grain_count(self) -> int:
        """Number of grains in all panels."""
        return int((-(-np.diff(self.panels) // self.grain_rows)).sum())

    def panel(self, index: int) -> tuple[int, int]:
        """First row of panel ``index``, and one past its last."""
        return int(self.panels[index]), int(self.panels[index + 1])


MOST_STREAMS = 256
"""Largest number of streams that ``own_streams`` makes."""


def own_streams(panels: npt.NDArray[np.int64], rows: int) -> Cut:
    """Cut into given panels, and as many streams as allowed: for small sums, and panels with much work.

    ``panels`` (panels + 1,) are their edges as row indices; ``rows`` is the number of rows of a grain.
    """
    count = min(len(panels) - 1, MOST_STREAMS)
    return Cut(panels, np.arange(count + 1, dtype=np.int64) * (len(panels) - 1) // count, rows)


def grain_rows(row_bytes: int, device: str = "cpu") -> int:
    """Number of rows of one matrix product, where a row takes ``row_bytes`` bytes.

    >>> grain_rows(8000), grain_rows(768), grain_rows(4_000_000), grain_rows(8000, "gpu")
    (1048, 10922, 67, 8388)
    """
    floor = min(GRAIN_ROWS_FLOOR, max(1, GRAIN_BYTES_CEILING // row_bytes))
    return max(floor, GRAIN_BYTES[device] // row_bytes)


def grains(start: int, stop: int, rows: int) -> Iterator[tuple[int, int]]:
    """Cut ``start:stop`` into the fewest nearly equal pieces of at most ``rows``.

    >>> list(grains(0, 10, 4))
    [(0, 3), (3, 6), (6, 10)]
    """
    pieces = -(-(stop - start) // rows)
    for i in range(pieces):
        yield start + (stop - start) * i // pieces, start + (stop - start) * (i + 1) // pieces


def panel_edges(grid: Grid, rows: int) -> npt.NDArray[np.int64]:
    """Edges of panels of about ``rows`` rows: shorter chunks are joined, taller ones split if they can be.

    >>> panel_edges(Grid.regular(20, 3, splittable=False), 8).tolist()
    [0, 6, 12, 20]
    >>> panel_edges(Grid.regular(20, 10, splittable=True), 4).tolist()
    [0, 3, 6, 10, 13, 16, 20]
    >>> panel_edges(Grid.regular(20, 10, splittable=False), 4).tolist()
    [0, 10, 20]
    """
    if isinstance(grid.cuts, Even):
        return _even_panels(*grid.cuts, rows, splittable=grid.splittable)
    lengths = np.diff(grid.edges)
    if np.all(lengths[:-1] + lengths[1:] > rows):
        return _split(grid.edges, lengths, rows) if grid.splittable else grid.edges
    if np.all(lengths[:-1] == lengths[0]) and lengths[-1] <= lengths[0] <= rows:
        return _joined(grid.edges, rows)
    edges = [0]
    for start, stop in itertools.pairwise(grid.edges.tolist()):
        if start > edges[-1] and stop - edges[-1] > rows:
            edges.append(start)
        if stop - start > rows and grid.splittable:
            edges.extend(piece_stop for _, piece_stop in grains(start, stop, rows))
    if edges[-1] != grid.length:
        edges.append(grid.length)
    return np.asarray(edges, dtype=np.int64)


def _even_panels(length: int, chunk: int, rows: int, *, splittable: bool) -> Int64:
    """``panel_edges`` of an axis in chunks of equal length, without listing edges that no panel has."""
    count, chunk = -(-length // chunk), min(chunk, length)
    last = length - (count - 1) * chunk
    if count == 1 or (chunk + last > rows and (count == 2 or 2 * chunk > rows)):
        if not splittable:
            return Grid.regular(length, chunk, splittable=False).edges
        pieces, rest = -(-chunk // rows), -(-last // rows)
        require_few_edges((count - 1) * pieces + rest)
        edges = np.empty((count - 1) * pieces + rest + 1, np.int64)
        within = np.arange(pieces) * chunk // pieces
        edges[: (count - 1) * pieces].reshape(-1, pieces)[...] = within
        edges[: (count - 1) * pieces].reshape(-1, pieces)[...] += chunk * np.arange(count - 1)[:, None]
        edges[(count - 1) * pieces :] = length - last + np.arange(rest + 1) * last // rest
        return edges
    joined = rows // chunk * chunk
    require_few_edges(-(-length // joined))
    starts = np.arange(0, length, joined, dtype=np.int64)
    if len(starts) > 1 and starts[-1] == length - last and length - starts[-2] <= rows:
        starts = starts[:-1]
    return np.append(starts, length)


def _split(edges: Int64, lengths: Int64, rows: int) -> Int64:
    """Edges of panels where no two chunks, of these ``lengths``, are joined, and tall ones are cut."""
    pieces = -(-lengths // rows)
    whole, rest = np.divmod(lengths, pieces)
    chunk = np.repeat(np.arange(len(lengths)), pieces)
    number = 1 + np.arange(len(chunk)) - (np.cumsum(pieces) - pieces)[chunk]
    stops = edges[chunk] + whole[chunk] * number + rest[chunk] * number // pieces[chunk]
    return np.append(edges[:1], stops)


def _joined(edges: Int64, rows: int) -> Int64:
    """Edges of panels of as many equal chunks as ``rows`` allows; the last may add a shorter last chunk."""
    starts = edges[: -1 : rows // int(edges[1])]
    if len(starts) > 1 and starts[-1] == edges[-2] and edges[-1] - starts[-2] <= rows:
        starts = starts[:-1]
    return np.append(starts, edges[-1])


def stream_count(
    panels: int,
    grain_total: int,
    data_bytes: int,
    accumulator_bytes: int,
    *,
    reads_per_byte: int = READS_PER_BYTE,
) -> int:
    """Number of streams: a power of two, so that the merge tree and common worker counts fill up.

    ``panels`` and ``grain_total`` are the numbers of panels and grains of the axis, ``data_bytes`` the size
    of the matrix. Each stream has at least 8 grains and reads at least ``reads_per_byte`` times the bytes of
    its accumulator, so that writing and merging accumulators stays a few per cent of a sweep; 8192 bounds the
    files.

    >>> stream_count(400, 400, 3_200_000_000, 1_040_000)
    32
    """
    most = min(panels, grain_total // 8, data_bytes // (reads_per_byte * accumulator_bytes), 8192)
    return 1 << (max(1, most).bit_length() - 1)


def cut(
    grid: Grid,
    row_bytes: int,
    accumulator_bytes: int,
    *,
    least_rows: int = 1,
    reads_per_byte: int = READS_PER_BYTE,
    device: str = "cpu",
) -> Cut:
    """Cut an axis whose rows hold ``row_bytes`` bytes, for accumulators of the given size.

    ``grid`` has the native chunks along the axis. ``least_rows`` asks for taller grains than the cache would
    choose, ``reads_per_byte`` for more or fewer streams: see ``stream_count``.
    """
    rows = max(grain_rows(row_bytes, device), least_rows)
    reads_per_byte *= READ_SPEED[device]
    edges = panel_edges(grid, rows)
    total = sum(_grains_between(edges[i : i + SLICE + 1], rows) for i in range(0, len(edges) - 1, SLICE))
    count = stream_count(
        len(edges) - 1, total, grid.length * row_bytes, accumulator_bytes, reads_per_byte=reads_per_byte
    )
    streams = np.arange(count + 1, dtype=np.int64) * (len(edges) - 1) // count
    return Cut(edges, streams, rows)


SLICE = 2**18
"""Number of panels whose grains are counted at a time: there may be millions of panels."""


def _grains_between(edges: Int64, rows: int) -> int:
    return int((-(-np.diff(edges) // rows)).sum())


# Stored numbers -----------------------------------------------------------------------------------


Pointers = Callable[[int, int], npt.NDArray[np.int64]]
"""Function of ``top`` and ``bottom``: number of stored entries before each of lines ``top`` to ``bottom``.

(bottom - top + 1,), counted from line 0 of the matrix. Lines are rows, or columns if the store is by columns.
"""

PANEL_NUMBERS = 2**20
"""Largest number of stored entries of a panel.

So its results by line, and the entries in another order, stay in cache.
"""

PANEL_LINES = 2**14, 2**16
"""Largest number of lines of a panel: usually, and of a panel of few entries.

The latter is one with fewer stored entries than ``NUMBERS_PER_PLACE`` for each index of the short side.
"""

NUMBERS_PER_PLACE = 2
"""Number of stored entries wanted in a panel for each index of the short side.

Each of these indices costs a look in every panel.
"""

GRAINS_PER_PANEL = 4
"""Number of grains that a panel of stored entries counts as, where the number of streams is decided.

A byte of stored entries takes four times as long as a byte of a dense matrix.
"""

POINTER_SLICE = 2**16
"""Number of pointers (numbers of entries stored before each line) that are read at a time."""


def cut_by_numbers(
    pointers: Pointers,
    grid: Grid,
    places: int,
    numbers: int,
    number_bytes: int,
    accumulator_bytes: int,
) -> tuple[Cut, int]:
    """Cut the lines of a sparse matrix into panels of about equally many stored entries, or of a single line.

    Where chunks of lines are not to be split, a panel has whole ones, or a single one.

    Parameters
    ----------
    pointers : function
        Number of stored entries before each of lines ``top:bottom``, and before line ``bottom``.
    grid : Grid
        Native chunks along the lines.
    places : int
        Length of a line, which is the short side.
    numbers : int
        Number of stored entries in all.
    number_bytes : int
        Bytes of a stored entry, with its index.
    accumulator_bytes : int
        Bytes of the sums of a stream.

    Returns
    -------
    cut : Cut
        A panel is a grain.
    fullest : int
        Most stored entries of a panel.

    >>> full = np.cumsum([0] + [2**19] * 5)
    >>> lines = Grid.regular(5, 5, splittable=True)
    >>> found, fullest = cut_by_numbers(lambda a, b: full[a : b + 1], lines, 100, int(full[-1]), 8, 6400)
    >>> found.panels.tolist(), found.stream_count, fullest
    ([0, 2, 4, 5], 1, 1048576)
    """
    most_lines = _most_lines(grid.length, places, numbers)
    if grid.splittable:
        whole, fullest = _number_edges(pointers, grid.length, most_lines)
    else:
        whole, fullest = _chunk_edges(pointers, grid, most_lines)
    panels = len(whole) - 1
    work = GRAINS_PER_PANEL * panels, numbers * number_bytes, accumulator_bytes
    count = stream_count(panels, *work, reads_per_byte=READS_PER_BYTE // GRAINS_PER_PANEL)
    streams = np.arange(count + 1, dtype=np.int64) * panels // count
    return Cut(whole, streams, int(np.diff(whole).max())), fullest


def most_numbers(pointers: Pointers, edges: npt.NDArray[np.int64]) -> int:
    """Number of stored entries of the fullest panel; ``edges`` (panels + 1,) are those of panels, in lines.

    >>> full = np.array([0, 5, 6, 9, 10])
    >>> most_numbers(lambda a, b: full[a : b + 1], np.array([0, 2, 4]))
    6
    """
    return int(np.diff(_numbers_before(pointers, edges)).max())


def _numbers_before(pointers: Pointers, edges: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Number of stored entries before each of ``edges``, which are indices of lines; (edges,)."""
    before = np.empty(len(edges), np.int64)
    for top in range(0, int(edges[-1]), POINTER_SLICE):
        bottom = min(top + POINTER_SLICE, int(edges[-1]))
        here = (edges >= top) & (edges <= bottom)
        if here.any():
            before[here] = pointers(top, bottom)[edges[here] - top]
    return before


def _most_lines(lines: int, places: int, numbers: int) -> int:
    """Largest number of lines of a panel, for a matrix of so many lines and stored entries (``numbers``).

    ``places`` is the length of a line.
    """
    tall = lines * min(NUMBERS_PER_PLACE * places, PANEL_NUMBERS) // max(numbers, 1)
    return min(max(tall, PANEL_LINES[0]), PANEL_LINES[1])


def _chunk_edges(pointers: Pointers, grid: Grid, most_lines: int) -> tuple[npt.NDArray[np.int64], int]:
    """Edges of panels of whole chunks, as indices of lines, and most stored entries of a panel."""
    ends, before = grid.edges.tolist(), _numbers_before(pointers, grid.edges).tolist()
    chosen = [0]
    for i in range(1, len(ends) - 1):
        first = chosen[-1]
        if before[i + 1] - before[first] > PANEL_NUMBERS or ends[i + 1] - ends[first] > most_lines:
            chosen.append(i)
    chosen.append(len(ends) - 1)
    fullest = max(before[b] - before[a] for a, b in itertools.pairwise(chosen))
    return grid.edges[chosen], fullest


def _number_edges(pointers: Pointers, lines: int, most_lines: int) -> tuple[npt.NDArray[np.int64], int]:
    """Edges of panels with as many lines as allowed, as indices of lines, and most stored entries of one."""
    edges, start, before, fullest = [0], 0, 0, 0
    for top in range(0, lines, POINTER_SLICE):
        bottom = min(top + POINTER_SLICE, lines)
        ends = pointers(top, bottom)
        while True:
            full = top + int(np.searchsorted(ends, before + PANEL_NUMBERS, side="right")) - 1
            stop = max(min(full, start + most_lines), start + 1)
            if stop > bottom or (stop == bottom and bottom < lines and stop < start + most_lines):
                break
            fullest = max(fullest, int(ends[stop - top]) - before)
            edges.append(stop)
            start, before = stop, int(ends[stop - top])
            if stop == bottom:
                break
    return np.asarray(edges, dtype=np.int64), fullest
