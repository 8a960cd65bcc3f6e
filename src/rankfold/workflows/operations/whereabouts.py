"""What was started for a workflow or an output: its folders, who holds its locks, which jobs it has."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankfold.cluster.leftovers import noted
from rankfold.cluster.queue import Listed
from rankfold.cluster.submission import PREFIX
from rankfold.pipeline.checkpoint import load_json
from rankfold.pipeline.errors import InputError, SourceNotFoundError
from rankfold.workflows.flows.model import is_flow
from rankfold.workflows.flows.plan import Workflow
from rankfold.workflows.flows.record import LOCK, RECORD, Record
from rankfold.workflows.operations.submitted import AGAIN, CRONTAB, NOTE, SUBMITTED, Submission, job_name

RUN = ".run"
"""What the name of an output is followed by in that of its run."""


@dataclass(frozen=True, slots=True)
class Work:
    """A workflow, or one output."""

    given: Path
    """As it was called: messages call it the same."""

    folder: Path
    """Of results, or the run of the output."""

    workflow: str = ""
    """Its name; none of an output alone."""

    @property
    def runs(self) -> list[Path]:
        """Folders of runs."""
        return sorted(self.folder.glob(f"*.zarr{RUN}")) if self.workflow else [self.folder]

    @property
    def locks(self) -> list[Path]:
        """What is held while something runs; first that of the whole."""
        own = [self.folder / LOCK] if self.workflow else []
        return own + [run / "lock" for run in self.runs]

    @property
    def submission(self) -> Submission | None:
        """The last job that it was submitted as."""
        return Submission.of(self.folder) if self.workflow else None

    @property
    def job_names(self) -> tuple[str, ...]:
        """Of jobs that were submitted for it, by hand or by the one before."""
        return self._names(SUBMITTED, AGAIN)

    def _names(self, *kinds: str) -> tuple[str, ...]:
        if not self.workflow:
            return ()
        return tuple(PREFIX + job_name(self.workflow, self.folder, kind) for kind in kinds)

    @property
    def job_number(self) -> str:
        """Of the job that its driver runs in, or ran in last; empty if in none."""
        if self.workflow:
            wheres = [stage.get("where", {}) for stage in Record.of(self.folder).stages.values()]
        else:
            record = load_json(self.folder / "run.json")
            attempts = record["attempts"] if isinstance(record, dict) else []
            wheres = [attempt.get("place", {}) for attempt in attempts]
        numbers = [where.get("job", "") for where in wheres]
        return max(numbers, key=lambda number: (len(number), number), default="")

    def own_jobs(self, jobs: Iterable[Listed]) -> list[Listed]:
        """Of those in the queue, the ones that hold a whole command and were submitted by rankfold for it."""
        names, crontab, number = self.job_names, self._names(CRONTAB), self.job_number
        return [
            job
            for job in jobs
            if job.name in names
            or (job.number == number and job.name.startswith(PREFIX) and job.name not in crontab)
        ]

    def crontab_jobs(self, jobs: Iterable[Listed]) -> list[Listed]:
        """Those that the crontab of SLURM starts: cancelled ones begin again, or never any more."""
        names = self._names(CRONTAB)
        return [job for job in jobs if job.name in names]

    def worker_jobs(self, jobs: Iterable[Listed]) -> list[Listed]:
        """Those that hold one worker each."""
        names = {name for run in self.runs for name in noted(run)}
        return [job for job in jobs if job.name in names]

    def holder(self) -> Holder | None:
        """Who works on it; None if nobody does."""
        return next((found for lock in self.locks if (found := holder_of(lock))), None)


def find_work(path: Path) -> Work:
    """By the file of a workflow, the folder of its results, or an output."""
    if is_flow(path.name) and not path.is_dir():
        workflow = Workflow.read(path)
        Record.of(workflow.outputs).require(workflow.flow.workflow)
        return Work(path, workflow.outputs, workflow.flow.workflow)
    run = path if path.name.endswith(RUN) else path.with_name(path.name + RUN)
    if run.is_dir():
        return Work(path, run)
    if not path.is_dir():
        raise SourceNotFoundError(
            f"{path} does not exist: give a workflow, the folder of its results, or the output of a command"
        )
    found: Any = load_json(path / RECORD) or load_json(path / NOTE)
    if not isinstance(found, dict):
        raise InputError(f"{path} has no {RECORD}, and no run beside it: give the .yaml file of a workflow")
    return Work(path, path, found["workflow"])


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a lock; of number 0 where the lock does not say which."""

    pid: int
    host: str

    def __str__(self) -> str:
        """In words."""
        return f"process {self.pid} on {self.host}" if self.pid else "a process that is not known"

    @property
    def here(self) -> bool:
        """Whether it is on this machine."""
        return self.host == socket.gethostname()

    def command(self) -> list[str]:
        """What it was started as; nothing of a process that is not here, or not any more."""
        with contextlib.suppress(OSError):
            if Path("/proc/self").exists():
                return Path(f"/proc/{self.pid}/cmdline").read_text(errors="replace").split("\0")
            asked = ["ps", "-ww", "-o", "args=", "-p", str(self.pid)]
            return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
        return []

    def is_ours(self) -> bool:
        """Whether it is a command of rankfold: others are not to be signalled."""
        return any(os.path.basename(word) == "rankfold" for word in self.command()[:8])


def holder_of(lock: Path) -> Holder | None:
    """The process that holds a lock, as it says itself."""
    with contextlib.suppress(FileNotFoundError), open(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            read = re.match(r"process (\d+) on (\S+)", file.read())
            return Holder(int(read[1]), read[2]) if read else Holder(0, "")
    return None
