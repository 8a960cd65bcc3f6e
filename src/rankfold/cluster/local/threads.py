"""Run segments (units of work of 10 to 60 seconds) on threads of this process, under Dask's threaded
scheduler.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from dask.delayed import Delayed
from dask.threaded import get

from rankfold.pipeline.engine.device import device_of
from rankfold.pipeline.engine.memory import return_freed_memory
from rankfold.pipeline.engine.scheduler import Budget, Warmup
from rankfold.pipeline.storage.run_directory import RunDirectory

TICK_SECONDS = 0.2


def usable_cores() -> int:
    """Number of processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Pools:
    """Thread pools of a run, kept from one graph to the next: starting them takes longer than a small
    graph.
    """

    def __init__(self) -> None:
        self._started: dict[int, tuple[ThreadPoolExecutor, ThreadPoolExecutor]] = {}

    def of(self, concurrency: int) -> tuple[ThreadPoolExecutor, ThreadPoolExecutor]:
        """The pool that computes at most ``concurrency`` tasks at once, and a pool of
        one thread that runs a graph.
        """
        if concurrency not in self._started:
            started = (
                ThreadPoolExecutor(concurrency, "rankfold-work"),
                ThreadPoolExecutor(1, "rankfold-graph"),
            )
            self._started[concurrency] = started
        return self._started[concurrency]

    def close(self) -> None:
        """Wait for running tasks, then end all threads."""
        while self._started:
            for pool in reversed(self._started.popitem()[1]):
                pool.shutdown()


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads of this process as a place of execution; an ``Executor``, and its own ``Scheduler``.

    The graph runs in a thread of its own, so that the caller's thread is free to report progress and
    to be interrupted; blocked inside Dask it would notice Ctrl-C only when a segment ends.
    """

    budget: Budget
    pools: _Pools | None = field(default=None, compare=False, repr=False)
    """Pools that the scheduler of an open run keeps; None before a run opens it."""

    is_remote: ClassVar[bool] = False
    has_workers: ClassVar[bool] = False

    def limited_to(self, workers: int) -> Threads:
        """Return itself: there is one process."""
        return self

    def check(self) -> None:
        """Raise if the budget asks for a GPU that is missing."""
        device_of(self.budget.device)

    def facts(self) -> dict[str, Any]:
        """Kind and size of the place of execution, by name, for the record of a run."""
        return {"kind": "threads", "threads": self.budget.threads}

    @contextlib.contextmanager
    def open_scheduler(self, run: RunDirectory, kernels: Warmup) -> Iterator[Threads]:
        """Yield a scheduler with thread pools of its own; threads start with the first
        tasks, only a GPU at once.
        """
        device = device_of(self.budget.device)
        device.forget()  # a run before this one may have had the same name, and other data
        try:
            with contextlib.closing(_Pools()) as pools:
                yield replace(self, pools=pools)
        finally:
            device.forget()

    def members(self) -> tuple[str, ...]:
        """Empty: there are no other processes."""
        return ()

    def compute(
        self, root: Delayed, *, concurrency: int, watch: Callable[[], None], stop: Callable[[], bool]
    ) -> Any:
        """Compute the graph of ``root`` on ``concurrency`` threads, and return its value.

        ``watch`` is called meanwhile, and ``stop`` after an error: see ``Scheduler.compute``.
        """
        # A sweep's plan allows for memory that the caller holds, not for memory that its algebra has freed.
        return_freed_memory()
        pools = self.pools or _Pools()
        with contextlib.nullcontext() if self.pools else contextlib.closing(pools):
            pool, runner = pools.of(concurrency)
            # Not ``root.compute``: that would load distributed, 0.15 s and 15 MiB, to look for a client.
            future = runner.submit(get, dict(root.__dask_graph__()), root.key, pool=pool)
            try:
                while not wait([future], timeout=TICK_SECONDS).done:
                    watch()
                return future.result()
            except BaseException:
                stop()
                pools.close()  # waits for what still runs
                raise
