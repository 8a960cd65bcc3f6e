"""Workflows on a real SLURM: submitted, watched, cancelled, run again and again; no job is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import rankfold
from drivers import PATIENCE_SECONDS, wait_for
from reference import same_bytes, to_zarr
from slurm_cluster import SlurmCluster

import rankfold as rf
from rankfold.cluster.slurm.leftovers import read_note

pytestmark = pytest.mark.slurm

FLOW = """\
workflow: cells
inputs: {counts: x.zarr}
outputs: my results
profile: site
resources: {memory: 256MiB, threads: 1}
stages:
  components: {method: pca, input: counts, rank: 5}
  near: {method: knn, input: components.scores, k: 3}
"""

SITE = """\
partition: main
interface: lo
walltime: "0:10:00"
nodes: 2
memory: 1GiB
"""


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The workflow above beside its data and the profile of a job of two nodes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path[1:]))
    x = np.random.default_rng(0).standard_normal((2000, 30)) * np.linspace(3, 1, 30)
    to_zarr(tmp_path / "x.zarr", x.astype(np.float32), (500, 30))
    (tmp_path / "site.yaml").write_text(SITE)
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW)
    return path


def standing(flow: Path) -> dict[str, Any]:
    asked = rankfold("status", flow, "--json")
    assert asked.exit_code == 0, asked.output
    return dict(json.loads(asked.stdout))


def states(flow: Path) -> list[str]:
    return [stage["state"] for stage in standing(flow)["stages"]]


def test_a_workflow_is_submitted_watched_cancelled_and_gone_on_with(flow: Path, slurm: SlurmCluster) -> None:
    sent = rankfold("submit", "flow.yaml")
    assert sent.exit_code == 0, sent.output
    job = sent.stdout.split()[1].rstrip(":")
    assert slurm.jobs() == [job] and standing(flow)["submitted"]["job"] == job
    twice = rankfold("submit", flow)
    assert twice.exit_code == 2 and f"is submitted already: job {job} " in twice.stderr, twice.output
    assert f"rankfold cancel {flow}" in twice.stderr

    wait_for(lambda: "running" in states(flow), otherwise=lambda: rankfold("logs", flow).output)
    assert standing(flow)["jobs"][0]["nodes"] == "n[1-2]"
    assert f"\njob {job} running on n[1-2], " in rankfold("status", flow.parent / "my results").stdout
    ended = rankfold("cancel", flow)
    assert ended.exit_code == 0 and f"job {job} running on n[1-2]" in ended.stdout, ended.output
    assert not slurm.jobs() and not standing(flow)["jobs"]
    assert "nothing to cancel" in rankfold("cancel", flow).stdout
    assert f"job {job} has ended" in rankfold("status", flow).stdout

    again = rankfold("submit", flow)
    assert again.exit_code == 0, again.output
    command = [sys.executable, "-m", "rankfold", "logs", str(flow), "--follow"]
    followed = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert followed.returncode == 0, followed.stderr
    assert not slurm.jobs()
    number = again.stdout.split()[1].rstrip(":")
    results = flow.parent / "my results"
    assert f"==> {results}/rankfold-cells-{number}.log <==" in followed.stdout
    assert f"==> {results}/components.zarr.run/logs/worker-{number}-0-0.log <==" in followed.stdout
    assert "2 stages: " in followed.stdout
    assert states(flow) == ["done", "done"]
    assert "nothing to submit" in rankfold("submit", flow).stdout
    one = rankfold("logs", flow, "--stage", "near", "--lines", 1).stdout
    assert "components" not in one and "near.zarr.run/logs/worker-" in one

    components = rf.pca(flow.parent / "x.zarr", 5)
    near = rf.knn(f"{results / 'components.zarr'}::scores", 3)
    assert same_bytes(rf.open_result(results / "components.zarr")) == same_bytes(components)
    assert same_bytes(rf.open_result(results / "near.zarr")) == same_bytes(near)


def held(flow: Path) -> None:
    """Its worker jobs wait in the queue, and would for ever."""
    (flow.parent / "site.yaml").write_text(SITE + "directives: [--hold]\n")


def shells_of(pid: int) -> list[int]:
    """Children of a process that wait for its end, to cancel its jobs."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == pid and b"scancel" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_no_job_is_left_of_a_driver_that_was_killed_with_its_shell(flow: Path, slurm: SlurmCluster) -> None:
    held(flow)
    run = flow.parent / "my results" / "components.zarr.run"
    driver = subprocess.Popen(
        [sys.executable, "-m", "rankfold", "run", str(flow)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: bool(slurm.jobs("PENDING")))
    assert len(read_note(run)) == 1
    assert "jobs of workers: 1 pending (JobHeldUser)" in rankfold("status", flow).stdout
    for shell in shells_of(driver.pid):
        os.kill(shell, signal.SIGKILL)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    time.sleep(1)
    assert slurm.jobs("PENDING")

    ended = rankfold("cancel", flow.parent / "my results")
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.count("cancelled, of a command that is gone") == 1
    assert not slurm.jobs() and not read_note(run)
    assert "nothing to cancel" in rankfold("cancel", run.with_suffix("")).stdout


def test_a_driver_with_jobs_is_asked_to_stop(flow: Path, slurm: SlurmCluster) -> None:
    held(flow)
    command = [sys.executable, "-m", "rankfold", "run", str(flow)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as driver:
        wait_for(lambda: bool(slurm.jobs("PENDING")))
        ended = rankfold("cancel", flow)
        assert ended.exit_code == 0 and f"process {driver.pid} on " in ended.stdout, ended.output
        driver.communicate()
    assert driver.returncode == 75
    assert not slurm.jobs() and not [*(flow.parent / "my results").glob("*.run/jobs.json")]


def test_a_scheduled_job_submits_the_next_before_it_works(flow: Path, slurm: SlurmCluster) -> None:
    flow.write_text(FLOW.replace("stages:", "schedule: {every: 6h}\nstages:").replace("  near", "#"))
    script = rankfold("schedule", flow)
    assert script.exit_code == 0, script.output
    (flow.parent / "again.sh").write_text(script.stdout)
    subprocess.run(["sbatch", "again.sh"], check=True, capture_output=True)
    wait_for(lambda: len(slurm.jobs("RUNNING")) == len(slurm.jobs("PENDING")) == 1)
    after = next(job for job in standing(flow)["jobs"] if job["state"] == "pending")
    assert after["reason"] in ("BeginTime", "Dependency")
    seconds = time.mktime(time.strptime(after["begins"], "%Y-%m-%dT%H:%M:%S")) - time.time()
    assert 5.9 * 3600 < seconds <= 6 * 3600
    ended = rankfold("cancel", flow)
    assert ended.exit_code == 0 and f"job {after['number']} pending" in ended.stdout, ended.output
    assert not slurm.jobs()
