"""Nearest neighbors of sparse rows: exact, without their zeros, and the same however they are found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from covers import cover
from hypothesis import given
from hypothesis import strategies as st
from reference import same_bytes

import rankfold as rf
import rankfold.pipeline.data.source as sources
from rankfold.methods.knn import sparse_rows
from rankfold.pipeline.errors import MemoryBudgetError, NonFiniteError
from rankfold.pipeline.formats.arrays import SparseSource
from rankfold.pipeline.formats.csr import CsrSource

Matrix = np.ndarray[Any, Any]

METRICS = ("euclidean", "sqeuclidean", "cosine", "inner_product")


@pytest.fixture(autouse=True)
def nothing_is_made_dense(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """No test reads rows with their zeros, unless its name says so."""
    if "made_dense" in request.node.name:
        return

    def refuse(*arguments: object) -> None:
        raise AssertionError("rows were made dense")

    for source in (SparseSource, CsrSource):
        monkeypatch.setattr(source, "read_into", refuse)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks and tiles, as a matrix of millions of rows has."""
    from rankfold.kernels.neighbors.cpu import sparse_meeting as body

    monkeypatch.setattr(sparse_rows, "BLOCK_ROWS", 64)
    monkeypatch.setattr(sparse_rows, "BLOCK_NUMBERS", 700)
    monkeypatch.setattr(body, "TILE", (16, 24))


def sparse(rows: int, columns: int, fill: float = 0.1, seed: int = 0) -> sp.csr_array:
    """Rows of any length, some of them empty, with a few columns that nearly all of them hold."""
    rng = np.random.default_rng([rows, columns, seed])
    shares = np.minimum(1, fill * rng.lognormal(-1, 1.2, (rows, 1)) * np.ones(columns))
    shares[:, : max(1, columns // 40)] = 0.8
    shares[::7] = 0
    return sp.csr_array(rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < shares))


def apart(x: Matrix, y: Matrix, metric: str) -> Matrix:
    """Distances of all pairs, in more than float64 where the machine has it."""
    x, y = x.astype(np.longdouble), y.astype(np.longdouble)
    if metric == "inner_product":
        return -np.stack([(y * row).sum(axis=1) for row in x])
    if metric == "cosine":
        empty = [~a.any(axis=1) for a in (x, y)]
        x, y = (
            a / np.sqrt(np.where(e, 1, (a * a).sum(axis=1)))[:, None]
            for a, e in zip((x, y), empty, strict=True)
        )
        halves = np.stack([((y - row) ** 2).sum(axis=1) / 2 for row in x])
        halves[empty[0]] = halves[:, empty[1]] = 1
        return halves
    squares = np.stack([((y - row) ** 2).sum(axis=1) for row in x])
    return np.sqrt(squares) if metric == "euclidean" else squares


def nearest(distances: Matrix, k: int, *, itself: bool = True) -> tuple[Matrix, Matrix]:
    """Indices and distances of the k nearest, by (distance, index)."""
    if itself:
        distances = np.where(np.eye(len(distances), dtype=bool), np.inf, distances)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(distances, order, axis=1)


def assert_nearest(result: rf.Result, distances: Matrix, k: int, *, itself: bool = True) -> None:
    """Lists are those of brute force, but for rows that are equally far to within rounding."""
    _, values = nearest(distances, k, itself=itself)
    indices = np.asarray(result.indices[...])
    np.testing.assert_allclose(result.distances[...], values.astype(float), rtol=4e-15, atol=4e-15)
    assert (np.diff(np.sort(indices, axis=1), axis=1) > 0).all() and (np.diff(result.distances) >= 0).all()
    measured = np.take_along_axis(distances, indices, axis=1).astype(float)
    np.testing.assert_allclose(result.distances[...], measured, rtol=4e-15, atol=4e-15)
    if itself:
        assert (indices != np.arange(len(indices))[:, None]).all()


def to_store(
    folder: Path, x: sp.csr_array, *, index: str = "int32", chunk: int = 1000, order: Matrix | None = None
) -> str:
    """As AnnData stores it; ``order`` is that of the numbers, which must leave them in their rows."""
    group = zarr.open_group(folder, mode="w")
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(x.shape)})
    order = np.arange(x.nnz) if order is None else order
    vectors = {
        "data": x.data[order],
        "indices": x.indices[order].astype(index),
        "indptr": x.indptr.astype(index),
    }
    for name, values in vectors.items():
        group.create_array(name, shape=values.shape, chunks=(min(chunk, len(values)),), dtype=values.dtype)[
            ...
        ] = values
    return str(folder)


