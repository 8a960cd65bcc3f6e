"""Number of rows that are nearer than given ones: ranks by counting, with no distance stored.

A *threshold* of a row is another row, by its exact key and its id; the number of rows before it in the order
(key, id) is its rank among the neighbors, less one. Bounds from products settle nearly all pairs; those
that they leave open are measured, by the sum that ``lists.py`` fixes. So counts are integers that do not
depend on how rows were cut or products rounded.

The trap: a bound must hold on both sides here. A pair whose upper bound is too low is counted as nearer and
never examined again.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.neighbors.lists import SLACK, Metric, distance, in_order

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@kernel
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
    """Count the rows of ``y`` that come before each threshold of the rows of ``x``, added to ``counts``.

    Returns the number of pairs that were measured.

    Parameters
    ----------
    products : (p, q) float32 or float64
        Inner products of the rows of ``x`` with those of ``y``.
    near, far : ((p,), (q,)) of that type
        A pair is at least ``near[0][i] + near[1][j] - products[i, j]`` apart, and at most the same with
        ``far``, in halves: see ``kernels/neighbors/lists.py``.
    x, y, scale_x, scale_y, metric, first
        As for ``refine_rows`` there.
    own : (p,) int64
        Ids of the rows themselves, which are never counted.
    keys, ids, counts : (p, k)
        Thresholds of each row, sorted by (key, id), keys finite; and their counts, int64, written.

    Notes
    -----
    Two additions and at most 2 k comparisons a pair, as vectors; 3 d flops where it is measured.
    """
    (low, high), pair_count = limits(keys, metric, products.dtype), 0
    for i, j in itertools.product(range(len(x)), range(len(y))):
        if first + j == own[i]:
            continue
        least, most = (side[0][i] + side[1][j] - products[i, j] for side in (near, far))
        surely = most < low[i]
        unsure = ~surely & (least <= high[i])
        counts[i] += surely
        if unsure.any():
            key = distance(x[i], y[j], scale_x[i], scale_y[j], metric=metric)
            counts[i, unsure] += before(key, first + j, keys[i, unsure], ids[i, unsure])
            pair_count += 1
    return pair_count


@kernel
def count_every_pair(
    x: Float64, y: Float64, *, metric: int, own: Int64, first: int, keys: Float64, ids: Int64, counts: Int64
) -> None:
    """Count the rows of ``y`` that come before each threshold of ``x``, with every pair measured.

    Parameters
    ----------
    x, y : (p, d), (q, d) float64
    metric : EUCLIDEAN, SQEUCLIDEAN, MANHATTAN or CHEBYSHEV
    own, first, keys, ids, counts
        As for ``count_nearer``.

    Notes
    -----
    Work 3 p q d flops and 2 k comparisons a pair, vectors across the rows of ``y``. Keys are those of
    ``measure_pairs``: sums over elements in order.
    """
    for i in range(len(x)):
        for j in range(len(y)):
            if first + j != own[i]:
                counts[i] += before(in_order(x[i], y[j], metric), first + j, keys[i], ids[i])


@kernel
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
    """Keys (distances) of some pairs of rows.

    Parameters
    ----------
    x, y, scale_x, scale_y, metric
        As for ``count_nearer``.
    by_lanes : bool
        True to measure by the sum of ``count_nearer``, False by that of ``count_every_pair``.
    rows, others : (n,) int64
        Indices of ``x`` and ``y``.

    Returns
    -------
    (n,) float64
    """
    pair_keys = np.empty(len(rows))
    for t, (i, j) in enumerate(zip(rows, others, strict=True)):
        if by_lanes:
            pair_keys[t] = distance(x[i], y[j], scale_x[i], scale_y[j], metric=metric)
        else:
            pair_keys[t] = in_order(x[i].astype(np.float64), y[j].astype(np.float64), metric)
    return pair_keys


def limits(keys: Float64, metric: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Two limits, of the shape of ``keys``, for the bounds of a pair, in halves: see ``lists.py``.

    A pair surely comes before the threshold if its upper bound is below the first limit, and surely does not
    if its lower bound is above the second.
    """
    with np.errstate(over="ignore"):
        squares = keys * keys if metric == Metric.EUCLIDEAN else keys
        halves = squares / 2 if metric in (Metric.EUCLIDEAN, Metric.SQEUCLIDEAN) else squares
        wider = SLACK * np.sign(halves)
        low, high = (halves * (1 - wider)).astype(dtype), (halves * (1 + wider)).astype(dtype)
    # Beyond the range of the type nothing is sure: an upper bound that is infinite is below nothing.
    low = np.minimum(low, np.finfo(dtype).max)
    return np.nextafter(low, dtype.type(-np.inf)), np.nextafter(high, dtype.type(np.inf))


def before(key: float, name: int, keys: Float64, ids: Int64) -> npt.NDArray[np.bool_]:
    """Mask of the thresholds (``keys``, ``ids``) that a pair of ``key`` and id ``name`` comes before."""
    return (key < keys) | ((key == keys) & (name < ids))
