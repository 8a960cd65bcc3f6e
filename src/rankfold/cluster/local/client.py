"""Segments on the workers of a Dask client."""

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
"""Attempts to get all workers ready, while some are lost."""

READY_WAIT_SECONDS = 5.0
"""Between two of them at most: in all they take longer than connections are broken that come back."""

LOSS_ERRORS = ("KilledWorker", "FutureCancelledError", "CancelledError", "CommClosedError", "NoWorkerError")
"""Errors of Dask that tell of workers or a scheduler that are gone."""

STEALING = {"distributed.scheduler.work-stealing": True}
"""Setting of a scheduler whose tasks hold a GPU: Dask hands those out at once, to the workers that are there,
so that one that comes later must take some from them."""

PAUSE_SHARE = 0.75
"""Share of a worker's memory limit that may be used; Dask pauses workers at 0.8."""

BASELINE_BYTES = 256 * 2**20
"""Interpreter, imports and compiled kernels of a worker, with room to spare (about 200 MiB measured)."""


def active_client() -> Any | None:
    """The client that is current in this process, if anything made one."""
    if "distributed" not in sys.modules:
        return None
    try:
        return sys.modules["distributed"].default_client()
    except ValueError:
        return None


class SomeClient:
    """A place that somebody else made and keeps: see ``Executor``."""

    is_remote = False  # may be, but who makes a client knows what its workers see

    def __init__(self, client: Any, memory: str | int | None) -> None:
        self.client = client
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        threads = max((worker["nthreads"] for worker in workers), default=1)
        self.budget = Budget(_working_memory(workers, memory), threads, max(1, len(workers)))

    def limited_to(self, workers: int) -> SomeClient:
        """See ``Executor``: workers of others are not ours to end."""
        return self

    def check(self) -> None:
        """See ``Executor``: what workers have is known when they come."""

    def facts(self) -> dict[str, Any]:
        """See ``Executor``."""
        return {"kind": "client", "workers": self.budget.workers, "threads": self.budget.threads}

    @contextlib.contextmanager
    def open_scheduler(self, run: RunDirectory, kernels: Warmup) -> Iterator[Client]:
        """See ``Executor``."""
        workers, watch = self.budget.workers, lambda: None
        with prepare_scheduler(self.client, run, kernels, workers=workers, watch=watch) as scheduler:
            yield scheduler


def _working_memory(workers: Iterable[dict[str, Any]], memory: str | int | None) -> int:
    """What one worker may use before Dask would pause it, which would be for ever."""
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
    """A scheduler over a client whose workers, now and later, ``workers`` in all, are ready for segments.

    ``watch`` is called a few times a second while a graph runs, and raises when there is no hope. Where
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
    """Print no traceback of workers that are lost while all are asked something at once.

    Dask raises the first such error; the others it leaves to asyncio, which logs them.
    """
    logging.getLogger("asyncio").addFilter(
        lambda record: not record.exc_info or type(record.exc_info[1]).__name__ not in LOSS_ERRORS
    )


def _make_ready(client: Any, plugin: Any, watch: Callable[[], None]) -> None:
    """Put a plugin on all workers, now and later. One that is lost while it gets ready is no reason to end:
    whoever comes in its place has the plugin from the scheduler.
    """
    for attempt in range(1, READY_ATTEMPTS + 1):
        try:
            # Again on those that are ready: they are as before, and were told nothing yet.
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
    """A scheduler of ``Scheduler``'s protocol. Tasks and results that cross the wire are paths and
    numbers; the run folder must lie where all workers see it.
    """

    client: Any
    check: Callable[[], None]
    has_workers: ClassVar[bool] = True
    resources: Mapping[str, int] = field(default_factory=dict)
    """What each task holds of its worker while it runs, by the names that workers give their resources."""

    def members(self) -> tuple[str, ...]:
        """See the protocol: workers that are about to be closed take nothing new."""
        self.check()
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        return tuple(at for at, worker in workers.items() if worker.get("status", "running") == "running")

    def compute(
        self, root: Delayed, *, concurrency: int, watch: Callable[[], None], stop: Callable[[], bool]
    ) -> Any:
        """See the protocol; ``concurrency`` is kept within each worker by the tasks themselves."""
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
        """Raise when no worker has what a task wants: Dask would wait for one for ever."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values() if self.resources else ()
        for name, amount in self.resources.items():
            if workers and all(worker.get("resources", {}).get(name, 0) < amount for worker in workers):
                raise ClusterError(
                    f"each task wants {amount} {name} and none of {len(workers)} workers offers that: start "
                    f"workers with --resources {name}={amount}, or leave gpus: out of the profile"
                )

    def _end(self, future: Any, stop: Callable[[], bool]) -> None:
        """Cancel, and wait until no segment is left on workers that still answer."""
        with contextlib.suppress(Exception):  # the error that led here is the one to tell
            future.cancel()
            while False in self.client.run(stop, on_error="return").values():
                time.sleep(TICK_SECONDS)
