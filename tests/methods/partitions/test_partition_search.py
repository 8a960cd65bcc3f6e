"""Approximate neighbors: what lists hold, how many true ones, and what is said of that."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from reference import same_bytes, to_zarr

import rankfold as rf
from rankfold.methods.partitions import layout, rounds
from rankfold.methods.partitions.layout import Layout
from rankfold.methods.partitions.refinement import Meetings
from rankfold.methods.partitions.rounds import recall_of
from rankfold.pipeline.errors import InputError, NonFiniteError
from rankfold.pipeline.formats import open_source

Array = npt.NDArray[Any]


def clustered(rows: int, columns: int = 24, seed: int = 0) -> Array:
    """Clusters of five dimensions each: neighbors can be told apart."""
    r = np.random.default_rng(seed)
    label = r.integers(0, 12, rows)
    directions = r.standard_normal((12, 5, columns))
    within = np.einsum("ij,ijk->ik", r.standard_normal((rows, 5)), directions[label])
    return (3 * r.standard_normal((12, columns))[label] + within).astype(np.float32)


def search(x: object, k: int = 5, **asked: Any) -> rf.Result:
    return rf.knn(x, k, **{"solver": "approximate", "partition_rows": 60, "threads": 2, **asked})


def true_share(found: rf.Result, x: object, **asked: Any) -> float:
    """Share of neighbors as near as the true ones, over all rows."""
    exact = rf.knn(x, found.distances.shape[1], threads=2, **asked)
    near = np.asarray(found.distances) <= np.asarray(exact.distances)[:, -1:]
    return float(near.mean())


def assert_sound(found: rf.Result, x: Array, metric: str = "euclidean") -> None:
    """Distances are those of the pairs that are listed; order and ids as they must be."""
    ids, keys = np.asarray(found.indices), np.asarray(found.distances)
    apart = x[ids].astype(np.float64) - x[:, None].astype(np.float64)
    if metric == "euclidean":
        np.testing.assert_allclose(keys, np.sqrt((apart**2).sum(-1)), rtol=1e-12, atol=0)
    assert (np.diff(keys, axis=1) >= 0).all()
    assert (ids != np.arange(len(ids))[:, None]).all()
    assert all(len(set(row)) == len(row) for row in ids.tolist())


# What is found ------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "i2"])
def test_lists_are_sound_and_recall_is_what_is_said(metric: str, dtype: str) -> None:
    x = clustered(4000)
    x = (x - x.min()) * 8 if dtype == "u1" else x * 100 if dtype == "i2" else x
    x = x.astype(dtype)
    found = search(x, metric=metric)
    assert_sound(found, x, metric)
    low, high = found.attrs["recall_interval"]
    assert found.attrs["recall"] >= low >= 0.95
    assert low <= true_share(found, x, metric=metric) <= high
    assert found.attrs["method"] == "approximate"
    assert found.attrs["recall_rows"] == 400
    recalls = found.attrs["recall_of_rounds"], found.attrs["recall_of_visits"]
    assert found.attrs["passes"] == 1 + sum(map(len, recalls))
    assert found.attrs["recall"] == max(*recalls[0], *recalls[1])


def test_one_partition_gives_the_exact_lists() -> None:
    x = clustered(900)
    found, exact = search(x, partition_rows=5000), rf.knn(x, 5, threads=1)
    assert found.attrs["recall"] == 1.0
    for name in ("indices", "distances"):
        np.testing.assert_array_equal(found[name][...], exact[name][...])


def test_more_rounds_lose_nothing() -> None:
    x = np.random.default_rng(0).standard_normal((6000, 48)).astype(np.float32)
    with pytest.warns(rf.RankfoldWarning, match=r"the recall of 400 rows is 0\.\d+, from .* after 8 rounds"):
        found = search(x, partition_rows=20, min_recall=0.97)
    recall = found.attrs["recall_of_rounds"]
    assert len(recall) == 8
    assert all(after > before for before, after in itertools.pairwise(recall))
    low, high = found.attrs["recall_interval"]
    assert low <= true_share(found, x) <= high
    assert low < 0.97


def test_visits_find_what_partitions_have_parted() -> None:
    """Most of what a round has missed where rows have clusters; lists are sound, and of any cut."""
    x = clustered(12_000)
    found = search(x, k=10, partition_rows=150, min_recall=0.99)
    assert_sound(found, x)
    before, after = found.attrs["recall_of_rounds"][0], found.attrs["recall_of_visits"][0]
    assert before < 0.99
    assert 1 - after < 0.3 * (1 - before)
    low, high = found.attrs["recall_interval"]
    assert low <= true_share(found, x) <= high


def test_visitors_of_large_partitions_meet_pieces_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "LARGEST", 1)
    x = clustered(3000)
    asked: dict[str, Any] = {"partition_rows": 100, "min_recall": 0.999}
    found = search(x, k=10, **asked)
    assert found.attrs["recall_of_visits"][0] > found.attrs["recall_of_rounds"][0]
    assert_sound(found, x)


def test_a_recall_near_one_is_measured_on_more_rows() -> None:
    """As many as tell it from one: 8 / (1 - min_recall)."""
    found = search(clustered(3000), min_recall=0.995, partition_rows=400)
    assert found.attrs["recall_rows"] == 1600
    assert found.attrs["recall_interval"][0] >= 0.995
    assert not found.attrs["warnings"]


def test_the_graph_is_that_of_the_lists(tmp_path: Path) -> None:
    x = clustered(2500)
    lists = search(x, out=tmp_path / "a.zarr")
    union = search(x, symmetric="union", out=tmp_path / "b.zarr")
    one, both = lists.graph, union.graph
    np.testing.assert_array_equal(one.indices.reshape(-1, 5), lists.indices[...])
    assert (abs(both - one.maximum(one.T)) > 0).nnz == 0


def test_the_seed_decides_and_nothing_else(tmp_path: Path) -> None:
    x = np.random.default_rng(3).standard_normal((4000, 20)).astype(np.float32)
    asked: dict[str, Any] = {"partition_rows": 100, "min_recall": 0.5}
    first = search(x, out=tmp_path / "a.zarr", **asked)
    again = search(x, out=tmp_path / "b.zarr", threads=1, memory="1GiB", **asked)
    other = search(x, out=tmp_path / "c.zarr", seed=1, **asked)
    assert same_bytes(first) == same_bytes(again)
    assert (first.indices[...] != other.indices[...]).any()
    for chunks in ((700, 20), (4000, 7), (31, 20)):
        stored = search(to_zarr(tmp_path / f"{chunks}.zarr", x, chunks), **asked)
        np.testing.assert_array_equal(stored.indices[...], first.indices[...])
        np.testing.assert_array_equal(stored.distances[...], first.distances[...])


# Hard rows ----------------------------------------------------------------------------------------


def hard(kind: str) -> Array:
    r = np.random.default_rng(5)
    x = r.standard_normal((1500, 18))
    return {
        "all equal": np.ones((1500, 18)),
        "zeros": np.zeros((1500, 18)),
        "few values": r.integers(0, 2, (1500, 18)).astype(np.float64),
        "many copies": x[r.integers(0, 40, 1500)],
        "two far blobs": 1e-3 * x + np.where(np.arange(1500) % 2, 1e3, -1e3)[:, None],
        "rows far from all": np.where((np.arange(1500) % 500 == 7)[:, None], 1e6 * x, x),
        "one cluster and dust": np.where((np.arange(1500) < 1400)[:, None], 1e-9 * x, 1e3 * x),
        "scales": x * 10.0 ** r.integers(-6, 6, (1500, 1)),
        "huge": 1e120 * x,
        "tiny": 1e-120 * x,
        "sorted": np.sort(x, axis=0),
    }[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "all equal", "zeros", "few values", "many copies", "two far blobs", "rows far from all",
        "one cluster and dust", "scales", "huge", "tiny", "sorted",
    ],
)  # fmt: skip
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
def test_hard_rows_have_sound_lists(kind: str, metric: str) -> None:
    x = hard(kind)
    found = search(x, k=8, metric=metric, min_recall=0.9)
    assert found.indices.shape == (1500, 8)
    low, high = found.attrs["recall_interval"]
    assert low <= true_share(found, x, metric=metric) <= high
    if kind not in ("huge", "tiny"):
        assert_sound(found, x, metric)


def test_rows_whose_partitions_are_too_small_meet_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Centers where some rows are, which are then alone: at distance 0 no other center is nearly as near."""
    x = np.random.default_rng(0).standard_normal((1200, 16))
    alone = np.array([3, 100, 400, 401, 1100])
    x[alone] += 1e4 * np.eye(16)[:5]
    centers = np.concatenate([x[alone], np.zeros((1, 16))])
    monkeypatch.setattr(rounds, "centers_of", lambda *_: centers)
    found, exact = search(x, k=9, min_recall=0.1), rf.knn(x, 9, threads=1)
    assert found.run["attempts"][-1]["completed_rows"] == len(alone)
    for name in ("indices", "distances"):
        np.testing.assert_array_equal(found[name][...][alone], exact[name][...][alone])


