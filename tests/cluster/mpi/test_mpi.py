"""A command on processes that mpiexec or srun has started: the same bytes, and nobody waits for ever."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drivers import GONE_SECONDS, PATIENCE_SECONDS, wait_for
from reference import same_bytes, to_zarr
from slurm_cluster import SlurmCluster
from typer.testing import CliRunner

import rankfold as rf
from rankfold.cluster.mpi import rendezvous, worker
from rankfold.cluster.mpi.rendezvous import VARIABLES, process_numbers
from rankfold.workflows.cli import app

MPIEXEC = shutil.which("mpiexec")
needs_mpiexec = pytest.mark.skipif(
    MPIEXEC is None, reason="there is no mpiexec; on Debian: apt-get install mpich, or openmpi-bin"
)
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""What Open MPI wants of root."""

REDUCTION = ["pca", "x.zarr", "--rank", "5", "--memory", "256MiB", "--out", "r.zarr"]

FLOW = """\
workflow: two
profile: mpi
inputs:
  x: x.zarr
resources:
  memory: 256MiB
outputs: results
stages:
  components:
    method: pca
    input: x
    rank: 5
  near:
    method: knn
    input: components.scores
    k: 4
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray[Any, Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    x = np.random.default_rng(0).standard_normal((4000, 40))
    to_zarr(tmp_path / "x.zarr", x, (500, 40))
    return x


def launched(launcher: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [*launcher, sys.executable, "-m", "rankfold", "mpi", *words]
    return subprocess.run(
        command, env={**os.environ, **AS_ROOT}, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )


def of_the_demo(store: Path) -> list[str]:
    return ["pca", str(store), "--rank", "8", "--memory", "256MiB", "--out", "r.zarr"]


@pytest.mark.process
@needs_mpiexec
def test_processes_of_mpiexec_give_the_same_bytes(
    store: np.ndarray[Any, Any], demo_store: Path, demo_bytes: str
) -> None:
    ran = launched(["mpiexec", "-n", "3"], "--", *of_the_demo(demo_store))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    result = rf.open_result("r.zarr")
    assert same_bytes(result) == demo_bytes
    place = result.run["attempts"][-1]["place"]
    assert (place["kind"], place["workers"]) == ("mpi", 2)
    logs = list(Path("r.zarr.run/logs").glob("worker-*-[12].log"))
    assert len(logs) == 2 and all("Start worker at" in log.read_text() for log in logs)
    assert not list(Path().glob(".rankfold-mpi-*"))


@pytest.mark.process
@needs_mpiexec
def test_a_workflow_calls_its_workers_for_each_stage(store: np.ndarray[Any, Any]) -> None:
    Path("flow.yaml").write_text(FLOW)
    ran = launched(["mpiexec", "-n", "3"], "flow.yaml")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for stage in ("components", "near"):
        attempt = rf.open_result(f"results/{stage}.zarr").run["attempts"][-1]
        assert attempt["place"]["kind"] == "mpi"


@pytest.mark.process
@needs_mpiexec
def test_an_error_ends_all_processes_with_its_code(store: np.ndarray[Any, Any]) -> None:
    ran = launched(["mpiexec", "-n", "3"], "--", *REDUCTION, "--workers", "0")
    assert ran.returncode == 2 and ran.stderr.count("workers must be at least 1") == 1, ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.slurm
def test_processes_of_srun_give_the_same_bytes(
    store: np.ndarray[Any, Any], demo_store: Path, demo_bytes: str, slurm: SlurmCluster
) -> None:
    ran = launched(["srun", "-n", "4", "--mem-per-cpu=1G"], "--", *of_the_demo(demo_store))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    result = rf.open_result("r.zarr")
    assert same_bytes(result) == demo_bytes
    assert result.run["attempts"][-1]["place"]["workers"] == 3
    wait_for(lambda: not slurm.jobs(), GONE_SECONDS)


@pytest.mark.parametrize("names", VARIABLES.values(), ids=str)
def test_processes_know_their_number(names: tuple[str, str]) -> None:
    assert process_numbers(dict(zip(names, ("3", "8"), strict=True))) == (3, 8)
    with pytest.raises(rf.RankfoldError, match="Start at least 2: mpiexec -n 5 rankfold mpi"):
        process_numbers(dict(zip(names, ("0", "1"), strict=True)))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mpi", "--", *REDUCTION], "no launcher has started this process: give mpiexec -n 5 rankfold mpi"),
        ([*REDUCTION, "--cluster", "mpi"], "there are none here. Give mpiexec -n 5 rankfold mpi -- COMMAND"),
    ],
)
def test_without_a_launcher_it_says_how(
    store: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    for name in [*sum(VARIABLES.values(), ()), rendezvous.RENDEZVOUS]:
        monkeypatch.delenv(name, raising=False)
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 2 and message in " ".join(ran.stderr.split())


def test_a_wrong_command_is_told_by_the_first_alone(
    store: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in zip(VARIABLES["srun"], ("0", "3"), strict=True):
        monkeypatch.setenv(name, value)
    ran = CliRunner().invoke(app, ["mpi", "--", *REDUCTION, "--cluster", "local"])
    assert ran.exit_code == 2 and "give no --cluster to mpi" in " ".join(ran.stderr.split())


def test_what_an_earlier_launch_has_left_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "WAIT_SECONDS", 1.0)
    folder = tmp_path / "rendezvous"
    folder.mkdir(mode=0o700)
    (folder / rendezvous.BEAT).write_text(json.dumps({"beat": "old"}))
    rendezvous.call_workers(folder, ["touch", str(tmp_path / "started")], {}, logs=tmp_path, workers=1)
    with pytest.raises(rf.RankfoldError, match=r"silent since 1 s: was it killed\?"):
        worker.serve(folder, 1)
    assert not (tmp_path / "started").exists()


def test_a_first_process_that_falls_silent_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "SILENCE_SECONDS", 5.0)
    monkeypatch.setattr(worker, "END_SECONDS", 0.5)
    beats = iter(["old", "new"])
    monkeypatch.setattr(worker, "read_beat", lambda folder: next(beats, "new"))
    folder = tmp_path / "rendezvous"
    folder.mkdir(mode=0o700)
    command = ["sh", "-c", "echo $$ >$PID_FILE; exec sleep 600"]
    settings = {"PID_FILE": str(tmp_path / "pid")}
    rendezvous.call_workers(folder, command, settings, logs=tmp_path, workers=1)
    with pytest.raises(rf.RankfoldError, match="the first process of this launch is silent"):
        worker.serve(folder, 1)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)


def test_a_folder_where_others_write_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "rendezvous"
    folder.mkdir()
    folder.chmod(0o777)
    beats = iter(["old"])
    monkeypatch.setattr(worker, "read_beat", lambda folder: next(beats, "new"))
    with pytest.raises(rf.RankfoldError, match="others may write there"):
        worker.serve(folder, 1)
