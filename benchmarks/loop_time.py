"""Processor seconds of the thread of a scheduler, those of heartbeats apart.

Workers send heartbeats for as long as they are there, fewer when they are busy, and longer ones. What a
scheduler takes for them while it is idle is therefore not what it takes for them beside tasks. Here a
callback of the event loop belongs to heartbeats if it is of a connection over which those come: tasks and
callbacks inherit the context of the one that made them. What the loop itself takes after a callback, to wait
for events and to find the next, goes with it. The clock is read where a heartbeat follows something else, or
the other way around, and not for each callback: to read it is a call of the system, and there are some twenty
callbacks for each task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

_OF_HEARTBEATS = ContextVar[bool]("_OF_HEARTBEATS")
"""Whether heartbeats come over the connection that a callback is of."""


@dataclass(frozen=True, slots=True)
class LoopTime:
    """What the thread of an event loop took, in seconds."""

    heartbeats: float
    others: float

    def __sub__(self, before: LoopTime) -> LoopTime:
        return LoopTime(self.heartbeats - before.heartbeats, self.others - before.others)


class LoopClock:
    """Of the loop in which the scheduler of a cluster runs, and its client's messages are handled."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._taken = {True: 0.0, False: 0.0}
        self._of_heartbeats, self._since = False, 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Tell its heartbeats from all else. There is no other loop in the process."""
        handlers, run = self._cluster.scheduler.handlers, asyncio.Handle._run
        heartbeat = handlers["heartbeat_worker"]

        def note(**message: Any) -> Any:
            _OF_HEARTBEATS.set(True)
            return heartbeat(**message)

        def told(handle: Any) -> None:
            now = handle._context.get(_OF_HEARTBEATS, False)
            if now is not self._of_heartbeats:
                self._turn(now)
            run(handle)

        async def begin() -> None:
            self._since = time.thread_time()

        self._cluster.sync(begin)
        handlers["heartbeat_worker"] = note
        asyncio.Handle._run = told  # type: ignore[method-assign]
        try:
            yield
        finally:
            asyncio.Handle._run = run  # type: ignore[method-assign]
            handlers["heartbeat_worker"] = heartbeat

    def read(self) -> LoopTime:
        """What was taken until now."""

        async def measure() -> LoopTime:
            self._turn(self._of_heartbeats)
            return LoopTime(self._taken[True], self._taken[False])

        now: LoopTime = self._cluster.sync(measure)
        return now

    def _turn(self, of_heartbeats: bool) -> None:
        """In the thread of the loop."""
        until = time.thread_time()
        self._taken[self._of_heartbeats] += until - self._since
        self._of_heartbeats, self._since = of_heartbeats, until
