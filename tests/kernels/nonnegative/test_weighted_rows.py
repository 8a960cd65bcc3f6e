"""Rows with weights of their own: to the solution, never worse on the way, whatever other rows there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.optimize
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rankfold.kernels.nonnegative.weighted_rows import (
    descend_weighted_rows,
    gradient_weighted_rows,
    pair_count,
    pair_places,
    pair_products,
)

Array = npt.NDArray[Any]


def problem(
    rows: int, rank: int, seed: int, dtype: Any = np.float64
) -> tuple[Array, Array, Array, Array, Array]:
    """Halves of Gram matrices, right sides, and the factor, weights and data that they come from."""
    rng = np.random.default_rng(seed)
    h, x = rng.gamma(0.5, size=(rank, 3 * rank + 2)), rng.standard_normal((rows, 3 * rank + 2))
    v = rng.random(x.shape) * (rng.random(x.shape) < 0.8)
    pairs = np.empty((h.shape[1], pair_count(rank)))
    pair_products(np.ascontiguousarray(h.T), out=pairs)
    return (v @ pairs).astype(dtype), ((v * x) @ h.T).astype(dtype), h, v, x


def objectives(grams: Array, b: Array, w: Array) -> Array:
    whole = grams.astype(float)[:, pair_places(w.shape[1])]
    wide = w.astype(float)
    return np.asarray(0.5 * np.einsum("ri,rij,rj->r", wide, whole, wide) - (b * wide).sum(axis=1))


@examples(40)
@given(rows=st.integers(1, 90), rank=st.integers(1, 24), seed=st.integers(0, 99))
def test_halves_are_gram_matrices_of_weighted_rows(rows: int, rank: int, seed: int) -> None:
    grams, _, h, v, _ = problem(rows, rank, seed)
    whole = np.einsum("ic,rc,jc->rij", h, v, h)
    np.testing.assert_allclose(grams[:, pair_places(rank)], whole, atol=1e-13 * whole.max())


@examples(40)
@given(rows=st.integers(1, 90), rank=st.integers(1, 24), seed=st.integers(0, 99), dtype=st.sampled_from("fd"))
def test_every_sweep_goes_down_row_by_row(rows: int, rank: int, seed: int, dtype: str) -> None:
    grams, b, *_ = problem(rows, rank, seed, np.dtype(dtype))
    w = np.random.default_rng(seed).gamma(0.2, size=(rows, rank)).astype(dtype)
    size = np.abs(b).max() * np.abs(w).max() + 1
    before = objectives(grams, b, w)
    for _ in range(4):
        descend_weighted_rows(grams, b, w=w, sweeps=1)
        now = objectives(grams, b, w)
        assert w.min() >= 0 and (now <= before + 100 * rank * np.finfo(dtype).eps * size).all()
        before = now


@pytest.mark.parametrize("rank", [1, 4, 12])
def test_sweeps_lead_to_the_solution_of_scipy(rank: int) -> None:
    grams, b, h, v, x = problem(60, rank, 3)
    w = np.zeros((60, rank))
    descend_weighted_rows(grams, b, w=w, sweeps=5000)
    for row in range(0, 60, 6):
        root = np.sqrt(v[row])
        exact, _ = scipy.optimize.nnls((h * root).T, x[row] * root)
        np.testing.assert_allclose(w[row], exact, atol=1e-7 * (1 + exact.max()))
    assert np.sqrt(gradient_weighted_rows(grams, b, w)).max() <= 1e-7 * np.abs(b).max()


@examples(30)
@given(cut=st.integers(1, 69), rank=st.integers(1, 20), dtype=st.sampled_from("fd"))
def test_a_row_depends_on_no_other(cut: int, rank: int, dtype: str) -> None:
    grams, b, *_ = problem(70, rank, 5, np.dtype(dtype))
    whole = np.ones((70, rank), dtype)
    parts = whole.copy()
    descend_weighted_rows(grams, b, w=whole, sweeps=3)
    for part in (slice(0, cut), slice(cut, 70)):
        descend_weighted_rows(grams[part], b[part], w=parts[part], sweeps=3)
    assert np.array_equal(whole, parts)


def test_coordinates_without_curvature_are_left_or_zero() -> None:
    grams, b, w = np.zeros((2, 3)), np.array([[0.0, -1.0], [0.0, 0.0]]), np.ones((2, 2))
    descend_weighted_rows(grams, b, w=w, sweeps=2)
    assert w.tolist() == [[1.0, 0.0], [1.0, 1.0]]
