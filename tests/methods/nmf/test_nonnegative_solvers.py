"""Every solver, loss, penalty and constraint of nmf: what falls, where it ends, and what is said about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from covers import cover
from sklearn import decomposition
from test_nonnegative import parts

import rankfold as rf
from rankfold.methods.nmf import alternation
from rankfold.methods.nmf.row_solvers import Pivoting

Array = npt.NDArray[Any]

pytestmark = pytest.mark.filterwarnings(
    "ignore::rankfold.RankfoldWarning", "ignore::sklearn.exceptions.ConvergenceWarning"
)

SOLVERS = ("hals", "bpp", "mu", "admm")
TALL_AND_WIDE = [pytest.param((300, 40), id="tall"), pytest.param((40, 300), id="wide")]
SHAPES = pytest.mark.parametrize("shape", TALL_AND_WIDE)
ROUNDING = {np.float64: 1e-12, np.float32: 2e-4}
"""By which an error may seem to rise: float32 errors are right to 1e-4, before and after."""


def factors(found: rf.Result) -> tuple[Array, Array]:
    w, h = np.asarray(found.W[...], np.float64), np.asarray(found.H[...], np.float64)
    assert np.isfinite(w).all() and np.isfinite(h).all() and w.min() >= 0 and h.min() >= 0
    return w, h


def relative(x: Array, found: rf.Result) -> float:
    w, h = factors(found)
    return float(np.linalg.norm(x - w @ h) / np.linalg.norm(x.astype(np.float64)))


def weights(x: Array, alpha_w: float, alpha_h: float, l1_ratio: float) -> tuple[float, float, float, float]:
    """L1 and L2 of W, then of H, as scikit-learn weighs them."""
    rows, columns = x.shape
    own, other = alpha_w * columns, alpha_h * rows
    return own * l1_ratio, own * (1 - l1_ratio), other * l1_ratio, other * (1 - l1_ratio)


def penalized(x: Array, w: Array, h: Array, alpha_w: float, alpha_h: float, l1_ratio: float) -> float:
    """scikit-learn's objective."""
    a, b, c, d = weights(x, alpha_w, alpha_h, l1_ratio)
    plain = a * w.sum() + b / 2 * (w**2).sum() + c * h.sum() + d / 2 * (h**2).sum()
    return float(((x - w @ h) ** 2).sum() / 2 + plain)


def stationarity(x: Array, w: Array, h: Array, penalties: tuple[float, ...] = (0, 0, 0, 0)) -> float:
    """Norm of the projected gradient where components of the other factor have unit norm, over |X|."""

    def part(slope: Array, factor: Array, norms: Array) -> float:
        kept = np.where(factor > 1e-12 * factor.max(), slope, np.minimum(slope, 0))
        scaled = np.divide(kept, norms, out=np.zeros_like(kept), where=norms > 0)
        return float((scaled**2).sum())

    a, b, c, d = penalties
    of_w = part(w @ (h @ h.T) - x @ h.T + a + b * w, w, np.linalg.norm(h, axis=1))
    of_h = part(((w.T @ w) @ h - w.T @ x + c + d * h).T, h.T, np.linalg.norm(w, axis=0))
    return float(np.sqrt(of_w + of_h) / np.linalg.norm(x))


def best_error(x: Array, rank: int) -> float:
    fits = (
        decomposition.NMF(rank, init="random", random_state=seed, max_iter=1000, tol=1e-7)
        .fit(x.astype(np.float64))
        .reconstruction_err_
        for seed in range(3)
    )
    return min(fits) / float(np.linalg.norm(x.astype(np.float64)))


