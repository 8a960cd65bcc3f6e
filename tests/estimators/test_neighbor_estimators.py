"""Neighbors as scikit-learn finds them, for what lies on disk too, and samples that know themselves."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import zarr
from covers import cover
from reference import to_zarr
from sklearn import neighbors
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.manifold import TSNE, Isomap, SpectralEmbedding
from sklearn.metrics.tests.test_pairwise_distances_reduction import assert_compatible_argkmin_results
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import rankfold as rf
from rankfold.estimators import KNeighborsTransformer, NearestNeighbors, RadiusNeighborsTransformer
from rankfold.methods.knn import knn

METRICS: list[dict[str, Any]] = [
    {},
    {"p": 1},
    {"p": np.inf},
    {"metric": "l2"},
    {"metric": "sqeuclidean"},
    {"metric": "cosine"},
    {"metric": "correlation"},
    {"metric": "cityblock"},
    {"metric": "chebyshev"},
    {"metric": "infinity"},
    {"p": 3, "metric_params": {"p": 1}},
]
"""Those that rankfold searches with."""

NEAR = {"rtol": 1e-7, "atol": 1e-6}
"""scikit-learn takes squared distances from products: what they round off, 2e-16 of squared norms below 100,
shows by its root where a distance is 0."""


def samples(rows: int = 300, columns: int = 20, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)) + 1


def repeated() -> np.ndarray:
    """Eleven rows that are equal, among others."""
    x = samples(60)
    x[7:51:4] = x[3]
    return x


def assert_same_graph(ours: Any, theirs: Any) -> None:
    """Of the same edges in the same order."""
    assert type(ours) is type(theirs) and ours.shape == theirs.shape
    np.testing.assert_array_equal(ours.indptr, theirs.indptr)
    np.testing.assert_array_equal(ours.indices, theirs.indices)
    np.testing.assert_allclose(ours.data, theirs.data, **NEAR)


@parametrize_with_checks([KNeighborsTransformer()])
def test_scikit_learn_finds_no_fault(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.exhaustive
@parametrize_with_checks(
    [
        KNeighborsTransformer(mode="connectivity", n_neighbors=2, metric="cosine"),
        NearestNeighbors(),
        RadiusNeighborsTransformer(),
    ]
)
def test_scikit_learn_finds_no_fault_in_the_others(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(("asked", "mode"), cover(METRICS, ["distance", "connectivity"], strength=1))
@pytest.mark.filterwarnings("ignore:Parameter p is found")
def test_graphs_are_those_of_scikit_learn(asked: dict[str, Any], mode: str) -> None:
    x, new = samples(), samples(40, seed=1)
    with pytest.MonkeyPatch.context() as patch:
        calls: list[Any] = []
        patch.setattr(rf, "knn", lambda *a, found=rf.knn, **o: calls.append(a) or found(*a, **o))
        ours = KNeighborsTransformer(mode=mode, n_neighbors=7, **asked)
        graph = ours.fit_transform(x)
        moved = ours.transform(new)
    assert len(calls) == 2
    theirs = neighbors.KNeighborsTransformer(mode=mode, n_neighbors=7, **asked)
    assert_same_graph(graph, theirs.fit_transform(x))
    assert_same_graph(ours.transform(x), theirs.transform(x))
    assert_same_graph(moved, theirs.transform(new))
    assert ours.effective_metric_ == theirs.effective_metric_
    assert ours.effective_metric_params_ == theirs.effective_metric_params_
    assert list(ours.get_feature_names_out()) == list(theirs.get_feature_names_out())


@pytest.mark.parametrize(
    ("metric", "dtype"), [("hamming", bool), ("hamming", float), ("jaccard", bool), ("jaccard", np.int64)]
)
@pytest.mark.filterwarnings("ignore:Data was converted to boolean")
def test_bits_are_compared_as_scikit_learn_compares_them(metric: str, dtype: type, tmp_path: Path) -> None:
    """Of what is equally far scikit-learn takes any: distances are the same to the last bit."""
    x = (np.random.default_rng(0).random((300, 45)) < 0.3).astype(dtype)
    x[7:30:4] = x[3]
    theirs = neighbors.NearestNeighbors(n_neighbors=7, metric=metric, algorithm="brute").fit(x)
    expected, _ = theirs.kneighbors()
    every = theirs.kneighbors(n_neighbors=299)
    apart = np.zeros((300, 300))
    np.put_along_axis(apart, every[1], every[0], axis=1)
    for samples in (x, str(to_zarr(tmp_path / "x.zarr", x, (100, 45)))):
        distances, indices = NearestNeighbors(n_neighbors=7, metric=metric).fit(samples).kneighbors()
        np.testing.assert_array_equal(distances, expected)
        np.testing.assert_array_equal(np.take_along_axis(apart, indices, axis=1), expected)
    graph = KNeighborsTransformer(n_neighbors=7, metric=metric).fit_transform(x)
    assert graph.shape == (300, 300) and graph.nnz == 8 * 300
    np.testing.assert_array_equal(graph.data.reshape(300, 8)[:, 1:], expected)


@pytest.mark.parametrize(
    ("columns", "metric", "dtype"),
    cover(
        [3, 30],
        ["euclidean", "cosine", "manhattan", "sqeuclidean", "chebyshev"],
        [np.float64, np.float32, np.int64],
    ),
)
def test_rows_equally_far_may_be_any_of_them(columns: int, metric: str, dtype: Any) -> None:
    x = np.random.default_rng(0).integers(1, 4, size=(200, columns)).astype(dtype)
    ours = NearestNeighbors(n_neighbors=9, metric=metric).fit(x)
    theirs = neighbors.NearestNeighbors(n_neighbors=9, metric=metric, algorithm="brute").fit(x)
    rtol = 1e-5 if dtype == np.float32 else 1e-7
    # Where one is 0 the other is the root of what its products round off.
    atol = 1e-3 if dtype == np.float32 else 1e-7
    distances, indices = ours.kneighbors(x[:50])
    expected, others = theirs.kneighbors(x[:50])
    assert distances.dtype == np.float64 and indices.dtype == np.int64
    assert_compatible_argkmin_results(expected, distances, others, indices, rtol=rtol, atol=atol)
    np.testing.assert_array_equal(ours.kneighbors(x[:50], return_distance=False), indices)


def test_a_sample_is_told_from_its_equals_by_its_number() -> None:
    x = repeated()
    alike = np.flatnonzero((x == x[3]).all(axis=1))
    distances, indices = NearestNeighbors(n_neighbors=4).fit(x).kneighbors()
    assert not (indices == np.arange(len(x))[:, None]).any()
    for row in alike:
        np.testing.assert_array_equal(indices[row], alike[alike != row][:4])
        assert not distances[row].any()
    for mode, k in (("distance", 5), ("connectivity", 4)):
        graph = KNeighborsTransformer(n_neighbors=4, mode=mode).fit_transform(x)
        listed = graph.indices.reshape(len(x), k)
        np.testing.assert_array_equal(listed[:, 0], np.arange(len(x)))
        assert all(len(set(row)) == k for row in listed)
        assert graph.data.reshape(len(x), k)[:, 0].max() == (mode == "connectivity")


@pytest.mark.parametrize(("mode", "rows", "k"), cover(["distance", "connectivity"], [1, 2, 6], [1, 5, 6, 7]))
def test_as_many_neighbors_as_there_are_and_no_more(rows: int, k: int, mode: str) -> None:
    x = samples(rows)
    both = [
        make(mode=mode, n_neighbors=k) for make in (KNeighborsTransformer, neighbors.KNeighborsTransformer)
    ]
    outcomes = []
    for model in both:
        try:
            outcomes.append(model.fit_transform(x))
        except ValueError as error:
            outcomes.append(str(error))
    if isinstance(outcomes[1], str):
        assert outcomes[0] == outcomes[1]
    else:
        assert_same_graph(*outcomes)


def test_what_scikit_learn_refuses_is_refused_in_its_words() -> None:
    ours, theirs = NearestNeighbors().fit(samples(9)), neighbors.NearestNeighbors().fit(samples(9))
    for asked in (
        {"n_neighbors": -1.5},
        {"n_neighbors": 0},
        {"n_neighbors": 9},
        {"n_neighbors": 2.5},
        {"X": samples(2, 3)},
    ):
        with pytest.raises((ValueError, TypeError)) as expected:
            theirs.kneighbors(**asked)
        with pytest.raises(expected.type) as found:
            ours.kneighbors(**asked)
        assert str(found.value) == str(expected.value)
    with pytest.raises(ValueError, match="Unsupported mode"):
        ours.kneighbors_graph(mode="both")
    with pytest.raises(ValueError, match="not valid"):
        NearestNeighbors(metric="cosine", algorithm="kd_tree").fit(samples(9))


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan"])
def test_sparse_samples_have_the_neighbors_of_dense_ones(metric: str) -> None:
    x = scipy.sparse.random_array((200, 50), density=0.3, rng=0, format="csr")
    ours = KNeighborsTransformer(metric=metric)
    graph, dense = ours.fit_transform(x), clone(ours).fit_transform(x.toarray())
    assert_same_graph(graph, dense)
    assert_same_graph(ours.transform(x[:9]), ours.transform(x[:9].toarray()))
    assert_same_graph(graph, neighbors.KNeighborsTransformer(metric=metric).fit_transform(x))


@pytest.mark.parametrize(
    "chain",
    [
        (10, "distance", Isomap(n_neighbors=10, metric="precomputed")),
        (
            16,
            "distance",
            TSNE(metric="precomputed", init="random", perplexity=5, max_iter=250, random_state=0),
        ),
        (8, "connectivity", SpectralEmbedding(affinity="precomputed", random_state=0)),
    ],
    ids=lambda chain: type(chain[2]).__name__,
)
def test_what_follows_in_a_pipeline_is_the_same(chain: tuple[int, str, Any]) -> None:
    k, mode, last = chain
    x = make_blobs(200, 5, centers=1, random_state=0)[0]
    found = [
        make_pipeline(make(n_neighbors=k, mode=mode), clone(last)).fit_transform(x)
        for make in (KNeighborsTransformer, neighbors.KNeighborsTransformer)
    ]
    # Gradient descent of t-SNE makes more of the last bit of a distance than eigenvectors do.
    np.testing.assert_allclose(*found, rtol=0, atol=1e-6 * np.abs(found[1]).max())


@pytest.mark.slow  # umap-learn compiles for a minute
def test_umap_takes_the_lists_of_a_search() -> None:
    umap = pytest.importorskip("umap", reason="umap-learn is not installed")
    x = make_blobs(150, 5, random_state=0)[0].astype(np.float32)
    both = []
    for make in (NearestNeighbors, neighbors.NearestNeighbors):
        distances, indices = make(n_neighbors=10).fit(x).kneighbors(x)
        lists = (indices, distances.astype(np.float32))
        both.append(umap.UMAP(n_neighbors=10, precomputed_knn=lists, random_state=0, n_epochs=20).fit(x))
    graphs = [model.graph_ for model in both]
    assert abs(graphs[0] - graphs[1]).max() < 1e-5


def test_samples_on_disk_have_the_neighbors_of_those_in_memory(tmp_path: Path) -> None:
    x, new = samples(500, 12), samples(70, 12, seed=1)
    store, others = to_zarr(tmp_path / "x.zarr", x, (64, 12)), to_zarr(tmp_path / "new.zarr", new, (30, 12))
    memory = KNeighborsTransformer().fit(x)
    graph = KNeighborsTransformer().fit_transform(x)
    for where in (store, Path(store), zarr.open_array(store), rf.open(store)):
        found = KNeighborsTransformer(memory="256MiB")
        assert_same_graph(found.fit_transform(where), graph)
        assert found.n_features_in_ == 12 and found.n_samples_fit_ == 500
        for queries in (new, others):
            assert_same_graph(found.transform(queries), memory.transform(new))
            assert_same_graph(memory.transform(queries), memory.transform(new))
        np.testing.assert_array_equal(found.kneighbors(others, 3)[1], memory.kneighbors(new, 3)[1])
        np.testing.assert_array_equal(found.kneighbors()[1], memory.kneighbors()[1])
        again = pickle.loads(pickle.dumps(found))
        assert_same_graph(again.kneighbors_graph(mode="distance"), found.kneighbors_graph(mode="distance"))
        assert not any(isinstance(value, np.ndarray) for value in vars(found).values())


def test_long_lists_of_samples_on_disk_stay_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = samples(500, 12)
    store = to_zarr(tmp_path / "x.zarr", x, (64, 12))
    monkeypatch.setattr("rankfold.pipeline.storage.result.LAZY_BYTES", 1000)
    monkeypatch.setattr("rankfold.estimators.neighbors.COPIED_BYTES", 1000)
    disk, memory = NearestNeighbors().fit(store), NearestNeighbors().fit(x)
    for stay, found in (
        (True, disk.kneighbors()),
        (True, memory.kneighbors(store)),
        (False, disk.kneighbors(x)),
    ):
        assert all(isinstance(part, zarr.Array if stay else np.ndarray) for part in found)
        np.testing.assert_array_equal(disk.kneighbors(x)[1], memory.kneighbors(x)[1])
    for given in (None, x, store):
        graph = disk.kneighbors_graph(given, mode="distance")
        assert_same_graph(graph, memory.kneighbors_graph(None if given is None else x, mode="distance"))
    assert_same_graph(
        KNeighborsTransformer().fit_transform(store), neighbors.KNeighborsTransformer().fit_transform(x)
    )


def test_what_samples_on_disk_cannot_have_is_said(tmp_path: Path) -> None:
    x = samples(50, 5)
    store = to_zarr(tmp_path / "x.zarr", x, (20, 5))
    for asked in (
        {"metric": "canberra"},
        {"metric": "precomputed"},
        {"p": 3},
        {"metric_params": {"w": [1] * 5}},
    ):
        with pytest.raises(ValueError, match="is for samples in memory"):
            NearestNeighbors(**asked).fit(store)
    with pytest.raises(ValueError, match="is for samples in memory"):
        NearestNeighbors(metric="canberra").fit(x).kneighbors(store)
    with pytest.raises(ValueError, match="that numba compiles"):
        NearestNeighbors(metric=lambda a, b: np.linalg.norm(a - b, ord="nuc")).fit(store)
    with pytest.raises(ValueError, match="is for samples in memory"):
        NearestNeighbors(metric="canberra").fit(NearestNeighbors().fit(store))
    shares = NearestNeighbors(metric="hamming")
    for fitted, given in ((clone(shares).fit(store), x), (clone(shares).fit(x), store)):
        with pytest.raises(TypeError, match="take samples in memory"):
            fitted.radius_neighbors(given)
    with pytest.raises(ValueError, match="set_output"):
        KNeighborsTransformer().set_output(transform="pandas").fit_transform(store)
    with pytest.raises(ValueError, match="columns"):
        NearestNeighbors().fit(store).kneighbors(to_zarr(tmp_path / "y.zarr", x[:, :4], (20, 4)))


def test_metrics_that_are_scikit_learns_are_left_to_it() -> None:
    x = np.abs(samples(60, 5))
    precomputed = neighbors.NearestNeighbors().fit(x).kneighbors_graph(n_neighbors=20, mode="distance")
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"metric": "canberra"}, x),
        ({"p": 3}, x),
        ({"metric": "minkowski", "metric_params": {"w": np.arange(1, 6)}}, x),
        ({"metric": "precomputed"}, precomputed),
        ({"metric": lambda a, b: float(len({str(step) for step in a - b}))}, x),
        ({"metric": functools.partial(np.dot)}, x),
    ]
    for asked, given in cases:
        ours, theirs = (make(**asked).fit(given) for make in (NearestNeighbors, neighbors.NearestNeighbors))
        np.testing.assert_array_equal(ours.kneighbors()[0], theirs.kneighbors()[0])
        assert ours.effective_metric_ == theirs.effective_metric_
    tree = neighbors.BallTree(x, metric="manhattan")
    np.testing.assert_array_equal(
        NearestNeighbors().fit(tree).kneighbors(x)[1], neighbors.NearestNeighbors().fit(tree).kneighbors(x)[1]
    )


def test_a_function_that_numba_compiles_is_taken_on_disk_too(tmp_path: Path) -> None:
    def squares(a: Any, b: Any) -> Any:
        return ((a - b) ** 2).sum()

    x = samples(80, 5)
    found = NearestNeighbors(metric=squares).fit(to_zarr(tmp_path / "x.zarr", x, (30, 5))).kneighbors()
    expected = neighbors.NearestNeighbors(metric="sqeuclidean").fit(x).kneighbors()
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(NearestNeighbors(metric=squares).fit(x).kneighbors()[1], found[1])


def test_a_search_takes_the_samples_of_another_and_those_of_a_radius() -> None:
    x = samples(50, 4)
    first = neighbors.NearestNeighbors().fit(x)
    again = NearestNeighbors(metric="manhattan").fit(first)
    np.testing.assert_array_equal(
        again.kneighbors()[1], neighbors.NearestNeighbors(metric="manhattan").fit(x).kneighbors()[1]
    )
    ours, theirs = NearestNeighbors(radius=2).fit(x), neighbors.NearestNeighbors(radius=2).fit(x)
    found, expected = (model.radius_neighbors_graph(mode="distance").toarray() for model in (ours, theirs))
    np.testing.assert_allclose(found, expected, **NEAR)


@pytest.mark.parametrize("asked", [{}, {"p": 1}, {"metric": "chebyshev"}])
def test_a_radius_on_disk_is_that_in_memory(asked: dict[str, Any], tmp_path: Path) -> None:
    x = samples(200, 3)
    store, theirs = to_zarr(tmp_path / "x.zarr", x, (30, 3)), neighbors.NearestNeighbors(**asked).fit(x)
    ours = NearestNeighbors(**asked).fit(store)
    for given in (None, x[:20], to_zarr(tmp_path / "q.zarr", x[:20], (9, 3))):
        some = x[:20] if isinstance(given, str) else given
        distances, indices = theirs.radius_neighbors(some, 0.7, sort_results=True)
        found = ours.radius_neighbors(given, 0.7)
        for i in range(len(indices)):
            np.testing.assert_array_equal(found[1][i], indices[i])
            np.testing.assert_allclose(found[0][i], distances[i], **NEAR)
        np.testing.assert_array_equal(
            ours.radius_neighbors_graph(given, 0.7).toarray(),
            theirs.radius_neighbors_graph(some, 0.7).toarray(),
        )


@pytest.mark.parametrize("mode", ["distance", "connectivity"])
def test_a_graph_of_a_radius_is_scikit_learns(mode: str, tmp_path: Path) -> None:
    x = repeated()[:, :3]
    ours = RadiusNeighborsTransformer(mode=mode, radius=0.9)
    theirs = neighbors.RadiusNeighborsTransformer(mode=mode, radius=0.9)
    expected = theirs.fit_transform(x)
    for given in (x, to_zarr(tmp_path / "x.zarr", x, (25, 3))):
        found = ours.fit_transform(given)
        np.testing.assert_array_equal(found.indptr, expected.indptr)
        np.testing.assert_allclose(found.toarray(), expected.toarray(), **NEAR)
        np.testing.assert_array_equal(ours.get_feature_names_out(), theirs.get_feature_names_out())


def test_a_recall_that_is_enough_makes_a_graph_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same graph as the lists of such a search; new samples have exact neighbors."""
    monkeypatch.setattr(knn, "is_cheaper", lambda _: True)
    x = np.random.default_rng(0).standard_normal((900, 20))
    ours = KNeighborsTransformer(n_neighbors=4, min_recall=0.8)
    graph, lists = ours.fit_transform(x), rf.knn(x, 4, min_recall=0.8, threads=1)
    assert lists.attrs["method"] == "approximate"
    np.testing.assert_array_equal(graph.indices.reshape(-1, 5)[:, 1:], lists.indices[...])
    near = neighbors.KNeighborsTransformer(n_neighbors=4).fit(x).transform(x[:50] + 0.1)
    np.testing.assert_array_equal(ours.transform(x[:50] + 0.1).indices, near.indices)
    with pytest.raises(ValueError, match="min_recall"):
        KNeighborsTransformer(min_recall=1.5).fit(x)


