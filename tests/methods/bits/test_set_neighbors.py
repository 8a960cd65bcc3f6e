"""Neighbors of sets: those of SciPy to the last bit, from packed bits, numbers and sparse rows alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from covers import cover
from hypothesis import given
from hypothesis import strategies as st
from reference import to_zarr
from scipy.spatial.distance import cdist

import rankfold as rf
from rankfold.methods.bits import choice
from rankfold.methods.bits.folds import NearestBits, NearestSets
from rankfold.methods.knn import sparse_rows
from rankfold.methods.knn.arguments import KNN
from rankfold.pipeline.engine import pairs
from rankfold.pipeline.errors import InputError, NonFiniteError
from rankfold.pipeline.formats.arrays import SparseSource

Matrix = np.ndarray[Any, Any]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks, as a matrix of millions of rows has."""
    monkeypatch.setattr(pairs, "BLOCK_ROWS", (64, 64))
    monkeypatch.setattr(sparse_rows, "BLOCK_ROWS", 64)


@pytest.fixture
def never_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sparse rows of few columns are compared as lists, as those of many are."""
    monkeypatch.setattr(choice, "are_packed", lambda *sides: False)


def sets(rows: int, columns: int, seed: int = 0) -> Matrix:
    """Rows of any size; many are equal, some are empty, one is full."""
    rng = np.random.default_rng([rows, columns, seed])
    x: Matrix = rng.random((rows, columns)) < 0.3 * rng.random((rows, 1)) ** 2
    x[rows // 3 : rows // 2] = x[0]
    x[5:9], x[11] = False, True
    return x


def nearest(x: Matrix, metric: str, k: int, y: Matrix | None = None) -> tuple[Matrix, Matrix]:
    """Indices and distances by SciPy; equal ones by index."""
    distances = cdist(x if y is None else y, x, metric.removeprefix("bit_"))
    if y is None:
        np.fill_diagonal(distances, np.inf)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(distances, order, axis=1)


def assert_nearest(result: rf.Result, expected: tuple[Matrix, Matrix]) -> None:
    """To the last bit: a distance is one rounded quotient of whole numbers, here as there."""
    np.testing.assert_array_equal(result.indices[...], expected[0])
    np.testing.assert_array_equal(result.distances[...], expected[1])


@pytest.mark.parametrize(("metric", "columns"), cover(["hamming", "jaccard"], [1, 8, 63, 64, 65, 700]))
def test_neighbors_are_those_of_scipy(metric: str, columns: int, small_blocks: None) -> None:
    x = sets(400, columns)
    assert_nearest(rf.knn(x, 7, metric=metric), nearest(x, metric, 7))
    queries = sets(90, columns, seed=1)
    assert_nearest(rf.knn(x, 7, metric=metric, queries=queries), nearest(x, metric, 7, queries))


@given(
    rows=st.integers(12, 90),
    columns=st.integers(1, 200),
    k=st.integers(1, 11),
    metric=st.sampled_from(["hamming", "jaccard"]),
    kind=st.sampled_from(["bits", "bytes", "numbers", "sparse"]),
)
def test_neighbors_are_those_of_scipy_whatever_holds_them(
    rows: int, columns: int, k: int, metric: str, kind: str
) -> None:
    x = sets(rows, columns)
    packed = np.packbits(x, axis=1)
    padded = np.unpackbits(packed, axis=1).astype(bool)
    held = {"bits": x, "bytes": packed, "numbers": x * 2.5, "sparse": sp.csr_array(x)}[kind]
    name = f"bit_{metric}" if kind == "bytes" else metric
    expected = nearest(padded if kind == "bytes" else x, metric, k)
    assert_nearest(rf.knn(held, k, metric=name, threads=1), expected)


@pytest.mark.parametrize("metric", ["bit_hamming", "bit_jaccard"])
def test_packed_bits_are_those_of_their_columns(metric: str, tmp_path: Path, small_blocks: None) -> None:
    packed = np.random.default_rng(0).integers(0, 256, (300, 21), dtype=np.uint8)
    bits = np.unpackbits(packed, axis=1).astype(bool)
    store = to_zarr(tmp_path / "x.zarr", packed, (100, 21))
    result = rf.knn(store, 5, metric=metric)
    assert_nearest(result, nearest(bits, metric, 5))
    assert_nearest(rf.knn(bits, 5, metric=metric.removeprefix("bit_")), nearest(bits, metric, 5))
    # The order of bits within a byte is of no concern.
    other = np.packbits(bits, axis=1, bitorder="little")
    assert_nearest(rf.knn(other, 5, metric=metric), nearest(bits, metric, 5))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float16", "float32", "float64"])
def test_hamming_of_numbers_is_the_share_that_differs(dtype: str, small_blocks: None) -> None:
    x = np.random.default_rng(0).integers(0, 3, (200, 37)).astype(dtype)
    assert_nearest(rf.knn(x, 6, metric="hamming"), nearest(x.astype(float), "hamming", 6))


def test_hamming_is_one_distance_of_bits_and_of_numbers(small_blocks: None) -> None:
    x = sets(300, 70)
    bits, numbers = rf.knn(x, 5, metric="hamming"), rf.knn(x.astype(np.float32), 5, metric="hamming")
    mixed = rf.knn(x, 5, metric="hamming", queries=x[:40].astype(np.int64))
    assert_nearest(numbers, (np.asarray(bits.indices[...]), np.asarray(bits.distances[...])))
    assert_nearest(mixed, nearest(x, "hamming", 5, x[:40]))


@pytest.mark.parametrize(
    ("dtype", "metric"),
    [("bool", "hamming"), *((each, "jaccard") for each in ("bool", "uint8", "float32", "float64"))],
)
def test_sparse_rows_are_sets_without_their_zeros(
    dtype: str, metric: str, never_packed: None, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = sets(400, 90)
    dense[:, 3] |= np.random.default_rng(0).random(400) < 0.8  # a column that many rows hold
    x, expected = sp.csr_array(dense.astype(dtype)), nearest(dense, metric, 7)
    if dtype != "bool":
        x.data[::9] = 0  # stored, and of no set
        expected = nearest(x.toarray() != 0, metric, 7)

    def refuse(*arguments: object) -> None:
        raise AssertionError("rows were made dense")

    monkeypatch.setattr(SparseSource, "read_into", refuse)
    assert_nearest(rf.knn(x, 7, metric=metric, threads=2), expected)
    queries = x[:50]
    found = rf.knn(x, 7, metric=metric, queries=queries)
    assert_nearest(found, nearest(x.toarray() != 0, metric, 7, queries.toarray() != 0))


def test_columns_of_sparse_rows_may_be_in_any_order_and_twice(never_packed: None) -> None:
    x = sp.csr_array(sets(200, 40).astype(np.float32))
    rows = np.repeat(np.arange(200), np.diff(x.indptr))
    order = np.lexsort((np.random.default_rng(0).random(x.nnz), rows))
    shuffled = sp.csr_array((x.data[order], x.indices[order], x.indptr), x.shape)
    twice = sp.csr_array((np.repeat(x.data / 2, 2), np.repeat(x.indices, 2), 2 * x.indptr), x.shape)
    expected = nearest(x.toarray() != 0, "jaccard", 5)
    for each in (shuffled, twice, sp.csc_array(x)):
        assert_nearest(rf.knn(each, 5, metric="jaccard"), expected)


@pytest.mark.parametrize("metric", ["hamming", "jaccard"])
def test_cuts_threads_memory_and_kinds_change_no_bit(
    metric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = sets(1500, 200)
    store = to_zarr(tmp_path / "x.zarr", x, (170, 200))
    whole = rf.knn(store, 8, metric=metric, threads=1)
    assert_nearest(whole, nearest(x, metric, 8))
    for rows, threads, memory, packs in (
        (64, 2, None, False),
        (97, 7, "120MiB", False),
        (700, 1, "256MiB", True),
    ):
        monkeypatch.setattr(pairs, "BLOCK_ROWS", (rows, rows))
        monkeypatch.setattr(sparse_rows, "BLOCK_ROWS", rows)
        monkeypatch.setattr(choice, "are_packed", lambda *sides, packs=packs: packs)
        for source in (store, sp.csr_array(x)):
            result = rf.knn(source, 8, metric=metric, threads=threads, memory=memory)
            assert_nearest(result, (np.asarray(whole.indices[...]), np.asarray(whole.distances[...])))


@pytest.mark.parametrize(("metric", "kind"), cover(["hamming", "jaccard"], ["bits", "sparse"]))
def test_rows_that_are_added_give_the_lists_of_all(
    metric: str, kind: str, small_blocks: None, never_packed: None
) -> None:
    x = sets(500, 80)
    changed = x.copy()
    changed[:40, 3:20] ^= True
    first, every, other = (sp.csr_array(a) if kind == "sparse" else a for a in (x[:333], x, changed))
    result = rf.knn(every, 6, metric=metric, base=rf.knn(first, 8, metric=metric))
    assert_nearest(result, nearest(x, metric, 6))
    with pytest.raises(InputError, match="are not those that"):
        rf.knn(other, 6, metric=metric, base=rf.knn(first, 8, metric=metric))


def test_a_symmetric_graph_has_the_edges_of_either(small_blocks: None) -> None:
    x = sets(200, 60)
    result = rf.knn(x, 4, metric="jaccard", symmetric="union")
    edges = {(i, int(j)) for i, row in enumerate(np.asarray(result.indices[...])) for j in row}
    graph = result.graph.tocoo()
    assert set(zip(*map(np.ndarray.tolist, graph.coords), strict=True)) == edges | {(j, i) for i, j in edges}


@pytest.mark.parametrize("kind", ["bits", "sparse"])
def test_numbers_that_are_none_are_refused_with_their_place(
    kind: str, small_blocks: None, never_packed: None
) -> None:
    x = sets(300, 60).astype(np.float32)
    x[150, 22] = np.nan
    with pytest.raises(NonFiniteError, match="the first at row 150, column 22"):
        rf.knn(sp.csr_array(x) if kind == "sparse" else x, 3, metric="jaccard")


@pytest.mark.parametrize(
    ("change", "metric", "message"),
    [
        (lambda x: x, "bit_hamming", "takes packed bits, bytes .* is bool. Pack them, by numpy.packbits"),
        (lambda x: x.astype(np.int64), "bit_jaccard", "is int64. Pack them, .* or ask for jaccard"),
        (lambda x: sp.csr_array(x.astype(np.uint8)), "bit_jaccard", "is sparse"),
    ],
)
def test_bits_that_are_not_packed_are_refused(change: Any, metric: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rf.knn(change(sets(50, 40)), 3, metric=metric)


@pytest.mark.parametrize("metric", ["hamming", "jaccard", "bit_hamming", "bit_jaccard"])
def test_other_searches_refuse_sets(metric: str) -> None:
    x = sets(50, 40).astype(np.uint8)
    with pytest.raises(
        InputError, match=f"takes euclidean, sqeuclidean, cosine and correlation, not {metric}"
    ):
        rf.knn(x, 3, metric=metric, solver="approximate")
    with pytest.raises(InputError, match=f"not by {metric}"):
        rf.knn(x, 3, metric=metric, solver="tree")
    with pytest.raises(InputError, match=metric):
        rf.radius_neighbors(x, 0.5, metric=metric)
    assert rf.knn(x, 3, metric=metric, min_recall=0.9).attrs["recall"] == 1  # which exact lists have


def test_a_plan_counts_an_eighth_of_a_byte_for_a_column() -> None:
    """Rows that are held by a group are packed: the peak of many columns hardly grows with what fits."""
    x = np.lib.stride_tricks.as_strided(np.zeros(1, bool), (100_000, 1024), (0, 0))
    bits = choice.set_fold(KNN.task(x, k=15, metric="hamming"), None)
    assert bits is not None
    more = bits.memory_bytes(90_000) - bits.memory_bytes(10_000)
    assert 80_000 * (128 + 8 + 240) <= more <= 80_000 * (128 + 8 + 240 + 64)


@pytest.mark.parametrize(
    ("columns", "members", "packs"),
    [(1024, 60, True), (4096, 60, False), (4096, 300, True), (10**6, 600, False)],
)
def test_sparse_rows_are_packed_where_that_is_less_work(columns: int, members: int, packs: bool) -> None:
    indices = np.random.default_rng(0).integers(0, columns, 50 * members)
    x = sp.csr_array(
        (np.ones(len(indices), bool), indices, np.arange(0, len(indices) + 1, members)), (50, columns)
    )
    task = KNN.task(x, k=3, metric="jaccard")
    assert (choice.sparse_sides(task) is None) == packs
    assert isinstance(choice.set_fold(task, None), NearestBits if packs else NearestSets)


@pytest.mark.parametrize("metric", ["hamming", "jaccard"])
def test_complex_numbers_are_no_sets(metric: str) -> None:
    with pytest.raises(InputError, match="complex"):
        rf.knn(np.zeros((4, 8), complex), 2, metric=metric)
