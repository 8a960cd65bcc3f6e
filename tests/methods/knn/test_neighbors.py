"""Nearest neighbors: exact on data made to mislead, and the same however they are found."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import dask.array as da
import numba
import numpy as np
import pytest
import scipy.sparse
from covers import cover
from hypothesis import given
from hypothesis import strategies as st
from reference import same_bytes, to_zarr

import rankfold as rf
from rankfold.pipeline.engine import pairs
from rankfold.pipeline.errors import InputError, MemoryBudgetError, NonFiniteError

Matrix = np.ndarray[Any, Any]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks, as a matrix of millions of rows has."""
    monkeypatch.setattr(pairs, "BLOCK_ROWS", (64, 64))


def apart(x: Matrix, y: Matrix, metric: str) -> Matrix:
    """Distances of all pairs as plainly as they can be had."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    if metric == "inner_product":
        return -np.stack([(y * row).sum(axis=1) for row in x])
    if metric == "cosine":
        norms = [np.linalg.norm(a, axis=1, keepdims=True) for a in (x, y)]
        x, y = (
            np.divide(a, n, out=np.zeros_like(a), where=n > 0) for a, n in zip((x, y), norms, strict=True)
        )
        found = np.stack([((y - row) ** 2).sum(axis=1) / 2 for row in x])
        found[norms[0][:, 0] == 0] = found[:, norms[1][:, 0] == 0] = 1.0
        return found
    measure = {
        "euclidean": lambda d: np.sqrt((d**2).sum(axis=1)),
        "sqeuclidean": lambda d: (d**2).sum(axis=1),
        "manhattan": lambda d: np.abs(d).sum(axis=1),
        "chebyshev": lambda d: np.abs(d).max(axis=1),
    }[metric]
    return np.stack([measure(y - row) for row in x])


def nearest(distances: Matrix, k: int) -> tuple[Matrix, Matrix]:
    """Indices and distances of the k nearest, by (distance, index)."""
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(distances, order, axis=1)


def assert_nearest(result: rf.Result, distances: Matrix, k: int, *, rtol: float = 1e-13) -> None:
    """Lists are those of brute force, but for rows whose distances differ by rounding of a sum."""
    _, values = nearest(distances, k)
    np.testing.assert_allclose(result.distances[...], values, rtol=rtol, atol=rtol)
    indices = np.asarray(result.indices[...])
    assert (np.diff(np.sort(indices, axis=1), axis=1) > 0).all() and (np.diff(result.distances) >= 0).all()
    other = np.take_along_axis(distances, indices, axis=1)
    np.testing.assert_allclose(other, values, rtol=rtol, atol=rtol)


def hard(rows: int = 1200) -> dict[str, Matrix]:
    """Nine sets: easy ones, and those on which distances out of float32 products are worthless."""
    r = np.random.default_rng(1)
    near = np.repeat(r.standard_normal((12, 128)), rows // 12, axis=0) + 1e-3 * r.standard_normal((rows, 128))
    blobs = np.where(r.random((rows, 1)) < 0.5, 1e3, -1e3)
    return {
        "gaussian": r.standard_normal((rows, 20)),
        "gaussian far off": r.standard_normal((rows, 20)) + 1e3,
        "places": np.array([935.0, -1758.0, 24.0]) + 0.1 * r.random((rows, 3)),
        "two far blobs": blobs + 0.1 * r.standard_normal((rows, 8)),
        "two far blobs, wide": blobs + 0.1 * r.standard_normal((rows, 40)),
        "unit near-duplicates": near / np.linalg.norm(near, axis=1, keepdims=True),
        "lognormal": r.lognormal(0, 1.5, (rows, 768)),
        "bytes": r.integers(0, 256, (rows, 128)).astype(np.uint8),
        "wide gaussian": r.standard_normal((rows, 1000)),
        "tiny and huge rows": r.standard_normal((rows, 16)) * 10 ** r.uniform(-4, 4, (rows, 1)),
    }


@functools.cache
def hard_truth(name: str, dtype: str) -> tuple[Matrix, Matrix]:
    x = hard()[name]
    x = x if x.dtype == np.uint8 else x.astype(dtype)
    distances = apart(x, x, "euclidean")
    np.fill_diagonal(distances, np.inf)
    return x, distances


@pytest.mark.parametrize(("dtype", "name"), cover(["float32", "float64"], list(hard(24)), strength=1))
def test_every_neighbor_of_hard_data_is_found(name: str, dtype: str) -> None:
    x, distances = hard_truth(name, dtype)
    assert_nearest(rf.knn(x, 10), distances, 10)


@pytest.mark.parametrize("name", ["two far blobs, wide", "unit near-duplicates", "tiny and huge rows"])
def test_cuts_and_threads_change_no_bit_of_hard_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, _ = hard_truth(name, "float32")
    whole = rf.knn(x, 10, threads=1)
    for rows, threads in ((64, 1), (100, 3), (700, 2)):
        monkeypatch.setattr(pairs, "BLOCK_ROWS", (rows, rows))
        assert same_bytes(rf.knn(x, 10, threads=threads)) == same_bytes(whole)


METRICS = ("euclidean", "sqeuclidean", "cosine", "inner_product", "manhattan", "chebyshev")


@pytest.mark.parametrize(("metric", "columns"), cover(METRICS, [1, 2, 15, 16, 37]))
def test_metrics_among_rows_and_of_queries(metric: str, columns: int, small_blocks: None) -> None:
    r = np.random.default_rng(columns)
    x, q = r.standard_normal((300, columns)), r.standard_normal((70, columns))
    x[7] = q[3] = 0.0
    assert_nearest(rf.knn(x, 6, queries=q, metric=metric), apart(q, x, metric), 6, rtol=1e-12)
    distances = apart(x, x, metric)
    np.fill_diagonal(distances, np.inf)
    assert_nearest(rf.knn(x, 6, metric=metric), distances, 6, rtol=1e-12)


@numba.njit
def _canberra(x: Matrix, y: Matrix) -> float:
    total = 0.0
    for a, b in zip(x, y):  # noqa: B905 - numba takes no keyword there
        if a != b:
            total += abs(a - b) / (abs(a) + abs(b))
    return total


def test_a_metric_of_the_callers_own(small_blocks: None) -> None:
    x = np.random.default_rng(0).standard_normal((200, 5))
    distances = np.array([[_canberra(a, b) for b in x] for a in x])
    np.fill_diagonal(distances, np.inf)
    assert_nearest(rf.knn(x, 5, metric=_canberra), distances, 5)
    assert_nearest(rf.knn(x, 5, metric=_canberra.py_func), distances, 5)


def test_a_metric_that_numba_does_not_compile_is_refused() -> None:
    for metric in (lambda x, y: print(file=x), functools.partial(max), np.dot):
        with pytest.raises(InputError, match="not a function of two float64 rows that numba compiles"):
            rf.knn(np.eye(4), 1, metric=metric)
    with pytest.raises(InputError, match="which is not a number"):
        rf.knn(np.eye(4), 1, metric=lambda x, y: x)


def test_a_metric_without_a_number_is_refused() -> None:
    x = np.random.default_rng(0).standard_normal((50, 4))
    with pytest.raises(rf.RankfoldError, match="the metric gives NaN for rows"):
        rf.knn(x, 3, metric=lambda a, b: np.nan if a[0] + b[0] > 1.5 else abs(a[0] - b[0]))
    with pytest.raises(rf.RankfoldError, match="the metric failed: ZeroDivisionError"):
        rf.knn(np.ones((20, 4)), 3, metric=lambda a, b: 1 / (a[0] - b[0]))


def test_metrics_that_differ_in_what_they_see_are_other_requests(tmp_path: Path) -> None:
    def power(p: float) -> Any:
        def metric(x: Matrix, y: Matrix) -> float:
            return (np.abs(x - y) ** p).sum()

        return metric

    x = np.random.default_rng(0).standard_normal((50, 3))
    rf.knn(x, 3, metric=power(1.0), out=tmp_path / "r.zarr")
    with pytest.raises(rf.RankfoldError, match="is the answer to another request"):
        rf.knn(x, 3, metric=power(3.0), out=tmp_path / "r.zarr")
    again = rf.knn(x, 3, metric=power(1.0), out=tmp_path / "r.zarr")
    assert_nearest(again, np.where(np.eye(50) > 0, np.inf, apart(x, x, "manhattan")), 3)


@given(
    values=st.lists(st.integers(0, 3), min_size=12, max_size=120),
    columns=st.sampled_from([1, 2, 3]),
    k=st.integers(1, 5),
    block=st.integers(2, 20),
)
def test_ties_go_to_the_smaller_index(values: list[int], columns: int, k: int, block: int) -> None:
    x = np.asarray(values[: len(values) // columns * columns], np.float32).reshape(-1, columns)
    if len(x) <= k:
        return
    x = np.tile(x, (1, 16)) if block % 2 else x  # by products, or measured
    distances = apart(x, x, "sqeuclidean")
    np.fill_diagonal(distances, np.inf)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "BLOCK_ROWS", (block, block))
        result = rf.knn(x, k, metric="sqeuclidean", threads=1)
    order, values_ = nearest(distances, k)
    assert np.array_equal(result.indices, order) and np.array_equal(result.distances, values_)


@pytest.mark.parametrize("columns", [2, 20])
def test_rows_that_are_all_equal(columns: int, small_blocks: None) -> None:
    result = rf.knn(np.ones((500, columns), np.float32), 3)
    assert not np.asarray(result.distances).any()
    first = np.asarray(result.indices)
    assert first[:4].tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    assert (first[4:] == [0, 1, 2]).all()


def test_as_many_neighbors_as_there_are(small_blocks: None) -> None:
    x = np.random.default_rng(0).standard_normal((130, 20))
    distances = apart(x, x, "euclidean")
    np.fill_diagonal(distances, np.inf)
    assert_nearest(rf.knn(x, 129), distances, 129)
    assert_nearest(rf.knn(x[:2], 1), distances[:2, :2], 1)
    assert_nearest(rf.knn(x, 130, queries=x), apart(x, x, "euclidean"), 130)


def test_lists_of_fewer_are_the_beginning_of_lists_of_more(small_blocks: None) -> None:
    x = np.random.default_rng(0).standard_normal((300, 24)).astype(np.float32)
    more = rf.knn(x, 40)
    for k in (1, 7, 39):
        fewer = rf.knn(x, k)
        assert np.array_equal(fewer.indices, more.indices[:, :k])
        assert np.array_equal(fewer.distances, more.distances[:, :k])


@pytest.mark.parametrize(
    ("k", "rows", "said"),
    [
        (0, 5, "k must be at least 1, not 0"),
        (-1, 5, "k must be at least 1"),
        (2.5, 5, "k must be an integer"),
        (5, 5, "each has 4 others to be near to: ask for 1 to 4"),
        (1, 1, "has 1 row, so that each has 0 others"),
    ],
)
def test_more_neighbors_than_there_are_is_refused(k: Any, rows: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        rf.knn(np.ones((rows, 3)), k)


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    x = np.ones((5, 3))
    for said, options in {
        "metric must be one of euclidean": {"metric": "minkowsky"},
        "symmetric must be": {"symmetric": "both"},
        "queries .* have 4 columns, but": {"queries": np.ones((2, 4))},
        "leave it out, or queries": {"queries": x, "symmetric": "union"},
    }.items():
        with pytest.raises(InputError, match=said):
            rf.knn(x, 2, **options)
    with pytest.raises(InputError, match="compressed by columns"):
        rf.knn(to_csc(tmp_path / "x.zarr", x), 2)


def to_csc(folder: Path, x: Matrix) -> Path:
    import zarr

    group = zarr.open_group(folder, mode="w")
    sparse = scipy.sparse.csc_array(x)
    group.attrs.update(
        {"encoding-type": "csc_matrix", "encoding-version": "0.1.0", "shape": list(sparse.shape)}
    )
    for name in ("data", "indices", "indptr"):
        values = getattr(sparse, name)
        group.create_array(name, shape=values.shape, dtype=values.dtype)[...] = values
    return folder


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("columns", [3, 30])
def test_numbers_that_are_none_are_refused_with_their_place(
    bad: float, columns: int, tmp_path: Path, small_blocks: None
) -> None:
    x = np.random.default_rng(0).standard_normal((300, columns))
    x[150, 2] = bad
    with pytest.raises(NonFiniteError, match="the first at row 150, column 2"):
        rf.knn(x, 3, out=tmp_path / "r.zarr")
    assert list(tmp_path.iterdir()) == []


def test_too_little_memory_is_refused_with_what_would_do(tmp_path: Path) -> None:
    store = to_zarr(tmp_path / "x.zarr", np.ones((4000, 500), np.float32), (1000, 500))
    with pytest.raises(MemoryBudgetError, match=r"Give memory='\d+MiB'"):
        rf.knn(store, 5, memory="20MiB")


# Sources -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [3, 24])
def test_every_cut_of_a_store_gives_the_same_lists(tmp_path: Path, columns: int, small_blocks: None) -> None:
    x = np.random.default_rng(0).standard_normal((500, columns)).astype(np.float32)
    whole = rf.knn(x, 7)
    cuts = [da.from_array(x, chunks=((100, 0, 400), (columns,)))]
    cuts += [
        to_zarr(tmp_path / f"{i}.zarr", x, c) for i, c in enumerate([(7, columns), (500, 2), (130, columns)])
    ]
    for store in (*cuts, np.asfortranarray(x), scipy.sparse.csr_array(x)):
        found = rf.knn(store, 7, threads=2)
        assert np.array_equal(found.indices, whole.indices)
        assert np.array_equal(found.distances, whole.distances)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "u1", "i1", "u2", "i2", "i4", "i8", "?"])
def test_every_type_of_number(dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 2 if dtype == "?" else 100, (200, 20)).astype(dtype)
    distances = apart(x.astype(np.float64), x.astype(np.float64), "euclidean")
    np.fill_diagonal(distances, np.inf)
    order, values = nearest(distances, 5)
    result = rf.knn(x, 5)
    assert np.array_equal(result.indices, order) and np.array_equal(result.distances, values)


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e12, 1e30, 1e120])
def test_numbers_of_any_size(size: float) -> None:
    x = np.random.default_rng(0).standard_normal((300, 20)) * size
    distances = apart(x / size, x / size, "euclidean")
    np.fill_diagonal(distances, np.inf)
    order, values = nearest(distances, 5)
    result = rf.knn(x, 5)
    assert np.array_equal(result.indices, order)
    np.testing.assert_allclose(np.asarray(result.distances) / size, values, rtol=1e-12)


def test_metrics_that_square_nothing_take_any_number() -> None:
    x = np.array([[1e160], [-1e160], [0.0], [1.0]])
    for metric in ("manhattan", "chebyshev"):
        assert np.asarray(rf.knn(x, 2, metric=metric).indices).tolist() == [[2, 3], [2, 3], [3, 0], [2, 0]]


def test_squares_out_of_range_are_refused() -> None:
    x = np.random.default_rng(0).standard_normal((50, 20))
    x[20, 3] = 1e200
    with pytest.raises(rf.RankfoldError, match=r"row 20, column 3 .* leaves the range of float64"):
        rf.knn(x, 3)


def test_indices_above_what_float32_counts(tmp_path: Path) -> None:
    rows = 2**24 + 1000
    x = np.zeros((rows, 2), np.uint8)
    x[: 2**24 - 3] = 200
    x[2**24 + 1], x[2**24 + 2], x[rows - 1] = (3, 4), (6, 8), (100, 100)
    q = np.array([[3, 4], [100, 99]], np.uint8)
    found = rf.knn(x, 2, queries=q)
    assert np.asarray(found.indices).tolist() == [[2**24 + 1, 2**24 - 3], [rows - 1, 2**24 + 2]]
    assert np.asarray(found.distances)[0].tolist() == [0.0, 5.0]


# Graphs --------------------------------------------------------------------------------------------


def test_the_graph_is_the_lists(tmp_path: Path, small_blocks: None) -> None:
    x = np.random.default_rng(0).standard_normal((300, 20))
    x[100:110] = x[100]
    result = rf.knn(x, 6, out=tmp_path / "r.zarr")
    graph = result.graph
    assert graph.shape == (300, 300) and graph.nnz == 1800  # zeros are edges too
    assert np.array_equal(graph.indices.reshape(300, 6), result.indices[...])
    assert np.array_equal(graph.data.reshape(300, 6), result.distances[...])
    opened = rf.open(str(tmp_path / "r.zarr::graph"))
    assert opened.shape == (300, 300)
    dense = np.zeros((300, 300))
    opened.read_into(dense, (0, 300), (0, 300))
    assert np.array_equal(dense, graph.toarray())


def test_graphs_are_made_symmetric(tmp_path: Path, small_blocks: None) -> None:
    x = np.random.default_rng(0).standard_normal((300, 20))
    x[100:110] = x[100]
    lists = rf.knn(x, 6)
    edges = {
        (i, int(j)): float(d)
        for i in range(300)
        for j, d in zip(lists.indices[i], lists.distances[i], strict=True)
    }
    back = {(j, i): d for (i, j), d in edges.items()}
    for symmetric, expected in {
        "union": edges | back,
        "mutual": {pair: d for pair, d in edges.items() if pair in back},
    }.items():
        result = rf.knn(x, 6, symmetric=symmetric, out=tmp_path / f"{symmetric}.zarr")
        assert np.array_equal(result.indices[...], lists.indices)
        graph = result.graph.tocoo()
        found = dict(zip(zip(graph.row.tolist(), graph.col.tolist(), strict=True), graph.data, strict=True))
        assert found == expected


def test_anndata_reads_the_graph(tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata", reason="AnnData is not installed")
    import zarr

    result = rf.knn(np.random.default_rng(0).standard_normal((50, 4)), 3, out=tmp_path / "r.zarr")
    read = anndata.io.read_elem(zarr.open_group(tmp_path / "r.zarr", mode="r")["graph"])
    assert (read != result.graph).nnz == 0


# Runs ----------------------------------------------------------------------------------------------


@pytest.mark.process
def test_workers_give_the_same_bytes_as_threads(tmp_path: Path, small_blocks: None) -> None:
    x = np.random.default_rng(0).standard_normal((700, 20)).astype(np.float32)
    store = to_zarr(tmp_path / "x.zarr", x, (100, 20))
    whole = rf.knn(store, 5, threads=1, out=tmp_path / "one.zarr")
    for workers in (1, 3):
        made = rf.knn(store, 5, workers=workers, threads=2, memory="200MiB", out=tmp_path / f"{workers}.zarr")
        assert same_bytes(made) == same_bytes(whole)
    with pytest.raises(rf.RankfoldError, match="is the answer to another request"):
        rf.knn(store, 6, out=tmp_path / "one.zarr")
    assert same_bytes(rf.knn(store, 5, out=tmp_path / "one.zarr")) == same_bytes(whole)


def test_every_pair_of_groups_meets_once_and_none_twice_at_a_time() -> None:
    for count in range(1, 20):
        met = list(pairs.rounds(count))
        assert len({frozenset(pair) for pair in met}) == len(met) == count * (count - 1) // 2
        each = count // 2
        for start in range(0, len(met), each or 1):
            players = [player for pair in met[start : start + each] for player in pair]
            assert len(set(players)) == len(players)


# Rows that are added -------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [3, 24])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_rows_that_are_added_give_the_lists_of_all(
    tmp_path: Path, columns: int, metric: str, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).standard_normal((600, columns))
    x[550:560] = x[10]
    store = to_zarr(tmp_path / "x.zarr", x, (128, columns))
    whole = rf.knn(x, 6, metric=metric)
    first = rf.knn(x[:200], 9, metric=metric)
    second = rf.knn(x[:500], 6, metric=metric, base=first, out=tmp_path / "second.zarr")
    met = count_meetings(monkeypatch)
    for source in (x, store):
        met.clear()
        third = rf.knn(source, 6, metric=metric, base=tmp_path / "second.zarr")
        assert np.array_equal(third.indices, whole.indices)
        assert np.array_equal(third.distances, whole.distances)
        assert met and all(max(pair) >= 7 for pair in met)  # no two blocks of old rows
    assert second.attrs["request"]["base"] is not None


def count_meetings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    from rankfold.methods.knn.pair_fold import NearestPairs

    met: list[tuple[int, int]] = []
    meet = NearestPairs.accumulate

    def counted(self: Any, work: Any, block: int, state: Any, other: int, other_state: Any) -> None:
        met.append((block, other))
        meet(self, work, block, state, other, other_state)

    monkeypatch.setattr(NearestPairs, "accumulate", counted)
    return met


def test_a_base_that_does_not_belong_is_refused() -> None:
    x = np.random.default_rng(0).standard_normal((100, 5))
    base = rf.knn(x[:50], 4)
    changed = x.copy()
    changed[0, 0] += 1
    for said, options in {
        "too few for k=5 by euclidean": {"k": 5},
        "too few for k=4 by cosine": {"k": 4, "metric": "cosine"},
        "leave it out, or queries": {"k": 4, "queries": x},
    }.items():
        with pytest.raises(InputError, match=said):
            rf.knn(x, base=base, **options)
    with pytest.raises(InputError, match="give all rows, those of base first"):
        rf.knn(x[:40], 4, base=base)
    with pytest.raises(InputError, match="are not those that"):
        rf.knn(changed, 4, base=base)
    with pytest.raises(InputError, match="must be a result of knn"):
        rf.knn(x, 4, base=rf.pca(x, 2))
    with pytest.raises(InputError, match="must be a result of knn"):
        rf.knn(x, 4, base=rf.knn(x, 4, queries=x))


@pytest.mark.parametrize("spread", [1.0, 1e-3])
def test_products_are_made_anew_in_float64_only_where_float32_leaves_much_open(
    spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rankfold.methods.knn.pair_fold import NearestPairs

    rng = np.random.default_rng(0)
    x = spread * rng.standard_normal((1500, 40))
    x[::2, 0] += 1e4 * (spread < 1)  # two clusters: far from their mean, distances within one drown
    precise: list[bool] = []
    accumulate = NearestPairs.accumulate

    def recorded(self: Any, work: Any, *pair: Any) -> None:
        precise.append(work.precise)
        accumulate(self, work, *pair)

    monkeypatch.setattr(NearestPairs, "accumulate", recorded)
    result = rf.knn(x.astype(np.float32), 5, threads=1)
    assert precise[0] is False and precise[-1] is (spread < 1)
    wide = x.astype(np.float32).astype(np.float64)
    distances = np.sort(np.linalg.norm(wide[:20, None] - wide[None], axis=2), axis=1)[:, 1:6]
    np.testing.assert_allclose(result.distances[:20], distances, rtol=1e-6)
