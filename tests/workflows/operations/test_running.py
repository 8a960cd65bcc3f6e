"""What a path means, what was started for it, and what of that still runs."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from flow_commands import begun, rankfold

import rankfold as rf
from rankfold.cluster.slurm.leftovers import forget, read_note
from rankfold.cluster.slurm.queue import QueuedJob
from rankfold.pipeline.errors import InputError, SourceNotFoundError
from rankfold.pipeline.storage import lock as locks
from rankfold.workflows.flows.record import Record
from rankfold.workflows.operations import cancel, running, status
from rankfold.workflows.operations.lock_owner import holder_of
from rankfold.workflows.operations.running import find_work

SQUEUE = f"#!{sys.executable}\nimport pathlib\nprint((pathlib.Path(__file__).parent / 'queue').read_text())\n"


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    return begun(tmp_path)


def job(number: str, name: str) -> QueuedJob:
    return QueuedJob(number, "running", "None", "1:00", "N/A", "n1", name)


def written(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def recorded(results: Path, **states: str) -> None:
    """A workflow whose stages ran in job 7."""
    where = {"kind": "allocation", "job": "7"}
    stages = {name: {"method": "pca", "state": state, "where": where} for name, state in states.items()}
    written(results / "flow.json", {"workflow": "cells", "steps": [*states], "stages": stages})


# What a path means ---------------------------------------------------------------------------------


def test_the_current_folder_is_a_path_like_any(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = flow.parent / "results"
    recorded(results, components="interrupted")
    monkeypatch.chdir(results)
    for command in ("status", "logs", "cancel"):
        ran = rankfold(command, ".")
        assert ran.exit_code == 0, ran.output
    assert str(results / "components.zarr") in rankfold("status", ".", "--json").stdout
    assert rankfold("logs", ".").stdout.startswith(
        ".: no logs. Jobs of SLURM and worker processes write them"
    )
    monkeypatch.chdir("/")
    for command in ("status", "logs", "cancel"):
        ran = rankfold(command, ".")
        assert ran.exit_code == 2 and "no workflow has run here" in ran.stderr, ran.output


@pytest.mark.parametrize("damage", [b"", b"null", b'{"shape": [6]}', b"sealed and edited"])
def test_a_damaged_record_is_told_once_and_written_anew(
    flow: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    results = flow.parent / "results"
    assert rankfold("run", flow).exit_code == 0
    record = results / "flow.json"
    record.write_bytes(
        record.read_bytes().replace(b'"attempts": 1', b'"attempts": 9') if len(damage) > 14 else damage
    )
    status = rankfold("status", flow)
    assert status.exit_code == 0 and "done" in status.stdout
    assert caplog.text.count("flow.json is damaged: when, where and how often stages ran is not known") == 1
    assert rankfold("run", flow).exit_code == 0
    assert rankfold("status", results).exit_code == 0


def test_a_path_is_resolved_once(flow: Path) -> None:
    results, out = flow.parent / "results", flow.parent / "out.zarr"
    recorded(results, components="done")
    written(flow.parent / "out.zarr.run" / "run.json", {"attempts": []})
    by_file, by_folder, alone = (find_work(path) for path in (flow, results, out))
    assert by_file.folder == by_folder.folder == results and by_folder.workflow == "cells"
    assert dict(by_file.methods) == {"components": "pca", "near": "knn"}
    assert not alone.workflow and alone.output == find_work(flow.parent / "out.zarr.run").output == out
    for command in ("status", "info"):
        told = rankfold(command, out)
        assert told.exit_code == 0 and "out.zarr: not finished (nothing was computed yet)" in told.stdout
    attempt = {
        "started": "2026-01-02T03:04:05Z",
        "command": "rankfold pca x.npy",
        "folder": "/data",
        "plan": {},
    }
    written(flow.parent / "out.zarr.run" / "run.json", {"attempts": [attempt]})
    assert rankfold("info", out).stdout.splitlines()[1:] == [
        "in        /data",
        "command   rankfold pca x.npy",
    ]
    with pytest.raises(SourceNotFoundError, match=r"out.zarr is not finished"):
        rf.open(out)
    with pytest.raises(SourceNotFoundError, match=r"out.zarr is not finished"):
        rf.open_result(out)
    for path in (flow.parent / "x.zarr", flow.parent):
        with pytest.raises(InputError, match="no workflow has run here"):
            find_work(path)


def test_the_folder_of_a_workflow_that_waits_is_known(flow: Path) -> None:
    keys = ("job", "log", "profile", "host", "submitted")
    written(flow.parent / "results" / "submitted.json", {"workflow": "cells"} | dict.fromkeys(keys, "4711"))
    told = rankfold("status", flow.parent / "results")
    assert told.exit_code == 0 and told.stdout.startswith("no stage has begun\n"), told.output
    shown = json.loads(rankfold("status", flow.parent / "results", "--json").stdout)
    assert (shown["workflow"], shown["stages"], shown["submitted"]["job"]) == ("cells", [], "4711")


# What was started ----------------------------------------------------------------------------------


def test_the_search_of_a_measurement_is_looked_after_too(
    flow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("squeue", "scancel"):
        (tmp_path / "bin" / name).write_text(SQUEUE)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "bin" / "queue").touch()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    results = flow.parent / "results"
    recorded(results, trust="running")
    run = results / "trust.zarr.run"
    search = run / "state-0a1b" / "neighbors.zarr.run"
    written(search / "logs" / "rankfold-0a-1.err", "a worker of the search")
    for where in (flow, results, results / "trust.zarr"):
        written(search / "jobs.json", {"names": ["rankfold-0a1b2c3d"]})
        work = find_work(where)
        assert work.runs == [run, search]
        queue = [job("8", "rankfold-cells"), job("9", "rankfold-0a1b2c3d")]
        assert [one.number for one in work.worker_jobs(queue)] == ["9"]
        assert "a worker of the search" in rankfold("logs", where).stdout
        assert rankfold("cancel", where).exit_code == 0 and not read_note(search)
    assert "a worker of the search" in rankfold("logs", flow, "--stage", "trust").stdout
    written(search / "run.json", {"attempts": [{"place": {"job": "7"}}]})
    assert find_work(results / "trust.zarr").own_jobs([job("7", "rankfold-cells")])
    wrong = rankfold("logs", flow, "--stage", "neighbors")
    assert wrong.exit_code == 2 and "no such stage that has run" in wrong.stderr


def test_worker_jobs_of_other_systems_are_told(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, results = list[str](), flow.parent / "results"
    monkeypatch.setattr(status, "list_jobs", lambda: None)  # there is no SLURM
    recorded(results, near="running")
    written(results / "near.zarr.run" / "jobs.json", {"names": ["rf-sge-0a1b2c3d"]})

    def queue(scheduler: str) -> SimpleNamespace:
        asked.append(scheduler)
        return SimpleNamespace(list_jobs=lambda: [job("7", "rf-sge-0a1b2c3d"), job("8", "rf-sge-another")])

    monkeypatch.setattr(running, "queue_system", queue)
    assert "jobs of workers: 1 running" in rankfold("status", flow).stdout
    shown = json.loads(rankfold("status", flow, "--json").stdout)
    assert [one["number"] for one in shown["workers"]] == ["7"] and "jobs" not in shown
    assert set(asked) == {"sge"}


def test_a_job_that_has_finished_an_output_is_not_ended_for_it(flow: Path) -> None:
    results, queue = flow.parent / "results", [job("7", "rankfold-cells-0a1b2c3d")]
    run = results / "components.zarr.run"
    attempt = {"place": {"kind": "allocation", "job": "7"}}
    written(run / "run.json", {"attempts": [attempt]})
    assert find_work(results / "components.zarr").own_jobs(queue) == queue
    written(run / "run.json", {"attempts": [attempt, {**attempt, "finished": True}]})
    assert not find_work(results / "components.zarr").own_jobs(queue)
    with locks.hold_lock(run / "lock", run):
        assert find_work(results / "components.zarr").own_jobs(queue) == queue
    recorded(results, components="done", near="done")
    assert not find_work(flow).own_jobs(queue)
    recorded(results, components="done", near="interrupted")
    assert find_work(flow).own_jobs(queue) == queue


def test_a_note_of_a_driver_that_has_begun_since_stays(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = flow.parent / "results"
    recorded(results, near="interrupted")
    run = results / "near.zarr.run"
    written(run / "jobs.json", {"names": ["rankfold-old"]})

    def cancelled(names: list[str], numbers: object = ()) -> list[QueuedJob]:
        written(run / "jobs.json", {"names": [*names, "rankfold-new"]})
        return [job("9", name) for name in names]

    monkeypatch.setattr(cancel, "cancel_jobs", cancelled)
    monkeypatch.setattr(cancel, "list_jobs", lambda run: [])
    assert len(cancel.end(find_work(flow))) == 1
    assert read_note(run) == ["rankfold-old", "rankfold-new"]
    forget(run, ["rankfold-new", "rankfold-old"])
    assert read_note(run) == []


# What still runs -----------------------------------------------------------------------------------


def test_a_look_at_a_lock_makes_no_start_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    with open(lock) as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        monkeypatch.setattr(locks.time, "sleep", lambda seconds: look.close())
        with locks.hold_lock(lock, tmp_path):
            assert str(holder_of(lock)) == f"process {os.getpid()} on {socket.gethostname()}"
    assert holder_of(lock) is None and holder_of(tmp_path / "none") is None


def test_a_stage_that_was_killed_does_not_run_because_another_does(flow: Path) -> None:
    results = flow.parent / "results"
    recorded(results, components="done", near="running")
    record = Record.of(results)
    with locks.hold_lock(results / "flow.lock", results):
        record.describe("cells", flow, {}, ["components", "near"])
        record.begin("components", "pca", ("missing",), {}, anew=True)
        stages = json.loads(rankfold("status", flow, "--json").stdout)["stages"]
    assert [stage["state"] for stage in stages] == ["running", "partial"]
