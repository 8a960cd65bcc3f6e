"""svd and pca against dense factorizations: values, both factors, estimates, every shape and grid."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from covers import cover
from reference import decaying, exact, factors, same_bytes, to_zarr

import rankfold as rf

pytestmark = pytest.mark.filterwarnings("ignore:the largest estimated error")

SHAPES = [(3000, 120), (120, 3000), (400, 400), (50, 49), (7, 2000), (2000, 1)]
METHODS = ["gram", "krylov", "subspace", "tsqr", "lanczos"]
EVERY = [*METHODS, "sketch"]
"""With the one whose errors do not shrink with more passes."""


@pytest.mark.parametrize(
    ("method", "kind", "dtype", "shape"), cover(METHODS, ["svd", "pca"], [np.float64, np.float32], SHAPES)
)
def test_triplets_are_those_of_the_dense_svd(
    shape: tuple[int, int], dtype: Any, kind: str, method: str
) -> None:
    x = decaying(*shape, dtype)
    rank = min(6, min(shape) - (kind == "pca" and shape[0] <= shape[1]))
    result = getattr(rf, kind)(x, rank=rank, solver=method, tol=1e-5, passes=12)
    s = exact(x, kind)[1]
    us, found, right = factors(result)
    eps = float(np.finfo(dtype).eps)
    # Rounding is backward stable: a few eps of the largest; convergence is what tol asks for.
    assert np.all(np.abs(found - s[:rank]) <= 1e-5 * s[:rank] + 20 * eps * s[0])
    assert np.all(found <= s[:rank] * (1 + 1e-12) + 20 * eps * s[0])
    assert np.all(np.abs(found - s[:rank]) <= result.error_estimates * s[:rank] + 20 * eps * s[0])
    # The long factor is a product with the matrix, of error eps s_1, divided by its own singular value.
    left, loss = us / found, 40 * eps * s[0] / s[rank - 1]
    np.testing.assert_allclose(right @ right.T, np.eye(rank), atol=loss)
    np.testing.assert_allclose(left.T @ left, np.eye(rank), atol=loss)
    # With A'u = s v and orthonormal v, the squares of |A v - s u| add up to at most what the squares of the
    # true values have over those found, each of which lacks tol at most.
    centered = exact_matrix(x, kind)
    assert (
        np.linalg.norm(centered @ right.T - us) <= np.sqrt(2e-5) * np.linalg.norm(s[:rank]) + 100 * eps * s[0]
    )


def exact_matrix(x: np.ndarray, kind: str) -> np.ndarray:
    x = x.astype(np.float64)
    return x - x.mean(axis=0) if kind == "pca" else x


@pytest.mark.parametrize("method", METHODS)
def test_float32_data_far_from_zero_lose_nothing(method: str) -> None:
    rng = np.random.default_rng(0)
    x = (1e4 + rng.standard_normal((20_000, 60)) * np.linspace(3, 0.3, 60)).astype(np.float32)
    s = exact(x, "pca")[1]
    result = rf.pca(x, rank=20, solver=method, tol=1e-7, passes=20)
    assert np.max(np.abs(result.singular_values - s[:20])) <= 1e-6 * s[0]
    np.testing.assert_allclose(result.mean, x.astype(np.float64).mean(axis=0), rtol=1e-12)


def test_a_first_panel_far_from_the_rest_does_not_spoil_the_mean() -> None:
    """Sorted data: the provisional shift is off by thousands of standard deviations."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((16_000, 40)).astype(np.float32) * np.linspace(2, 0.5, 40, dtype=np.float32)
    x[512:] += np.float32(1e4)
    x[:512] += np.float32(9e3) * rng.standard_normal((512, 1)).astype(np.float32)
    s = exact(x, "pca")[1]
    for method in METHODS:
        result = rf.pca(x, rank=10, solver=method, tol=1e-6, passes=20)
        assert np.max(np.abs(result.singular_values - s[:10])) <= 2e-6 * s[0]


CHUNKS = [(2500, 90), (100, 90), (2500, 7), (333, 31), (1, 90)]


