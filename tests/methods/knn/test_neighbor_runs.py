"""Runs of nearest neighbors: killed, stopped, damaged, cut otherwise, and the same bytes after all; and
what a run takes of memory and reads, beside what its plan says.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from covers import cover, spread
from reference import same_bytes, to_zarr

import rankfold as rf
from rankfold.pipeline.engine import pair_sweep, pairs
from rankfold.pipeline.errors import Interrupted
from rankfold.pipeline.storage.checkpoint import load_arrays, load_json, save_arrays

Matrix = np.ndarray[Any, Any]

COMMAND = """
import json, sys
import rankfold as rf
from rankfold.pipeline.engine import pairs
options = json.loads(sys.argv[3])
pairs.BLOCK_ROWS = tuple(options.pop("block", pairs.BLOCK_ROWS))
told = lambda name, done, total: print(name, done, total, flush=True)
r = rf.knn(sys.argv[1], out=sys.argv[2], progress=told, **options)
print(json.dumps(r.run["attempts"][-1]))
"""


def start(store: str, out: Path, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", "-c", COMMAND, store, str(out), json.dumps(options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def tree(folder: Path) -> dict[str, str]:
    """Digest of every file of a result, those of its graph among them."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def gaussian(rows: int, columns: int) -> Matrix:
    return np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)


# Kills ---------------------------------------------------------------------------------------------

PLACES: list[dict[str, Any]] = [
    {"threads": 2, "memory": "512MiB"},
    {"threads": 1, "memory": "160MiB"},
    {"threads": 3, "memory": "200MiB"},
]
"""Where a run goes on that was killed elsewhere."""


@pytest.mark.slow
@pytest.mark.parametrize("symmetric", [None, "union"])
def test_ten_kills_at_random_moments_change_no_byte(tmp_path: Path, symmetric: str | None) -> None:
    store = to_zarr(tmp_path / "x.zarr", gaussian(24_000, 48), (1000, 48))
    asked = {"k": 12, "symmetric": symmetric, "block": [500, 500]}
    with start(store, tmp_path / "whole.zarr", **asked, **PLACES[0]) as child:
        assert child.stdout is not None
        child.stdout.readline()
        working = time.monotonic()
        child.communicate()
        assert child.returncode == 0
    took = time.monotonic() - working
    chance, kills, out = random.Random(20), 0, tmp_path
    for attempt in range(60):
        if attempt % 3 == 0:  # three attempts at an output, then another
            out = tmp_path / f"killed-{attempt}.zarr"
        with start(store, out, **asked, **PLACES[attempt % 3]) as child:
            assert child.stdout is not None
            child.stdout.readline()  # from where it works: how long it loads depends on what else runs
            time.sleep(chance.random() * took)
            child.kill()
            child.communicate()
            kills += child.returncode != 0
        if attempt % 3 == 2:
            with start(store, out, **asked, **PLACES[attempt // 3 % 3]) as child:
                child.communicate()
                assert child.returncode == 0
            assert same_bytes(rf.open_result(out)) == same_bytes(rf.open_result(tmp_path / "whole.zarr"))
            assert tree(out) == tree(tmp_path / "whole.zarr")
            if kills >= 10:
                break
    assert kills >= 10


@pytest.fixture
def blocks_of_64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "BLOCK_ROWS", (64, 64))


class Interrupt:
    """Progress that is interrupted as by Ctrl-C, or SIGTERM, at so large a share of a sweep."""

    def __init__(self, sweep: str, share: float) -> None:
        self.sweep, self.share = sweep, share
        self.seen: list[tuple[str, int, int]] = []

    def __call__(self, name: str, done: int, total: int) -> None:
        self.seen.append((name, done, total))
        if name == self.sweep and done >= self.share * total:
            raise KeyboardInterrupt


def interrupted(out: Path, x: object, share: float, **options: Any) -> Path:
    """Folder of the accumulators that a run leaves which is stopped in the middle."""
    with pytest.raises(KeyboardInterrupt):
        rf.knn(x, out=out, progress=Interrupt("pairs", share), **options)
    assert not out.exists()
    (lists,) = out.with_name(out.name + ".run").glob("scratch-*/lists")
    return lists


def test_a_stop_leaves_accumulators_that_another_number_of_threads_goes_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "BLOCK_ROWS", (256, 256))
    x, asked = gaussian(20_000, 40), {"k": 6, "symmetric": "mutual"}
    lists = interrupted(tmp_path / "r.zarr", x, 0.2, threads=2, **asked)
    assert list(lists.glob("block-*.part"))
    told = Interrupt("none", 1)
    again = rf.knn(x, out=tmp_path / "r.zarr", threads=1, memory="160MiB", progress=told, **asked)
    done = [done for name, done, total in told.seen if name == "pairs"]
    assert done[0] > 0 and done == sorted(done) and done[-1] == 20_000
    whole = rf.knn(x, out=tmp_path / "whole.zarr", **asked)
    assert same_bytes(again) == same_bytes(whole)
    assert tree(tmp_path / "r.zarr") == tree(tmp_path / "whole.zarr")


