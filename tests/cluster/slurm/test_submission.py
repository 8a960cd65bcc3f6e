"""The job script, line by line, and what a run does with a SLURM that is only played."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from pathlib import Path

import pytest

import rankfold as rf
from rankfold.cluster.doctor.job import probe_script
from rankfold.cluster.slurm.allocation import SrunStep
from rankfold.cluster.slurm.jobs import WorkerJobs, job_bytes
from rankfold.cluster.slurm.profile import Profile
from rankfold.cluster.slurm.shell_lines import log_pattern
from rankfold.cluster.slurm.submission import directives

SCRIPT = """\
#!/usr/bin/env bash

#SBATCH -J rankfold-test
#SBATCH -p gpu
#SBATCH -A physics
#SBATCH -n 1
#SBATCH --cpus-per-task=8
#SBATCH --mem=16384M
#SBATCH -t 2:00:00
#SBATCH --error=/runs/r.zarr.run/logs/rankfold-test-%J.err
#SBATCH --output=/runs/r.zarr.run/logs/rankfold-test-%J.out
#SBATCH --no-requeue
#SBATCH --qos=long
#SBATCH --gpus-per-task=1
export OMP_NUM_THREADS=1
export OPENBLAS_NUM_THREADS=1
export MKL_NUM_THREADS=1
export BLIS_NUM_THREADS=1
export NUMBA_NUM_THREADS=1
export RAYON_NUM_THREADS=1
export ZARR_THREADING__MAX_WORKERS=1
export DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=False
export DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False
export DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE=False
export DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT=120s
export PYTHONUNBUFFERED=1
module load python
exec {python} -m rankfold.cluster.slurm.node_worker SCHEDULER --name dummy-name --nthreads 1 \
--memory-limit 15.00GiB --death-timeout 120 --local-directory "/local" \
--nanny --no-dashboard --resources GPU=1 --interface lo
"""


def test_the_job_script_is_as_stored(tmp_path: Path) -> None:
    from rankfold.cluster.slurm.jobqueue import make_cluster

    profile = Profile(
        partition="gpu",
        account="physics",
        walltime="2:00:00",
        memory=16 * 2**30,
        cores=8,
        gpus=1,
        interface="lo",
        scratch="/local",
        prologue=("module load python",),
        directives=("--qos=long",),
    )
    place = WorkerJobs.of(profile, None, None, 15 * 2**30 * 10 // 11 - 384 * 2**20)
    options = place._options("rankfold-test", tmp_path)
    with make_cluster("slurm", **options) as cluster:
        script = cluster.job_script().replace(cluster.scheduler_address, "SCHEDULER")
    script = script.replace(str(tmp_path), "/runs/r.zarr.run")
    assert script.splitlines() == SCRIPT.format(python=sys.executable).splitlines()


def test_memory_of_a_job_holds_what_a_worker_takes() -> None:
    asked = WorkerJobs.of(Profile(memory=8 * 2**30), 3, None, None)
    assert asked.budget.workers == 3
    assert job_bytes(asked.budget.memory_bytes) <= 8 * 2**30
    assert job_bytes(2**30) > 1.1 * (2**30 + 200 * 2**20)
    with pytest.raises(rf.RankfoldError, match=r"takes jobs of .* gives them 8"):
        WorkerJobs.of(Profile(memory=8 * 2**30), None, None, "8GiB")


def played(folder: Path, monkeypatch: pytest.MonkeyPatch, **commands: str) -> None:
    """Put shell scripts of these names first on the path."""
    for name, text in commands.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_a_machine_without_slurm_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(rf.RankfoldError, match="there is no sbatch here: cluster='slurm' needs"):
        rf.svd(_matrix(tmp_path), 2, cluster="slurm", memory="256MiB", out=tmp_path / "r.zarr")


def test_a_refusal_of_sbatch_is_told_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = "echo 'sbatch: error: You have no more node hours' >&2; exit 1"
    played(tmp_path, monkeypatch, sbatch=refuse, squeue="exit 0", scancel=f"echo $* >{tmp_path}/cancelled")
    with pytest.raises(
        rf.RankfoldError, match="refuses the worker job: You have no more node hours"
    ) as error:
        rf.svd(_matrix(tmp_path), 2, cluster="slurm", memory="256MiB", out=tmp_path / "r.zarr")
    assert error.value.exit_code == 2
    assert "--name=rankfold-" in (tmp_path / "cancelled").read_text()


def test_greetings_of_a_site_are_no_job_numbers(tmp_path: Path) -> None:
    from rankfold.cluster.slurm.jobqueue import Slurm

    job = Slurm.__new__(Slurm)
    assert job._job_id_from_submit_output("Welcome to Lonestar 6\nSubmitted batch job 4711\n") == "4711"
    with pytest.raises(ValueError, match="Could not parse job id"):
        job._job_id_from_submit_output("Welcome to Lonestar 6\n")


def test_an_output_with_a_backslash_or_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(tmp_path, monkeypatch, sbatch="exit 1", squeue="exit 0", scancel="exit 0")
    with pytest.raises(rf.RankfoldError, match="SLURM writes no logs into"):
        rf.svd(_matrix(tmp_path), 2, cluster="slurm", memory="256MiB", out=tmp_path / "my\\result.zarr")
    with pytest.raises(rf.RankfoldError, match="say where the result goes"):
        rf.svd(_matrix(tmp_path), 2, cluster="slurm", memory="256MiB")


def test_a_plan_for_jobs_starts_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played(tmp_path, monkeypatch, sbatch="exit 1", squeue="exit 1", scancel="exit 1")
    plan = rf.plan("svd", _matrix(tmp_path), 2, cluster="slurm", workers=7, memory="256MiB")
    assert plan.budget_bytes == 2**28


def _matrix(folder: Path) -> Path:
    import numpy as np

    np.save(folder / "x.npy", np.random.default_rng(0).standard_normal((400, 12)))
    return folder / "x.npy"


@pytest.mark.parametrize("name", ["my results", "a#b", "50%", 'say "so"', "it's"])
def test_paths_in_options_are_read_as_they_are(tmp_path: Path, name: str) -> None:
    """By a shell, which splits a line as sbatch does."""
    folder = tmp_path / name
    folder.mkdir()
    profile = Profile(memory=2**30)
    workers = WorkerJobs.of(profile, None, None, None)
    log = log_pattern(folder, "rankfold-x-%j.log")
    lines = [
        *directives(profile, name="x", log=log),
        *workers.job_options("rankfold-0", folder)["job_extra_directives"],
        *[line.removeprefix("#SBATCH ") for line in probe_script(profile, "p", folder).splitlines()],
    ]
    paths = [line for line in lines if line.startswith(("--output", "--error"))]
    assert len(paths) == 4
    for line in paths:
        (option,) = shlex.split(line, comments=True)
        assert option.partition("=")[2].startswith(f"{str(folder).replace('%', '%%')}/"), line
    assert SrunStep(folder, "7-0").output == f"{str(folder).replace('%', '%%')}/worker-7-0-%t.log"


def test_certificates_are_found_in_a_folder_with_a_space(tmp_path: Path) -> None:
    from rankfold.cluster.certificates import make_certificates
    from rankfold.cluster.slurm.jobqueue import make_cluster

    folder = tmp_path / "my results"
    folder.mkdir()
    place = WorkerJobs.of(Profile(memory=2**30, interface="lo", tls=True), None, None, None)
    with (
        make_certificates(folder, tls=True) as (security, certificates),
        make_cluster("slurm", **place._options("rankfold-test", folder, certificates), **security) as cluster,
    ):
        script = cluster.job_script()
        words = shlex.split(script.splitlines()[-1])
        named = [words[words.index(f"--tls-{key}") + 1] for key in ("ca-file", "cert", "key")]
        assert all(Path(name).parents[1] == folder and Path(name).exists() for name in named)
        assert script.count("--tls-") == 3 and "tls://" in script
    assert not [*folder.iterdir()]