@pytest.mark.parametrize("size", [1e-15, 1e15])
def test_sizes_of_components_change_no_exact_row(size: float) -> None:
    """Of more components than a matrix has, descent leaves some in such sizes, and their rows were wrong."""
    x, h = parts(60, 9, 3, noise=0.1), np.random.default_rng(4).random((8, 9))
    sizes = np.where(np.arange(8) % 3, 1.0, size)

    def rows(h: np.ndarray) -> np.ndarray:
        w = np.zeros((60, 8))
        Pivoting().improve(h @ h.T, x @ h.T, np.zeros(8), w, fresh=True)
        return w

    np.testing.assert_allclose(rows(h * sizes[:, None]) * sizes, rows(h), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "dtype", "solver"),
    cover(
        [pytest.param((300, 40), np.float64), pytest.param((40, 300), np.float32)],
        SOLVERS,
        strength=1,
    ),
)
def test_errors_never_rise_and_end_within_a_hundredth(
    solver: str, shape: tuple[int, int], dtype: Any
) -> None:
    x = parts(*shape, 3, dtype, noise=0.3)
    best = best_error(x, 3)
    for init, margin in (("compressed", 1.01), ("random", 1.01 if solver != "mu" else 1.06)):
        found = rf.nmf(x, 3, solver=solver, init=init, tol=0, passes=40 if solver == "mu" else 25)
        errors = np.array(found.attrs["errors"])
        assert (np.diff(errors) <= ROUNDING[dtype] * errors[:-1]).all()
        assert relative(x, found) <= margin * best
        assert found.attrs["relative_error"] == pytest.approx(relative(x, found), rel=1e-4)


@pytest.mark.parametrize(
    ("solver", "shape"), [("hals", (300, 40)), ("bpp", (40, 300)), ("admm", (300, 40))], ids=str
)
def test_at_the_end_factors_or_slopes_are_zero(solver: str, shape: tuple[int, int]) -> None:
    x = parts(*shape, 3, noise=0.3)
    found = rf.nmf(x, 3, solver=solver, tol=0, passes=40)
    assert found.attrs["stationarity"] <= 1e-4
    w, h = factors(found)
    norms = np.linalg.norm(h, axis=1)
    # With components of H of unit norm, slopes of W are inner products with the matrix: at most |x_i|.
    w, h = w * norms, h / norms[:, None]
    slope = (w @ (h @ h.T) - x @ h.T) / np.linalg.norm(x, axis=1).max()
    assert np.abs(np.minimum(w / w.max(), slope)).max() <= 1e-4


@pytest.mark.parametrize(
    ("shape", "solver", "penalty"),
    cover(
        TALL_AND_WIDE,
        SOLVERS,
        [pytest.param((0.0, 0.0, 0.0), id="plain"), pytest.param((0.02, 0.01, 0.5), id="penalized")],
    ),
)
def test_stationarity_is_that_of_the_factors_before_the_step(
    solver: str, penalty: tuple[float, float, float], shape: tuple[int, int]
) -> None:
    x = parts(*shape, 3, noise=0.3)
    asked = dict(zip(("alpha_W", "alpha_H", "l1_ratio"), penalty, strict=True))
    before = rf.nmf(x, 3, solver=solver, init="random", tol=0, passes=3, **asked)
    after = rf.nmf(x, 3, solver=solver, init="random", tol=0, passes=4, **asked)
    known = stationarity(x, *factors(before), weights(x, *penalty))
    assert after.attrs["stationarity"] == pytest.approx(known, rel=1e-6)


@pytest.mark.parametrize(
    ("solver", "penalty", "shape"),
    cover(
        SOLVERS,
        [
            pytest.param((0.02, 0.02, 0.0), (300, 40)),
            pytest.param((0.02, 0.02, 1.0), (40, 300)),
            pytest.param((0.05, 0.005, 0.5), (300, 40)),
            pytest.param((0.05, 0.005, 0.5), (40, 300)),
        ],
        strength=1,
    ),
)
def test_penalized_factors_cost_what_those_of_scikit_learn_cost(
    solver: str, penalty: tuple[float, float, float], shape: tuple[int, int]
) -> None:
    x = parts(*shape, 3)
    alpha_w, alpha_h, l1_ratio = penalty
    costs = []
    for seed in range(2):
        theirs = decomposition.NMF(
            3, init="random", random_state=seed, alpha_W=alpha_w, alpha_H=alpha_h, l1_ratio=l1_ratio,
            max_iter=1500, tol=1e-7,
        )  # fmt: skip
        costs.append(penalized(x, theirs.fit_transform(x), theirs.components_, *penalty))
    passes = 30 if solver == "mu" else 12
    asked = {"alpha_W": alpha_w, "alpha_H": alpha_h, "l1_ratio": l1_ratio}
    found = rf.nmf(x, 3, solver=solver, tol=0, passes=passes, **asked)
    cost = penalized(x, *factors(found), *penalty)
    assert cost <= 1.005 * min(costs)
    assert found.attrs["cost"] == pytest.approx(np.sqrt(2 * cost / (x**2).sum()), rel=1e-9)
    if l1_ratio == 1 and solver != "mu":
        free = rf.nmf(x, 3, solver=solver, tol=0, passes=12)
        assert (factors(found)[0] == 0).mean() > (factors(free)[0] == 0).mean()


