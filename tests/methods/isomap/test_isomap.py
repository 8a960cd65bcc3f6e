"""Embeddings by shortest paths: scikit-learn's with all rows as landmarks, near to it with some."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from reference import same_bytes
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import procrustes
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.datasets import make_swiss_roll
from sklearn.manifold import Isomap

import rankfold as rf
from rankfold.methods.isomap.geodesics import Geodesics
from rankfold.methods.isomap.scaling import Scaling, residual_variance
from rankfold.pipeline.errors import ArgumentError, DataError, PlanError

Array = npt.NDArray[Any]
K = 10


def roll(rows: int, seed: int = 0) -> Array:
    x: Array = make_swiss_roll(rows, random_state=seed)[0]
    return x


@pytest.fixture(scope="module")
def x() -> Array:
    return roll(1500)


@pytest.fixture(scope="module")
def near(x: Array, tmp_path_factory: pytest.TempPathFactory) -> rf.Result:
    return rf.knn(x, K, out=tmp_path_factory.mktemp("isomap") / "knn.zarr", threads=1)


@pytest.fixture(scope="module")
def exact(x: Array) -> Isomap:
    return Isomap(n_neighbors=K).fit(x)


# Beside scikit-learn ------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_all_rows_as_landmarks_are_scikit_learns_isomap(metric: str) -> None:
    x = roll(500)
    result = rf.isomap(rf.knn(x, K, metric=metric), n_components=3)
    theirs = Isomap(n_neighbors=K, n_components=3, metric=metric).fit(x)
    assert result.attrs["method"] == "exact" and result.attrs["covering_radius"] == 0
    np.testing.assert_array_equal(result.landmarks, np.arange(500))
    np.testing.assert_allclose(result.geodesics, theirs.dist_matrix_, rtol=1e-12)
    scale = np.abs(theirs.embedding_).max()
    # Signs too: both make the largest entry of an eigenvector positive.
    np.testing.assert_allclose(result.embedding, theirs.embedding_, rtol=0, atol=1e-9 * scale)
    assert result.attrs["reconstruction_error"] == pytest.approx(theirs.reconstruction_error(), rel=1e-9)
    paths, plane = squareform(theirs.dist_matrix_, checks=False), pdist(theirs.embedding_)
    both = [np.concatenate([each, each, np.zeros(500)]) for each in (paths, plane)]
    assert result.attrs["residual_variance"] == pytest.approx(1 - np.corrcoef(*both)[0, 1] ** 2, rel=1e-9)
    assert result.attrs["standard_error"] == 0


@pytest.mark.parametrize(("landmarks", "more"), [("farthest", 0.01), ("random", 0.1)])
def test_some_landmarks_come_near_to_all(near: rf.Result, exact: Isomap, landmarks: str, more: float) -> None:
    result = rf.isomap(near, n_landmarks=100, landmarks=landmarks, threads=2)
    assert procrustes(exact.embedding_, np.asarray(result.embedding[...]))[2] < 1e-4
    of_all = _unexplained(exact.dist_matrix_, exact.embedding_)
    assert _unexplained(exact.dist_matrix_, np.asarray(result.embedding[...])) < (1 + more) * of_all
    value, error = (result.attrs[name] for name in ("residual_variance", "standard_error"))
    plane = np.asarray(result.embedding[...])
    paths = exact.dist_matrix_[:, result.landmarks]
    assert abs(value - residual_variance(paths, cdist(plane, plane[result.landmarks]), 1500)[0]) < 5 * error


def _unexplained(paths: Array, embedding: Array) -> float:
    return float(1 - np.corrcoef(squareform(paths, checks=False), pdist(embedding))[0, 1] ** 2)


def test_new_rows_lie_where_scikit_learn_places_them() -> None:
    x, new = roll(500), roll(200, 1)
    theirs = Isomap(n_neighbors=K).fit(x)
    fit = rf.isomap(rf.knn(x, K))
    placed = rf.transform(fit, rf.knn(x, K, queries=new))
    scale = np.abs(theirs.embedding_).max()
    np.testing.assert_allclose(placed.embedding, theirs.transform(new), rtol=0, atol=1e-9 * scale)
    # About as well as the rows of the fit.
    assert placed.attrs["residual_variance"] < 1.5 * fit.attrs["residual_variance"]


# Landmarks and paths --------------------------------------------------------------------------------


def test_each_landmark_is_the_farthest_from_those_before(near: rf.Result, exact: Isomap) -> None:
    result = rf.isomap(near, n_landmarks=40)
    marks, paths = result.landmarks, exact.dist_matrix_
    for count in range(1, 40):
        nearest = paths[marks[:count]].min(axis=0)
        assert nearest[marks[count]] == pytest.approx(nearest.max(), rel=1e-12)
    assert result.attrs["covering_radius"] == pytest.approx(paths[marks].min(axis=0).max(), rel=1e-12)
    np.testing.assert_array_equal(rf.isomap(near, n_landmarks=20).landmarks, marks[:20])
    some, more = (rf.isomap(near, n_landmarks=n, landmarks="random", seed=5).landmarks for n in (20, 40))
    np.testing.assert_array_equal(some, more[:20])
    assert len(set(more)) == 40 and set(more) != set(marks)


def test_paths_follow_edges_that_either_row_has(near: rf.Result) -> None:
    result = rf.isomap(near, n_landmarks=30)
    # Undirected, SciPy takes an edge that is there from either end.
    paths = dijkstra(near.graph, directed=False, indices=result.landmarks)
    np.testing.assert_array_equal(np.asarray(result.geodesics[...]), paths.T)


def test_a_radius_gives_what_its_graph_says(x: Array) -> None:
    points = x[:600]
    result = rf.isomap(rf.radius_neighbors(points, 6.0), n_landmarks=30)
    distances = squareform(pdist(points))
    paths = dijkstra(np.where(distances <= 6.0, distances, 0), indices=result.landmarks)
    np.testing.assert_allclose(result.geodesics, paths.T, rtol=1e-12)


def test_single_precision_is_kept() -> None:
    x = roll(400).astype(np.float32)
    single, double = (rf.isomap(rf.knn(a, K), n_landmarks=50) for a in (x, x.astype(np.float64)))
    assert single.embedding.dtype == single.geodesics.dtype == np.float32
    np.testing.assert_allclose(single.geodesics, double.geodesics, rtol=1e-6)
    assert np.abs(single.embedding - double.embedding).max() < 1e-5 * np.abs(double.embedding).max()


# The same bytes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [{}, {"landmarks": "random"}, {"n_landmarks": 300}])
def test_threads_and_memory_change_no_byte(near: rf.Result, asked: dict[str, Any]) -> None:
    how: dict[str, Any] = {"n_landmarks": 70, **asked}
    one = rf.isomap(near, **how, threads=1, memory="300MiB")
    many = rf.isomap(near, **how, threads=5, memory="2GiB")
    assert same_bytes(one) == same_bytes(many)


def test_paths_that_were_interrupted_go_on_where_they_were(near: rf.Result, tmp_path: Path) -> None:
    done: list[tuple[str, int]] = []

    def stop_in_the_middle(name: str, rows: int, _: int) -> None:
        done.append((name, rows))
        if len(done) == stop:
            raise KeyboardInterrupt

    how: dict[str, Any] = {"n_landmarks": 100, "landmarks": "random"}
    stop = 0
    whole = rf.isomap(near, **how, out=tmp_path / "whole.zarr", progress=stop_in_the_middle)
    steps, groups = len(done), [each for each in done if each[0] == "paths"]
    assert len(groups) == -(-100 // Geodesics(1500, 100, np.dtype(np.float64)).group)
    for each in (2, 4, 7):  # after the graph, and after some groups
        done.clear()
        stop = each
        with pytest.raises(KeyboardInterrupt):
            rf.isomap(near, **how, out=tmp_path / "r.zarr", progress=stop_in_the_middle)
    done.clear()
    stop = steps + 1
    again = rf.isomap(near, **how, out=tmp_path / "r.zarr", threads=3)
    assert same_bytes(again) == same_bytes(whole)


COMMAND = """
import sys
import rankfold as rf
told = lambda name, done, total: print(name, done, flush=True)
rf.isomap(sys.argv[1], n_landmarks=160, out=sys.argv[2], threads=2, progress=told)
"""


@pytest.mark.process
@pytest.mark.slow
def test_kills_change_no_byte(tmp_path: Path) -> None:
    lists = rf.knn(roll(30_000), K, out=tmp_path / "knn.zarr")
    whole, out = rf.isomap(lists, n_landmarks=160, threads=1), tmp_path / "r.zarr"
    for said in ("landmarks", "paths", "paths", "scaling"):
        call = [sys.executable, "-W", "ignore", "-c", COMMAND, str(lists.path), str(out)]
        with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert any(line.startswith(said) for line in child.stdout)
            child.send_signal(signal.SIGKILL)
        assert not out.exists()
    assert same_bytes(rf.isomap(lists, n_landmarks=160, out=out, threads=2)) == same_bytes(whole)


def test_a_damaged_chunk_of_paths_is_made_again(near: rf.Result, tmp_path: Path) -> None:
    def stop(name: str, rows: int, total: int) -> None:
        if name == "scaling":
            raise KeyboardInterrupt

    how: dict[str, Any] = {"n_landmarks": 60}
    with pytest.raises(KeyboardInterrupt):
        rf.isomap(near, **how, out=tmp_path / "r.zarr", progress=stop)
    (chunk,) = (tmp_path / "r.zarr.run").glob("result-*/geodesics/c/0/1")
    values = np.fromfile(chunk)
    values[7] += 1
    values.tofile(chunk)
    again = rf.isomap(near, **how, out=tmp_path / "r.zarr")
    assert same_bytes(again) == same_bytes(rf.isomap(near, **how))


def test_new_rows_have_the_same_bytes_among_any_others(x: Array, near: rf.Result) -> None:
    new, fit = roll(300, 1), rf.isomap(near, n_landmarks=70)
    whole = rf.transform(fit, rf.knn(x, K, queries=new)).embedding
    for start, stop in ((0, 1), (1, 18), (18, 300)):
        some = rf.transform(fit, rf.knn(x, K, queries=new[start:stop])).embedding
        assert np.asarray(some).tobytes() == np.asarray(whole[start:stop]).tobytes()
    # A row of the fit is its own neighbor at no distance, and lies where it was.
    again = rf.transform(fit, rf.knn(x, 1, queries=x[:50])).embedding
    assert np.asarray(again).tobytes() == np.asarray(fit.embedding[:50]).tobytes()


# Memory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
def test_memory_stays_below_the_plan(tmp_path: Path, threads: int) -> None:
    rows = 150_000
    points = np.random.default_rng(0).random((rows, 2))
    lists = rf.knn(points, 8, out=tmp_path / "knn.zarr", threads=1)
    result = rf.isomap(lists, n_landmarks=18, out=tmp_path / "isomap.zarr", threads=threads)
    attempt = result.run["attempts"][-1]
    assert attempt["measured_bytes"] <= attempt["planned_bytes"]
    assert attempt["plan"]["peak_bytes"] < 400 * 2**20
    placed = rf.transform(
        result, rf.knn(points, 8, queries=points[:40_000] + 1e-3), out=tmp_path / "new.zarr"
    )
    attempt = placed.run["attempts"][-1]
    assert attempt["measured_bytes"] <= attempt["planned_bytes"]


def test_a_plan_takes_threads_that_have_room_and_says_what_a_graph_needs(near: rf.Result) -> None:
    wide, narrow = (rf.plan("isomap", near, memory=memory, threads=8) for memory in ("4GiB", "260MiB"))
    assert wide.concurrency == 8 and wide.peak_bytes >= narrow.peak_bytes
    assert narrow.peak_bytes <= 260 * 2**20
    with pytest.raises(PlanError, match=r"isomap of 1500 rows, 30000 edges and 500 landmarks needs .* Give"):
        rf.isomap(near, memory="64MiB")


# What is odd ----------------------------------------------------------------------------------------


def clusters(*places: float, rows: int = 30) -> Array:
    parts = [np.random.default_rng(each).standard_normal((rows + each, 3)) for each in range(len(places))]
    for part, place in zip(parts, places, strict=True):
        part[:, 0] += place
    return np.concatenate(parts)


@pytest.mark.parametrize(
    ("x", "k", "asked"),
    [
        (roll(40), 1, {"disconnected": "join"}),
        (np.zeros((40, 3)), 5, {}),
        (np.repeat(roll(60), 3, axis=0), 20, {}),
        (np.repeat(roll(60), 3, axis=0), 20, {"n_landmarks": 150}),
        (np.arange(20.0)[:, None], 2, {"n_components": 5}),
        (roll(2), 1, {}),
        (roll(30), 29, {"n_landmarks": 1, "n_components": 1}),
        (1e30 * roll(200), 9, {}),
        (1e-30 * roll(200), 9, {}),
        (clusters(0, 50, 1e4), 4, {"disconnected": "join"}),
    ],
)
@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
def test_what_is_degenerate_has_an_embedding(x: Array, k: int, asked: dict[str, Any]) -> None:
    more = {"matrix": x} if asked.get("disconnected") == "join" else {}
    result = rf.isomap(rf.knn(x, k), **asked, **more)
    embedding = np.asarray(result.embedding)
    assert embedding.shape == (len(x), asked.get("n_components", 2))
    assert np.isfinite(embedding).all() and np.isfinite(np.asarray(result.geodesics)).all()
    for name in ("residual_variance", "standard_error", "reconstruction_error", "negative_share"):
        assert np.isfinite(result.attrs[name]) and result.attrs[name] >= 0, name
    assert len(set(result.landmarks.tolist())) == len(result.landmarks)


def test_dimensions_that_there_are_not_are_zero_and_told() -> None:
    line = np.arange(30.0)[:, None]
    with pytest.warns(rf.RankfoldWarning, match="spread in 1 dimensions, fewer than the 3 asked for"):
        result = rf.isomap(rf.knn(line, 2), n_components=3)
    embedding = np.asarray(result.embedding)
    np.testing.assert_allclose(np.abs(np.diff(embedding[:, 0])), 1, rtol=1e-12)
    assert not embedding[:, 1:].any()
    assert result.attrs["negative_eigenvalues"] == 0
    assert result.attrs["residual_variance"] < 1e-12


def test_components_are_counted_and_refused_or_joined() -> None:
    x = clusters(0, 60, -90, rows=40)
    near = rf.knn(x, 8)
    said = "graph of neighbors with k 8 has 3 components, the largest of 42 of 123 rows.* larger k"
    with pytest.raises(DataError, match=said):
        rf.isomap(near)
    with pytest.raises(ArgumentError, match="give matrix=, the rows"):
        rf.isomap(near, disconnected="join")
    with pytest.raises(rf.RankfoldError, match="is not the matrix that"):
        rf.isomap(near, disconnected="join", matrix=x + 1)
    with pytest.warns(rf.RankfoldWarning, match="had 3 components, the largest of 42 rows: 3 edges"):
        joined = rf.isomap(near, disconnected="join", matrix=x)
    assert joined.attrs["components"] == 3
    with pytest.warns(UserWarning, match="connected components"):
        theirs = Isomap(n_neighbors=8).fit(x)
    np.testing.assert_allclose(joined.geodesics, theirs.dist_matrix_, rtol=1e-9)


def test_blocks_change_no_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    x = clusters(0, 60, -90, rows=40)
    near, how = rf.knn(x, 8, metric="manhattan"), {"disconnected": "join", "matrix": x}
    with pytest.warns(rf.RankfoldWarning):
        whole = rf.isomap(near, **how)
    monkeypatch.setattr("rankfold.methods.isomap.graph.BLOCK_ROWS", 7)
    with pytest.warns(rf.RankfoldWarning):
        assert same_bytes(rf.isomap(near, **how)) == same_bytes(whole)


@pytest.mark.parametrize(
    ("make", "asked", "said"),
    [
        (lambda x: rf.pca(x, 2), {}, "isomap takes one of knn or .* in Python r.scores"),
        (lambda x: rf.knn(x, 3, queries=x[:9]), {}, "neighbors of queries among other rows"),
        (lambda x: rf.radius_neighbors(x, 9.0, queries=x[:9]), {}, "neighbors of queries among other rows"),
        (lambda x: rf.knn(x, 3, metric="inner_product"), {}, "no distances"),
        (lambda x: rf.knn(x, 9), {"n_landmarks": 61}, "n_landmarks must lie in 1 .. 60"),
        (lambda x: rf.knn(x, 9), {"n_landmarks": 0}, "n_landmarks must be at least 1"),
        (lambda x: rf.knn(x, 9), {"n_components": 0}, "n_components must be at least 1"),
        (lambda x: rf.knn(x, 9), {"n_components": 8, "n_landmarks": 7}, "n_components must lie in 1 .. 7"),
        (lambda x: rf.knn(x, 9), {"landmarks": "near"}, "landmarks must be one of farthest, random"),
        (lambda x: rf.knn(x, 9), {"disconnected": "ignore"}, "disconnected must be one of refuse, join"),
        (lambda x: rf.knn(x, 9), {"seed": -1}, "seed must lie in"),
    ],
)
def test_what_cannot_be_embedded_is_refused(
    make: Callable[[Array], rf.Result], asked: dict[str, Any], said: str
) -> None:
    with pytest.raises(rf.RankfoldError, match=said):
        rf.isomap(make(roll(60)), **asked)


def test_neighbors_of_other_rows_are_refused_for_new_ones() -> None:
    x = roll(60)
    fit = rf.isomap(rf.knn(x, 9))
    for lists, said in (
        (rf.knn(x, 9), "has no neighbors of queries"),
        (rf.knn(x + 1, 9, queries=x), "search there, by that metric"),
        (rf.knn(x, 9, queries=x, metric="manhattan"), "search there, by that metric"),
        (x, "transform takes the neighbors of new rows"),
    ):
        with pytest.raises(rf.RankfoldError, match=said):
            rf.transform(fit, lists)


# How much is left out -------------------------------------------------------------------------------


def test_the_standard_error_is_that_of_taking_other_rows() -> None:
    rng = np.random.default_rng(0)
    paths = cdist(rng.random((3000, 2)), rng.random((50, 2)))
    plane = paths + 0.1 * rng.standard_normal(paths.shape) * rng.random((3000, 1))
    values, errors = [], []
    for _ in range(200):
        rows = rng.choice(3000, 300, replace=False)
        value, error = residual_variance(paths[rows], plane[rows], 3000)
        values.append(value)
        errors.append(error)
    # The spread of 200 draws is known to a twentieth.
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.2)
    assert residual_variance(paths, plane, 3000)[1] == 0


def test_landmarks_count_for_the_rows_around_them() -> None:
    """As often as there are rows in its place: what is said once by weights is said again by repetition."""
    points = np.random.default_rng(0).standard_normal((40, 3))
    times = np.random.default_rng(1).integers(1, 6, 40)
    once = Scaling.of(squareform(pdist(points)), times, 2)
    often = Scaling.of(squareform(pdist(np.repeat(points, times, axis=0))), np.ones(times.sum(), int), 2)
    new = np.random.default_rng(2).standard_normal((9, 3))
    distances = cdist(new, points)
    a, b = once.coordinates(distances), often.coordinates(np.repeat(distances, times, axis=1))
    np.testing.assert_allclose(a, b * np.sign((a * b).sum(axis=0)), atol=1e-12)


def test_distances_that_no_space_has_are_told() -> None:
    circle = np.exp(2j * np.pi * np.arange(90) / 90)
    result = rf.isomap(rf.knn(np.stack([circle.real, circle.imag], axis=1), 2))
    assert result.attrs["negative_eigenvalues"] > 0 and 0 < result.attrs["negative_share"] < 0.5
    plane = Scaling.of(squareform(pdist(roll(50)[:, :2])), np.ones(50, int), 2)
    assert plane.negative() == (0, 0.0) and plane.rank == 2
