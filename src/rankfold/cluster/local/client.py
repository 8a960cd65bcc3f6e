"""Run graphs of segments (units of work of 10 to 60 seconds) on the workers of a Dask client."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dask.delayed import Delayed

from rankfold.pipeline.engine.memory import available_bytes
from rankfold.pipeline.engine.scheduler import Budget, Warmup
from rankfold.pipeline.errors import ClusterError, InputError
from rankfold.pipeline.storage.run_directory import RunDirectory
from rankfold.pipeline.units import format_bytes, parse_bytes

LOG = logging.getLogger("rankfold")

TICK_SECONDS = 0.2
RETRIES = 3

READY_ATTEMPTS = 10
"""Largest number of attempts to register the plugin on all workers, while some are lost."""

READY_WAIT_SECONDS = 5.0
"""Longest pause between two such attempts; all pauses together outlast a connection that is restored."""

LOSS_ERRORS = ("KilledWorker", "FutureCancelledError", "CancelledError", "CommClosedError", "NoWorkerError")
"""Names of Dask's errors that mean lost workers or a lost scheduler."""

STEALING = {"distributed.scheduler.work-stealing": True}
"""Setting of a scheduler whose tasks hold a GPU. Dask assigns those at once, to the workers that exist, so
that a worker that starts later must steal some from them.
"""

PAUSE_SHARE = 0.75
"""Share of a worker's memory limit that may be used; Dask pauses workers at 0.8."""

BASELINE_BYTES = 256 * 2**20
"""Memory of a worker before it works: interpreter, imports and compiled kernels, with a
margin (about 200 MiB measured).
"""


def active_client() -> Any | None:
    """The current Dask client of this process; None if there is none."""
    if "distributed" not in sys.modules:
        return None
    try:
        return sys.modules["distributed"].default_client()
    except ValueError:
        return None


class SomeClient:
    """The workers of a Dask client that somebody else made and closes; an ``Executor``."""

    is_remote = False  # may be, but who makes a client knows what its workers see

    def __init__(self, client: Any, memory: str | int | None) -> None:
        self.client = client
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        threads = max((worker["nthreads"] for worker in workers), default=1)
        self.budget = Budget(_working_memory(workers, memory), threads, max(1, len(workers)))

    def limited_to(self, workers: int) -> SomeClient:
        """Return itself: the workers of a client that the caller made are not ended."""
        return self

    def check(self) -> None:
        """No-op: memory and threads of the workers are known only when they have started."""

    def facts(self) -> dict[str, Any]:
        """Kind and size of the place of execution, by name, for the record of a run."""
        return {"kind": "client", "workers": self.budget.workers, "threads": self.budget.threads}

    @contextlib.contextmanager
    def open_scheduler(self, run: RunDirectory, kernels: Warmup) -> Iterator[Client]:
        """Prepare the workers of the client for a run, and yield the scheduler."""
        workers, watch = self.budget.workers, lambda: None
        with prepare_scheduler(self.client, run, kernels, workers=workers, watch=watch) as scheduler:
            yield scheduler


def _working_memory(workers: Iterable[dict[str, Any]], memory: str | int | None) -> int:
    """Working memory of one worker in bytes: ``memory``, or what Dask allows before it pauses a worker.

    ``workers`` are the entries of Dask's ``scheduler_info``. Raises ``InputError`` if ``memory`` is more than
    that, since a paused worker would never resume. Where no worker has a limit, the default is half of the
    memory that is free here.
    """
    limits = [worker["memory_limit"] for worker in workers if worker.get("memory_limit")]
    most = int(PAUSE_SHARE * min(limits)) - BASELINE_BYTES if limits else None
    request = None if memory is None else parse_bytes(memory)
    if most is not None and (request or 0) > most:
        raise InputError(
            f"workers have {format_bytes(min(limits))} each, where Dask pauses them near "
            f"{format_bytes(most + BASELINE_BYTES)}: memory= (--memory) {format_bytes(request or 0)} above "
            "their "
            f"baseline does not fit. Give at most {max(0, most) // 2**20}MiB, or start them with a larger "
            "memory_limit"
        )
    return request or most or available_bytes() // 2


