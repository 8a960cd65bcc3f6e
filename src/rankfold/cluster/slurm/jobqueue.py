"""The one module that touches dask-jobqueue, and what of it is put right here.

Importing it takes over Ctrl-C, and fails outside the main thread; a refused ``sbatch`` ends up in a log.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import Any

from rankfold.pipeline.errors import ClusterError

if threading.current_thread() is not threading.main_thread():
    raise ClusterError("SLURM workers are started from the main thread only: call rankfold from there")

from distributed.deploy.spec import ProcessInterface

_handler = signal.getsignal(signal.SIGINT)
from dask_jobqueue.slurm import SLURMCluster, SLURMJob  # noqa: E402

signal.signal(signal.SIGINT, _handler)


AT_ONCE = 16
"""Calls of sbatch and scancel side by side: hundreds would run out of files and annoy the controller."""

_gates: dict[Any, asyncio.Semaphore] = {}


def _gate() -> asyncio.Semaphore:
    return _gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE))


class Job(SLURMJob):
    """A worker job that remembers why it could not be submitted, instead of failing the others."""

    # sites greet with all kinds of numbers
    job_id_regexp = r"Submitted batch job (?P<job_id>\d+)"
    refusal = ""

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


class Cluster(SLURMCluster):
    """A scheduler in this process and one worker process in each job."""

    job_cls = Job

    def _get_worker_security(self, security: Any) -> None:
        """Nothing: workers are told their certificates by options, and who made the files removes them."""


def refusal(text: str) -> str:
    """What SLURM said, out of what dask-jobqueue makes of it."""
    message = text.partition("stderr:\n")[2].strip() or text
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in message.strip().splitlines()]
    return "; ".join(line for line in lines if line) or "nothing"


WORKER: dict[str, Any] = {
    "processes": 1,
    "worker_command": "rankfold.cluster.slurm.node_worker",
    "death_timeout": "120",
}
"""What all jobs have in common."""


def make_cluster(**options: Any) -> Cluster:
    """A cluster without jobs yet."""
    return Cluster(n_workers=0, **WORKER, **options)


def worker_script(scheduler: str, **options: Any) -> str:
    """The script of a worker job as a cluster would write it, without a cluster."""
    return str(Job(scheduler, "dummy-name", **WORKER, **options).job_script())
