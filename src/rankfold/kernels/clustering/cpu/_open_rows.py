"""Rows that bounds leave open, gathered into a tile.

A group is some centers near each other, which share a bound. It is open for a row if, by its bound, it may
hold a nearer center than the row's own; a row is open if any group is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels.clustering.cpu._products import load_less_shift
from rankfold.kernels.clustering.nearest_centers import LARGEST, MARGIN, SMALLEST, Centers

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

TILE = 256
"""Largest number of open rows in a tile: with the centers they stay in second-level cache."""

SHRINK, LEAST_BOUND = np.float32(1 - MARGIN), np.float32(2 * SMALLEST)
"""Factor that rounds a lower bound down, and the value below which a lower bound becomes 0."""


class Tile(NamedTuple):
    """Open rows of a tile, with buffers for their products and bounds."""

    rows: Array
    """(TILE, n) rows less the shift, in the working type."""

    numbers: Int64
    """(TILE,) positions of these rows among all rows of the call."""

    before: npt.NDArray[np.int32]
    """(TILE,) labels before this step."""

    norms: Float64
    """(TILE,) squared norms of ``rows``."""

    own: Float64
    """(TILE,) products of rows with their own centers."""

    groups: Int64
    """(TILE, g) groups that may hold a nearer center: the first ``group_counts`` of each row."""

    group_counts: Int64
    members: Int64
    """(g, TILE) positions in the tile of rows that a group is open for: its first ``member_counts``."""

    member_counts: Int64
    products: Array
    """(TILE, k) products with centers; later squared norms of centers less twice these (scores)."""

    least: Float64
    """(g,) least score in each open group of a row."""

    slack: Float64
    """(g,) error bound of the scores in each open group of a row."""

    row: Float64
    lanes: Float64


class Rounding(NamedTuple):
    """Norms of centers and error bounds of products, which loops need in addition to ``Centers``."""

    squares: Array
    """(k,) squared norms of centers, in the working type."""

    roots: Float64
    group_roots: Float64
    """(g,) largest norm in each group."""

    drift: npt.NDArray[np.float32]
    """(g,) upper bound of the largest drift in each group."""

    shift: Float64
    error: float
    """Error bound of a product, relative to the square of the sum of both norms."""

    tiny: float
    """Error that underflow in the working type may add."""

    limit: float
    """Square of the sum of both norms from which on a product might overflow the working type."""


@part
def widen(value: float) -> float:
    """Upper bound of a value, so much above it that it is still one when it is rounded to float32."""
    if value <= 0:
        return 0.0
    return min(max(value * (1 + MARGIN), SMALLEST), LARGEST)


@part
def narrow(value: float) -> float:
    """Lower bound of a value, so much below it that it is still one when it is rounded to float32."""
    return 0.0 if value < 2 * SMALLEST else min(value * (1 - MARGIN), LARGEST)


# Bounds -------------------------------------------------------------------------------------------


@part
def slack_of(length: float, root: float, error: float, tiny: float) -> float:
    """Error bound of a squared distance that is computed from a product, for norms ``length`` and ``root``.

    ``error`` and ``tiny`` are fields of ``Rounding``.
    """
    size = length + root
    return error * size * size + tiny


def _loosen_bounds(bounds: Array, i: int, group_drift: Array) -> Any:
    # Subtraction and product round by a quarter of the margin each.
    lowest = np.float32(np.inf)
    for g in range(group_drift.shape[0]):
        lower = (bounds[i, 1 + g] - group_drift[g]) * SHRINK
        lower = lower if lower >= LEAST_BOUND else np.float32(0)
        bounds[i, 1 + g] = lower
        lowest = min(lowest, lower)
    return lowest


# Bounds are never NaN: without this promise a minimum is not vectorized.
_loosen = compile_loop(_loosen_bounds, fastmath={"nnan", "nsz"}, called_from_python=False)


@part
def _list_groups(bounds: Array, i: int, upper: float, groups: Int64, a: int) -> int:
    """List in ``groups[a]`` the groups that may hold a center within distance ``upper`` of row ``i``.

    Returns their number.
    """
    count = 0
    for g in range(groups.shape[1]):
        # Whether a group is open is hard to predict: no branch depends on it.
        groups[a, count] = g
        count += not upper < bounds[i, 1 + g]
    return count


@compile_loop
def open_rows(
    x: Array, begin: int, centers: Centers, rounding: Rounding, labels: Array, bounds: Array, tile: Tile
) -> tuple[int, int, int]:
    """Update the bounds of rows from ``begin`` on, and gather open rows into ``tile`` until it is full.

    Returns the row after the last one read, the number of open rows, and their number of open pairs of row
    and center.
    """
    # Fields are taken out of tuples once: each access updates two reference counts.
    _, shift, packed, squares, _, places, edges, drift, _ = centers
    rows, numbers, before, norms, products, groups, founds, members, member_counts, _, _, _, _, _ = tile
    _, roots, _, group_drift, _, error, tiny, _ = rounding
    count, pairs, i = 0, 0, begin
    member_counts[:] = 0
    while i < x.shape[0] and count < TILE:
        own, p, upper = labels[i], 0, np.inf
        if own >= 0:
            lowest, p = _loosen(bounds, i, group_drift), places[own]
            bounds[i, 0] = widen(np.float64(bounds[i, 0]) + drift[own])
            if bounds[i, 0] < lowest:
                i += 1
                continue
        norm, product = load_less_shift(x, i, shift, packed, p, rows, count)
        if own >= 0:
            square = norm - 2 * product + squares[p]
            if np.isfinite(square):
                upper = widen(np.sqrt(max(square + slack_of(np.sqrt(norm), roots[p], error, tiny), 0.0)))
            bounds[i, 0] = upper
        found = _list_groups(bounds, i, upper, groups, count)
        pairs += _list_row(count, groups, found, members, member_counts, edges)
        if found:
            numbers[count], before[count], founds[count] = i, own, found
            norms[count], products[count] = norm, product
            count += 1
        i += 1
    return i, count, pairs


@part
def _list_row(a: int, groups: Int64, found: int, members: Int64, member_counts: Int64, edges: Int64) -> int:
    """Append row ``a`` of a tile to the lists ``members`` of the ``found`` groups that are open for it.

    Returns the number of centers in these groups.
    """
    pairs = 0
    for j in range(found):
        g = groups[a, j]
        members[g, member_counts[g]] = a
        member_counts[g] += 1
        pairs += edges[g + 1] - edges[g]
    return pairs
