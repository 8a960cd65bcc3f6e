"""Alternating directions: feasible always, at rest at a solution, and there in the end."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold.kernels.nonnegative.admm import project, split_rows

Array = npt.NDArray[Any]
REFERENCE: Callable[..., None] = split_rows.reference  # type: ignore[attr-defined]
BODIES = pytest.mark.parametrize("body", [split_rows, REFERENCE], ids=["tuned", "reference"])
TYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
SETS = [(np.inf, False), (0.25, False), (0.0, False), (np.inf, True)]


def problem(
    rows: int, rank: int, seed: int, dtype: Any = np.float64
) -> tuple[Array, Array, Array, Array, Array]:
    """Gram matrix, right side, start, and the factor and data that they come from."""
    rng = np.random.default_rng(seed)
    h, x = rng.standard_normal((rank, 3 * rank + 2)), 2 * rng.standard_normal((rows, 3 * rank + 2))
    w = rng.standard_normal((rows, rank))
    return (h @ h.T).astype(dtype), (x @ h.T).astype(dtype), w.astype(dtype), h, x


def assert_feasible(w: Array, upper: float, simplex: bool) -> None:
    assert (w >= 0).all()
    if simplex:
        eps = float(np.finfo(w.dtype).eps)
        assert np.abs(w.astype(float).sum(axis=1) - 1).max(initial=0) <= 2 * (w.shape[1] + 1) * eps
    else:
        assert (w <= w.dtype.type(upper)).all()


def kkt_residual(gram: Array, b: Array, w: Array, upper: float, simplex: bool) -> float:
    """Largest violation of the conditions of an optimum."""
    gradient = w @ gram - b
    if simplex:
        # All that is above zero has the least gradient there is.
        return float((np.minimum(w, 1) * (gradient - gradient.min(axis=1, keepdims=True))).max())
    return float(np.abs(np.clip(w - gradient, 0, upper) - w).max())


@pytest.mark.parametrize(("upper", "simplex"), SETS)
@settings(max_examples=25)
@given(rows=st.integers(1, 140), rank=st.integers(1, 24), seed=st.integers(0, 99))
def test_many_sweeps_solve(upper: float, simplex: bool, rows: int, rank: int, seed: int) -> None:
    gram, b, w, _, _ = problem(rows, rank, seed)
    split_rows(gram, b, w=w, sweeps=2000, upper=upper, simplex=simplex)
    assert_feasible(w, upper, simplex)
    assert kkt_residual(gram, b, w, upper, simplex) <= 1e-9 * np.abs(b).max()


@pytest.mark.parametrize("upper", [np.inf, 0.25])
def test_boxes_are_solved_as_scipy_does(upper: float) -> None:
    gram, b, w, h, x = problem(20, 6, 1)
    split_rows(gram, b, w=w, sweeps=2000, upper=upper, simplex=False)
    for row in range(20):
        exact = scipy.optimize.lsq_linear(h.T, x[row], (0, upper), method="bvls", tol=1e-14).x
        np.testing.assert_allclose(w[row], exact, atol=1e-9)


@BODIES
@TYPES
@pytest.mark.parametrize(("upper", "simplex"), SETS)
def test_rows_are_feasible_after_one_sweep_from_anywhere(
    body: Callable[..., None], dtype: Any, upper: float, simplex: bool
) -> None:
    for rank in (1, 2, 7, 33):
        gram, b, w, _, _ = problem(70, rank, 2, dtype)
        w *= 1000
        body(gram, 1000 * b, w=w, sweeps=1, upper=upper, simplex=simplex)
        assert_feasible(w, upper, simplex)


@BODIES
@TYPES
@pytest.mark.parametrize(("upper", "simplex"), SETS)
def test_a_solution_is_at_rest(body: Callable[..., None], dtype: Any, upper: float, simplex: bool) -> None:
    gram, b, w, _, _ = problem(70, 8, 3)
    split_rows(gram, b, w=w, sweeps=4000, upper=upper, simplex=simplex)
    found = w.astype(dtype)
    body(gram.astype(dtype), b.astype(dtype), w=found, sweeps=5, upper=upper, simplex=simplex)
    # Sums of k products round in every sweep, relative to a step that is b over the mean eigenvalue.
    scale = np.abs(b).max() / (np.trace(gram) / 8) + np.abs(w).max()
    assert np.abs(found - w).max() <= 1e-9 + 5 * 8 * np.finfo(dtype).eps * 8 * scale


@TYPES
@pytest.mark.parametrize("simplex", [False, True])
@settings(max_examples=15)
@given(cuts=st.lists(st.integers(1, 199), max_size=5, unique=True).map(sorted), rank=st.integers(1, 33))
def test_rows_do_not_know_each_other(dtype: Any, simplex: bool, cuts: list[int], rank: int) -> None:
    gram, b, whole, _, _ = problem(200, rank, 3, dtype)
    parts = whole.copy()
    split_rows(gram, b, w=whole, sweeps=4, upper=0.5, simplex=simplex)
    for start, stop in itertools.pairwise([0, *cuts, 200]):
        split_rows(gram, b[start:stop], w=parts[start:stop], sweeps=4, upper=0.5, simplex=simplex)
    np.testing.assert_array_equal(whole, parts)


@BODIES
@TYPES
@pytest.mark.parametrize(("upper", "simplex"), SETS)
def test_without_a_gram_matrix_rows_are_projected(
    body: Callable[..., None], dtype: Any, upper: float, simplex: bool
) -> None:
    _, b, w, _, _ = problem(70, 6, 4, dtype)
    expected = project(w, upper, simplex)
    body(np.zeros((6, 6), dtype), b, w=w, sweeps=3, upper=upper, simplex=simplex)
    np.testing.assert_allclose(w, expected, atol=20 * np.finfo(dtype).eps)


@BODIES
@TYPES
@settings(max_examples=30)
@given(
    rank=st.integers(1, 40),
    scale=st.sampled_from([1e-3, 1.0, 1e3, 1e7]),
    ties=st.booleans(),
    seed=st.integers(0, 99),
)
def test_projections_on_a_simplex_are_the_nearest(
    body: Callable[..., None], dtype: Any, rank: int, scale: float, ties: bool, seed: int
) -> None:
    v = scale * np.random.default_rng(seed).standard_normal((67, rank))
    v = (np.round(v / scale, 0) * scale if ties else v).astype(dtype)
    w = v.copy()
    body(np.zeros((rank, rank), dtype), w, w=w, sweeps=1, upper=0.0, simplex=True)
    assert_feasible(w, 0.0, simplex=True)
    for row in range(0, 67, 6):
        # The nearest point is max(v - t, 0) with the one t that makes it add up to 1.
        wide = v[row].astype(float)
        highest = wide.max()
        t = scipy.optimize.brentq(
            lambda t, wide=wide, highest=highest: np.maximum(wide - highest - t, 0).sum() - 1,
            -1.0,
            0.0,
            xtol=1e-15,
        )
        nearest = np.maximum(wide - highest - t, 0)
        np.testing.assert_allclose(w[row], nearest, atol=4 * (rank + 1) * np.finfo(dtype).eps)


@BODIES
def test_dependent_and_dead_components_are_defined(body: Callable[..., None]) -> None:
    gram, b, w, _, _ = problem(66, 6, 5)
    gram[2], gram[:, 2], b[:, 2] = 0, 0, 0
    gram[4], gram[:, 4], b[:, 4] = gram[3], gram[:, 3], b[:, 3]
    gram[4, 4] = gram[3, 3]
    for upper, simplex in SETS:
        found = w.copy()
        body(gram, b, w=found, sweeps=30, upper=upper, simplex=simplex)
        assert np.isfinite(found).all()
        assert_feasible(found, upper, simplex)


@BODIES
def test_no_rows_and_inputs_that_must_not_be_written(body: Callable[..., None]) -> None:
    gram, b, w, _, _ = problem(66, 4, 6)
    gram.flags.writeable = b.flags.writeable = False
    empty = np.zeros((0, 4))
    for upper, simplex in SETS:
        body(gram, b, w=w, sweeps=2, upper=upper, simplex=simplex)
        body(gram, empty, w=empty, sweeps=2, upper=upper, simplex=simplex)
        body(0 * gram, empty, w=empty, sweeps=2, upper=upper, simplex=simplex)
