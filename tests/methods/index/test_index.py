"""A stored index, and neighbors of queries in it: what lists hold, how many true ones, what is refused."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from reference import same_bytes, to_zarr

import rankfold as rf
from rankfold.methods.index import queries as index_queries
from rankfold.pipeline.errors import DataError, InputError, MemoryBudgetError, NonFiniteError

Array = npt.NDArray[Any]


def clustered(rows: int, columns: int = 24, seed: int = 0) -> Array:
    """Clusters of five dimensions each, the same for any seed: neighbors can be told apart."""
    fixed, r = np.random.default_rng(99), np.random.default_rng(seed)
    centers, directions = 3 * fixed.standard_normal((12, columns)), fixed.standard_normal((12, 5, columns))
    label = r.integers(0, 12, rows)
    within = np.einsum("ij,ijk->ik", r.standard_normal((rows, 5)), directions[label])
    return (centers[label] + within).astype(np.float32)


def made(x: object, **asked: Any) -> rf.Result:
    return rf.index(x, **{"partition_rows": 60, "threads": 2, **asked})


def look_up(q: object, index: object, k: int = 5, **asked: Any) -> rf.Result:
    return rf.knn(q, k, index=index, threads=2, **asked)  # type: ignore[arg-type]


def assert_same_lists(one: rf.Result, two: rf.Result) -> None:
    for name in ("indices", "distances"):
        np.testing.assert_array_equal(one[name][...], two[name][...], err_msg=name)


def assert_said_recall(found: rf.Result, exact: rf.Result) -> None:
    """The interval holds the share of neighbors as near as the true ones, over all queries."""
    near = np.asarray(found.distances) <= np.asarray(exact.distances)[:, -1:]
    low, high = found.attrs.get("recall_interval", (found.attrs["recall"],) * 2)
    assert low <= float(near.mean()) <= high


# What is stored -----------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "i2"])
def test_every_row_lies_in_the_partition_of_its_nearest_center(metric: str, dtype: str) -> None:
    x = (20 * clustered(3000) + 120).clip(0, 255).astype(dtype)
    index = made(x, metric=metric)
    ids, edges = np.asarray(index.ids[...])[:, 0], np.asarray(index.edges)
    np.testing.assert_array_equal(np.sort(ids), np.arange(3000))
    np.testing.assert_array_equal(np.asarray(index.rows[...]), x[ids])
    rows, centers = x[ids].astype(np.float64), np.asarray(index.centers).astype(np.float64)
    if metric == "cosine":
        rows, centers = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (rows, centers))
    apart = np.linalg.norm(rows[:, None] - centers, axis=2)
    own = np.repeat(np.arange(len(centers)), np.diff(edges))
    mine = apart[np.arange(3000), own]
    np.testing.assert_allclose(mine, apart.min(axis=1), rtol=1e-9, atol=1e-9)
    for partition, radius in enumerate(np.asarray(index.radii)):
        some = slice(edges[partition], edges[partition + 1])
        assert (np.diff(ids[some]) > 0).all()
        assert mine[some].max(initial=0.0) <= radius * (1 + 1e-12) <= mine[some].max(initial=0.0) * (1 + 1e-9)
    assert index.attrs["partitions"] == len(centers)
    assert index.attrs["passes"] == 2


def test_the_bytes_of_an_index_are_those_of_its_rows(tmp_path: Path) -> None:
    x = clustered(2500)
    first = made(x, out=tmp_path / "a.zarr")
    for chunks in ((700, 24), (2500, 7), (31, 24)):
        other = made(to_zarr(tmp_path / f"{chunks}.zarr", x, chunks), threads=1, memory="512MiB")
        for name in first:
            np.testing.assert_array_equal(np.asarray(other[name][...]), np.asarray(first[name][...]))
    assert (np.asarray(made(x, seed=1).ids[...]) != np.asarray(first.ids[...])).any()


def test_runs_of_many_panels_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    x = clustered(4000)
    whole = made(x)
    monkeypatch.setattr("rankfold.methods.partitions.layout.PANEL_BYTES", 4 * 24 * 130)
    monkeypatch.setattr("rankfold.methods.index.layout.CHUNK_BYTES", (4 * 24 * 90, 4 * 24 * 333))
    cut = made(x)
    for name in whole:
        np.testing.assert_array_equal(np.asarray(cut[name][...]), np.asarray(whole[name][...]))


# What is found ------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine"])
def test_without_a_recall_lists_are_exact(metric: str) -> None:
    x, q = clustered(4000), clustered(900, seed=1)
    found = look_up(q, made(x, metric=metric), metric=metric)
    assert_same_lists(found, rf.knn(x, 5, queries=q, metric=metric, threads=2))
    assert found.attrs["recall"] == 1.0
    assert found.attrs["method"] == "index"
    assert found.graph.shape == (900, 4000)
    np.testing.assert_array_equal(found.graph.indices.reshape(-1, 5), found.indices[...])


def test_balls_rule_partitions_out() -> None:
    x, q = clustered(6000), clustered(700, seed=1)
    found = look_up(q, made(x))
    assert found.run["attempts"][-1]["row_pairs"] < 0.5 * len(x) * len(q)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("min_recall", [0.5, 0.9, 0.99])
def test_the_recall_is_what_is_said(metric: str, min_recall: float) -> None:
    x, q = clustered(5000), clustered(2000, seed=1)
    found = look_up(q, made(x, metric=metric), metric=metric, min_recall=min_recall)
    exact = rf.knn(x, 5, queries=q, metric=metric, threads=2)
    assert_said_recall(found, exact)
    assert found.attrs["recall_interval"][0] >= min_recall
    assert found.attrs["recall_rows"] == (800 if min_recall == 0.99 else 400)
    tried = found.attrs["recall_of_probes"]
    assert tried[-1] == [found.attrs["probes"], found.attrs["recall"]]
    assert all(after[1] >= before[1] for before, after in itertools.pairwise(tried))


def test_a_recall_that_is_not_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    r = np.random.default_rng(0)
    x, q = (r.standard_normal((rows, 40)).astype(np.float32) for rows in (6000, 1500))
    monkeypatch.setattr(index_queries, "PROBES", (1, 2, 3))
    with pytest.warns(
        rf.RankfoldWarning, match=r"the recall of 400 queries is 0\.\d+, from .* with 3 probes"
    ):
        found = look_up(q, made(x), min_recall=0.95)
    assert_said_recall(found, rf.knn(x, 5, queries=q, threads=2))
    assert found.attrs["recall_interval"][0] < 0.95


def test_few_queries_have_exact_lists_whatever_recall_is_enough() -> None:
    x, q = clustered(3000), clustered(300, seed=1)
    found = look_up(q, made(x), min_recall=0.5)
    assert_same_lists(found, rf.knn(x, 5, queries=q, threads=2))
    assert "probes" not in found.attrs


def test_a_list_depends_on_no_other_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same number of probes: in any order, panels, reads and company."""
    r = np.random.default_rng(3)
    x, q = (r.standard_normal((rows, 20)).astype(np.float32) for rows in (4000, 1200))
    index = made(x)
    monkeypatch.setattr(index_queries, "PROBES", (3,))
    first = look_up(q, index, min_recall=0.01)
    order = r.permutation(1200)
    monkeypatch.setattr(index_queries, "HELD_BYTES", 2**16)
    monkeypatch.setattr("rankfold.methods.index.layout.AT_ONCE", 70)
    monkeypatch.setattr("rankfold.methods.index.layout.ROWS_AT_ONCE", 4 * 20 * 45)
    other = look_up(q[order][:900], index, min_recall=0.01)
    np.testing.assert_array_equal(other.indices[...], np.asarray(first.indices)[order[:900]])
    np.testing.assert_array_equal(other.distances[...], np.asarray(first.distances)[order[:900]])


