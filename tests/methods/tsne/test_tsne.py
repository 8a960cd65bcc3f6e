"""t-SNE: affinities, divergence and quality as those of peers, the same in any threads, refused in words."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from reference import same_bytes
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE, trustworthiness
from sklearn.manifold._t_sne import _joint_probabilities_nn

import rankfold as rf
from rankfold import estimators
from rankfold.api.execute import run
from rankfold.kernels.graph.perplexity import affinities
from rankfold.methods.fuzzy_graph.fuzzy_graph import AffinitySides, FuzzyGraph
from rankfold.methods.fuzzy_graph.lists import StoredLists
from rankfold.methods.tsne.grid import NODE_BYTES, GridRepulsion, lattice_of, most_nodes
from rankfold.methods.tsne.repulsion import (
    FEW_ROWS,
    PairRepulsion,
    TreeRepulsion,
    error_of,
    repulsion_of,
)
from rankfold.pipeline.engine import sweep
from rankfold.pipeline.errors import InputError

Array = npt.NDArray[Any]
QUICK: dict[str, Any] = {"n_iter": 20, "early_exaggeration_iter": 15, "perplexity": 3}


@pytest.fixture(scope="module")
def digits() -> Array:
    images: Array = load_digits(return_X_y=True)[0]
    return images


@pytest.fixture(scope="module")
def near(digits: Array, tmp_path_factory: pytest.TempPathFactory) -> rf.Result:
    return rf.knn(digits, 90, out=tmp_path_factory.mktemp("digits") / "knn.zarr", threads=1)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> rf.Result:
    """Neighbors of more rows than go pair by pair."""
    x = np.random.default_rng(0).standard_normal((FEW_ROWS + 500, 3))
    return rf.knn(x, 10, out=tmp_path_factory.mktemp("many") / "knn.zarr", threads=1)


def weights_of(distances: Array, perplexity: float) -> Array:
    out = np.empty(distances.shape)
    affinities(distances, np.array([perplexity]), out=out)
    return out


def perplexities_of(weights: Array) -> Array:
    logarithms = np.log(np.where(weights > 0, weights, 1))
    return np.asarray(np.exp(-(weights * logarithms).sum(axis=1)))


# Affinities ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-150, 1e-6, 1.0, 1e6, 1e38])
def test_weights_have_the_perplexity_that_is_asked_for_at_any_scale(scale: float) -> None:
    distances = np.random.default_rng(0).random((50, 40)) * scale
    np.testing.assert_allclose(perplexities_of(weights_of(distances, 13.0)), 13, rtol=1e-8)


def test_rows_with_too_many_at_one_distance_have_the_limit() -> None:
    distances = np.ones((4, 12))
    distances[1, :5], distances[2, :3] = 0, 0
    distances[3] = 0
    weights = weights_of(distances, 4.0)
    np.testing.assert_allclose(weights[0], 1 / 12)
    np.testing.assert_allclose(weights[1], np.where(distances[1] == 0, 1 / 5, 0))
    np.testing.assert_allclose(perplexities_of(weights[2:3]), 4)
    np.testing.assert_allclose(weights[3], 1 / 12)


def test_the_graph_is_that_of_scikit_learn(near: rf.Result, tmp_path: Path) -> None:
    rows = near.indices.shape[0]
    sides = AffinitySides((30.0,), rows)
    graph = FuzzyGraph(StoredLists.of(near, 90), sides)
    ours = run(graph, {"out": tmp_path / "graph.zarr"}).graph
    pointers = np.arange(rows + 1) * 90
    squares = np.asarray(near.distances[...]).ravel() ** 2
    lists = scipy.sparse.csr_matrix((squares, np.asarray(near.indices[...]).ravel(), pointers), (rows, rows))
    theirs = _joint_probabilities_nn(lists, 30.0, 0)
    # Theirs are float32, and stop where an entropy is within 1e-5 of its target.
    difference = abs(scipy.sparse.csr_matrix(ours) - theirs).max()
    assert difference < 1e-4 * theirs.max()
    assert abs(ours.sum() - 1) < 1e-5


# Pushes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "scale", "most"), [(2, 30.0, 0.02), (2, 1.0, 1e-4), (2, 1e-4, 1e-4), (1, 50.0, 0.05)]
)
def test_a_grid_pushes_as_all_pairs_do(width: int, scale: float, most: float) -> None:
    rng = np.random.default_rng(0)
    positions = (scale * rng.standard_normal((5000, width))).astype(np.float32)
    push, near = np.empty_like(positions), np.empty(5000)
    with ThreadPoolExecutor(2) as pool:
        grid, pairs = GridRepulsion(5000, pool, 2), PairRepulsion()
        total = grid.prepare(positions)
        assert error_of(grid, positions, 0) < most  # what is measured with four times the spacing of splines
        assert pairs.prepare(positions) is None and error_of(pairs, positions, 0) == 0
    pairs.push(0, push, near)
    assert total == pytest.approx(near.sum(), rel=1e-3)


@pytest.mark.parametrize("far", [(0, 0), (1e5, 0), (0, 1e9), (1e5, 1e5), (4000, 90)])
@pytest.mark.parametrize("width", [1, 2])
def test_a_grid_takes_the_memory_that_is_planned_however_far_rows_lie(
    width: int, far: tuple[float, float]
) -> None:
    rng = np.random.default_rng(0)
    positions = (20 * rng.standard_normal((5000, width))).astype(np.float32)
    positions[0] = far[:width]
    positions[1:2500] *= 1 + max(far) / 1000
    with ThreadPoolExecutor(2) as pool:
        GridRepulsion(5000, pool, 2).prepare(positions[:100])  # libraries that are loaded count once
        tracemalloc.start()
        GridRepulsion(5000, pool, 2).prepare(positions, with_near=True)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak <= NODE_BYTES * most_nodes(5000)


@pytest.mark.parametrize(("scale", "most"), [(30.0, 0.02), (1.0, 0.02), (1e-4, 1e-4)])
def test_a_tree_pushes_as_all_pairs_do_for_any_threads(scale: float, most: float) -> None:
    rng = np.random.default_rng(0)
    positions = (scale * rng.standard_normal((5000, 3))).astype(np.float32)
    near, pushes, pairs = np.empty(5000), [], PairRepulsion()
    with ThreadPoolExecutor(3) as pool:
        for threads in (1, 3):
            tree = repulsion_of(5000, 3, pool, threads)
            assert isinstance(tree, TreeRepulsion)
            total = tree.prepare(positions)
            assert error_of(tree, positions, 0) < most  # a percent is what the opening is for
            pushes.append(tree.pushes.tobytes())
    pairs.prepare(positions)
    pairs.push(0, np.empty_like(positions), near)
    assert total == pytest.approx(near.sum(), rel=1e-3) and pushes[0] == pushes[1]


def test_an_embedding_in_space_goes_by_a_tree(many: rf.Result, tmp_path: Path) -> None:
    out = tmp_path / "r.zarr"
    result = rf.tsne(many, n_components=3, perplexity=3, n_iter=10, early_exaggeration_iter=10, out=out)
    assert result.attrs["method"] == "tree" and result.attrs["repulsion_error"] < 0.02
    attempt = result.run["attempts"][-1]
    assert 0 < attempt["measured_bytes"] <= attempt["planned_bytes"]
    again = rf.tsne(many, n_components=3, perplexity=3, n_iter=10, early_exaggeration_iter=10, threads=1)
    assert again.embedding[...].tobytes() == result.embedding[...].tobytes()


def test_a_wide_embedding_has_no_more_nodes_than_are_planned_for() -> None:
    positions = np.array([[-4000.0, 0], [4000, 9000]], np.float32)
    lattice, shape = lattice_of(positions, most_nodes(10))
    assert shape[0] * shape[1] <= most_nodes(10) and lattice.spacing > 1
    assert lattice_of(np.zeros((3, 2), np.float32), 2**18)[0].spacing > 0


# Embeddings ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_embedding_is_as_good_as_that_of_scikit_learn(near: rf.Result, digits: Array) -> None:
    ours = rf.tsne(near, init="pca", matrix=digits, n_iter=750, threads=1)
    theirs = TSNE(init="pca", random_state=0).fit(digits)
    # The same divergence is lowered; where it ends differs by some hundredths from start to start.
    assert ours.attrs["kl_divergence"] < 1.03 * theirs.kl_divergence_
    assert trustworthiness(digits, ours.embedding[...]) > trustworthiness(digits, theirs.embedding_) - 0.003


@pytest.mark.parametrize("rows", [100, 250])
def test_few_rows_come_as_far_in_as_many_steps_as_with_scikit_learn(rows: int, digits: Array) -> None:
    """In the median of seven random starts: minima of few rows differ by a fifth from start to start."""
    some = digits[:rows]

    def medians(estimator: Any) -> tuple[float, float]:
        fitted = [estimator(max_iter=400, init="random", random_state=seed).fit(some) for seed in range(7)]
        kept = [trustworthiness(some, each.embedding_) for each in fitted]
        return float(np.median([each.kl_divergence_ for each in fitted])), float(np.median(kept))

    (ours, our_trust), (theirs, their_trust) = medians(estimators.TSNE), medians(TSNE)
    assert ours < 1.1 * theirs  # 1.6 and 4 times while gains stayed at their least
    assert our_trust > their_trust - 0.003


def test_the_divergence_is_that_of_its_definition(many: rf.Result) -> None:
    result = rf.tsne(many, **QUICK, threads=2)
    embedding = np.asarray(result.embedding[...], np.float64)
    distances, indices = np.asarray(many.distances[:, :9]), np.asarray(many.indices[:, :9])
    rows = len(embedding)
    p = np.zeros((rows, rows))
    np.put_along_axis(p, indices, weights_of(distances, 3.0), 1)
    p = (p + p.T) / (2 * rows)
    q = 1 / (1 + cdist(embedding, embedding, "sqeuclidean"))
    np.fill_diagonal(q, 0)
    q /= q.sum()
    some = p > 0
    # The sum over all pairs is right to the error of the grid at one of its nodes.
    expected = (p[some] * np.log(p[some] / q[some])).sum()
    assert result.attrs["kl_divergence"] == pytest.approx(expected, abs=2e-3)
    assert result.history[:, 0].tolist() == [0, 35]
    assert result.attrs["repulsion_error"] < 0.05


@pytest.mark.parametrize("width", [1, 2, 3])
def test_threads_change_no_byte(many: rf.Result, width: int) -> None:
    how = {**QUICK, "n_components": width, "init": "random", "n_iter": 3}
    one, three = (rf.tsne(many, **how, threads=threads) for threads in (1, 3))
    assert same_bytes(one) == same_bytes(three)
    assert np.isfinite(one.embedding[...]).all() and one.embedding.shape[1] == width


def test_what_was_interrupted_ends_with_the_same_bytes(
    many: rf.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "SEGMENT_SECONDS", 0.0)
    whole = rf.tsne(many, **QUICK, init="random", out=tmp_path / "whole.zarr", threads=2)
    steps = 0

    def interrupt(name: str, done: int, total: int) -> None:
        nonlocal steps
        steps += name == "descent"
        if steps == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rf.tsne(many, **QUICK, init="random", out=tmp_path / "r.zarr", progress=interrupt)
    again = rf.tsne(many, **QUICK, init="random", out=tmp_path / "r.zarr", threads=1)
    assert same_bytes(again) == same_bytes(whole)


def test_rows_that_are_equal_stay_together_and_few_rows_are_embedded() -> None:
    equal = rf.tsne(rf.knn(np.ones((40, 3)), 9), **QUICK)
    assert np.isfinite(equal.embedding[...]).all()
    twice = np.repeat(np.random.default_rng(0).standard_normal((30, 4)), 2, axis=0)
    start = np.repeat(np.random.default_rng(1).standard_normal((30, 2)), 2, axis=0)
    slow = {"perplexity": 3, "n_iter": 400, "early_exaggeration_iter": 100, "learning_rate": 10}
    embedding = rf.tsne(rf.knn(twice, 9), **slow, init=start).embedding[...]
    apart = np.linalg.norm(embedding[::2] - embedding[1::2], axis=1)
    assert np.median(apart) < 0.1 * np.median(np.linalg.norm(embedding - embedding.mean(axis=0), axis=1))
    pair = rf.tsne(rf.knn(np.arange(2.0)[:, None], 1), n_iter=5, perplexity=1, init="random")
    assert pair.embedding.shape == (2, 2) and np.isfinite(pair.attrs["kl_divergence"])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: rf.tsne(x, perplexity=3, init="pca"),
        lambda x: rf.tsne(rf.knn(x, 9), perplexity=3, init="pca", matrix=x),
        lambda x: estimators.TSNE(perplexity=3).fit(x),
        lambda x: rf.umap(x, init="pca"),
        lambda x: estimators.UMAP(init="pca").fit(x),
    ],
    ids=["of a matrix", "of lists", "estimator", "umap", "estimator of umap"],
)
def test_equal_rows_have_no_principal_components_to_begin_at(call: Any) -> None:
    with pytest.raises(rf.RankfoldError, match=r"all rows of .* are equal, .* embedding nothing to show"):
        call(np.ones((20, 4)))


def test_rows_that_are_added_begin_among_their_neighbors(many: rf.Result) -> None:
    rows = many.indices.shape[0]
    first = rf.tsne(many, **QUICK, init="random").embedding[: rows - 100]
    more = rf.tsne(many, **QUICK, init=np.asarray(first))
    assert more.embedding.shape == (rows, 2)
    again = rf.tsne(many, **QUICK, init=more)
    assert again.attrs["kl_divergence"] < 5


def test_several_perplexities_are_averaged() -> None:
    distances = np.sort(np.random.default_rng(0).random((20, 30)), axis=1)
    both = np.empty(distances.shape)
    affinities(distances, np.array([3.0, 9.0]), out=both)
    np.testing.assert_allclose(both, (weights_of(distances, 3.0) + weights_of(distances, 9.0)) / 2)


def test_steps_end_where_the_gradient_is_short(many: rf.Result) -> None:
    result = rf.tsne(many, perplexity=3, early_exaggeration_iter=0, n_iter=500, min_grad_norm=1.0)
    assert result.attrs["steps"] == 0 and len(result.history) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"perplexity": 5},
            r"takes 15 neighbors of each row, but there are 10: search for more, rf.knn\(x, k=15",
        ),
        ({"perplexity": 4000}, "more than the 3499 neighbors that 3500 rows have"),
        ({"perplexity": 0.5}, "from 1 on"),
        ({"perplexity": "3;4"}, "must be a number, or several"),
        ({"perplexity": 3, "init": "pca"}, "give it too, matrix=x"),
        ({"perplexity": 3, "init": "nowhere"}, "init 'nowhere' is not known"),
        ({"perplexity": 3, "init": np.zeros((9, 3))}, "have shape"),
        ({"perplexity": 3, "final_momentum": 1.0}, "below 1"),
        ({"perplexity": 3, "exaggeration": -1}, "exaggeration must lie in"),
        ({"perplexity": 3, "learning_rate": 1e12, "n_iter": 5}, None),
    ],
)
def test_what_cannot_be_done_is_refused(many: rf.Result, arguments: Any, words: str | None) -> None:
    if words is None:  # steps have a longest length: far too large a rate throws nothing out of range
        assert np.isfinite(rf.tsne(many, **{**QUICK, **arguments}).embedding[...]).all()
        return
    with pytest.raises(InputError, match=words):
        rf.tsne(many, **arguments)


# New rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_new_row_comes_to_the_same_place_in_any_company(width: int) -> None:
    x = np.random.default_rng(0).standard_normal((400, 4)) + 6 * (np.arange(400) % 2)[:, None]
    fitted, new = x[:300], x[300:]
    how: dict[str, Any] = {"n_components": width, "n_iter": 100, "early_exaggeration_iter": 50}
    result = rf.tsne(rf.knn(fitted, 30), **how, perplexity=10)

    def places(some: Array, threads: int = 1) -> Array:
        lists = rf.knn(fitted, 15, queries=some)
        return np.asarray(rf.transform(result, lists, threads=threads).embedding[...])

    whole = places(new, 3)
    assert np.isfinite(whole).all() and whole.shape == (100, width)
    for part in (slice(0, 1), slice(1, 60), slice(60, 100)):
        assert places(new[part]).tobytes() == whole[part].tobytes()
    known = places(fitted[:50])
    np.testing.assert_array_equal(known, result.embedding[:50])
    centers = np.stack([result.embedding[each:300:2].mean(axis=0) for each in range(2)])
    nearer = cdist(whole, centers).argmin(axis=1)
    assert (nearer == np.arange(100) % 2).mean() > 0.95
