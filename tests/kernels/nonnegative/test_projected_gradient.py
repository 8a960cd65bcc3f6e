"""The projected gradient: zero at solutions, and by component what the definition says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold.kernels.nonnegative.nnls import descend_rows, solve_rows
from rankfold.kernels.nonnegative.projected_gradient import gradient_rows

Array = npt.NDArray[Any]
REFERENCE: Callable[..., Array] = gradient_rows.reference  # type: ignore[attr-defined]
BODIES = pytest.mark.parametrize("body", [gradient_rows, REFERENCE], ids=["tuned", "reference"])
TYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def problem(rows: int, rank: int, seed: int, dtype: Any = np.float64) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    h, x = rng.gamma(0.5, size=(rank, 3 * rank + 2)), rng.standard_normal((rows, 3 * rank + 2))
    w = rng.gamma(1.0, size=(rows, rank)) * (rng.random((rows, rank)) < 0.6)
    return (h @ h.T).astype(dtype), (x @ h.T).astype(dtype), w.astype(dtype)


@BODIES
@TYPES
@settings(max_examples=30)
@given(rows=st.integers(0, 140), rank=st.integers(1, 33), seed=st.integers(0, 99))
def test_sums_are_those_of_the_definition(
    body: Callable[..., Array], dtype: Any, rows: int, rank: int, seed: int
) -> None:
    gram, b, w = problem(rows, rank, seed, dtype)
    found = body(gram, b, w)
    assert found.dtype == np.float64 and found.shape == (rank,)
    wide, expected = (w.astype(float), gram.astype(float), b.astype(float)), np.zeros(rank)
    error = np.zeros(rank)
    for i in range(rows):
        for t in range(rank):
            slope = float(wide[0][i] @ wide[1][:, t] - wide[2][i, t])
            expected[t] += slope**2 if w[i, t] > 0 or slope < 0 else 0.0
            # A slope is k + 1 roundings of its parts off.
            one = (
                (rank + 1)
                * np.finfo(dtype).eps
                * float(wide[0][i] @ np.abs(wide[1][:, t]) + abs(wide[2][i, t]))
            )
            error[t] += 2 * abs(slope) * one + one * one
    assert (np.abs(found - expected) <= error + 1e-13 * expected).all()


@BODIES
def test_a_solution_has_none(body: Callable[..., Array]) -> None:
    gram, b, w = problem(130, 12, 1)
    before = body(gram, b, w)
    solve_rows(gram, b, w=w)
    assert (body(gram, b, w) <= 1e-20 * before).all()


def test_one_coordinate_is_what_the_first_sweep_of_a_descent_finds() -> None:
    gram, b, w = problem(130, 1, 2)
    found, before = gradient_rows(gram, b, w), w.copy()
    descend_rows(gram, b, w=w, sweeps=1)
    free = w[:, 0] > 0  # elsewhere a step ended at zero, short of the gradient
    steps = gram[0, 0] * (w - before)[free, 0]
    ends = (before @ gram - b)[~free, 0] * (before[~free, 0] > 0)
    assert found[0] == pytest.approx(float(steps @ steps + ends @ ends), rel=1e-12)


@TYPES
@settings(max_examples=20)
@given(cut=st.integers(0, 200))
def test_parts_add_up(dtype: Any, cut: int) -> None:
    gram, b, w = problem(200, 9, 3, dtype)
    parts = gradient_rows(gram, b[:cut], w[:cut]) + gradient_rows(gram, b[cut:], w[cut:])
    # The slopes are the same bits; squares are not negative, so that a sum of 200 is off by 200 roundings.
    np.testing.assert_allclose(gradient_rows(gram, b, w), parts, rtol=200 * np.finfo(float).eps)


@BODIES
def test_zero_gram_and_inputs_that_must_not_be_written(body: Callable[..., Array]) -> None:
    gram, b, w = problem(66, 4, 4)
    for a in (gram, b, w):
        a.flags.writeable = False
    body(gram, b, w)
    pushed = np.where(w > 0, -b, np.minimum(-b, 0))
    np.testing.assert_allclose(body(np.zeros((4, 4)), b, w), (pushed**2).sum(axis=0), rtol=1e-13)
