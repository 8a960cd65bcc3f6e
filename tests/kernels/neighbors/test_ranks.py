"""Counts of nearer rows: those of brute force, whatever the bounds leave open."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from covers import cover
from hypothesis import given
from hypothesis import strategies as st

from rankfold.kernels.neighbors import lists as neighbors
from rankfold.kernels.neighbors.lists import BY_PRODUCTS, Metric
from rankfold.kernels.neighbors.ranks import count_every_pair, count_nearer, limits, measure_keys

Array = np.ndarray[Any, Any]
FIRST = 1000
"""Id of the first row that passes."""

METRICS = {m.name: m for m in Metric}


def rows(count: int, columns: int, dtype: str, *, distinct: int = 10**6) -> Array:
    """Random rows, of which many are equal if few are distinct."""
    rng = np.random.default_rng([count, columns, distinct])
    x = rng.standard_normal((min(count, distinct), columns)) * 30 + 100
    return x[rng.integers(0, len(x), count)].clip(0, 255).astype(dtype)


def keys_of(x: Array, y: Array, scales: tuple[Array, Array], metric: Metric, *, by_lanes: bool) -> Array:
    """All pairs, one by one."""
    i, j = (a.ravel() for a in np.indices((len(x), len(y))))
    found = measure_keys(x, y, *scales, metric=metric, by_lanes=by_lanes, rows=i, others=j)
    return found.reshape(len(x), len(y))


def thresholds(keys: Array, k: int) -> tuple[Array, Array]:
    """Some columns of each row, sorted by (key, id)."""
    rng = np.random.default_rng(0)
    ids = np.stack([rng.choice(keys.shape[1], k, replace=False) for _ in keys])
    keys, ids = np.take_along_axis(keys, ids, 1), ids + FIRST
    order = np.lexsort((ids, keys), axis=1)
    return np.take_along_axis(keys, order, 1), np.take_along_axis(ids, order, 1)


def expected(keys: Array, roots: Array, ids: Array, own: Array) -> Array:
    """The definition: pairs that come before a threshold in the order (key, id)."""
    names = np.arange(keys.shape[1]) + FIRST
    near, root, other = keys[:, None], roots[..., None], ids[..., None]
    before = (near < root) | ((near == root) & (names < other))
    return (before & (names != own[:, None])[:, None]).sum(axis=2)


@pytest.mark.parametrize(
    ("metric", "dtype", "distinct", "wider"),
    cover(
        BY_PRODUCTS,
        ["float32", "float64", "uint8"],
        [pytest.param(10**6, id="distinct"), pytest.param(12, id="many are equal")],
        [1e-6, 1e-2, np.inf],
    ),
)
def test_counts_are_those_of_brute_force(metric: Metric, dtype: str, distinct: int, wider: float) -> None:
    y, k = rows(150, 40, dtype, distinct=distinct), 7
    x, own = y[::3].copy(), FIRST + np.arange(0, 150, 3)
    norms = tuple(np.square(a.astype(float)).sum(axis=1) for a in (x, y))
    scales = tuple(1 / np.sqrt(n) for n in norms)
    keys = keys_of(x, y, scales, metric, by_lanes=True)
    halves = neighbors.half(keys, metric)
    # Bounds around the truth, as far from it as is asked: the product is what is left of the norms.
    tile, zero = -halves, (np.zeros(len(x)), np.zeros(len(y)))
    off = (np.full(len(x), wider * np.abs(halves).max()), np.zeros(len(y)))
    roots, ids = thresholds(keys, k)
    counts = np.full((len(x), k), 5)
    measured = count_nearer(
        tile,
        (-off[0], zero[1]),
        off,
        x,
        y,
        *scales,
        metric=metric,
        own=own,
        first=FIRST,
        keys=roots,
        ids=ids,
        counts=counts,
    )
    np.testing.assert_array_equal(counts - 5, expected(keys, roots, ids, own))
    pairs = len(x) * (len(y) - 1)
    assert measured <= pairs
    assert measured == pairs if wider == np.inf else measured >= len(x)
    if wider < 1e-3 and distinct > 100:
        assert measured < 3 * k * len(x)


@pytest.mark.parametrize(
    ("metric", "columns", "distinct"),
    cover(
        ["EUCLIDEAN", "SQEUCLIDEAN", "MANHATTAN", "CHEBYSHEV"],
        [1, 2, 3, 16],
        [pytest.param(10**6, id="distinct"), pytest.param(12, id="many are equal")],
    ),
)
def test_measured_counts_are_those_of_brute_force(metric: str, columns: int, distinct: int) -> None:
    y, k, code = rows(150, columns, "float64", distinct=distinct), 7, METRICS[metric]
    x, own, one = y[::3].copy(), FIRST + np.arange(0, 150, 3), (np.ones(50), np.ones(150))
    keys = keys_of(x, y, one, code, by_lanes=False)
    roots, ids = thresholds(keys, k)
    counts = np.zeros((len(x), k), np.int64)
    count_every_pair(x, y, metric=code, own=own, first=FIRST, keys=roots, ids=ids, counts=counts)
    np.testing.assert_array_equal(counts, expected(keys, roots, ids, own))


SIZES = st.floats(allow_nan=False, allow_infinity=False, width=64)


@given(
    key=SIZES,
    other=SIZES,
    metric=st.sampled_from(BY_PRODUCTS),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_limits_leave_no_doubt(key: float, other: float, metric: Metric, dtype: Any) -> None:
    """What is below the lower limit has a smaller key, and what is above the upper one a larger one."""
    if metric != Metric.INNER_PRODUCT:
        key, other = abs(key), abs(other)
    low, high = (float(a[0, 0]) for a in limits(np.array([[key]]), metric, np.dtype(dtype)))
    assert low <= high
    squared = metric == Metric.EUCLIDEAN
    halved = metric in (Metric.EUCLIDEAN, Metric.SQEUCLIDEAN)
    if squared and other > 1e154:
        return  # halves of such rows are no numbers
    half = other * other / 2 if squared else other / 2 if halved else other
    if half < low:
        assert other < key
    if half > high:
        assert other > key


def test_panels_add_up() -> None:
    y, k, metric = rows(200, 30, "float32", distinct=50), 4, Metric.EUCLIDEAN
    x, own, one = y[:20].copy(), FIRST + np.arange(20), (np.ones(20), np.ones(200))
    keys = keys_of(x, y, one, metric, by_lanes=True)
    roots, ids = thresholds(keys, k)
    counts = np.zeros((len(x), k), np.int64)
    tile, far = np.zeros((20, 200)), np.full(20, 1e9)
    for start, stop in itertools.pairwise([0, 1, 66, 130, 200]):
        count_nearer(
            tile[:, start:stop],
            (-far, np.zeros(stop - start)),
            (far, np.zeros(stop - start)),
            x,
            y[start:stop],
            *(np.ones(20), np.ones(stop - start)),
            metric=metric,
            own=own,
            first=FIRST + start,
            keys=roots,
            ids=ids,
            counts=counts,
        )
    np.testing.assert_array_equal(counts, expected(keys, roots, ids, own))