@pytest.mark.parametrize(("rows", "k"), [(2, 1), (3, 2), (17, 16), (40, 1)])
def test_few_rows(rows: int, k: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 16))
    found, exact = search(x, k=k, partition_rows=None), rf.knn(x, k, threads=1)
    np.testing.assert_array_equal(found.indices[...], exact.indices[...])


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    x = clustered(1000)
    x[777, 3] = np.nan
    with pytest.raises(NonFiniteError, match="row 777"):
        search(x, out=tmp_path / "r.zarr")
    assert not (tmp_path / "r.zarr").exists()


# Requests -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"metric": "inner_product"}, "rows of large norm have the largest inner products"),
        ({"metric": "manhattan"}, "takes euclidean, sqeuclidean, cosine and correlation, not manhattan"),
        ({"min_recall": 1.0}, "min_recall must be at least 0 and below 1, not 1.0"),
        ({"min_recall": "most"}, "min_recall must be a number"),
        ({"min_recall": np.nan}, "min_recall must be a finite number"),
        ({"partition_rows": 11}, r"partition_rows must be at least 2 \(k \+ 1\) = 12, not 11"),
        ({"partition_rows": 1.5}, "partition_rows"),
        ({"seed": -1}, "seed must lie in"),
        ({"solver": "auto"}, "partition_rows is of approximate neighbors: say min_recall too"),
        ({"solver": "some"}, "solver must be one of auto, pairs, tree, approximate"),
        ({"queries": np.ones((3, 24))}, "without queries and base"),
        ({"k": 5000, "partition_rows": None}, "k 5000 was asked for"),
    ],
)
def test_what_cannot_be_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        search(clustered(100), **asked)


