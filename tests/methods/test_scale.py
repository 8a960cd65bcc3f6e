"""Answers follow the size of the numbers, by any power of two, or are refused by it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from covers import spread

import rankfold as rf
from rankfold import estimators
from rankfold.pipeline.errors import DataError

RNG = np.random.default_rng(7)
X = np.abs(RNG.normal(size=(4, 20))[np.arange(120) % 4] * 4 + RNG.normal(size=(120, 20)))
SPARSE = sp.csr_array(np.where(X > 5, X, 0))


def centers(x: Any) -> Any:
    found = np.asarray(rf.kmeans(x, 4).centers)
    return found[np.argsort(found[:, 0])]


Answer = Callable[[Any], Any]

LENGTHS: dict[str, Answer] = {
    "neighbors by products": lambda x: rf.knn(x, 4).distances,
    "in a tree": lambda x: rf.knn(x[:, :3], 4).distances,
    "by pairs": lambda x: rf.knn(x[:, :3], 4, solver="pairs").distances,
    "of sparse rows": lambda x: rf.knn(SPARSE * (x[0, 0] / X[0, 0]), 4).distances,
    "of queries": lambda x: rf.knn(x, 4, queries=x[:9]).distances,
    "in an index": lambda x: rf.knn(x[:9], 4, index=rf.index(x)).distances,
    "by squares": lambda x: np.sqrt(rf.knn(x, 4, metric="sqeuclidean").distances),
    "by inner products": lambda x: np.sqrt(np.abs(rf.knn(x, 4, metric="inner_product").distances)),
    "potentials": lambda x: 1 / np.asarray(rf.kernel_sum(x[:, :3], forces=False, tol=0).sums),
    "by blocks": lambda x: rf.knn(x, 4, metric="manhattan").distances,
    "centers": centers,
    "singular values": lambda x: rf.svd(x, 3).s,
    "of a sparse matrix": lambda x: rf.svd(SPARSE * (x[0, 0] / X[0, 0]), 3).s,
    "scores": lambda x: np.abs(rf.pca(x, 3).scores),
    "factors": lambda x: (lambda r: r.W[:] @ r.H[:])(rf.nmf(x, 3)),
    "scores by a kernel": lambda x: np.abs(rf.kernel_pca(x, 3, kernel="linear").scores),
}
"""What grows with the numbers."""

SHARES: dict[str, Answer] = {
    "numbers within a radius": lambda x: rf.radius_neighbors(x, float(x.max()) / 2).degrees,
    "scores of scaled columns": lambda x: np.abs(rf.pca(x, 3, scale=True).scores),
    "sums over a length": lambda x: (
        rf.kernel_sum(x[:, :3], kernel="gaussian", bandwidth=float(x.max()) / 4, forces=False).sums
    ),
    "whitened samples": lambda x: np.abs(estimators.PCA(3, whiten=True).fit(x).transform(x)),
    "of scaled columns in memory": lambda x: np.abs(rf.pca(x, 3, scale=True, solver="lanczos").scores),
    "of sparse columns in memory": lambda x: np.abs(
        rf.pca(SPARSE * (x[0, 0] / X[0, 0]), 3, scale=True, solver="lanczos").scores
    ),
    "of columns scaled before": lambda x: np.abs(rf.pca(rf.open(x, prepare="scale"), 3).scores),
    "preserved neighbors": lambda x: rf.continuity(x, x[:, :2]).value,
}
"""What does not."""


@functools.cache
def unscaled(name: str) -> Any:
    return np.asarray((LENGTHS | SHARES)[name](X), np.float64)


@pytest.mark.parametrize("exponent", spread(2, [-530, -900, -230, 510, 230, 900]))
@pytest.mark.parametrize("name", [*LENGTHS, *SHARES])
def test_an_answer_follows_the_size_of_the_numbers_or_is_refused_by_it(name: str, exponent: int) -> None:
    expected = unscaled(name)
    try:
        scaled = np.asarray((LENGTHS | SHARES)[name](np.ldexp(X, exponent)), np.float64)
    except rf.RankfoldError as error:
        assert abs(exponent) > 230, "squares of squares of such numbers are in range"
        words = (
            "leave the range",
            "leaves the range",
            "overflow float64",
            "can be: scale",
            "no sum can hold",
        )
        assert any(word in str(error) for word in words)
        return
    found = np.ldexp(scaled, -exponent) if name in LENGTHS else scaled
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())


SOLVERS = ("krylov", "gram", "subspace", "sketch", "tsqr", "lanczos")

MATRICES: dict[str, Any] = {
    "tall": X,
    "wide": X.T[:15].copy(),
    "constant": np.where(np.arange(20) == 3, 7.25, X),
    "complex": X + 1j * X[::-1],
    "sparse": SPARSE,
    "float32": X.astype(np.float32),
    "sparse float32": SPARSE.astype(np.float32),
}


@functools.cache
def scaled_columns(name: str, solver: str, exponent: int = 0) -> dict[str, Any]:
    x = MATRICES[name] * MATRICES[name].dtype.type(2.0**exponent)
    found = rf.pca(x, 3, scale=True, solver=solver)
    arrays = {array: np.asarray(found[array]) for array in found}
    return arrays | {"new rows": np.asarray(rf.transform(found, x[:5]).scores)}


@pytest.mark.filterwarnings("ignore:the largest estimated error", "ignore:.*columns are constant")
@pytest.mark.parametrize("share", spread(2, [-1.0, -0.3, 0.3, 1.0]))
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", MATRICES)
def test_scaled_columns_are_the_same_in_any_unit(name: str, solver: str, share: float) -> None:
    if name == "complex" and solver not in ("gram", "tsqr"):
        pytest.skip(f"{solver} takes no complex matrices")
    single = "float32" in name
    exponent = int(share * (100 if single else 900))
    expected, found = scaled_columns(name, solver), scaled_columns(name, solver, exponent)
    for array in expected:
        want = expected[array]
        if array in ("mean", "scale"):
            constant = (array == "scale") & (want == 1)
            want = np.where(constant, want, want * 2.0**exponent)
        size = np.abs(want).max() if array in ("mean", "scale") else max(1.0, np.abs(want).max())
        atol = size * (2e-5 if single else 1e-9)
        np.testing.assert_allclose(found[array], want, rtol=0, atol=atol, err_msg=array)


@pytest.mark.filterwarnings("ignore:.*columns are constant")
@pytest.mark.parametrize("solver", SOLVERS)
def test_columns_of_sizes_that_no_unit_holds_are_refused(solver: str) -> None:
    x = np.random.default_rng(0).standard_normal((300, 6))
    expected = rf.pca(x, 2, scale=True, solver=solver).singular_values
    for large, small in ((1e100, 1e-20), (1e-100, 1e-200)):
        found = rf.pca(with_sizes(x, large, small), 2, scale=True, solver=solver).singular_values
        np.testing.assert_allclose(found, expected, rtol=1e-3)
    for large, small in ((1e170, 1.0), (1e200, 1e-100), (1e-100, 1e-300)):
        with pytest.raises(DataError, match=r"column 3 near .* no unit keeps the squares of both"):
            rf.pca(with_sizes(x, large, small), 2, scale=True, solver=solver)


def with_sizes(x: npt.NDArray[np.float64], large: float, small: float) -> npt.NDArray[np.float64]:
    """Columns of one size, and the fourth of another."""
    sizes = np.full(x.shape[1], large)
    sizes[3] = small
    return x * sizes


@pytest.mark.filterwarnings("ignore:Maximum number of iterations")
@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(
    ("dtype", "exponent"), [(np.float64, -20), (np.float64, -40), (np.float64, -300), (np.float32, -40)]
)
def test_coordinates_by_divergence_are_the_same_in_any_unit(layout: Any, dtype: Any, exponent: int) -> None:
    x, unit, errors = X.astype(dtype), dtype(2.0**exponent), []
    for scale, data in ((1.0, x), (float(unit), x * unit)):
        model = estimators.NMF(3, beta_loss="kullback-leibler", solver="mu", random_state=0)
        whole = model.fit_transform(layout(data)).astype(np.float64)
        rows = model.transform(layout(data[:9])).astype(np.float64)
        h = model.components_.astype(np.float64) / scale
        errors.append((np.linalg.norm(whole @ h - x), np.linalg.norm(rows @ h - x[:9])))
        divergence = float((x * np.log(x / (whole @ h)) - x + whole @ h).sum())
        assert model.reconstruction_err_ / np.sqrt(scale) == pytest.approx(np.sqrt(2 * divergence), rel=1e-3)
    np.testing.assert_allclose(errors[1], errors[0], rtol=0.03)


@pytest.mark.filterwarnings("ignore:overflow encountered")  # in variances
@pytest.mark.parametrize("estimator", [estimators.PCA, estimators.IncrementalPCA])
@pytest.mark.parametrize("exponent", [-70, 70])
def test_samples_of_float32_are_whitened_where_variances_leave_its_range(
    estimator: Any, exponent: int
) -> None:
    x = X.astype(np.float32)
    expected, found = (
        np.abs(estimator(3, whiten=True).fit(each).transform(each)) for each in (x, np.ldexp(x, exponent))
    )
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_equal_rows_are_no_small_numbers() -> None:
    assert not np.asarray(rf.knn(np.ones((30, 4)), 3).distances).any()
    assert not np.asarray(rf.knn(np.zeros((30, 4)), 3).distances).any()
    assert rf.kmeans(np.zeros((30, 4)), 2).centers.shape == (2, 4)