def test_penalties_that_outweigh_the_matrix_leave_nothing() -> None:
    x = parts(200, 30, 3)
    for solver in SOLVERS:
        found = rf.nmf(x, 3, solver=solver, alpha_W=100.0, l1_ratio=1.0)
        assert found.attrs["relative_error"] == pytest.approx(1, abs=1e-6)
        assert penalized(x, *factors(found), 100.0, 100.0, 1.0) <= (1 + 1e-6) * (x**2).sum() / 2


def one_sided(x: Array, found: rf.Result, side: str, alpha: float, l1_ratio: float) -> float:
    """The objective of ``penalty``, whatever sizes the components have."""
    w, h = factors(found)
    own, other, count = (w, h.T, x.shape[1]) if side == "alpha_W" else (h.T, w, x.shape[0])
    norms = np.linalg.norm(other, axis=0)
    linear = (own.sum(axis=0) * norms).sum()
    squares = ((own**2).sum(axis=0) * norms**2).sum()
    return float(
        ((x - w @ h) ** 2).sum() / 2 + alpha * count * (l1_ratio * linear + (1 - l1_ratio) / 2 * squares)
    )


@pytest.mark.parametrize(("shape", "side", "solver"), cover(TALL_AND_WIDE, ["alpha_W", "alpha_H"], SOLVERS))
def test_a_penalty_on_one_factor_falls_in_a_fixed_gauge(
    solver: str, side: str, shape: tuple[int, int]
) -> None:
    x, alpha, l1_ratio = parts(*shape, 3), 0.005, 0.5
    asked = {"alpha_W": 0.0, "alpha_H": 0.0, "l1_ratio": l1_ratio, side: alpha, "solver": solver, "tol": 0}
    stages = [rf.nmf(x, 3, passes=passes, init="random", **asked) for passes in (1, 2, 6)]
    costs = [one_sided(x, found, side, alpha, l1_ratio) for found in stages]
    assert (np.diff(costs) <= 1e-12 * costs[0]).all()
    assert stages[-1].attrs["cost"] == pytest.approx(np.sqrt(2 * costs[-1] / (x**2).sum()), rel=1e-9)
    w, h = factors(stages[-1])
    free = np.linalg.norm(h, axis=1) if side == "alpha_W" else np.linalg.norm(w, axis=0)
    np.testing.assert_allclose(free, 1, rtol=1e-12)
    assert stages[-1].attrs["relative_error"] < 0.5


@SHAPES
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_constraints_hold(dtype: Any, shape: tuple[int, int]) -> None:
    x = parts(*shape, 4, dtype)
    near = 1e-10 if dtype is np.float64 else 1e-5
    for init in ("compressed", "rows"):
        w, _ = factors(rf.nmf(x, 4, constraint_W="simplex", init=init))
        np.testing.assert_allclose(w.sum(axis=1), 1, atol=near)
        _, h = factors(rf.nmf(x, 4, constraint_H="simplex", init=init))
        np.testing.assert_allclose(h.sum(axis=0), 1, atol=near)
        w, h = factors(rf.nmf(x, 4, constraint_W=0.3, constraint_H="simplex", init=init))
        assert w.max() <= dtype(0.3)
        np.testing.assert_allclose(h.sum(axis=0), 1, atol=near)
        w, h = factors(rf.nmf(x, 4, constraint_W="simplex", constraint_H=0.2, init=init))
        assert h.max() <= dtype(0.2)
        np.testing.assert_allclose(w.sum(axis=1), 1, atol=near)


