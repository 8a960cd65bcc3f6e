"""Weights of a graph of neighbors: those of umap-learn, in bounded memory, and refusals in words."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
import zarr

import rankfold as rf
from rankfold.kernels.graph.fuzzy import membership

Array = npt.NDArray[Any]


def gaussian() -> Array:
    return np.random.default_rng(0).standard_normal((600, 8))


def with_duplicates() -> Array:
    x = gaussian()
    x[:40] = x[0]  # more than there are neighbors: all of these at a distance of 0
    x[100:105] = x[100]
    return x


def on_a_grid() -> Array:
    return np.round(np.random.default_rng(1).standard_normal((700, 2)), 1)


def corners_of_a_cube() -> Array:
    return np.random.default_rng(2).integers(0, 2, (500, 5)).astype(float)


def of_two_scales() -> Array:
    rng = np.random.default_rng(3)
    return np.concatenate([rng.standard_normal((300, 4)), 1e6 + 1e3 * rng.standard_normal((300, 4))])


DATA = [gaussian, with_duplicates, on_a_grid, corners_of_a_cube, of_two_scales]


def by_definition(indices: Array, distances: Array, mix: float, connectivity: float) -> Any:
    """The graph, number by number: the definition of ``fuzzy_simplicial_set`` of umap-learn."""
    rows, k = indices.shape
    near, weights = distances.astype(np.float32), np.zeros((rows, rows), np.float32)
    mean = near.sum(dtype=np.float64) / (rows * (k + 1))
    for i in range(rows):
        apart = near[i][near[i] > 0]
        index = math.floor(connectivity)
        rho = np.float32(0)
        if len(apart) >= connectivity:
            rho = apart[index - 1] if index else np.float32(0)
            if connectivity - index > 1e-5:
                rho = np.float32(rho + (connectivity - index) * float(apart[index] - rho))
        elif len(apart):
            rho = apart.max()
        beyond = (near[i] - rho).astype(np.float64)
        low, high, sigma = 0.0, math.inf, 1.0
        for _ in range(64):
            total = sum(math.exp(-each / sigma) if each > 0 else 1.0 for each in beyond)
            if abs(total - math.log2(k + 1)) < 1e-5:
                break
            low, high = (low, sigma) if total > math.log2(k + 1) else (sigma, high)
            sigma = (low + high) / 2 if high < math.inf else 2 * sigma
        least = 1e-3 * (near[i].sum(dtype=np.float64) / (k + 1) if rho > 0 else mean)
        sigma = float(np.float32(max(sigma, least)))
        for j, each in zip(indices[i], beyond, strict=True):
            weights[i, j] = math.exp(-each / sigma) if each > 0 else 1.0
    a = scipy.sparse.csr_array(weights)
    both = a.multiply(a.T)
    graph = (mix * (a + a.T - both) + (1 - mix) * both).tocsr()
    graph.eliminate_zeros()
    return graph


def assert_same_graph(found: Any, expected: Any) -> None:
    """Pattern and weights; these to 1e-6."""
    expected = expected.tocsr()
    expected.sort_indices()
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.data, expected.data, rtol=0, atol=1e-6)


@pytest.mark.parametrize("make", DATA)
@pytest.mark.parametrize(("mix", "connectivity"), [(1.0, 1.0), (0.4, 1.0), (0.0, 2.5), (1.0, 0.5)])
def test_weights_are_those_of_the_definition(
    make: Callable[[], Array], mix: float, connectivity: float
) -> None:
    result = rf.knn(make(), 14)
    graph = rf.fuzzy_graph(result, set_op_mix_ratio=mix, local_connectivity=connectivity).graph
    lists = np.asarray(result.indices), np.asarray(result.distances)
    assert_same_graph(graph, by_definition(*lists, mix, connectivity))
    assert graph.data.dtype == np.float32 and (graph != graph.T).nnz == 0


@pytest.mark.parametrize("make", DATA)
@pytest.mark.parametrize(("mix", "connectivity"), [(1.0, 1.0), (0.4, 2.5)])
def test_weights_are_those_of_umap_learn(make: Callable[[], Array], mix: float, connectivity: float) -> None:
    umap = pytest.importorskip("umap.umap_", reason="umap-learn is not installed")
    x, k = make(), 14
    result = rf.knn(x, k)
    own = np.arange(len(x))[:, None]
    expected, _, _ = umap.fuzzy_simplicial_set(
        x,
        k + 1,
        None,
        "euclidean",
        knn_indices=np.hstack([own, result.indices]),
        knn_dists=np.hstack([0.0 * own, result.distances]).astype(np.float32),
        set_op_mix_ratio=mix,
        local_connectivity=connectivity,
    )
    found = rf.fuzzy_graph(result, set_op_mix_ratio=mix, local_connectivity=connectivity)
    assert_same_graph(found.graph, expected)
    assert found.attrs["weights"] == expected.nnz


def test_the_nearest_of_longer_lists_are_those_of_shorter_ones() -> None:
    long, short = rf.knn(gaussian(), 20), rf.knn(gaussian(), 7)
    assert_same_graph(rf.fuzzy_graph(long, 7).graph, rf.fuzzy_graph(short).graph)


@pytest.mark.parametrize("k", [1, 3])
def test_rows_in_one_place_are_joined_with_certainty(k: int) -> None:
    graph = rf.fuzzy_graph(rf.knn(np.zeros((9, 2)), k)).graph
    assert (graph.data == 1).all() and graph.nnz >= 9 * k


def test_sorting_in_many_files_changes_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = rf.knn(on_a_grid(), 14, out=tmp_path / "knn.zarr")
    whole = rf.fuzzy_graph(result, out=tmp_path / "whole.zarr").graph
    home = "rankfold.methods.fuzzy_graph"
    monkeypatch.setattr(f"{home}.fuzzy_graph.SORT_BYTES", 2**12)
    monkeypatch.setattr(f"{home}.lists.BLOCK_BYTES", 2**10)
    parts = rf.fuzzy_graph(result, out=tmp_path / "parts.zarr").graph
    for name in ("data", "indices", "indptr"):
        assert getattr(whole, name).tobytes() == getattr(parts, name).tobytes()


def test_a_row_is_not_joined_to_itself() -> None:
    weights = np.empty((1, 3), np.float32)
    membership(np.array([[0.0, 1.0, 2.0]]), 1.0, out=weights)
    assert weights[0, 0] == weights[0, 1] == 1 and 0 < weights[0, 2] < 1
    graph = rf.fuzzy_graph(rf.knn(gaussian(), 3)).graph
    assert not graph.diagonal().any()


def stored(folder: Path, distances: Array | None = None, indices: Array | None = None) -> Path:
    """A result of knn in which something else has been put on purpose."""
    rf.knn(gaussian(), 3, out=folder / "knn.zarr")
    (folder / "knn.zarr" / "manifest.json").unlink()
    for name, values in (("distances", distances), ("indices", indices)):
        if values is not None:
            zarr.open_array(folder / "knn.zarr" / name, mode="r+")[7:8] = values
    return folder / "knn.zarr"


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf, 2.0**501])
def test_distances_that_are_none_are_refused(tmp_path: Path, wrong: float) -> None:
    path = stored(tmp_path, np.array([[0.5, wrong, wrong]]))
    with pytest.raises(rf.RankfoldError, match=r"distances\[7, 1\] is |row 7 has a neighbor at the distance"):
        rf.fuzzy_graph(path)


def test_neighbors_that_are_nowhere_are_refused(tmp_path: Path) -> None:
    path = stored(tmp_path, indices=np.array([[3, -1, 600]]))
    with pytest.raises(rf.RankfoldError, match=r"indices\[7, 1\] is -1, but is to be from 0 to 599"):
        rf.fuzzy_graph(path)


@pytest.mark.parametrize(
    ("make", "asked", "said"),
    [
        (lambda x: rf.pca(x, 2), {}, "is the result of pca: give one of knn"),
        (lambda x: rf.knn(x, 3, queries=x[:5]), {}, "neighbors of queries among other rows"),
        (lambda x: rf.knn(x, 3, metric="inner_product"), {}, "inner products, which are no distances"),
        (lambda x: rf.knn(x, 3), {"k": 4}, "ask for 1 to 3"),
        (
            lambda x: rf.knn(x, 3),
            {"set_op_mix_ratio": 1.5},
            "between 0 .intersection. and 1 .union., not 1.5",
        ),
        (lambda x: rf.knn(x, 3), {"local_connectivity": 3.5}, "between 0 and the 3 neighbors"),
        (lambda x: rf.knn(x, 3), {"memory": "64MiB"}, "needs .* Give memory="),
    ],
)
def test_what_makes_no_graph_is_refused(
    make: Callable[[Array], rf.Result], asked: dict[str, Any], said: str
) -> None:
    with pytest.raises(rf.RankfoldError, match=said):
        rf.fuzzy_graph(make(gaussian()), **asked)


@pytest.mark.parametrize("exponent", [-250, -80, 80, 400])
@pytest.mark.parametrize("make", [gaussian, with_duplicates])
def test_weights_do_not_depend_on_the_unit_of_distances(make: Callable[[], Array], exponent: int) -> None:
    x = make()
    plain, scaled = (rf.fuzzy_graph(rf.knn(x * 2.0**n, 14, threads=1), threads=1) for n in (0, exponent))
    for part in ("indptr", "indices", "data"):
        expected, found = (np.asarray(getattr(each.graph, part)) for each in (plain, scaled))
        np.testing.assert_array_equal(found, expected) if part != "data" else np.testing.assert_allclose(
            found, expected, rtol=1e-4
        )
    ratio = float(scaled.attrs["mean_distance"]) / 2.0**exponent
    assert abs(ratio - float(plain.attrs["mean_distance"])) < 1e-6 * ratio


def test_an_array_of_a_result_names_no_variable_of_data() -> None:
    graph = rf.fuzzy_graph(rf.knn(np.random.default_rng(0).random((40, 3)), 5))
    assert "variable" not in str(graph.attrs["input"])