@pytest.mark.parametrize("stored", ["f4", "u1", "i2"])
@pytest.mark.parametrize("asked", ["f4", "f8", "u1", "?"])
def test_queries_may_be_of_another_type(stored: str, asked: str) -> None:
    x, q = ((20 * clustered(rows, seed=1) + 120).clip(0, 255) for rows in (2000, 500))
    x, q = x.astype(stored), (q > 120 if asked == "?" else q.astype(asked))
    assert_same_lists(look_up(q, made(x)), rf.knn(x, 5, queries=q, threads=2))


def test_rows_of_the_index_find_themselves(tmp_path: Path) -> None:
    """Queries are other rows, even if they are equal to some."""
    x = clustered(2000)
    found = look_up(x[:700], made(x), min_recall=0.9)
    np.testing.assert_array_equal(np.asarray(found.indices)[:, 0], np.arange(700))
    assert (np.asarray(found.distances)[:, 0] == 0).all()


def test_queries_go_through_the_steps_of_the_index(tmp_path: Path) -> None:
    r = np.random.default_rng(0)
    x, q = (r.poisson(3.0, (rows, 30)).astype(np.float32) for rows in (1500, 400))
    steps = ["normalize_total", "log1p"]
    index = made(x, prepare=steps, out=tmp_path / "i.zarr")
    prepared = rf.open(x, prepare=steps)
    exact = rf.knn(prepared, 5, queries=q, threads=2)
    assert_same_lists(look_up(q, index), exact)