def test_narrow_rows_are_searched_exactly() -> None:
    with pytest.raises(InputError, match=r"is for rows of 16 columns or more, of which .* has 3"):
        search(np.ones((100, 3)))


def test_a_recall_that_is_enough_takes_what_is_cheaper() -> None:
    few, many = clustered(2000), np.lib.stride_tricks.as_strided(clustered(10), (10**6, 24), (0, 4))
    exact = rf.knn(few, 5, min_recall=0.9, threads=1)
    assert exact.attrs["method"] == "exact"
    assert exact.attrs["recall"] == 1.0
    plan = rf.plan("knn", few, k=5, min_recall=0.9)
    assert plan.method == "exact"
    assert "by partitions" in str(plan)
    assert "for all pairs" in str(plan)
    plan = rf.plan("knn", many, k=5, min_recall=0.9)
    assert plan.method == "approximate"
    assert "for all pairs" in str(plan)
    assert rf.plan("knn", many, k=5).method == "exact"


def test_approximate_lists_are_no_base_of_exact_ones() -> None:
    x = clustered(600)
    with pytest.raises(InputError, match="has approximate lists: base must be exact"):
        rf.knn(clustered(700), 5, base=search(x))


def test_exact_results_are_what_they_were() -> None:
    """Arguments of approximate lists are no part of exact ones."""
    x = clustered(200)
    request = rf.knn(x, 5, threads=1).attrs["request"]
    assert request == rf.knn(x, 5, min_recall=0.5, seed=3, threads=1).attrs["request"]
    assert "min_recall" not in request


# Parts --------------------------------------------------------------------------------------------


