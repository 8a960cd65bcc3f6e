"""QR, and the singular values that follow from R: exact for every shape, spectrum and cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr
from covers import cover
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from reference import same_bytes, to_zarr

import rankfold as rf

Array = npt.NDArray[Any]

EPS = float(np.finfo(np.float64).eps)


def turned(rng: np.random.Generator, rows: int, sigma: Array) -> Array:
    """Independent rows with the given column scales, in another basis."""
    turn = np.linalg.qr(rng.standard_normal((len(sigma), len(sigma))))[0]
    return (rng.standard_normal((rows, len(sigma))) * sigma) @ turn


def sorted_by_batch(rng: np.random.Generator) -> Array:
    """Every column lives in one run of rows, and no sample has them all."""
    x = np.zeros((20_000, 40))
    for j, start in enumerate(range(0, 20_000, 500)):
        x[start + 100 : start + 110, j] = rng.standard_normal(10)
    return x


def assert_qr(x: Array, found: rf.Result) -> None:
    """Backward error, orthogonality, triangle, signs: all to rounding."""
    wide, n = x.astype(np.float64), x.shape[1]
    q, r = np.asarray(found.Q[...], np.float64), np.asarray(found.R[...], np.float64)
    eps = float(np.finfo(found.Q.dtype).eps)
    size = np.linalg.norm(wide, 2) if x.any() else 1.0
    assert q.shape == x.shape and r.shape == (n, n)
    assert not np.tril(r, -1).any() and (np.diag(r) >= 0).all()
    assert np.linalg.norm(q @ r - wide, 2) <= 10 * n * eps * size
    assert np.abs(q.T @ q - np.eye(n)).max() <= 20 * n * eps
    assert found.attrs["orthogonality"] <= 20 * n * EPS


CASES = {
    "independent": (lambda rng: rng.standard_normal((20_000, 30)), 2),
    "sorted": (lambda rng: np.sort(rng.standard_normal((20_000, 30)), axis=0), 2),
    "condition 1e8": (lambda rng: turned(rng, 20_000, np.logspace(0, -8, 30)), 2),
    "condition 1e13": (lambda rng: turned(rng, 20_000, np.logspace(0, -13, 30)), 3),
    "scales from 1 to 1e-14": (lambda rng: rng.standard_normal((20_000, 29)) * np.logspace(0, -14, 29), 3),
    "one huge row": (lambda rng: np.vstack([rng.standard_normal((9999, 20)), np.full((1, 20), 1e8)]), 4),
    "by batch": (sorted_by_batch, 2),
    "square": (lambda rng: rng.standard_normal((40, 40)), 3),
    "one column": (lambda rng: rng.standard_normal((5000, 1)), 2),
    "one element": (lambda rng: np.array([[-3.0]]), 2),
    "float32": (lambda rng: rng.standard_normal((20_000, 30)).astype(np.float32), 2),
    "integers": (lambda rng: rng.integers(-9, 9, (3000, 12)), 2),
    "large numbers": (lambda rng: 1e120 * rng.standard_normal((3000, 12)), 2),
    "small numbers": (lambda rng: 1e-120 * rng.standard_normal((3000, 12)), 2),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_factors_are_right_to_rounding(case: str) -> None:
    make, passes = CASES[case]
    x = make(np.random.default_rng(0))
    found = rf.qr(x)
    assert_qr(x, found)
    assert found.attrs["passes"] <= passes
    reference = np.linalg.svd(x.astype(np.float64), compute_uv=False)
    s = np.linalg.svd(found.R.astype(np.float64), compute_uv=False)
    assert np.abs(s - reference).max() <= 1e-13 * reference[0] or x.dtype == np.float32


@pytest.mark.parametrize(
    ("make", "rows"),
    cover(
        [
            pytest.param(lambda x: np.hstack([x, x[:, :3]]), id="repeated columns"),
            pytest.param(lambda x: np.hstack([x, np.zeros((len(x), 2))]), id="columns of zeros"),
            pytest.param(lambda x: np.zeros_like(x), id="zeros"),
            pytest.param(lambda x: np.outer(x[:, 0], np.arange(7.0)), id="rank one"),
        ],
        [60, 20_000],
        strength=1,
    ),
)
def test_dependent_columns_have_an_orthonormal_basis(make: Any, rows: int) -> None:
    x = make(np.random.default_rng(1).standard_normal((rows, 12)))
    with pytest.warns(rf.RankfoldWarning, match=r"has rank \d+, to rounding: the other \d+ columns"):
        found = rf.qr(x)
    assert_qr(x, found)


@pytest.mark.parametrize(
    ("chunks", "compressors"),
    cover([(3, 20), (1000, 7), (997, 20), (20_000, 20)], [None, "auto"], strength=1),
)
def test_chunks_shorter_than_wide_ragged_and_narrow_change_nothing(
    tmp_path: Path, chunks: tuple[int, int], compressors: Any
) -> None:
    x = np.random.default_rng(2).standard_normal((4003, 20))
    store = zarr.create_array(
        tmp_path / "x.zarr", shape=x.shape, chunks=chunks, dtype=x.dtype, compressors=compressors
    )
    store[...] = x
    found = rf.qr(tmp_path / "x.zarr")
    assert_qr(x, found)
    np.testing.assert_allclose(found.R, rf.qr(x).R, rtol=0, atol=1e-12 * np.abs(found.R).max())


@examples(30)
@given(
    rows=st.integers(1, 300),
    columns=st.integers(1, 12),
    exponent=st.integers(-15, 15),
    rank=st.integers(0, 12),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 99),
)
@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
def test_any_small_matrix(rows: int, columns: int, exponent: int, rank: int, dtype: Any, seed: int) -> None:
    rng, columns = np.random.default_rng(seed), min(rows, columns)
    x = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, columns)) * 10.0**exponent
    assert_qr(x.astype(dtype), rf.qr(x.astype(dtype)))


def test_r_alone_takes_one_pass() -> None:
    x = np.random.default_rng(3).standard_normal((20_000, 30))
    found = rf.qr(x, with_rows=False)
    assert found.attrs["passes"] == 1 and "Q" not in set(found)
    np.testing.assert_allclose(found.R, rf.qr(x).R, rtol=0, atol=1e-13 * np.abs(found.R).max())
    assert rf.pca(x, 30, solver="tsqr", with_rows=False).attrs["passes"] == 1


@pytest.mark.parametrize("shape", [(9000, 25), (25, 9000)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_singular_values_without_saying_how_many(shape: tuple[int, int], dtype: Any) -> None:
    x = np.random.default_rng(4).standard_normal(shape).astype(dtype)
    found = rf.svd(x, solver="tsqr")
    u, s, vt = np.linalg.svd(x.astype(np.float64), full_matrices=False)
    assert found.s.shape == (25,)
    np.testing.assert_allclose(found.s, s, rtol=0, atol=1e-13 * s[0])
    eps = float(np.finfo(dtype).eps)
    assert np.abs(np.asarray(found.U[...] * found.s @ found.Vt) - x).max() <= 50 * eps * s[0]
    for mine, theirs in ((found.U[...], u), (found.Vt[...].T, vt.T)):
        assert np.abs(np.abs((mine * theirs).sum(axis=0)) - 1).max() <= 1e5 * eps


def test_a_matrix_and_its_transpose_agree() -> None:
    x = turned(np.random.default_rng(5), 3000, np.logspace(0, -12, 40))
    s, transposed = rf.svd(x, solver="tsqr").s, rf.svd(np.ascontiguousarray(x.T), solver="tsqr").s
    np.testing.assert_allclose(s, transposed, rtol=0, atol=1e-13 * s[0])


@pytest.mark.parametrize("scale", [False, True])
def test_components_of_data_far_from_zero(scale: bool) -> None:
    x = turned(np.random.default_rng(6), 20_000, np.logspace(0, -4, 20)) + 1e4
    found = rf.pca(x, 20, solver="tsqr", scale=scale, with_rows=False)
    centered = x - x.mean(axis=0)
    if scale:
        centered /= centered.std(axis=0, ddof=1)
    s = np.linalg.svd(centered, compute_uv=False)
    assert found.attrs["passes"] == 1
    assert np.abs(found.singular_values - s).max() <= 1e-12 * s[0]


def test_threads_and_memory_change_no_byte(tmp_path: Path) -> None:
    x = np.random.default_rng(7).standard_normal((200_000, 24))
    results = [
        rf.qr(x, threads=threads, memory=memory, out=tmp_path / f"{threads}-{memory}.zarr")
        for threads, memory in ((1, "1GiB"), (2, "1GiB"), (4, "80MiB"))
    ]
    assert len({same_bytes(result) for result in results}) == 1


def test_what_cannot_be_is_refused() -> None:
    x = np.random.default_rng(8).standard_normal((30, 60))
    dependent = turned(np.random.default_rng(9), 20_000, np.logspace(0, -13, 30))
    with pytest.raises(rf.RankfoldError, match=r"takes 3 passes, but passes is 2. Allow passes=3"):
        rf.qr(dependent, passes=2)
    x[3, 5] = np.nan
    with pytest.raises(rf.RankfoldError, match="1 NaN or Inf"):
        rf.qr(np.ascontiguousarray(x.T))
    with pytest.raises(rf.RankfoldError, match="1 NaN or Inf"):
        rf.qr(x)
    with pytest.raises(rf.RankfoldError, match="neither centers nor scales"):
        rf.plan("qr", dependent, center=True)


@pytest.mark.parametrize(
    ("chunks", "make"),
    cover(
        [(30, 500), (7, 333), (30, 1), (1, 5000)],
        [
            pytest.param(lambda x: x, id="independent"),
            pytest.param(lambda x: 1e150 * x, id="large"),
            pytest.param(lambda x: np.hstack([x[:, :5], x[:, :5], x[:, 10:]]), id="repeated columns"),
            pytest.param(lambda x: np.hstack([np.zeros_like(x[:, :9]), x[:, 9:]]), id="zeros first"),
            pytest.param(lambda x: x.astype(np.float32), id="float32"),
        ],
        strength=1,
    ),
)
def test_a_wide_matrix_takes_one_pass(tmp_path: Path, make: Any, chunks: tuple[int, int]) -> None:
    x = make(np.random.default_rng(15).standard_normal((30, 5000)))
    to_zarr(tmp_path / "x.zarr", x, chunks, config={"write_empty_chunks": True})
    found = rf.qr(tmp_path / "x.zarr", memory="64MiB")
    q, r = found.Q.astype(np.float64), found.R[...].astype(np.float64)
    eps = float(np.finfo(x.dtype).eps)
    assert found.attrs["passes"] == 1 and q.shape == (30, 30) and r.shape == x.shape
    assert not np.tril(r, -1).any() and (np.diag(r) >= 0).all()
    assert np.abs(q.T @ q - np.eye(30)).max() <= 100 * eps
    assert np.linalg.norm(q @ r - x) <= 100 * eps * np.linalg.norm(x.astype(np.float64))
    assert "Q" not in set(rf.qr(x, with_rows=False))


@pytest.mark.parametrize("offset", [1e4, 1e6])
@pytest.mark.parametrize("condition", [1e4, 1e8])
def test_vectors_of_data_far_from_zero_are_orthonormal(offset: float, condition: float) -> None:
    rng = np.random.default_rng(10)
    x = turned(rng, 20_000, np.logspace(0, -np.log10(condition), 10)) + offset
    found = rf.pca(x, 10, solver="tsqr", whiten=True)
    assert found.attrs["orthogonality"] <= max(1e-13, 30 * EPS * condition * offset / 1e6)


def test_columns_in_other_units_keep_their_components() -> None:
    x = np.random.default_rng(11).standard_normal((20_000, 10)) * np.logspace(0, -18, 10)
    s = np.linalg.svd((x - x.mean(axis=0)) / x.std(axis=0, ddof=1), compute_uv=False)
    for rows in (False, True):
        found = rf.pca(x, 10, solver="tsqr", scale=True, with_rows=rows)
        np.testing.assert_allclose(found.singular_values, s, rtol=1e-12)


def test_lower_rank_takes_one_more_pass_only() -> None:
    x = np.random.default_rng(12).standard_normal((20_000, 12))
    with pytest.warns(rf.RankfoldWarning, match="has rank 12"):
        assert rf.qr(np.hstack([x, x[:, :3]]), passes=3).attrs["passes"] == 3
    with pytest.warns(rf.RankfoldWarning, match="has rank 10"):
        found = rf.svd(np.hstack([x[:, :10], x[:, :10]]), solver="tsqr", seed=2**64 - 1)
    assert np.abs(found.U[...].T @ found.U[...] - np.eye(20)).max() < 1e-13


def test_r_of_float32_does_not_overflow() -> None:
    x = (1e37 * np.random.default_rng(13).standard_normal((20_000, 5))).astype(np.float32)
    assert np.isfinite(rf.qr(x, with_rows=False).R).all()


def test_a_refusal_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    x = np.vstack([np.random.default_rng(14).standard_normal((9999, 20)), np.full((1, 20), 1e8)])
    with pytest.raises(rf.RankfoldError, match=r"takes 2 passes, but passes is 1. Allow passes=2\.$"):
        rf.qr(x, with_rows=False, passes=1, out=tmp_path / "r.zarr")
    assert rf.qr(x, with_rows=False, passes=2, out=tmp_path / "r.zarr").attrs["passes"] == 2
