"""What a sweep needs of the place where it runs.

The pipeline builds graphs and hands them over; it never makes a pool or a client. Who does lives in
``rankfold.cluster``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from dask.delayed import Delayed


@dataclass(frozen=True, slots=True)
class Budget:
    """What one worker process may use."""

    memory_bytes: int
    """Working memory above the baseline of the process, shared by its threads."""

    threads: int
    """Tasks that one process runs at once, at most."""

    workers: int = 1
    """Processes."""

    gpus: int = 0
    """Of each process, which the place reserves for it."""

    readers: int = 1
    """Threads that read panels for a segment on a GPU."""

    bandwidth: float = 0.0
    """Bytes per second that the file system gives all processes together; 0 where nobody said."""

    @property
    def device(self) -> str:
        """Where folds run that have code for it."""
        return "gpu" if self.gpus else "cpu"


class Warmup(Protocol):
    """What a process does once before it computes for a run; workers are sent it."""

    def warm(self) -> None:
        """Compile and load what the run uses."""


class Scheduler(Protocol):
    """Runs one graph at a time."""

    @property
    def has_workers(self) -> bool:
        """Whether other processes take tasks, and not this one."""

    def members(self) -> tuple[str, ...]:
        """Addresses of those that do now, of which some may go and others come.

        Raises
        ------
        ClusterError
            None will come any more.
        """

    def compute(
        self, root: Delayed, *, concurrency: int, watch: Callable[[], None], stop: Callable[[], bool]
    ) -> Any:
        """Value of ``root``, with at most ``concurrency`` tasks at a time in one process.

        ``watch`` is called a few times a second while the graph runs. When it or the graph raises, or
        the user interrupts, ``stop`` is called in every process that works for it, until it says that no
        task is left there; only then does the error leave. ``stop`` pickles.
        """
