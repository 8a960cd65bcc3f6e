"""Queries of SLURM about jobs: which have ended, why others wait, and how long running ones have left.

One query covers all jobs, every few seconds. If the controller does not answer, the clock of this process
continues from the last answer.
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
from rankfold.pipeline.errors import ClusterError, argument
from rankfold.pipeline.regular import read_last_lines

LOG = logging.getLogger("rankfold")

GONE_SECONDS = 60.0
"""Seconds after which a job that SLURM does not list counts as ended; its lists may be some seconds old."""

ANSWER_SECONDS = 60.0
"""Longest wait for one answer of SLURM, in seconds."""

PATIENCE_SECONDS = 60.0
"""Longest time in seconds over which a command is repeated because its failure is temporary."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
"""Pauses in seconds before a command is repeated: the first, doubled each time, and the longest."""

_PASSING = re.compile(
    "socket timed out|unable to contact|connection (refused|reset|timed out)|connect failure|zero bytes were "
    "transmitted|temporarily unavailable|temporarily unable|no answer within|timed out|try again|"
    "max(submit|jobs?)\\w*limit|job submit limit|backup controller|in standby mode|network is unreachable|"
    "cannot connect to|pbs_server is (down|currently not available)|cannot communicate with",
    re.IGNORECASE,
)
"""Pattern of errors of queue commands with a temporary cause: a controller that is busy, restarts or cannot
be reached, or a limit on how many jobs may wait at a time.
"""

