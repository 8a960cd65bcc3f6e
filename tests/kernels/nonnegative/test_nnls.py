"""Nonnegative least squares: exact where it says so, never worse where it does not."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.optimize
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rankfold.kernels.nonnegative import nnls
from rankfold.kernels.nonnegative.cpu import nnls as cpu
from rankfold.kernels.nonnegative.nnls import descend_rows, solve_rows

Array = npt.NDArray[Any]


def problem(rows: int, rank: int, seed: int, dtype: Any = np.float64) -> tuple[Array, Array, Array, Array]:
    """Gram matrix, right side, start, and the factor and data that they come from."""
    rng = np.random.default_rng(seed)
    h, x = rng.gamma(0.5, size=(rank, 3 * rank + 2)), rng.standard_normal((rows, 3 * rank + 2))
    return (h @ h.T).astype(dtype), (x @ h.T).astype(dtype), h, x


def objective(gram: Array, b: Array, w: Array) -> float:
    return float(0.5 * ((w @ gram) * w).sum() - (b * w).sum())


@examples(60)
@given(rows=st.integers(1, 140), rank=st.integers(1, 40), seed=st.integers(0, 99), warm=st.booleans())
def test_solutions_are_those_of_scipy(rows: int, rank: int, seed: int, warm: bool) -> None:
    gram, b, h, x = problem(rows, rank, seed)
    w = np.random.default_rng(seed).gamma(0.2, size=(rows, rank)) * warm
    solve_rows(gram, b, w=w)
    for row in range(0, rows, 10):
        exact, _ = scipy.optimize.nnls(h.T, x[row])
        np.testing.assert_allclose(w[row], exact, atol=1e-9 * (1 + np.abs(exact).max()))
    slope = w @ gram - b
    assert np.abs(np.minimum(w, slope)).max() <= 1e-9 * np.abs(b).max()


def test_well_posed_rows_are_solved_to_rounding() -> None:
    gram, b, _, _ = problem(200, 32, 1)
    gram += 5 * np.eye(32)
    w = np.zeros((200, 32))
    solve_rows(gram, b, w=w)
    factor = np.linalg.cholesky(gram)
    for row in range(200):
        exact, _ = scipy.optimize.nnls(factor.T, np.linalg.solve(factor, b[row]))
        assert np.abs(w[row] - exact).max() <= 1e-12


BOUNDS = pytest.mark.parametrize(
    "how", [{}, {"upper": 0.3}, {"simplex": True}], ids=["nonnegative", "bound", "simplex"]
)


def best_of_all(gram: Array, b: Array, how: dict[str, Any]) -> Array:
    """Least objective of each row, over every choice of what is at which bound."""
    k, upper, simplex = len(gram), how.get("upper", np.inf), "simplex" in how
    best = np.full(len(b), np.inf)
    for at in map(np.array, itertools.product([0, 1, 2] if "upper" in how else [0, 1], repeat=k)):
        free, w = at == 1, np.tile(np.where(at == 2, upper if at.max() == 2 else 0.0, 0.0), (len(b), 1))
        if simplex and not free.any():
            continue
        inner = gram[np.ix_(free, free)]
        right = np.linalg.solve(inner, (b - w @ gram)[:, free].T).T
        ones = np.linalg.solve(inner, np.ones(len(inner)))
        w[:, free] = right - ones * (right.sum(axis=1, keepdims=True) - 1) / ones.sum() if simplex else right
        values = 0.5 * ((w @ gram) * w).sum(axis=1) - (b * w).sum(axis=1)
        allowed = (w >= -1e-9).all(axis=1) & (w <= upper + 1e-9).all(axis=1)
        best = np.where(allowed, np.minimum(best, values), best)
    return best


@BOUNDS
@pytest.mark.parametrize("body", [solve_rows, solve_rows.reference], ids=["compiled", "reference"])  # type: ignore[attr-defined]
@pytest.mark.parametrize("size", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("alike", [0.0, 0.95])
def test_no_other_choice_of_bounds_is_better(
    alike: float, size: float, body: Any, how: dict[str, Any]
) -> None:
    """Of components of any size, and nearly the same: alternating directions missed their rows by half."""
    rng = np.random.default_rng(7)
    h = (1 - alike) * rng.random((5, 12)) + alike * rng.random(12)
    h[0], h[1] = h[0] * size, h[1] * np.sqrt(size)
    x = np.abs(rng.dirichlet(np.ones(5), 40) @ h + 0.05 * rng.standard_normal((40, 12)))
    gram, b, w = h @ h.T, x @ h.T, np.zeros((40, 5))
    body(gram, b, w=w, **how)
    assert w.min() >= 0 and w.max() <= how.get("upper", np.inf)
    if "simplex" in how:
        np.testing.assert_allclose(w.sum(axis=1), 1, rtol=1e-14)
    values = 0.5 * ((w @ gram) * w).sum(axis=1) - (b * w).sum(axis=1)
    assert (values - best_of_all(gram, b, how) <= 1e-12 * (x**2).sum(axis=1)).all()


@BOUNDS
@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_sizes_of_components_change_nothing(size: float, how: dict[str, Any]) -> None:
    """Of more components than directions: a ridge of their mean size was all of the small ones."""
    h, rng = np.random.default_rng(1).random((8, 5)), np.random.default_rng(2)
    x, sizes = rng.random((30, 3)) @ rng.random((3, 5)), np.where(np.arange(8) % 3, 1.0, size)
    if how:
        sizes[:] = size  # bounds are of the numbers themselves
        how = {"simplex": True} if "simplex" in how else {"upper": 0.3 / size}
    plain, scaled = np.zeros((30, 8)), np.zeros((30, 8))
    solve_rows(h @ h.T, x @ h.T, w=plain, **({"upper": 0.3} if "upper" in how else how))
    h *= sizes[:, None]
    x = x * size if "simplex" in how else x
    solve_rows(h @ h.T, x @ h.T, w=scaled, **how)
    scaled = scaled if "simplex" in how else scaled * sizes
    np.testing.assert_allclose(scaled, plain, rtol=1e-6, atol=1e-9)


@BOUNDS
@pytest.mark.parametrize("body", [solve_rows, solve_rows.reference], ids=["compiled", "reference"])  # type: ignore[attr-defined]
@pytest.mark.parametrize("rank", [1, 5, 20])
def test_many_components_of_few_directions_are_solved(rank: int, body: Any, how: dict[str, Any]) -> None:
    """What rounding leaves of their Gram matrix is larger than a ridge."""
    rng = np.random.default_rng(rank)
    h = rng.random((120, rank)) @ rng.random((rank, 200))
    x = rng.dirichlet(np.full(120, 0.05), 12) @ h + 0.01 * rng.random((12, 200))
    gram, b, w = h @ h.T, x @ h.T, np.zeros((12, 120))
    body(gram, b, w=w, **how)
    slopes = (w @ gram - b) / np.linalg.norm(h, axis=1) / np.linalg.norm(x, axis=1)[:, None]
    if "simplex" in how:
        np.testing.assert_allclose(w.sum(axis=1), 1, rtol=1e-9)
        slopes = (w @ gram - b) - (w * (w @ gram - b)).sum(axis=1)[:, None]
        slopes /= np.linalg.norm(h) * np.linalg.norm(x, axis=1)[:, None]
    upper = how.get("upper", np.inf)
    assert slopes[w < upper].min() >= -1e-7
    assert slopes[w > 0].max() <= 1e-7


@BOUNDS
@pytest.mark.parametrize("start", [0.0, 0.1, 9.0])
def test_rows_that_exchanges_do_not_solve_are_solved_by_steps(
    start: float, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    gram, b, _, _ = problem(20, 12, 3)
    exact, steps, compiled = np.zeros((20, 12)), np.full((20, 12), start), np.full((20, 12), start)
    solve_rows(gram, b, w=exact, **how)
    monkeypatch.setattr(nnls, "EXCHANGES", 0)
    solve_rows.reference(gram, b, w=steps, **how)  # type: ignore[attr-defined]
    np.testing.assert_allclose(steps, exact, atol=1e-9)
    cpu._solve(gram, b, compiled, np.sqrt(np.diag(gram)), how.get("upper", np.inf), "simplex" in how, 0)
    np.testing.assert_allclose(compiled, exact, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rank", [1, 3, 32, 65])
def test_every_sweep_goes_down_and_all_of_them_to_the_solution(rank: int, dtype: Any) -> None:
    gram, b, _, _ = problem(130, rank, 2, dtype)
    w = np.zeros((130, rank), dtype)
    values = [0.0]
    for _ in range(20):
        descend_rows(gram, b, w=w, sweeps=1)
        values.append(objective(gram.astype(float), b.astype(float), w.astype(float)))
        assert (w >= 0).all()
    slack = 20 * np.finfo(dtype).eps * abs(values[-1])
    assert all(after <= before + slack for before, after in itertools.pairwise(values))
    exact = np.zeros((130, rank))
    solve_rows(gram.astype(float), b.astype(float), w=exact)
    descend_rows(gram, b, w=w, sweeps=3000)
    best = objective(gram.astype(float), b.astype(float), exact)
    assert values[-1] >= best - slack
    np.testing.assert_allclose(w, exact, atol=1e-3 * max(1.0, exact.max()))


def test_rows_do_not_know_each_other() -> None:
    gram, b, _, _ = problem(200, 12, 3)
    whole, parts = np.full((200, 12), 0.5), np.full((200, 12), 0.5)
    descend_rows(gram, b, w=whole, sweeps=4)
    for start, stop in ((0, 1), (1, 64), (64, 150), (150, 200)):
        descend_rows(gram, b[start:stop], w=parts[start:stop], sweeps=4)
    np.testing.assert_array_equal(whole, parts)


def test_dead_and_dependent_components_are_defined() -> None:
    gram, b, _, _ = problem(50, 6, 4)
    gram[2], gram[:, 2], b[:, 2] = 0, 0, 0
    gram[4], gram[:, 4], b[:, 4] = gram[3], gram[:, 3], b[:, 3]
    gram[4, 4] = gram[3, 3]
    w = np.full((50, 6), 0.25)
    descend_rows(gram, b, w=w, sweeps=5)
    assert (w[:, 2] == 0.25).all() and np.isfinite(w).all()
    w = np.zeros((50, 6))
    solve_rows(gram, b, w=w)
    assert np.isfinite(w).all() and (w >= 0).all()
    assert np.abs(np.minimum(w, w @ gram - b)).max() <= 1e-6 * np.abs(b).max()