def test_many_new_samples_are_looked_up_in_an_index(tmp_path: Path) -> None:
    r = np.random.default_rng(0)
    centers = 4 * r.standard_normal((9, 20))
    x, q = (centers[r.integers(0, 9, rows)] + r.standard_normal((rows, 20)) for rows in (3000, 900))
    np.save(tmp_path / "x.npy", x)
    ours = KNeighborsTransformer(n_neighbors=4, min_recall=0.7).fit(tmp_path / "x.npy")
    graph, index = ours.transform(q), ours._index
    lists = rf.knn(q, 5, index=index, min_recall=0.7, threads=1)
    assert lists.attrs["recall_interval"][0] >= 0.7
    np.testing.assert_array_equal(graph.indices.reshape(-1, 5), lists.indices[...])
    ours.kneighbors(q)
    assert ours._index is index
    again = pickle.loads(pickle.dumps(ours))
    assert again._index is None
    assert (again.transform(q) != graph).nnz == 0
    few = neighbors.KNeighborsTransformer(n_neighbors=4).fit(x).transform(q[:50])
    np.testing.assert_array_equal(ours.transform(q[:50]).indices, few.indices)
    narrow = KNeighborsTransformer(n_neighbors=4, min_recall=0.7, metric="manhattan").fit(x)
    assert narrow.transform(q).shape == (900, 3000) and narrow._index is None
