"""End what runs for a workflow or an output, and cancel its jobs, also those that killed processes left
behind.

It first cancels jobs that hold a whole command, then stops a command on this machine, then cancels worker
jobs that no process watches any more. The order matters: a command that still runs would start its workers
again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence

from rankfold.cluster.slurm.leftovers import cancel_jobs, forget, read_note
from rankfold.cluster.slurm.queue import QueuedJob, ask_again, list_jobs
from rankfold.pipeline.errors import ClusterError, OutputError
from rankfold.pipeline.removal import remove, remove_empty
from rankfold.workflows.operations.lock_owner import Holder, holder_of
from rankfold.workflows.operations.running import Work
from rankfold.workflows.operations.submitted import NOTE

STOP_SECONDS = 120.0
"""Seconds for a command to stop after its signal: it adds the rows it holds in memory, and ends its jobs."""

RELEASE_SECONDS = 10.0
"""Seconds for the lock of a command to be free when its job is gone; file systems of clusters may be slow."""

POLL_SECONDS = 0.2


def end(work: Work) -> list[str]:
    """End all processes and jobs of a workflow or an output; returns a line of text for each that was ended.

    Raises
    ------
    OutputError
        A process runs it that must not be ended from here.
    ClusterError
        Jobs are still there, or SLURM does not answer.
    """
    lines = _describe(_jobs(work), "cancelled")
    if lines:
        _await_free(work, RELEASE_SECONDS)
    if holder := work.holder():
        lines.append(_stop(work, holder))
    for run in work.runs:
        # A process that holds the lock by now watches its jobs itself.
        names = read_note(run)
        if names and holder_of(run / "lock") is None:
            lines += _describe(cancel_jobs(names), "cancelled, of a command that is gone")
            forget(run, names)
    if lines and work.output is not None:
        _forget_submission(work)
    return lines


def _forget_submission(work: Work) -> None:
    """Remove the folder that was made for a submitted command which never began."""
    with contextlib.suppress(OSError):
        if [path.name for path in work.folder.iterdir()] == [NOTE]:
            remove(work.folder / NOTE)
            remove_empty(work.folder)


def _jobs(work: Work) -> list[QueuedJob]:
    """Cancel the jobs of SLURM in which a whole command for this work runs or waits; returns those jobs."""
    queue = list_jobs(ask_again)
    jobs = work.own_jobs(queue or ())
    if jobs:
        return cancel_jobs(work.job_names, {job.number for job in jobs if job.name not in work.job_names})
    if queue is None and work.submission is not None:
        raise ClusterError(
            f"whether job {work.submission.job} of {work.target} has ended is known to SLURM alone, and no "
            f"squeue answers here. Give the command on {work.submission.host}, where it was submitted"
        )
    return []


def _stop(work: Work, holder: Holder) -> str:
    """Ask the process that holds the lock to stop, and wait until it has; returns a line that says so.

    Raises ``OutputError`` if it is on another machine, is no command of rankfold, or does not stop in time.
    """
    if not holder.here or not holder.is_ours():
        raise OutputError(_advice(work, holder))
    with contextlib.suppress(ProcessLookupError):
        os.kill(holder.pid, signal.SIGTERM)
    if not _await_free(work, STOP_SECONDS):
        raise OutputError(
            f"{holder} was asked to stop {STOP_SECONDS:.0f} s ago and has not. Give the command again later, "
            f"or end it at once, which loses what lies since its last checkpoints: kill -9 {holder.pid}"
        )
    return f"{holder} has stopped"


def _advice(work: Work, holder: Holder) -> str:
    """Message on how the user can end a process that this command must not end."""
    problem = f"{work.target} is being written by {holder}"
    if not holder.pid:
        return f"{problem}: nothing is known of it, so nothing was ended. fuser {work.locks[0]} may tell"
    if not holder.here:
        number = work.job_number
        job = f"; if that is in job {number}: scancel {number}" if number else ""
        return f"{problem}. Give the command there, or: ssh {holder.host} kill {holder.pid}{job}"
    command = " ".join(holder.command()).strip() or "gone by now, or of another container"
    return f"{problem}, which is no command of rankfold ({command}). End it yourself: kill {holder.pid}"


def _await_free(work: Work, seconds: float) -> bool:
    """Wait until no process holds a lock of the work; False if one still does after ``seconds``."""
    until = time.monotonic() + seconds
    while work.holder() is not None:
        if time.monotonic() > until:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _describe(jobs: Sequence[QueuedJob], how: str) -> list[str]:
    return [f"{job}: {how}" for job in jobs]
