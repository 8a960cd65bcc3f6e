"""Places where a run is executed: the budget is known before anything starts; workers start when a run
begins.
"""

from __future__ import annotations

import operator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from rankfold.cluster.local.client import SomeClient, active_client
from rankfold.cluster.local.processes import Processes, visible_devices
from rankfold.cluster.local.threads import Threads, usable_cores
from rankfold.pipeline.engine.memory import available_bytes
from rankfold.pipeline.engine.scheduler import Budget, Scheduler, Warmup
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.storage.run_directory import RunDirectory
from rankfold.pipeline.units import parse_bytes


class Executor(Protocol):
    """A place of execution: threads of this process, worker processes, jobs of SLURM or another queue, one
    allocation, or a Dask client that the caller made.
    """

    @property
    def budget(self) -> Budget:
        """Memory, threads, workers and GPUs that will be available."""

    @property
    def is_remote(self) -> bool:
        """True if workers are on other machines, so that all files must lie in folders that these see too."""

    def limited_to(self, workers: int) -> Executor:
        """A copy of this place of execution with at most ``workers`` workers."""

    def check(self) -> None:
        """Raise if something is missing, as far as that is known before anything is written."""

    def facts(self) -> dict[str, Any]:
        """Kind and size of the place of execution, by name, for the record of a run."""

    def open_scheduler(self, run: RunDirectory, kernels: Warmup) -> AbstractContextManager[Scheduler]:
        """Start the workers for a run and yield its scheduler; all workers have ended when the block ends."""


def choose_executor(
    *,
    cluster: str | Path | None = None,
    workers: int | None = None,
    threads: int | None = None,
    memory: str | int | None = None,
    client: Any = None,
    device: str | None = None,
) -> Executor:
    """The place of execution that the arguments of a call describe.

    A client takes precedence, if it is given or if it is active and nothing else is said. Then comes
    ``cluster``: this machine, the job of SLURM or the processes of MPI that this process runs in, or the
    profile of a cluster.
    """
    executor = _choose(cluster, workers, threads, memory, client, device)
    here = executor.budget.device
    if device not in (None, "cpu", "gpu"):
        raise InputError(f"device must be 'cpu' or 'gpu', not {device!r}")
    if device not in (None, here):
        reason = "gives its workers no GPU: say gpus: 1 there" if here == "cpu" else "reserves GPUs"
        raise InputError(
            f"device={device!r}, but {_title(cluster, client)} {reason}, or leave out device= (--device)"
        )
    return executor


def _title(cluster: str | Path | None, client: Any) -> str:
    return "a Dask client" if cluster is None or client is not None else f"the profile {cluster}"


def _choose(
    cluster: str | Path | None,
    workers: int | None,
    threads: int | None,
    memory: str | int | None,
    client: Any,
    device: str | None,
) -> Executor:
    if client is not None and not (cluster is None and workers is None and threads is None):
        raise InputError(
            "client= brings its own workers and threads: leave out cluster=, workers= and threads="
        )
    if client is None and cluster is None and workers is None:
        client = active_client()
    if client is not None:
        return SomeClient(client, memory)
    if cluster == "allocation":
        from rankfold.cluster.slurm.allocation import Allocation

        return Allocation.of(positive_count("workers", workers), positive_count("threads", threads), memory)
    if cluster == "mpi":
        from rankfold.cluster.mpi.place import MpiProcesses

        return MpiProcesses.of(positive_count("workers", workers), positive_count("threads", threads), memory)
    if cluster not in (None, "local"):
        # Here and not above: reading profiles loads what no other place needs.
        from rankfold.cluster.slurm.jobs import WorkerJobs
        from rankfold.cluster.slurm.profile import find_profile

        return WorkerJobs.of(
            find_profile(cluster),
            positive_count("workers", workers),
            positive_count("threads", threads),
            memory,
        )
    if device == "gpu":
        return _on_devices(workers, threads, memory)
    if workers is None:
        return Threads(Budget(_memory(memory, 1), positive_count("threads", threads) or usable_cores()))
    count = positive_count("workers", workers) or 1
    each = positive_count("threads", threads) or max(1, usable_cores() // count)
    return Processes(Budget(_memory(memory, count), each, count))


def _on_devices(workers: int | None, threads: int | None, memory: str | int | None) -> Executor:
    """Threads of this process for one GPU, or worker processes for several, one GPU each.

    Each has one thread that computes on its GPU; its other threads read.
    """
    count = positive_count("workers", workers) or max(1, len(visible_devices()))
    cores = positive_count("threads", threads) or max(1, usable_cores() // count)
    budget = Budget(_memory(memory, count), 1, count, gpus=1, readers=max(1, cores - 1))
    return Processes(budget) if workers is not None or count > 1 else Threads(budget)


def positive_count(name: str, value: object) -> int | None:
    """``value`` as a number of workers or threads, None if it is None; raises if it is not a positive
    integer.
    """
    if value is None:
        return None
    try:
        count = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{name} must be an integer, not {value!r}") from None
    if count < 1:
        raise InputError(f"{name} must be at least 1, not {count}")
    return count


def _memory(memory: str | int | None, processes: int) -> int:
    """Bytes that one of ``processes`` processes may use: by default half of the free
    memory, shared equally.
    """
    return available_bytes() // 2 // processes if memory is None else parse_bytes(memory)
