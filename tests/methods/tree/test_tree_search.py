"""A search in a tree finds the lists of all pairs, to the last bit; boxes and angles as brute force."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from reference import same_bytes, to_zarr
from scipy.spatial import cKDTree

import rankfold as rf
from rankfold.methods.knn.arguments import KNN
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.radius import radius
from rankfold.methods.radius.arguments import RADIUS
from rankfold.methods.tree import search
from rankfold.methods.tree.coordinates import PointReader, wrap
from rankfold.methods.tree.plan import is_worth_it, visited_points
from rankfold.methods.tree.points import PointTree, building_bytes, held_bytes
from rankfold.pipeline.engine.fold import Workspace
from rankfold.pipeline.errors import DataError, InputError, MemoryBudgetError, NonFiniteError
from rankfold.pipeline.storage.chunk_writer import read_array

Array = npt.NDArray[Any]

METRICS = ("euclidean", "sqeuclidean", "manhattan", "chebyshev")


def hard(kind: str, n: int = 1500, d: int = 3) -> Array:
    r = np.random.default_rng([n, d])
    uniform = r.random((n, d))
    return {
        "uniform": uniform,
        "float32": uniform.astype(np.float32),
        "bytes": r.integers(0, 9, (n, d)).astype(np.uint8),
        "few values": r.integers(0, 3, (n, d)).astype(np.float64),
        "all equal": np.ones((n, d)),
        "on a line": np.outer(np.arange(n), np.arange(1, d + 1)).astype(float),
        "clusters": r.standard_normal((n, d)) * 1e-6 + 1e3 * r.integers(0, 5, (n, 1)),
        "huge": 1e150 * uniform,
        "tiny": 1e-140 * uniform,
        "far away": 1e12 + uniform,
        "in order": np.sort(uniform, axis=0),
        "wide and narrow": uniform * 10.0 ** np.arange(0, -8 * d, -8),
    }[kind]


KINDS = (
    "uniform",
    "float32",
    "bytes",
    "few values",
    "all equal",
    "on a line",
    "clusters",
    "huge",
    "tiny",
    "far away",
    "in order",
    "wide and narrow",
)


def both(x: Array, k: int, **how: Any) -> tuple[rf.Result, rf.Result]:
    return rf.knn(x, k, solver="pairs", **how), rf.knn(x, k, solver="tree", **how)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", METRICS)
def test_lists_are_those_of_all_pairs(kind: str, metric: str) -> None:
    x = hard(kind)
    assert same_bytes(both(x, 15, metric=metric)[0]) == same_bytes(both(x, 15, metric=metric)[1])
    pairs, tree = both(x, 15, metric=metric, queries=x[::7] + x.dtype.type(1))
    assert same_bytes(pairs) == same_bytes(tree)


@pytest.mark.parametrize("columns", [1, 2, 5, 10, 15])
def test_lists_of_any_number_of_columns(columns: int) -> None:
    for n, k in ((2, 1), (16, 15), (17, 16), (33, 3), (700, 40)):
        pairs, tree = both(np.random.default_rng(n).standard_normal((n, columns)), k)
        assert same_bytes(pairs) == same_bytes(tree)


@given(data=st.data(), n=st.integers(2, 120), d=st.integers(1, 4), values=st.integers(1, 5))
@examples(100)
def test_any_points_with_ties(data: st.DataObject, n: int, d: int, values: int) -> None:
    x = np.random.default_rng(data.draw(st.integers(0, 2**32))).integers(0, values, (n, d)).astype(float)
    k = data.draw(st.integers(1, n - 1))
    pairs, tree = both(x, k, metric=data.draw(st.sampled_from(METRICS)), threads=1)
    assert same_bytes(pairs) == same_bytes(tree)


def test_lists_are_those_of_scipy() -> None:
    x = hard("uniform", 20_000)
    distances, indices = cKDTree(x).query(x, 11)
    tree = rf.knn(x, 10, solver="tree")
    np.testing.assert_array_equal(tree.indices, indices[:, 1:])
    np.testing.assert_allclose(tree.distances, distances[:, 1:], rtol=1e-14)


def test_a_symmetric_graph_is_that_of_all_pairs() -> None:
    pairs, tree = both(hard("few values"), 5, symmetric="mutual")
    assert (pairs.graph != tree.graph).nnz == 0


def test_threads_memory_and_chunks_change_no_byte(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankfold.methods.knn.graph.CHUNK_BYTES", (2**12, 2**14))  # many panels
    x = hard("clusters", 9000)
    results = [
        rf.knn(to_zarr(tmp_path / f"{t}.zarr", x, (chunk, 3)), 7, solver="tree", threads=t, memory=memory)
        for t, chunk, memory in ((1, 100, "64MiB"), (2, 9000, "1GiB"), (7, 777, "1GiB"))
    ]
    lists = [(np.asarray(r.indices[...]), np.asarray(r.distances[...])) for r in results]
    for other in lists[1:]:
        for one, two in zip(lists[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


# Boxes that repeat themselves ------------------------------------------------------------------------


def images(x: Array, y: Array, box: Array) -> Array:
    """Distances to nearest images, of rows anywhere."""
    apart = np.zeros((len(x), len(y)))
    for t, length in enumerate(box):
        a, b = x[:, t].copy(), y[:, t].copy()
        if length:
            wrap(a, length)
            wrap(b, length)
        gap = np.abs(a[:, None] - b)
        gap = np.minimum(gap, length - gap) if length else gap
        apart = apart + gap * gap
    return np.sqrt(apart)


def nearest(distances: Array, k: int) -> tuple[Array, Array]:
    ids = np.broadcast_to(np.arange(distances.shape[1]), distances.shape)
    order = np.lexsort((ids, distances), axis=1)[:, :k]
    return order, np.take_along_axis(distances, order, axis=1)


@given(data=st.data(), n=st.integers(3, 90), d=st.integers(1, 3))
@examples(100)
def test_nearest_images_are_those_of_brute_force(data: st.DataObject, n: int, d: int) -> None:
    r = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    box = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0, 2.5, 7.0]), min_size=d, max_size=d)))
    x = r.integers(-9, 9, (n, d)) / 2 if data.draw(st.booleans()) else 10 * r.standard_normal((n, d))
    distances = images(x, x, box)
    np.fill_diagonal(distances, np.inf)
    order, keys = nearest(distances, 2)
    found = rf.knn(x, 2, box=box.tolist(), threads=1, solver="tree")
    np.testing.assert_array_equal(found.indices, order)
    np.testing.assert_array_equal(found.distances, keys)


def test_a_box_is_that_of_scipy() -> None:
    x = hard("uniform", 5000)
    distances, indices = cKDTree(x, boxsize=1.0).query(x, 9)
    found = rf.knn(x, 8, box=1.0)
    np.testing.assert_array_equal(found.indices, indices[:, 1:])
    np.testing.assert_allclose(found.distances, distances[:, 1:], rtol=1e-13)
    assert rf.knn(x, 8, box="1,1,1").attrs["request"]["box"] == [1.0, 1.0, 1.0]


# The sphere ------------------------------------------------------------------------------------------


def great_circle(x: Array, y: Array) -> Array:
    half = np.sin(np.abs(x[:, None] - y) / 2) ** 2
    cosines = np.cos(x[:, 0])[:, None] * np.cos(y[:, 0])
    return 2 * np.arcsin(np.sqrt(np.minimum(half[..., 0] + cosines * half[..., 1], 1)))


def test_great_circles_are_those_of_the_formula() -> None:
    r = np.random.default_rng(0)
    x = np.column_stack([np.arcsin(r.uniform(-1, 1, 2000)), r.uniform(-np.pi, np.pi, 2000)])
    x[:3] = [[np.pi / 2, 0.3], [-np.pi / 2, 1.0], [0.1, np.pi]]
    distances = great_circle(x, x)
    np.fill_diagonal(distances, np.inf)
    order, keys = nearest(distances, 6)
    found = rf.knn(x, 6, metric="haversine")
    np.testing.assert_array_equal(found.indices, order)
    np.testing.assert_allclose(found.distances, keys, rtol=1e-12, atol=1e-15)


def test_longitude_180_is_one_place_and_so_is_a_pole() -> None:
    x = np.array([[0.1, np.pi], [0.2, 0.0], [0.1, -np.pi]])
    found = rf.knn(x, 1, metric="haversine")
    assert found.indices[0, 0] == 2 and found.distances[0, 0] < 1e-15
    poles = np.array([[np.pi / 2, 0.0], [np.pi / 2, 2.0], [-np.pi / 2, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(
        rf.knn(poles, 3, metric="haversine").distances[0], [0, np.pi / 2, np.pi], atol=1e-15
    )


def test_degrees_are_refused_with_their_place() -> None:
    with pytest.raises(DataError, match=r"row 1 .* latitude 47.5, but haversine takes radians"):
        rf.knn(np.array([[0.1, 0.2], [47.5, 8.1], [0.3, 0.1]]), 1, metric="haversine")


# Refusals, and what is chosen ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"solver": "trees"}, "solver must be one of auto, pairs, tree"),
        ({"solver": "tree", "metric": "cosine"}, "not by cosine"),
        ({"solver": "pairs", "box": 1.0}, "solver pairs knows nothing of a box"),
        ({"metric": "haversine"}, "haversine takes two columns"),
        ({"box": "1,2"}, "box must give the length of each of the 3 columns"),
        ({"box": [1, 2, -1]}, "box must give the length"),
        ({"box": 1.0, "metric": "inner_product"}, "not by inner_product"),
    ],
)
def test_what_a_tree_cannot_is_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        rf.knn(np.zeros((9, 3)), 1, **how)
    with pytest.raises(InputError, match="fewer than 16 columns"):
        rf.knn(np.zeros((9, 16)), 1, solver="tree")


def test_nan_is_refused_with_its_place() -> None:
    x = hard("uniform")
    x[77, 2] = np.nan
    with pytest.raises(NonFiniteError, match="row 77, column 2"):
        rf.knn(x, 3, solver="tree")


def test_distances_beyond_float64_are_refused() -> None:
    with pytest.raises(DataError, match="overflow"):
        rf.knn(np.array([[1e200], [-1e200], [0.0]]), 2, solver="tree")


def test_points_that_do_not_fit_meet_in_pairs_unless_a_tree_is_needed() -> None:
    x = np.zeros((2_000_000, 3), np.float32)
    assert rf.plan("knn", x, memory="1GiB").method == "tree"
    assert rf.plan("knn", x, memory="90MiB", threads=1).method == "exact"
    for how in ({"solver": "tree"}, {"box": 1.0}):
        with pytest.raises(MemoryBudgetError, match="by a tree of all points needs"):
            rf.plan("knn", x, memory="90MiB", **how)


def test_a_tree_is_chosen_where_it_measures_less() -> None:
    assert is_worth_it(10**4, 3, 15) and not is_worth_it(300, 3, 15)
    assert is_worth_it(10**7, 10, 15) and not is_worth_it(10**5, 10, 15)
    assert visited_points(10**7, 3, 15) < 300
    assert rf.plan("knn", np.zeros((10**4, 3))).method == "tree"
    assert rf.plan("knn", np.zeros((10**4, 16))).method == "exact"


def traced(call: Callable[[], Any]) -> tuple[Any, int]:
    """What a call gives, and the most memory that it took."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("metric", ["euclidean", "haversine"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_memory_stays_below_the_plan(metric: str, dtype: str, tmp_path: Path) -> None:
    r = np.random.default_rng(0)
    x = r.random((300_000, 2 if metric == "haversine" else 3)).astype(dtype)
    reader = PointReader(rf.open(to_zarr(tmp_path / "x.zarr", x, (40_000, x.shape[1]))), metric)
    tree, most = traced(lambda: PointTree.read(reader, 2))
    held = sum(a.nbytes for a in (*tree.tree, tree.places))
    assert held == held_bytes(reader) and most <= held + building_bytes(reader) + 2**20
    for itself in (True, False):
        task = KNN.task(x, k=15, queries=None if itself else x[:90_000], metric=metric)
        fold = search._fold(task, tree, tmp_path / f"r{itself}")
        task.create_outputs(SimpleNamespace(result=fold.result))  # type: ignore[arg-type]
        _, most = traced(lambda fold=fold: fold.step(fold.start(), Workspace(), *fold.cut.panel(0), 0))
        assert 0.5 * fold.memory_bytes < most <= fold.memory_bytes + 2**20


def test_memory_of_edges_stays_below_the_plan(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((60_000, 3))
    task = RADIUS.task(x, radius=0.06)
    tree = PointTree.read(PointReader(rf.open(x), "euclidean"), 1)
    count = task._count_fold(tree, None, tmp_path)
    create_output(tmp_path, "degrees", (len(x),), np.int64, (count.cut.panel_rows,))
    state = count.start()
    for panel in range(len(count.cut.panels) - 1):
        _, most = traced(lambda panel=panel: count.step(state, Workspace(), *count.cut.panel(panel), 0))
        assert most <= count.memory_bytes + 2**20
    starts = np.append(0, np.cumsum(read_array(tmp_path / "degrees")))
    edges, longest = int(state["edges"][0]), int(state["most"][0])
    fold = task._list_fold(count.queries, starts, edges, longest, tmp_path)
    radius._create_graph(tmp_path, (len(x), len(x)), starts)
    _, most = traced(lambda: fold.step(fold.start(), Workspace(), *fold.cut.panel(1), 0))
    assert most <= fold.memory_bytes + 2**20
