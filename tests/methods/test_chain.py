"""A chain is planned for the most that any of its links takes, and for the reads of all of them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import rankfold as rf
from rankfold.methods.chain import Chain, Link
from rankfold.methods.task import Task
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import MemoryBudgetError, OutputError
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.storage.lock import Lock, hold_lock
from rankfold.pipeline.storage.run_directory import RunDirectory

BUDGET = Budget(2**30, 1)
X = np.random.default_rng(0).standard_normal((300, 20))


@dataclass(frozen=True)
class PlannedTask:
    """A task of which only the plan is known."""

    made: Plan

    def plan(self, budget: Budget) -> Plan:
        return self.made


def chain_of(*plans: Plan) -> Chain:
    links = (Link(str(index), cast("Task", PlannedTask(plan))) for index, plan in enumerate(plans))
    return Chain({}, tuple(links))


@pytest.mark.parametrize("smaller_first", [True, False])
@pytest.mark.parametrize(
    "most", ["peak_bytes", "driver_bytes", "scratch_bytes", "useful_workers", "most_passes"]
)
def test_a_chain_is_planned_for_its_largest_link(most: str, smaller_first: bool) -> None:
    plan: Any = rf.plan("pca", X, rank=3, memory="1GiB", threads=1)
    small, large = dataclasses.replace(plan, **{most: 3}), dataclasses.replace(plan, **{most: 8})
    chain = chain_of(*((small, large) if smaller_first else (large, small))).plan(BUDGET)
    assert getattr(chain, most) == (11 if most == "most_passes" else 8)


@pytest.mark.parametrize("columns", [20, 20_000])
def test_a_chain_is_refused_for_all_of_its_links_at_once(columns: int) -> None:
    x = np.random.default_rng(0).random((60, columns))
    plan = functools.partial(rf.plan, "nystroem", x, rank=20, threads=2)
    with pytest.raises(MemoryBudgetError, match=r"Give memory='\d+MiB'") as refused:
        plan(memory="1MiB")
    words = re.search(r"Give memory='(\d+MiB)'", str(refused.value))
    assert words is not None and plan(memory=words[1]).peak_bytes == refused.value.need_bytes


def test_results_of_links_lie_beside_the_result_until_the_last_has_read_them() -> None:
    plan: Any = rf.plan("pca", X, rank=3, memory="1GiB", threads=1)
    first = dataclasses.replace(plan, result_bytes=100, scratch_bytes=40, checkpoint_bytes=2)
    last = dataclasses.replace(plan, result_bytes=7, scratch_bytes=20, checkpoint_bytes=3)
    chain = chain_of(first, last).plan(BUDGET)
    assert chain.scratch_bytes == 40 and chain.checkpoint_bytes == 103 and chain.result_bytes == 7
    assert len(chain.passes) == 2 * len(plan.passes)


def features(x: Any = X, **how: Any) -> rf.Result:
    return rf.nystroem(x, 5, gamma=0.1, landmarks="kmeans", **how)


def test_the_record_of_a_chain_is_whole_when_its_result_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, publish, seen = tmp_path / "r.zarr", RunDirectory.publish, list[tuple[int, str]]()
    record = tmp_path / "r.zarr.run" / "run.json"

    def look(run: RunDirectory) -> None:
        publish(run)
        if run.output == out:
            seen.append((record.stat().st_mtime_ns, record.read_text()))

    monkeypatch.setattr(RunDirectory, "publish", look)
    features(out=out)
    # Whoever asks for it again may tidy up from now on, and would take a file that is written for a stray.
    assert seen == [(record.stat().st_mtime_ns, record.read_text())]
    assert all(attempts[-1]["finished"] for attempts in json.loads(record.read_text())["steps"].values())
    before = json.loads(record.read_text())["steps"]["landmarks"]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RunDirectory, "publish", stop)
        rf.nystroem(X, 6, gamma=0.1, landmarks="kmeans", out=out, overwrite=True)
    assert json.loads(record.read_text())["steps"]["landmarks"][: len(before)] == before
    rf.pca(X, 3, out=out, overwrite=True)
    assert "steps" not in json.loads(record.read_text())


def stop(run: RunDirectory) -> None:
    raise KeyboardInterrupt


def test_a_chain_holds_its_run_from_the_first_link_to_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, held = tmp_path / "r.zarr", list[Path]()

    @contextlib.contextmanager
    def note(path: Path, output: Path) -> Iterator[Lock]:
        with hold_lock(path, output) as lock:
            held.append(output)
            yield lock

    monkeypatch.setattr("rankfold.pipeline.storage.run_directory.hold_lock", note)
    result = features(out=out)
    # Between two claims another driver could come to its end, and the results of links would go with its run.
    assert held.count(out) == 1 and len(held) == 2
    assert features(out=out).attrs == result.attrs


CALLS: dict[str, Any] = {"features": features, "components": lambda **how: rf.pca(X, 3, **how)}


@pytest.mark.parametrize("second", CALLS)
@pytest.mark.parametrize("first", CALLS)
def test_a_result_that_came_while_a_driver_waited_is_not_replaced(
    first: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes just before the second holds the run."""
    out, whole = tmp_path / "r.zarr", list[int]()
    held = "rankfold.pipeline.storage.run_directory.hold_lock"

    @contextlib.contextmanager
    def wait(path: Path, output: Path) -> Iterator[Lock]:
        monkeypatch.setattr(held, hold_lock)
        CALLS[first](out=out)
        whole.append((out / "zarr.json").stat().st_mtime_ns)
        with hold_lock(path, output) as lock:
            yield lock

    monkeypatch.setattr(held, wait)
    with contextlib.nullcontext() if first == second else pytest.raises(OutputError, match="another request"):
        CALLS[second](out=out)
    assert (out / "zarr.json").stat().st_mtime_ns == whole[0]
    left = {path.name for path in (tmp_path / "r.zarr.run").iterdir()}
    assert left <= {"journal.jsonl", "lock", "run.json"}


@pytest.mark.parametrize("call", CALLS)
def test_a_temporary_result_leaves_nothing_in_scratch(call: str, tmp_path: Path) -> None:
    result = CALLS[call](scratch=tmp_path)
    assert not list(tmp_path.iterdir()) and np.isfinite(result[call]).all()


def test_bad_data_in_a_link_leave_no_run_that_has_to_be_overwritten(tmp_path: Path) -> None:
    bad = X.copy()
    bad[7, 3] = np.nan
    np.save(tmp_path / "x.npy", bad)
    with pytest.raises(rf.RankfoldError, match="NaN"):
        features(tmp_path / "x.npy", out=tmp_path / "r.zarr")
    np.save(tmp_path / "x.npy", X)
    assert features(tmp_path / "x.npy", out=tmp_path / "r.zarr").attrs["input"]["shape"] == [300, 20]


@pytest.mark.parametrize("progress", [False, lambda name, done, total: None])
def test_a_chain_shows_no_progress_that_was_not_asked_for(
    progress: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rankfold.pipeline.planning.progress.somebody_watches", lambda: True)
    monkeypatch.setattr("rankfold.pipeline.planning.progress.QUIET_SECONDS", 0.0)
    features(progress=progress)
    assert capsys.readouterr() == ("", "")
