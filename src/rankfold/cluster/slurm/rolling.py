"""Replace workers before their jobs reach the time limit, so that no task waits and nothing is done twice.

A segment is the unit of work of a worker, 10 to 60 seconds. A successor is requested first. When one has
registered, the oldest worker is asked to hand over: it takes no more segments, its running segments leave a
checkpoint once they have added the rows that they hold, and go to other workers, and then it is closed. This
is done for one worker at a time, unless time is so short that all workers about to end hand over together,
with or without successors. The thread never blocks: each check finds the workers that are due and those
without segments.

The trap: a worker that is closed before its segments have ended hands nothing over. Dask starts them
elsewhere at once, from checkpoints that are older than those they are about to leave.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from rankfold.cluster.local.watchdog import Watchdog

LOG = logging.getLogger("rankfold")

POLL_SECONDS = 1.0

HAND_OVER_POLL = 0.1
"""Seconds between checks while segments leave their checkpoints."""

LAST_SECONDS = 120.0
"""Seconds before a worker's end when it hands over even without a successor; half the
margin if that is shorter.
"""

END_SECONDS = 10.0
"""Seconds that a check in progress may take to finish when the run ends."""


class Rolling:
    """Replaces the workers of a watchdog (``watchdog.Watchdog``) before their jobs
    reach their time limits.
    """

    def __init__(
        self,
        cluster: Any,
        client: Any,
        watchdog: Watchdog,
        *,
        remaining_seconds: Callable[[Any], float],
        margin_seconds: float,
        every_seconds: float = POLL_SECONDS,
    ) -> None:
        self._cluster, self._client, self._watchdog = cluster, client, watchdog
        self._remaining_seconds, self._margin, self._every = remaining_seconds, margin_seconds, every_seconds
        self._last = min(margin_seconds / 2, LAST_SECONDS)
        self._earlier_workers: set[Any] = set()
        self._due: set[Any] = set()
        self._draining: set[Any] = set()
        self._replaced_workers: set[Any] = set()
        self._come = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rankfold-rolling", daemon=True)

    def __enter__(self) -> Rolling:
        self._earlier_workers |= self._here().keys()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(END_SECONDS)

    def _watch(self) -> None:
        while not self._stop.wait(min(self._every, HAND_OVER_POLL) if self._draining else self._every):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  # the watchdog replaces those that end in any case
                if not self._stop.is_set():
                    LOG.warning("could not replace a worker before its end, will try again: %s", error)

    def _here(self) -> dict[Any, str]:
        """Addresses of the registered workers by name."""
        workers = dict(self._cluster.scheduler_info["workers"])
        return {info["name"]: address for address, info in workers.items()}

    def _look(self) -> None:
        here = self._here()
        remaining_seconds = {
            name: self._remaining_seconds(name) for name in here if name not in self._replaced_workers
        }
        for name in remaining_seconds.keys() - self._due:
            if remaining_seconds[name] <= self._margin:
                self._due.add(name)
                LOG.info(
                    "worker %s has %.0f s left: starting another in its place", name, remaining_seconds[name]
                )
                self._watchdog.add_successor(name)
        self._draining &= remaining_seconds.keys()
        waiting = sorted(
            remaining_seconds.keys() & self._due - self._draining, key=remaining_seconds.__getitem__
        )
        # Jobs are alike: a new worker takes the place of the first of those that are due.
        self._come = min(self._come + len(here.keys() - self._earlier_workers), len(waiting))
        self._earlier_workers |= here.keys()
        urgent = [name for name in waiting if remaining_seconds[name] <= self._last]
        going = urgent or ([] if self._draining else waiting[: min(1, self._come)])
        if going:
            self._client.retire_workers([here[name] for name in going], close_workers=False, remove=False)
            self._draining |= {*going}
            self._come = max(0, self._come - len(going))
        if self._draining:
            self._close(
                {name: here[name] for name in sorted(self._draining, key=remaining_seconds.__getitem__)},
                remaining_seconds,
            )

    def _close(self, draining: dict[Any, str], remaining_seconds: dict[Any, float]) -> None:
        """Close the workers that have no segment left, or no time to wait until theirs have ended."""
        from rankfold.cluster.local.worker import hand_over

        busy = self._client.run(hand_over, workers=[*draining.values()], on_error="return")
        going = [
            name for name, at in draining.items() if busy.get(at) is not False or remaining_seconds[name] <= 0
        ]
        if not going or self._stop.is_set():
            return
        self._client.retire_workers([draining[name] for name in going], close_workers=True, remove=True)
        self._draining -= {*going}
        self._replaced_workers |= {*going}
        for name in going:
            self._watchdog.let_go(name)
            LOG.info("worker %s has handed over and is closed", name)
