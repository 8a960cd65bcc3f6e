"""Streams, events, and what is counted.

Functions on arrays are carried out at once. Copies on a stream of their own wait until something behind
them is waited for (``COUNTS.late``, else they are made at once): what is used too early is rubbish, and
what is overwritten too early is wrong. Copies to the host show when the host has waited, not before.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Counts:
    """What has crossed the border, and what was allocated."""

    up: int = 0
    """Bytes to the device."""

    down: int = 0
    bytes_now: int = 0
    bytes_most: int = 0
    pinned_bytes: int = 0
    limit: int = 0
    late: bool = True
    """Whether copies are made as late as they may be; at once, if not."""

    stand_in: int = 0
    """Which stand-in of this process it is."""

    lock: Any = field(default_factory=threading.RLock)
    _waits: Any = field(default_factory=threading.local)

    @property
    def waits(self) -> int:
        """Numbers that this thread has looked at, and streams and events that it has waited for."""
        return getattr(self._waits, "count", 0)

    @waits.setter
    def waits(self, count: int) -> None:
        self._waits.count = count


COUNTS = Counts()


class Stream:
    """An order of copies."""

    null: Stream

    def __init__(self, *, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        self._work: collections.deque[Callable[[], None]] = collections.deque()
        self._arrivals: list[Callable[[], None]] = []
        self._done = 0

    def __enter__(self) -> Stream:
        _CURRENT.stack = [*_stack(), self]
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.stack = _stack()[:-1]

    def use(self) -> Stream:
        """Have what this thread computes next go to it."""
        _CURRENT.stack = [self]
        return self

    def enqueue(self, work: Callable[[], None]) -> None:
        """Do something in the order of the stream."""
        with COUNTS.lock:
            self._work.append(work)
            if not COUNTS.late or self is current_stream():
                self.drain()

    def arrive(self, arrival: Callable[[], None]) -> None:
        """Show on the host when it has waited."""
        with COUNTS.lock:
            self._arrivals.append(arrival)

    def drain(self, until: int | None = None) -> None:
        """Do what waits, or as far as its ``until``-th entry since the stream was made."""
        with COUNTS.lock:
            while self._work and (until is None or self._done < until):
                self._done += 1
                self._work.popleft()()

    def land(self) -> None:
        """Show on the host what has been copied to it."""
        with COUNTS.lock:
            arrivals, self._arrivals = self._arrivals, []
            for arrival in arrivals:
                arrival()

    def synchronize(self) -> None:
        """Wait for all of it."""
        COUNTS.waits += 1
        self.drain()
        self.land()

    def record(self, event: Event | None = None) -> Event:
        """The place that the stream has come to."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Do nothing more before an event."""
        self.enqueue(event.reach)


class Event:
    """A place in a stream."""

    def __init__(
        self, *, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        self._stream: Stream | None = None
        self._place = 0

    def record(self, stream: Stream | None = None) -> None:
        """Be the place that a stream has come to."""
        with COUNTS.lock:
            self._stream = stream or current_stream()
            self._place = self._stream._done + len(self._stream._work)

    @property
    def done(self) -> bool:
        """Whether all before it is done."""
        return self._stream is None or self._stream._done >= self._place

    def reach(self) -> None:
        """Have all before it done."""
        if self._stream is not None:
            self._stream.drain(self._place)

    def synchronize(self) -> None:
        """Wait for it."""
        COUNTS.waits += 1
        self.reach()
        if self._stream is not None:
            self._stream.land()


_CURRENT = threading.local()
Stream.null = Stream()


def _stack() -> list[Stream]:
    return getattr(_CURRENT, "stack", None) or [Stream.null]


def current_stream() -> Stream:
    """Where this thread computes."""
    return _stack()[-1]
