"""Jobs that nobody looks after any more: noted before they start, so that they are found and cancelled.

Worker jobs of a run have one name, which stands in the folder of the run as long as there may be any. A
driver takes it back when its jobs are cancelled; a shell that outlives a killed driver cancels them; where
both were killed, the note is what is left.

The trap: a driver that is killed may have handed a job to SLURM that squeue does not know yet. Twice in a
row there must be none.
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from rankfold.cluster.slurm.queue import QueuedJob, ask, list_jobs, user
from rankfold.pipeline.errors import ClusterError
from rankfold.pipeline.storage.checkpoint import load_json, save_json

NOTE = "jobs.json"
"""In the folder of a run: names of its jobs."""

CANCEL_SECONDS = 120.0
"""How long cancelled jobs may take to leave the queue."""

POLL_SECONDS, LONGEST_POLL = 0.5, 5.0

SETTLE_SECONDS = 1.0
"""Seconds between two looks at a queue that has none of them."""


def read_note(folder: Path) -> list[str]:
    """Names of jobs that may be left of a run."""
    note = load_json(folder / NOTE, dict) or {}
    names = note.get("names")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def forget(folder: Path, names: Collection[str]) -> None:
    """None of these is left; a note of others, of a driver that has begun since, stays."""
    if set(read_note(folder)) == {*names}:
        (folder / NOTE).unlink(missing_ok=True)


@contextlib.contextmanager
def no_job_left(name: str, folder: Path) -> Iterator[None]:
    """Cancel every job of a name when the block ends, and also if this process does not live to see it.

    Jobs that an earlier driver has left behind are cancelled first: their scheduler is gone.
    """
    earlier = [old for old in read_note(folder) if _scancel(old).returncode]
    save_json(folder / NOTE, {"names": [*earlier, name]})
    cancel = shlex.join(["scancel", f"--name={name}", f"--user={user()}"])
    # The shell reads until nobody holds the other end of its input; Ctrl-C does not reach it.
    reaper = subprocess.Popen(
        ["sh", "-c", f"cat >/dev/null; {cancel}"],
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
    """Cancel all jobs of some names or numbers, and wait until there is none; returns those that there were.

    Raises
    ------
    ClusterError
        Some are still there, or SLURM does not answer.
    """

    def mine(job: QueuedJob) -> bool:
        return job.name in names or job.number in numbers

    jobs: dict[str, QueuedJob] = {}
    until, wait, empty = time.monotonic() + CANCEL_SECONDS, POLL_SECONDS, 0
    while empty < 2:
        remaining = _those(mine, names)
        empty = 0 if remaining else empty + 1
        jobs |= {job.number: job for job in remaining if job.number not in jobs}
        # One that has ended in between is refused: what counts is what is left.
        messages = [_scancel(name).stderr for name in {job.name for job in remaining} & {*names}]
        messages += [ask("scancel", job.number).stderr for job in remaining if job.name not in names]
        if remaining and time.monotonic() > until:
            raise ClusterError(
                f"cancelled {CANCEL_SECONDS:.0f} s ago and still there: {', '.join(map(str, remaining))}. "
                f"{''.join(messages)}Give the command again later, or: "
                f"scancel {' '.join(job.number for job in remaining)}"
            )
        if empty < 2:
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_POLL) if remaining else SETTLE_SECONDS
    return list(jobs.values())


def _those(mine: Callable[[QueuedJob], bool], names: Collection[str]) -> list[QueuedJob]:
    jobs = list_jobs()
    if jobs is None:
        raise ClusterError(
            f"whether jobs are left is known to SLURM alone, and there is no squeue here that answers. Where "
            f"jobs are submitted: {'; '.join(f'scancel --name={name}' for name in sorted(names))}"
        )
    return [job for job in jobs if mine(job)]


def _scancel(name: str) -> subprocess.CompletedProcess[str]:
    return ask("scancel", f"--name={name}", f"--user={user()}")
