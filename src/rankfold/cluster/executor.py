"""Where a run takes place: known by its budget before anything is started, opened when work begins."""

from __future__ import annotations

import operator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from rankfold.cluster.local.client import SomeClient, active_client
from rankfold.cluster.local.processes import Processes
from rankfold.cluster.local.threads import Threads, usable_cores
from rankfold.pipeline.engine.memory import available_bytes
from rankfold.pipeline.engine.scheduler import Budget, Scheduler, Warmup
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.storage.run_directory import RunDirectory
from rankfold.pipeline.units import parse_bytes


class Executor(Protocol):
    """Threads of this process, worker processes, SLURM jobs, one allocation, or somebody's Dask client."""

    @property
    def budget(self) -> Budget:
        """What there will be to work with."""

    @property
    def is_remote(self) -> bool:
        """Whether its workers are on other machines: nothing may lie in a folder of this one alone."""

    def limited_to(self, workers: int) -> Executor:
        """The same place with no more workers than there is work for."""

    def facts(self) -> dict[str, Any]:
        """What kind of place it is, for the record."""

    def open_scheduler(self, run: RunDirectory, kernels: Warmup) -> AbstractContextManager[Scheduler]:
        """Start it for a run; nothing of it is left when the block ends."""


def choose_executor(
    *,
    cluster: str | Path | None = None,
    workers: int | None = None,
    threads: int | None = None,
    memory: str | int | None = None,
    client: Any = None,
) -> Executor:
    """The place that the arguments of a call describe.

    A client that is given, or active when nothing else is said, wins; then ``on``: this machine, the job
    of SLURM that this process runs in, or the profile of a cluster.
    """
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
    if cluster not in (None, "local"):
        # Here and not above: reading profiles loads what no other place needs.
        from rankfold.cluster.slurm.jobs import SlurmJobs
        from rankfold.cluster.slurm.profile import find_profile

        return SlurmJobs.of(
            find_profile(cluster),
            positive_count("workers", workers),
            positive_count("threads", threads),
            memory,
        )
    if workers is None:
        cores = positive_count("threads", threads) or usable_cores()
        return Threads(Budget(_memory(memory, 1), cores))
    count = positive_count("workers", workers) or 1
    each = positive_count("threads", threads) or max(1, usable_cores() // count)
    return Processes(Budget(_memory(memory, count), each, count))


def positive_count(name: str, value: object) -> int | None:
    """A number of workers or threads, if one is given; raises for what is none."""
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
    """Bytes that one process may use: by default half of what is free, shared among them."""
    return available_bytes() // 2 // processes if memory is None else parse_bytes(memory)
