"""What a run asks of a system of queues, whichever it is: to take worker jobs, tell of them, cancel them.

A system is a module with the functions of ``QueueSystem``. All else is the same for all of them: who has
ended gets a successor, who is about to end hands over before, and no job is left. What only SLURM has is one
job of several nodes that begins again until all is done, and what is built of it: see ``registry``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rankfold.cluster.slurm.profile import Profile
from rankfold.cluster.slurm.queue import Ask, QueuedJob, time_left
from rankfold.pipeline.text import Lines


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """A job that holds one worker, in the words of no system."""

    profile: Profile
    name: str
    logs: Path
    """Folder that exists and that all nodes see."""

    cores: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class JobScript:
    """A job as it is handed to a system of queues."""

    what: str
    """What its jobs do, as it is told to the user."""

    text: str
    command: str
    """The command that submits a file ``SCRIPT`` of this text."""

    count: int = 1
    """Jobs that are submitted with it."""

    def lines(self) -> Lines:
        """The script, which stays one: what is said of it is a comment at its end."""
        jobs = "one job" if self.count == 1 else f"{self.count} jobs, each"
        about = f"# {self.what}: {jobs} submitted by  {self.command}"
        return Lines(Lines.of(self.text.rstrip("\n")), "", about)


class QueueSystem(Protocol):
    """A module of this folder."""

    TITLE: str
    COMMANDS: tuple[str, ...]
    """That must be there: to submit jobs, to ask about them, to cancel them, the last by number too."""

    def check_profile(self, profile: Profile) -> None:
        """Raise for what a profile asks that the system has no common words for."""

    def job_options(self, job: WorkerJob) -> dict[str, Any]:
        """Options of the class of dask-jobqueue, beside those that all its classes have."""

    def prologue(self, job: WorkerJob) -> list[str]:
        """Lines of the job script before those of the profile."""

    def refused(self, script: str) -> str | None:
        """Why a script would not be taken, where that can be asked without submitting it."""

    def list_jobs(self, run: Ask | None = None) -> list[QueuedJob] | None:
        """Jobs of this user that have not ended; None where the system does not answer.

        ``run`` runs its commands, ``ask`` by default; see ``queue.list_jobs``.
        """

    def cancel_line(self, name: str) -> str:
        """A line for ``sh`` that cancels all jobs of a name; it succeeds when there are none."""


class ListedStates:
    """States of jobs by number, from lists in which jobs that have ended do not stand any more."""

    def __init__(self, system: QueueSystem) -> None:
        self._system = system
        self._seen: set[str] = set()

    def __call__(self) -> dict[str, tuple[str, float | None]] | None:
        """See ``queue.AskStates``."""
        jobs = self._system.list_jobs()
        if jobs is None:
            return None
        there = {job.number: (job.state.upper(), time_left(job.left) if job.left else None) for job in jobs}
        ended = dict.fromkeys(self._seen - there.keys(), ("ENDED", None))
        self._seen |= there.keys()
        return {**ended, **there}
