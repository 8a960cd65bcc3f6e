"""Many workers of Dask in one process, each with an engine of its own, whose segments sleep.

What a worker does besides its segments is the product's: checkpoints, merges, the journal, progress. What
real workers have each for themselves and these would share, the state of attempts, is kept apart here by the
worker that a thread or a callback belongs to.

    python benchmarks/scale_workers.py tcp://127.0.0.1:8786 --count 512 --folder r.zarr.run --out counts.json
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import itertools
import json
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Worker
from distributed.worker import _worker_cvar as current_worker

from rankfold.pipeline.engine import attempt
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.sweep import SEGMENT_SECONDS

ROWS = "rows"
"""The one sum of a fold that sleeps."""


@dataclass(slots=True)
class Clock:
    """Until when a segment sleeps: a panel that came late makes the next one no later."""

    due: float = 0.0
    row: int = -1
    """The row that the next panel of the same segment begins with."""

    def sleep(self, seconds: float, start: int, stop: int, *, until: float) -> None:
        """Go on by a panel, and sleep until then if that is so many seconds ahead."""
        self.due = (self.due if start == self.row else time.monotonic()) + seconds
        self.row = stop
        ahead = self.due - time.monotonic()
        if ahead > until:
            time.sleep(ahead)


@dataclass(frozen=True)
class SleepingFold:
    """A fold that takes the time of another, and nothing else: the contract is ``fold.Fold``."""

    cut: Cut
    row_seconds: float
    """Nominal, of the fold whose place it takes: segments are cut by it."""

    seconds: float
    """That a row takes here."""

    merge_seconds: float
    """That an accumulator takes here to be read and added."""

    numbers: int = 0
    """Of an accumulator besides the count of its rows: to be written and merged as real ones are."""

    nap_seconds: float = 0.0
    """Sleeps are longer than that, but for the last one of a segment."""

    slots: int = 1
    resident = frozenset[str]()
    device_bytes = 0

    @functools.cached_property
    def _ends(self) -> frozenset[int]:
        """Rows where segments end: those of a stream that is cut by time end at these and before."""
        cut = self.cut
        step = max(1, int(SEGMENT_SECONDS / self.row_seconds // cut.panel_rows))
        return frozenset(
            int(cut.panels[until])
            for first, last in itertools.pairwise(cut.streams.tolist())
            for until in (*range(first + step, last, step), last)
        )

    def start(self) -> dict[str, Any]:
        """No rows."""
        return {ROWS: np.zeros(1, np.int64), "sums": np.zeros(self.numbers)}

    def workspace(self, device: Device = HOST) -> Clock:
        """See ``Fold``."""
        return Clock()

    def read(self, work: Clock, start: int, stop: int, slot: int) -> None:
        """Nothing is read."""

    def step(self, state: dict[str, Any], work: Clock, start: int, stop: int, slot: int) -> None:
        """Sleep, and count rows: at the end each of them was folded once."""
        # Once for a few panels, each of which would wake a thread of hundreds in one process.
        ends = stop in self._ends
        work.sleep(self.seconds * (stop - start), start, stop, until=0.0 if ends else self.nap_seconds)
        state[ROWS] += stop - start

    def merge(self, total: dict[str, Any], other: dict[str, Any]) -> None:
        """Add up, and take as long as the accumulators of the other fold would."""
        time.sleep(self.merge_seconds)
        for name, values in other.items():
            total[name] += values


@dataclass(frozen=True)
class NothingToCompile:
    """See ``Warmup``."""

    def warm(self) -> None:
        """Nothing."""


class Attempts:
    """Attempts by name, those of the worker that asks."""

    def __init__(self) -> None:
        self._own: dict[Any, dict[str, attempt.Attempt]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own.setdefault(current_worker.get(None), {}), name)


class SimulatedWorker(Worker):
    """Starts plugins, and tells them of tasks, in a context that knows the worker."""

    async def plugin_add(self, *positions: Any, **names: Any) -> Any:
        """See ``Worker``."""
        with self._as_current():
            return await super().plugin_add(*positions, **names)

    def handle_stimulus(self, *events: Any) -> None:
        """See ``Worker``."""
        with self._as_current():
            super().handle_stimulus(*events)

    @contextlib.contextmanager
    def _as_current(self) -> Iterator[None]:
        token = current_worker.set(self)
        try:
            yield
        finally:
            current_worker.reset(token)


KINDS = {
    "os.rename": "rename",
    "os.remove": "remove",
    "os.mkdir": "mkdir",
    "os.scandir": "list",
    "os.listdir": "list",
}
"""Events of the interpreter, as they are counted."""


@dataclass
class Calls:
    """What a process asks of the file system under a folder, by kind; calls that fail count too."""

    folder: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def watch(self) -> None:
        """Count from now on, for the rest of the process. ``stat`` is not told by the interpreter."""
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" and event not in KINDS:
            return
        path = arguments[0]
        if not isinstance(path, str) or not path.startswith(self.folder):
            return
        kind = KINDS.get(event, "open")
        if event == "open":
            flags = arguments[2] or 0
            name = path.rpartition("/")[2]
            fresh = flags & 0o100 and not name.endswith(".jsonl")  # O_CREAT; journals go on
            kind = "create" if fresh else "open"
        with self._lock:
            self.counts[kind] += 1


async def serve(scheduler: str, count: int, calls: Calls, out: Path) -> None:
    """Workers until their scheduler ends; then what they asked of the file system, and processor time."""
    workers = [
        SimulatedWorker(
            scheduler,
            nthreads=1,
            memory_limit=0,
            name=f"sleeper-{i}",
            dashboard=False,
            local_directory=calls.folder,
        )
        for i in range(count)
    ]
    for first in range(0, count, 32):
        await asyncio.gather(*workers[first : first + 32])
    await asyncio.gather(*(worker.finished() for worker in workers))
    out.write_text(json.dumps({"calls": calls.counts, "cpu_seconds": time.process_time()}))


def main() -> None:
    """Start them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scheduler")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--folder", required=True, help="whose files are counted")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    attempt._ATTEMPTS = Attempts()  # type: ignore[assignment]
    calls = Calls(asked.folder)
    calls.watch()
    logging.getLogger("distributed").setLevel(logging.ERROR)
    settings = {
        # A process of one worker looks after itself so often; hundreds of them would do nothing else.
        "distributed.admin.tick.interval": "1h",
        "distributed.admin.system-monitor.interval": "1h",
        "distributed.worker.profile.enabled": False,
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.comm.timeouts.connect": "120s",
        "distributed.worker.use-file-locking": False,
    }
    with dask.config.set(settings):
        asyncio.run(serve(asked.scheduler, asked.count, calls, asked.out))


if __name__ == "__main__":
    main()
