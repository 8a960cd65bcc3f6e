"""Labels that are exact and bounds that hold, whatever rows and centers are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from rankfold.kernels.clustering.cpu import nearest_centers as body
from rankfold.kernels.clustering.nearest_centers import LARGEST, Centers, assign_rows, centers_of


def start(m: int, n: int, k: int, g: int) -> tuple[dict[str, Any], dict[str, Any]]:
    known = {"labels": np.full(m, -1, np.int32), "bounds": np.zeros((m, 1 + g), np.float32)}
    return known, {"sums": np.zeros((k, n)), "counts": np.zeros(k), "squares": np.zeros(1)}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    m=st.integers(1, 700),
    n=st.integers(1, 40),
    k=st.integers(1, 30),
    g=st.integers(1, 6),
    size=st.sampled_from([1e-3, 1.0, 300.0]),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 99),
)
def test_bounds_hold_and_labels_are_nearest_while_centers_move(
    m: int, n: int, k: int, g: int, size: float, dtype: Any, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = (size + rng.standard_normal((m, n))).astype(dtype)
    centers, groups = size + rng.standard_normal((k, n)), np.sort(np.arange(k) % min(g, k))
    shift, before = x.mean(axis=0).astype(dtype), None
    known, into = start(m, n, k, groups.max() + 1)
    for step, move in enumerate((1.0, 0.3, 0.03, 0.0, 1e-6)):
        packed = centers_of(centers, shift, groups, before)
        old = known["labels"].copy()
        moved = assign_rows(x, packed, **known, **into, whole=step == 0)
        far = cdist(x.astype(np.float64), centers)
        labels, rows = known["labels"], np.arange(m)
        np.testing.assert_array_equal(labels, far.argmin(axis=1))
        assert moved == (labels != old).sum()
        own = far[rows, labels]
        assert (known["bounds"][:, 0] >= own * (1 - 1e-14)).all()
        far[rows, labels] = np.inf
        for group in range(groups.max() + 1):
            least = far[:, groups == group].min(axis=1)
            assert (known["bounds"][:, 1 + group] <= least * (1 + 1e-14)).all()
        sums = np.zeros((k, n))
        np.add.at(sums, labels, x.astype(np.float64) - shift)
        np.testing.assert_allclose(into["sums"], sums, atol=1e-11 * m)
        np.testing.assert_array_equal(into["counts"], np.bincount(labels, minlength=k))
        before, centers = centers, centers + move * rng.standard_normal((k, n))


def open_pairs(x: np.ndarray, centers: Centers, known: dict[str, Any]) -> int:
    """Pairs of rows and centers that bounds leave open."""
    pairs, begin = 0, 0
    while begin < len(x):
        begin, _, more = body.open_rows(
            x,
            begin,
            centers,
            body._rounding(centers),
            known["labels"].copy(),
            known["bounds"].copy(),
            body._room(centers, body.TILE),
        )
        pairs += more
    return pairs


def test_few_pairs_are_looked_at_once_centers_rest() -> None:
    rng = np.random.default_rng(0)
    centers = 20 * rng.standard_normal((30, 16))
    x = centers[rng.integers(0, 30, 5000)] + rng.standard_normal((5000, 16))
    groups = np.arange(30) // 10
    known, into = start(5000, 16, 30, 3)
    first = centers_of(centers, x[0], groups)
    assert open_pairs(x, first, known) == 30 * 5000
    assign_rows(x, first, **known, **into)
    after = centers_of(centers + 1e-3, x[0], groups, centers)
    assert open_pairs(x, after, known) == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_beyond_the_working_type_are_measured(dtype: Any) -> None:
    """Products of a few rows leave it; labels are those of the definition, and bounds hold."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((300, 7)).astype(dtype)
    x[::7] *= dtype(np.sqrt(np.finfo(dtype).max)) if dtype == np.float32 else dtype(1e152)
    centers = x[[0, 1, 2, 7, 14, 21]].astype(np.float64)
    known, into = start(300, 7, 6, 2)
    for _ in range(2):
        assign_rows(x, centers_of(centers, np.zeros(7, dtype), np.arange(6) // 3), **known, **into)
        far = cdist(x.astype(np.float64), centers)
        np.testing.assert_array_equal(known["labels"], far.argmin(axis=1))
        own = far.min(axis=1)
        # Bounds beyond float32 stand for anything beyond.
        assert (known["bounds"][:, 0] >= np.minimum(own * (1 - 1e-14), LARGEST)).all()
