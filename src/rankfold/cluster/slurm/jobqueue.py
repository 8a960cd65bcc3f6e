"""Classes of dask-jobqueue with corrections of their behavior; no other module uses dask-jobqueue.

Importing it takes over Ctrl-C, and fails outside the main thread; a refused ``sbatch`` is only logged.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
import threading
from typing import Any

from rankfold.cluster.slurm.queue import refusal
from rankfold.pipeline.errors import ClusterError

if threading.current_thread() is not threading.main_thread():
    raise ClusterError("workers in jobs are started from the main thread only: call rankfold from there")

from distributed.deploy.spec import ProcessInterface

_handler = signal.getsignal(signal.SIGINT)
from dask_jobqueue.core import Job as AnyJob  # noqa: E402
from dask_jobqueue.core import JobQueueCluster  # noqa: E402
from dask_jobqueue.lsf import LSFJob  # noqa: E402
from dask_jobqueue.pbs import PBSJob  # noqa: E402
from dask_jobqueue.sge import SGEJob  # noqa: E402
from dask_jobqueue.slurm import SLURMJob  # noqa: E402

signal.signal(signal.SIGINT, _handler)


AT_ONCE = 16
"""Largest number of concurrent calls of sbatch and scancel: hundreds would run out of files and annoy the
controller."""

_gates: dict[Any, asyncio.Semaphore] = {}


def _gate() -> asyncio.Semaphore:
    return _gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE))


class WorkerJob(AnyJob):
    """A worker job. If it cannot be submitted, ``refusal`` says why, and the other jobs still start."""

    refusal = ""

    @classmethod
    def submission(cls, script: str) -> str:
        """Shell command that submits a script file."""
        return f"{cls.submit_command} {script}"

    async def start(self) -> None:
        """Submit the job."""
        try:
            async with _gate():
                await super().start()
        except (RuntimeError, ValueError, OSError) as error:
            self.refusal = refusal(str(error))
            await ProcessInterface.start(self)

    async def close(self) -> None:
        """Cancel the job."""
        async with _gate():
            await super().close()
        await ProcessInterface.close(self)


class Slurm(WorkerJob, SLURMJob):
    """Worker job of SLURM."""

    # Greetings of sites contain all kinds of numbers.
    job_id_regexp = r"Submitted batch job (?P<job_id>\d+)"


class Pbs(WorkerJob, PBSJob):
    """Worker job of PBS; its number, as PBS prints it, includes the name of a server."""

    job_id_regexp = r"(?m)^(?P<job_id>\d+\.[\w.-]+)\s*$"


class Lsf(WorkerJob, LSFJob):
    """Worker job of LSF, which reads directives only from a script on its standard input."""

    job_id_regexp = r"Job <(?P<job_id>\d+)>"

    @classmethod
    def submission(cls, script: str) -> str:
        """Shell command that submits a script file through standard input."""
        return f"{cls.submit_command} < {script}"

    async def _submit_job(self, script_filename: str) -> Any:
        # As dask-jobqueue does, which discards the message of bsub about a mistake.
        return await self._call([self.submission(shlex.quote(script_filename))], shell=True)


class Sge(WorkerJob, SGEJob):
    """Worker job of Grid Engine."""

    job_id_regexp = r"Your job (?P<job_id>\d+) "


JOBS: dict[str, Any] = {"slurm": Slurm, "pbs": Pbs, "lsf": Lsf, "sge": Sge}


class Cluster(JobQueueCluster):
    """Dask cluster with a scheduler in this process and one worker process in each job."""

    def _get_worker_security(self, security: Any) -> None:
        """No-op: workers get their certificates by options, and whoever made the files removes them."""


WORKER: dict[str, Any] = {
    "processes": 1,
    "worker_command": "rankfold.cluster.slurm.node_worker",
    "death_timeout": "120",
}
"""Options of dask-jobqueue that all jobs share."""


def make_cluster(scheduler: str, **options: Any) -> Cluster:
    """A cluster without jobs yet, for the queue system ``scheduler``, with options of dask-jobqueue."""
    return Cluster(n_workers=0, job_cls=JOBS[scheduler], **WORKER, **options)


def worker_script(scheduler: str, address: str, name: str = "dummy-name", **options: Any) -> str:
    """Script of the job of the worker ``name``, as a cluster whose scheduler has this ``address`` submits it.

    ``scheduler`` is the queue system, and ``options`` are those of dask-jobqueue.
    """
    return str(JOBS[scheduler](address, name, **WORKER, **options).job_script())


def submission(scheduler: str) -> str:
    """Shell command that submits a worker job whose script is the file ``SCRIPT``."""
    return str(JOBS[scheduler].submission("SCRIPT"))
