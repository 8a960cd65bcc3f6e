"""The folder in which the first process of a launch tells the others what to do.

``beat.json`` changes every few seconds while the first lives: what an earlier launch has left stands still,
and is not believed. ``call.json`` holds the command of a worker while there is a scheduler to work for. What
others could write there would be run here, so the folder must be the user's own. Each of the others leaves a
file when it has come: the folder is not gone before all have seen it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rankfold.pipeline.errors import ClusterError
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.checkpoint import load_json, save_json

RENDEZVOUS = "RANKFOLD_MPI"
"""Environment variable by which a command knows the folder, and how many workers wait there."""

BEAT_SECONDS = 2.0

LATE_SECONDS = 60.0
"""How long to wait at the end for processes that have not come yet."""

BEAT, CALL, HERE = "beat.json", "call.json", "here-"


JOB_NUMBERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")
"""Variables with the number of a job."""


def rendezvous_folder(where: Path, words: Sequence[str]) -> Path:
    """The folder of a launch, which all its processes find by themselves: they share a job and a command."""
    launch = [os.environ.get(name, "") for name in JOB_NUMBERS]
    digest = hashlib.blake2b("\0".join([*launch, *words]).encode(), digest_size=6).hexdigest()
    return where.absolute() / f".rankfold-mpi-{digest}"


@dataclass(frozen=True, slots=True)
class Call:
    """What a worker is to be."""

    name: str
    """Of this call and no other."""

    command: list[str]
    settings: dict[str, str]
    """What its environment has besides."""

    logs: str
    workers: int
    """How many are wanted: processes up to this number, since the first is number 0."""


def call_workers(
    folder: Path, command: Sequence[str], settings: Mapping[str, str], *, logs: Path, workers: int
) -> None:
    """Let other processes start a worker each, as many as are wanted."""
    call = Call(uuid.uuid4().hex, [*command], {**settings}, str(logs), workers)
    save_json(folder / CALL, asdict(call), durable=False)


def end_call(folder: Path) -> None:
    """Let the workers end."""
    remove(folder / CALL)


def read_call(folder: Path) -> Call | None:
    """What is wanted now."""
    facts = load_json(folder / CALL, dict)
    return Call(**facts) if facts else None


def read_beat(folder: Path) -> str | None:
    """Something that differs from beat to beat; None where there is none."""
    facts = load_json(folder / BEAT, dict)
    return str(facts.get("beat")) if facts else None


def come(folder: Path, number: int) -> None:
    """Show that a process has seen the folder."""
    (folder / f"{HERE}{number}").touch()


def require_own(folder: Path) -> None:
    """Raise for a folder in which others could write commands."""
    about = folder.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise ClusterError(
            f"{folder} holds commands for workers, and others may write there: remove it, and start again"
        )


@contextlib.contextmanager
def open_rendezvous(folder: Path, others: int) -> Iterator[None]:
    """Keep the folder alive within the block; it is gone when the block ends and all others have come."""
    remove(folder)
    folder.mkdir(mode=0o700)
    stop = threading.Event()

    def beat() -> None:
        while True:
            with contextlib.suppress(OSError):  # a full or slow file system; the next may succeed
                save_json(folder / BEAT, {"beat": uuid.uuid4().hex}, durable=False)
            if stop.wait(BEAT_SECONDS):
                return

    thread = threading.Thread(target=beat, name="rankfold-mpi", daemon=True)
    thread.start()
    try:
        yield
    finally:
        until = time.monotonic() + LATE_SECONDS
        while sum(1 for _ in folder.glob(f"{HERE}*")) < others and time.monotonic() < until:
            time.sleep(0.1)
        stop.set()
        thread.join()
        remove(folder)
