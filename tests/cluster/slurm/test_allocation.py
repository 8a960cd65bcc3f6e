"""A whole command in one job of several nodes, which is requeued until all is done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from drivers import HERE, folded_again, wait_for
from reference import same_bytes, to_zarr
from slurm_cluster import NODES, SlurmCluster
from typer.testing import CliRunner

import rankfold as rf
from rankfold.cluster.slurm.allocation import Allocation, node_bytes
from rankfold.cluster.slurm.profile import read_profile
from rankfold.cluster.slurm.submission import job_script, submit
from rankfold.pipeline.planning import passes
from rankfold.workflows.cli import app
from rankfold.workflows.operations.submitted import place_digest

SCRIPT = """\
#!/usr/bin/env bash
#SBATCH --job-name=rankfold-pca-{place}
#SBATCH --output=rankfold-pca-%j.log
#SBATCH --open-mode=append
#SBATCH --partition=main
#SBATCH --account=physics
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-task=1
#SBATCH --mem=49152M
#SBATCH --time=2:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --qos=long

asked= driver=
trap 'asked=yes; [ -z "$driver" ] || kill -USR1 "$driver"' USR1
export RANKFOLD_PROFILE={profile}
module load python
{python} -m rankfold pca store.zarr --rank 50 --out 'my pca.zarr' --cluster allocation &
driver=$!
[ -z "$asked" ] || kill -USR1 "$driver"
while :; do
    wait "$driver"
    code=$?
    kill -0 "$driver" 2>/dev/null || break
done

# 138: the signal came before the driver listened.
[ "$code" -ne 138 ] || code=75
if [ "$code" -eq 75 ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt 7 ]; then
    echo "rankfold: more to do; requeueing job $SLURM_JOB_ID, start $((${{SLURM_RESTART_COUNT:-0}} + 1))"
    scontrol requeue "$SLURM_JOB_ID" && sleep 600
fi
exit "$code"

