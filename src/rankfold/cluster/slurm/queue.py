"""What SLURM says of jobs: which have ended, why others wait, and how long those that run have left.

One question for all jobs, every few seconds. A controller that does not answer says nothing: then the
clock of this process goes on from its last answer.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankfold.cluster.slurm.profile import walltime_seconds
from rankfold.pipeline.errors import ClusterError

GONE_SECONDS = 60.0
"""A job that SLURM does not know for so long has ended; its answers may be some seconds old."""

ANSWER_SECONDS = 60.0
"""Longest wait for one answer of SLURM."""

_ALIVE = {"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "REQUEUED", "SIGNALING"}


class Jobs:
    """Tells which jobs of a run have ended, and how long the others have."""

    def __init__(self, logs: Path, walltime: str) -> None:
        self._logs, self._walltime = logs, walltime_seconds(walltime)
        self._missing: dict[str, float] = {}
        self._ends: dict[str, float] = {}

    def __call__(self, jobs: dict[Any, Any], registered_names: set[Any]) -> dict[Any, str]:
        """Jobs that have ended, and why: see ``watchdog.FindEnded``."""
        reasons = {name: job.refusal for name, job in jobs.items() if job.refusal}
        ids = {job.job_id: name for name, job in jobs.items() if job.job_id and not job.refusal}
        if not ids:
            return reasons
        for job_id, name in ids.items():
            if name in registered_names:  # and began some seconds ago, until SLURM says when
                self._ends.setdefault(job_id, time.monotonic() + self._walltime)
        # By user, not by id: squeue fails altogether when one id is unknown.
        answer = ask("squeue", "-h", f"--user={user()}", "-t", "all", "-o", "%i %T %L")
        if answer.returncode:
            return reasons  # a controller that does not answer says nothing about jobs
        lines = (line.split() for line in answer.stdout.splitlines())
        states = {line[0]: (line[1], line[2]) for line in lines if len(line) == 3}
        for job_id, name in ids.items():
            state, remaining_time = states.get(job_id, ("", ""))
            state = state or self._guess_state(job_id, is_registered=name in registered_names)
            if state == "RUNNING" and remaining_time:
                self._ends[job_id] = time.monotonic() + time_left(remaining_time)
            if state not in _ALIVE:
                reasons[name] = f"job {job_id} {state.lower()}{self._last_words(job_id)}"
        return reasons

    def seconds_left(self, job_id: str) -> float:
        """Until a job reaches its time limit; without end for one that has not begun."""
        return self._ends.get(job_id, float("inf")) - time.monotonic()

    def _guess_state(self, job_id: str, *, is_registered: bool) -> str:
        """What a job is of which SLURM says nothing."""
        if is_registered:
            return "RUNNING"
        since = self._missing.setdefault(job_id, time.monotonic())
        return "GONE" if time.monotonic() - since > GONE_SECONDS else "PENDING"

    def _last_words(self, job_id: str) -> str:
        for path in self._logs.glob(f"*-{job_id}.err"):
            lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
            telling = [line for line in lines if " - INFO - " not in line] or lines
            if telling:
                return f": {telling[-1].strip()}"
        return ""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job of this user that has not ended, as SLURM tells of it."""

    number: str
    state: str
    """``pending``, ``running``, ``completing``, and rarer ones."""

    reason: str
    """Why it waits."""

    left: str
    """Time until its limit, as D-HH:MM:SS."""

    begins: str
    """When it began or is to begin, in the zone of this machine; ``N/A`` where SLURM cannot say."""

    nodes: str
    name: str

    def __str__(self) -> str:
        """The job in words: its number, its state, and why it waits or where it runs."""
        if self.state == "pending":
            begins = f", to begin {self.begins}" if self.begins[:1].isdigit() else ""
            return f"job {self.number} pending ({self.reason}{begins})"
        on = f" on {self.nodes}" if self.nodes else ""
        until_limit = f", {self.left} left" if self.state == "running" else ""
        return f"job {self.number} {self.state}{on}{until_limit}"


def list_jobs() -> list[QueuedJob] | None:
    """Jobs of this user that have not ended; None where there is no SLURM, or none that answers."""
    if shutil.which("squeue") is None:
        return None
    answer = ask("squeue", "-h", f"--user={user()}", "-o", "%i|%T|%r|%L|%S|%N|%j")
    if answer.returncode:
        return None
    lines = (line.split("|", 6) for line in answer.stdout.splitlines())
    return [QueuedJob(line[0], line[1].lower(), *line[2:]) for line in lines if len(line) == 7]


def time_left(text: str) -> float:
    """Seconds of what ``squeue`` shows as time left.

    >>> [time_left(text) for text in ("0:45", "1:00:00", "2-00:00:01", "UNLIMITED", "INVALID")]
    [45, 3600, 172801, inf, inf]
    """
    try:
        return max(0, walltime_seconds(text))
    except ValueError:
        return float("inf")


def describe_jobs(name: str) -> str:
    """The jobs of a run in words: states and reasons."""
    lines = ask("squeue", "-h", "--name", name, "-o", "%i %T %r").stdout.split("\n")
    jobs = [line.split(maxsplit=2) for line in lines if line.strip()]
    return (
        ", ".join(f"job {i} {state.lower()} ({reason})" for i, state, reason in jobs) or "no job in the queue"
    )


def require_commands(profile: str, *commands: str) -> None:
    """Raise where there is no SLURM."""
    for command in commands:
        if shutil.which(command) is None:
            raise ClusterError(
                f"there is no {command} here: --cluster {profile} needs the commands of SLURM. "
                "Log in where jobs are submitted, or run with --cluster local"
            )


def ask(*command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of SLURM; one that does not answer in time has failed."""
    try:
        return subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
            timeout=ANSWER_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {error.timeout:.0f} s")


def user() -> str:
    """Whoever this process belongs to, as SLURM knows it."""
    return pwd.getpwuid(os.getuid()).pw_name
