"""Cancel jobs that no process watches any more; names of jobs are noted before they start, so that they are
found.

Worker jobs of a run share one name, which is noted in the folder of the run as long as there may be any. A
driver removes the note when its jobs are canceled. A shell that outlives a killed driver cancels them. If
both were killed, the note is left.

The trap: a driver that is killed may have submitted a job to SLURM that squeue does not list yet. So two
queries in a row must list none.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from rankfold.cluster.queues.registry import queue_system, scheduler_of
from rankfold.cluster.slurm.queue import QueuedJob, ask_again
from rankfold.pipeline.errors import ClusterError
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.checkpoint import load_json, save_json

NOTE = "jobs.json"
"""File in the folder of a run with the names of its jobs."""

CANCEL_SECONDS = 120.0
"""Seconds for canceled jobs to leave the queue."""

POLL_SECONDS, LONGEST_POLL = 0.5, 5.0

SETTLE_SECONDS = 1.0
"""Seconds before a queue that lists none of the jobs is asked again, to be sure."""


def read_note(folder: Path) -> list[str]:
    """Names of jobs that may be left in the queue, from the note in ``folder``, that of a run."""
    note = load_json(folder / NOTE, dict) or {}
    names = note.get("names")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def forget(folder: Path, names: Collection[str]) -> None:
    """Remove the note in the folder of a run if it lists exactly these names of jobs, which have ended.

    Other names are those of a driver that started since.
    """
    if set(read_note(folder)) == {*names}:
        remove(folder / NOTE)


@contextlib.contextmanager
def no_job_left(name: str, folder: Path) -> Iterator[None]:
    """Cancel every job of a name when the block ends, even if this process is killed before.

    The name is noted in ``folder``, that of the run. Jobs that an earlier driver has left behind are canceled
    first: their scheduler is gone.
    """
    earlier = [old for old in read_note(folder) if _cancel(old).returncode]
    save_json(folder / NOTE, {"names": [*earlier, name]})
    # The shell reads until no process holds the other end of its input; Ctrl-C does not reach it.
    reaper = subprocess.Popen(
        ["sh", "-c", f"cat >/dev/null; {_cancel_line(name)}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        if reaper.stdin is not None:
            reaper.stdin.close()
        if reaper.wait() == 0 and not earlier:
            forget(folder, [name])


def cancel_jobs(names: Collection[str], numbers: Collection[str] = ()) -> list[QueuedJob]:
    """Cancel all jobs of some names or numbers, and wait until none is left; returns the jobs found.

    Raises
    ------
    ClusterError
        Some are still there, or their queue system does not answer.
    """
    where = {scheduler_of(name): name for name in names} or {"slurm": ""}

    def mine(job: QueuedJob) -> bool:
        return job.name in names or job.number in numbers

    jobs: dict[str, QueuedJob] = {}
    until, wait, empty = time.monotonic() + CANCEL_SECONDS, POLL_SECONDS, 0
    while empty < 2:
        remaining = [job for scheduler in where for job in _jobs_of(scheduler, names) if mine(job)]
        empty = 0 if remaining else empty + 1
        jobs |= {job.number: job for job in remaining if job.number not in jobs}
        # One that has ended meanwhile is refused: only what is left counts.
        messages = [_cancel(name).stderr for name in {job.name for job in remaining} & {*names}]
        messages += [ask_again("scancel", job.number).stderr for job in remaining if job.name not in names]
        if remaining and time.monotonic() > until:
            raise ClusterError(
                f"cancelled {CANCEL_SECONDS:.0f} s ago and still there: {', '.join(map(str, remaining))}. "
                f"{''.join(messages)}Give the command again later, or: "
                f"{queue_system(next(iter(where))).COMMANDS[-1]} {' '.join(job.number for job in remaining)}"
            )
        if empty < 2:
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_POLL) if remaining else SETTLE_SECONDS
    return list(jobs.values())


def _jobs_of(scheduler: str, names: Collection[str]) -> list[QueuedJob]:
    system = queue_system(scheduler)
    jobs = system.list_jobs(ask_again)
    if jobs is None:
        lines = "; ".join(_cancel_line(name) for name in sorted(names) if scheduler_of(name) == scheduler)
        raise ClusterError(
            f"whether jobs are left is known to {system.TITLE} alone, and there is no {system.COMMANDS[1]} "
            f"here that answers. Where jobs are submitted: {lines}"
        )
    return jobs


def _cancel_line(name: str) -> str:
    return queue_system(scheduler_of(name)).cancel_line(name)


def _cancel(name: str) -> subprocess.CompletedProcess[str]:
    return ask_again("sh", "-c", _cancel_line(name))
