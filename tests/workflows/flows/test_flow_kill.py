"""Killed at any moment of any stage, the same command goes on and ends with the same bytes."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flow_commands import actions, begun, rankfold
from reference import to_zarr

import rankfold as rf
from rankfold.methods.embedding.trustworthiness import EmbeddingQuality
from rankfold.workflows.flows.record import Record

FLOW = """\
workflow: three
inputs: {x: x.zarr}
outputs: results
resources: {memory: 1GiB, threads: 2}
stages:
  components: {method: pca, input: x, rank: 10, solver: krylov, tol: 1.0e-9, passes: 6}
  near: {method: knn, input: components.scores, k: 10}
  trust: {method: trustworthiness, input: x, embedding: components.scores, sample_rows: 3000}
"""
STAGES = ("components", "near", "trust")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, and all results of one run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    x = np.random.default_rng(0).standard_normal((20_000, 60), dtype=np.float32)
    to_zarr(folder / "x.zarr", x * np.linspace(3, 1, 60, dtype=np.float32), (1000, 60))
    (folder / "flow.yaml").write_text(FLOW)
    with started(folder / "flow.yaml") as child:
        assert child.wait() == 0
    return folder


def started(flow: Path) -> subprocess.Popen[bytes]:
    """The command as a process of its own."""
    command = [sys.executable, "-m", "rankfold", "run", str(flow)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def contents(results: Path) -> dict[str, Any]:
    """Every number of all results; what tells chunks by their time is not one."""
    found: dict[str, Any] = {}
    for stage in STAGES:
        result = rf.open_result(results / f"{stage}.zarr")
        kept = {name: value for name, value in result.attrs.items() if isinstance(value, int | float | str)}
        found[stage] = kept | {name: np.asarray(getattr(result, name)[...]).tobytes() for name in result}
    return found


def killed_in(flow: Path, stage: str, after: float) -> list[str]:
    """Kill the command so many seconds after a stage has begun; what it said of its stages."""
    said: list[str] = []
    with started(flow) as child:
        assert child.stderr is not None
        for line in child.stderr:
            said.append(line.decode())
            if f" {stage}, " in said[-1]:
                break
        rest = threading.Thread(target=child.stderr.read)  # a pipe that is full would hold the stage up
        rest.start()
        time.sleep(after)
        child.send_signal(signal.SIGKILL)
        child.wait()
        rest.join()
    return [line for line in said if line.startswith("stage ")]


@pytest.mark.process
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_a_kill_in_each_stage_changes_no_byte(tmp_path: Path, whole: Path, seed: int) -> None:
    (tmp_path / "x.zarr").symlink_to(whole / "x.zarr")
    flow, chance = tmp_path / "flow.yaml", random.Random(seed)
    flow.write_text(FLOW)
    took = {name: stage["seconds"] for name, stage in Record.of(whole / "results").stages.items()}
    for number, stage in enumerate(STAGES):
        said = killed_in(flow, stage, chance.random() * took[stage])
        # Those that were finished when the last attempt was killed are not made again.
        assert all("skip (finished)" in line for line in said[: max(0, number - 1)])
        assert all(action == "skip" for action, _ in list(actions(flow).values())[:number])
    last = rankfold("run", flow)
    assert last.exit_code == 0, last.output
    assert "components, pca: skip (finished)" in last.stderr and "near, knn: skip (finished)" in last.stderr
    assert contents(tmp_path / "results") == contents(whole / "results")
    assert {action for action, _ in actions(flow).values()} == {"skip"}


def test_a_search_that_is_done_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted between its two parts, a measure of an embedding goes on with the second."""
    flow = begun(tmp_path)
    trust = "  trust: {method: trustworthiness, input: counts, embedding: components.scores, k: 4}\n"
    flow.write_text(flow.read_text() + trust)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(EmbeddingQuality, "work", killed)
        assert rankfold("run", flow).exit_code == 130
    assert actions(flow)["trust"] == ("resume", "was interrupted")
    assert not (tmp_path / "results" / "trust.zarr").exists()
    again = rankfold("run", flow)
    assert again.exit_code == 0 and "trust: counting nearer rows" in again.stderr
    assert "trust: pairs of blocks" not in again.stderr
    scores = f"{tmp_path / 'results' / 'components.zarr'}::scores"
    made = rf.open_result(tmp_path / "results" / "trust.zarr").attrs
    assert made["value"] == float(rf.trustworthiness(tmp_path / "x.zarr", scores, 4))
    assert not list((tmp_path / "results" / "trust.zarr.run").glob("[!rlj]*"))
    assert not list((tmp_path / "results" / "trust.zarr.run").glob("result-*"))


def test_a_measure_of_something_else_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = begun(tmp_path)
    text = (
        flow.read_text() + "  cont: {method: continuity, input: counts, embedding: components.scores, k: K}\n"
    )
    flow.write_text(text.replace("K}", "4}"))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(EmbeddingQuality, "work", killed)
        assert rankfold("run", flow).exit_code == 130
    flow.write_text(text.replace("K}", "6}"))
    assert actions(flow)["cont"] == ("run", "missing; parameter k: 4 -> 6")
    assert rankfold("run", flow).exit_code == 0
    scores = f"{tmp_path / 'results' / 'components.zarr'}::scores"
    made = rf.open_result(tmp_path / "results" / "cont.zarr").attrs
    assert made["value"] == float(rf.continuity(tmp_path / "x.zarr", scores, 6))