@contextlib.contextmanager
def prepare_scheduler(
    client: Any,
    run: RunDirectory,
    kernels: Warmup,
    *,
    workers: int,
    watch: Callable[[], None],
    gpus: int = 0,
) -> Iterator[Client]:
    """Prepare all workers of a Dask client for a run, also those that start later, and yield a scheduler.

    ``kernels`` are compiled on each. ``workers`` is their number, by which they space their reports.
    ``watch`` is called a few times a second while a graph runs, and raises if the workers cannot continue. If
    workers have ``gpus``, a task holds one of them.
    """
    from rankfold.cluster.local.reports import take_reports
    from rankfold.cluster.local.worker import RankfoldWorker, unseen_folder

    leave_losses_to_the_watchdog()
    marks, name = run.marks(), f"rankfold-{uuid.uuid4().hex[:8]}"
    for address, folder in client.run(unseen_folder, marks, on_error="return").items():
        if isinstance(folder, str):
            raise ClusterError(
                f"worker {address} does not see {folder} as the driver does: results and scratch must lie on "
                "a file system that all workers share. Choose another out= (--out), and scratch= (--scratch) "
                "if given."
            )
    _make_ready(client, RankfoldWorker(name, kernels, marks, run.journal, workers=workers), watch)
    try:
        with take_reports(client, name):
            yield Client(client, watch, {"GPU": 1} if gpus else {})
    finally:
        with contextlib.suppress(Exception):  # a scheduler that is gone has no workers
            client.unregister_worker_plugin(name)


@functools.cache
def leave_losses_to_the_watchdog() -> None:
    """Log no traceback of workers that are lost during a request to all of them.

    Dask raises the first such error; the others it leaves to asyncio, which logs them.
    """
    logging.getLogger("asyncio").addFilter(
        lambda record: not record.exc_info or type(record.exc_info[1]).__name__ not in LOSS_ERRORS
    )


def _make_ready(client: Any, plugin: Any, watch: Callable[[], None]) -> None:
    """Register a Dask plugin on all workers, also those that start later.

    A worker that is lost meanwhile does not end the run: its successor gets the plugin from the scheduler.
    After each failed attempt ``watch`` is called, which raises if the workers cannot continue.
    """
    for attempt in range(1, READY_ATTEMPTS + 1):
        try:
            # Repeated on workers that are ready: the second time changes nothing, they have no work yet.
            client.register_plugin(plugin)
            return
        except Exception as error:
            if type(error).__name__ not in LOSS_ERRORS:
                raise
            if attempt == READY_ATTEMPTS:
                raise ClusterError(
                    f"{READY_ATTEMPTS} times in a row workers were lost while they got ready ({error}). See "
                    "their logs: a worker that ends there most often has too little memory"
                ) from error
            watch()
            time.sleep(min(READY_WAIT_SECONDS, TICK_SECONDS * 2**attempt))


@dataclass(frozen=True, slots=True)
class Client:
    """A ``Scheduler`` that runs graphs on the workers of a Dask client.

    Tasks and results that are sent are small: paths and numbers. All workers must see the run folder.
    """

    client: Any
    check: Callable[[], None]
    has_workers: ClassVar[bool] = True
    resources: Mapping[str, int] = field(default_factory=dict)
    """Amounts that each task holds while it runs, by the names that workers give their resources."""

    def members(self) -> tuple[str, ...]:
        """Addresses of the workers that accept tasks; those about to be closed are left out."""
        self.check()
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        return tuple(at for at, worker in workers.items() if worker.get("status", "running") == "running")

    def compute(
        self, root: Delayed, *, concurrency: int, watch: Callable[[], None], stop: Callable[[], bool]
    ) -> Any:
        """Compute the graph of ``root`` on the workers, and return its value: see ``Scheduler.compute``.

        ``concurrency`` is not used here: tasks that were made with it wait for each other within a worker.
        """
        self._require_resources()
        resources = dict(self.resources) or None
        future = self.client.compute(root, retries=RETRIES, optimize_graph=False, resources=resources)
        completion = threading.Event()
        future.add_done_callback(lambda _: completion.set())
        try:
            while not completion.wait(TICK_SECONDS):
                watch()
                self.check()
            return future.result()
        except BaseException as error:
            self._end(future, stop)
            if type(error).__name__ in LOSS_ERRORS:
                raise ClusterError(
                    f"the workers were lost, or one task ended too many of them: {error}. What was finished "
                    "is kept; see the logs of the workers, and give the same command again to go on"
                ) from error
            raise
        finally:
            future.release()

    def _require_resources(self) -> None:
        """Raise if no worker offers the resources that tasks need: Dask would wait for
        such a worker for ever.
        """
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values() if self.resources else ()
        for name, amount in self.resources.items():
            if workers and all(worker.get("resources", {}).get(name, 0) < amount for worker in workers):
                raise ClusterError(
                    f"each task wants {amount} {name} and none of {len(workers)} workers offers that: start "
                    f"workers with --resources {name}={amount}, or leave gpus: out of the profile"
                )

    def _end(self, future: Any, stop: Callable[[], bool]) -> None:
        """Cancel the graph, and wait until ``stop`` returns True on all workers that still answer.

        It does when no segment is left there.
        """
        with contextlib.suppress(Exception):  # the error that led here is the one to report
            future.cancel()
            while False in self.client.run(stop, on_error="return").values():
                time.sleep(TICK_SECONDS)
