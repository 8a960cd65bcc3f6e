"""What a sweep of thousands of tasks asks of the driver, the scheduler and the file system."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_sweep import RowSum, make_cut

from rankfold.cluster.local.worker import REPORTS_PER_SECOND, RankfoldWorker
from rankfold.methods.warm import MethodWarmup
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.engine import by_reference, sweep
from rankfold.pipeline.engine.blocks import Cut, grains, panel_edges
from rankfold.pipeline.engine.pairs import MOST_TASKS, Pairs, schedule
from rankfold.pipeline.engine.sweep import Sweep
from rankfold.pipeline.storage.checkpoint import load_arrays, save_arrays
from rankfold.pipeline.storage.journal import Journal


def test_a_graph_looks_at_no_panel_whatever_the_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold = RowSum(make_cut(2000, 500))
    for name in ("diff", "arange"):
        monkeypatch.setattr(np, name, lambda *_: pytest.fail("all panels are looked at"))
    graph = Sweep("sum", fold, tmp_path, 1).graph("lease").__dask_graph__()
    assert len(graph) >= 500 + 63 + 8 + 1


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
    Sweep("sum", fold, tmp_path, 1).graph("lease")
    assert loads == []
    save_arrays(tmp_path / name, {"next_panel": np.int64(29)})
    graph = Sweep("sum", fold, tmp_path, 1).graph("lease").__dask_graph__()
    assert [path.name for path in loads] == [name]
    assert len(graph) >= 500


def test_a_task_is_small_and_asks_the_file_system_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler keeps each task, and pickles it for its worker."""
    folder = tmp_path / "state" / "sum"
    folder.mkdir(parents=True)
    made = Sweep("sum", RowSum(make_cut(2000, 500)), folder, 1, Journal(tmp_path)).graph("lease")
    tasks = pickle.loads(pickle.dumps(dict(made.__dask_graph__())))
    assert by_reference._load.cache_info().currsize == 1
    monkeypatch.setattr("os.stat", lambda *_, **__: pytest.fail("a file is looked for"))
    monkeypatch.setattr("builtins.open", lambda *_, **__: pytest.fail("a file is opened"))
    sizes = [len(pickle.dumps(task)) for task in tasks.values()]
    assert max(sizes) < 800 + 2 * len(str(folder))


def test_a_checkpoint_removes_nothing_where_nothing_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.unlink", lambda *_: pytest.fail("there is nothing to remove"))
    save_arrays(tmp_path / "sum.part", {"x": np.arange(3)}, durable=True)
    assert load_arrays(tmp_path / "sum.part")["x"].tolist() == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["sum.part"]


@pytest.mark.parametrize("workers", [1, 25, 512, 4096])
def test_reports_of_all_workers_are_so_many_a_second(workers: int) -> None:
    kernels = MethodWarmup(np.dtype(np.float64), {"kind": "svd"}, (1, 1))
    plugin = RankfoldWorker("x", kernels, {}, Journal(), workers=workers)
    assert plugin.report_seconds >= 0.5
    assert workers / plugin.report_seconds <= max(REPORTS_PER_SECOND, 2)


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
