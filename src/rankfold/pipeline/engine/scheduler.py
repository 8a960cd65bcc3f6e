"""Interface of sweeps to the place where they run.

The pipeline builds graphs and hands them over. It never makes a pool or a client: ``rankfold.cluster`` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from dask.delayed import Delayed


@dataclass(frozen=True, slots=True)
class Budget:
    """Memory, threads and devices that one worker process may use, and the number of processes."""

    memory_bytes: int
    """Working memory above the baseline of the process, shared by its threads."""

    threads: int
    """Tasks that one process runs at once, at most."""

    workers: int = 1
    """Number of worker processes."""

    gpus: int = 0
    """Number of GPUs reserved for each process."""

    readers: int = 1
    """Threads that read panels for a segment on a GPU."""

    bandwidth: float = 0.0
    """Bytes per second that the file system gives all processes together; 0 if that is not known."""

    @property
    def device(self) -> str:
        """Device of folds that have code for it: ``"gpu"`` or ``"cpu"``."""
        return "gpu" if self.gpus else "cpu"


class Warmup(Protocol):
    """Preparation that a process does once before it computes for a run; it is sent to workers."""

    def warm(self) -> None:
        """Compile and load the kernels that the run uses."""


class Scheduler(Protocol):
    """Place where the graphs of sweeps run: threads, processes or a cluster; one graph at a time."""

    @property
    def has_workers(self) -> bool:
        """True if other processes take tasks, and this one does not."""

    def members(self) -> tuple[str, ...]:
        """Addresses of the processes that take tasks now, of which some may go and others join.

        Raises
        ------
        ClusterError
            No process will join any more.
        """

    def compute(
        self, root: Delayed, *, concurrency: int, watch: Callable[[], None], stop: Callable[[], bool]
    ) -> Any:
        """Run a graph; returns the value of ``root``.

        At most ``concurrency`` tasks run at a time in one process.

        ``watch`` is called a few times a second while the graph runs. When it or the graph raises, or the
        user interrupts, ``stop`` is called in every process that works for it, until it returns True, as no
        task is left there. Only then is the error raised. ``stop`` is picklable.
        """
