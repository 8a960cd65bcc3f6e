"""Processor seconds of the thread of a scheduler, those of heartbeats apart.

Workers send heartbeats for as long as they are there, fewer when they are busy, and longer ones. What a
scheduler takes for them while it is idle is therefore not what it takes for them beside tasks. Here each
callback of the event loop is timed, and belongs to heartbeats if it is of a connection over which those come:
tasks and callbacks inherit the context of the one that made them. What the loop itself takes, to wait for
events and to find their callbacks, is shared out by the number of callbacks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import astuple, dataclass, replace
from typing import Any

_OF_HEARTBEATS = ContextVar[bool]("_OF_HEARTBEATS")
"""Whether heartbeats come over the connection that a callback is of."""


@dataclass(slots=True)
class LoopTime:
    """What the thread of an event loop took, in seconds, and how many callbacks there were."""

    thread: float = 0.0
    callbacks: float = 0.0
    heartbeat_callbacks: float = 0.0
    count: int = 0
    heartbeat_count: int = 0

    def __sub__(self, before: LoopTime) -> LoopTime:
        return LoopTime(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))

    @property
    def heartbeats(self) -> float:
        """Seconds of the thread, with their share of what the loop itself took."""
        loop = self.thread - self.callbacks
        return self.heartbeat_callbacks + loop * self.heartbeat_count / max(1, self.count)

    @property
    def others(self) -> float:
        """Seconds of the thread for all that is not a heartbeat."""
        return self.thread - self.heartbeats


class LoopClock:
    """Of the loop in which the scheduler of a cluster runs, and its client's messages are handled."""

    def __init__(self, cluster: Any) -> None:
        self._cluster, self._taken = cluster, LoopTime()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Time its callbacks."""
        handlers, run, taken = self._cluster.scheduler.handlers, asyncio.Handle._run, self._taken
        heartbeat = handlers["heartbeat_worker"]

        def note(**message: Any) -> Any:
            _OF_HEARTBEATS.set(True)
            return heartbeat(**message)

        def timed(handle: Any) -> None:
            context, began = handle._context, time.thread_time()
            run(handle)
            seconds = time.thread_time() - began
            of_heartbeats = context.get(_OF_HEARTBEATS, False)
            taken.callbacks += seconds
            taken.count += 1
            taken.heartbeat_callbacks += seconds * of_heartbeats
            taken.heartbeat_count += of_heartbeats

        handlers["heartbeat_worker"] = note
        asyncio.Handle._run = timed  # type: ignore[method-assign]
        try:
            yield
        finally:
            asyncio.Handle._run = run  # type: ignore[method-assign]
            handlers["heartbeat_worker"] = heartbeat

    def read(self) -> LoopTime:
        """What was taken until now."""

        async def measure() -> LoopTime:
            return replace(self._taken, thread=time.thread_time())

        now: LoopTime = self._cluster.sync(measure)
        return now