@SHAPES
@pytest.mark.parametrize(
    "constraints",
    [{"constraint_W": "simplex"}, {"constraint_H": "simplex"}, {"constraint_W": 0.5, "constraint_H": 1.0}],
    ids=["W", "H", "boxes"],
)
def test_factors_that_keep_constraints_are_found_again(
    constraints: dict[str, Any], shape: tuple[int, int]
) -> None:
    rng = np.random.default_rng(5)
    w, h = rng.dirichlet(np.full(3, 0.3), shape[0]), rng.dirichlet(np.full(3, 0.3), shape[1]).T
    if "constraint_H" not in constraints:
        h = rng.gamma(0.5, size=h.shape)
    elif constraints["constraint_H"] == "simplex":
        w = rng.gamma(0.5, size=w.shape)
    else:
        w, h = w / 2, h
    found = rf.nmf(w @ h, 3, tol=0, passes=25, **constraints)
    errors = np.array(found.attrs["errors"])
    assert found.attrs["relative_error"] <= 0.02
    # Ten sweeps of alternating directions are an inexact solution: they may lose a little.
    assert (np.diff(errors) <= 1e-3 * errors[:-1]).all()


def counts(shape: tuple[int, int], mean: float = 2.0) -> Array:
    """Poisson counts of parts, with a row and a column of zeros."""
    rng = np.random.default_rng(7)
    x = rng.poisson(mean * rng.gamma(0.5, size=(shape[0], 3)) @ rng.gamma(0.5, size=(3, shape[1])))
    x[4], x[:, 6] = 0, 0
    return x.astype(np.float64)


def divergence(x: Array, product: Array) -> float:
    ratio = np.divide(x, product, out=np.ones_like(x), where=x > 0)
    return float((x * np.log(ratio) - x + product).sum())


def independent(x: Array) -> Array:
    return np.outer(x.sum(axis=1), x.sum(axis=0)) / x.sum()


@pytest.mark.parametrize(
    ("kind", "shape"),
    [("dense", (300, 40)), ("dense", (40, 300)), ("float32", (40, 300)), ("sparse", (300, 40))],
    ids=["tall", "wide", "float32", "sparse"],
)
def test_divergences_fall_to_those_of_scikit_learn(kind: str, shape: tuple[int, int]) -> None:
    x = counts(shape)
    best = np.inf
    for seed in range(3):
        theirs = decomposition.NMF(
            3, init="random", random_state=seed, solver="mu", beta_loss=1, max_iter=600, tol=1e-6
        )
        best = min(best, divergence(x, theirs.fit_transform(x) @ theirs.components_))
    given = {"sparse": scipy.sparse.csr_array(x), "float32": x.astype(np.float32)}.get(kind, x)
    found = rf.nmf(given, 3, loss="kullback-leibler", tol=0, passes=40)
    w, h = factors(found)
    ends, errors = divergence(x, w @ h), np.array(found.attrs["errors"])
    assert ends <= 1.01 * best
    assert (np.diff(errors) <= (1e-12 if kind != "float32" else 1e-6) * errors[:-1]).all()
    # What is told is measured before the short factor moved last.
    told = found.attrs["relative_error"] * divergence(x, independent(x))
    assert ends <= (1 + 1e-6) * told and told <= 1.001 * ends
    assert w[4].max() <= 1e-5 * w.max() and h[:, 6].max() <= 1e-5 * h.max()


@pytest.mark.parametrize(
    ("alpha", "shape"),
    [((0.05, 0.05, 0.0), (300, 40)), ((0.05, 0.02, 1.0), (40, 300)), ((3.0, 3.0, 0.0), (40, 300))],
    ids=["l2", "l1", "heavy"],
)
def test_penalized_divergences_fall(alpha: tuple[float, float, float], shape: tuple[int, int]) -> None:
    x = counts(shape)
    a, b, c, d = weights(x, *alpha)

    def cost(w: Array, h: Array) -> float:
        plain = a * w.sum() + b / 2 * (w**2).sum() + c * h.sum() + d / 2 * (h**2).sum()
        return divergence(x, w @ h) + float(plain)

    asked = {"alpha_W": alpha[0], "alpha_H": alpha[1], "l1_ratio": alpha[2]}
    stages = [
        cost(*factors(rf.nmf(x, 3, loss="kullback-leibler", init="random", tol=0, passes=passes, **asked)))
        for passes in (1, 2, 3, 60)
    ]
    # Floors above zero cost a little of what they keep.
    assert (np.diff(stages) <= 1e-9 * stages[-1]).all()
    theirs = decomposition.NMF(
        3, init="random", random_state=0, solver="mu", beta_loss=1, max_iter=600, tol=1e-6, **asked
    )
    assert stages[-1] <= 1.005 * cost(theirs.fit_transform(x), theirs.components_)


