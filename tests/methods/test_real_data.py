"""The same promises on real matrices: counts, images, descriptors, sea-surface temperature.

They are not part of the project: see ``real_data.py``.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from covers import spread
from real_data import real
from reference import exact, factors

import rankfold as rf

METHODS = ["gram", "krylov"]


def agrees(x: np.ndarray, result: rf.Result, kind: str, rank: int, tol: float) -> None:
    s = exact(x, kind)[1][:rank]
    _, found, right = factors(result)
    eps = float(np.finfo(result.components.dtype if kind == "pca" else result.Vt.dtype).eps)
    assert np.all(np.abs(found - s) <= tol * s + 20 * eps * s[0])
    assert np.all(np.abs(found - s) <= 1.1 * result.error_estimates * s + 20 * eps * s[0])
    np.testing.assert_allclose(right @ right.T, np.eye(rank), atol=1e-4)


@pytest.mark.parametrize("method", spread(2, METHODS))
def test_images_as_bytes(method: str) -> None:
    x = np.load(real("fashion_mnist.npz"))["X"][:20_000]
    agrees(x, rf.pca(x, 20, solver=method, tol=1e-5, passes=12), "pca", 20, 1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["svd", "pca"])
def test_descriptors(method: str, kind: str) -> None:
    x = np.load(real("sift5k.npz"))["X"]
    agrees(x, getattr(rf, kind)(x, 10, solver=method, tol=1e-5, passes=12), kind, 10, 1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_cells_by_genes_from_a_native_store_with_empty_columns(method: str) -> None:
    store = real("pbmc10k_subset.zarr")
    array = rf.open(f"{store}::X", missing_chunks="fill")
    x = np.empty(array.shape, array.dtype)
    array.read_into(x, (0, x.shape[0]), (0, x.shape[1]))
    agrees(x, rf.pca(array, 30, solver=method, tol=1e-5, passes=12), "pca", 30, 1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("transposed", [False, True])
def test_months_by_cells_short_and_very_wide(method: str, transposed: bool) -> None:
    with np.load(real("sst_ersst.npz")) as stored:
        x = stored[next(name for name in stored.files if stored[name].ndim == 2)]
    x = np.ascontiguousarray(x.T) if transposed else x
    agrees(x, rf.pca(x, 12, solver=method, tol=1e-5, passes=12), "pca", 12, 1e-5)


def test_sparse_words_made_dense() -> None:
    x = scipy.sparse.load_npz(real("cora_words.npz")).toarray()
    agrees(x, rf.svd(x, 20, tol=1e-4, passes=12), "svd", 20, 1e-4)


def test_sea_surface_temperature_and_its_transpose() -> None:
    x = np.load(real("sst_ersst.npz"))["X"]
    across = np.ascontiguousarray(x.T)
    s = np.linalg.svd(x.astype(np.float64), compute_uv=False)
    wide, tall = (rf.svd(m, solver="tsqr", passes=4).s for m in (x, across))
    assert len(wide) == 128 and np.abs(wide - tall).max() <= 1e-12 * s[0]
    assert np.abs(wide - s).max() <= 1e-13 * s[0]
    eps = float(np.finfo(np.float64).eps)
    rank = int((s > 1e-7 * s[0]).sum())
    one, two = (
        rf.svd(x, rank, solver="gram", tol=0.5).s,
        rf.svd(across, rank, solver="gram", with_rows=False, tol=0.5).s,
    )
    squares = eps * (s[0] / s[:rank]) ** 2
    assert (np.abs(two - s[:rank]) <= 128 * squares * s[:rank]).all()
    stored = 4 * float(np.finfo(np.float32).eps)  # the second pass of a wide matrix is in its own type
    assert (np.abs(one - two) <= (128 * squares + stored * s[0] / s[:rank]) * s[:rank]).all()


@pytest.mark.parametrize("kind", ["svd", "pca"])
def test_one_look_at_sea_surface_temperature_is_within_what_it_says(kind: str) -> None:
    x = np.load(real("sst_ersst.npz"))["X"]
    for seed in range(3):
        for m in (x, np.ascontiguousarray(x.T)):
            found = getattr(rf, kind)(m, 10, solver="sketch", seed=seed)
            s = exact(m, kind)[1][:10]
            assert (np.abs(factors(found)[1] - s) <= found.error_estimates * s).all()


@pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore::rankfold.RankfoldWarning"
)
@pytest.mark.parametrize("name", spread(1, ["images", "counts"]))
def test_parts_are_as_good_as_those_of_scikit_learn(name: str) -> None:
    from sklearn.decomposition import NMF

    if name == "images":
        x, rank = np.load(real("fashion_mnist.npz"))["X"][:3000].astype(np.float32), 8
    else:
        x, rank = scipy.sparse.load_npz(real("pbmc3k_counts.npz")).tocsr()[:, :4000].astype(np.float32), 6
    ours = min(rf.nmf(x, rank, seed=seed, tol=1e-4, passes=20).attrs["relative_error"] for seed in range(5))
    wide = x.astype(np.float64)
    norm = scipy.sparse.linalg.norm(wide) if scipy.sparse.issparse(wide) else np.linalg.norm(wide)
    theirs = min(
        NMF(rank, init="random", random_state=seed, max_iter=150, tol=1e-5).fit(wide).reconstruction_err_
        for seed in range(5)
    )
    assert (ours * norm / theirs) ** 2 <= 1.002


@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
def test_missing_pixels_are_what_parts_of_the_others_say() -> None:
    x = np.load(real("fashion_mnist.npz"))["X"][:3000].astype(np.float32)
    gaps = np.random.default_rng(0).random(x.shape) < 0.3

    def error(found: rf.Result) -> float:
        left = (x - np.asarray(found.W[...]) @ found.H)[gaps]
        return float(np.linalg.norm(left) / np.linalg.norm(x[gaps]))

    whole, part = rf.nmf(x, 8), rf.nmf(np.where(gaps, np.float32(np.nan), x), 8, missing="ignore")
    filled = rf.nmf(np.where(gaps, 0, x), 8)
    assert error(part) <= 1.05 * error(whole) and error(filled) >= 1.2 * error(whole)


def nearest_integers(x: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Neighbors of some rows of bytes, exactly: squared distances are integers that float64 holds."""
    wide = x.astype(np.float64)
    squares = (wide**2).sum(axis=1)
    apart = squares[rows][:, None] + squares - 2 * wide[rows] @ wide.T
    apart[np.arange(len(rows)), rows] = np.inf
    order = np.argsort(apart, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(apart, order, axis=1)


@pytest.mark.slow
def test_neighbors_of_new_images_are_the_given_ones() -> None:
    stored = np.load(real("fashion_mnist.npz"))
    x = stored["X"]
    found = rf.knn(x[:60_000], 20, queries=x[60_000:])
    assert np.array_equal(found.indices, stored["knn_index"])
    assert np.array_equal(np.asarray(found.distances), np.sqrt(stored["knn_d2"].astype(np.float64)))


@pytest.mark.slow
def test_neighbors_among_all_images_are_those_of_float64() -> None:
    x = np.load(real("fashion_mnist.npz"))["X"]
    found, rows = rf.knn(x, 15), np.linspace(0, len(x) - 1, 2000).astype(int)
    order, squares = nearest_integers(x, rows, 15)
    assert np.array_equal(np.asarray(found.indices)[rows], order)
    assert np.array_equal(np.asarray(found.distances)[rows], np.sqrt(squares))


def test_neighbors_of_descriptors_are_the_given_ones() -> None:
    stored = np.load(real("sift5k.npz"))
    found = rf.knn(stored["X"], 20)
    assert np.array_equal(found.indices, stored["knn_index"])
    assert np.array_equal(np.asarray(found.distances), np.sqrt(stored["knn_d2"].astype(np.float64)))


def test_neighbors_of_places_of_which_many_are_the_same() -> None:
    from scipy.spatial import cKDTree

    x = np.load(real("geo_points.npz"))["us_zip_latlon"]
    found = rf.knn(x, 5)
    distances, _ = cKDTree(x).query(x, 6)
    np.testing.assert_allclose(np.asarray(found.distances), distances[:, 1:], rtol=1e-12, atol=1e-12)
    assert (np.asarray(found.distances)[:, 0] == 0).sum() > 8000
    assert not (np.asarray(found.indices) == np.arange(len(x))[:, None]).any()


@pytest.mark.parametrize("metric", spread(1, ["euclidean", "cosine"]))
def test_neighbors_of_sparse_counts(metric: str) -> None:
    from sklearn.neighbors import NearestNeighbors

    x = scipy.sparse.load_npz(real("pbmc3k_counts.npz")).tocsr()
    found = rf.knn(x, 10, metric=metric)
    distances, _ = (
        NearestNeighbors(n_neighbors=10, metric=metric, algorithm="brute")
        .fit(x.astype(np.float64))
        .kneighbors()
    )
    np.testing.assert_allclose(np.asarray(found.distances), distances, rtol=1e-6, atol=1e-9)
