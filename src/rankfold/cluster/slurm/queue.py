"""What SLURM says of jobs: which have ended, why others wait, and how long those that run have left.

One question for all jobs, every few seconds. A controller that does not answer says nothing: then the
clock of this process goes on from its last answer.
"""

from __future__ import annotations

import logging
import os
import pwd
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankfold.cluster.slurm.profile import walltime_seconds
from rankfold.pipeline.errors import ClusterError
from rankfold.pipeline.regular import read_last_lines
from rankfold.pipeline.wording import argument

LOG = logging.getLogger("rankfold")

GONE_SECONDS = 60.0
"""A job that SLURM does not know for so long has ended; its answers may be some seconds old."""

ANSWER_SECONDS = 60.0
"""Longest wait for one answer of SLURM."""

PATIENCE_SECONDS = 60.0
"""Longest time for which a command is given again because its failure passes."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
"""Seconds before a command is given again; twice as long each time."""

_PASSING = re.compile(
    "socket timed out|unable to contact|connection (refused|reset|timed out)|connect failure|zero bytes were "
    "transmitted|temporarily unavailable|temporarily unable|no answer within|timed out|try again|"
    "max(submit|jobs?)\\w*limit|job submit limit|backup controller|in standby mode|network is unreachable|"
    "cannot connect to|pbs_server is (down|currently not available)|cannot communicate with",
    re.IGNORECASE,
)
"""Words in the errors of queue commands whose cause ends without the user: a controller that is busy,
restarts or cannot be reached, and a limit on how many jobs may wait at a time.
"""

_ALIVE = {"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "REQUEUED", "SIGNALING"}
_ALIVE |= {"HELD"}


Ask = Callable[..., subprocess.CompletedProcess[str]]
"""Runs a command of a queue: ``ask`` once, ``ask_again`` for as long as its failure passes."""

AskStates = Callable[[], dict[str, tuple[str, float | None]] | None]
"""Gives the states of jobs by their numbers, and seconds left where that is known; None without an answer."""


class Jobs:
    """Tells which jobs of a run have ended, and how long the others have."""

    def __init__(self, logs: Path, walltime: str, ask_states: AskStates) -> None:
        self._logs, self._walltime, self._ask_states = logs, walltime_seconds(walltime), ask_states
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
        states = self._ask_states()
        if states is None:
            return reasons  # a controller that does not answer says nothing about jobs
        for job_id, name in ids.items():
            state, remaining_seconds = states.get(job_id, ("", None))
            state = state or self._guess_state(job_id, is_registered=name in registered_names)
            if state == "RUNNING" and remaining_seconds is not None:
                self._ends[job_id] = time.monotonic() + remaining_seconds
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
            lines = [line for line in read_last_lines(path) if line.strip()]
            telling = [line for line in lines if " - INFO - " not in line] or lines
            if telling:
                return f": {telling[-1].strip()}"
        return ""


def slurm_states() -> dict[str, tuple[str, float | None]] | None:
    """See ``AskStates``: of all jobs of this user, also those that ended a while ago."""
    # By user, not by id: squeue fails altogether when one id is unknown.
    answer = ask("squeue", "-h", f"--user={user()}", "-t", "all", "-o", "%i %T %L")
    if answer.returncode:
        return None
    lines = (line.split() for line in answer.stdout.splitlines())
    return {line[0]: (line[1], time_left(line[2])) for line in lines if len(line) == 3}


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


def list_jobs(run: Ask | None = None) -> list[QueuedJob] | None:
    """Jobs of this user that have not ended; None where there is no SLURM, or none that answers.

    ``run`` is ``ask`` by default: who shows a status or waits is not to be held up by a controller that is
    away. Who cancels or submits gives ``ask_again``.
    """
    if shutil.which("squeue") is None:
        return None
    answer = (run or ask)("squeue", "-h", f"--user={user()}", "-o", "%i|%T|%r|%L|%S|%N|%j")
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


def require_commands(profile: str, *commands: str, of: str = "SLURM") -> None:
    """Raise where there is no SLURM, or no other system of a profile."""
    for command in commands:
        if shutil.which(command) is None:
            raise ClusterError(
                f"there is no {command} here: {argument('cluster', profile)} needs the commands of {of}. "
                "Log in where jobs are submitted, or run with cluster='local' (--cluster local)"
            )


def ask(*command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of SLURM or another queue; one that does not answer in time has failed."""
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


def is_passing(message: str) -> bool:
    """Whether the error text of a queue command names a cause that ends without the user, such as a time-out.

    A job that the queue refuses, as for a partition that does not exist, fails again whenever it is given.

    >>> is_passing("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")
    True
    >>> is_passing("sbatch: error: invalid partition specified: nowhere")
    False
    """
    return _PASSING.search(message) is not None


def ask_again(
    *command: str, stdin: str | None = None, known: Callable[[], str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of a queue until it is answered: what passes is waited for, a minute at most.

    Parameters
    ----------
    command, stdin
        As of ``ask``.
    known : function, optional
        Looks, before the command is given once more, whether it was followed although no answer came: output
        that it would have given, or nothing.
    """
    began, pause = time.monotonic(), FIRST_PAUSE
    while True:
        answer = ask(*command, stdin=stdin)
        waited = time.monotonic() - began
        if not answer.returncode or not is_passing(answer.stderr) or waited + pause > PATIENCE_SECONDS:
            return answer
        if pause == FIRST_PAUSE:
            said = answer.stderr.strip().splitlines()[-1]
            LOG.info("%s: %s; asking again, for %.0f s at most", command[0], said, PATIENCE_SECONDS)
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
        if known is not None and (output := known()):
            return subprocess.CompletedProcess(command, 0, output, "")


def refusal(text: str) -> str:
    """What SLURM or another system said, out of what dask-jobqueue makes of it."""
    message = text.partition("stderr:\n")[2].strip() or text
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in message.strip().splitlines()]
    return "; ".join(line for line in lines if line) or "nothing"


def require_final(title: str, message: str) -> None:
    """Raise ``ClusterError`` for an error text whose cause passes: another profile would not help.

    ``title`` is what users call the queue, as ``SLURM``.
    """
    if is_passing(message):
        raise ClusterError(
            f"{title} does not take the job at the moment: {refusal(message)}. Give the command again later"
        )


def user() -> str:
    """Whoever this process belongs to, as SLURM knows it."""
    return pwd.getpwuid(os.getuid()).pw_name