@pytest.mark.parametrize(("metric", "dtype"), cover(METRICS, ["float32", "float64"]))
def test_lists_are_those_of_brute_force(metric: str, dtype: str, small_blocks: None) -> None:
    x, q = sparse(400, 120).astype(dtype), sparse(90, 120, seed=1).astype(dtype)
    assert_nearest(rf.knn(x, 9, metric=metric), apart(x.toarray(), x.toarray(), metric), 9)
    found = rf.knn(x, 9, metric=metric, queries=q)
    assert_nearest(found, apart(q.toarray(), x.toarray(), metric), 9, itself=False)


@given(
    data=st.data(),
    metric=st.sampled_from(METRICS),
    columns=st.integers(16, 90),
    k=st.integers(1, 6),
    tile=st.sampled_from([(1, 1), (3, 5), (256, 2048)]),
    block=st.integers(2, 40),
)
def test_ties_go_to_the_smaller_index(
    data: Any, metric: str, columns: int, k: int, tile: tuple[int, int], block: int
) -> None:
    cell = st.tuples(st.integers(0, columns - 1), st.integers(-2, 2))
    rows = data.draw(st.lists(st.lists(cell, max_size=2), min_size=k + 1, max_size=40))
    x = np.zeros((len(rows), columns))
    for row, cells in enumerate(rows):
        for column, value in cells:
            x[row, column] = value
    with pytest.MonkeyPatch.context() as patch:
        from rankfold.kernels.neighbors.cpu import sparse_meeting as body

        patch.setattr(body, "TILE", tile)
        patch.setattr(sparse_rows, "BLOCK_ROWS", block)
        result = rf.knn(sp.csr_array(x), k, metric=metric, threads=1)
    distances = apart(x, x, metric)
    assert_nearest(result, distances, k)
    if metric != "cosine":  # whole numbers, or their roots, are equal where they should be
        order, _ = nearest(distances.astype(float), k)
        assert np.array_equal(result.indices, order)


@pytest.mark.parametrize("metric", METRICS)
def test_whole_numbers_give_the_bytes_of_dense_rows(metric: str, small_blocks: None) -> None:
    x = sparse(300, 64)
    x.data = np.round(3 * x.data)
    one, other = (rf.knn(a, 7, metric=metric) for a in (x, x.toarray()))
    if metric == "cosine":
        np.testing.assert_allclose(one.distances[...], other.distances[...], rtol=0, atol=1e-15)
    else:
        assert np.array_equal(one.indices, other.indices) and np.array_equal(one.distances, other.distances)


