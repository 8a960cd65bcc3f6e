"""Multiplicative updates: the formula, never upward, and defined where it divides by zero."""

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

from rankfold.kernels.nonnegative.multiplicative import multiply_rows

Array = npt.NDArray[Any]
REFERENCE: Callable[..., None] = multiply_rows.reference  # type: ignore[attr-defined]
BODIES = pytest.mark.parametrize("body", [multiply_rows, REFERENCE], ids=["tuned", "reference"])
TYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def problem(
    rows: int, rank: int, seed: int, dtype: Any = np.float64
) -> tuple[Array, Array, Array, Array, Array]:
    """Gram matrix, right side, start, and the factor and data that they come from."""
    rng = np.random.default_rng(seed)
    h, x = rng.gamma(0.5, size=(rank, 3 * rank + 2)), rng.gamma(0.5, size=(rows, 3 * rank + 2))
    w = rng.gamma(1.0, size=(rows, rank)) + 0.01
    return (h @ h.T).astype(dtype), (x @ h.T).astype(dtype), w.astype(dtype), h, x


def objective(gram: Array, b: Array, w: Array, linear: Array) -> float:
    gram, b, w = gram.astype(float), b.astype(float), w.astype(float)
    return float(0.5 * ((w @ gram) * w).sum() - ((b - linear) * w).sum())


@BODIES
def test_a_sweep_is_the_formula(body: Callable[..., None]) -> None:
    gram, b, w, _, _ = problem(70, 5, 1)
    linear, before = np.linspace(0, 2, 5), w.copy()
    body(gram, b, w=w, linear=linear, floor=0.05, sweeps=1)
    for i, t in itertools.product(range(70), range(5)):
        below = sum(before[i, r] * gram[r, t] for r in range(5)) + linear[t]
        assert w[i, t] == pytest.approx(max(before[i, t] * b[i, t] / below, 0.05), rel=1e-14)


@TYPES
@settings(max_examples=40)
@given(
    rows=st.integers(1, 140),
    rank=st.integers(1, 33),
    seed=st.integers(0, 99),
    price=st.sampled_from([0.0, 0.5, 20.0]),
    floor=st.sampled_from([0.0, 1e-12, 0.01]),
)
def test_no_sweep_goes_up(dtype: Any, rows: int, rank: int, seed: int, price: float, floor: float) -> None:
    gram, b, w, _, _ = problem(rows, rank, seed, dtype)
    w = np.maximum(w, dtype(floor))
    linear = np.full(rank, price, dtype)
    values = [objective(gram, b, w, linear)]
    size = abs(values[0]) + float((w.astype(float) * b).sum())
    for _ in range(8):
        multiply_rows(gram, b, w=w, linear=linear, floor=floor, sweeps=1)
        assert (w >= dtype(floor)).all()
        values.append(objective(gram, b, w, linear))
    # The ratio of two sums of k numbers is wrong by as many roundings.
    slack = 4 * (rank + 4) * np.finfo(dtype).eps * size
    assert all(after <= before + slack for before, after in itertools.pairwise(values))


def test_many_sweeps_solve() -> None:
    gram, b, w, h, x = problem(30, 4, 5)
    multiply_rows(gram, b, w=w, linear=np.zeros(4), floor=0.0, sweeps=20000)
    for row in range(30):
        exact, _ = scipy.optimize.nnls(h.T, x[row])
        # Coordinates that are zero at a solution are approached as one over the sweeps at worst.
        np.testing.assert_allclose(w[row], exact, atol=2e-3 * exact.max())


@TYPES
@settings(max_examples=20)
@given(cuts=st.lists(st.integers(1, 199), max_size=5, unique=True).map(sorted), rank=st.integers(1, 33))
def test_rows_do_not_know_each_other(dtype: Any, cuts: list[int], rank: int) -> None:
    gram, b, whole, _, _ = problem(200, rank, 3, dtype)
    parts, linear = whole.copy(), np.linspace(0, 1, rank)
    multiply_rows(gram, b, w=whole, linear=linear, floor=1e-9, sweeps=4)
    for start, stop in itertools.pairwise([0, *cuts, 200]):
        multiply_rows(gram, b[start:stop], w=parts[start:stop], linear=linear, floor=1e-9, sweeps=4)
    np.testing.assert_array_equal(whole, parts)


@BODIES
@TYPES
def test_nothing_over_nothing_is_the_floor(body: Callable[..., None], dtype: Any) -> None:
    gram, b, w, _, _ = problem(66, 4, 4, dtype)
    gram[2], gram[:, 2], b[:, 2] = 0, 0, 0
    w[7], w[8, 1] = 0, 0
    for floor in (0.0, 0.125):
        found = w.copy()
        body(gram, b, w=found, linear=np.zeros(4, dtype), floor=floor, sweeps=1)
        assert np.isfinite(found).all()
        assert (found[:, 2] == floor).all() and (found[7] == floor).all() and found[8, 1] == floor
        zero = np.zeros((4, 4), dtype)
        body(zero, np.zeros_like(b), w=found, linear=np.zeros(4, dtype), floor=floor, sweeps=3)
        assert (found == floor).all()


@BODIES
@TYPES
def test_one_coordinate_is_solved_by_one_sweep(body: Callable[..., None], dtype: Any) -> None:
    b = np.array([[0.0], [3.0], [8.0]], dtype)
    w = np.array([[2.0], [0.5], [7.0]], dtype)
    body(np.array([[2.0]], dtype), b, w=w, linear=np.zeros(1, dtype), floor=0.0, sweeps=1)
    np.testing.assert_allclose(w, b / 2, rtol=4 * np.finfo(dtype).eps)


@BODIES
def test_no_rows_and_inputs_that_must_not_be_written(body: Callable[..., None]) -> None:
    gram, b, w, _, _ = problem(66, 4, 6)
    linear = np.ones(4)
    for a in (gram, b, linear):
        a.flags.writeable = False
    body(gram, b, w=w, linear=linear, floor=0.0, sweeps=2)
    empty = np.zeros((0, 4))
    body(gram, empty, w=empty, linear=linear, floor=0.0, sweeps=2)