@pytest.fixture(scope="module")
def chunkings(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One matrix of a type, cut in all these ways."""

    @functools.cache
    def made(dtype: Any) -> tuple[Any, list[str]]:
        x, folder = decaying(2500, 90, dtype), tmp_path_factory.mktemp("chunkings")
        return x, [to_zarr(folder / f"{i}.zarr", x, chunks) for i, chunks in enumerate(CHUNKS)]

    return made


@pytest.mark.parametrize(
    ("kind", "method", "dtype"), cover(["svd", "pca"], METHODS, [np.float64, np.float32], strength=1)
)
def test_another_chunking_agrees(chunkings: Any, kind: str, method: str, dtype: Any) -> None:
    x, stores = chunkings(dtype)
    results = [getattr(rf, kind)(store, rank=8, solver=method, tol=1e-13, passes=20) for store in stores]
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    _, first, right = factors(results[0])
    gap = np.min(-np.diff(exact(x, kind)[1][:10])[7:8]) / first[0]
    for result in results[1:]:
        _, s, vt = factors(result)
        assert np.max(np.abs(s - first)) <= tolerance * first[0]
        assert np.linalg.norm(vt.T @ vt - right.T @ right, 2) <= tolerance / gap


@pytest.mark.parametrize("options", [{}, {"compressors": "auto"}, {"shards": (1000, 90)}, {"zarr_format": 2}])
def test_every_encoding_gives_the_same_bytes(tmp_path: Path, options: dict[str, Any]) -> None:
    x = decaying(3000, 90, np.float32)
    raw = rf.svd(to_zarr(tmp_path / "raw.zarr", x, (250, 90)), rank=5)
    other = rf.svd(to_zarr(tmp_path / "other.zarr", x, (250, 90), **options), rank=5)
    np.testing.assert_array_equal(raw.s, other.s)
    np.testing.assert_array_equal(raw.U[...], other.U[...])


@pytest.mark.parametrize(
    ("method", "shape", "threads", "memory"),
    cover(
        EVERY,
        [(60_000, 200), (200, 60_000)],
        [
            pytest.param(2, "2GiB"),
            pytest.param(4, "2GiB"),
            pytest.param(4, "160MiB"),
            pytest.param(1, "112MiB"),
        ],
        strength=1,
    ),
)
def test_threads_and_memory_change_no_byte(
    tmp_path: Path, shape: tuple[int, int], method: str, threads: int, memory: str
) -> None:
    x = decaying(*shape, np.float32)
    memory = "512MiB" if method == "lanczos" and memory != "2GiB" else memory  # which keeps all of it
    store = to_zarr(tmp_path / "x.zarr", x, (2000, 200) if shape[0] > shape[1] else (200, 2000))
    alone = rf.pca(store, rank=10, solver=method, threads=1, memory="2GiB")
    assert same_bytes(rf.pca(store, rank=10, solver=method, threads=threads, memory=memory)) == same_bytes(
        alone
    )


def test_arrays_files_and_dask_give_the_same_values(tmp_path: Path) -> None:
    x = decaying(900, 70)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "f.npy", np.asfortranarray(x))
    s = rf.svd(x, rank=5).s
    for other in (tmp_path / "x.npy", tmp_path / "f.npy", da.from_array(x, chunks=(100, 33))):
        np.testing.assert_allclose(rf.svd(other, rank=5).s, s, rtol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    cover([np.uint8, np.int16, np.int32, np.bool_, np.float16], [(600, 40), (40, 600)], strength=1),
)
def test_narrow_types_are_converted_per_panel(dtype: Any, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(2).random(shape) * 3
    x = x > 1 if dtype is np.bool_ else x.astype(dtype)
    for kind in ("svd", "pca"):
        for method in METHODS:
            # The spectrum of noise is flat: subspace iteration gains a quarter a pass.
            result = getattr(rf, kind)(x, rank=4, solver=method, tol=1e-6, passes=60)
            s = exact(x, kind)[1][:4]
            np.testing.assert_allclose(factors(result)[1], s, rtol=1e-5)


@pytest.mark.parametrize(("method", "shape"), cover(METHODS, [(800, 30), (30, 800)]))
def test_scaling_and_whitening(shape: tuple[int, int], method: str) -> None:
    x = decaying(*shape) * np.linspace(0.1, 9, shape[1])
    s = exact(x, "pca", scale=True)[1]
    result = rf.pca(x, rank=5, scale=True, whiten=True, solver=method, tol=1e-8, passes=20)
    np.testing.assert_allclose(result.singular_values, s[:5], rtol=1e-7)
    np.testing.assert_allclose(result.scale, x.std(axis=0, ddof=1), rtol=1e-10)
    scores = np.asarray(result.scores[...])
    np.testing.assert_allclose(scores.T @ scores / (len(x) - 1), np.eye(5), atol=1e-10)
    total = (s**2).sum()
    np.testing.assert_allclose(result.explained_variance_ratio, s[:5] ** 2 / total, rtol=1e-6)


@pytest.mark.parametrize(("method", "shape"), cover(METHODS, [(800, 30), (30, 800)]))
def test_scaling_without_centering_divides_by_the_root_mean_square(
    shape: tuple[int, int], method: str
) -> None:
    x = decaying(*shape) * np.linspace(0.1, 9, shape[1])
    scale = np.sqrt((x**2).sum(axis=0) / (len(x) - 1))
    result = rf.pca(x, rank=5, center=False, scale=True, solver=method, tol=1e-8, passes=40)
    s = np.linalg.svd(x / scale, compute_uv=False)[:5]
    np.testing.assert_allclose(result.singular_values, s, rtol=1e-7)
    np.testing.assert_allclose(result.scale, scale, rtol=1e-10)


@pytest.mark.parametrize(("shape", "method"), cover([(500, 20), (20, 500)], EVERY))
def test_constant_columns_are_left_unscaled_and_named(shape: tuple[int, int], method: str) -> None:
    x = decaying(*shape)
    x[:, 3] = 7.7
    x[:, 11] = 0.0
    with pytest.warns(rf.RankfoldWarning, match=r"2 columns are constant \(first: 3\)"):
        result = rf.pca(x, rank=4, scale=True, solver=method)
    assert np.all(np.abs(result.components[:, [3, 11]]) < 1e-12)


@pytest.mark.parametrize("sign", [1, -1])
def test_columns_that_only_rounding_moves_are_constant(sign: int) -> None:
    """Of either sign: what a deviation is held against is the size of the mean."""
    x = decaying(500, 20)
    x[:, 3] = sign * 7.7 * (1 + np.finfo(float).eps * (np.arange(500) % 2))
    with pytest.warns(rf.RankfoldWarning, match=r"1 columns are constant \(first: 3\)"):
        result = rf.pca(x, rank=4, scale=True, solver="gram")
    assert np.all(np.abs(result.components[:, 3]) < 1e-12)


@pytest.mark.parametrize(("method", "shape", "true_rank"), cover(EVERY, [(300, 40), (40, 300)], [0, 1, 3]))
def test_missing_rank_is_completed_orthonormally(shape: tuple[int, int], method: str, true_rank: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((shape[0], true_rank)) @ rng.standard_normal((true_rank, shape[1]))
    result = rf.svd(x, rank=6, solver=method)
    s = np.linalg.svd(x, compute_uv=False)[:6]
    np.testing.assert_allclose(result.s, s, atol=1e-12 * max(s[0], 1))
    np.testing.assert_allclose(result.U[...].T @ result.U[...], np.eye(6), atol=1e-10)
    np.testing.assert_allclose(result.Vt @ result.Vt.T, np.eye(6), atol=1e-10)
    np.testing.assert_allclose((result.U[...] * result.s) @ result.Vt, x, atol=1e-11 * max(s[0], 1))


@pytest.mark.parametrize(("method", "shape"), cover(EVERY, [(90, 30), (30, 90), (30, 30)]))
def test_full_rank_is_exact(shape: tuple[int, int], method: str) -> None:
    x = decaying(*shape)
    result = rf.svd(x, rank=30, solver=method)
    np.testing.assert_allclose(result.s, exact(x, "svd")[1], rtol=1e-9)
    np.testing.assert_allclose((result.U[...] * result.s) @ result.Vt, x, atol=1e-10)


@pytest.mark.parametrize("scale", [1e-15, 1e15, 1e-30, 1e18])
def test_float32_of_any_size_gives_the_same_bits_up_to_its_size(scale: float) -> None:
    """A power of two in, the same power of two out: nothing under- or overflows on the way."""
    factor = np.float32(2.0 ** round(np.log2(scale)))
    x = decaying(600, 50, np.float32)
    for method in EVERY:
        plain, scaled = rf.svd(x, rank=5, solver=method), rf.svd(x * factor, rank=5, solver=method)
        np.testing.assert_array_equal(plain.s * np.float64(factor), scaled.s)
        np.testing.assert_array_equal(plain.U[...], scaled.U[...])


def test_fewer_passes_than_needed_say_so() -> None:
    x = decaying(2000, 300, power=0.3)
    with pytest.warns(rf.RankfoldWarning, match=r"above tol.*after 2 passes.*passes="):
        result = rf.svd(x, rank=10, solver="krylov", tol=1e-9, passes=2)
    assert result.attrs["passes"] == 2
    assert not result.attrs["converged"]


def test_passes_end_when_the_answer_is_good_enough() -> None:
    x = decaying(4000, 400)
    with warnings.catch_warnings():
        warnings.simplefilter("error", rf.RankfoldWarning)
        loose, tight = (rf.svd(x, rank=10, solver="krylov", tol=tol) for tol in (1e-2, 1e-8))
    assert loose.attrs["passes"] < tight.attrs["passes"] <= 6


def test_without_rows_nothing_long_is_written() -> None:
    x = decaying(3000, 80)
    for method in METHODS:
        result = rf.svd(x, rank=5, solver=method, with_rows=False)
        assert list(result) == ["Vt", "error_estimates", "residuals", "s"]
        np.testing.assert_allclose(result.s, exact(x, "svd")[1][:5], rtol=1e-4)
    assert rf.svd(x, rank=5, solver="gram", with_rows=False).attrs["passes"] == 1


@pytest.mark.process
@pytest.mark.parametrize("method", EVERY)
def test_a_dask_client_gives_the_same_bytes_as_threads(tmp_path: Path, method: str) -> None:
    from distributed import Client, LocalCluster

    store = to_zarr(tmp_path / "x.zarr", decaying(40_000, 100, np.float32), (1000, 100))
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        there = rf.pca(store, rank=6, solver=method, client=client, out=tmp_path / "r.zarr")
    assert same_bytes(there) == same_bytes(rf.pca(store, rank=6, solver=method, threads=2))


@pytest.mark.parametrize("scale", [1e200, 1e-200])
@pytest.mark.parametrize("kind", ["svd", "pca"])
def test_squares_beyond_the_range_of_float64_are_refused(scale: float, kind: str) -> None:
    x = scale * np.random.default_rng(0).standard_normal((300, 20))
    with pytest.raises(rf.RankfoldError, match=r"leaves the range of float64\. Rescale it"):
        getattr(rf, kind)(x, rank=3)
