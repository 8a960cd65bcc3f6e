"""Complex matrices, swept in their real parts: singular values, vectors and R of LAPACK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import to_zarr

import rankfold as rf
from rankfold.methods.svd.solvers.solver import SOLVERS
from rankfold.pipeline.data.real_parts import (
    Expanded,
    RealParts,
    collapse,
    expand,
    numbers_of_parts,
    parts_of,
)
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.formats import open_source

pytestmark = pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")

Array = npt.NDArray[Any]
COMPLEX = [name for name in SOLVERS.ours if SOLVERS[name].takes_complex]


def gaussian(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def matrix(rows: int, columns: int, s: Array, seed: int = 0) -> Array:
    """Of some singular values, with complex vectors."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(gaussian(rng, n, len(s)))[0] for n in (rows, columns))
    return (left * s) @ right.conj().T


def orthonormal(q: Array) -> float:
    return float(np.abs(q.conj().T @ q - np.eye(q.shape[1])).max())


# Parts --------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(0, 1000))
def test_products_of_parts_are_those_of_numbers(rows: int, columns: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, q, y = gaussian(rng, rows, columns), gaussian(rng, columns, width), gaussian(rng, rows, width)
    parts = x.view(np.float64)
    np.testing.assert_allclose(parts @ expand(q), (x @ q).view(np.float64), atol=1e-13)
    product = collapse(parts.T @ y.view(np.float64), paired=True)
    np.testing.assert_allclose(product, x.conj().T @ y, atol=1e-13)
    np.testing.assert_allclose(expand(q.conj().T), expand(q).T)
    np.testing.assert_array_equal(numbers_of_parts(parts_of(x[0]), paired=True), x[0])


def test_real_matrices_are_left_as_they_are() -> None:
    x = np.arange(6.0).reshape(3, 2)
    for same in (expand(x), collapse(x, paired=False), numbers_of_parts(x, paired=False), parts_of(x)):
        assert same is x


@pytest.mark.parametrize("orientation", Orientation)
@pytest.mark.parametrize("dtype", ["c8", "c16", ">c16"])
def test_any_part_is_read(tmp_path: Path, orientation: Orientation, dtype: str) -> None:
    x = gaussian(np.random.default_rng(1), 13, 9).astype(dtype)
    source = RealParts(open_source(to_zarr(tmp_path / "x.zarr", x, (4, 5))), orientation)
    if orientation is Orientation.ROWS:
        whole = np.ascontiguousarray(x, x.dtype.newbyteorder("=")).view(source.dtype)
    else:
        whole = np.stack([x.real, x.imag], axis=1).reshape(-1, 9).astype(source.dtype)
    assert source.shape == whole.shape
    for rows, columns in (((0, 13), (0, 9)), ((3, 8), (2, 7)), ((1, 2), (3, 4))):
        out = np.empty((rows[1] - rows[0], columns[1] - columns[0]), source.dtype)
        source.read_into(out, rows, columns)
        np.testing.assert_array_equal(out, whole[slice(*rows), slice(*columns)])


def test_any_part_of_what_is_expanded_is_read(tmp_path: Path) -> None:
    x = gaussian(np.random.default_rng(1), 5, 7)
    source = Expanded(open_source(to_zarr(tmp_path / "x.zarr", x, (2, 3))))
    whole = expand(x)
    for rows, columns in (((0, 10), (0, 14)), ((3, 8), (5, 12)), ((1, 2), (13, 14))):
        out = np.empty((rows[1] - rows[0], columns[1] - columns[0]))
        source.read_into(out, rows, columns)
        np.testing.assert_array_equal(out, whole[slice(*rows), slice(*columns)])


# svd ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2500, 60), (60, 2500), (80, 80), (100, 90), (90, 100)], ids=str)
@pytest.mark.parametrize("solver", [*COMPLEX, "auto"])
def test_triplets_are_those_of_lapack(solver: str, shape: tuple[int, int], tmp_path: Path) -> None:
    x = matrix(*shape, 0.6 ** np.arange(40))
    path = to_zarr(tmp_path / "x.zarr", x, (32, 32))
    found = rf.svd(path, 6, solver=solver, tol=1e-9, passes=30)
    u, s, vt = (np.asarray(each) for each in (found.U, found.s, found.Vt))
    assert u.dtype == vt.dtype == np.complex128 and s.dtype == np.float64
    np.testing.assert_allclose(s, 0.6 ** np.arange(6), rtol=1e-9)
    assert orthonormal(u) < 1e-12 and orthonormal(vt.conj().T) < 1e-12
    assert np.linalg.norm(x @ vt.conj().T - u * s) < 1e-4
    turned = vt if shape[0] >= shape[1] else u.T
    positive = turned.real >= 0.98 * np.abs(turned).max(axis=1, keepdims=True)
    assert (positive & (np.abs(turned.imag) < 1e-12)).any(axis=1).all()


@pytest.mark.parametrize("solver", COMPLEX)
def test_values_alike_are_all_found(solver: str) -> None:
    """Each value of a complex matrix is two of its parts: none may pass for its twin."""
    s = np.repeat([3.0, 2.0, 1.0, 1e-3], [3, 2, 4, 20])
    found = rf.svd(matrix(600, 50, s, seed=3), 9, solver=solver, tol=1e-9, passes=30)
    np.testing.assert_allclose(np.asarray(found.s), s[:9], rtol=1e-10)
    assert orthonormal(np.asarray(found.U)) < 1e-12


@pytest.mark.parametrize("solver", COMPLEX)
def test_claims_hold(solver: str) -> None:
    for seed in range(12):
        s = (1.0 + np.arange(60)) ** -np.random.default_rng(seed).uniform(0.1, 2)
        found = rf.svd(matrix(900, 60, s, seed), 5, solver=solver, passes=3, seed=seed)
        errors = np.abs(np.asarray(found.s) / s[:5] - 1)
        assert (errors <= np.asarray(found.error_estimates) + 1e-13).all(), seed


@pytest.mark.parametrize("solver", COMPLEX)
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_a_matrix_of_lower_rank_has_zeros(solver: str, dtype: type) -> None:
    x = matrix(500, 40, np.array([3.0, 2.0, 1.0])).astype(dtype)
    found = rf.svd(x, 5, solver=solver, passes=20)
    u, s, vt = (np.asarray(each) for each in (found.U, found.s, found.Vt))
    np.testing.assert_allclose(s, [3, 2, 1, 0, 0], atol=1e-6 if dtype is np.complex64 else 1e-13)
    assert max(orthonormal(u), orthonormal(vt.conj().T)) < (2e-6 if dtype is np.complex64 else 1e-12)


@pytest.mark.parametrize("solver", ["krylov", "gram", "tsqr", "auto"])
def test_the_rank_follows_from_the_tolerance(solver: str) -> None:
    x = matrix(800, 60, 0.7 ** np.arange(60))
    found = rf.svd(x, tol=0.05, solver=solver)
    rank = len(np.asarray(found.s))
    assert rank == 9 == found.attrs["request"]["rank"] or rank == 9
    rest = np.linalg.norm(x - (np.asarray(found.U) * np.asarray(found.s)) @ np.asarray(found.Vt))
    assert rest <= 0.05 * np.linalg.norm(x)
    np.testing.assert_allclose(found.attrs["approximation_error"], rest / np.linalg.norm(x), rtol=1e-3)


def test_all_components_are_found() -> None:
    x = gaussian(np.random.default_rng(0), 70, 30)
    np.testing.assert_allclose(np.asarray(rf.svd(x).s), np.linalg.svd(x, compute_uv=False), rtol=1e-12)


# pca and qr ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(900, 50), (60, 120)], ids=str)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("solver", COMPLEX)
def test_components_are_of_columns_about_their_means(
    solver: str, scale: bool, shape: tuple[int, int]
) -> None:
    if solver == "tsqr" and shape[0] < shape[1]:
        pytest.skip("a wide complex matrix is swept along its rows")
    x = matrix(*shape, 0.6 ** np.arange(40)) + (0.3 + 0.2j) * np.arange(shape[1])
    centered = x - x.mean(axis=0)
    deviation = np.sqrt((np.abs(centered) ** 2).sum(axis=0) / (shape[0] - 1))
    centered = centered / deviation if scale else centered
    found = rf.pca(x, 4, solver=solver, scale=scale, tol=1e-9, passes=30)
    components, scores = np.asarray(found.components), np.asarray(found.scores)
    np.testing.assert_allclose(np.asarray(found.mean), x.mean(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        np.asarray(found.singular_values), np.linalg.svd(centered, compute_uv=False)[:4], rtol=1e-9
    )
    np.testing.assert_allclose(scores, centered @ components.conj().T, atol=1e-3 * np.abs(scores).max())
    if scale:
        np.testing.assert_allclose(np.asarray(found.scale), deviation, rtol=1e-12)
    variance = (np.abs(centered) ** 2).sum() / (shape[0] - 1)
    ratio = np.asarray(found.explained_variance) / np.asarray(found.explained_variance_ratio)
    np.testing.assert_allclose(ratio, variance, rtol=1e-10)


@pytest.mark.parametrize("shape", [(700, 40), (40, 40), (30, 200)], ids=str)
@pytest.mark.parametrize("columns", ["independent", "dependent"])
def test_q_times_r_is_the_matrix(shape: tuple[int, int], columns: str, tmp_path: Path) -> None:
    x = gaussian(np.random.default_rng(2), *shape)
    if columns == "dependent":
        x[:, 7] = x[:, 3] * (2 - 1j)
    found = rf.qr(to_zarr(tmp_path / "x.zarr", x, (50, 50)))
    q, r = np.asarray(found.Q), np.asarray(found.R)
    assert orthonormal(q) < 1e-12
    np.testing.assert_allclose(q @ r, x, atol=1e-12)
    assert np.abs(np.tril(r, -1)).max() == 0
    diagonal = np.diag(r)
    assert (diagonal.real >= 0).all() and (np.abs(diagonal.imag) <= 1e-13 * np.abs(diagonal).max()).all()


# What goes on with results ------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(900, 50), (60, 120), (25, 2501)], ids=str)
@pytest.mark.parametrize(
    ("call", "asked"), [(rf.svd, {}), (rf.pca, {}), (rf.pca, {"scale": True, "whiten": True})]
)
def test_rows_go_into_components_and_back(
    call: Any, asked: dict[str, Any], shape: tuple[int, int], tmp_path: Path
) -> None:
    x = matrix(*shape, 0.6 ** np.arange(20)) + (0.3 + 0.2j)
    found = call(x, 5, tol=1e-9, passes=30, **asked)
    left = "U" if call is rf.svd else "scores"
    again = np.asarray(getattr(rf.transform(found, x), left))
    assert again.dtype == np.complex128
    np.testing.assert_allclose(again, np.asarray(getattr(found, left)), atol=1e-5)
    facts = rf.check(found, x).attrs
    assert facts["left_orthogonality"] < 1e-10 and facts["right_orthogonality"] < 1e-10
    assert facts["largest_residual"] < 1e-4
    rf.reconstruct(found, out=tmp_path / "all.zarr")
    rf.reconstruct(found, rank=2, row_range=slice(3, 20), out=tmp_path / "part.zarr")
    rebuilt, part = (
        np.empty(rf.open(path).shape, complex) for path in (tmp_path / "all.zarr", tmp_path / "part.zarr")
    )
    for path, out in ((tmp_path / "all.zarr", rebuilt), (tmp_path / "part.zarr", part)):
        open_source(str(path)).read_into(out, (0, out.shape[0]), (0, out.shape[1]))
    factor, right = (
        np.asarray(getattr(found, left)),
        np.asarray(found.Vt if left == "U" else found.components),
    )
    s = np.asarray(found.s if left == "U" else found.singular_values)
    weights = s if left == "U" else s / np.sqrt(shape[0] - 1) if asked else np.ones(5)
    mean = 0 if left == "U" else np.asarray(found.mean)
    scale = np.asarray(found.scale) if asked else 1.0
    np.testing.assert_allclose(rebuilt, (factor * weights) @ right * scale + mean, atol=1e-12)
    expected = (factor[3:20, :2] * weights[:2]) @ right[:2] * scale + mean
    np.testing.assert_allclose(part, expected, atol=1e-12)


def test_real_rows_are_complex_ones_without_imaginary_parts() -> None:
    x = matrix(200, 20, 0.5 ** np.arange(10))
    found, rows = rf.svd(x, 3), np.random.default_rng(0).standard_normal((50, 20))
    projected = np.asarray(rf.transform(found, rows).U)
    np.testing.assert_allclose(projected, rows @ np.asarray(found.Vt).conj().T / np.asarray(found.s))


def test_sparse_complex_matrices_are_filled_in() -> None:
    x = scipy.sparse.random_array((400, 60), density=0.05, rng=np.random.default_rng(0), format="csr")
    x = x.astype(complex)
    x.data *= 1j ** np.arange(x.nnz)
    true = np.linalg.svd(x.toarray(), compute_uv=False)[:3]
    np.testing.assert_allclose(np.asarray(rf.svd(x, 3, tol=1e-8, passes=40).s), true, rtol=1e-8)


# Wrong uses ---------------------------------------------------------------------------------------


def test_what_takes_real_numbers_alone_says_so() -> None:
    x = matrix(200, 20, 0.5 ** np.arange(10))
    real = rf.pca(x.real.copy(), 3)
    calls = (
        lambda: rf.nmf(x, 3),
        lambda: rf.knn(x, 3),
        lambda: rf.svd(x, 3, solver="sketch"),
        lambda: rf.svd(x, 3, solver="lanczos"),
        lambda: rf.update(rf.pca(x, 3), x),
        lambda: rf.transform(real, x),
        lambda: rf.pca(rf.open(x, prepare=["log1p"]), 3),
    )
    for call in calls:
        with pytest.raises(rf.RankfoldError, match="complex"):
            call()


def test_weights_of_columns_are_real() -> None:
    x, weights = matrix(300, 20, 0.5 ** np.arange(10)), np.linspace(0, 2, 20)
    prepared = rf.open(x, prepare=[{"weights": {"values": weights}}])
    true = np.linalg.svd(x * weights, compute_uv=False)[:3]
    np.testing.assert_allclose(np.asarray(rf.svd(prepared, 3, tol=1e-9).s), true, rtol=1e-9)


def test_a_place_is_that_of_the_number() -> None:
    x = matrix(300, 20, 0.5 ** np.arange(10))
    x[7, 13] = complex(1, np.nan)
    with pytest.raises(rf.RankfoldError, match=r"1 NaN or Inf, the first at row 7, column 13"):
        rf.svd(x, 3)