def test_progress_never_goes_back_and_ends_at_all_rows(tmp_path: Path, blocks_of_64: None) -> None:
    x = gaussian(6000, 20)
    for queries in (None, x[:700]):
        told = Interrupt("none", 1)
        rf.knn(x, 5, queries=queries, threads=2, progress=told)
        rows = len(x if queries is None else queries)
        for sweep in ("pairs", "write"):
            done = [done for name, done, total in told.seen if name == sweep]
            assert done == sorted(done) and done[-1] == rows
        assert {total for _, _, total in told.seen} == {rows}


# Damage --------------------------------------------------------------------------------------------


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def emptied(path: Path) -> None:
    """As a crash of the machine leaves a file whose pages had not come to the disk."""
    held = bytearray(path.read_bytes())
    held[200:-2000] = bytes(len(held) - 2200)
    path.write_bytes(held)


def forgetful(path: Path) -> None:
    """As a worker that was thought dead would set it back."""
    state = load_arrays(path)
    keys, ids = np.full_like(state["keys"], np.inf), np.full_like(state["ids"], np.iinfo(np.int64).max)
    save_arrays(path, {**state, "keys": keys, "ids": ids, "done": np.zeros_like(state["done"])})


@pytest.mark.parametrize("damage", spread(2, [Path.unlink, cut_off, emptied, forgetful]))
def test_an_accumulator_that_a_crash_took_is_made_anew(
    tmp_path: Path, damage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "BLOCK_ROWS", (256, 256))
    x = gaussian(12_000, 40)
    lists = interrupted(tmp_path / "r.zarr", x, 0.2, k=6, threads=1)
    for path in sorted(lists.glob("block-*.part"))[::3]:
        damage(path)
    again = rf.knn(x, 6, out=tmp_path / "r.zarr", threads=2)
    assert same_bytes(again) == same_bytes(rf.knn(x, 6))


