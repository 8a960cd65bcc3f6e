"""Interface to a queue system: submit worker jobs, list them, cancel them.

A system is a module with the functions of ``QueueSystem``. All else is the same for all of them: workers that
have ended get successors, workers about to end leave their work to others first, and no job is left. Only
SLURM has one job of several nodes that begins again until all is done, and what is built on it: see
``registry``.

Settings of a job script that are the same for all systems but SLURM.

The trap: the systems differ in how a path with spaces is quoted in a directive, and in when logs can be read.
So directives send the output of a job to ``/dev/null``, and its shell opens the logs.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rankfold.cluster.slurm.profile import Profile
from rankfold.cluster.slurm.queue import Ask, QueuedJob, time_left
from rankfold.pipeline.text import Lines


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """A job that holds one worker, independent of the queue system."""

    profile: Profile
    name: str
    logs: Path
    """Folder for logs; it must exist, and all nodes must see it."""

    cores: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class JobScript:
    """A job script as it is submitted to a queue system."""

    what: str
    """Purpose of the jobs, in words for the user."""

    text: str
    command: str
    """Command that submits this script, if it is saved as the file ``SCRIPT``."""

    count: int = 1
    """Number of jobs that are submitted with this script."""

    def lines(self) -> Lines:
        """The script, followed by a comment on its purpose and command; it remains a valid script."""
        jobs = "one job" if self.count == 1 else f"{self.count} jobs, each"
        about = f"# {self.what}: {jobs} submitted by  {self.command}"
        return Lines(Lines.of(self.text.rstrip("\n")), "", about)


class QueueSystem(Protocol):
    """Protocol of a queue system, implemented by the modules of this folder."""

    TITLE: str
    COMMANDS: tuple[str, ...]
    """Commands that must exist: to submit, list and cancel jobs, in this order. The
    last can cancel by number.
    """

    def check_profile(self, profile: Profile) -> None:
        """Raise if a profile has a setting for which the queue system has no common option."""

    def job_options(self, job: WorkerJob) -> dict[str, Any]:
        """Options of the system's class in dask-jobqueue, besides those that its classes have in common."""

    def prologue(self, job: WorkerJob) -> list[str]:
        """Lines of the job script before those of the profile."""

    def refused(self, script: str) -> str | None:
        """Reason why the system refuses a script; None if it accepts it, or cannot be asked without
        submitting.
        """

    def list_jobs(self, run: Ask | None = None) -> list[QueuedJob] | None:
        """Jobs of this user that have not ended; None if the system does not answer.

        ``run`` runs its commands, ``ask`` by default; see ``queue.list_jobs``.
        """

    def cancel_line(self, name: str) -> str:
        """A line for ``sh`` that cancels all jobs of a name; it succeeds when there are none."""


class ListedStates:
    """Function that returns the states of jobs, from lists that no longer contain jobs that have ended."""

    def __init__(self, system: QueueSystem) -> None:
        self._system = system
        self._seen: set[str] = set()

    def __call__(self) -> dict[str, tuple[str, float | None]] | None:
        """State and seconds left (None if unknown) of each job, by number; None if the system is silent.

        A job that is no longer listed has the state ``ENDED``. See ``queue.AskStates``.
        """
        jobs = self._system.list_jobs()
        if jobs is None:
            return None
        there = {job.number: (job.state.upper(), time_left(job.left) if job.left else None) for job in jobs}
        ended = dict.fromkeys(self._seen - there.keys(), ("ENDED", None))
        self._seen |= there.keys()
        return {**ended, **there}


def open_logs(job: WorkerJob, number: str) -> str:
    """Shell line that sends a job's output to its logs; ``number`` is the shell variable with the job's
    number.

    >>> from pathlib import Path
    >>> from rankfold.cluster.slurm.profile import Profile
    >>> open_logs(WorkerJob(Profile(), "rf-pbs-1", Path("/my runs/logs"), 1, 2**30), "PBS_JOBID")
    "exec >'/my runs/logs/rf-pbs-1'-$PBS_JOBID.out 2>'/my runs/logs/rf-pbs-1'-$PBS_JOBID.err"
    """
    start = shlex.quote(str(job.logs / job.name))
    return f"exec >{start}-${number}.out 2>{start}-${number}.err"


def clock(seconds: float) -> str:
    """Format seconds as H:MM:SS; negative ones as 0.

    >>> clock(90061)
    '25:01:01'
    """
    minutes, rest = divmod(max(0, int(seconds)), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
