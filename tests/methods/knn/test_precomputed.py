"""Distances that are given make the lists that a search of the rows makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import rankfold
from reference import same_bytes, to_zarr
from scipy.spatial.distance import cdist
from sklearn.neighbors import KNeighborsTransformer, kneighbors_graph

import rankfold as rf
from rankfold.methods.knn import precomputed
from rankfold.pipeline.errors import DataError, InputError, NonFiniteError

X = np.random.default_rng(5).integers(-9, 9, size=(120, 6)).astype(float)
X[7], X[40] = X[3], X[3]  # equal rows, whose distances of 0 are distances
D = cdist(X, X)
HOW: dict[str, Any] = {"metric": "precomputed"}


def assert_same_lists(found: rf.Result, expected: rf.Result) -> None:
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.distances, expected.distances, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_lists_of_all_distances_are_those_of_the_rows(dtype: Any) -> None:
    found = rf.knn(D.astype(dtype), 5, **HOW)
    order = np.argsort(np.where(np.eye(120, dtype=bool), np.inf, D.astype(dtype)), axis=1, kind="stable")
    np.testing.assert_array_equal(found.indices, order[:, :5])
    np.testing.assert_array_equal(found.distances, np.take_along_axis(D.astype(dtype), order[:, :5], 1))
    assert found.attrs["recall"] == 1 and found.attrs["passes"] == 1


@pytest.mark.parametrize(
    "graph",
    [
        kneighbors_graph(X, 11, mode="distance", include_self=False),
        kneighbors_graph(X, 11, mode="distance", include_self=True),
        KNeighborsTransformer(n_neighbors=11).fit_transform(X),
        sp.csr_array(np.where(D < 14, D + 1e-300, 0)),
    ],
    ids=["others", "itself too", "transformer", "all that are near"],
)
def test_lists_of_a_graph_are_of_what_it_stores(graph: Any) -> None:
    """Its own place of a row is left out, and zeros that are stored are distances."""
    found = rf.knn(graph, 4, **HOW)
    stored = np.full((120, 120), np.inf)
    entries = graph.tocoo()
    stored[entries.row, entries.col] = entries.data
    np.fill_diagonal(stored, np.inf)
    order = np.argsort(stored, axis=1, kind="stable")[:, :4]
    np.testing.assert_array_equal(found.indices, order)
    np.testing.assert_array_equal(found.distances, np.take_along_axis(stored, order, 1))


def test_panels_chunks_and_threads_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = same_bytes(rf.knn(to_zarr(tmp_path / "d.zarr", D, (50, 30)), 5, out=tmp_path / "a", **HOW))
    monkeypatch.setattr(precomputed, "PANEL_BYTES", 8 * 120 * 7)
    for i, threads in enumerate((1, 2)):
        found = rf.knn(tmp_path / "d.zarr", 5, out=tmp_path / f"b{i}", threads=threads, **HOW)
        assert same_bytes(found) == expected


def test_embeddings_are_those_of_the_rows(tmp_path: Path) -> None:
    def embeddings(x: Any, **how: Any) -> list[Any]:
        return [
            rf.umap(x, n_neighbors=8, n_epochs=5, **how).embedding,
            rf.isomap(x, n_neighbors=12, **how).embedding,
            rf.spectral(x, 2, n_neighbors=8, **how).embedding,
        ]

    for found, expected in zip(embeddings(D, **HOW), embeddings(X), strict=True):
        np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-6)
    measured = rf.umap(D, n_epochs=5, quality=X, **HOW)
    assert 0 < measured.attrs["trustworthiness"] <= 1
    graph = kneighbors_graph(X, 15, mode="distance")
    assert rf.umap(graph, n_epochs=5, **HOW).embedding.shape == (120, 2)
    store = to_zarr(tmp_path / "d.zarr", D, (50, 30))
    rankfold("umap", store, "--metric", "precomputed", "--n-epochs", "5", "--out", tmp_path / "u.zarr")
    given = rf.umap(D, n_epochs=5, **HOW)
    np.testing.assert_array_equal(rf.open_result(tmp_path / "u.zarr").embedding, given.embedding)


@pytest.mark.parametrize(
    ("x", "asked", "kind", "message"),
    [
        (D[:, :50], {}, InputError, "a square matrix, but .* is 120 x 50"),
        (D, {"queries": D}, InputError, "queries has no place beside distances"),
        (D, {"min_recall": 0.9}, InputError, "min_recall has no place"),
        (D, {"solver": "tree"}, InputError, "solver=tree has no place"),
        (D - 1, {}, DataError, "row 0, column 0 .* is -1, but distances are at least 0. If these are simil"),
        (np.where(D > 9, np.inf, D), {}, NonFiniteError, "is inf, but distances are finite numbers"),
        (sp.csr_array(np.where(D < 5, D, 0)), {"k": 40}, DataError, "distances from .* others, and 40 neigh"),
        (sp.csr_array(np.eye(40)), {"k": 3}, DataError, "from 0 others, and 3 .* asked for. Give more"),
    ],
)  # fmt: skip
def test_what_are_no_distances_is_refused(x: Any, asked: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        rf.knn(x, **{"k": 5, **HOW, **asked})


def test_a_start_by_pca_takes_rows() -> None:
    with pytest.raises(InputError, match="holds distances: give the rows, matrix=x"):
        rf.tsne(D, init="pca", **HOW)
    with pytest.raises(InputError, match="holds distances: give the rows, matrix=x"):
        rf.umap(D, init="pca", **HOW)
    with pytest.raises(
        InputError, match="neighbors by euclidean, but those of the embedding are by precomputed"
    ):
        rf.transform(rf.umap(D, n_epochs=5, **HOW), rf.knn(X, 5, queries=X))
