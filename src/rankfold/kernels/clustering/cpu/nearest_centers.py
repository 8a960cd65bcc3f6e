"""Nearest centers of rows. See ``kernels/clustering/nearest_centers.py``.

A tile of rows goes through four loops while it is in cache: bounds are brought up to date and rows that they
leave open are gathered; these are multiplied by all centers at once, or by those of open groups where few are
open; labels and bounds follow from the products; rows are added to sums.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels.clustering.nearest_centers import LARGEST, MARGIN, SMALLEST, Centers
from rankfold.kernels.neighbors.cpu._distances import distance, load
from rankfold.kernels.neighbors.lists import LANES, Metric

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

TILE = 256
"""Rows at a time: with the centers they stay in second-level cache."""

DENSE = 0.5
"""Share of open pairs above which BLAS multiplies all of them sooner than a loop the open ones."""

SQUARED = int(Metric.SQEUCLIDEAN)

REORDERED = {"reassoc", "contract", "nsz"}
"""What products may do: their error is bounded for any order."""


class _Tile(NamedTuple):
    """Room for the open rows of a tile."""

    rows: Array
    """(TILE, n) less the shift, in the working type."""

    numbers: npt.NDArray[np.int64]
    """Of these rows in the tile."""

    norms: Float64
    """Squares of rows."""

    nearest: Float64
    """(TILE,) the product with their own center."""

    is_open: npt.NDArray[np.bool_]
    """(TILE, g) groups that may hold a nearer center."""

    products: Array
    """(TILE, k)."""


class _Rounding(NamedTuple):
    """What loops need besides: norms of centers, and what a product may be wrong by."""

    roots: Float64
    error: float
    """Relative, of the square of the sum of both norms."""

    tiny: float
    """What numbers that are too small for the working type may add."""


@part
def _widen(value: float) -> float:
    """At least the value, as it is kept in float32."""
    if value <= 0:
        return 0.0
    return min(max(value * (1 + MARGIN), SMALLEST), LARGEST)


@part
def _narrow(value: float) -> float:
    """At most the value, as it is kept in float32."""
    return 0.0 if value < 2 * SMALLEST else min(value * (1 - MARGIN), LARGEST)


# Products -----------------------------------------------------------------------------------------


def _dot_of(row: Array, packed: Array, p: int) -> Any:
    a = row.dtype.type(0)
    for t in range(row.shape[0]):
        a += row[t] * packed[p, t]
    return a


def _dots_of(row: Array, packed: Array, p: int, out: Array) -> None:
    # Four centers at a time load each number of the row once instead of four times.
    zero = row.dtype.type(0)
    a, b, c, d = zero, zero, zero, zero
    for t in range(row.shape[0]):
        v = row[t]
        a += v * packed[p, t]
        b += v * packed[p + 1, t]
        c += v * packed[p + 2, t]
        d += v * packed[p + 3, t]
    out[p], out[p + 1], out[p + 2], out[p + 3] = a, b, c, d


_dot = compile_loop(_dot_of, fastmath=REORDERED, called_from_python=False)
_dots = compile_loop(_dots_of, fastmath=REORDERED, called_from_python=False)


@compile_loop
def _multiply_open(tile: _Tile, packed: Array, edges: Array, count: int) -> None:
    for a in range(count):
        row, out = tile.rows[a], tile.products[a]
        for g in range(edges.shape[0] - 1):
            if tile.is_open[a, g]:
                p = edges[g]
                while p + 4 <= edges[g + 1]:
                    _dots(row, packed, p, out)
                    p += 4
                while p < edges[g + 1]:
                    out[p] = _dot(row, packed, p)
                    p += 1


# Bounds -------------------------------------------------------------------------------------------


def _load_of(x: Array, shift: Array, row: Array) -> float:
    # The sum of squares rounds as a product does: its share is in the slack.
    total = row.dtype.type(0)
    for t in range(row.shape[0]):
        value = row.dtype.type(x[t]) - shift[t]
        row[t] = value
        total += value * value
    return np.float64(total)


_load = compile_loop(_load_of, fastmath=REORDERED, called_from_python=False)


@part
def _square(norm: float, product: float, square: float) -> float:
    return norm - 2 * np.float64(product) + square


@part
def _slack(length: float, p: int, rounding: _Rounding) -> float:
    size: float = length + rounding.roots[p]
    return rounding.error * size * size + rounding.tiny


@part
def _drift(bounds: Array, drift: float, group_drift: Float64) -> bool:
    """Bounds for centers that have moved; whether they tell that the nearest is the same."""
    upper = _widen(np.float64(bounds[0]) + drift)
    lowest = np.inf
    for g in range(group_drift.shape[0]):
        lower = _narrow(np.float64(bounds[1 + g]) - group_drift[g])
        bounds[1 + g] = lower
        lowest = min(lowest, lower)
    bounds[0] = upper
    return upper < lowest


@compile_loop
def _open_rows(
    x: Array, centers: Centers, rounding: _Rounding, labels: Array, bounds: Array, tile: _Tile
) -> tuple[int, int]:
    """Gather the rows whose nearest center is open; how many, and pairs of row and center."""
    count, pairs, edges = 0, 0, centers.edges
    for i in range(x.shape[0]):
        own = labels[i]
        if own >= 0 and _drift(bounds[i], centers.drift[own], centers.group_drift):
            continue
        norm = _load(x[i], centers.shift, tile.rows[count])
        upper, found = np.inf, 0
        if own >= 0:
            p = centers.places[own]
            product = _dot(tile.rows[count], centers.packed, p)
            slack = _slack(np.sqrt(norm), p, rounding)
            square = _square(norm, product, centers.squares[p])
            if np.isfinite(square):
                upper = _widen(np.sqrt(max(square + slack, 0.0)))
            tile.nearest[count], bounds[i, 0] = product, upper
        for g in range(edges.shape[0] - 1):
            is_open = own < 0 or not upper < bounds[i, 1 + g]
            tile.is_open[count, g] = is_open
            if is_open:
                found += edges[g + 1] - edges[g]
        if found:
            tile.numbers[count], tile.norms[count] = i, norm
            count, pairs = count + 1, pairs + found
    return count, pairs


@part
def _nearest(
    x: Array, centers: Centers, low: Float64, high: float, row: Float64, lanes: Float64
) -> tuple[int, float]:
    """Place of the nearest of those whose lower bound is not above ``high``, and its square if measured."""
    place, several = -1, False
    for p in range(low.shape[0]):
        if low[p] <= high:
            several = several or place >= 0
            place = p
    if not several:
        return max(place, 0), -1.0
    best, member = np.inf, low.shape[0]
    load(x, 1.0, SQUARED, row)
    for p in range(low.shape[0]):
        if low[p] <= high:
            j = centers.members[p]
            square = distance(row, 1.0, centers.exact, j, 1.0, SQUARED, None, lanes)
            if square < best or (square == best and j < member):
                best, member = square, j
    return centers.places[min(member, low.shape[0] - 1)], best


@part
def _look(tile: _Tile, a: int, own: int, centers: Centers, rounding: _Rounding, low: Float64) -> float:
    """Squares of an open row, less what they may be wrong by; the least that is surely above the nearest."""
    norm, high, edges = tile.norms[a], np.inf, centers.edges
    length = np.sqrt(norm)
    low[:] = np.inf
    for g in range(edges.shape[0] - 1):
        if tile.is_open[a, g]:
            for p in range(edges[g], edges[g + 1]):
                slack = _slack(length, p, rounding)
                square = _square(norm, tile.products[a, p], centers.squares[p])
                if np.isfinite(square):
                    low[p] = square - slack
                    high = min(high, square + slack)
                else:  # beyond the working type: it is measured
                    low[p] = -np.inf
    if own >= 0 and low[own] == np.inf:
        slack = _slack(length, own, rounding)
        square = _square(norm, tile.nearest[a], centers.squares[own])
        low[own] = square - slack if np.isfinite(square) else -np.inf
        high = min(high, square + slack if np.isfinite(square) else np.inf)
    return high


@compile_loop
def _settle(
    x: Array,
    centers: Centers,
    rounding: _Rounding,
    labels: Array,
    bounds: Array,
    tile: _Tile,
    count: int,
    low: Float64,
    row: Float64,
    lanes: Float64,
) -> None:
    """Labels and bounds of open rows."""
    edges = centers.edges
    for a in range(count):
        i = tile.numbers[a]
        own = -1 if labels[i] < 0 else centers.places[labels[i]]
        high = _look(tile, a, own, centers, rounding, low)
        new, square = _nearest(x[i], centers, low, high, row, lanes)
        labels[i] = centers.members[new]
        bounds[i, 0] = _widen(np.sqrt(max(high if square < 0 else square, 0.0)))
        for g in range(edges.shape[0] - 1):
            first, last = edges[g], edges[g + 1]
            least = np.inf
            if not tile.is_open[a, g]:
                if not first <= own < last or own == new:
                    continue
                least = np.float64(bounds[i, 1 + g]) ** 2
            for p in range(first, last):
                if p != new:
                    least = min(least, low[p])
            bounds[i, 1 + g] = _narrow(np.sqrt(max(least, 0.0)))


# Sums ---------------------------------------------------------------------------------------------


@part
def _add_row(x: Array, shift: Float64, weight: float, total: Float64) -> None:
    for t in range(total.shape[0]):
        total[t] += weight * (np.float64(x[t]) - shift[t])


@part
def _squares_of(x: Array, shift: Float64) -> float:
    a = b = 0.0
    n = shift.shape[0]
    for t in range(0, n - 1, 2):
        d, e = np.float64(x[t]) - shift[t], np.float64(x[t + 1]) - shift[t + 1]
        a += d * d
        b += e * e
    if n % 2:
        d = np.float64(x[n - 1]) - shift[n - 1]
        a += d * d
    return a + b


@compile_loop
def _add(
    x: Array,
    shift: Float64,
    weights: Float64,
    before: Array,
    labels: Array,
    sums: Float64,
    counts: Float64,
    squares: Float64,
    whole: bool,
) -> int:
    """Add rows to their clusters, or move those that have changed; how many have."""
    moved = 0
    for i in range(x.shape[0]):
        old, new = before[i], labels[i]
        moved += old != new
        weight = weights[i] if weights.shape[0] else 1.0
        if whole:
            squares[0] += weight * _squares_of(x[i], shift)
        if whole or old != new:
            _add_row(x[i], shift, weight, sums[new])
            counts[new] += weight
        if not whole and old >= 0 and old != new:
            _add_row(x[i], shift, -weight, sums[old])
            counts[old] -= weight
    return moved


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
    """See the contract."""
    x = np.ascontiguousarray(x)
    centers = Centers(*(np.ascontiguousarray(each) for each in centers))
    (k, n), dtype, groups = centers.packed.shape, centers.packed.dtype, len(centers.edges) - 1
    tile = _Tile(
        np.empty((TILE, n), dtype),
        np.empty(TILE, np.int64),
        np.empty(TILE),
        np.empty(TILE),
        np.empty((TILE, groups), np.bool_),
        np.empty((TILE, k), dtype),
    )
    limits = np.finfo(dtype)
    rounding = _Rounding(np.sqrt(centers.squares), float((n + 8) * limits.eps), float(n * limits.tiny))
    room, shift, moved = (np.empty(k), np.empty(n), np.empty(LANES)), centers.shift.astype(np.float64), 0
    every = np.empty(0) if weights is None else np.ascontiguousarray(weights)
    for first in range(0, len(x), TILE):
        here = slice(first, first + TILE)
        some, own, kept, before = x[here], labels[here], bounds[here], labels[here].copy()
        count, pairs = _open_rows(some, centers, rounding, own, kept, tile)
        if pairs > DENSE * count * k:
            np.matmul(tile.rows[:count], centers.packed.T, out=tile.products[:count])
        else:
            _multiply_open(tile, centers.packed, centers.edges, count)
        _settle(some, centers, rounding, own, kept, tile, count, *room)
        moved += _add(some, shift, every[here], before, own, sums, counts, squares, whole)
    return moved
