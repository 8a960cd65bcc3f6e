"""Labels that are exact and bounds that hold, whatever rows and centers are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from rankfold.kernels.clustering.nearest_centers import assign_rows, centers_of


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


def test_few_pairs_are_looked_at_once_centers_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    from rankfold.kernels.clustering.cpu import nearest_centers as body

    pairs = []
    found = body._open_rows

    def counted(*arguments: Any) -> Any:
        made = found(*arguments)
        pairs.append(made[1])
        return made

    monkeypatch.setattr(body, "_open_rows", counted)
    rng = np.random.default_rng(0)
    centers = 20 * rng.standard_normal((30, 16))
    x = centers[rng.integers(0, 30, 5000)] + rng.standard_normal((5000, 16))
    groups = np.arange(30) // 10
    known, into = start(5000, 16, 30, 3)
    assign_rows(x, centers_of(centers, x[0], groups), **known, **into)
    assert sum(pairs) == 30 * 5000
    pairs.clear()
    moved = centers + 1e-3
    assign_rows(x, centers_of(moved, x[0], groups, centers), **known, **into, whole=False)
    assert sum(pairs) == 0