# Hard rows ----------------------------------------------------------------------------------------


def hard(kind: str, rows: int) -> Array:
    r = np.random.default_rng(rows)
    x = r.standard_normal((rows, 18))
    copies = np.random.default_rng(7).standard_normal((40, 18))
    return {
        "all equal": np.ones((rows, 18)),
        "zeros": np.zeros((rows, 18)),
        "few values": r.integers(0, 2, (rows, 18)).astype(np.float64),
        "many copies": copies[r.integers(0, 40, rows)],
        "some zeros": np.where((np.arange(rows) % 3 == 0)[:, None], 0.0, x),
        "two far blobs": 1e-3 * x + np.where(np.arange(rows) % 2, 1e3, -1e3)[:, None],
        "one cluster and dust": np.where((np.arange(rows) % 16 > 0)[:, None], 1e-9 * x, 1e3 * x),
        "far from the origin": 1e6 + x,
        "scales": x * 10.0 ** r.integers(-6, 6, (rows, 1)),
        "huge": 1e120 * x,
        "tiny": 1e-120 * x,
    }[kind]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "all equal", "zeros", "few values", "many copies", "some zeros", "two far blobs",
        "one cluster and dust", "far from the origin", "scales", "huge", "tiny",
    ],
)  # fmt: skip
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine"])
@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
def test_hard_rows(kind: str, metric: str) -> None:
    x, q = hard(kind, 1500), hard(kind, 900)
    index = made(x, metric=metric)
    exact = rf.knn(x, 8, queries=q, metric=metric, threads=2)
    assert_same_lists(look_up(q, index, 8, metric=metric), exact)
    assert_said_recall(look_up(q, index, 8, metric=metric, min_recall=0.8), exact)


@pytest.mark.parametrize(("rows", "k"), [(1, 1), (3, 3), (17, 16), (200, 200)])
def test_few_rows(rows: int, k: int) -> None:
    r = np.random.default_rng(rows)
    x, q = r.standard_normal((rows, 16)), r.standard_normal((500, 16))
    index, exact = made(x, partition_rows=2), rf.knn(x, k, queries=q, threads=1)
    assert_same_lists(look_up(q, index, k), exact)
    assert_same_lists(look_up(q[:1], index, k, min_recall=0.5), rf.knn(x, k, queries=q[:1], threads=1))