@pytest.mark.parametrize(
    ("damage", "queries"), cover([cut_off, emptied, forgetful], [False, True], strength=1)
)
def test_one_that_is_lost_after_the_sweep_is_never_written(
    tmp_path: Path, damage: Any, queries: bool, blocks_of_64: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was thought dead, or a disk, sets an accumulator back when all pairs have met."""
    x = gaussian(1500, 20)
    options = {"k": 6, "threads": 2, "queries": x[:300] if queries else None}
    sweep = pair_sweep.PairSweep.run

    def damaged(self: Any, *given: Any) -> Any:
        report = sweep(self, *given)
        damage(sorted(self.folder.glob("block-*.part"))[1])
        return report

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_sweep.PairSweep, "run", damaged)
        with pytest.raises(Interrupted, match="damaged or set back; the same command makes it again"):
            rf.knn(x, out=tmp_path / "r.zarr", **options)
    assert not (tmp_path / "r.zarr").exists()
    assert same_bytes(rf.knn(x, out=tmp_path / "r.zarr", **options)) == same_bytes(rf.knn(x, **options))


def test_workers_that_were_thought_dead_write_no_more(tmp_path: Path, blocks_of_64: None) -> None:
    """When all pairs have met, accumulators belong to nobody: no ticket is good for them."""
    x, seen = gaussian(1500, 20), []

    def look(name: str, done: int, total: int) -> None:
        if name == "write":
            (lease,) = (tmp_path / "r.zarr.run").glob("scratch-*/lists/attempt.json")
            seen.append(load_json(lease))

    rf.knn(x, 6, out=tmp_path / "r.zarr", progress=look)
    assert seen and set(seen) == {None}


def test_many_tasks_are_handed_over_in_parts(
    tmp_path: Path, blocks_of_64: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = gaussian(1500, 20)
    whole = rf.knn(x, 6, threads=2)
    monkeypatch.setattr(pair_sweep, "GRAPH_TASKS", 5)
    assert same_bytes(rf.knn(x, 6, threads=3)) == same_bytes(whole)


def test_a_graph_takes_time_in_proportion_to_its_tasks() -> None:
    class Fold:
        pairs = pairs.Pairs(np.arange(91) * 100)
        kernels = ()

    sweep = pair_sweep.PairSweep("pairs", Fold(), Path("-"), np.arange(91), 2)  # type: ignore[arg-type]
    began = time.perf_counter()
    graph = sweep.graph(list(pairs.schedule(Fold.pairs, sweep.groups)), "ticket")
    assert len(dict(graph.__dask_graph__())) == 90 * 91 // 2 + 1
    assert time.perf_counter() - began < 5  # a minute, where each task has a table of those before it


# Numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [20, 30_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bounds_have_room_for_sums_over_all_columns(columns: int, dtype: Any) -> None:
    """A norm and a distance in float64 may be wrong by ``columns`` roundings each, whatever bounds are in."""
    from rankfold.kernels.neighbors.bounds import EXTRA, TERMS, slack

    product = min(columns, TERMS) + -(-columns // TERMS) + EXTRA - 18  # six roundings besides it
    pow2_scale, wide = np.finfo(dtype).eps / 2, np.finfo(np.float64).eps / 2
    assert slack(columns, np.dtype(dtype)) >= product * pow2_scale + 2 * columns * wide


@pytest.mark.parametrize("size", [1e-150, 1e-160, 1e-170, 1e-300])
def test_cosine_of_rows_whose_squares_vanish_is_refused(size: float) -> None:
    x = np.random.default_rng(0).standard_normal((100, 20))
    x[5] = 0.0
    x[17] *= size
    with pytest.raises(rf.RankfoldError, match=r"row 17 \(from 0\) .* is so short .* needs its direction"):
        rf.knn(x, 3, metric="cosine")
    assert rf.knn(x.astype(np.float32) * np.float32(1e-30), 3, metric="cosine").distances.shape == (100, 3)


# What a run takes ----------------------------------------------------------------------------------


def tall(path: Path, rows: int, columns: int, dtype: str, chunk: int = 4096) -> str:
    """A store written chunk by chunk, so that the test itself holds little."""
    array = zarr.create_array(
        path, shape=(rows, columns), chunks=(chunk, columns), dtype=dtype, compressors=None
    )
    r = np.random.default_rng(0)
    for first in range(0, rows, chunk):
        shape = (min(chunk, rows - first), columns)
        array[first : first + chunk] = (
            r.integers(0, 256, shape, np.uint8) if dtype == "u1" else r.standard_normal(shape, np.float32)
        )
    return str(path)


def attempted(store: str, out: Path, **options: Any) -> dict[str, Any]:
    """Facts of a run in a process of its own."""
    with start(store, out, **options) as child:
        said, _ = child.communicate()
        assert child.returncode == 0
    facts: dict[str, Any] = json.loads(said.splitlines()[-1])
    if facts["measured_bytes"] is None:
        pytest.skip("this system does not report anonymous memory (RssAnon is Linux)")
    return facts


def assert_as_planned(facts: dict[str, Any], rows: int, row_bytes: int) -> None:
    """Memory and reads: below the plan, and as far above the least there can be as is derived here.

    With room for ``m`` rows, ``N^2 / (4 m)`` rows must be loaded (``nonlinear.md`` 4a). ``c`` tasks with a
    group of ``N / G`` rows each hold ``m = c N / G``. Held once, passing in their own meeting or from memory,
    and passing by each of the groups before, groups take ``N + N + N (G - 1) / 2`` rows: above the least by
    a factor of ``2 c (1 + 3 / G)``, of which 2 is for a group that stays while others stream, and ``c`` for
    tasks that share nothing. In a tournament of few groups none may stay: at most ``4 c``.
    """
    plan = facts["plan"]
    assert facts["measured_bytes"] <= facts["planned_bytes"] <= plan["budget_bytes"]
    groups, tasks = plan["groups"], plan["concurrency"]
    least = rows * groups / (4 * tasks)
    loaded = facts["read_bytes"] / row_bytes
    planned = plan["passes"][0]["reads_bytes"] / row_bytes
    few = tasks > 1 and groups <= pairs.FEW * tasks
    held = 3 if tasks == 1 else 5  # with several tasks some groups change hands
    assert planned <= least * (4 * tasks if few else 2 * tasks * (1 + held / groups)) * (1 + 1e-12)
    assert least <= loaded <= planned


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f4", "u1"])
@pytest.mark.parametrize(("threads", "memory"), [(1, "76MiB"), (2, "108MiB")])
def test_the_peak_is_planned_and_does_not_grow_with_the_rows(
    tmp_path: Path, dtype: str, threads: int, memory: str
) -> None:
    """Groups that fill the memory, as of a matrix of many times its size; so many lists that panels of the
    result are full as well.
    """
    facts, asked = [], {"k": 64, "threads": threads, "memory": memory, "block": [256, 512]}
    columns = {"f4": 384, "u1": 768}[dtype]
    for rows in (40_000, 80_000):
        store = tall(tmp_path / f"{rows}.zarr", rows, columns, dtype, 512)
        facts.append(attempted(store, tmp_path / f"least-{rows}.zarr", **asked))
        assert_as_planned(facts[-1], rows, np.dtype(dtype).itemsize * columns)
    short, long = facts
    assert long["plan"]["groups"] > 1.5 * short["plan"]["groups"]
    assert long["planned_bytes"] <= 1.1 * short["planned_bytes"]
    assert long["measured_bytes"] <= 1.1 * short["measured_bytes"] + 8 * 2**20


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f4", "u1"])
def test_queries_of_ten_times_the_memory(tmp_path: Path, dtype: str) -> None:
    rows = {"f4": 2_000_000, "u1": 3_000_000}[dtype]
    store = tall(tmp_path / "x.zarr", rows, 128, dtype, 10_000)
    queries = to_zarr(tmp_path / "q.zarr", gaussian(400, 128).astype(dtype), (400, 128))
    asked = {"k": 15, "queries": queries, "threads": 2, "memory": "100MiB", "block": [512, 4096]}
    facts = attempted(store, tmp_path / "r.zarr", **asked)
    item = np.dtype(dtype).itemsize * 128
    assert rows * item > (3 if dtype == "u1" else 9) * facts["planned_bytes"]
    assert facts["measured_bytes"] <= facts["planned_bytes"] <= 100 * 2**20
    assert rows * item <= facts["read_bytes"] <= facts["plan"]["passes"][0]["reads_bytes"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [
        {"k": 50, "symmetric": "union", "threads": 2, "memory": "400MiB"},
        {"k": 400, "threads": 2, "memory": "800MiB", "block": [2048, 2048]},
        {"k": 20, "metric": "cosine", "threads": 2, "memory": "300MiB"},
        {"k": 10, "metric": "manhattan", "threads": 2, "memory": "200MiB"},
        {"k": 10, "metric": "hamming", "threads": 2, "memory": "200MiB"},
        {"k": 10, "metric": "jaccard", "threads": 2, "memory": "200MiB"},
    ],
    ids=["graph", "many", "cosine", "manhattan", "hamming", "jaccard"],
)
def test_whatever_is_asked_the_peak_is_planned(tmp_path: Path, asked: dict[str, Any]) -> None:
    rows = 60_000 if asked["k"] == 50 else 12_000
    store = tall(tmp_path / "x.zarr", rows, 20, "f4")
    facts = attempted(store, tmp_path / "r.zarr", **asked)
    assert facts["measured_bytes"] <= facts["planned_bytes"] <= facts["plan"]["budget_bytes"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "metric", "columns"), [("u1", "bit_hamming", 128), ("f4", "jaccard", 1024)]
)
def test_groups_of_packed_rows_are_planned(tmp_path: Path, dtype: str, metric: str, columns: int) -> None:
    """What is held is packed, whatever it is read as."""
    store = tall(tmp_path / "x.zarr", 60_000, columns, dtype, 512)
    asked = {"k": 15, "metric": metric, "threads": 1, "memory": "72MiB", "block": [512, 2048]}
    facts = attempted(store, tmp_path / "r.zarr", **asked)
    assert facts["measured_bytes"] <= facts["planned_bytes"] <= facts["plan"]["budget_bytes"]
    assert facts["read_bytes"] <= facts["plan"]["passes"][0]["reads_bytes"]
    assert facts["plan"]["groups"] == pairs.GROUPS_PER_THREAD[1]  # memory asks for no more


@pytest.mark.slow
def test_rows_that_float32_cannot_tell_apart_are_planned_too(tmp_path: Path) -> None:
    """Shortlists in both types, rows gone through again, and rows wider than one product."""
    r = np.random.default_rng(0)
    x = np.where(r.random((3000, 1)) < 0.5, 1e3, -1e3) + 0.1 * r.standard_normal((3000, 3000))
    store = to_zarr(tmp_path / "x.zarr", x.astype(np.float32), (500, 3000))
    facts = attempted(store, tmp_path / "r.zarr", k=200, threads=2, memory="1GiB", block=[512, 512])
    assert facts["certain"] < 1
    assert facts["measured_bytes"] <= facts["planned_bytes"]


def test_reads_are_told(tmp_path: Path, blocks_of_64: None) -> None:
    store = to_zarr(tmp_path / "x.zarr", gaussian(2000, 20), (100, 20))
    result = rf.knn(store, 5, threads=1, out=tmp_path / "r.zarr")
    facts = result.run["attempts"][-1]
    assert 2000 * 80 <= facts["read_bytes"] <= facts["plan"]["passes"][0]["reads_bytes"]
    assert rf.knn(gaussian(2000, 20), 5, threads=1).run["attempts"][-1]["read_bytes"] == 0
    assert os.path.getsize(tmp_path / "r.zarr" / "zarr.json")
