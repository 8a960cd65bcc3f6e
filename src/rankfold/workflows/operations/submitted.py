"""Submit a workflow or a command as one job of SLURM, and note that job in the folder of results or of the
run: ``submitted.json``.

The name of the job follows from the folder, so that the job is found even if no note could be written.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from rankfold.cluster.executor import Executor
from rankfold.cluster.slurm.profile import Profile, absolute_profile, find_profile
from rankfold.cluster.slurm.queue import ask_again, list_jobs, require_commands
from rankfold.cluster.slurm.shell_lines import log_pattern, require_one_line
from rankfold.cluster.slurm.submission import PREFIX, allocation_of, job_script, log_name, submit
from rankfold.pipeline.errors import ClusterError, OutputError
from rankfold.pipeline.storage.checkpoint import disk_errors, load_with_checksum, save_with_checksum
from rankfold.pipeline.storage.lock import hold_lock
from rankfold.pipeline.storage.run_directory import RunDirectory
from rankfold.pipeline.text import shell_words
from rankfold.workflows.flows.flow_file import HERE
from rankfold.workflows.flows.graph import StageNode
from rankfold.workflows.flows.plan import Workflow
from rankfold.workflows.flows.record import LOCK as RUNNING
from rankfold.workflows.flows.record import now, require_own_files, require_own_record
from rankfold.workflows.operations.lock_owner import holder_of

NOTE = "submitted.json"
LOCK = "submitted.lock"


BY_HAND, AGAIN, CRONTAB = "", "-again", "-cron"
"""Suffixes of job names: jobs submitted by a user, by the job before, or by the crontab of SLURM."""


def job_name(workflow: str, outputs: Path, kind: str = BY_HAND) -> str:
    """Name of the jobs of a workflow or command, without ``PREFIX``, which all jobs have.

    ``outputs`` is the folder of results or the output, and ``kind`` says who submits: ``BY_HAND`` and others.
    """
    return f"{workflow}-{place_digest(outputs)}{kind}"


def place_digest(outputs: Path) -> str:
    """Digest (8 hexadecimal digits) of the path of the folder of results or output, for names of jobs."""
    return hashlib.blake2b(os.path.realpath(outputs).encode(), digest_size=4).hexdigest()


@dataclass(frozen=True, slots=True)
class Submission:
    """Note, in ``submitted.json``, of the last job as which a workflow or a command was submitted."""

    workflow: str
    """Name of the workflow; empty for a command."""

    job: str
    log: str
    profile: str
    host: str
    submitted: str

    @classmethod
    def of(cls, outputs: Path) -> Self | None:
        """The submission noted in a folder of results, or of a run; None if there is none."""
        facts = load_with_checksum(outputs / NOTE) or {}
        is_whole = facts.keys() == set(cls.__slots__) and all(
            isinstance(fact, str) for fact in facts.values()
        )
        return cls(**facts) if is_whole else None


@dataclass(frozen=True, slots=True)
class InOneJob(Workflow):
    """A workflow whose stages run on the nodes of the job that it is submitted as."""

    @classmethod
    def read(cls, path: Path, cluster: str | None = None) -> Self:
        """Read a workflow; its profile is ``cluster``, or its own if that is for a cluster, or else
        ``slurm``.
        """
        workflow = super(InOneJob, cls).read(path, cluster)
        flow = workflow.flow
        if flow.profile in HERE:
            flow = flow.model_copy(update={"profile": "slurm"})
        # Jobs of a crontab begin in another folder.
        flow = flow.model_copy(update={"profile": absolute_profile(flow.profile, Path.cwd())})
        require_one_line(str(workflow.document.path.absolute()), "the path of the workflow,")
        require_one_line(flow.profile, "the path of the profile,")
        return cls(flow, workflow.document, workflow.steps)

    @property
    def profile(self) -> Profile:
        """The profile that the job is submitted with."""
        return find_profile(self.flow.profile)

    def executor(self, step: StageNode) -> Executor:
        """Place of execution of a step: the nodes that the job will have."""
        own = self.resources(step)
        return allocation_of(self.profile, own.workers, own.threads, own.memory)

    def command(self, *more: str) -> list[str]:
        """The command line that the job runs, with ``more`` options of ``rankfold run``."""
        python = self.profile.python or sys.executable
        path = str(self.document.path.absolute())
        return [python, "-m", "rankfold", "run", path, *more, "--cluster", "allocation"]

    @property
    def log(self) -> str:
        """Path of the log of the job, as a pattern for SLURM."""
        return log_pattern(self.outputs, log_name(self.flow.workflow))

    def script(self, more: Sequence[str] = ()) -> str:
        """The script of the job, which runs the workflow with ``more`` options of ``rankfold run``."""
        name, log = job_name(self.flow.workflow, self.outputs), self.log
        return job_script(self.command(*more), self.profile, name=name, known_as=self.flow.profile, log=log)


def submit_flow(workflow: InOneJob, more: Sequence[str]) -> Submission:
    """Submit a workflow to SLURM with ``more`` options of ``rankfold run``, and note the job.

    Raises if it runs already, or waits to run.
    """
    outputs, profile, script = workflow.outputs, workflow.profile, workflow.script(more)
    name, file = job_name(workflow.flow.workflow, outputs), workflow.document.path
    require_commands(profile.name, "sbatch", "squeue")
    require_no_job(name, file)
    if holder := holder_of(outputs / RUNNING):
        raise OutputError(f"{outputs} is being written already, by {holder}. Wait for it")
    with disk_errors(outputs):
        outputs.mkdir(parents=True, exist_ok=True)
    require_own_record(outputs)
    require_own_files(outputs / NOTE, outputs / LOCK, recognized=Submission.of(outputs) is not None)
    with hold_lock(outputs / LOCK, outputs):
        require_no_job(name, file)
        job = submit(script, profile, PREFIX + name)
        log = str(outputs / log_name(workflow.flow.workflow, job))
        submission = Submission(workflow.flow.workflow, job, log, profile.name, socket.gethostname(), now())
        save_with_checksum(outputs / NOTE, asdict(submission))
    return submission


def submit_command(name: str, out: Path, script: str, profile: Profile) -> Submission:
    """Submit the script of the command ``name`` to SLURM, and note the job next to its output ``out``.

    Raises if a job of the command for this output runs or waits already.
    """
    require_commands(profile.name, "sbatch", "squeue")
    require_no_job(job_name(name, out), out)
    run = RunDirectory.beside(out.absolute(), None, "")
    run.require_known()
    if holder := holder_of(run.folder / "lock"):
        raise OutputError(
            f"{out} is being written already, by {holder}. Wait for it, or choose another --out"
        )
    job = submit(script, profile, PREFIX + job_name(name, out))
    log = os.path.abspath(log_name(name, job))
    submission = Submission("", job, log, profile.name, socket.gethostname(), now())
    with disk_errors(run.folder):
        run.folder.mkdir(parents=True, exist_ok=True)
    save_with_checksum(run.folder / NOTE, asdict(submission))
    return submission


def require_no_job(name: str, target: Path) -> None:
    """Raise if a job ``PREFIX + name`` runs or waits; ``target`` is the file or output, for the message."""
    jobs = list_jobs(ask_again)
    if jobs is None:
        raise ClusterError(
            f"whether {target} is submitted already is not known: squeue does not answer. Give the command "
            "again later"
        )
    if there := [job for job in jobs if job.name == PREFIX + name]:
        raise OutputError(
            f"{target} is submitted already: {there[0]}. Wait for it, or end it first: "
            f"rankfold cancel {shell_words([str(target)])}"
        )