_ALIVE = {"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "REQUEUED", "SIGNALING"}
_ALIVE |= {"HELD"}


Ask = Callable[..., subprocess.CompletedProcess[str]]
"""Function that runs a command of a queue: ``ask`` once, ``ask_again`` repeatedly while
its failure is temporary.
"""

AskStates = Callable[[], dict[str, tuple[str, float | None]] | None]
"""Function that returns, for each job by number, its state and its seconds left or
None; None if the queue does not answer.
"""


class Jobs:
    """Finds which worker jobs of a run have ended, and how long the others have left.

    ``logs`` is the folder of their logs, ``walltime`` the time limit of each.
    """

    def __init__(self, logs: Path, walltime: str, ask_states: AskStates) -> None:
        self._logs, self._walltime, self._ask_states = logs, walltime_seconds(walltime), ask_states
        self._missing: dict[str, float] = {}
        self._ends: dict[str, float] = {}

    def __call__(self, jobs: dict[Any, Any], registered_names: set[Any]) -> dict[Any, str]:
        """Reason for each job that has ended or was refused, by name of the worker: a ``watchdog.FindEnded``.

        ``jobs`` are all worker jobs (of ``jobqueue``) by name of the worker.
        """
        reasons = {name: job.refusal for name, job in jobs.items() if job.refusal}
        ids = {job.job_id: name for name, job in jobs.items() if job.job_id and not job.refusal}
        if not ids:
            return reasons
        for job_id, name in ids.items():
            if name in registered_names:  # and began some seconds ago, until SLURM reports the time left
                self._ends.setdefault(job_id, time.monotonic() + self._walltime)
        states = self._ask_states()
        if states is None:
            return reasons  # a controller that does not answer gives no news of jobs
        for job_id, name in ids.items():
            state, remaining_seconds = states.get(job_id, ("", None))
            state = state or self._guess_state(job_id, is_registered=name in registered_names)
            if state == "RUNNING" and remaining_seconds is not None:
                self._ends[job_id] = time.monotonic() + remaining_seconds
            if state not in _ALIVE:
                reasons[name] = f"job {job_id} {state.lower()}{self._last_words(job_id)}"
        return reasons

    def seconds_left(self, job_id: str) -> float:
        """Seconds until the job with this number reaches its time limit; infinite if it has not begun."""
        return self._ends.get(job_id, float("inf")) - time.monotonic()

    def _guess_state(self, job_id: str, *, is_registered: bool) -> str:
        """State of a job that SLURM does not list."""
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
    """States of all jobs of this user, also of those that ended a while ago: see ``AskStates``."""
    # By user, not by id: squeue fails altogether when one id is unknown.
    answer = ask("squeue", "-h", f"--user={user()}", "-t", "all", "-o", "%i %T %L")
    if answer.returncode:
        return None
    lines = (line.split() for line in answer.stdout.splitlines())
    return {line[0]: (line[1], time_left(line[2])) for line in lines if len(line) == 3}


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job of this user that has not ended, as its queue system lists it."""

    number: str
    state: str
    """``pending``, ``running``, ``completing``, and rarer ones."""

    reason: str
    """Reason why a pending job waits."""

    left: str
    """Time until its time limit, as D-HH:MM:SS."""

    begins: str
    """Time when it began or is expected to, in the zone of this machine; ``N/A`` where SLURM cannot say."""

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
    """Jobs of this user that have not ended; None if SLURM is missing or does not answer.

    ``run`` is ``ask`` by default, so that a controller that is away does not delay a status. Callers that
    cancel or submit give ``ask_again``.
    """
    if shutil.which("squeue") is None:
        return None
    answer = (run or ask)("squeue", "-h", f"--user={user()}", "-o", "%i|%T|%r|%L|%S|%N|%j")
    if answer.returncode:
        return None
    lines = (line.split("|", 6) for line in answer.stdout.splitlines())
    return [QueuedJob(line[0], line[1].lower(), *line[2:]) for line in lines if len(line) == 7]


def time_left(text: str) -> float:
    """Seconds of the time left that ``squeue`` shows; infinite if it is not a time.

    >>> [time_left(text) for text in ("0:45", "1:00:00", "2-00:00:01", "UNLIMITED", "INVALID")]
    [45, 3600, 172801, inf, inf]
    """
    try:
        return max(0, walltime_seconds(text))
    except ValueError:
        return float("inf")


def require_commands(profile: str, *commands: str, of: str = "SLURM") -> None:
    """Raise if one of the commands of a queue system is missing here.

    ``profile`` is the name of a profile, and ``of`` that of the queue system, for the message.
    """
    for command in commands:
        if shutil.which(command) is None:
            raise ClusterError(
                f"there is no {command} here: {argument('cluster', profile)} needs the commands of {of}. "
                "Log in where jobs are submitted, or run with cluster='local' (--cluster local)"
            )


def ask(*command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of a queue system; one that does not answer in time counts as failed."""
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
    """True if the error of a queue command has a temporary cause, such as a time-out.

    A job that the queue refuses, as for a partition that does not exist, would fail again.

    >>> is_passing("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")
    True
    >>> is_passing("sbatch: error: invalid partition specified: nowhere")
    False
    """
    return _PASSING.search(message) is not None


def ask_again(
    *command: str, stdin: str | None = None, known: Callable[[], str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of a queue, and repeat it while its failure is temporary, for a minute at most.

    Parameters
    ----------
    command, stdin
        As of ``ask``.
    known : function, optional
        Called before a repetition, to check whether the command took effect although no answer came.
        Returns the output that it would have given, or an empty string.
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
    """Message of SLURM or another system, extracted from the error that dask-jobqueue makes of it."""
    message = text.partition("stderr:\n")[2].strip() or text
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in message.strip().splitlines()]
    return "; ".join(line for line in lines if line) or "nothing"


def require_final(title: str, message: str) -> None:
    """Raise ``ClusterError`` if an error text has a temporary cause: another profile would not help.

    ``title`` is the name of the queue for the user, such as ``SLURM``.
    """
    if is_passing(message):
        raise ClusterError(
            f"{title} does not take the job at the moment: {refusal(message)}. Give the command again later"
        )


def user() -> str:
    """Name of the user of this process, as SLURM knows it."""
    return pwd.getpwuid(os.getuid()).pw_name
