"""Replaces workers that are gone, and says when there is no hope.

Dask replaces nothing by itself, and a job that is cancelled while it waits in the queue is missed by
nobody. Here each worker is asked for, by its job or process, every few seconds; whoever has ended gets a
successor under a new name, since a scheduler may still hold the old one's.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from typing import Any

from rankfold.pipeline.errors import ClusterError

LOG = logging.getLogger("rankfold")


class Watchdog:
    """Keeps ``wanted`` workers in a ``SpecCluster``."""

    def __init__(
        self,
        cluster: Any,
        wanted: int,
        *,
        ended: Callable[[dict[Any, Any]], dict[Any, str]],
        every_seconds: float,
    ) -> None:
        """``ended`` takes workers by name and returns those that have ended, with what is known of why."""
        self._cluster, self._wanted, self._ended, self._every = cluster, wanted, ended, every_seconds
        self._names = itertools.count()
        self._seen: set[Any] = set()
        self._failures = 0
        self._trouble: ClusterError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rankfold-watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise when workers end as fast as they are started."""
        if self._trouble is not None:
            raise self._trouble

    def registered(self) -> int:
        """Workers that the scheduler knows."""
        return len(self._cluster.scheduler_info["workers"])

    def _watch(self) -> None:
        while not self._stop.wait(self._every):
            self._replace()

    def _replace(self) -> None:
        cluster = self._cluster
        here = {worker["name"] for worker in list(cluster.scheduler_info["workers"].values())}
        if here - self._seen:
            self._failures = 0
        self._seen |= here
        gone = self._ended(dict(cluster.workers))
        for name, why in gone.items():
            self._failures += name not in self._seen
            LOG.warning("worker %s is gone%s: starting another", name, f" ({why})" if why else "")
        if self._failures > max(3, self._wanted):
            self._trouble = ClusterError(
                f"{self._failures} workers ended before they could begin; the last said: "
                f"{next(reversed(gone.values()), '') or 'nothing'}"
            )
            return
        if gone:
            cluster.loop.add_callback(self._renew, list(gone))

    def _renew(self, names: list[Any]) -> None:
        """In the cluster's own thread: new names for new workers."""
        for name in names:
            if self._cluster.worker_spec.pop(name, None) is not None:
                successor = f"{str(name).partition('+')[0]}+{next(self._names)}"
                self._cluster.worker_spec[successor] = self._cluster.new_spec
        self._cluster.scale(len(self._cluster.worker_spec))
