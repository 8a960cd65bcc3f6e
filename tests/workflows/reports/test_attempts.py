"""Seconds of several attempts: the closing line, status and the report say the same of all of them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rankfold.cluster.local.calibration import cached_rates
from rankfold.pipeline.errors import Interrupted
from rankfold.pipeline.machine import machine_facts
from rankfold.pipeline.planning.progress import SweepProgress
from rankfold.pipeline.storage.journal import epoch_of
from rankfold.workflows.cli import app
from rankfold.workflows.reports.history import Event, History, RunAttempt, Segment
from rankfold.workflows.reports.measures import stage_facts
from rankfold.workflows.reports.tables import plan_table, request_table

FLOW = """\
workflow: twice
inputs: {x: x.npy}
outputs: results
resources: {memory: 256MiB, threads: 1}
stages:
  components: {method: pca, input: x, rank: 3, solver: krylov, passes: 3, tol: 1.0e-9}
"""


def run(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.stdout


def interrupted(self: SweepProgress, name: str, done: int, total: int) -> None:
    if "pass-02" in name:
        raise Interrupted("enough")


def test_seconds_are_those_of_all_attempts_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).standard_normal((3000, 20)))
    Path("flow.yaml").write_text(FLOW)
    with monkeypatch.context() as patch:
        patch.setattr(SweepProgress, "__call__", interrupted)
        run("run", "flow.yaml", code=75)
    said = run("run", "flow.yaml")

    out = tmp_path / "results/components.zarr"
    history = History.of(out)
    seconds = history.seconds
    assert seconds is not None and seconds > history.attempts[-1].facts["seconds"]
    assert f"\n{seconds:.3g} s in 2 attempts, peak memory" in said
    stage = json.loads(run("status", "flow.yaml", "--json"))["stages"][0]
    assert (stage["seconds"], stage["attempts"]) == (seconds, 2)
    facts = stage_facts(history, cached_rates())
    assert facts["measured"]["all_attempts_seconds"] == seconds
    for table in (request_table([facts]), plan_table([facts])):
        told = dict(zip(table.headings, table.rows[0], strict=True))["time"]
        assert told == f"{seconds:.3g} s in 2 attempts"


def test_a_start_is_told_from_one_reading_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for nanoseconds in (1_700_000_000_999_999_999, 1_700_000_001_000_000_000):
        monkeypatch.setattr(time, "time_ns", lambda moment=nanoseconds: moment)
        assert epoch_of(machine_facts()["started"]) == nanoseconds / 1e9


def test_an_attempt_that_was_cut_off_lasts_until_the_last_sign_of_it(tmp_path: Path) -> None:
    attempts = (RunAttempt(0.0, None, {}), RunAttempt(1000.0, None, {}), RunAttempt(2000.0, 7.0, {}))
    segments = (Segment("a", "gram", 10.0, 20.0), Segment("a", "gram", 30.0, None))
    events = (Event(42.0, "came", "0", "a"),)
    assert History("r", tmp_path / "r.zarr", attempts, segments, events).seconds == 42 + 0 + 7
    assert History("r", tmp_path / "r.zarr", attempts[2:]).seconds == 7
    assert History("r", tmp_path / "r.zarr").seconds is None