@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
def test_lists_that_partitions_leave_short_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """More neighbors than the partitions that are probed have rows."""
    x, q = clustered(1200), clustered(600, seed=1)
    index = made(x, partition_rows=20)
    monkeypatch.setattr(index_queries, "PROBES", (1,))
    found, exact = look_up(q, index, 150, min_recall=0.01), rf.knn(x, 150, queries=q, threads=2)
    assert int(np.diff(np.asarray(index.edges)).max()) < 150
    assert_same_lists(found, exact)


def test_one_partition() -> None:
    x, q = clustered(900), clustered(500, seed=1)
    index = made(x, partition_rows=5000)
    assert index.attrs["partitions"] == 1
    found = look_up(q, index, min_recall=0.9)
    assert_same_lists(found, rf.knn(x, 5, queries=q, threads=2))
    assert found.attrs["recall"] == 1.0


# What is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"metric": "inner_product"}, "metric must be one of euclidean, sqeuclidean, cosine"),
        ({"metric": "manhattan"}, "not 'manhattan'"),
        ({"partition_rows": 1}, "partition_rows must be at least 2, not 1"),
        ({"partition_rows": 1.5}, "partition_rows"),
        ({"seed": -1}, "seed must lie in"),
    ],
)
def test_an_index_that_cannot_be_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        made(clustered(100), **asked)


def test_narrow_rows_have_no_index() -> None:
    with pytest.raises(InputError, match=r"is for rows of 16 columns or more, of which .* has 3"):
        made(np.ones((100, 3)))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"metric": "cosine"}, r"is by euclidean, and neighbors by cosine were asked for"),
        ({"symmetric": "union"}, "symmetric has no place beside index"),
        ({"solver": "tree"}, "solver=tree has no place beside index"),
        ({"min_recall": 0.9, "partition_rows": 50}, "partition_rows has no place beside index"),
        ({"queries": np.ones((3, 24))}, "queries has no place beside it"),
        ({"box": 3.0}, "box has no place beside it"),
        ({"k": 101}, "k 101 was asked for, but .* has 100 rows"),
        ({"min_recall": 1.0}, "min_recall must be at least 0 and below 1"),
    ],
)
def test_what_cannot_be_looked_up_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        look_up(clustered(50, seed=1), made(clustered(100)), **asked)


def test_other_columns_and_other_results_are_refused(tmp_path: Path) -> None:
    x = clustered(200)
    with pytest.raises(InputError, match=r"has 30 columns, but .*index of 200 x 24.* has 24"):
        look_up(np.ones((5, 30)), made(x))
    with pytest.raises(InputError, match="is the result of knn: give one of index"):
        look_up(x, rf.knn(x, 3, threads=1))
    with pytest.raises(InputError, match="base must be a result of knn"):
        rf.knn(x, 3, base=look_up(x, made(x)))


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    x, q = clustered(1000), clustered(900, seed=1)
    index = made(x)
    x[777, 3] = q[555, 5] = np.nan
    with pytest.raises(NonFiniteError, match="row 777"):
        made(x, out=tmp_path / "i.zarr")
    for more in ({}, {"min_recall": 0.9}):
        with pytest.raises(NonFiniteError, match="row 555"):
            look_up(q, index, out=tmp_path / "r.zarr", **more)
    assert not (tmp_path / "r.zarr").exists()
    assert not (tmp_path / "i.zarr").exists()


def test_an_index_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    index = made(clustered(1000), out=tmp_path / "i.zarr")
    whole = next(file for file in (tmp_path / "i.zarr" / "rows" / "c").rglob("*") if file.is_file())
    whole.write_bytes(whole.read_bytes()[:-64])
    with pytest.raises(DataError, match="rows"):
        look_up(clustered(10), index.path)
    shutil.rmtree(tmp_path / "i.zarr" / "rows")
    with pytest.raises(DataError, match="rows"):
        look_up(clustered(10), index.path)


