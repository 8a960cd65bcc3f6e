"""A graph has every pair within a radius, and no other: against brute force, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from reference import to_zarr
from scipy.spatial import cKDTree
from sklearn.neighbors import NearestNeighbors

import rankfold as rf
from rankfold.methods.radius import radius
from rankfold.methods.radius.arguments import RADIUS
from rankfold.methods.tree.coordinates import wrap
from rankfold.pipeline.errors import InputError, NonFiniteError, PlanError
from rankfold.pipeline.planning.shape_only import ShapeOnly

Array = npt.NDArray[Any]


def brute(x: Array, q: Array, within: float, metric: str, box: list[float], *, itself: bool) -> list[Array]:
    """Distances, indices and where rows begin, as plainly as they can be had."""
    sums = np.zeros((len(q), len(x)))
    for t, length in enumerate(box):
        a, b = q[:, t].astype(float), x[:, t].astype(float)
        if length:
            wrap(a, length)
            wrap(b, length)
        gap = np.abs(a[:, None] - b)
        gap = np.minimum(gap, length - gap) if length else gap
        if metric == "chebyshev":
            sums = np.maximum(sums, gap)
        else:
            sums = sums + (gap if metric == "manhattan" else gap * gap)
    distances = np.sqrt(sums) if metric == "euclidean" else sums
    near = distances <= within
    if itself:
        np.fill_diagonal(near, False)
    rows, columns = np.nonzero(near)
    values = distances[rows, columns]
    order = np.lexsort((columns, values, rows))
    return [values[order], columns[order], np.concatenate([[0], np.cumsum(near.sum(axis=1))])]


def assert_graph(result: rf.Result, expected: list[Array]) -> None:
    graph = result.graph
    for array, value in zip((graph.data, graph.indices, graph.indptr), expected, strict=True):
        np.testing.assert_array_equal(array, value)
    np.testing.assert_array_equal(result.degrees, np.diff(expected[2]))
    assert result.attrs["edges"] == len(expected[0])


@given(data=st.data(), n=st.integers(1, 90), d=st.integers(1, 4))
@examples(150)
def test_edges_are_those_of_brute_force(data: st.DataObject, n: int, d: int) -> None:
    r = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    metric = data.draw(st.sampled_from(["euclidean", "sqeuclidean", "manhattan", "chebyshev"]))
    box = data.draw(st.lists(st.sampled_from([0.0, 0.0, 1.0, 3.5]), min_size=d, max_size=d))
    within = data.draw(st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.7, 100.0]))
    x, q = (r.integers(-6, 6, (rows, d)) / 4 if data.draw(st.booleans()) else r.random((rows, d)) * 4
            for rows in (n, 7))  # fmt: skip
    how: dict[str, Any] = {"metric": metric, "box": box, "threads": 1}
    assert_graph(rf.radius_neighbors(x, within, **how), brute(x, x, within, metric, box, itself=True))
    among = rf.radius_neighbors(x, within, queries=q, **how)
    assert_graph(among, brute(x, q, within, metric, box, itself=False))


@pytest.mark.parametrize("metric", ["cosine", "correlation"])
@pytest.mark.parametrize("columns", [2, 3, 12])
def test_directions_within_a_radius_are_those_of_scikit_learn(metric: str, columns: int) -> None:
    r = np.random.default_rng(columns)
    x, q = r.normal(size=(150, columns)), r.normal(size=(40, columns))
    x[[5, 90]], q[3] = 0, 0  # at distance 1 from all, and from each other
    x[7] *= 1e-200
    compared = [a - a.mean(axis=1, keepdims=True) if metric == "correlation" else a for a in (x * 1.0, q)]
    compared[0][7] *= 1e200
    theirs = NearestNeighbors(radius=0.4, metric="cosine", algorithm="brute").fit(compared[0])
    for queries, among in ((None, theirs.radius_neighbors_graph(mode="distance")),
                           (q, theirs.radius_neighbors_graph(compared[1], mode="distance"))):  # fmt: skip
        ours = rf.radius_neighbors(x, 0.4, metric=metric, queries=queries).graph
        matrix = sp.csr_array((ours.data, ours.indices, ours.indptr), among.shape)
        np.testing.assert_allclose(matrix.toarray(), among.toarray(), atol=1e-15)
    with pytest.raises(rf.RankfoldError, match="rows without a direction"):
        rf.radius_neighbors(x, 1.5, metric=metric)
    with pytest.raises(rf.RankfoldError, match="rows without a direction"):
        rf.radius_neighbors(x[:5], 1.5, metric=metric, queries=q)


@pytest.mark.parametrize("edges", [1, 3, 64, 5000])
def test_rows_that_chunks_of_edges_cut_are_whole(edges: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(radius, "EDGES", edges)
    x = np.random.default_rng(3).random((60, 2)).round(1)
    x[20:40] = 5.0 + 9 * np.arange(20)[:, None]  # which have no neighbors
    for within in (0.0, 0.3, 2.0):
        expected = brute(x, x, within, "euclidean", [0.0, 0.0], itself=True)
        assert_graph(rf.radius_neighbors(x, within, threads=2), expected)


def test_threads_chunks_and_memory_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(radius, "EDGES", 1000)
    x = np.random.default_rng(1).random((8000, 3)).round(2)
    graphs = [
        rf.radius_neighbors(to_zarr(tmp_path / f"{t}.zarr", x, (chunk, 3)), 0.05, threads=t, memory=m).graph
        for t, chunk, m in ((1, 100, "64MiB"), (2, 8000, "1GiB"), (7, 777, "1GiB"))
    ]
    for other in graphs[1:]:
        for one, two in zip(
            (graphs[0].data, graphs[0].indices, graphs[0].indptr),
            (other.data, other.indices, other.indptr),
            strict=True,
        ):
            np.testing.assert_array_equal(one, two)


def test_points_of_molecular_dynamics_in_a_box() -> None:
    """Of a liquid: 100 000 points, a cut-off of 1.0 and a skin of 0.2, some 700 000 pairs."""
    box, within = 25.0, 1.0 + 0.2
    x = np.random.default_rng(2).random((100_000, 3)) * box
    found = rf.radius_neighbors(x, within, box=box)
    assert found.attrs["edges"] == cKDTree(x, boxsize=box).count_neighbors(
        cKDTree(x, boxsize=box), within
    ) - len(x)
    some = np.arange(0, len(x), 997)
    distances, indices, ends = brute(x, x[some], within, "euclidean", [box] * 3, itself=False)
    graph = found.graph
    for i, row in enumerate(some.tolist()):
        own = slice(graph.indptr[row], graph.indptr[row + 1])
        others = indices[ends[i] : ends[i + 1]] != row
        np.testing.assert_array_equal(graph.indices[own], indices[ends[i] : ends[i + 1]][others])
        np.testing.assert_array_equal(graph.data[own], distances[ends[i] : ends[i + 1]][others])


def test_radius_nothing_joins_equal_rows_alone() -> None:
    x = np.repeat(np.arange(5.0)[:, None], 3, axis=0)
    found = rf.radius_neighbors(x, 0.0)
    np.testing.assert_array_equal(found.degrees, np.full(15, 2))
    assert found.graph.nnz == 30 and not found.graph.data.any()
    none = rf.radius_neighbors(np.arange(4.0)[:, None], 0.5)
    assert none.graph.nnz == 0 and none.attrs["edges"] == 0


def test_the_sphere() -> None:
    x = np.array([[0.0, np.pi], [0.0, -np.pi], [np.pi / 2, 1.0], [np.pi / 2, -2.0], [-np.pi / 2, 0.0]])
    near = rf.radius_neighbors(x, 1e-12, metric="haversine").graph
    assert near[0, 1] < 1e-15 and near.nnz == 4
    assert rf.radius_neighbors(x, np.pi, metric="haversine").graph.nnz == 20


def test_a_graph_can_be_opened_and_clustered(tmp_path: Path) -> None:
    sklearn_cluster = pytest.importorskip("sklearn.cluster")
    r = np.random.default_rng(4)
    x = np.concatenate([r.standard_normal((300, 2)) * 0.1, 5 + r.standard_normal((300, 2)) * 0.1])
    found = rf.radius_neighbors(x, 0.3, out=tmp_path / "r.zarr")
    dbscan = sklearn_cluster.DBSCAN(eps=0.3, metric="precomputed").fit(found.graph)
    np.testing.assert_array_equal(dbscan.labels_, sklearn_cluster.DBSCAN(eps=0.3).fit(x).labels_)
    assert rf.open(f"{tmp_path / 'r.zarr'}::graph").shape == (600, 600)


# Edges that are counted before ---------------------------------------------------------------------


def test_a_radius_that_joins_everything_is_refused_with_the_number() -> None:
    x = np.random.default_rng(5).random((200_000, 2))
    with pytest.raises(PlanError, match=r"joins about 39999800000 pairs .* max_edges allows 10000000000"):
        rf.plan("radius_neighbors", x, radius=2.0)
    with pytest.raises(PlanError, match="joins about 9900 pairs"):
        rf.radius_neighbors(x[:100], 2.0, max_edges=9899)
    assert rf.radius_neighbors(x[:100], 2.0, max_edges=9900).attrs["edges"] == 9900


def test_the_count_refuses_what_a_sample_did_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(radius, "SAMPLE_ROWS", 10)
    x = np.arange(1000.0)[:, None]
    with pytest.raises(PlanError, match="joins 1998 pairs"):
        rf.radius_neighbors(x, 1.0, max_edges=1900)


def test_a_sample_tells_about_how_many_edges_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(6).random((50_000, 3))
    edges = rf.radius_neighbors(x, 0.05).attrs["edges"]
    monkeypatch.setattr(radius, "SAMPLE_ROWS", 5000)
    guess = RADIUS.task(x, radius=0.05).estimate
    assert abs(guess.edges - edges) < 0.1 * edges and edges <= guess.most < 1.2 * edges


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"radius": -1.0}, "radius must be at least 0"),
        ({"radius": np.nan}, "radius must be"),
        ({"radius": np.inf}, "radius must be"),
        ({"radius": 1.0, "metric": "jaccard"}, "metric must be one of euclidean"),
        ({"radius": 1.0, "metric": "cosine", "box": 2}, "cosine is of directions: leave box out"),
        ({"radius": 1.0, "box": [1, 2]}, "box must give the length of each of the 3 columns"),
        ({"radius": 1.0, "max_edges": 0}, "max_edges must be at least 1"),
        ({"radius": 1.0, "queries": np.zeros((2, 2))}, "queries .* have 2 columns"),
    ],
)
def test_what_cannot_be_asked_is_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        rf.radius_neighbors(np.zeros((9, 3)), **how)


def test_nan_is_refused_with_its_place() -> None:
    x = np.zeros((50, 3))
    x[7, 1] = np.nan
    with pytest.raises(NonFiniteError, match="row 7, column 1"):
        rf.radius_neighbors(x, 1.0)


def test_a_matrix_that_is_to_come_has_no_edges_to_count() -> None:
    shape = ShapeOnly.plain((100_000, 3), np.dtype(np.float64), "to come")
    assert RADIUS.task(rf.open(shape, prepare="log1p"), radius=1.0).estimate.edges == 0
