"""SLURM behind the interface of ``system``; everything else about it is in ``rankfold.cluster.slurm``."""

from __future__ import annotations

import math
import shlex
from typing import Any

from rankfold.cluster.queues.system import WorkerJob
from rankfold.cluster.slurm import queue
from rankfold.cluster.slurm.profile import Profile
from rankfold.cluster.slurm.shell_lines import in_directive, log_pattern

TITLE = "SLURM"
COMMANDS: tuple[str, ...] = ("sbatch", "squeue", "scancel")


def check_profile(profile: Profile) -> None:
    """No-op: SLURM itself reports what it cannot provide."""


def job_options(job: WorkerJob) -> dict[str, Any]:
    """Options of dask-jobqueue for SLURM."""
    profile = job.profile
    # Paths of logs are set here and not by dask-jobqueue, which does not quote.
    endings = {"error": "err", "output": "out"}
    logs = {key: log_pattern(job.logs, f"{job.name}-%J.{ending}") for key, ending in endings.items()}
    directives = [f"--{key}={in_directive(log)}" for key, log in logs.items()]
    directives += ["--no-requeue", *profile.directives]
    if profile.gpus:
        directives.append(f"--gpus-per-task={profile.gpus}")
    return {
        "job_cpu": job.cores,
        "job_mem": f"{math.ceil(job.memory_bytes / 2**20)}M",
        "queue": profile.partition,
        "account": profile.account,
        "walltime": profile.walltime,
        "job_extra_directives": directives,
    }


def prologue(job: WorkerJob) -> list[str]:
    """Empty: SLURM opens the logs by directives."""
    return []


def refused(script: str) -> str | None:
    """Message with which ``sbatch --test-only`` refuses a script; None if it accepts it."""
    answer = queue.ask_again("sbatch", "--test-only", stdin=script)
    return answer.stderr if answer.returncode else None


def list_jobs(run: queue.Ask | None = None) -> list[queue.QueuedJob] | None:
    """Jobs of this user that have not ended, from ``squeue``; None if it does not answer."""
    return queue.list_jobs(run)


def cancel_line(name: str) -> str:
    """Shell line that cancels all jobs of a name by ``scancel``."""
    return shlex.join(["scancel", f"--name={name}", f"--user={queue.user()}"])
