"""Worker jobs of a SLURM cluster: submitted, watched, replaced, and none left behind.

A job holds one worker process, asks never to be requeued (a requeued worker finds its scheduler gone, or
is cancelled by it), and ends when the scheduler in this process does. Jobs that still wait in the queue
then are cancelled by a shell that outlives this process and waits for its end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import os
import pwd
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from rankfold.cluster.client import BASELINE_BYTES, Client, prepared
from rankfold.cluster.processes import (
    ONE_THREAD,
    SCHEDULER_SETTINGS,
    WORKER_SETTINGS,
    announce_dashboard,
    scheduler_options,
)
from rankfold.cluster.profile import Profile
from rankfold.cluster.watchdog import Watchdog
from rankfold.pipeline.errors import ClusterError, InputError, NoWorkersError
from rankfold.pipeline.rundir import RunDirectory
from rankfold.pipeline.scheduler import Budget
from rankfold.pipeline.units import format_bytes, parse_bytes
from rankfold.pipeline.warm import Kernels

LOG = logging.getLogger("rankfold")

POLL_SECONDS = 5.0
"""Between two questions to SLURM; one for all jobs."""

GONE_SECONDS = 60.0
"""A job that SLURM does not know for so long has ended; its answers may be some seconds old."""

ANSWER_SECONDS = 60.0
"""For one answer of SLURM."""

GRACE_SECONDS = 5.0
"""For the other workers to come once the first is there."""

SAY_SECONDS = 30.0

NANNY_BYTES = 128 * 2**20
MARGIN = 1.1


@dataclasses.dataclass(frozen=True, slots=True)
class SlurmJobs:
    """See ``Place``."""

    profile: Profile
    budget: Budget
    elsewhere: ClassVar[bool] = True

    @classmethod
    def of(
        cls, profile: Profile, workers: int | None, threads: int | None, memory: str | int | None
    ) -> SlurmJobs:
        """Jobs of a profile, for a working memory that is given or follows from the profile's."""
        if memory is not None:
            working = parse_bytes(memory)
        elif profile.memory is not None:
            working = int(profile.memory / MARGIN) - BASELINE_BYTES - NANNY_BYTES
        else:
            raise InputError(
                "say how much memory a worker may use: --memory 4GiB, or memory: in the profile "
                f"{profile.name}"
            )
        if profile.memory is not None and job_bytes(working) > profile.memory:
            raise InputError(
                f"a working memory of {format_bytes(working)} takes jobs of "
                f"{format_bytes(job_bytes(working))}, but the profile {profile.name} gives them "
                f"{format_bytes(profile.memory)}. Lower --memory, or raise memory: there"
            )
        return cls(profile, Budget(working, threads or profile.cores, workers or profile.workers))

    def at_most(self, workers: int) -> SlurmJobs:
        """See ``Place``."""
        budget = dataclasses.replace(self.budget, workers=min(workers, self.budget.workers))
        return dataclasses.replace(self, budget=budget)

    def facts(self) -> dict[str, Any]:
        """See ``Place``."""
        return {
            "kind": "slurm",
            "workers": self.budget.workers,
            "threads": self.budget.threads,
            "profile": self.profile.model_dump(exclude_defaults=True),
        }

    @contextlib.contextmanager
    def opened(self, run: RunDirectory, kernels: Kernels) -> Iterator[Client]:
        """See ``Place``."""
        import dask
        from distributed import Client as DaskClient

        from rankfold.cluster.jobqueue import make_cluster

        for command in ("sbatch", "squeue", "scancel"):
            if shutil.which(command) is None:
                raise ClusterError(
                    f"there is no {command} here: --on {self.profile.name} needs the commands of SLURM. "
                    "Log in where jobs are submitted, or run with --on local"
                )
        if any(space in str(run.folder) for space in " \t"):
            raise ClusterError(f"SLURM writes no logs into {run.folder}, whose name holds a space: rename it")
        name = f"rankfold-{uuid.uuid4().hex[:8]}"
        with (
            dask.config.set(SCHEDULER_SETTINGS),
            no_job_left(name),
            make_cluster(**self._options(name, run.folder)) as cluster,
        ):
            _require_accepted(cluster.job_script())
            announce_dashboard(cluster)
            cluster.scale(jobs=self.budget.workers)
            watchdog = Watchdog(
                cluster, self.budget.workers, ended=_Jobs(run.folder / "logs"), every_seconds=POLL_SECONDS
            )
            with watchdog, DaskClient(cluster, set_as_default=False) as client:
                self._wait(watchdog, name)
                with prepared(client, run, kernels, watch=watchdog.check) as scheduler:
                    yield scheduler

    def _options(self, name: str, folder: Path) -> dict[str, Any]:
        profile = self.profile
        exports = [f"export {key}={value}" for key, value in {**ONE_THREAD, **WORKER_SETTINGS}.items()]
        directives = ["--no-requeue", *profile.directives]
        extra = ["--no-dashboard"]
        if profile.gpus:
            directives.append(f"--gpus-per-task={profile.gpus}")
            extra += ["--resources", f"GPU={profile.gpus}"]
        return {
            "cores": self.budget.threads,
            "memory": f"{job_bytes(self.budget.memory_bytes)}B",
            "job_cpu": max(profile.cores, self.budget.threads),
            "job_mem": f"{math.ceil((profile.memory or job_bytes(self.budget.memory_bytes)) / 2**20)}M",
            "job_name": name,
            "queue": profile.partition,
            "account": profile.account,
            "walltime": profile.walltime,
            "interface": profile.interface,
            "local_directory": profile.scratch or "${SLURM_TMPDIR:-/tmp}",
            "log_directory": str(folder / "logs"),
            "job_extra_directives": directives,
            "job_script_prologue": [*exports, *profile.prologue],
            "worker_extra_args": extra,
            # In the shell's place, so that signals of SLURM reach the worker.
            "python": f"exec {shlex.quote(profile.python or sys.executable)}",
            "scheduler_options": self._scheduler_options(),
            "security": profile.tls or None,
            "shared_temp_directory": str(folder),
            "silence_logs": logging.ERROR,
        }

    def _scheduler_options(self) -> dict[str, Any]:
        interface = self.profile.scheduler_interface or self.profile.interface
        return scheduler_options(_address(interface))

    def _wait(self, watchdog: Watchdog, name: str) -> None:
        """Until the first worker is there, and a moment longer for the others."""
        began = said = time.monotonic()
        first: float | None = None
        while watchdog.registered() < self.budget.workers:
            watchdog.check()
            now = time.monotonic()
            if watchdog.registered():
                first = first or now
                if now - first > GRACE_SECONDS:
                    break
            elif now - began > self.profile.wait_seconds:
                raise NoWorkersError(
                    f"no worker came within {self.profile.wait} (h:min:s): {queue(name)}. The same command "
                    f"tries again; wait: in the profile {self.profile.name} sets how long"
                )
            if now - said > SAY_SECONDS:
                said = now
                LOG.info("waiting for workers: %s", queue(name))
            time.sleep(0.1)
        LOG.info("%d of %d workers are there", watchdog.registered(), self.budget.workers)


