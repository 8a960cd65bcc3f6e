"""Segments on the workers of a Dask client."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dask.delayed import Delayed

from rankfold.pipeline.attempt import note_reached
from rankfold.pipeline.errors import ClusterError
from rankfold.pipeline.scheduler import Budget

TICK_SECONDS = 0.2
RETRIES = 3


def active_client() -> Any | None:
    """The client that is current in this process, if anything made one."""
    if "distributed" not in sys.modules:
        return None
    try:
        return sys.modules["distributed"].default_client()
    except ValueError:
        return None


class SomeClient:
    """A place that somebody else made and keeps: see ``Place``."""

    def __init__(self, client: Any, memory_bytes: int) -> None:
        self.client = client
        workers = max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
        self.budget = Budget(memory_bytes, max(client.nthreads().values(), default=1), workers)

    def at_most(self, workers: int) -> SomeClient:
        """See ``Place``: workers of others are not ours to end."""
        return self

    def facts(self) -> dict[str, Any]:
        """See ``Place``."""
        return {"kind": "client", "workers": self.budget.workers, "threads": self.budget.threads}

    @contextlib.contextmanager
    def opened(self, folder: Path, dtype: np.dtype[Any]) -> Iterator[Client]:
        """See ``Place``."""
        with prepared(self.client, folder, dtype, watch=lambda: None) as scheduler:
            yield scheduler


@contextlib.contextmanager
def prepared(
    client: Any, folder: Path, dtype: np.dtype[Any], *, watch: Callable[[], None]
) -> Iterator[Client]:
    """A scheduler over a client whose workers, now and later, are ready for segments.

    ``watch`` is called a few times a second while a graph runs, and raises when there is no hope.
    """
    from rankfold.cluster.worker import TOPIC, RankfoldWorker

    client.register_plugin(RankfoldWorker(dtype))
    _require_shared(client, folder)
    client.subscribe_topic(TOPIC, _take_in)
    try:
        yield Client(client, watch)
    finally:
        with contextlib.suppress(Exception):  # a scheduler that is gone has neither topics nor workers
            client.unsubscribe_topic(TOPIC)
            client.unregister_worker_plugin(RankfoldWorker.name)


def _take_in(event: tuple[float, dict[str, Any]]) -> None:
    """Progress of a worker, as it comes in."""
    note_reached(event[1]["ticket"], dict(event[1]["reached"]))


def _require_shared(client: Any, folder: Path) -> None:
    """Raise for workers that do not see the files of the run."""
    blind = [
        address
        for address, sees in client.run(_sees, str(folder), on_error="return").items()
        if sees is False
    ]
    if blind:
        raise ClusterError(
            f"workers do not see {folder} (first: {blind[0]}): results and scratch must lie on a file system "
            "that all of them share. Choose another --out, and --scratch if given."
        )


def _sees(folder: str) -> bool:
    return Path(folder).is_dir()


@dataclass(frozen=True, slots=True)
class Client:
    """A scheduler of ``Scheduler``'s protocol. Tasks and results that cross the wire are paths and
    numbers; the run folder must lie where all workers see it.
    """

    client: Any
    check: Callable[[], None]

    def compute(
        self, root: Delayed, *, concurrency: int, watch: Callable[[], None], stop: Callable[[], bool]
    ) -> Any:
        """See the protocol; ``concurrency`` is kept within each worker by the tasks themselves."""
        future = self.client.compute(root, retries=RETRIES, optimize_graph=False)
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        try:
            while not done.wait(TICK_SECONDS):
                watch()
                self.check()
            return future.result()
        except BaseException:
            future.cancel()
            while False in self.client.run(stop, on_error="return").values():
                time.sleep(TICK_SECONDS)
            raise
        finally:
            future.release()
