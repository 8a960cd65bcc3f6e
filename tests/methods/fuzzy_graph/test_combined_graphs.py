"""Graphs with targets, and of two graphs: weights of umap-learn, in bounded memory, refusals in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
import zarr

import rankfold as rf
from rankfold.methods.fuzzy_graph import stored_rows
from rankfold.methods.fuzzy_graph.combination import label_codes
from rankfold.methods.registry import METHODS

Array = npt.NDArray[Any]

ROWS = 500


def points(seed: int = 0) -> Array:
    x = np.random.default_rng(seed).standard_normal((ROWS, 6))
    x[:30] = x[0]
    return x


def labels() -> Array:
    found = np.random.default_rng(1).integers(-1, 4, ROWS)
    found[40:60] = 7  # perhaps alone among their neighbors
    return found


def graph(seed: int = 0, k: int = 10) -> rf.Result:
    return rf.fuzzy_graph(rf.knn(points(seed), k))


def theirs() -> Any:
    return pytest.importorskip("umap.umap_", reason="umap-learn is not installed")


def coo(matrix: Any) -> Any:
    return scipy.sparse.coo_matrix(matrix)


def assert_same(found: Any, expected: Any, atol: float = 1e-6) -> None:
    expected = scipy.sparse.csr_array(expected)
    expected.eliminate_zeros()
    expected.sort_indices()
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.data, expected.data, rtol=0, atol=atol)
    assert (found != found.T).nnz == 0


# Targets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.0, 0.5, 0.9, 1.0])
def test_labels_weigh_as_in_umap_learn(weight: float) -> None:
    umap, y = theirs(), labels()
    far = 2.5 / (1 - weight) if weight < 1 else 1e12
    # Copied: it changes the numbers that it is given.
    expected = umap.discrete_metric_simplicial_set_intersection(coo(graph().graph.copy()), y, far_dist=far)
    found = rf.fuzzy_graph(rf.knn(points(), 10), targets=y, target_weight=weight)
    assert_same(found.graph, expected)
    assert found.attrs["weights"] == found.graph.nnz


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.5, 0.8, 1.0])
def test_numbers_weigh_as_in_umap_learn(weight: float) -> None:
    umap, y = theirs(), np.random.default_rng(2).standard_normal(ROWS)
    target_graph = rf.fuzzy_graph(rf.knn(y.reshape(-1, 1), 10)).graph
    joined = umap.general_simplicial_set_intersection(
        scipy.sparse.csr_matrix(graph().graph), scipy.sparse.csr_matrix(target_graph), weight
    )
    expected = umap.reset_local_connectivity(joined)
    lists = rf.knn(points(), 10)
    found = rf.fuzzy_graph(lists, targets=y, target_metric="euclidean", target_weight=weight)
    assert_same(found.graph, expected)


def test_labels_are_words_numbers_or_files(tmp_path: Path) -> None:
    y = labels()
    words = np.array([None if each == -1 else f"kind {each}" for each in y], object)
    floats = np.where(y == -1, np.nan, y)
    np.save(tmp_path / "y.npy", y)
    plain = label_codes(y, ROWS)
    assert set(plain) == {-1, *range(len(np.unique(y)) - 1)} or -1 in plain
    lists = rf.knn(points(), 10)
    expected = rf.fuzzy_graph(lists, targets=y).graph
    for given in (words, list(words), floats, y.reshape(-1, 1), str(tmp_path / "y.npy"), y.tolist()):
        assert_same(rf.fuzzy_graph(lists, targets=given).graph, expected, atol=0)


def test_rows_of_one_label_lie_apart_from_those_of_another() -> None:
    x, y = points(3), np.arange(ROWS) % 2
    lists = rf.knn(x, 10)
    layouts = [
        np.asarray(rf.umap(rf.fuzzy_graph(lists, **more), n_epochs=200).embedding)
        for more in ({}, {"targets": y, "target_weight": 0.9})
    ]
    shares = [float((y[np.asarray(rf.knn(each, 5).indices)] == y[:, None]).mean()) for each in layouts]
    assert shares[0] < 0.7 < 0.85 < shares[1]


# Two graphs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.25, 0.5, 0.75])
def test_an_intersection_is_that_of_umap_learn(weight: float) -> None:
    umap = theirs()
    one, two = graph(0), graph(5, 14)
    both = [scipy.sparse.csr_matrix(each.graph) for each in (one, two)]
    joined = umap.general_simplicial_set_intersection(*both, weight)
    expected = umap.reset_local_connectivity(joined, True)
    found = rf.combine_graphs(one, two, weight=weight)
    # A search stops where a sum is within 1e-5 of its target.
    assert_same(found.graph, expected, atol=2e-6)


def test_a_union_is_that_of_umap_learn() -> None:
    umap = theirs()
    one, two = graph(0), graph(5, 14)
    both = [scipy.sparse.csr_matrix(each.graph) for each in (one, two)]
    expected = umap.reset_local_connectivity(umap.general_simplicial_set_union(*both), True)
    found = rf.combine_graphs(one, two, rule="union")
    assert_same(found.graph, expected, atol=2e-6)
    assert rf.umap(found, n_epochs=5).embedding.shape == (ROWS, 2)
    again = rf.combine_graphs(found, one)
    assert again.graph.nnz >= found.graph.nnz and again.graph.max() == 1


def test_blocks_of_a_few_edges_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists, one, two = rf.knn(points(), 10), graph(0), graph(5, 14)
    calls: dict[str, Any] = {
        "labels": lambda: rf.fuzzy_graph(lists, targets=labels()).graph,
        "union": lambda: rf.combine_graphs(one, two, rule="union").graph,
    }
    whole = {name: call() for name, call in calls.items()}
    monkeypatch.setattr(stored_rows, "BLOCK", 100)
    for name, call in calls.items():
        found = call()
        assert found.data.tobytes() == whole[name].data.tobytes()
        assert found.indices.tobytes() == whole[name].indices.tobytes()


def test_memory_stays_below_the_plan(tmp_path: Path) -> None:
    rows = 30_000
    x = np.random.default_rng(0).random((rows, 3))
    lists = rf.knn(x, 15, out=tmp_path / "knn.zarr", threads=1)
    y = np.arange(rows) % 5
    one = rf.fuzzy_graph(lists, targets=y, out=tmp_path / "labeled.zarr")
    two = rf.fuzzy_graph(lists, targets=x[:, 0], target_metric="euclidean", out=tmp_path / "numbers.zarr")
    three = rf.combine_graphs(one, two, out=tmp_path / "both.zarr")
    for result in (one, two, three):
        attempt = result.run["attempts"][-1]
        assert attempt["measured_bytes"] <= attempt["planned_bytes"]


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("knn", {"k": 5}),
        ("knn", {"k": 5, "symmetric": "union"}),
        ("radius_neighbors", {"radius": 1.0}),
        ("fuzzy_graph", {}),
        ("combine_graphs", {}),
    ],
)
def test_a_task_says_whether_its_graph_is_compressed(name: str, asked: dict[str, Any]) -> None:
    x = np.random.default_rng(0).standard_normal((60, 3))
    lists = rf.knn(x, 5)
    graph = rf.fuzzy_graph(lists)
    inputs = {"fuzzy_graph": (lists,), "combine_graphs": (graph, graph)}.get(name, (x,))
    (output,) = (each for each in METHODS[name].task(*inputs, **asked).outputs() if each.name == "graph")
    made = getattr(rf, name)(*inputs, **asked)
    assert output.compressed == bool(zarr.open_array(made.path / "graph" / "indices").compressors)


def test_plans_are_made_before_anything_runs() -> None:
    plan = rf.plan("fuzzy_graph", rf.knn(points(), 10), targets=labels())
    assert plan.peak_bytes > 0 and {each.name for each in plan.passes} >= {"weights", "strongest"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"targets": labels()[:-1]}, "targets have shape .* but there are 500 rows|499 targets for 500 rows"),
        ({"targets": ["a"] * 3}, "there are 500 rows: give a label for each"),
        ({"targets": points()}, "has 6 columns: labels are a single one"),
        (
            {"targets": labels(), "target_metric": "cosine"},
            "target_metric must be one of categorical, euclidean",
        ),
        ({"targets": labels(), "target_weight": 1.5}, "target_weight must lie between 0"),
        ({"targets": np.full(ROWS, np.nan), "target_metric": "euclidean"}, "NaN"),
        ({"targets": labels() + 1j}, "complex"),
    ],
)
def test_other_targets_are_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(rf.RankfoldError, match=said):
        rf.fuzzy_graph(rf.knn(points(), 5), **asked)


def test_other_graphs_are_refused() -> None:
    one = graph()
    with pytest.raises(rf.RankfoldError, match="is the result of knn: graphs are those of fuzzy_graph"):
        rf.combine_graphs(one, rf.knn(points(), 5))
    small = rf.fuzzy_graph(rf.knn(points()[:100], 5))
    with pytest.raises(rf.RankfoldError, match="first graph is of 500 rows, the second of 100"):
        rf.combine_graphs(one, small)
    with pytest.raises(rf.RankfoldError, match="rule must be one of intersection, union"):
        rf.combine_graphs(one, one, rule="sum")
