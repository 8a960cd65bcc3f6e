"""The folder through which the first process of a launch by ``mpiexec`` or ``srun`` gives commands to the
others.

``beat.json`` changes every few seconds while the first lives: what an earlier launch has left does not
change, and is ignored. ``call.json`` holds the command of a worker while there is a scheduler to work for.
Commands written there are run, so the folder must be the user's own. Each of the other processes leaves a
file when it has seen the folder: the folder is kept until all have.

Number of this process in its launch, read from the environment that launchers set.

MPI itself is not loaded: nothing here sends a message by it.
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

from rankfold.pipeline.errors import ClusterError, InputError
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.checkpoint import load_json, save_json

RENDEZVOUS = "RANKFOLD_MPI"
"""Environment variable with the number of workers that wait for a command, and the
folder, as ``COUNT:FOLDER``.
"""

BEAT_SECONDS = 2.0

LATE_SECONDS = 60.0
"""Longest time, in seconds, to wait at the end for processes that have not seen the folder yet."""

BEAT, CALL, HERE = "beat.json", "call.json", "here-"


JOB_NUMBERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")
"""Environment variables in which queue systems put the number of a job."""


def rendezvous_folder(where: Path, words: Sequence[str]) -> Path:
    """Path of the rendezvous folder of a launch, in ``where``, a folder that all its processes see.

    Each process derives it from the number of the job and from ``words``, the command, which they share.
    """
    launch = [os.environ.get(name, "") for name in JOB_NUMBERS]
    digest = hashlib.blake2b("\0".join([*launch, *words]).encode(), digest_size=6).hexdigest()
    return where.absolute() / f".rankfold-mpi-{digest}"


@dataclass(frozen=True, slots=True)
class Call:
    """Request of the first process for workers, as in ``call.json``."""

    name: str
    """Random name, different for each request."""

    command: list[str]
    settings: dict[str, str]
    """Environment variables that the worker gets in addition."""

    logs: str
    workers: int
    """Number of workers wanted: processes 1 to this number, since the first is number 0."""


def call_workers(
    folder: Path, command: Sequence[str], settings: Mapping[str, str], *, logs: Path, workers: int
) -> None:
    """Ask the other processes to start ``workers`` workers, one each, by a file in the rendezvous folder.

    ``command`` is the command line of a worker, ``settings`` are environment variables that it gets in
    addition, and ``logs`` is the folder for its log.
    """
    call = Call(uuid.uuid4().hex, [*command], {**settings}, str(logs), workers)
    save_json(folder / CALL, asdict(call), durable=False)


def end_call(folder: Path) -> None:
    """Withdraw the request for workers in the rendezvous folder, so that the workers end."""
    remove(folder / CALL)


def read_call(folder: Path) -> Call | None:
    """The current request for workers in the rendezvous folder; None if there is none."""
    facts = load_json(folder / CALL, dict)
    return Call(**facts) if facts else None


def read_beat(folder: Path) -> str | None:
    """Text of ``beat.json``, which changes as long as the first process lives; None if there is none."""
    facts = load_json(folder / BEAT, dict)
    return str(facts.get("beat")) if facts else None


def come(folder: Path, number: int) -> None:
    """Leave a file in the folder, to show that process ``number`` has seen it."""
    (folder / f"{HERE}{number}").touch()


def require_own(folder: Path) -> None:
    """Raise if other users could write commands into the folder."""
    about = folder.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise ClusterError(
            f"{folder} holds commands for workers, and others may write there: remove it, and start again"
        )


@contextlib.contextmanager
def open_rendezvous(folder: Path, others: int) -> Iterator[None]:
    """Make the rendezvous folder, and change its ``beat.json`` all the time within the block.

    It is removed afterwards, when all other processes, ``others`` in number, have seen it, or at the latest
    after ``LATE_SECONDS``.
    """
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


VARIABLES = {
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "PMI (MPICH, Intel MPI, Cray)": ("PMI_RANK", "PMI_SIZE"),
    "srun": ("SLURM_PROCID", "SLURM_NTASKS"),
}
"""Variables of the number of a process, from 0, and of the count of processes; the first pair that is set is
used.
"""


def process_numbers(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Number of this process, from 0, and count of all processes of the launch.

    Raises
    ------
    InputError
        No launcher has started it, or it is the only process.
    """
    for number, count in VARIABLES.values():
        if number in environment and count in environment:
            here, total = int(environment[number]), int(environment[count])
            if total < 2:
                raise InputError(
                    "one process is started, which leaves none for work: the first runs the command, each of "
                    "the others is a worker. Start at least 2: mpiexec -n 5 rankfold mpi -- COMMAND"
                )
            return here, total
    launchers = "; ".join(f"{' and '.join(names)} of {launcher}" for launcher, names in VARIABLES.items())
    raise InputError(
        "no launcher has started this process: give mpiexec -n 5 rankfold mpi -- COMMAND, or srun -n 5. "
        f"Launchers are known by {launchers}"
    )