def test_another_index_is_another_request(tmp_path: Path) -> None:
    x, q = clustered(1000), clustered(500, seed=1)
    one = look_up(q, made(x, out=tmp_path / "i.zarr"), out=tmp_path / "r.zarr")
    again = look_up(q, tmp_path / "i.zarr", out=tmp_path / "r.zarr")
    assert same_bytes(one) == same_bytes(again)
    made(x, seed=1, out=tmp_path / "i.zarr", overwrite=True)
    with pytest.raises(rf.RankfoldError, match="another request: contents of index"):
        look_up(q, tmp_path / "i.zarr", out=tmp_path / "r.zarr")


# Plans and memory ---------------------------------------------------------------------------------


def test_plans_say_what_it_takes() -> None:
    x, q = clustered(3000), clustered(1000, seed=1)
    plan = rf.plan("index", x, partition_rows=60)
    assert plan.method == "partitions"
    assert plan.most_passes == 2
    assert "50 partitions" in str(plan)
    index = made(x)
    looked_up = rf.plan("knn", q, k=5, index=index, min_recall=0.9)
    assert looked_up.method == "index"
    assert looked_up.most_passes == 2
    assert "the recall of a sample" in str(looked_up)
    assert rf.plan("knn", q, k=5, index=index).most_passes == 1
    with pytest.raises(MemoryBudgetError, match="queries in an index needs"):
        rf.plan("knn", q, k=5, index=index, memory="10MiB")


COMMAND = """
import json, sys
import rankfold as rf
store, folder, asked = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
rf.index(store, out=folder + "/i.zarr", memory="300MiB", threads=asked["threads"], metric=asked["metric"])
index = rf.open_result(folder + "/i.zarr")
found = rf.knn(sys.argv[4], index=index, out=folder + "/r.zarr", memory="300MiB", **asked)
print(json.dumps([each.run["attempts"][-1] for each in (index, found)]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f4", "u1"])
@pytest.mark.parametrize(
    "asked",
    [
        {"k": 15, "threads": 1, "metric": "euclidean", "min_recall": 0.9},
        {"k": 40, "threads": 2, "metric": "cosine", "min_recall": 0.9},
        {"k": 5, "threads": 2, "metric": "euclidean"},
    ],
)
def test_the_peak_is_planned(tmp_path: Path, dtype: str, asked: dict[str, Any]) -> None:
    x, q = clustered(100_000, 96), clustered(20_000, 96, seed=1)
    if dtype == "u1":
        x, q = (((each + 20) * 4).clip(0, 255).astype(np.uint8) for each in (x, q))
    stores = [to_zarr(tmp_path / f"{name}.zarr", each, (2000, 96)) for name, each in (("x", x), ("q", q))]
    command = [sys.executable, "-W", "ignore", "-c", COMMAND, stores[0], str(tmp_path), json.dumps(asked)]
    done = subprocess.run([*command, stores[1]], stdout=subprocess.PIPE, text=True, check=True)
    for facts in json.loads(done.stdout.splitlines()[-1]):
        assert facts["measured_bytes"] <= facts["planned_bytes"] <= 300 * 2**20


def test_memory_hardly_grows_with_the_rows() -> None:
    """Centers and the sample that they are made from do, up to a limit; with the queries nothing does."""

    def peak(kind: str, rows: int, **asked: Any) -> int:
        x = np.lib.stride_tricks.as_strided(np.zeros(96, np.float32), (rows, 96), (0, 4))
        return int(rf.plan(kind, x, threads=2, memory="2GiB", **asked).peak_bytes)

    assert peak("index", 10**8) <= 3 * peak("index", 10**6)
    index = made(clustered(3000, 96))
    for asked in ({"k": 40, "min_recall": 0.9}, {"k": 5}):
        few, many = (peak("knn", rows, index=index, **asked) for rows in (10**5, 10**7))
        assert many <= 1.02 * few
