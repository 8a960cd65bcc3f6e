"""Find what belongs to a workflow or an output: its folders, the processes that hold its locks, its jobs."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankfold.cluster.queues.registry import queue_system, scheduler_of
from rankfold.cluster.slurm.leftovers import read_note
from rankfold.cluster.slurm.queue import QueuedJob
from rankfold.cluster.slurm.submission import PREFIX
from rankfold.pipeline.errors import InputError, SourceNotFoundError
from rankfold.pipeline.storage.checkpoint import load_json
from rankfold.pipeline.storage.journal import load_record
from rankfold.workflows.flows.flow_file import is_flow
from rankfold.workflows.flows.plan import Workflow
from rankfold.workflows.flows.record import LOCK, RECORD, Record, read_record
from rankfold.workflows.operations.lock_owner import Holder, holder_of
from rankfold.workflows.operations.submitted import (
    AGAIN,
    BY_HAND,
    CRONTAB,
    NOTE,
    Submission,
    job_name,
    place_digest,
)
from rankfold.workflows.results import result_at

CUT_OFF = ("running", "interrupted")
"""Values of ``state`` in the record of a stage that runs, or was stopped before it was done or had failed."""

RUN = ".run"
"""Suffix that turns the name of an output into that of the folder of its run."""


@dataclass(frozen=True, slots=True)
class Work:
    """A workflow or a single output, with the folders of its runs and its jobs."""

    target: Path
    """Path of the workflow file, folder of results or output, as the user gave it, for messages."""

    folder: Path
    """Folder of results of a workflow, or folder of the run of an output; absolute,
    as are all paths below.
    """

    workflow: str = ""
    """Name of the workflow; empty for a single output."""

    methods: Mapping[str, str] = field(default_factory=dict)
    """Methods of the stages by name, as in the workflow file; empty if ``target`` is no workflow file."""

    @property
    def output(self) -> Path | None:
        """Path of the single output; None for a workflow."""
        return None if self.workflow else self.folder.with_name(self.folder.name.removesuffix(RUN))

    @property
    def own_runs(self) -> list[Path]:
        """Folders of runs, which hold progress and logs: those of all stages that were
        begun, or that of the output.
        """
        return sorted(self.folder.glob(f"*.zarr{RUN}")) if self.workflow else [self.folder]

    @property
    def runs(self) -> list[Path]:
        """Folders of runs, and of runs that are parts of them."""
        return [run for own in self.own_runs for run in with_parts(own)]

    @property
    def locks(self) -> list[Path]:
        """Lock files that are held while something runs; for a workflow, the first is
        the lock of the whole workflow.
        """
        own = [self.folder / LOCK] if self.workflow else []
        return own + [run / "lock" for run in self.runs]

    @property
    def submission(self) -> Submission | None:
        """The last submission of the whole work to SLURM as one job; None if there is none."""
        return Submission.of(self.folder)

    @property
    def job_names(self) -> tuple[str, ...]:
        """Names of SLURM jobs that run the whole workflow, submitted by a user or by the job before.

        Empty for an output.
        """
        return self._names(BY_HAND, AGAIN)

    def _names(self, *kinds: str) -> tuple[str, ...]:
        if not self.workflow:
            return ()
        return tuple(PREFIX + job_name(self.workflow, self.folder, kind) for kind in kinds)

    @property
    def job_number(self) -> str:
        """Number of the SLURM job in which its driver runs, or was killed; empty if there is none.

        A job that has finished its work here may be busy with something else, and does not count.
        """
        if self.workflow:
            stages = Record.of(self.folder).stages.values()
            places = [(stage.get("where", {}), stage.get("state") in CUT_OFF) for stage in stages]
        else:
            last = [attempts[-1] for run in self.runs if (attempts := _attempts(run))]
            places = [(attempt.get("place", {}), not attempt.get("finished")) for attempt in last]
        alive = self.holder() is not None
        numbers = [where.get("job", "") for where, cut_off in places if cut_off or alive]
        return max(numbers, key=lambda number: (len(number), number), default="")

    def own_jobs(self, jobs: Iterable[QueuedJob]) -> list[QueuedJob]:
        """Those of ``jobs``, in the queue of SLURM, in which a whole command for this work runs or waits."""
        names, crontab, number = self.job_names, self._names(CRONTAB), self.job_number
        output = self.output
        # Of any command: its name is unknown, but the place of its output is known.
        own = re.compile(f"{PREFIX}[a-z]+-{place_digest(output)}") if output is not None else None
        return [
            job
            for job in jobs
            if job.name in names
            or (own is not None and own.fullmatch(job.name))
            or (job.number == number and job.name.startswith(PREFIX) and job.name not in crontab)
        ]

    def crontab_jobs(self, jobs: Iterable[QueuedJob]) -> list[QueuedJob]:
        """Jobs among ``jobs`` that the crontab of SLURM starts again and again, until it is changed."""
        names = self._names(CRONTAB)
        return [job for job in jobs if job.name in names]

    def worker_jobs(self, jobs: Iterable[QueuedJob]) -> list[QueuedJob]:
        """Jobs of the work that hold one worker each: those among ``jobs``, and those in other queue systems.

        ``jobs`` are in the queue of SLURM; queue systems that do not answer are left out.
        """
        names = {name for run in self.runs for name in read_note(run)}
        others = {scheduler_of(name) for name in names} - {"slurm"}
        elsewhere = [job for system in sorted(others) for job in queue_system(system).list_jobs() or ()]
        return [job for job in (*jobs, *elsewhere) if job.name in names]

    def holder(self) -> Holder | None:
        """The process that works on it, as a lock file names it; None if there is none."""
        return next((holder for lock in self.locks if (holder := holder_of(lock))), None)


def find_work(target: Path) -> Work:
    """Find the workflow or output at a path: the file of a workflow, the folder of its results, or an output.

    Raises
    ------
    InputError
        Nothing was started there.
    """
    path = Path(os.path.abspath(target))  # "." has no name
    if is_flow(path.name) and not path.is_dir():
        workflow = Workflow.read(target)
        Record.of(workflow.outputs).require(workflow.flow.workflow)
        methods = {step.name: step.stage.method for step in workflow.steps}
        return Work(target, workflow.outputs, workflow.flow.workflow, methods)
    record: Any = (read_record(path) or load_json(path / NOTE, dict)) if path.is_dir() else None
    if isinstance(record, dict) and record.get("workflow"):
        return Work(target, path, record["workflow"])
    run = path if path.name.endswith(RUN) else path.parent / f"{path.name}{RUN}"
    if run.is_dir() or result_at(path):
        return Work(target, run)
    if not path.exists():
        raise SourceNotFoundError(
            f"{target} does not exist: give a workflow, the folder of its results, or the output of a command"
        )
    raise InputError(
        f"{target} has neither {RECORD} nor {NOTE}, and there is no {run.name} beside it: no workflow has "
        "run here, and no result is kept with its record. Give the .yaml file of a workflow, the folder of "
        "its results, or the output of a command"
    )


def with_parts(run: Path) -> list[Path]:
    """The folder of a run, and those of the runs that are parts of it, while they exist.

    A part is, for instance, the search of a method that then ranks neighbors.
    """
    parts = glob.iglob(f"state-*/*{RUN}", root_dir=run)  # tolerates folders that vanish meanwhile
    return [run, *sorted(run / part for part in parts)]


def _attempts(run: Path) -> list[dict[str, Any]]:
    return list(load_record(run / "run.json")["attempts"])
