"""What a sweep over rows does with each panel: the contract that all folds fulfill.

Panels of a segment come one after the other: the next is read while the caller works, if reads wait.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.storage.checkpoint import State


class Fold(Protocol):
    """What a sweep does with each panel. Pickles; holds paths and small arrays, never an open store."""

    @property
    def cut(self) -> Cut:
        """Panels and streams of the long axis."""

    @property
    def slots(self) -> int:
        """Buffers for panels: 2 to read ahead while working, 1 not to."""

    @property
    def row_seconds(self) -> float:
        """Nominal time of one row of one panel, to cut segments by."""

    def start(self) -> State:
        """Accumulator of no rows."""

    def workspace(self) -> Any:
        """Everything a segment needs to allocate."""

    def read(self, work: Any, start: int, stop: int, slot: int) -> None:
        """Fetch rows ``start:stop`` into a slot."""

    def step(self, state: State, work: Any, start: int, stop: int, slot: int) -> None:
        """Fold the panel in a slot into ``state``, in place."""

    def merge(self, total: State, other: State) -> None:
        """Add ``other`` to ``total``, in place."""


# Read ahead ---------------------------------------------------------------------------------------


WAITING_SHARE = 0.2
"""A read that waits for more than this share of the work on a panel is worth a thread of its own."""

LOOK_ANEW = 64
"""Panels between two reads that are timed without a competing thread."""


def panels_of(fold: Fold, work: Any, first: int, until: int) -> Generator[tuple[int, int, int, int]]:
    """Panels as they come in; the next one is read while the caller works, if reads wait for anything.

    A read from the page cache is a copy: a thread for it would only compete with the products for the
    same cores (measured: a pass takes 1.4 times as long). A read that waits for a disk or a network is
    told by its wall time beyond its processor time, and looked at anew every so often.
    """
    waited, worked = 0.0, 0.0
    pending: Future[float] | None = None
    with ThreadPoolExecutor(1, "rankfold-read") as reader:
        for panel in range(first, until):
            start, stop = fold.cut.panel(panel)
            slot = panel % fold.slots
            waited = _read(fold, work, start, stop, slot) if pending is None else pending.result()
            pending = None
            ahead = fold.slots > 1 and panel + 1 < until and panel % LOOK_ANEW
            if ahead and waited > WAITING_SHARE * worked:
                pending = reader.submit(_read, fold, work, *fold.cut.panel(panel + 1), 1 - slot)
            began = time.perf_counter()
            yield panel, start, stop, slot
            worked = time.perf_counter() - began


def _read(fold: Fold, work: Any, start: int, stop: int, slot: int) -> float:
    """Read a panel; seconds spent waiting rather than working."""
    wall, cpu = time.perf_counter(), time.thread_time()
    fold.read(work, start, stop, slot)
    return time.perf_counter() - wall - (time.thread_time() - cpu)
