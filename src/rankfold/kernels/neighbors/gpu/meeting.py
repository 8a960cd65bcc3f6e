"""Compare two blocks of rows on a device. See ``kernels/neighbors/meeting.py``.

The limit of a row is fixed while tiles are computed. Rows of empty lists are therefore compared with others
in growing parts: a few are all measured, and then so many more that the limits so far leave a few candidates
for each row. Rows of full lists are compared with all others at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from rankfold.kernels.gpu.sources import (
    C_TYPES,
    blocks_of,
    launch,
    row_pitch,
    rows_whole,
    shared_bytes_at_most,
)
from rankfold.kernels.neighbors.bounds import near
from rankfold.kernels.neighbors.gpu._products import inner_products
from rankfold.kernels.neighbors.lists import Metric, half
from rankfold.kernels.neighbors.meeting import NOTED, Lists, Rows, doubles, products_at_once

Array = Any
PACKAGE = __package__

TILE = 128
PIECE = 16
STAGES = 4
PAD = 4
"""Constants as in meeting.cu."""

WARPS = 4
"""Warps of a block of threads that measures pairs, each with a row of its own."""

FIRST_ROWS = 64
"""Fewest rows that rows of empty lists are compared with at first."""

FULL = 1024
"""Blocks of threads that keep a device busy."""


def meet_rows(
    x: Rows,
    y: Rows,
    *,
    lists_i: Lists,
    lists_j: Lists | None,
    metric: int,
    shift: Array | None,
    same: bool,
    precise: bool,
    room: Callable[..., Array],
) -> bool:
    """See the contract. Inserts all pairs of two blocks into lists; scratch ``meeting_bytes``.

    Operands of products are rounded to 11 bits, unless ``precise``.

    Notes
    -----
    For the bound: an operand is rounded to float32 and to 11 bits, and sums of products by tensor cores are
    within one unit of 22 bits for each addition, whatever their order.
    """
    make = PreciseSide if precise else Side
    one = make(x, metric, shift, lists_i, x.first if same else None)
    two = one if same else make(y, metric, shift, lists_j, None)
    sides = [(one, two)] if lists_j is None or same else [(one, two), (two, one)]
    if same or _any_empty(*(side.lists.keys for side, _ in sides)):
        for side, others in sides:
            _meet_in_parts(side, others)
    else:
        _meet_at_once(one, two, both=len(sides) == 2)
    return False


def _any_empty(*keys: Array) -> bool:
    """True if a list has an empty place, a key of infinity in its first column.

    This copies one number from the device to the host.
    """
    empty = sum(cupy.isinf(each[:, 0]).any().astype(np.int64) for each in keys)
    return bool(empty)


def _meet_in_parts(side: Side, others: Side) -> None:
    count, k = len(others.rows), side.lists.keys.shape[1]
    start = min(count, max(FIRST_ROWS, 4 * k))
    side.measure(others, 0, start, None)
    while start < count:
        # Of n others k are within the limit of a row: of n m / k more, some m are.
        stop = min(count, start + max(TILE, start * (NOTED // 8) // k))
        notes = Notes.of(len(side.rows))
        side.choose(others, start, stop, notes, None)
        side.take(others, start, stop, notes)
        start = stop


def _meet_at_once(one: Side, two: Side, *, both: bool) -> None:
    notes = Notes.of(len(one.rows)), Notes.of(len(two.rows)) if both else None
    one.choose(two, 0, len(two.rows), *notes)
    one.take(two, 0, len(two.rows), notes[0])
    if notes[1] is not None:
        two.take(one, 0, len(one.rows), notes[1])


@dataclass(frozen=True, slots=True)
class Notes:
    """Candidates of each row of one side: rows of the other side that may enter the row's list.

    ``counts`` (rows,) is their number; ``places`` (rows, NOTED) has positions, among all rows of the other
    side, of at most ``NOTED`` of them.
    """

    counts: Array
    places: Array

    @classmethod
    def of(cls, rows: int) -> Notes:
        """Notes of no candidates, for ``rows`` rows."""
        return cls(cupy.zeros(rows, np.int32), cupy.empty((rows, NOTED), np.int32))


class Side:
    """Rows of one side, their lists, and their operands for products by tensor cores.

    ``lists`` is None for rows without lists. ``own`` is the number of the first row in the matrix if both
    sides are one block, so that no row is paired with itself; else None.
    """

    dtype: np.dtype[Any] = np.dtype(np.float32)

    def __init__(
        self,
        rows: Rows,
        metric: int,
        shift: Array | None,
        lists: Lists | None,
        own: int | None,
    ) -> None:
        self.rows, self.metric = rows, metric
        self.lists = _no_lists(len(rows)) if lists is None else lists
        self.own = np.int64(-(2**62) if own is None else own)
        self.raw = rows_whole(rows.raw)
        self.columns = self.raw.shape[1]
        self._shift = None if metric == Metric.COSINE else shift
        self._rounded: Array | None = None
        self.near = near(rows.norms, self.columns, metric, self.dtype, self.share())

    def share(self) -> float | None:
        """Error bound of products as a share of norms; None for ``bounds.slack``, the bound of the host."""
        columns = self.columns
        return float((2.0**-10 + 2.0**-21 + (columns + 24) * 2.0**-22 + 2 * columns * 2.0**-52) * 1.01)

    @property
    def limit(self) -> Array:
        """(rows,) limits, in halves (see ``lists.py``): only pairs with bounds below may enter the lists."""
        halves = half(self.lists.keys[:, 0], self.metric).astype(self.dtype)
        return cupy.nextafter(halves, self.dtype.type(np.inf))

    def rounded(self) -> Array:
        """Operands of products: float32 rows rounded to 11 bits, with columns of zeros up to whole pieces."""
        if self._rounded is None:
            rows, wide = len(self.rows), blocks_of(self.columns, PIECE) * PIECE
            self._rounded = cupy.empty((rows, wide), np.float32)
            cosine = self.metric == Metric.COSINE
            scale = self.rows.scale if cosine else cupy.ones_like(self.rows.scale)
            arguments = (
                *(self.raw, row_pitch(self.raw), np.int64(rows), np.int32(self.columns)),
                *(np.uint64(0) if self._shift is None else self._shift, scale, self._rounded, np.int32(wide)),
            )
            name = f"round_rows<{C_TYPES[self.raw.dtype]}>"
            grid = blocks_of(wide, TILE), min(rows, FULL)
            launch(PACKAGE, "meeting", name, grid, TILE, arguments)
        return self._rounded

    def choose(self, two: Side, start: int, stop: int, notes: Notes, others: Notes | None) -> None:
        """Add candidates of these rows among rows ``start:stop`` of ``two`` to ``notes``.

        If ``others`` is given, candidates of these rows of ``two`` among the rows of this side go there.
        """
        x, y = self.rounded(), two.rounded()[start:stop]
        wide, rows, tiles = x.shape[1], len(x), blocks_of(stop - start, TILE)
        across = blocks_of(rows, TILE)
        resident_bytes = 4 * (TILE * (wide + PAD) + STAGES * TILE * (PIECE + PAD))
        streamed_bytes = 4 * 2 * STAGES * TILE * (PIECE + PAD)
        resident, limit = resident_bytes <= shared_bytes_at_most(), self.limit
        launch(
            PACKAGE,
            "meeting",
            f"choose<{str(resident).lower()}>",
            (across, max(1, min(tiles, FULL // across))),
            TILE,
            (
                *(x, y, np.int64(rows), np.int64(stop - start), np.int32(wide)),
                *(self.near, two.near[start:stop], limit, two.limit[start:stop] if others else limit),
                *(np.int32(others is not None), np.int64(start), np.int32(NOTED)),
                *(notes.counts, notes.places, *_beside(others)),
            ),
            shared_bytes=resident_bytes if resident else streamed_bytes,
        )

    def take(self, others: Side, start: int, stop: int, notes: Notes) -> None:
        """Measure the candidates in ``notes``, and insert them into the lists of this side's rows, in place.

        Candidates are rows ``start:stop`` of ``others``. A row of this side with more candidates than
        ``NOTED`` is compared with all rows ``start:stop``.
        """
        self._launch("refine", others, (), (notes.counts, notes.places))
        self.measure(others, start, stop, notes)

    def measure(self, others: Side, start: int, stop: int, notes: Notes | None) -> None:
        """Measure all rows of this side with rows ``start:stop`` of ``others``, and update this side's lists.

        With ``notes``, this is done only for rows with more than ``NOTED`` candidates, and
        ``lists.uncertain`` is raised by their number.
        """
        counts = np.uint64(0) if notes is None else notes.counts
        self._launch("exhaust", others, (np.int64(start), np.int64(stop)), (counts,))
        if notes is not None:
            uncertain = self.lists.uncertain
            uncertain += (notes.counts > NOTED).sum()

    def _launch(self, name: str, others: Side, part: tuple[Any, ...], noted: tuple[Any, ...]) -> None:
        rows, y = len(self.rows), others.raw
        launch(
            PACKAGE,
            "meeting",
            f"{name}<{C_TYPES[self.raw.dtype]}>",
            (blocks_of(rows, WARPS),),
            32 * WARPS,
            (
                *(self.raw, row_pitch(self.raw), y, row_pitch(y), np.int64(rows), *part),
                *(np.int32(self.columns), self.rows.scale, others.rows.scale, np.int32(self.metric)),
                *(np.int64(others.rows.first), self.own, np.int32(NOTED), *noted),
                *(np.int32(self.lists.keys.shape[1]), self.lists.keys, self.lists.ids),
            ),
        )


class PreciseSide(Side):
    """Side for rows whose float32 products leave the range or are too inexact: float64 by cuBLAS instead."""

    dtype: np.dtype[Any] = np.dtype(np.float64)

    def share(self) -> float | None:
        """Error bound of products: None, since float64 products have the bound of the host."""
        return None

    def rounded(self) -> Array:
        """Operands of products: (rows, columns) in float64."""
        if self._rounded is None:
            self._rounded = doubles(self.rows, self.metric, self._shift)
        return self._rounded

    def choose(self, two: Side, start: int, stop: int, notes: Notes, others: Notes | None) -> None:
        """Write candidates as ``Side`` does, from products in float64 of some rows at a time."""
        x, y, limit = self.rounded(), two.rounded()[start:stop], self.limit
        two_limit = two.limit[start:stop] if others else limit
        step = products_at_once(len(x), stop - start, self.dtype.itemsize)
        for first in range(0, len(x), step):
            some = slice(first, min(len(x), first + step))
            tile = inner_products(x[some], y, self.dtype)
            launch(
                PACKAGE,
                "meeting",
                "scan",
                (len(tile),),
                TILE,
                (
                    *(tile, np.int64(stop - start), self.near[some], two.near[start:stop], limit[some]),
                    *(two_limit, np.int32(others is not None), np.int64(first), np.int64(start)),
                    *(np.int32(NOTED), notes.counts[some], notes.places[some], *_beside(others)),
                ),
            )


def _beside(others: Notes | None) -> tuple[Any, Any]:
    """Arrays of ``others`` as arguments of a launch; null pointers if None."""
    return (np.uint64(0), np.uint64(0)) if others is None else (others.counts, others.places)


def _no_lists(rows: int) -> Lists:
    """Lists of no neighbors, for rows without lists."""
    return Lists(cupy.empty((rows, 0)), cupy.empty((rows, 0), np.int64), cupy.zeros(1, np.int64))
