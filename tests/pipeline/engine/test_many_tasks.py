"""What a sweep of thousands of tasks asks of the driver, the scheduler and the file system."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask._task_spec import convert_legacy_graph
from distributed import Scheduler
from hypothesis import given
from hypothesis import strategies as st
from test_sweep import RowSum, by_hand, cluster, make_cut, total

from rankfold.cluster.local.client import Client
from rankfold.cluster.local.reports import TOPIC
from rankfold.cluster.local.worker import RankfoldWorker
from rankfold.methods.warm import MethodWarmup
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.engine import scheduler, sweep
from rankfold.pipeline.engine.attempt import attempt, end_attempt, stop_attempt
from rankfold.pipeline.engine.blocks import Cut, grains, panel_edges
from rankfold.pipeline.engine.device import Report
from rankfold.pipeline.engine.pairs import MOST_TASKS, Pairs, schedule
from rankfold.pipeline.engine.scheduler import ByReference
from rankfold.pipeline.engine.sweep import LEASE, Sweep
from rankfold.pipeline.errors import Interrupted
from rankfold.pipeline.storage.checkpoint import load_arrays, save_arrays, save_json
from rankfold.pipeline.storage.journal import Journal


def test_a_graph_looks_at_no_panel_whatever_the_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold = RowSum(make_cut(2000, 500))
    for name in ("diff", "arange"):
        monkeypatch.setattr(np, name, lambda *_: pytest.fail("all panels are looked at"))
    segments, *merges = Sweep("sum", fold, tmp_path, 1).graphs("lease")
    assert len(segments.__dask_graph__()) > 500
    assert [len(graph.__dask_graph__()) for graph in merges] == [63 + 1, 8 + 1, 1]


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=9)
    | st.builds(
        lambda length, count, last: [length] * count + [min(last, length)], *[st.integers(1, 30)] * 3
    ),
    rows=st.integers(1, 70),
    splittable=st.booleans(),
)
def test_edges_of_panels_are_those_of_a_loop_over_chunks(
    lengths: list[int], rows: int, *, splittable: bool
) -> None:
    grid = Grid(np.cumsum([0, *lengths], dtype=np.int64), splittable)
    edges = [0]
    for start, stop in itertools.pairwise(grid.edges.tolist()):
        if start > edges[-1] and stop - edges[-1] > rows:
            edges.append(start)
        if stop - start > rows and splittable:
            edges.extend(piece_stop for _, piece_stop in grains(start, stop, rows))
    edges += [grid.length] * (edges[-1] != grid.length)
    result = panel_edges(grid, rows)
    assert result.tolist() == edges and result.dtype == np.int64


def test_a_cut_keeps_its_tallest_panel_where_it_is_sent() -> None:
    cut = Cut(np.array([0, 4, 11, 12]), np.array([0, 2, 3]), 4)
    assert pickle.loads(pickle.dumps(cut)).panel_rows == cut.panel_rows == 7


def test_streams_without_a_checkpoint_are_not_asked_for_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Path] = []
    load = sweep.load_if_whole
    monkeypatch.setattr(sweep, "load_if_whole", lambda path, *name: loads.append(path) or load(path, *name))
    fold, name = RowSum(make_cut(2000, 500)), "stream-00007.part"
    Sweep("sum", fold, tmp_path, 1).graphs("lease")
    assert loads == []
    save_arrays(tmp_path / name, {"next_panel": np.int64(29)})
    graph = Sweep("sum", fold, tmp_path, 1).graphs("lease")[0].__dask_graph__()
    assert [path.name for path in loads] == [name]
    assert len(graph) >= 500


def test_a_task_is_small_and_asks_the_file_system_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler keeps each task, and pickles it for its worker. One of them names all streams."""
    folder = tmp_path / "state" / "sum"
    folder.mkdir(parents=True)
    made = Sweep("sum", RowSum(make_cut(2000, 500)), folder, 1, Journal(tmp_path)).graphs("lease")
    tasks = pickle.loads(pickle.dumps({k: v for each in made for k, v in each.__dask_graph__().items()}))
    assert scheduler._load.cache_info().currsize == 1
    monkeypatch.setattr("os.stat", lambda *_, **__: pytest.fail("a file is looked for"))
    monkeypatch.setattr("builtins.open", lambda *_, **__: pytest.fail("a file is opened"))
    sizes = sorted(len(pickle.dumps(task)) for task in tasks.values())
    assert sizes[-2] < 800 + 2 * len(str(folder)) and sizes[-1] < 100 * 500


def test_reports_of_streams_and_of_each_level_of_merges_go_to_one_task(tmp_path: Path) -> None:
    """From worker to worker, each costs the scheduler as much as a segment."""
    graphs = Sweep("sum", RowSum(make_cut(2000, 500)), tmp_path, 1).graphs("lease")
    counts = list[int]()
    for graph in graphs[:-1]:
        tasks = convert_legacy_graph(dict(graph.__dask_graph__()))
        each = {key for key in tasks if isinstance(key, tuple)}
        users = [key for key, task in tasks.items() if each & task.dependencies and key not in each]
        counts.append(len(each))
        assert len(users) == 1
        assert len(counts) == 1 or not any(tasks[key].dependencies for key in each), "merges wait for nothing"
    assert counts[0] >= 500 and counts[1:] == [63, 8]