# pca: one job submitted by  sbatch SCRIPT
"""

SITE = """\
partition: main
account: physics
walltime: "2:00:00"
drain: "0:05:00"
nodes: 4
workers_per_node: 2
requeue: 7
memory: 16GiB
cores: 8
gpus: 1
prologue: [module load python]
directives: [--qos=long]
"""

COMMAND = ["pca", "store.zarr", "--rank", "50", "--out", "my pca.zarr"]


def test_the_script_of_a_submission_is_as_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "runs_on_device", lambda kernels: True)  # the profile reserves GPUs
    site = tmp_path / "site.yaml"
    site.write_text(SITE)
    to_zarr(tmp_path / "store.zarr", np.ones((200, 60)), (100, 60))
    ran = CliRunner().invoke(app, ["submit", "--cluster", str(site), "--print", "--", *COMMAND])
    assert ran.exit_code == 0, ran.output
    place = place_digest(tmp_path / "my pca.zarr")
    script = SCRIPT.format(profile=site, python=sys.executable, place=place)
    assert ran.stdout.splitlines() == script.splitlines()
    subprocess.run(["bash", "-n"], input=ran.stdout, text=True, check=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cluster", "siet", "--", *COMMAND], "there is no profile 'siet'"),
        (
            ["--", "demo"],
            "submit takes a command that runs on workers: check, combine-graphs, density, diffusion-map, ",
        ),
        (["--", *COMMAND, "--cluster", "local"], "give --cluster before the dashes, not to pca"),
        (["--", *COMMAND, "--rnk", "3"], "No such option: --rnk"),
        (["--", *COMMAND], "there is no sbatch here: --cluster slurm needs the commands of SLURM"),
    ],
)
def test_what_cannot_be_submitted_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    to_zarr(tmp_path / "store.zarr", np.ones((200, 60)), (100, 60))
    ran = CliRunner().invoke(app, ["submit", *arguments])
    assert ran.exit_code == 2
    assert message in ran.output and "Traceback" not in ran.output


def test_a_mistake_in_a_profile_is_one_line(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(SITE.replace("0:05:00", "3:00:00"))
    ran = CliRunner().invoke(app, ["submit", "--cluster", str(site), "--", *COMMAND])
    assert ran.exit_code == 2
    assert (
        f"{site}:4: drain: " in ran.output and "before the end of a walltime, here of 2:00:00" in ran.output
    )


def test_outside_a_job_there_is_no_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(rf.RankfoldError, match=r"none here\. Submit it: rankfold submit -- COMMAND") as error:
        rf.svd(np.eye(9), 2, cluster="allocation")
    assert error.value.exit_code == 2


def test_an_allocation_knows_its_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site.yaml").write_text(SITE)
    given = {"RANKFOLD_PROFILE": tmp_path / "site.yaml", "SLURM_JOB_ID": 7, "SLURM_RESTART_COUNT": 2}
    given |= {"SLURM_JOB_NUM_NODES": 4, "SLURM_NTASKS_PER_NODE": 2, "SLURM_CPUS_PER_TASK": 8}
    given |= {"SLURM_MEM_PER_NODE": 49152}
    for name, value in given.items():
        monkeypatch.setenv(name, str(value))
    place = Allocation.of(None, None, None)
    assert (place.budget.workers, place.budget.threads, place.attempt) == (8, 1, 2)
    assert 0 <= 49152 * 2**20 - node_bytes(place.budget.memory_bytes, 2) < 2**10
    assert Allocation.of(3, 1, "1GiB").budget.workers == 3
    with pytest.raises(rf.RankfoldError, match="has gpus: 1 and runs one segment on each, not 2"):
        Allocation.of(3, 2, "1GiB")
    with pytest.raises(rf.RankfoldError, match=r"2 workers of a node and the driver take .* Give at most"):
        Allocation.of(None, None, "20GiB")
    command = place.limited_to(3)._command("tcp://here:1", "worker-7-2-%t.log", [])
    assert "--nodes=2" in command and "--ntasks=3" in command and "--gpus-per-task=1" in command
    assert "--cpus-per-task=8" in command and "--nthreads 1 " in command[-1]


# A real SLURM -------------------------------------------------------------------------------------

PROFILE = """\
partition: main
interface: lo
walltime: "0:02:00"
nodes: 2
cores: 1
memory: 1GiB
"""


@pytest.fixture(autouse=True)
def _where_jobs_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of the test, and with its modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), *sys.path[1:]]))


def submitted(folder: Path, store: Path, seconds: float, *more: str) -> tuple[str, Path]:
    """A job that runs ``counting_driver.py``; its number and its log."""
    path = folder / "site.yaml"
    path.write_text("\n".join([PROFILE, *more]))
    where = json.dumps({"cluster": "allocation"})
    out = folder / "r.zarr"
    driver = [sys.executable, str(HERE / "counting_driver.py"), str(store), str(out), str(seconds), where]
    script = job_script(driver, read_profile(path), name="test", known_as=str(path))
    job = submit(script, read_profile(path), "rankfold-test")
    return job, folder / f"rankfold-test-{job}.log"


def said(log: Path) -> str:
    return log.read_text() if log.exists() else ""


def rows(log: Path, sweep: str) -> int:
    """How far a sweep has come in the last start of the job."""
    lines = [line.split() for line in said(log).splitlines() if line.startswith(f"{sweep} ")]
    return int(lines[-1][1]) if lines else 0


@pytest.mark.slurm
@pytest.mark.parametrize("more", [(), ("tls: true", "workers_per_node: 2")], ids=["plain", "tls"])
def test_an_allocation_gives_the_same_bytes_as_threads(
    tmp_path: Path, demo_store: Path, demo_bytes: str, slurm: SlurmCluster, more: tuple[str, ...]
) -> None:
    job, _ = submitted(tmp_path, demo_store, 0.0, *more)
    wait_for(lambda: not slurm.jobs(), otherwise=job)
    result = rf.open_result(tmp_path / "r.zarr")
    assert same_bytes(result) == demo_bytes
    attempt = result.run["attempts"][-1]
    assert attempt["place"]["kind"] == "allocation" and attempt["place"]["job"] == job
    assert attempt["place"]["workers"] == (4 if more else 2)
    assert 0 < attempt["measured_bytes"] <= attempt["planned_bytes"]
    logs = [path.read_text() for path in (tmp_path / "r.zarr.run" / "logs").glob(f"worker-{job}-0-*.log")]
    assert len(logs) == attempt["place"]["workers"]
    assert all(("tls://" in text) == bool(more) for text in logs)
    assert not [*(tmp_path / "r.zarr.run").glob("tls-*")]


@pytest.mark.slurm
def test_workers_that_cannot_start_end_the_job_for_good(
    tmp_path: Path, demo_store: Path, slurm: SlurmCluster
) -> None:
    _, log = submitted(tmp_path, demo_store, 0.0, "python: /no/such/python")
    wait_for(lambda: not slurm.jobs())
    assert "the workers of the allocation have ended" in said(log) and "/no/such/python" in said(log)
    assert "requeueing" not in said(log)


@pytest.mark.slow
@pytest.mark.slurm
def test_a_job_that_is_requeued_three_times_does_nothing_twice(
    tmp_path: Path, demo_store: Path, demo_bytes: str, slurm: SlurmCluster
) -> None:
    job, log = submitted(tmp_path, demo_store, 1.0)
    for start in range(1, 4):
        before = rows(log, "gram") + rows(log, "pass-02")
        wait_for(
            lambda b=before: rows(log, "gram") + rows(log, "pass-02") > b + 50_000,
            otherwise=lambda: said(log),
        )
        # As SLURM itself does some time before the end: to the shell of the job alone.
        subprocess.run(["scancel", "--batch", "--signal=USR1", job], check=True)
        wait_for(lambda s=start: f"requeueing job {job}, start {s}" in said(log), otherwise=lambda: said(log))
    wait_for(lambda: not slurm.jobs(), otherwise=lambda: said(log))
    result = rf.open_result(tmp_path / "r.zarr")
    assert same_bytes(result) == demo_bytes
    assert folded_again(tmp_path / "r.zarr.reads") == 0
    places = [attempt["place"] for attempt in result.run["attempts"]]
    assert [place["restarts"] for place in places] == [*range(len(places))]
    assert len(places) >= 4  # more on a busy machine, where SLURM's own signal comes too
    assert {place["job"] for place in places} == {job}


@pytest.mark.slow
@pytest.mark.slurm
def test_a_job_that_is_preempted_goes_on_afterwards(
    tmp_path: Path, demo_store: Path, demo_bytes: str, slurm: SlurmCluster
) -> None:
    job, log = submitted(tmp_path, demo_store, 0.5)
    wait_for(lambda: rows(log, "gram") > 50_000, otherwise=lambda: said(log))
    urgent = slurm.preempt(NODES[0], seconds=2)
    wait_for(lambda: urgent in slurm.jobs("RUNNING"), otherwise=lambda: said(log))
    assert job in slurm.jobs("PENDING")
    wait_for(lambda: not slurm.jobs(), otherwise=lambda: said(log))
    result = rf.open_result(tmp_path / "r.zarr")
    assert same_bytes(result) == demo_bytes
    assert folded_again(tmp_path / "r.zarr.reads") <= 0.1
    assert {attempt["place"]["job"] for attempt in result.run["attempts"]} == {job}
    assert result.run["attempts"][-1]["place"]["restarts"] == 1
