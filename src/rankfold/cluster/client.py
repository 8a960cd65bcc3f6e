"""Segments on the workers of a Dask client that the caller made and keeps."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from dask.delayed import Delayed

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


class Client:
    """A scheduler of ``Scheduler``'s protocol. Tasks and results that cross the wire are paths and
    numbers; the run folder must lie where all workers see it.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def compute(
        self, root: Delayed, *, concurrency: int, watch: Callable[[], None], stop: Callable[[], bool]
    ) -> Any:
        """See the protocol; ``concurrency`` is kept within each worker by the tasks themselves."""
        future = self._client.compute(root, retries=RETRIES, optimize_graph=False)
        try:
            while not future.done():
                watch()
                time.sleep(TICK_SECONDS)
            return future.result()
        except BaseException:
            future.cancel()
            while not all(self._client.run(stop).values()):
                time.sleep(TICK_SECONDS)
            raise
        finally:
            future.release()

    @property
    def workers(self) -> int:
        """Worker processes now connected."""
        return max(1, len(self._client.scheduler_info(n_workers=-1)["workers"]))

    @property
    def threads(self) -> int:
        """Threads of the busiest worker."""
        return max(self._client.nthreads().values(), default=1)