def test_a_stream_at_its_end_is_not_folded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is lost takes reports with it, of which the checkpoints are there."""
    made, until = reference(tmp_path), 10
    report = sweep._advance(made, 0, until, None, lease="lease")
    monkeypatch.setattr(sweep, "_resume", lambda *_: pytest.fail("sums are read"))
    before = Report(frozenset({("cpu", "an earlier worker")}), 10**15)
    again = sweep._advance(made, 0, until, before, lease="lease")
    assert again == Report(report.cores | before.cores, before.peak_bytes)


def test_a_stream_whose_kind_of_core_is_damaged_starts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = reference(tmp_path)
    whole = sweep._advance(made, 0, 10, None, lease="lease")
    part = load_arrays(made.value.part(0, 0))
    load = sweep.load_if_whole

    def lose(path: Path, name: str | None = None) -> Any:
        if name != "core_type":
            return load(path, name)
        path.unlink()
        return None

    monkeypatch.setattr(sweep, "load_if_whole", lose)
    assert sweep._advance(made, 0, 10, None, lease="lease").cores == whole.cores
    again = load_arrays(made.value.part(0, 0))
    assert {name: each.tobytes() for name, each in again.items()} == {
        name: each.tobytes() for name, each in part.items()
    }


def test_a_merge_ends_when_it_is_stopped(tmp_path: Path) -> None:
    made = reference(tmp_path)
    for stream, until in enumerate(made.value.fold.cut.streams[1:].tolist()):
        sweep._advance(made, stream, until, None, lease="lease")
    stop_attempt("lease")
    with pytest.raises(Interrupted):
        sweep._merge(made, 1, 0, lease="lease")
    assert not list((tmp_path / "sum").glob("merge-*"))


def test_rows_are_told_while_some_are_left_and_not_while_streams_are_merged(tmp_path: Path) -> None:
    made, told = reference(tmp_path).value, list[Any]()
    own, tell = attempt("lease", 1), made._watch("lease", lambda *news: told.append(news))
    for rows in (0, 99, 100, 100):
        own.reach(0, rows)
        tell()
    assert told == [("sum", 0, 100), ("sum", 99, 100)]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Attempts by one name are not those of another test."""
    yield
    end_attempt("lease")


def reference(folder: Path) -> ByReference[Sweep]:
    """A sweep of 100 rows in four streams of ten panels, whose attempt is under way."""
    (folder / "sum").mkdir()
    save_json(folder / "sum" / LEASE, "lease")
    return ByReference(Sweep("sum", RowSum(make_cut(40, 4)), folder / "sum", 1), folder / "fold.pickle")


def test_a_checkpoint_removes_nothing_where_nothing_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.unlink", lambda *_: pytest.fail("there is nothing to remove"))
    save_arrays(tmp_path / "sum.part", {"x": np.arange(3)}, durable=True)
    assert load_arrays(tmp_path / "sum.part")["x"].tolist() == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["sum.part"]


@pytest.mark.parametrize("gone", [False, True])
def test_no_worker_is_chosen_for_the_task_that_takes_all_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, gone: bool
) -> None:
    """Dask would compare all workers; it does, if the one that was named is gone."""
    compared: list[Any] = []
    cost = Scheduler.get_comm_cost

    def note(self: Scheduler, task: Any, worker: Any) -> Any:
        compared.extend([worker] * ("-all-" in str(task.key)))
        return cost(self, task, worker)

    monkeypatch.setattr(Scheduler, "get_comm_cost", note)
    if gone:
        monkeypatch.setattr(Client, "members", lambda _: ("tcp://127.0.0.1:1",))
    fold = RowSum(make_cut(40, 8))
    with cluster(n_workers=3, threads_per_worker=1, processes=False) as client:
        assert total(tmp_path / "sum", fold, 3, client) == by_hand(fold.cut)
    assert (len(compared) > 1) == gone


@pytest.mark.parametrize("due", [False, True])
def test_a_report_goes_along_with_the_end_of_a_task(tmp_path: Path, *, due: bool) -> None:
    """A message of its own would cost the scheduler as much as the task did."""
    batches: list[list[str]] = []
    kernels = MethodWarmup(np.dtype(np.float64), {"kind": "svd"}, (1, 1))
    plugin = RankfoldWorker("x", kernels, {}, Journal(), workers=1000)
    with cluster(n_workers=1, threads_per_worker=1, processes=False) as client:
        client.client.register_plugin(plugin)
        worker = client.client.cluster.workers[0]
        stream, there = worker.batched_stream.comm, worker.plugins["x"]
        there._reports._seconds *= not due
        write = stream.write

        async def watch(messages: list[dict[str, Any]], **more: Any) -> Any:
            batches.append([message.get("topic", message["op"]) for message in messages])
            return await write(messages, **more)

        stream.write = watch
        total(tmp_path / "sum", RowSum(make_cut(40, 4)), 1, client)
    along = ["task-finished" in batch for batch in batches if TOPIC in batch]
    assert all(along) and (len(along) >= 4 if due else not along), batches


@pytest.mark.parametrize("threads", [1, 2, 16, 64, 111])
def test_few_threads_have_four_groups_each(threads: int) -> None:
    assert pairs().group_target(threads) == 4 * threads


@pytest.mark.parametrize("threads", [112, 150, 223, 512, 4096])
def test_of_many_threads_each_has_two_groups_at_least(threads: int) -> None:
    groups = pairs().group_target(threads)
    tasks = groups * (groups + 1) // 2
    assert groups == 2 * threads or tasks <= MOST_TASKS + groups


def test_meetings_are_made_as_graphs_take_them() -> None:
    whole: Any = schedule(pairs(), pairs().groups(4000), 2000)
    assert next(whole)[0].group == (0, 2)


def pairs() -> Pairs:
    return Pairs(Grid.regular(8000, 1, splittable=False).edges)
