"""New rows in a layout: by umap-learn's weights, near what is near to them, alone or in any company."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from typer.testing import CliRunner

import rankfold as rf
from rankfold.kernels.graph.fuzzy import membership
from rankfold.workflows.cli import app

Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def digits() -> tuple[Array, Array]:
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    return images[order], labels[order]


@pytest.fixture(scope="module")
def layout(digits: tuple[Array, Array], tmp_path_factory: pytest.TempPathFactory) -> rf.Result:
    fitted = digits[0][:1400]
    folder = tmp_path_factory.mktemp("placement")
    start = rf.pca(fitted, 2, threads=1)
    return rf.umap(rf.knn(fitted, 14, threads=1), init=start, out=folder / "layout.zarr", threads=2)


def places(layout: rf.Result, fitted: Array, new: Array, k: int = 15, **how: Any) -> Array:
    lists = rf.knn(fitted, k, queries=new, threads=1)
    return np.asarray(rf.transform(layout, lists, **how).embedding[...])


def test_new_rows_come_to_lie_among_their_like(layout: rf.Result, digits: tuple[Array, Array]) -> None:
    (images, labels), embedding = digits, np.asarray(layout.embedding[...])
    placed = places(layout, images[:1400], images[1400:])
    assert placed.shape == (397, 2) and placed.dtype == np.float32 and np.isfinite(placed).all()
    near = KNeighborsClassifier(10).fit(embedding, labels[:1400])
    assert near.score(placed, labels[1400:]) > 0.95


@pytest.mark.slow
def test_places_are_as_good_as_those_of_umap_learn(layout: rf.Result, digits: tuple[Array, Array]) -> None:
    umap = pytest.importorskip("umap", reason="umap-learn is not installed")
    images, labels = digits
    theirs = umap.UMAP(random_state=0, n_jobs=1).fit(images[:1400])
    scores = [
        KNeighborsClassifier(10).fit(fitted, labels[:1400]).score(new, labels[1400:])
        for fitted, new in (
            (theirs.embedding_, theirs.transform(images[1400:])),
            (np.asarray(layout.embedding[...]), places(layout, images[:1400], images[1400:])),
        )
    ]
    assert scores[1] > scores[0] - 0.015


def test_a_row_comes_to_the_same_place_in_any_company(layout: rf.Result, digits: tuple[Array, Array]) -> None:
    fitted, new = digits[0][:1400], digits[0][1400:1500]
    whole = places(layout, fitted, new, threads=1)
    order = np.random.default_rng(1).permutation(100)
    assert places(layout, fitted, new[order], threads=3).tobytes() == whole[order].tobytes()
    for some in (slice(0, 1), slice(1, 40), slice(40, 100)):
        assert places(layout, fitted, new[some]).tobytes() == whole[some].tobytes()


def test_rows_of_the_layout_have_their_places_and_rows_near_them_lie_near(
    layout: rf.Result, digits: tuple[Array, Array]
) -> None:
    fitted, embedding = digits[0][:1400], np.asarray(layout.embedding[...])
    lists = rf.knn(fitted, 15, queries=fitted, threads=1)
    result = rf.transform(layout, lists)
    _, first = np.unique(fitted, axis=0, return_index=True)
    assert len(first) == 1400
    assert result.embedding.tobytes() == embedding.tobytes()
    assert result.attrs["rows_of_the_layout"] == 1400
    shifted = places(layout, fitted, fitted + 0.01)
    moves = np.linalg.norm(shifted - embedding, axis=1)
    assert np.median(moves) < 0.05 * np.linalg.norm(embedding.std(axis=0))


@pytest.mark.parametrize("connectivity", [1.0, 1.5, 3.0])
def test_weights_are_those_of_umap_learn(digits: tuple[Array, Array], connectivity: float) -> None:
    umap = pytest.importorskip("umap.umap_", reason="umap-learn is not installed")
    lists = rf.knn(digits[0][:1400], 15, queries=digits[0][1400:], threads=1)
    distances, indices = (np.asarray(lists[name][...]) for name in ("distances", "indices"))
    narrow, adjusted = distances.astype(np.float32), max(0.0, connectivity - 1)
    sigmas, rhos = umap.smooth_knn_dist(narrow, 15.0, local_connectivity=adjusted)
    theirs = umap.compute_membership_strengths(indices, narrow, sigmas, rhos, bipartite=True)[2]
    ours = np.empty(distances.shape, np.float32)
    membership(distances, float(narrow.mean()), local_connectivity=adjusted, first=1, out=ours)
    np.testing.assert_allclose(ours, theirs.reshape(ours.shape), atol=1e-6, rtol=0)


def test_memory_stays_below_the_plan_and_chunks_are_whole(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    fitted, new = rng.random((3000, 2)), rng.random((70_000, 2))
    layout = rf.umap(rf.knn(fitted, 5, threads=1), n_epochs=9)
    lists = rf.knn(fitted, 6, queries=new, out=tmp_path / "new.zarr", threads=1)
    result = rf.transform(layout, lists, out=tmp_path / "r.zarr", threads=2)
    attempt = result.run["attempts"][-1]
    assert attempt["measured_bytes"] <= attempt["planned_bytes"]
    last = rf.transform(layout, rf.knn(fitted, 6, queries=new[-9:], threads=1)).embedding
    assert result.embedding[...][-9:].tobytes() == last.tobytes()
    assert rf.verify(tmp_path / "r.zarr") == []


def test_the_command_places_what_the_function_does(
    layout: rf.Result, digits: tuple[Array, Array], tmp_path: Path
) -> None:
    lists = rf.knn(digits[0][:1400], 15, queries=digits[0][1400:], out=tmp_path / "new.zarr", threads=1)
    words = ["transform", str(layout.path), str(lists.path), "--out", str(tmp_path / "r.zarr")]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 0, run.output
    assert "397 rows placed in a layout by 15 neighbors each, 166 epochs" in run.stdout
    ours = np.asarray(rf.transform(layout, lists).embedding[...])
    assert rf.open_result(tmp_path / "r.zarr").embedding[...].tobytes() == ours.tobytes()


def test_an_index_has_neighbors_of_new_rows_too(layout: rf.Result, digits: tuple[Array, Array]) -> None:
    fitted, new = digits[0][:1400], digits[0][1400:]
    lists = rf.knn(new, 15, index=rf.index(fitted, partition_rows=200), threads=1)
    assert rf.transform(layout, lists).embedding.tobytes() == places(layout, fitted, new).tobytes()


def test_what_cannot_be_placed_is_refused(layout: rf.Result, digits: tuple[Array, Array]) -> None:
    fitted = digits[0][:1400]
    with pytest.raises(rf.RankfoldError, match="of rows among themselves: new rows are looked up"):
        rf.transform(layout, rf.knn(fitted, 5))
    with pytest.raises(rf.RankfoldError, match="has neighbors among 900 rows, but 1400 are laid out"):
        rf.transform(layout, rf.knn(fitted[:900], 5, queries=fitted))
    with pytest.raises(rf.RankfoldError, match="transform takes neighbors of new rows"):
        rf.transform(layout, fitted)
    with pytest.raises(rf.RankfoldError, match="is the result of pca: give one of knn"):
        rf.transform(layout, rf.pca(fitted, 2))
