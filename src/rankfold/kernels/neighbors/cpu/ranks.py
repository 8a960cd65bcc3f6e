"""Ranks by counting. See ``kernels/neighbors/ranks.py``.

Runs of columns are tested as vectors: against the farthest threshold first, which most pairs are beyond, then
against each. If as many columns are surely nearer as possibly are, no pair of a run is examined by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels._dispatch import plain
from rankfold.kernels.neighbors.cpu._distances import EUCLIDEAN, distance, inner_product, load
from rankfold.kernels.neighbors.cpu._pairs import CHEBYSHEV, MANHATTAN, RUN, TINY, WIDER, _load, _measure_run
from rankfold.kernels.neighbors.lists import LANES
from rankfold.kernels.neighbors.ranks import limits

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

LARGEST = float(np.finfo(np.float64).max)

Index = np.uint64
"""Index type of loops that are to be vectorized: a signed index is checked each time for being negative."""


def count_nearer(
    products: Array,
    near: tuple[Array, Array],
    far: tuple[Array, Array],
    x: Array,
    y: Array,
    scale_x: Float64,
    scale_y: Float64,
    *,
    metric: int,
    own: Int64,
    first: int,
    keys: Float64,
    ids: Int64,
    counts: Int64,
) -> int:
    """See the contract; scratch 8 d + 16 p k bytes. Counts rows of a tile that come before thresholds."""
    low, high = limits(np.asarray(keys), metric, products.dtype)
    near, far = (plain(near[0]), plain(near[1])), (plain(far[0]), plain(far[1]))
    rows, scale = (plain(x), plain(y)), (plain(scale_x), plain(scale_y))
    plain_counts = np.ascontiguousarray(counts)
    where = (int(metric), inner_product(metric), plain(own), int(first), plain(keys), plain(ids), low, high)
    loop: Callable[..., int] = _count_nearer
    pair_count = int(loop(plain(products), near, far, *rows, scale, *where, plain_counts))
    if plain_counts is not counts:
        counts[...] = plain_counts
    return pair_count


def count_every_pair(
    x: Float64, y: Float64, *, metric: int, own: Int64, first: int, keys: Float64, ids: Int64, counts: Int64
) -> None:
    """See the contract; scratch 512 d + 16 p k bytes. Counts rows before thresholds, every pair measured."""
    keys = np.asarray(keys)
    low, high = keys, keys
    if metric == EUCLIDEAN:
        with np.errstate(over="ignore"):
            squares = keys * keys
            low, high = np.minimum(squares, LARGEST) / WIDER - TINY, squares * WIDER + TINY
    plain_counts = np.ascontiguousarray(counts)
    where = (plain(own), int(first), plain(keys), plain(ids), plain(low), plain(high))
    _count_every_pair(plain(x), plain(y), int(metric), *where, plain_counts)
    if plain_counts is not counts:
        counts[...] = plain_counts


def measure_keys(
    x: Array,
    y: Array,
    scale_x: Float64,
    scale_y: Float64,
    *,
    metric: int,
    by_lanes: bool,
    rows: Int64,
    others: Int64,
) -> Float64:
    """See the contract; scratch 8 d bytes. Keys of some pairs."""
    pair_keys = np.empty(len(rows))
    pairs = (plain(rows), plain(others), pair_keys)
    if by_lanes:
        _measure_lanes(
            plain(x), plain(y), plain(scale_x), plain(scale_y), int(metric), inner_product(metric), *pairs
        )
    else:
        _measure_in_order(plain(x), plain(y), int(metric), *pairs)
    return pair_keys


@part
def _any_within(row: Array, near: Any, near_j: Array, high: Any, a: int, b: int) -> bool:
    within = False
    for j in range(Index(a), Index(b)):
        within |= near + near_j[j] - row[j] <= high
    return within


@part
def _bounds(row: Array, one: Any, others: Array, start: int, count: int, itself: int, out: Array) -> None:
    a = Index(start)
    for j in range(Index(count)):
        out[j] = one + others[a + j] - row[a + j]
    # NaN compares False: neither lanes beyond the last column nor the row itself are counted.
    out[count:] = np.nan
    if 0 <= itself < count:
        out[itself] = np.nan


@part
def _before(key: float, name: int, root: float, other: int) -> bool:
    return key < root or (key == root and name < other)


@part
def _possible(least: Array, high: Any) -> int:
    count = Index(0)
    for j in range(Index(RUN)):
        count += Index(least[j] <= high)
    return count  # type: ignore[return-value]


@part
def _sure(most: Array, low: Any) -> int:
    count = Index(0)
    for j in range(Index(RUN)):
        count += Index(most[j] < low)
    return count  # type: ignore[return-value]


@compile_loop
def _count_nearer(
    products: Array,
    near: tuple[Array, Array],
    far: tuple[Array, Array],
    x: Array,
    y: Array,
    scale: tuple[Float64, Float64],
    metric: int,
    inner: Any,
    own: Int64,
    first: int,
    keys: Float64,
    ids: Int64,
    low: Array,
    high: Array,
    counts: Int64,
) -> int:
    q, last, pair_count = len(y), keys.shape[1] - 1, 0
    least, most = np.empty(RUN, products.dtype), np.empty(RUN, products.dtype)
    row, sums, pair_keys = np.empty(x.shape[1]), np.empty(LANES), np.empty(RUN)
    for i in range(len(x)):
        in_buffer = False
        for start in range(0, q, RUN):
            count, itself, fresh = min(RUN, q - start), own[i] - first - start, True
            if not _any_within(products[i], near[0][i], near[1], high[i, last], start, start + count):
                continue
            _bounds(products[i], near[0][i], near[1], start, count, itself, least)
            _bounds(products[i], far[0][i], far[1], start, count, itself, most)
            for s in range(last, -1, -1):
                possible, sure = _possible(least, high[i, s]), _sure(most, low[i, s])
                if possible == 0:
                    break
                counts[i, s] += sure
                if possible == sure:
                    continue
                if fresh:
                    pair_keys[:], fresh = np.nan, False
                if not in_buffer:
                    load(x[i], scale[0][i], metric, row)
                    in_buffer = True
                for j in range(count):
                    if least[j] <= high[i, s] and not most[j] < low[i, s]:
                        if np.isnan(pair_keys[j]):
                            pair_keys[j] = distance(
                                row, scale[0][i], y, start + j, scale[1][start + j], metric, inner, sums
                            )
                            pair_count += 1
                        counts[i, s] += _before(pair_keys[j], first + start + j, keys[i, s], ids[i, s])
    return pair_count


@compile_loop
def _count_every_pair(
    x: Float64,
    y: Float64,
    metric: int,
    own: Int64,
    first: int,
    keys: Float64,
    ids: Int64,
    low: Float64,
    high: Float64,
    counts: Int64,
) -> None:
    q, last = len(y), keys.shape[1] - 1
    sums, tile = np.empty(RUN), np.empty((x.shape[1], RUN))
    for start in range(0, q, RUN):
        count = min(RUN, q - start)
        _load(y, start, count, tile)
        for i in range(len(x)):
            _measure_run(x[i], tile, metric, sums)
            sums[count:] = np.nan  # also if rows have no columns: their sums are 0, not NaN
            self_at = own[i] - first - start
            if 0 <= self_at < count:
                sums[self_at] = np.nan
            for s in range(last, -1, -1):
                possible = _possible(sums, high[i, s])
                if possible == 0:
                    break
                sure = _sure(sums, low[i, s])
                counts[i, s] += sure
                if possible == sure:
                    continue
                for j in range(count):
                    if sums[j] <= high[i, s] and not sums[j] < low[i, s]:
                        key = np.sqrt(sums[j]) if metric == EUCLIDEAN else sums[j]
                        name = first + start + j
                        counts[i, s] += _before(key, name, keys[i, s], ids[i, s])


@compile_loop
def _measure_lanes(
    x: Array,
    y: Array,
    scale_x: Float64,
    scale_y: Float64,
    metric: int,
    inner: Any,
    rows: Int64,
    others: Int64,
    pair_keys: Float64,
) -> None:
    row, sums, current = np.empty(x.shape[1]), np.empty(LANES), -1
    for t in range(len(rows)):
        i, j = rows[t], others[t]
        if i != current:
            load(x[i], scale_x[i], metric, row)
            current = i
        pair_keys[t] = distance(row, scale_x[i], y, j, scale_y[j], metric, inner, sums)


@compile_loop
def _measure_in_order(
    x: Array, y: Array, metric: int, rows: Int64, others: Int64, pair_keys: Float64
) -> None:
    for t in range(len(rows)):
        i, j, total = rows[t], others[t], 0.0
        for e in range(x.shape[1]):
            apart = abs(np.float64(x[i, e]) - np.float64(y[j, e]))
            if metric == CHEBYSHEV:
                total = max(total, apart)
            else:
                total += apart if metric == MANHATTAN else apart * apart
        pair_keys[t] = np.sqrt(total) if metric == EUCLIDEAN else total