def job_bytes(working: int) -> int:
    """What SLURM is asked for: working memory, the baseline of a process, its nanny, and a margin."""
    return math.ceil((working + BASELINE_BYTES + NANNY_BYTES) * MARGIN)


def queue(name: str) -> str:
    """The jobs of a run in words: states and reasons."""
    found = _slurm("squeue", "-h", "--name", name, "-o", "%i %T %r").stdout.split("\n")
    jobs = [line.split(maxsplit=2) for line in found if line.strip()]
    return (
        ", ".join(f"job {i} {state.lower()} ({reason})" for i, state, reason in jobs) or "no job in the queue"
    )


@contextlib.contextmanager
def no_job_left(name: str) -> Iterator[None]:
    """Cancel every job of a name when the block ends, and also if this process does not live to see it."""
    cancel = f"scancel --name={name} --user={shlex.quote(_user())}"
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
        reaper.wait()


class _Jobs:
    """Tells which jobs have ended."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._missing: dict[str, float] = {}

    def __call__(self, jobs: dict[Any, Any], registered: set[Any]) -> dict[Any, str]:
        ended = {name: job.refusal for name, job in jobs.items() if job.refusal}
        ids = {job.job_id: name for name, job in jobs.items() if job.job_id and not job.refusal}
        if not ids:
            return ended
        # By user, not by id: squeue fails altogether when one id is unknown.
        asked = _slurm("squeue", "-h", f"--user={_user()}", "-t", "all", "-o", "%i %T")
        if asked.returncode:
            return ended  # a controller that does not answer says nothing about jobs
        lines = (line.split() for line in asked.stdout.splitlines())
        states = {line[0]: line[1] for line in lines if len(line) == 2}
        for job_id, name in ids.items():
            state = states.get(job_id) or self._unknown(job_id, registered=name in registered)
            if state not in _ALIVE:
                ended[name] = f"job {job_id} {state.lower()}{self._last_words(job_id)}"
        return ended

    def _unknown(self, job_id: str, *, registered: bool) -> str:
        """What a job is of which SLURM says nothing."""
        if registered:
            return "RUNNING"
        since = self._missing.setdefault(job_id, time.monotonic())
        return "GONE" if time.monotonic() - since > GONE_SECONDS else "PENDING"

    def _last_words(self, job_id: str) -> str:
        for path in self._logs.glob(f"*-{job_id}.err"):
            lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
            telling = [line for line in lines if " - INFO - " not in line] or lines
            if telling:
                return f": {telling[-1].strip()}"
        return ""


_ALIVE = {"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "REQUEUED", "SIGNALING"}


def _require_accepted(script: str) -> None:
    """Raise with SLURM's own words when it would not take the job."""
    asked = _slurm("sbatch", "--test-only", stdin=script)
    if asked.returncode:
        from rankfold.cluster.jobqueue import refusal

        raise ClusterError(
            f"SLURM refuses the worker job: {refusal(asked.stderr)}. Change the profile; its job script "
            f"was:\n{script}"
        )


def _slurm(*command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {error.timeout:.0f} s")


def _user() -> str:
    """Whoever this process belongs to, as SLURM knows it."""
    return pwd.getpwuid(os.getuid()).pw_name


def _address(interface: str | None) -> str:
    """Address of an interface, or of this machine as others see it."""
    from distributed.utils import get_ip, get_ip_interface

    if interface is None:
        return str(get_ip())
    try:
        return str(get_ip_interface(interface))
    except ValueError as error:
        raise ClusterError(f"no network interface {interface!r} here: {error}") from None
