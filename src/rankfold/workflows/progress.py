"""Progress of sweeps on stderr: a live bar with rate and time left, or plain lines where nobody watches.

What happens to workers (waiting, lost, replaced) and where to watch them is said in lines of its own.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rankfold.pipeline.units import about

LINE_SECONDS = 30.0
"""Between two plain lines of one sweep."""


LOG = logging.getLogger("rankfold")


class _News(logging.Handler):
    """Lines above the bar."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; nobody may be listening any more."""
        with contextlib.suppress(OSError, ValueError):
            self._console.print(record.getMessage(), markup=False, highlight=False, soft_wrap=True)


class SweepProgress:
    """Called with the name of a sweep, what is done, and what there is in all."""

    def __init__(self, unit: str = "rows") -> None:
        self._unit = unit
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._said: dict[str, float] = {}
        self._began: dict[str, tuple[float, int]] = {}
        """When each sweep was first heard of, and what an earlier attempt had done of it by then."""

        self._news = _News(self._console)

    def __enter__(self) -> Self:
        LOG.addHandler(self._news)
        LOG.setLevel(logging.INFO)
        LOG.propagate = False
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description:<12}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        LOG.removeHandler(self._news)

    def __call__(self, name: str, done: int, total: int) -> None:
        """Show where a sweep stands."""
        now = time.monotonic()
        began, before = self._began.setdefault(name, (now, done if done < total else 0))
        speed = (done - before) / (now - began) if now > began else 0.0
        rate = f"{speed:,.0f} {self._unit}/s" if speed > 0 else ""
        if self._bar is not None:
            if name not in self._tasks:
                self._tasks[name] = self._bar.add_task(name, total=total, rate="")
            self._bar.update(self._tasks[name], completed=done, rate=rate)
        elif done == total or now - self._said.get(name, began) >= LINE_SECONDS:
            self._said[name] = now
            # Nobody may be listening any more: no reason to stop working.
            with contextlib.suppress(OSError, ValueError):
                left = f", {about((total - done) / speed)} left" if speed > 0 and done < total else ""
                sys.stderr.write(f"{name}: {done:,} of {total:,} {self._unit} {rate}".rstrip() + left + "\n")
                sys.stderr.flush()
