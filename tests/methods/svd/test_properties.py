"""What must hold for any matrix, however it is cut: residuals, orthogonality, and what may change nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from reference import factors, to_zarr

import rankfold as rf

Array = npt.NDArray[Any]

pytestmark = pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")

SPECTRA = {
    "1/i": lambda i: 1 / i,
    "0.7^i": lambda i: 0.7**i,
    "i^-2": lambda i: i**-2.0,
    "pairs": lambda i: 1.0 / ((i + 1) // 2),
}

any_matrix = st.fixed_dictionaries(
    {
        "shape": st.tuples(st.integers(2, 140), st.integers(1, 140)),
        "spectrum": st.sampled_from(sorted(SPECTRA)),
        "dtype": st.sampled_from([np.float32, np.float64]),
        "exponent": st.integers(-15, 15),
        "mean": st.sampled_from([0.0, 3.0]),
        "seed": st.integers(0, 9),
    }
)
any_method = st.sampled_from(["gram", "krylov", "subspace", "tsqr", "lanczos"])


def orthonormal(rng: np.random.Generator, rows: int, columns: int) -> Array:
    return np.asarray(np.linalg.qr(rng.standard_normal((rows, columns)))[0])


def made(case: dict[str, Any]) -> Array:
    (m, n), rng = case["shape"], np.random.default_rng(case["seed"])
    k = min(m, n)
    values = SPECTRA[case["spectrum"]](np.arange(1.0, k + 1))
    x = (orthonormal(rng, m, k) * values) @ orthonormal(rng, n, k).T + case["mean"] * rng.random(n) / n
    return np.asarray((x * 10.0 ** case["exponent"]).astype(case["dtype"]))


def seen(x: Array, kind: str) -> Array:
    wide = x.astype(np.float64)
    return wide - wide.mean(axis=0) if kind == "pca" else wide


def found(x: Any, kind: str, method: str, rank: int) -> rf.Result:
    return (
        rf.svd(x, rank, solver=method, tol=1e-10, passes=30)
        if kind == "svd"
        else rf.pca(x, rank, solver=method, tol=1e-10, passes=30)
    )


def rank_of(x: Array, part: float) -> int:
    return max(1, round(part * min(x.shape)))


@examples(120, quick=24)
@given(case=any_matrix, kind=st.sampled_from(["svd", "pca"]), method=any_method, part=st.floats(0.05, 1))
def test_residuals_orthogonality_and_values(
    case: dict[str, Any], kind: str, method: str, part: float
) -> None:
    x = made(case)
    y, rank, eps = seen(x, kind), rank_of(x, part), float(np.finfo(x.dtype).eps)
    result = found(x, kind, method, rank)
    left, s, right = factors(result)
    exact = np.linalg.svd(y, compute_uv=False)
    size = max(exact[0], 1e-290)
    # A mean is taken off as exactly as the numbers are stored.
    noise = 200 * eps * (1 + np.abs(x).max() * x.shape[0] ** 0.5 / size)
    held = s > 10 * noise * size
    u = left[:, held] / s[held]
    smallest = s[held].min(initial=size)
    assert np.abs(u.T @ u - np.eye(held.sum())).max(initial=0) <= 10 * noise * size / smallest
    assert np.abs((right @ right.T - np.eye(rank))[held][:, held]).max(initial=0) <= noise * size / smallest
    across = np.linalg.norm(y @ right.T - left, axis=0) / size
    along = np.linalg.norm(y.T @ u - right[held].T * s[held], axis=0) / size
    loose = np.sqrt(2 * result.error_estimates.max()) if method in ("krylov", "subspace") else 0.0
    assert across.max() <= noise * (1 if rank == min(x.shape) else size / smallest) + loose
    assert (along <= noise * size / s[held] + loose + 2 * result.residuals[held]).all()
    wrong = np.abs(s - exact[:rank])
    assert wrong.max() <= noise * size + 1.5 * float((result.error_estimates * exact[:rank]).max())


@examples(30, quick=8)
@given(
    case=any_matrix,
    kind=st.sampled_from(["svd", "pca"]),
    method=any_method,
    chunks=st.tuples(st.integers(1, 60), st.integers(1, 60)),
)
def test_chunks_change_rounding_at_most(
    case: dict[str, Any], kind: str, method: str, chunks: tuple[int, int]
) -> None:
    x = made({**case, "dtype": np.float64})
    rank = rank_of(x, 0.3)
    with tempfile.TemporaryDirectory() as folder:
        cut = tuple(min(c, n) for c, n in zip(chunks, x.shape, strict=True))
        full = {"write_empty_chunks": True}
        store = to_zarr(Path(folder) / "x.zarr", x, cut, config=full)  # type: ignore[arg-type]
        there = found(store, kind, method, rank)
    here = found(x, kind, method, rank)
    s, other = factors(here)[1], factors(there)[1]
    assert np.abs(s - other).max() <= 1e-12 * max(s[0], np.abs(x).max())


@examples(30, quick=8)
@given(case=any_matrix, kind=st.sampled_from(["svd", "pca"]), method=any_method, size=st.integers(-15, 15))
def test_values_do_not_depend_on_order_basis_or_units(
    case: dict[str, Any], kind: str, method: str, size: int
) -> None:
    x = made({**case, "dtype": np.float64, "exponent": 0, "mean": 0.0})
    rng, rank = np.random.default_rng(case["seed"]), rank_of(x, 0.3)
    s = factors(found(x, kind, method, rank))[1]
    turned = x @ orthonormal(rng, x.shape[1], x.shape[1])
    others = [x[rng.permutation(len(x))], x[:, rng.permutation(x.shape[1])], turned, x * 10.0**size]
    others += [x.T] if kind == "svd" else []
    for other, pow2_scale in zip(others, [1, 1, 1, 10.0**size, 1], strict=False):
        result = found(np.ascontiguousarray(other), kind, method, rank)
        apart = np.abs(factors(result)[1] / pow2_scale - s)
        assert apart.max() <= 1e-9 * s[0] + 4 * float(result.error_estimates.max()) * s[0]