@pytest.mark.parametrize("spread", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
def test_rows_that_are_nearly_equal_keep_all_digits(metric: str, spread: float, small_blocks: None) -> None:
    centers, rng = sparse(10, 300, seed=2), np.random.default_rng(0)
    x = sp.csr_array(sp.vstack([centers[[i % 9 + 1]] for i in range(200)]))
    x.data *= 1 + spread * rng.standard_normal(x.nnz)
    distances = apart(x.toarray(), x.toarray(), metric)
    result = rf.knn(x, 5, metric=metric)
    values = np.take_along_axis(distances, np.asarray(result.indices[...]), axis=1).astype(float)
    # Unit rows are rounded before they are subtracted.
    atol = 8 * spread * np.finfo(float).eps if metric == "cosine" else 0
    np.testing.assert_allclose(result.distances[...], values, rtol=1e-13, atol=atol)
    np.testing.assert_allclose(values, nearest(distances, 5)[1].astype(float), rtol=1e-12, atol=atol)


@pytest.mark.parametrize("metric", METRICS)
def test_equal_rows_and_empty_rows(metric: str, small_blocks: None) -> None:
    row = sparse(4, 50, seed=3)[[1]]
    x = sp.csr_array(sp.vstack([row] * 150 + [sp.csr_array((1, 50))] * 150))
    result = rf.knn(x, 3, metric=metric)
    indices, distances = np.asarray(result.indices), np.asarray(result.distances)
    assert indices[:4].tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    if metric in ("euclidean", "sqeuclidean"):
        assert (indices[150:153] == [[151, 152, 153], [150, 152, 153], [150, 151, 153]]).all()
        assert not distances.any()
    elif metric == "cosine":
        assert (
            (indices[150:] == [0, 1, 2]).all() and (distances[150:] == 1).all() and not distances[:150].any()
        )


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e12, 1e30, 1e120])
def test_numbers_of_any_size(size: float, small_blocks: None) -> None:
    x = sparse(200, 80)
    distances = apart(x.toarray(), x.toarray(), "euclidean")
    result = rf.knn(x * size, 5)
    np.testing.assert_allclose(
        np.asarray(result.distances) / size, nearest(distances, 5)[1].astype(float), rtol=1e-14
    )


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "u1", "i1", "u2", "i2", "i4", "i8", "?"])
def test_every_type_of_number(dtype: str, tmp_path: Path) -> None:
    x = sparse(150, 60)
    x.data = np.abs(np.round(3 * x.data)) if dtype != "?" else np.ones(x.nnz)
    x = sp.csr_array(x.astype(dtype)) if dtype != "f2" else x
    store = to_store(tmp_path / "x.zarr", x)
    if dtype == "f2":
        zarr.open_group(store)["data"]  # SciPy has no halves
        x.data = x.data.astype(dtype)
        store = to_store(tmp_path / "x.zarr", x)
    wide = sp.csr_array((x.data.astype(float), x.indices, x.indptr), shape=x.shape).toarray()
    order, values = nearest(apart(wide, wide, "euclidean").astype(float), 5)
    result = rf.knn(store, 5)
    assert np.array_equal(result.indices, order) and np.array_equal(result.distances, values)


