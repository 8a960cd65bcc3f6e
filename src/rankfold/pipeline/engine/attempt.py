"""State of one process during one attempt at a sweep: workspaces, progress, and a request to stop.

A segment is a part of a sweep, the unit of work of a worker. Buffers outlive segments, since fresh ones would
cost a page fault for every 4 KiB. They do not outlive the attempt: each has a lease of its own, so a worker
that lives on cannot use the constants of one request for the next.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from rankfold.pipeline.errors import Interrupted

_LOCK = threading.Lock()
_ATTEMPTS: dict[str, Attempt] = {}
_COUNT = itertools.count()


class Attempt:
    """Workspaces, progress and request to stop of one attempt at a sweep, in this process."""

    def __init__(self, limit: int) -> None:
        self.reached: dict[int, int] = {}
        """Number of rows done of each stream (panels that are folded in order), in whatever process."""

        self.stopped = False
        self.ending: type[Exception] = Interrupted
        """Exception that a stopped segment raises."""

        self.active = 0
        self.idle: list[Any] = []
        self._gate = threading.BoundedSemaphore(limit)

    @contextlib.contextmanager
    def workspace(
        self, make: Callable[[], Any], prefer: Callable[[Any], bool] = lambda work: True
    ) -> Iterator[Any]:
        """Context with a workspace that an earlier segment left, or a new one from ``make()``.

        It waits while as many are in use as planned. Of several idle ones, one for which ``prefer`` returns
        True is taken first, for what it holds.
        """
        with self._gate:
            with _LOCK:
                self.active += 1
                work = min(self.idle, key=lambda idle: not prefer(idle), default=None)
                if work is not None:
                    self.idle = [idle for idle in self.idle if idle is not work]
            try:
                work = make() if work is None else work
                yield work
            finally:
                with _LOCK:
                    self.active -= 1
                    if work is not None:
                        self.idle.append(work)

    @contextlib.contextmanager
    def merging(self) -> Iterator[None]:
        """Context of a merge, which takes the place of a segment: the workspace of that is idle meanwhile."""
        with self._gate, self.working():
            yield

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Context in which a task counts as active, without a place: for tasks that wait for each other."""
        with _LOCK:
            self.active += 1
        try:
            yield
        finally:
            with _LOCK:
                self.active -= 1

    def reach(self, stream: int, rows: int) -> None:
        """Record that ``rows`` rows of a stream are folded in all; earlier numbers are replaced."""
        with _LOCK:
            self.reached[stream] = rows

    def end_if_stopped(self) -> None:
        """Raise ``ending`` if segments are to end; call this after a checkpoint."""
        if self.stopped:
            raise self.ending("stopped on request; the same command goes on from here")

    @property
    def rows_done(self) -> int:
        """Number of rows of all streams that are folded."""
        with _LOCK:
            return sum(self.reached.values())


def new_lease(folder: object) -> str:
    """Make a name for an attempt that no other attempt on any machine has had; it begins with ``folder``."""
    return f"{folder}@{os.uname().nodename}-{os.getpid()}-{time.time_ns()}-{next(_COUNT)}"


def attempt(lease: str, limit: int) -> Attempt:
    """The attempt with this lease (its unique name) in this process, made if there is none.

    It runs at most ``limit`` segments at once. Idle buffers of other attempts are freed.
    """
    with _LOCK:
        for name, other in _ATTEMPTS.items():
            if name != lease:
                other.idle.clear()
        return _ATTEMPTS.setdefault(lease, Attempt(limit))


def drop_idle() -> None:
    """Free the idle workspaces of all attempts in this process; those that a segment uses are kept."""
    with _LOCK:
        for each in _ATTEMPTS.values():
            each.idle.clear()


def stop_all(ending: type[Exception] = Interrupted) -> bool:
    """Ask every segment of this process to end after its panel, with a checkpoint; True if none is left.

    Segments end by raising ``ending``.
    """
    with _LOCK:
        for each in _ATTEMPTS.values():
            each.stopped, each.ending = True, ending
            each.idle.clear()
        return not any(each.active for each in _ATTEMPTS.values())


def note_progress(lease: str, rows: dict[int, int]) -> None:
    """Record the number of rows done of each stream in another process, ``rows``, for an attempt.

    It is ignored if the attempt has ended.
    """
    with _LOCK:
        own = _ATTEMPTS.get(lease)
        if own is not None:
            own.reached.update(rows)


def progress_of_all() -> dict[str, dict[int, int]]:
    """Number of rows done of each stream, by the number of the stream, for every attempt by its lease."""
    with _LOCK:
        return {lease: dict(own.reached) for lease, own in _ATTEMPTS.items() if own.reached}


def stop_attempt(lease: str) -> bool:
    """Ask the segments of an attempt to end after their panel, with a checkpoint; True if none is left.

    Only those in this process are asked and counted.
    """
    with _LOCK:
        own = _ATTEMPTS.get(lease)
        if own is not None:
            own.stopped = True
        return own is None or not own.active


def end_attempt(lease: str) -> None:
    """Forget the attempt with this lease in this process, and free its workspaces."""
    with _LOCK:
        _ATTEMPTS.pop(lease, None)