@pytest.mark.parametrize("size", [2.0**-100, 2.0**-30, 2.0**30, 2.0**100])
def test_units_change_no_divergence(size: float) -> None:
    x = counts((200, 30))
    here, there = (rf.nmf(y, 3, loss="kullback-leibler", passes=10) for y in (x, x * size))
    assert there.attrs["relative_error"] == pytest.approx(here.attrs["relative_error"], rel=1e-6)
    w, h = factors(there)
    told = divergence(x, w @ h / size) / divergence(x, independent(x))
    assert there.attrs["relative_error"] == pytest.approx(told, rel=1e-2)


def test_rows_and_columns_that_are_independent_are_no_error() -> None:
    rng = np.random.default_rng(2)
    x = np.outer(rng.random(60), rng.random(20))
    found = rf.nmf(x, 3, loss="kullback-leibler", init="random", passes=50)
    w, h = factors(found)
    assert divergence(x, w @ h) <= 1e-4 * x.sum()


@pytest.mark.parametrize(("shape", "left"), cover(TALL_AND_WIDE, [3e-2, 1e-2, 1e-3, 3e-4, 1e-4], strength=1))
def test_float32_errors_are_right_to_a_ten_thousandth(left: float, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    shape = (shape[0] * 4, shape[1]) if shape[0] > shape[1] else (shape[0], shape[1] * 4)
    w, h = rng.gamma(0.5, size=(shape[0], 4)), rng.gamma(0.5, size=(4, shape[1]))
    noise = np.abs(rng.standard_normal(shape))
    # A part of noise is a component more or less: about 1.6 times this is what is left.
    size = 1.6 * left * np.linalg.norm(w @ h) / np.linalg.norm(noise)
    x = (w @ h + size * noise).astype(np.float32)
    for solver in ("hals", "bpp"):
        found = rf.nmf(x, 4, solver=solver, init=(w, h), tol=0, passes=3)
        assert found.attrs["relative_error"] == pytest.approx(left, rel=0.3)
        assert found.attrs["relative_error"] == pytest.approx(relative(x, found), rel=1e-4)
    found = rf.nmf(x, 4, tol=1e-4, passes=12)
    assert found.attrs["relative_error"] == pytest.approx(relative(x, found), rel=1e-4)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_is_lost_in_a_difference_is_not_called_exact(dtype: Any) -> None:
    rng = np.random.default_rng(3)
    x = np.outer(rng.random(300), rng.random(40)).astype(dtype)
    found = rf.nmf(x, 1, init="random", passes=1)
    assert found.attrs["stopped"] == "passes" and found.attrs["relative_error"] >= relative(x, found)
    found = rf.nmf(x, 1, init="random")
    assert found.attrs["relative_error"] <= 2 * np.finfo(dtype).eps
    assert relative(x, found) <= 2 * np.finfo(dtype).eps


@pytest.mark.parametrize(
    ("init", "dtype", "sizes"),
    cover(
        ["compressed", "nndsvd", "rows", "random"],
        [pytest.param(np.float32, (1e-20, 1e18)), pytest.param(np.float64, (1e-90, 1e100))],
        strength=1,
    ),
)
def test_units_change_no_error(dtype: Any, sizes: tuple[float, float], init: str) -> None:
    x = parts(200, 30, 3)
    errors = [rf.nmf((x * s).astype(dtype), 3, init=init).attrs["relative_error"] for s in (1.0, *sizes)]
    np.testing.assert_allclose(errors, errors[0], rtol=1e-3)


@pytest.mark.parametrize("size", [1e-35, 1e35])
def test_units_out_of_range_are_refused(size: float) -> None:
    x = parts(200, 30, 3)
    with pytest.raises(rf.RankfoldError, match=r"leave the range of float32\. Store them in other units"):
        rf.nmf((x * size).astype(np.float32), 3)


def test_a_step_leaves_the_factor_it_begins_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rank 1 as well, where a transposed factor is contiguous: the error is computed from both."""
    improve, kept = alternation.improve_short, list[bool]()

    def spied(model: Any, factors: Any, *args: Any, **how: Any) -> Any:
        before = factors.short.copy()
        update = improve(model, factors, *args, **how)
        kept.append(bool((before == factors.short).all() and (update.short != before).any()))
        return update

    monkeypatch.setattr(alternation, "improve_short", spied)
    rf.nmf(parts(200, 30, 3), 1, passes=3, tol=0)
    assert kept and all(kept)