@given(sizes=st.lists(st.tuples(st.integers(0, 900), st.integers(0, 400)), min_size=1, max_size=20))
@examples(50)
def test_batches_of_visits_hold_all_rows_and_visitors_once(sizes: list[tuple[int, int]]) -> None:
    rows, visitors = (np.concatenate([[0], np.cumsum(each)]) for each in zip(*sizes, strict=True))
    if not (total := int(rows[-1] + visitors[-1])):
        return
    cuts = Layout(open_source(np.ones((total, 2**14), np.float32)), 5, 100, 0.9, 100)
    meetings = Meetings(cuts.batches(rows + visitors), rows, visitors)
    spans = [meetings.spans(*each) for each in itertools.pairwise(meetings.cut.panels.tolist())]
    for side, whole in zip(zip(*spans, strict=True), (rows, visitors), strict=True):
        assert [side[0][0], side[-1][1]] == [0, whole[-1]]
        assert all(one[1] == other[0] for one, other in itertools.pairwise(side))
    assert all(sum(b - a for a, b in each) <= meetings.cut.panel_rows + 1 for each in spans)
    assert meetings.batch_starts().tolist() == [*(each[1][0] for each in spans), visitors[-1]]


@given(sizes=st.lists(st.integers(0, 900), min_size=1, max_size=40), rows=st.integers(12, 200))
@examples(50)
def test_batches_hold_whole_partitions_or_pieces_of_large_ones(sizes: list[int], rows: int) -> None:
    total = sum(sizes)
    cuts = Layout(open_source(np.ones((max(total, 1), 2**14), np.float32)), 5, rows, 0.9, 100)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    if not total:
        return
    cut = cuts.batches(ends)
    assert cut.panels[0] == 0
    assert cut.panels[-1] == total
    assert (np.diff(cut.panels) > 0).all()
    assert np.diff(cut.panels).max() <= cuts.batch_rows
    for edge in set(cut.panels.tolist()) - set(ends.tolist()):
        partition = int(np.searchsorted(ends, edge)) - 1
        assert sizes[partition] > cuts.most_rows


@pytest.mark.parametrize("mean", [0.8, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("likeness", [0.1, 0.5, 0.999])
def test_the_interval_holds_the_mean(mean: float, likeness: float) -> None:
    """At 95 % of samples, whether shares of rows are alike or all or nothing; 93 % of these 400."""
    r, size = np.random.default_rng(1), 1 / likeness - 1
    hits = r.binomial(15, r.beta(mean * size, (1 - mean) * size, (400, 400)))
    intervals = [recall_of(each, 15, 10**6) for each in hits]
    assert sum(each.low <= mean <= each.high for each in intervals) >= 0.93 * len(intervals)


def test_all_rows_leave_no_interval() -> None:
    assert recall_of(np.array([16, 8, 0, 16]), 16, 4) == (0.625, 0.625, 0.625)


# Memory -------------------------------------------------------------------------------------------


COMMAND = """
import json, sys
import rankfold as rf
r = rf.knn(sys.argv[1], out=sys.argv[2], solver="approximate", **json.loads(sys.argv[3]))
print(json.dumps(r.run["attempts"][-1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f4", "u1"])
@pytest.mark.parametrize("asked", [{"k": 15, "threads": 1}, {"k": 40, "threads": 2, "metric": "cosine"}])
def test_the_peak_is_planned_and_does_not_grow_with_the_rows(
    tmp_path: Path, dtype: str, asked: dict[str, Any]
) -> None:
    facts = []
    for rows in (40_000, 160_000):
        x = clustered(rows, 96)
        x = ((x - x.min()) * 4).astype(np.uint8) if dtype == "u1" else x
        store = to_zarr(tmp_path / f"{rows}.zarr", x, (2000, 96))
        told = json.dumps({"memory": "300MiB", "min_recall": 0.9, **asked})
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            COMMAND,
            store,
            str(tmp_path / f"{rows}-out.zarr"),
            told,
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        facts.append(json.loads(done.stdout.splitlines()[-1]))
        assert facts[-1]["measured_bytes"] <= facts[-1]["planned_bytes"] <= 300 * 2**20
    short, long = facts
    assert long["planned_bytes"] <= 1.15 * short["planned_bytes"]
