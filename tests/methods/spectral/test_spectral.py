"""Eigenvectors of graphs: those of LAPACK and ARPACK, claims that hold, the same bytes however it is run."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from graphs import (
    beside,
    complete,
    gaussian,
    geometric,
    grid,
    joined,
    moons,
    path,
    ring,
    star,
    walk_matrix,
)
from reference import same_bytes
from scipy.sparse.linalg import eigsh
from sklearn.manifold import spectral_embedding

import rankfold as rf
from rankfold.methods.spectral.walk.filter import ROUNDING

Array = npt.NDArray[Any]

pytestmark = pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")

GRAPHS: dict[str, Callable[[], Any]] = {
    "moons": moons,
    "geometric": geometric,
    "gaussian": lambda: gaussian(700, 5, 8),
    "path": lambda: path(600),
    "ring": lambda: ring(601),
    "grid": lambda: grid(25, 30),
    "star": lambda: star(600),
    "complete": lambda: complete(520),
    "nearly apart": lambda: joined(gaussian(300, 2, 8), gaussian(400, 3, 8), 1e-6),
    "twice the same": lambda: joined(gaussian(350, 4, 8), gaussian(350, 4, 8), 1e-4),
    "few rows": lambda: gaussian(60, 3, 5),
}


def eigenvalues(graph: Any, alpha: float = 0.0) -> Array:
    """All of the walk, from the largest."""
    return np.linalg.eigvalsh(walk_matrix(graph, alpha)[0])[::-1]


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest) -> Any:
    return GRAPHS[request.param]()


# Eigenvalues --------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 4])
def test_eigenpairs_are_those_of_lapack(graph: Any, k: int) -> None:
    result = rf.spectral(graph, k, tol=1e-8)
    matrix, degrees = walk_matrix(graph)
    np.testing.assert_allclose(1 - result.eigenvalues, eigenvalues(graph)[1 : k + 1], rtol=0, atol=1e-8)
    vectors = np.asarray(result.embedding) * np.sqrt(degrees)[:, None]
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(k), atol=1e-10)
    np.testing.assert_allclose(np.sqrt(degrees) @ vectors, 0, atol=1e-10 * np.sqrt(degrees.sum()))
    residuals = np.linalg.norm(matrix @ vectors - vectors * (1 - result.eigenvalues), axis=0)
    np.testing.assert_allclose(residuals, result.residuals, atol=1e-12)
    assert result.attrs["converged"] and result.attrs["connected_components"] == 1


def test_eigenvalues_are_those_of_arpack() -> None:
    lists = rf.knn(np.random.default_rng(0).random((2000, 3)), 12)
    graph = rf.fuzzy_graph(lists)
    weights = graph.graph.astype(float)
    roots = sp.diags_array(np.asarray(weights.sum(axis=1)).ravel() ** -0.5)
    expected = np.sort(eigsh(roots @ weights @ roots, 7, which="LA", tol=1e-13)[0])[::-1][1:]
    for neighbors in (graph, lists):
        result = rf.spectral(neighbors, 6)
        np.testing.assert_allclose(1 - result.eigenvalues, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-6, 1e-10])
def test_claims_hold(graph: Any, tol: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """No eigenvalue is farther off than its estimate, also of those that are nearly equal."""
    monkeypatch.setattr("rankfold.methods.spectral.walk.solve.FEW_ROWS", 20)
    expected = eigenvalues(graph)
    for k in (1, 2, 3, 5):
        for seed in range(2):
            result = rf.spectral(graph, k, tol=tol, seed=seed, threads=1)
            off = np.abs(1 - result.eigenvalues - expected[1 : k + 1])
            assert (off <= result.error_estimates).all(), (k, seed)
            assert (result.error_estimates <= np.maximum(tol * result.eigenvalues, 1e-13)).all()
            relative = result.error_estimates / result.eigenvalues
            is_rounding = result.error_estimates <= 2 * ROUNDING
            largest = np.where(is_rounding, np.minimum(relative, tol), relative).max()
            assert math.isclose(result.attrs["largest_error_estimate"], largest, rel_tol=1e-6)
            assert result.attrs["largest_error_estimate"] <= tol and result.attrs["converged"]


def test_passes_that_are_too_few_are_told() -> None:
    graph = ring(601)
    with pytest.warns(rf.RankfoldWarning, match="after 20 products with the graph, above what tol"):
        result = rf.spectral(graph, 2, passes=20)
    off = np.abs(1 - result.eigenvalues - eigenvalues(graph)[1:3])
    assert not result.attrs["converged"] and result.attrs["passes"] <= 22
    assert (off <= result.error_estimates).all()


def test_coordinates_are_those_of_scikit_learn() -> None:
    for graph in (moons(), gaussian(90, 4, 6)):
        expected = spectral_embedding(graph, n_components=3, random_state=0, eigen_tol=1e-12)
        found = np.asarray(rf.spectral(graph, 3, tol=1e-12).embedding)
        signs = np.sign((found * expected).sum(axis=0))
        np.testing.assert_allclose(found, expected * signs, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize(("alpha", "t"), [(0.0, 1), (0.5, 2), (1.0, 0), (1.0, 3)])
@pytest.mark.parametrize("make", [moons, lambda: gaussian(90, 4, 6)])
def test_a_diffusion_map_is_that_of_its_definition(make: Callable[[], Any], alpha: float, t: int) -> None:
    graph = make()
    matrix, degrees = walk_matrix(graph, alpha)
    values, vectors = (each[..., ::-1] for each in np.linalg.eigh(matrix))
    psi = vectors / np.sqrt(degrees / degrees.sum())[:, None]
    np.testing.assert_allclose(np.abs(psi[:, 0]), 1)
    result = rf.diffusion_map(graph, 3, alpha=alpha, t=t, tol=1e-12)
    np.testing.assert_allclose(result.eigenvalues, values[1:4], atol=1e-10)
    expected, found = psi[:, 1:4] * values[1:4] ** t, np.asarray(result.embedding)
    signs = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found, expected * signs, atol=1e-5 * np.abs(expected).max())


def test_distances_of_a_whole_diffusion_map_are_diffusion_distances() -> None:
    graph = gaussian(50, 3, 5)
    found = np.asarray(rf.diffusion_map(graph, 49, alpha=0.0, t=2).embedding)
    w = graph.toarray()
    degrees = w.sum(axis=1)
    walk = np.linalg.matrix_power(w / degrees[:, None], 2)
    for i, j in ((0, 1), (3, 40), (20, 21)):
        expected = np.sqrt(((walk[i] - walk[j]) ** 2 / (degrees / degrees.sum())).sum())
        assert np.linalg.norm(found[i] - found[j]) == pytest.approx(expected)


# Graphs in several pieces -------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [60, 400])
def test_components_are_told_apart_by_the_first_coordinates(rows: int) -> None:
    parts = gaussian(rows, 3, 8), gaussian(2 * rows, 3, 8, seed=1), gaussian(rows // 2, 2, 8)
    graph = beside(*parts, sp.csr_array((3, 3)))
    order = np.random.default_rng(0).permutation(graph.shape[0])
    graph = graph[order][:, order]
    with pytest.warns(
        rf.RankfoldWarning, match="has 3 components, the largest of .*: the first 2 of 4 coord"
    ):
        result = rf.spectral(graph, 4, tol=1e-8)
    labels, embedding = np.asarray(result.labels), np.asarray(result.embedding)
    sizes = [2 * rows, rows, rows // 2]
    assert [int((labels == each).sum()) for each in (-1, 0, 1, 2)] == [3, *sizes]
    assert result.attrs["connected_components"] == 3 and result.attrs["isolated"] == 3
    np.testing.assert_array_equal(result.eigenvalues[:2], 0)
    expected = np.sort(1 - np.concatenate([eigenvalues(part)[1:4] for part in parts]))
    np.testing.assert_allclose(result.eigenvalues[2:], expected[:2], atol=1e-8)
    np.testing.assert_array_equal(embedding[labels == -1], 0)
    for label in range(3):
        assert (np.ptp(embedding[labels == label, :2], axis=0) < 1e-12).all()
    vectors = embedding * np.sqrt(walk_matrix(graph)[1])[:, None]
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(4), atol=1e-8)
    assert len(np.unique(np.round(embedding[:, :2], 9), axis=0)) == 4


def test_more_components_than_dimensions_need_no_iteration() -> None:
    result = rf.spectral(beside(*(complete(200) for _ in range(5))), 3)
    assert result.attrs["passes"] == 1
    np.testing.assert_array_equal(result.eigenvalues, 0)
    map_ = rf.diffusion_map(beside(*(complete(200) for _ in range(5))), 3)
    np.testing.assert_array_equal(map_.eigenvalues, 1)


def test_components_are_those_of_scipy() -> None:
    graph = sp.random_array((900, 900), density=1.2 / 900, rng=np.random.default_rng(5), format="csr")
    graph = graph + graph.T
    count, expected = sp.csgraph.connected_components(graph)
    labels = np.asarray(rf.spectral(graph, 2).labels)
    with_edges = np.diff(graph.indptr) > 0
    assert ((labels >= 0) == with_edges).all()
    assert (
        len({(a, b) for a, b in zip(labels[with_edges], expected[with_edges], strict=True)})
        == labels.max() + 1
    )
    assert labels.max() + 1 + (~with_edges).sum() == count
    sizes = np.bincount(labels[with_edges])
    assert (np.diff(sizes) <= 0).all()


# Bytes --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> rf.Result:
    folder = tmp_path_factory.mktemp("stored")
    points = np.random.default_rng(0).random((3000, 2))
    return rf.fuzzy_graph(rf.knn(points, 12, out=folder / "knn.zarr"), out=folder / "graph.zarr")


@pytest.mark.parametrize("call", [rf.spectral, rf.diffusion_map])
def test_nothing_changes_a_byte(
    call: Callable[..., rf.Result], stored: rf.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("walk.blocks", "spectral"):
        monkeypatch.setattr(f"rankfold.methods.spectral.{module}.BLOCK_NUMBERS", 9000)
    one = call(stored, 3, out=tmp_path / "1.zarr", threads=1)
    plan = rf.plan(call.__name__, stored, n_components=3, threads=3)
    less = plan.peak_bytes - 1  # the graph does not stay in memory
    three = call(stored, 3, out=tmp_path / "3.zarr", threads=3, memory=less)
    assert three.run["attempts"][-1]["plan"]["slots"] == 2 and plan.slots == 1
    assert same_bytes(one) == same_bytes(three)


def test_what_was_interrupted_goes_on_where_it_was(
    stored: rf.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankfold.pipeline.engine.sweep.SEGMENT_SECONDS", 0.0)
    told: list[int] = []

    def stop_in_the_middle(_: str, rows: int, __: int) -> None:
        told.append(rows)
        if len(told) == 4:
            raise KeyboardInterrupt

    calls = list[int]()
    whole = rf.spectral(stored, 3, out=tmp_path / "whole.zarr", progress=lambda *_: calls.append(0))
    with pytest.raises(KeyboardInterrupt):
        rf.spectral(stored, 3, out=tmp_path / "r.zarr", progress=stop_in_the_middle)
    again = rf.spectral(stored, 3, out=tmp_path / "r.zarr", progress=stop_in_the_middle)
    assert same_bytes(again) == same_bytes(whole)
    assert len(told) == len(calls) + 1  # only the filter that was interrupted was done again


def test_other_seeds_lead_to_the_same_vectors(stored: rf.Result) -> None:
    one, two = (np.asarray(rf.spectral(stored, 3, tol=1e-10, seed=seed).embedding) for seed in (0, 1))
    assert one.tobytes() != two.tobytes()
    np.testing.assert_allclose(one, two, atol=1e-4 * np.abs(one).max())


def test_memory_stays_below_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("walk.blocks", "spectral"):
        monkeypatch.setattr(f"rankfold.methods.spectral.{module}.BLOCK_NUMBERS", 50_000)
    points = np.random.default_rng(0).random((20_000, 2))
    graph = rf.fuzzy_graph(
        rf.knn(points, 15, out=tmp_path / "knn.zarr", threads=1), out=tmp_path / "graph.zarr"
    )
    for call, k in ((rf.spectral, 2), (rf.diffusion_map, 20)):
        peak = rf.plan(call.__name__, graph, n_components=k, threads=2).peak_bytes
        for memory in (peak, peak - 1):
            out = tmp_path / f"{call.__name__}{memory}.zarr"
            attempt = call(graph, k, tol=0.3, out=out, threads=2, memory=memory).run["attempts"][-1]
            assert attempt["plan"]["slots"] == (1 if memory == peak else 2)
            assert attempt["measured_bytes"] <= attempt["planned_bytes"] < 250 * 2**20


# What is degenerate, and what is refused ----------------------------------------------------------


def test_all_rows_in_one_place_have_places() -> None:
    result = rf.spectral(rf.knn(np.zeros((40, 3)), 5), 2)
    assert np.isfinite(np.asarray(result.embedding)).all()


@pytest.mark.parametrize("k", [1, 59])
def test_as_few_and_as_many_dimensions_as_there_are(k: int) -> None:
    graph = gaussian(60, 3, 5)
    result = rf.spectral(graph, k)
    np.testing.assert_allclose(1 - result.eigenvalues, eigenvalues(graph)[1 : k + 1], atol=1e-12)


def test_two_rows_have_a_place() -> None:
    result = rf.spectral(path(2), 1)
    np.testing.assert_allclose(result.eigenvalues, [2])
    np.testing.assert_allclose(np.asarray(result.embedding)[:, 0], [0.5**0.5, -(0.5**0.5)])


def with_weight(weight: float) -> Any:
    graph = path(50).copy()
    graph.data[60] = weight
    return graph


@pytest.mark.parametrize(
    ("make", "asked", "message"),
    [
        (lambda: with_weight(np.nan), {}, "row 30 of .* has an edge to 31 that weighs nan"),
        (lambda: with_weight(np.inf), {}, "that weighs inf: weights of a graph are finite"),
        (lambda: with_weight(-1.0), {}, "that weighs -1.0: weights of a graph are finite, and not negative"),
        (lambda: with_weight(2.0), {}, "is not symmetric: edges of row 30"),
        (lambda: sp.csr_array((9, 9)), {}, "has no edges"),
        (lambda: np.ones((9, 9)), {}, "symmetric sparse matrix of weights, but .* is square and dense"),
        (lambda: path(9), {"n_neighbors": 4}, "n_neighbors is of a search in a matrix"),
        (lambda: path(9), {"n_components": 9}, "9 rows have at most 8 dimensions beside the constant one"),
        (lambda: beside(path(7), sp.csr_array((2, 2))), {"n_components": 7}, "2 of 9 rows have no edges"),
        (lambda: path(9), {"n_components": 0}, "n_components must be at least 1"),
        (lambda: path(9), {"tol": -1.0}, "tol must be at least 0 and below 1"),
        (lambda: path(9), {"tol": np.nan}, "tol must be a finite number"),
        (lambda: path(9), {"passes": 0}, "passes must be at least 1"),
        (lambda: path(9), {"seed": -1}, "seed must lie in"),
        (
            lambda: rf.pca(np.eye(9), 2),
            {},
            "spectral is of one of fuzzy_graph or .* Such a matrix is .*::scores",
        ),
        (lambda: moons(), {"memory": "1MiB"}, "spectral of 700 rows and .* Give memory="),
        (lambda: 7, {}, "cannot read a builtins.int"),
    ],
)
def test_what_has_no_eigenmap_is_refused(
    make: Callable[[], Any], asked: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(rf.RankfoldError, match=message):
        rf.spectral(make(), **asked, out=tmp_path / "r.zarr")
    assert not (tmp_path / "r.zarr").exists()


@pytest.mark.parametrize(
    ("asked", "message"), [({"alpha": 2.0}, "alpha must lie"), ({"t": -1}, "t must be at least 0")]
)
def test_what_is_no_walk_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(rf.RankfoldError, match=message):
        rf.diffusion_map(path(9), **asked)


def test_a_plan_says_what_a_run_takes(tmp_path: Path) -> None:
    lists = rf.knn(np.random.default_rng(0).random((2000, 3)), 8, out=tmp_path / "knn.zarr")
    for name in ("spectral", "diffusion_map"):
        plan = rf.plan(name, tmp_path / "knn.zarr", n_components=2)
        assert plan.kind == name and plan.peak_bytes > 0
        result = getattr(rf, name)(lists, out=tmp_path / f"{name}.zarr")
        assert result.attrs["passes"] <= plan.most_passes
