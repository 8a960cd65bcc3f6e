"""Nearest centers of rows. See ``kernels/clustering/nearest_centers.py``.

Rows go by tiles of those that bounds leave open, while these are in cache: bounds are brought up to date and
open rows are gathered; they are multiplied by the centers of open groups, or by all through BLAS where most
are open; labels and bounds follow from the products; rows are added to sums. A compiled loop goes from tile
to tile, and returns to Python only where BLAS is to multiply.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels.clustering.cpu._labels import settle
from rankfold.kernels.clustering.cpu._open_rows import TILE, Rounding, Tile, open_rows
from rankfold.kernels.clustering.cpu._products import multiply_groups
from rankfold.kernels.clustering.nearest_centers import MARGIN, SMALLEST, Centers
from rankfold.kernels.neighbors.cpu._distances import distance
from rankfold.kernels.neighbors.lists import LANES, Metric

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

DENSE = 0.8
"""Share of open pairs above which BLAS multiplies all pairs faster than a loop multiplies the open ones."""

SQUARED = int(Metric.SQEUCLIDEAN)


# Sums ---------------------------------------------------------------------------------------------


@part
def _add_row(x: Array, i: int, shift: Float64, weight: float, totals: Float64, j: int) -> None:
    for t in range(shift.shape[0]):
        totals[j, t] += weight * (np.float64(x[i, t]) - shift[t])


@part
def _add_rows(
    x: Array, begin: int, end: int, shift: Float64, weights: Float64, labels: Array, sums: Any, lanes: Float64
) -> None:
    """Add rows ``begin:end`` less the shift to ``sums``: totals and weights of clusters, and squares."""
    totals, counts, squares = sums
    for i in range(begin, end):
        weight = weights[i] if weights.shape[0] else 1.0
        squares[0] += weight * distance(shift, 1.0, x, i, 1.0, SQUARED, None, lanes)
        _add_row(x, i, shift, weight, totals, labels[i])
        counts[labels[i]] += weight


@part
def _move_rows(
    x: Array, tile: Tile, count: int, shift: Float64, weights: Float64, labels: Array, sums: Any
) -> None:
    """Move rows of a tile whose label changed from the sums of their old clusters to those of their new ones.

    ``count`` rows are in the tile; ``sums`` are totals and weights of clusters, and squares, which stay.
    """
    totals, counts, _ = sums
    for a in range(count):
        i, old = tile.numbers[a], tile.before[a]
        new = labels[i]
        if old == new:
            continue
        weight = weights[i] if weights.shape[0] else 1.0
        _add_row(x, i, shift, weight, totals, new)
        counts[new] += weight
        if old >= 0:
            _add_row(x, i, shift, -weight, totals, old)
            counts[old] -= weight


# Tiles --------------------------------------------------------------------------------------------


@compile_loop
def _advance(
    x: Array,
    tile: Tile,
    at: tuple[int, int, int],
    centers: Centers,
    rounding: Rounding,
    known: tuple[Array, Array, Float64],
    sums: tuple[Float64, Float64, Float64],
    whole: bool,
) -> tuple[int, int, int, int]:
    """Finish a multiplied tile ``at``, and further tiles until BLAS is to multiply one.

    A tile is given as its first row, the row after its last, and the number of its open rows. ``known`` is
    labels, bounds and weights; ``sums`` is totals and weights of clusters, and squares. Returns the next tile
    and the number of rows whose label changed; no rows are left if that tile begins at the end.
    """
    (begin, end, count), (labels, bounds, weights), moved = at, known, 0
    places = np.empty(centers.squares.shape[0] + 1, np.int64)
    while True:
        moved += settle(x, centers, rounding, labels, bounds, tile, count, places)
        if whole:
            _add_rows(x, begin, end, rounding.shift, weights, labels, sums, tile.lanes)
        else:
            _move_rows(x, tile, count, rounding.shift, weights, labels, sums)
        begin = end
        if begin == x.shape[0]:
            return begin, end, 0, moved
        end, count, pairs = open_rows(x, begin, centers, rounding, labels, bounds, tile)
        if pairs > DENSE * count * centers.squares.shape[0]:
            return begin, end, count, moved
        multiply_groups(
            tile.rows, centers.packed, centers.edges, tile.members, tile.member_counts, tile.products
        )


def assign_rows(
    x: Array,
    centers: Centers,
    *,
    labels: npt.NDArray[np.int32],
    bounds: npt.NDArray[np.float32],
    sums: Float64,
    counts: Float64,
    squares: Float64,
    weights: Float64 | None = None,
    whole: bool = True,
) -> int:
    """See the contract. Labels rows by their nearest centers, and adds them to the sums of clusters."""
    x = np.ascontiguousarray(x)
    centers = Centers(*(np.ascontiguousarray(each) for each in centers))
    tile, rounding = _room(centers, min(TILE, len(x))), _rounding(centers)
    every = np.empty(0) if weights is None else np.ascontiguousarray(weights)
    known, into = (labels, bounds, every), (sums, counts, squares)
    transposed, moved, at = None, 0, (0, 0, 0)
    while True:
        begin, end, count, more = _advance(x, tile, at, centers, rounding, known, into, whole)
        moved, at = moved + more, (begin, end, count)
        if begin == len(x):
            return moved
        if transposed is None:
            transposed = np.ascontiguousarray(centers.packed.T)
        with np.errstate(over="ignore", invalid="ignore"):  # such rows are measured
            np.matmul(tile.rows[:count], transposed, out=tile.products[:count])


def _room(centers: Centers, rows: int) -> Tile:
    """Uninitialized buffers of a tile of at most ``rows`` open rows."""
    (k, n), dtype, groups = centers.packed.shape, centers.packed.dtype, len(centers.edges) - 1
    return Tile(
        rows=np.empty((rows, n), dtype),
        numbers=np.empty(rows, np.int64),
        before=np.empty(rows, np.int32),
        norms=np.empty(rows),
        own=np.empty(rows),
        groups=np.empty((rows, groups), np.int64),
        group_counts=np.empty(rows, np.int64),
        members=np.empty((groups, rows), np.int64),
        member_counts=np.empty(groups, np.int64),
        products=np.empty((rows, k), dtype),
        least=np.empty(groups),
        slack=np.empty(groups),
        row=np.empty(n),
        lanes=np.empty(LANES),
    )


def _rounding(centers: Centers) -> Rounding:
    (_, n), dtype = centers.packed.shape, centers.packed.dtype
    limits, roots = np.finfo(dtype), np.sqrt(centers.squares)
    drift = np.where(centers.group_drift > 0, centers.group_drift * (1 + MARGIN) + SMALLEST, 0)
    with np.errstate(over="ignore"):
        return Rounding(
            squares=centers.squares.astype(dtype),
            roots=roots,
            group_roots=np.maximum.reduceat(roots, centers.edges[:-1]),
            drift=drift.astype(np.float32),
            shift=centers.shift.astype(np.float64),
            error=float((n + 8) * limits.eps),
            tiny=float(n * limits.tiny),
            limit=float(limits.max / 16),
        )
