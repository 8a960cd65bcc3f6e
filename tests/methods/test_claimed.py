"""``converged`` is one rule: the largest estimate is not above the tolerance, whatever the method."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import rankfold as rf
from rankfold.methods.claims import has_converged, in_words
from rankfold.methods.svd.solvers.solver import SOLVERS


def samples(rows: int = 600, columns: int = 20) -> Any:
    return np.random.default_rng(0).standard_normal((rows, columns)) * 0.9 ** np.arange(columns)


def holds(result: rf.Result, tol: float, caught: list[warnings.WarningMessage]) -> None:
    error = result.attrs["largest_error_estimate"]
    assert result.attrs["converged"] == has_converged(error, tol)
    words = [str(each.message) for each in caught if ", above " in str(each.message)]
    assert [all(number in each for number in in_words(error, tol)) for each in words] == [True] * (
        error > tol
    )


@pytest.mark.parametrize("tol", [1e-1, 1e-4, 1e-12])
@pytest.mark.parametrize("solver", [name for name in SOLVERS.ours if name != "auto"])
def test_of_decompositions(solver: str, tol: float) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        holds(rf.svd(samples(), 4, solver=solver, tol=tol), tol, caught)


@pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-8, 1e-15])
@pytest.mark.parametrize("rows", [200, 600])
def test_of_components_of_pairs(rows: int, tol: float) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = rf.kernel_pca(samples(rows), 4, kernel="linear", tol=tol)
    holds(result, tol, caught)
    relative = result.error_estimates / result.eigenvalues
    assert result.attrs["largest_error_estimate"] == relative.max()


@pytest.mark.parametrize("passes", [20, 500])
def test_of_eigenmaps(passes: int) -> None:
    graph = rf.knn(samples(), 8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = rf.spectral(graph, 3, tol=1e-6, passes=passes)
    holds(result, 1e-6, caught)
    assert result.attrs["largest_error_estimate"] == (result.error_estimates / result.eigenvalues).max()


def test_a_cluster_that_the_rank_cuts_is_known() -> None:
    """Of equal values any are right: their errors are those of rounding."""
    rng = np.random.default_rng(1)
    values = np.r_[5.0, 4.0, np.full(20, 3.0), np.linspace(2.0, 0.1, 38)]
    left, right = (np.linalg.qr(rng.standard_normal((n, 60)))[0] for n in (500, 60))
    result = rf.svd((left * values) @ right.T, 10, solver="gram")
    assert result.attrs["converged"]
    assert np.abs(result.s - values[:10]).max() < 1e-13
    assert result.error_estimates.max() < 1e-13
