"""Where other libraries have gone wrong, one test each: what they reported, and what must come out here."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from covers import cover
from reference import factors

import rankfold as rf

METHODS = ["gram", "krylov", "subspace", "tsqr"]


def matrix(rows: int, columns: int, values: Any, dtype: Any = np.float64) -> Any:
    rng, k = np.random.default_rng(0), len(values)
    left, right = (np.linalg.qr(rng.standard_normal((size, k)))[0] for size in (rows, columns))
    return ((left * values) @ right.T).astype(dtype)


@pytest.mark.parametrize(("method", "ratio"), cover(METHODS, [1e2, 1e3, 1e4], strength=1))
def test_variances_are_not_differences_of_large_numbers(method: str, ratio: float) -> None:
    """Covariance as E[xx'] - E[x]E[x]' in float32: 10 % wrong at a mean of 100 deviations, then all of it."""
    x = (ratio + np.random.default_rng(1).standard_normal((20_000, 20)) * np.logspace(0, -1, 20)).astype("f4")
    exact = np.linalg.eigvalsh(np.cov(x.T.astype(np.float64)))[::-1][:5]
    found = rf.pca(x, 5, solver=method, tol=1e-6, passes=30).explained_variance
    np.testing.assert_allclose(found, exact, rtol=1e-5)


@pytest.mark.parametrize("decay", [0.6, 0.3])
@pytest.mark.parametrize("method", ["krylov", "subspace"])
def test_more_passes_do_not_lose_small_values(method: str, decay: float) -> None:
    """Power iterations that are not orthonormalized: 40 to 93 % of values lost, the more the longer."""
    values = decay ** np.arange(40)
    x, errors = matrix(2000, 200, values, np.float32), []
    for passes in (2, 4, 6, 8):
        found = rf.svd(x, 10, solver=method, passes=passes, tol=1e-12)
        wrong = np.abs(found.s - values[:10])
        assert (wrong <= found.error_estimates * values[:10] + 1e-6).all()
        errors.append(wrong.max())
    assert errors[-1] <= 1e-7 and sorted(errors, reverse=True)[0] == errors[0]


@pytest.mark.parametrize(("method", "size"), cover(METHODS, [1e-15, 1e12, 1e15], strength=1))
def test_large_and_small_units_are_as_good_as_others(method: str, size: float) -> None:
    """float32 times 1e12: products overflow, and the run ends with an error of LAPACK."""
    x = matrix(400, 100, 1 / np.arange(1, 51.0), np.float32)
    s = rf.svd(x * np.float32(size), 5, solver=method, tol=1e-6, passes=20).s
    np.testing.assert_allclose(s / size, 1 / np.arange(1, 6.0), rtol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_means_the_same_for_every_chunking(method: str) -> None:
    """A random start drawn by chunk: other values of the same seed for other chunks."""
    x = matrix(400, 300, 1 / np.arange(1, 101.0))
    found = []
    for chunks in ((100, 300), (100, 100), (100, 50), (400, 300), (37, 41)):
        found.append(rf.svd(da.from_array(x, chunks=chunks), 5, solver=method, seed=3, passes=3, tol=0.5).s)
    for s in found[1:]:
        np.testing.assert_allclose(s, found[0], rtol=1e-12)


def test_complex_matrices_are_right() -> None:
    """Transposes that are not conjugated: values 79 % off, without a word."""
    rng = np.random.default_rng(0)
    x = matrix(300, 80, 0.8 ** np.arange(40)) * np.exp(2j * np.pi * rng.random((300, 1)))
    true = np.linalg.svd(x, compute_uv=False)
    for source in (x, da.from_array(x, chunks=(60, 80))):
        np.testing.assert_allclose(np.asarray(rf.svd(source, 5).s), true[:5], rtol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_missing_numbers_are_counted_and_placed(method: str) -> None:
    """NaN: an error of LAPACK, or NaN in every value."""
    x = np.ones((400, 100))
    x[7, 5] = x[300, 2] = np.nan
    with pytest.raises(rf.RankfoldError, match=r"2 NaN or Inf, the first at row 7, column 5"):
        rf.svd(da.from_array(x, chunks=(100, 100)), 3, solver=method)


@pytest.mark.parametrize("rows", [50, 100, 7])
def test_panels_shorter_than_wide_are_factorized(rows: int) -> None:
    """R factors taken to be square: chunks of fewer rows than columns end in an error."""
    x = np.random.default_rng(2).standard_normal((210, 40))
    found = rf.qr(da.from_array(x, chunks=(rows, 40)))
    np.testing.assert_allclose(found.Q[...] @ found.R, x, atol=1e-13)


@pytest.mark.parametrize("method", METHODS)
def test_variances_are_over_one_less_than_the_samples(method: str) -> None:
    """Divided by m where the rest of the field divides by m - 1."""
    x = np.random.default_rng(3).standard_normal((30, 12))
    found = rf.pca(x, 12, solver=method)
    np.testing.assert_allclose(found.explained_variance.sum(), x.var(axis=0, ddof=1).sum(), rtol=1e-12)


@pytest.mark.parametrize(("method", "shape"), cover(METHODS, [(600, 40), (40, 600)], strength=1))
def test_signs_do_not_hang_on_rounding(method: str, shape: tuple[int, int]) -> None:
    """Signs by the sum of a column that is centered, whose sum is rounding: they change from run to run."""
    x = np.random.default_rng(4).standard_normal(shape) * np.linspace(3, 1, shape[1])
    signs = []
    for chunks in ((shape[0], shape[1]), (37, 40), (100, 7)):
        found = rf.pca(da.from_array(x, chunks=chunks), 4, solver=method, tol=1e-10, passes=30)
        right = factors(found)[2]
        signs.append(np.sign(right[np.arange(4), np.abs(right).argmax(axis=1)]))
    assert (signs[0] == signs[1]).all() and (signs[0] == signs[2]).all()


@pytest.mark.parametrize(("whiten", "method"), cover([False, True], METHODS, strength=1))
def test_scores_are_what_transform_gives(method: str, whiten: bool) -> None:
    """Fitting and transforming at once: other numbers than one after the other."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((600, 50)) @ rng.standard_normal((50, 50))
    found = rf.pca(x, 5, solver=method, whiten=whiten, tol=1e-10, passes=30)
    again = rf.transform(found, x).scores
    np.testing.assert_allclose(found.scores, again, atol=1e-5 * np.abs(again).max())


@pytest.mark.parametrize(("method", "chunks"), cover(METHODS, [(50, 100), (10, 600), (50, 600)], strength=1))
def test_wide_and_gridded_arrays_are_taken_as_they_are(method: str, chunks: tuple[int, int]) -> None:
    """One chunk of all columns, or all rows, demanded; wide shapes that crash."""
    x = np.random.default_rng(7).standard_normal((50, 600))
    found = rf.svd(da.from_array(x, chunks=chunks), 5, solver=method, tol=1e-8, passes=30)
    assert found.U.shape == (50, 5) and found.Vt.shape == (5, 600)
    np.testing.assert_allclose(found.s, np.linalg.svd(x, compute_uv=False)[:5], rtol=1e-6)


@pytest.mark.parametrize("kind", ["svd", "pca"])
@pytest.mark.parametrize("wrap", [scipy.sparse.csr_matrix, scipy.sparse.csr_array], ids=["matrix", "array"])
def test_dask_arrays_of_sparse_chunks(kind: str, wrap: Any) -> None:
    """Sparse chunks: an error from inside, or only of one of the two classes."""
    x = scipy.sparse.random_array((600, 50), density=0.1, rng=8).toarray()
    sparse = da.from_array(x, chunks=(100, 50)).map_blocks(wrap)
    s = np.linalg.svd(x - x.mean(axis=0) * (kind == "pca"), compute_uv=False)[:5]
    np.testing.assert_allclose(factors(getattr(rf, kind)(sparse, 5, solver="gram"))[1], s, rtol=1e-10)
