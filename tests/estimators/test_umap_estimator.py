"""``UMAP`` in scikit-learn's place: its checks, its attributes, samples on disk."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from reference import to_zarr
from sklearn.datasets import load_digits
from sklearn.manifold import trustworthiness
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import rankfold as rf
from rankfold.estimators import UMAP, DiffusionMap


@pytest.mark.slow
@parametrize_with_checks([UMAP(n_epochs=20)])
def test_scikit_learn_finds_no_fault(estimator: Any, check: Any) -> None:
    check(estimator)


def digits() -> np.ndarray:
    return load_digits().data[:900].astype(np.float32)


def test_neighbors_stay_together() -> None:
    x = digits()
    fitted = UMAP(random_state=0).fit(x)
    assert fitted.embedding_.shape == (900, 2)
    assert trustworthiness(x, fitted.embedding_, n_neighbors=15) > 0.95
    lists = rf.knn(x, 14)
    assert abs(fitted.graph_ - rf.fuzzy_graph(lists).graph).max() == 0
    np.testing.assert_array_equal(fitted.embedding_, UMAP(random_state=0).fit_transform(x))


@pytest.mark.parametrize("init", ["pca", "random", "spectral", "array"])
def test_samples_on_disk_give_what_samples_in_memory_give(tmp_path: Path, init: str) -> None:
    x = digits()[:300]
    start: Any = x[:, 20:22] if init == "array" else init
    how: dict[str, Any] = {"init": start, "random_state": 3, "n_epochs": 30}
    here = UMAP(**how).fit_transform(x)
    np.testing.assert_array_equal(here, UMAP(**how).fit_transform(to_zarr(tmp_path / "x.zarr", x, (90, 64))))


def test_sparse_samples_and_bits_are_taken() -> None:
    x = digits()[:200]
    dense, sparse = (UMAP(random_state=0, n_epochs=20).fit(a) for a in (x, scipy.sparse.csr_array(x)))
    assert abs(dense.graph_ - sparse.graph_).max() < 1e-5
    assert UMAP(metric="jaccard", n_epochs=20).fit_transform(x > 7).shape == (200, 2)


def test_distances_stand_for_samples() -> None:
    """As in umap-learn; a graph of neighbors may have samples themselves among them, or not."""
    x = digits()[:200]
    plain = UMAP(random_state=0, n_epochs=20).fit(x)
    near = NearestNeighbors(n_neighbors=40).fit(x.astype(np.float64))
    given = {
        "all": pairwise_distances(x.astype(np.float64)),
        "of others": near.kneighbors_graph(mode="distance"),
        "of all": near.kneighbors_graph(x.astype(np.float64), mode="distance"),
    }
    for name, distances in given.items():
        fitted = UMAP(metric="precomputed", random_state=0, n_epochs=20).fit(distances)
        assert abs(fitted.graph_ - plain.graph_).max() < 1e-5, name
        maps = [
            DiffusionMap(metric=m, random_state=0).fit_transform(d)
            for m, d in (("euclidean", x), ("precomputed", distances))
        ]
        np.testing.assert_allclose(*maps, atol=1e-4 * np.abs(maps[0]).max(), err_msg=name)
    with pytest.raises(ValueError, match="do not tell where new ones are"):
        fitted.transform(distances)
    with pytest.raises(ValueError, match='init="pca" cannot be used with metric="precomputed"'):
        UMAP(metric="precomputed", init="pca").fit(distances)
    with pytest.raises(ValueError, match="square distance matrix"):
        UMAP(metric="precomputed").fit(x)
    assert UMAP(metric="precomputed", n_components=3, n_epochs=5).fit_transform(
        given["all"][:3, :3]
    ).shape == (3, 3)


def test_few_samples_and_columns_are_enough() -> None:
    x = np.arange(7.0)[:, None]
    assert np.isfinite(UMAP(n_neighbors=40, n_components=3, n_epochs=10).fit_transform(x)).all()
    with pytest.raises(ValueError, match="takes 3 samples or more, not n_samples=2"):
        UMAP().fit(x[:2])


def test_a_pipeline_ends_in_a_picture() -> None:
    picture = make_pipeline(StandardScaler(), UMAP(n_epochs=10)).fit_transform(digits()[:100])
    assert picture.shape == (100, 2)


def test_other_samples_have_places_too(tmp_path: Path) -> None:
    x, new = digits(), load_digits().data[900:1000].astype(np.float32)
    fitted = UMAP(random_state=0).fit(x)
    placed = fitted.transform(new)
    assert placed.shape == (100, 2) and placed.dtype == np.float32
    np.testing.assert_array_equal(fitted.transform(x), fitted.embedding_)
    np.testing.assert_array_equal(
        placed[7:9], fitted.transform(to_zarr(tmp_path / "n.zarr", new[7:9], (1, 64)))
    )
    np.testing.assert_array_equal(placed, pickle.loads(pickle.dumps(fitted)).transform(new))
    lists = rf.knn(x, 15, queries=new)
    seed = fitted._layout_facts["request"]["seed"]
    layout = rf.umap(rf.knn(x, 14), init="spectral", seed=seed)
    np.testing.assert_array_equal(placed, rf.transform(layout, lists).embedding)
    with pytest.raises(ValueError, match="X has 3 features, but UMAP is expecting 64 features"):
        fitted.transform(new[:, :3])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"metric": "inner_product"}, "The 'metric' parameter of UMAP must be"),
        ({"init": "spektral"}, "The 'init' parameter of UMAP must be"),
        ({"n_neighbors": 1}, "The 'n_neighbors' parameter of UMAP must be"),
        ({"init": np.zeros((5, 2))}, "positions to begin at have shape"),
        ({"min_dist": 2.0}, "min_dist"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        UMAP(**wrong).fit(digits()[:50])


def test_labels_bring_samples_together() -> None:
    x, y = digits(), load_digits(return_X_y=True)[1][: len(digits())]
    model = UMAP(n_epochs=20, random_state=0)
    plain, labeled = model.fit_transform(x), model.fit_transform(x, y)
    assert (plain != labeled).any()
    graph = model.graph_.tocoo()
    same = y[graph.row] == y[graph.col]
    assert graph.data[same].mean() > 3 * graph.data[~same].mean()
    np.testing.assert_array_equal(labeled, model.fit_transform(x, [f"digit {each}" for each in y]))
