"""Replace workers that have ended, and report when new ones end as fast as they are started.

Dask replaces nothing by itself, and does not notice a job that is canceled while it waits in the queue. The
watchdog checks the job or process of each worker every few seconds. A worker that has ended gets a successor
under a new name, since a scheduler may still hold the old name.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Any

from rankfold.pipeline.errors import ClusterError
from rankfold.pipeline.storage.journal import Journal

LOG = logging.getLogger("rankfold")

LOST_SECONDS = 120.0
"""Seconds after which a worker that has lost its connection counts as gone, whatever the state of its job."""

LONGEST_WAIT = 300.0
"""Longest time, in seconds, between two attempts to start workers that do not start, while others work."""

FindEnded = Callable[[dict[Any, Any], set[Any]], dict[Any, str]]
"""Function of the workers' jobs or processes by name, and of the names that the scheduler knows; returns, by
name, why workers have ended.
"""


class Watchdog:
    """Thread that keeps ``count`` workers in a ``SpecCluster`` of Dask, by replacing those that end.

    It calls ``find_ended`` at intervals of ``every_seconds``. A worker that has not registered
    ``register_seconds`` after its start counts as gone: jobs may wait in a queue for any time, processes may
    not. Losses are noted in the journal.
    """

    def __init__(
        self,
        cluster: Any,
        count: int,
        *,
        find_ended: FindEnded,
        every_seconds: float,
        register_seconds: float = math.inf,
        journal: Journal | None = None,
    ) -> None:
        self._journal = journal or Journal()
        self._cluster, self._count, self._find_ended, self._every = cluster, count, find_ended, every_seconds
        self._register_seconds = register_seconds
        self._names = itertools.count()
        self._first_asked: dict[Any, float] = {}
        self._last_seen: dict[Any, float] = {}
        self._with_successor: set[Any] = set()
        self._failures = 0
        self._not_before = 0.0
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
        """Raise if workers end as fast as they are started."""
        if self._trouble is not None:
            raise self._trouble

    def count_registered(self) -> int:
        """Number of workers that the scheduler knows."""
        return len(self._cluster.scheduler_info["workers"])

    def add_successor(self, name: Any) -> None:
        """Start a successor of the worker ``name``, which continues for now and gets no other at its end."""
        self._with_successor.add(name)
        self._cluster.loop.add_callback(self._add, name)

    def let_go(self, name: Any) -> None:
        """Remove the worker ``name``, which has left its work to others, and note that in the journal."""
        self._journal.note("handed over", worker=str(name))
        self._cluster.loop.add_callback(self._renew, [name])

    def _watch(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self._replace()
            except Exception as error:  # noqa: BLE001  # nothing else would replace lost workers
                LOG.warning("could not look after the workers, will try again: %s", error)

    def _replace(self) -> None:
        now, cluster = time.monotonic(), self._cluster
        here = {worker["name"] for worker in list(cluster.scheduler_info["workers"].values())}
        if here - self._last_seen.keys():
            self._failures = 0
        self._last_seen.update(dict.fromkeys(here, now))
        # Some take a while to close; they have their successors.
        workers = {name: worker for name, worker in cluster.workers.items() if name in cluster.worker_spec}
        losses = {**self._find_silent(workers, now), **self._find_ended(workers, here)}
        early = [name for name in losses if name not in self._last_seen]
        if early and now < self._not_before:
            losses = {name: why for name, why in losses.items() if name in self._last_seen}
            early = []
        self._failures += len(early)
        if early and not here and self._failures > max(3, self._count):
            self._give_up(losses[early[-1]])
        elif losses:
            for name, why in losses.items():
                if name not in self._with_successor:
                    LOG.warning("worker %s is gone%s: starting another", name, f" ({why})" if why else "")
                    self._journal.note("gone", worker=str(name), why=why)
            if here:
                self._not_before = now + min(LONGEST_WAIT, self._every * 2**self._failures)
            cluster.loop.add_callback(self._renew, list(losses))

    def _find_silent(self, workers: dict[Any, Any], now: float) -> dict[Any, str]:
        """Workers that have lost their connection though their end is not known (stopped, cut off, hung).

        ``workers`` are all, by name, and ``now`` is ``time.monotonic()``. Returns reasons by name.
        """
        self._first_asked = {name: self._first_asked.get(name, now) for name in workers}
        silent = {}
        for name in workers:
            if name in self._last_seen:
                if now - self._last_seen[name] > LOST_SECONDS:
                    silent[name] = "its connection is lost"
            elif now - self._first_asked[name] > self._register_seconds:
                silent[name] = f"it did not register within {self._register_seconds:.0f} s"
        return silent

    def _give_up(self, why: str) -> None:
        self._trouble = ClusterError(
            f"{self._failures} workers ended before they could begin; the last said: {why or 'nothing'}. If "
            f"they cannot reach the scheduler at {self._cluster.scheduler_address}, choose another "
            "interface: in the profile"
        )

    def _renew(self, names: list[Any]) -> None:
        """Replace workers under new names; runs in the cluster's own thread."""
        for name in names:
            if self._cluster.worker_spec.pop(name, None) is not None and name not in self._with_successor:
                self._add(name)
        self._cluster.scale(len(self._cluster.worker_spec))

    def _add(self, name: Any) -> None:
        successor = f"{str(name).partition('+')[0]}+{next(self._names)}"
        self._cluster.worker_spec[successor] = self._cluster.new_spec
        self._cluster.scale(len(self._cluster.worker_spec))
