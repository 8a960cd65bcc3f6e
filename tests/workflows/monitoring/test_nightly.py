"""A workflow as a nightly job: one line of news, exit codes that cron understands, numbers beside results."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drivers import HERE
from flow_commands import FLOW, begun, changed, rankfold
from openmetrics_text import read_openmetrics, read_prometheus
from reference import to_zarr

import rankfold as rf
from rankfold.pipeline.errors import DamagedStateError, NoWorkersError, UnreachableError
from rankfold.pipeline.storage import run_directory
from rankfold.workflows.flows import run as run_module
from rankfold.workflows.flows.record import Record
from rankfold.workflows.monitoring.metrics import METRICS


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    """A workflow beside its data."""
    return begun(tmp_path)


def grown(flow: Path, rows: int) -> None:
    """The data with so many rows."""
    x = np.random.default_rng(0).standard_normal((rows, 30)) * np.linspace(3, 1, 30)
    shutil.rmtree(flow.parent / "x.zarr")
    to_zarr(flow.parent / "x.zarr", x.astype(np.float32), (500, 30))


def metrics(flow: Path) -> dict[tuple[str, str], float]:
    """Numbers by metric and stage, where there is one; as both formats have them."""
    text = (flow.parent / "results" / "metrics.prom").read_text()
    samples = read_openmetrics(text)
    assert [(name, labels, value) for name, labels, value in samples] == read_prometheus(text)
    assert {name for name, _, _ in samples} <= {metric.name for metric in METRICS}
    assert all(labels["workflow"] == "cells" for _, labels, _ in samples)
    found: dict[tuple[str, str], float] = {}
    for name, labels, value in samples:
        place = labels.get("stage") or labels.get("action") or ""
        found[name.removeprefix("rankfold_"), f"{place} {labels.get('measure', '')}".strip()] = value
    return found


# News --------------------------------------------------------------------------------------------


def test_a_quiet_run_is_one_line(flow: Path) -> None:
    first = rankfold("run", flow, "--quiet")
    assert first.exit_code == 0 and first.stderr == ""
    (line,) = first.stdout.splitlines()
    start = f"{flow.parent}/results: 2 stages: 2 run: components (missing; 1,500 rows), near (missing; "
    assert line.startswith(start) and line.endswith("KiB read")
    again = rankfold("run", flow, "--quiet")
    (line,) = again.stdout.splitlines()
    assert line.startswith(f"{flow.parent}/results: 2 stages: 2 finished before, nothing new; ")
    assert again.stderr == "" and line.endswith(" s")


def test_a_store_that_grew_is_told_with_its_rows(flow: Path) -> None:
    assert rankfold("run", flow).exit_code == 0
    grown(flow, 1800)
    line = rankfold("run", flow, "--quiet").stdout
    assert "2 run: components (input counts changed; 1,500 -> 1,800 rows), near (input " in line
    changed(flow, ("k: 3", "k: 4"))
    line = rankfold("run", flow, "--quiet").stdout
    assert "1 run, 1 finished before: near (parameter k: 3 -> 4; 1,800 rows); " in line


def test_many_stages_are_told_of_in_one_line(flow: Path) -> None:
    flow.write_text(FLOW + "sweep: {stage: near, k: [2, 3, 4, 5, 6, 7, 8, 9]}\n")
    (line,) = rankfold("run", flow, "--quiet").stdout.splitlines()
    assert "9 stages: 9 run: components (" in line and ", and 3 more; " in line and "near-8" not in line


def test_a_quiet_run_tells_what_goes_wrong(flow: Path) -> None:
    flow.write_text(FLOW + "  parts: {method: nmf, input: counts, rank: 2}\n")
    run = rankfold("run", flow, "--quiet")
    assert run.exit_code == 4 and run.stdout == ""
    (line,) = run.stderr.splitlines()
    assert line.startswith(f"rankfold: {flow}:17: stages.parts: ")


def test_a_quiet_run_tells_of_warnings(flow: Path) -> None:
    changed(flow, ("    rank: 5\n", "    rank: 5\n    solver: sketch\n"))
    loud = rankfold("run", flow)
    warned = [line for line in loud.stderr.splitlines() if line.startswith("warning: ")]
    shutil.rmtree(flow.parent / "results")
    quiet = rankfold("run", flow, "--quiet")
    assert quiet.stderr.splitlines() == warned


# Exit codes --------------------------------------------------------------------------------------


def refuse_plan(flow: Path) -> None:
    changed(flow, ("memory: 1GiB", "memory: 1MiB"))


def bad_data(flow: Path) -> None:
    import zarr

    zarr.open_array(flow.parent / "x.zarr", mode="r+")[3, 3] = np.nan


def rank_too_large(flow: Path) -> None:
    changed(flow, ("rank: 5", "rank: 31"))


@pytest.mark.parametrize(
    ("spoil", "code"),
    [(lambda flow: None, 0), (rank_too_large, 2), (refuse_plan, 3), (bad_data, 4)],
    ids=["done", "bad input", "plan refused", "bad data"],
)
def test_exit_codes_are_told_in_metrics_too(flow: Path, spoil: Callable[[Path], None], code: int) -> None:
    assert rankfold("run", flow, "--only", "components").exit_code == 0
    before = metrics(flow)
    spoil(flow)
    assert rankfold("run", flow, "--quiet").exit_code == code
    after = metrics(flow)
    assert after["run_exit_code", ""] == code and after["run_active", ""] == 0
    succeeded = [found["run_success_timestamp_seconds", ""] for found in (before, after)]
    assert (succeeded[1] > succeeded[0]) is (code == 0)
    assert after["run_end_timestamp_seconds", ""] > before["run_end_timestamp_seconds", ""]
    assert after["run_end_timestamp_seconds", ""] >= after["run_start_timestamp_seconds", ""]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DamagedStateError(Path("part"), "is not whole"), 75),
        (NoWorkersError("no worker came within 0:30:00"), 75),
        (UnreachableError("s3://bucket does not answer"), 75),
        (OSError(errno.EIO, "Input/output error"), 2),
        (MemoryError(), 2),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_what_ends_a_stage_ends_the_run_with_its_code(
    flow: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(run_module, "execute", fail)
    run = rankfold("run", flow, "--quiet")
    assert run.exit_code == code, run.output
    assert len(run.stderr.splitlines()) == 1 and run.stderr.startswith("rankfold: ")
    found = metrics(flow)
    assert found["run_exit_code", ""] == code and ("run_success_timestamp_seconds", "") not in found
    assert found["stage_success", "components"] == 0 and ("stage_rows", "components") not in found


def test_a_fault_of_ours_is_told_apart(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("no such thing")

    monkeypatch.setattr(run_module, "execute", fail)
    assert rankfold("run", flow).exit_code == 1
    assert metrics(flow)["run_exit_code", ""] == 1


def test_mistakes_in_the_file_leave_metrics_as_they_were(flow: Path) -> None:
    """Where its results lie is not known before it is read."""
    assert rankfold("run", flow).exit_code == 0
    before = metrics(flow)
    changed(flow, ("rank: 5", "rnak: 5"))
    assert rankfold("run", flow, "--quiet").exit_code == 2
    assert metrics(flow) == before


@pytest.mark.process
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_run_that_is_stopped_says_so(flow: Path, number: int, code: int) -> None:
    command = [sys.executable, str(HERE / "held_command.py"), "near: pairs", "run", str(flow)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stderr=pipe, stdout=pipe, text=True) as child:
        assert child.stderr is not None
        assert any(line == "held\n" for line in child.stderr)
        found = metrics(flow)
        assert found["run_active", ""] == 1 and found["run_stages", "run"] == 1
        assert found["stage_success", "components"] == 1 and ("run_exit_code", "") not in found
        other = rankfold("run", flow, "--quiet")
        assert other.exit_code == 2 and f"process {child.pid} on" in other.stderr
        scheduled = rankfold("run", flow, "--quiet", "--unless-running")
        assert scheduled.exit_code == 0 and "so this run does nothing" in scheduled.stdout
        assert metrics(flow) == found
        child.send_signal(number)
        child.communicate()
    assert child.returncode == code
    found = metrics(flow)
    assert found["run_exit_code", ""] == code and found["run_active", ""] == 0
    assert found["run_stages", "interrupted"] == 1
    again = rankfold("run", flow, "--quiet")
    assert again.exit_code == 0 and "near (was interrupted; 1,500 rows)" in again.stdout
    assert metrics(flow)["stage_attempts", "near"] == 2


@pytest.mark.process
def test_a_scheduled_run_gives_way_to_whoever_holds_the_workflow(flow: Path) -> None:
    """It asks for the lock itself: there is no moment between a look and the lock."""
    assert rankfold("run", flow).exit_code == 0
    before = metrics(flow)
    ready = flow.parent / "ready"
    code = (
        "import sys, pathlib; from rankfold.pipeline.storage.lock import hold_lock\n"
        "lock = pathlib.Path(sys.argv[1])\n"
        "with hold_lock(lock, lock):\n    pathlib.Path(sys.argv[2]).touch(); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(flow.parent / "results" / "flow.lock"), str(ready)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        while not ready.exists():
            time.sleep(0.02)
        run = rankfold("run", flow, "--unless-running")
        assert run.exit_code == 0 and f"process {child.pid} on" in run.stdout
        assert rankfold("run", flow).exit_code == 2
        child.communicate()
    assert metrics(flow) == before


@pytest.mark.process
def test_a_stage_that_another_command_writes_is_no_other_run(flow: Path) -> None:
    """A schedule gives way to the workflow alone: what keeps its results from being made is told."""
    run = flow.parent / "results" / "components.zarr.run"
    run.mkdir(parents=True)
    code = (
        "import sys, pathlib; from rankfold.pipeline.storage.lock import hold_lock\n"
        "lock = pathlib.Path(sys.argv[1])\n"
        "with hold_lock(lock, lock):\n    print(flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(run / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline()
        refused = rankfold("run", flow, "--unless-running")
        assert refused.exit_code == 2 and "another run is writing" in refused.stderr
        child.communicate()


# Metrics -----------------------------------------------------------------------------------------


def test_metrics_tell_of_a_run_and_of_each_stage(flow: Path) -> None:
    changed(flow, ("stages:\n", "keep: 2\nstages:\n"))
    assert rankfold("run", flow).exit_code == 0
    changed(flow, ("k: 3", "k: 4"))
    assert rankfold("run", flow).exit_code == 0
    found = metrics(flow)
    results = flow.parent / "results"
    attempt = json.loads((results / "near.zarr.run" / "run.json").read_text())["attempts"][-1]
    took = sum(attempt[name] for name in ("seconds", "compile_seconds", "load_seconds"))
    assert found["stage_duration_seconds", "near"] == pytest.approx(took)
    assert found["stage_peak_planned_bytes", "near"] == attempt["planned_bytes"]
    assert found["stage_peak_measured_bytes", "near"] == attempt["measured_bytes"]
    assert found["stage_rows", "near"] == 1500 and found["stage_attempts", "near"] == 1
    size = 1500 * 30 * 4
    passes = rf.open_result(results / "components.zarr").attrs["passes"]
    assert found["stage_read_bytes", "components"] == passes * size
    assert found["run_read_bytes", ""] == found["stage_read_bytes", "near"] > 0
    assert (found["run_stages", "run"], found["run_stages", "skip"]) == (1, 1)
    assert found["stage_earlier_results", "near"] == 1
    assert ("stage_earlier_results", "components") not in found
    error = rf.open_result(results / "components.zarr").attrs["largest_error_estimate"]
    assert found["stage_quality", "components largest_error_estimate"] == error
    assert found["outputs_free_bytes", ""] > 0
    assert 0 < found["run_duration_seconds", ""] < 60


def test_imports_are_counted(tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((30, 4)))
    flow.write_text(
        "workflow: cells\ninputs: {table: x.npy}\noutputs: results\n"
        "stages: {samples: {method: import, input: table}}\n"
    )
    line = rankfold("run", flow, "--quiet").stdout
    assert "1 run: samples (missing; 30 rows); " in line
    found = metrics(flow)
    assert found["stage_rows", "samples"] == 30 and found["stage_read_bytes", "samples"] == 30 * 4 * 8
    assert found["stage_duration_seconds", "samples"] > 0


def test_names_and_words_of_any_kind_are_escaped() -> None:
    from rankfold.workflows.monitoring.metrics import Metric, text_of

    odd = 'a "quoted" \\ back\nslash'
    text = text_of([(Metric("rankfold_stage_rows", "Of a matrix."), [({"stage": odd}, 1.5e-300)])])
    assert read_openmetrics(text) == read_prometheus(text)
    assert read_openmetrics(text) == [("rankfold_stage_rows", {"stage": odd}, 1.5e-300)]


def test_a_file_of_somebody_else_is_left_alone(flow: Path, caplog: pytest.LogCaptureFixture) -> None:
    results = flow.parent / "results"
    results.mkdir()
    (results / "metrics.prom").write_text("mine 1\n")
    assert rankfold("run", flow).exit_code == 0
    assert (results / "metrics.prom").read_text() == "mine 1\n" and "no metrics are written" in caplog.text


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EIO])
def test_metrics_that_cannot_be_written_end_no_run(
    flow: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    assert rankfold("run", flow).exit_code == 0
    before = (flow.parent / "results" / "metrics.prom").read_bytes()
    real = os.replace

    def replace(source: Any, target: Any) -> None:
        if str(target).endswith("metrics.prom"):
            raise OSError(code, os.strerror(code))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    changed(flow, ("k: 3", "k: 4"))
    assert rankfold("run", flow).exit_code == 0
    assert (flow.parent / "results" / "metrics.prom").read_bytes() == before
    assert "no metrics are written" in caplog.text
    assert not list((flow.parent / "results").glob(".metrics*"))


def test_a_disk_that_is_full_at_the_very_end_leaves_the_exit_code(
    flow: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: Record, exit_code: int) -> None:
        with run_directory.disk_errors(self.outputs):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Record, "end_run", full)
    assert rankfold("run", flow).exit_code == 0
    assert "how this run ended is not written down" in caplog.text


@pytest.mark.process
def test_what_a_killed_run_leaves_tells_that_it_did_not_end(flow: Path) -> None:
    assert rankfold("run", flow).exit_code == 0
    changed(flow, ("k: 3", "k: 4"))
    command = [sys.executable, str(HERE / "held_command.py"), "near: pairs", "run", str(flow)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stderr=pipe, stdout=pipe, text=True) as child:
        assert child.stderr is not None
        assert any(line == "held\n" for line in child.stderr)
        child.kill()
        child.communicate()
    found = metrics(flow)
    assert found["run_active", ""] == 1
    assert found["run_start_timestamp_seconds", ""] > found["run_end_timestamp_seconds", ""]
    assert found["stage_rows", "near"] == 1500  # of the result that is there
    assert rankfold("run", flow).exit_code == 0 and metrics(flow)["run_active", ""] == 0


def test_the_guide_names_all_metrics() -> None:
    page = (Path(__file__).parents[3] / "docs" / "workflows.md").read_text()
    named = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `rankfold_")]
    assert named == [metric.name for metric in METRICS]