@pytest.mark.parametrize(("index", "metric"), cover(["int32", "int64"], ["euclidean", "cosine"]))
def test_every_way_to_store_rows_gives_the_same_lists(
    index: str, metric: str, tmp_path: Path, small_blocks: None
) -> None:
    x = sparse(300, 90).astype(np.float32)
    whole, rng = rf.knn(x, 6, metric=metric), np.random.default_rng(0)
    rows = np.repeat(np.arange(300), np.diff(x.indptr))
    shuffled = np.lexsort((rng.random(x.nnz), rows))
    wide = sp.csr_array((x.data, x.indices.astype(np.int64), x.indptr.astype(np.int64)), shape=x.shape)
    # Every number twice, as a half: halves of what float32 holds add up without rounding.
    twice = sp.csr_array((np.repeat(x.data / 2, 2), np.repeat(x.indices, 2), 2 * x.indptr), shape=x.shape)
    stores = [
        to_store(tmp_path / "plain.zarr", x, index=index, chunk=97),
        to_store(tmp_path / "shuffled.zarr", x, index=index, order=shuffled),
        to_store(tmp_path / "twice.zarr", twice, index=index),
    ]
    for source in (*stores, wide, sp.csc_array(x), sp.coo_array(x)):
        result = rf.knn(source, 6, metric=metric)
        assert np.array_equal(result.indices, whole.indices)
        assert np.array_equal(result.distances, whole.distances)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_cuts_threads_and_memory_change_no_bit(
    metric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = sparse(1500, 200).astype(np.float32)
    store = to_store(tmp_path / "x.zarr", x)
    whole = rf.knn(store, 8, metric=metric, threads=1)
    for rows, numbers, common, threads, memory in (
        (100, 10**6, 0.15, 2, None),
        (10**4, 2000, 0.5, 7, None),
        (300, 5000, 1.0, 1, "90MiB"),
        (64, 1000, 0.0, 7, "256MiB"),
    ):
        monkeypatch.setattr(sparse_rows, "BLOCK_ROWS", rows)
        monkeypatch.setattr(sparse_rows, "BLOCK_NUMBERS", numbers)
        monkeypatch.setattr(sparse_rows, "COMMON_FILL", common)
        assert same_bytes(rf.knn(store, 8, metric=metric, threads=threads, memory=memory)) == same_bytes(
            whole
        )


@pytest.mark.process
def test_processes_give_the_same_bytes_as_threads(tmp_path: Path) -> None:
    store = to_store(tmp_path / "x.zarr", sparse(20_000, 300, 0.03).astype(np.float32), chunk=20_000)
    whole = rf.knn(store, 5, metric="cosine", threads=1, out=tmp_path / "one.zarr")
    for workers in (1, 3):
        out = tmp_path / f"{workers}.zarr"
        result = rf.knn(store, 5, metric="cosine", workers=workers, threads=2, memory="300MiB", out=out)
        assert same_bytes(result) == same_bytes(whole)


def test_a_run_that_is_stopped_goes_on(tmp_path: Path, small_blocks: None) -> None:
    x = sparse(1500, 80)

    def stop(name: str, done: int, total: int) -> None:
        if name == "pairs" and done >= 0.3 * total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rf.knn(x, 5, threads=1, out=tmp_path / "r.zarr", progress=stop)
    again = rf.knn(x, 5, threads=2, out=tmp_path / "r.zarr")
    assert same_bytes(again) == same_bytes(rf.knn(x, 5))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_rows_that_are_added_give_the_lists_of_all(metric: str, small_blocks: None) -> None:
    x = sparse(500, 80)
    whole, first = rf.knn(x, 6, metric=metric), rf.knn(x[:333], 8, metric=metric)
    result = rf.knn(x, 6, metric=metric, base=first)
    assert np.array_equal(result.indices, whole.indices) and np.array_equal(result.distances, whole.distances)
    changed = x.copy()
    changed.data[:40] += 1
    with pytest.raises(rf.RankfoldError, match="are not those that"):
        rf.knn(changed, 6, metric=metric, base=first)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_lists_of_rows_that_were_made_dense_are_gone_on_with(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = sparse(300, 80)
    first = rf.knn(x[:200], 6, metric=metric)
    monkeypatch.setattr(sources, "LARGEST_FILL", 0.0)
    dense = rf.knn(x, 6, metric=metric, base=first)
    assert_nearest(dense, apart(x.toarray(), x.toarray(), metric), 6)


def test_full_rows_are_made_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    read = SparseSource.read_into

    def counted(self: Any, *arguments: Any) -> None:
        counts.append(1)
        read(self, *arguments)

    monkeypatch.setattr(SparseSource, "read_into", counted)
    rf.knn(sp.csr_array(np.random.default_rng(0).standard_normal((100, 20))), 3)
    assert counts


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused_with_their_place(bad: float, small_blocks: None) -> None:
    x = sparse(300, 60).tolil()
    x[150, 22] = bad
    with pytest.raises(NonFiniteError, match="the first at row 150, column 22"):
        rf.knn(sp.csr_array(x), 3)


def test_squares_out_of_range_are_refused() -> None:
    x = sparse(100, 60).tolil()
    x[20, 33] = 1e200
    with pytest.raises(rf.RankfoldError, match=r"row 20, column 33 .* leaves the range of float64"):
        rf.knn(sp.csr_array(x), 3)
    x[20] = 0
    x[20, 33] = 1e-170
    with pytest.raises(rf.RankfoldError, match=r"row 20 \(from 0\) .* needs its direction"):
        rf.knn(sp.csr_array(x), 3, metric="cosine")


COMMAND = """
import json, sys
import rankfold as rf
r = rf.knn(sys.argv[1], out=sys.argv[2], **json.loads(sys.argv[3]))
print(json.dumps(r.run["attempts"][-1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "asked"),
    [
        (10**6, {"k": 15, "metric": "cosine", "threads": 1, "memory": "250MiB"}),
        (10**6, {"k": 15, "metric": "euclidean", "threads": 2, "memory": "450MiB"}),
        (2000, {"k": 100, "metric": "inner_product", "threads": 2, "memory": "400MiB"}),
        (10**6, {"k": 15, "metric": "jaccard", "threads": 2, "memory": "350MiB"}),
    ],
)
def test_the_peak_is_planned_by_stored_numbers(tmp_path: Path, columns: int, asked: dict[str, Any]) -> None:
    """Rows with their zeros would take 4 GB a thousand; columns of Zipf's law."""
    rng, rows, each = np.random.default_rng(0), 20_000, 150
    chances = 1 / (np.arange(columns) + 8.0)
    indices = rng.choice(columns, rows * each, p=chances / chances.sum())
    x = sp.csr_array(
        (np.ones(rows * each, np.float32), indices, np.arange(0, rows * each + 1, each)), (rows, columns)
    )
    x.sum_duplicates()
    store = to_store(tmp_path / "x.zarr", x, chunk=100_000)
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        COMMAND,
        store,
        str(tmp_path / "r.zarr"),
        json.dumps(asked),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    facts = json.loads(done.stdout.splitlines()[-1])
    if facts["measured_bytes"] is None:
        pytest.skip("this system does not report anonymous memory (RssAnon is Linux)")
    assert facts["measured_bytes"] <= facts["planned_bytes"] <= facts["plan"]["budget_bytes"]
    assert facts["read_bytes"] <= facts["plan"]["passes"][0]["reads_bytes"]


def test_the_plan_counts_stored_numbers(tmp_path: Path) -> None:
    thin = sp.csr_array(
        (np.ones(4000, np.float32), np.arange(4000) % 97, np.arange(0, 4001, 4)), (1000, 10**6)
    )
    assert rf.plan("knn", thin, k=5).peak_bytes < 2**28
    with pytest.raises(MemoryBudgetError, match=r"Give memory='\d+MiB'"):
        rf.knn(to_store(tmp_path / "x.zarr", thin), 5, memory="40MiB")
    assert rf.knn(thin, 5, memory="160MiB").indices.shape == (1000, 5)


@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=80),
    tallest=st.integers(2, 20),
    most=st.integers(1, 60),
    also=st.integers(0, 80),
)
def test_blocks_hold_all_rows_and_no_more_numbers_than_asked(
    lengths: list[int], tallest: int, most: int, also: int
) -> None:
    pointers = np.concatenate([[0], np.cumsum(lengths)])
    x = sp.csr_array((np.ones(pointers[-1]), np.zeros(pointers[-1], int), pointers), (len(lengths), 100))
    extra = (also,) if 0 < also < len(lengths) else ()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"BLOCK_ROWS": tallest, "BLOCK_NUMBERS": most, "POINTERS": 23}.items():
            patch.setattr(sparse_rows, name, value)
        blocks = sparse_rows.cut_blocks(SparseSource(x), extra)
    assert blocks.edges[0] == 0 and blocks.edges[-1] == len(lengths) and {*extra} <= {*blocks.edges.tolist()}
    assert np.array_equal(blocks.numbers, pointers[blocks.edges]) and blocks.longest == max(lengths)
    heights, numbers = np.diff(blocks.edges), np.diff(blocks.numbers)
    assert (heights > 0).all() and (heights <= tallest).all()
    assert ((numbers <= most) | (heights == 1)).all()
    for rows in (1, tallest, 3 * tallest, len(lengths)):
        runs = [
            blocks.numbers[j] - blocks.numbers[i]
            for i in range(len(heights))
            for j in range(i + 1, len(blocks.edges))
            if j == i + 1 or blocks.edges[j] - blocks.edges[i] <= rows
        ]
        assert blocks.most_of(rows) == max(runs)
