"""Embeddings that are measured when they are made: the numbers that the measures give by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import rankfold as rf
from rankfold.methods.embedding import quality_chain

Array = npt.NDArray[Any]


def points(rows: int = 400) -> Array:
    rng = np.random.default_rng(0)
    x: Array = rng.standard_normal((rows, 6)) * 2.0 ** -np.arange(6)
    return x


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_they_are_those_of_the_measures_by_themselves(metric: str) -> None:
    x = points()
    lists = rf.knn(x, 9, metric=metric)
    facts = rf.umap(lists, n_epochs=30, quality=x).attrs
    plain = rf.umap(lists, n_epochs=30)
    picture = np.asarray(plain.embedding)
    assert facts["trustworthiness"] == rf.trustworthiness(x, picture, 15, metric=metric).value
    assert facts["continuity"] == rf.continuity(x, picture, 15, metric=metric).value
    common = rf.neighborhood_preservation(rf.knn(x, 15, metric=metric), rf.knn(picture, 15))
    assert facts["preservation"] == common.value
    assert facts["preservation_error"] == 0 and facts["quality_rows"] == 400 and facts["quality_k"] == 15
    assert {name: facts[name] for name in ("edge_loss", "pair_loss", "epochs")} == {
        name: plain.attrs[name] for name in ("edge_loss", "pair_loss", "epochs")
    }


def test_a_sample_tells_how_far_it_may_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    x = points(900)
    graph = rf.fuzzy_graph(rf.knn(x, 9))
    start = rf.umap(graph, n_epochs=30)
    exact = rf.umap(graph, n_epochs=1, learning_rate=0.0, init=start, quality=x).attrs
    monkeypatch.setattr("rankfold.methods.embedding.quality_request.DEFAULT_ROWS", 200)
    monkeypatch.setattr(quality_chain, "BLOCK", 1000)  # some rows at a time
    names = ("trustworthiness", "continuity", "preservation")
    off = []
    for seed in range(8):  # of one layout, other samples
        found = rf.umap(graph, n_epochs=1, learning_rate=0.0, init=start, quality=x, seed=seed).attrs
        assert found["quality_rows"] == 200
        off += [(found[name] - exact[name]) / found[f"{name}_error"] for name in names]
    assert 0.5 < np.sqrt(np.mean(np.square(off))) < 1.6


def test_the_same_embedding_lies_on_disk(tmp_path: Path) -> None:
    x = points()
    lists = rf.knn(x, 9, out=tmp_path / "knn.zarr")
    plain = rf.umap(lists, n_epochs=9, out=tmp_path / "plain.zarr")
    result = rf.umap(lists, n_epochs=9, out=tmp_path / "quality_chain.zarr", quality=x)
    assert result.embedding[...].tobytes() == plain.embedding[...].tobytes()
    assert (tmp_path / "quality_chain.zarr" / "embedding" / "zarr.json").read_bytes() == (
        tmp_path / "plain.zarr" / "embedding" / "zarr.json"
    ).read_bytes()
    attempt = result.run["attempts"][-1]
    assert attempt["measured_bytes"] <= attempt["planned_bytes"]
    assert rf.umap(lists, n_epochs=9, out=tmp_path / "quality_chain.zarr", quality=x).run == result.run
    with pytest.raises(rf.RankfoldError, match="contents of quality"):
        rf.umap(lists, n_epochs=9, out=tmp_path / "quality_chain.zarr", quality=x + 1)


def test_few_rows_have_as_many_neighbors_as_there_can_be() -> None:
    x = points(8)
    facts = rf.umap(rf.knn(x, 3), n_epochs=5, quality=x).attrs
    assert facts["quality_k"] == 3 and 0 <= facts["preservation"] <= 1


@pytest.mark.parametrize(
    ("matrix", "said"),
    [
        (points(399), "trustworthiness compares the same rows twice, but .* has 399 rows"),
        ("nowhere.zarr", "nowhere.zarr"),
    ],
)
def test_another_matrix_is_refused(matrix: object, said: str) -> None:
    with pytest.raises(rf.RankfoldError, match=said):
        rf.umap(rf.knn(points(), 5), quality=matrix)


def test_what_cannot_be_ranked_is_refused() -> None:
    places = np.random.default_rng(0).random((60, 2))
    lists = rf.knn(places, 5, metric="haversine")
    with pytest.raises(rf.RankfoldError, match="rows cannot be ranked by metric 'haversine'"):
        rf.umap(lists, quality=places)


@pytest.mark.parametrize(
    ("make", "asked"),
    [(rf.spectral, {}), (rf.diffusion_map, {"alpha": 0.5}), (rf.isomap, {"n_landmarks": 60})],
)
def test_other_embeddings_are_measured_too(make: Any, asked: dict[str, Any], tmp_path: Path) -> None:
    x = points()
    lists = rf.knn(x, 9, out=tmp_path / "knn.zarr")
    plain = make(lists, **asked, out=tmp_path / "plain.zarr")
    result = make(lists, **asked, quality=x, out=tmp_path / "quality_chain.zarr")
    assert set(result) == set(plain)
    for name in plain:
        assert result[name][...].tobytes() == plain[name][...].tobytes()
        assert result.dimensions(name) == plain.dimensions(name)
    picture = np.asarray(plain.embedding[...])
    assert result.attrs["trustworthiness"] == rf.trustworthiness(x, picture, 15).value
    assert result.attrs["continuity"] == rf.continuity(x, picture, 15).value
    assert set(plain.attrs) < set(result.attrs)
    attempt = result.run["attempts"][-1]
    assert attempt["measured_bytes"] <= attempt["planned_bytes"]
