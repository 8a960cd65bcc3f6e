"""Progress of sweeps on stderr: a live bar with rate and time left, or plain lines where nobody watches.

A sweep is named in plain words and, where the plan is known, as one of about so many passes. It is counted in
what is swept (rows, or columns), with the time that is left over all. Events of workers (waiting, lost,
replaced), where to watch them, and the compilation of kernels have lines of their own.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rankfold.pipeline.engine.run import Progress
from rankfold.pipeline.errors import ArgumentError
from rankfold.pipeline.planning.seconds import NOMINAL_FLOPS, NOMINAL_READ
from rankfold.pipeline.planning.sweep_words import over_matrix, unit_of, words_of
from rankfold.pipeline.presentation import Presentation, presentation_of
from rankfold.pipeline.text import printable
from rankfold.pipeline.units import about, format_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from rankfold.pipeline.planning.passes import Pass
    from rankfold.pipeline.planning.plan import Plan

LINE_SECONDS = 30.0
"""Seconds between two plain lines of one sweep."""

QUIET_SECONDS = 1.0
"""Seconds at the beginning of a call in Python in which nothing is shown."""

AT_ONCE_SECONDS = 0.05
"""Seconds after the last report within which a complete sweep counts as done by an earlier attempt."""

LOG = logging.getLogger("rankfold")

SILENCE = ContextVar("SILENCE", default=False)
"""True if ``SweepProgress`` shows no sweeps, and of log records only warnings and errors."""


class _News(logging.Handler):
    """Log handler that prints lines above the bar; earlier handlers get their records as before."""

    def __init__(self, progress: SweepProgress) -> None:
        super().__init__(logging.WARNING if SILENCE.get() else logging.INFO)
        self._progress, self._before, self._level = progress, logging.NOTSET, logging.WARNING

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record; a stream that is closed is no error."""
        with contextlib.suppress(OSError, ValueError):
            self._progress.console.print(record.getMessage(), markup=False, highlight=False, soft_wrap=True)
        if LOG.parent is not None and LOG.parent.handlers and record.levelno >= self._level:
            LOG.parent.callHandlers(record)

    def begin(self) -> None:
        """Attach to the logger, for records of level INFO and above."""
        self._before, self._level = LOG.level, LOG.getEffectiveLevel()
        LOG.addHandler(self)
        LOG.setLevel(logging.INFO)
        LOG.propagate = False

    def end(self) -> None:
        """Detach from the logger, and restore its level."""
        LOG.removeHandler(self)
        LOG.setLevel(self._before)
        LOG.propagate = True


@dataclass(slots=True)
class Forecast:
    """How far a run has come among all sweeps of its plan."""

    plan: Plan | None = None
    began: float = field(default_factory=time.monotonic)
    last_report: float = field(default_factory=time.monotonic)
    shares: dict[str, float] = field(default_factory=dict)
    """Share of each sweep that is done, from 0 to 1, by its name."""

    before: dict[str, float] = field(default_factory=dict)
    """Share of each sweep that an earlier attempt had done, by its name."""

    def on_progress(self, name: str, done: int, total: int) -> None:
        """Record that ``done`` of ``total`` rows (or other units) of the sweep ``name`` are done."""
        now, share = time.monotonic(), done / total if total else 1.0
        if not self.shares:  # time before, such as for compiling, says nothing about sweeps
            self.began, self.before[name] = now, share
        elif name not in self.shares:
            at_once = done < total or now - self.last_report < AT_ONCE_SECONDS
            self.before[name] = share if at_once else 0.0
        self.shares[name], self.last_report = share, now

    def title(self, name: str) -> str:
        """A sweep in words: which pass of about how many, if it is one over the matrix."""
        shown = Presentation() if self.plan is None else presentation_of(self.plan.kind)
        if name in shown.sweeps:
            return shown.sweeps[name]
        if self.plan is None or not shown.counts_passes or not self._reads(name):
            return words_of(name)
        likely, most = self.plan.likely_passes, self.plan.most_passes
        number = [each for each in self.shares if self._reads(each)].index(name) + 1
        if number <= likely < most:
            return f"pass {number} of about {likely}"
        return f"pass {number} of{' at most' * bool(self.plan.decided_by)} {most}"

    def seconds_left(self) -> float | None:
        """Seconds left of the whole run, if the plan is right about its passes; None if that is not known."""
        if self.plan is None:
            return None
        order = [each.name for each in self.plan.passes]
        last = max((order.index(name) for name in self.shares if name in order), default=-1)
        to_come = {*self.shares, *order[last + 1 :]}  # a method may end before it has made all of them
        likely = {p.name: _nominal_seconds(p) for p in self.plan.likely_sweeps if p.name in to_come}
        durations = likely | {p.name: _nominal_seconds(p) for p in self.plan.passes if p.name in self.shares}
        now = sum(durations.get(name, 0.0) * share for name, share in self.shares.items())
        own = now - sum(durations.get(name, 0.0) * share for name, share in self.before.items())
        duration = self.last_report - self.began
        return (sum(durations.values()) - now) * duration / own if own > 0 and duration > 0 else None

    def _reads(self, name: str) -> bool:
        """True if a sweep reads the matrix."""
        if self.plan is not None:
            for each in self.plan.passes:
                if each.name == name:
                    return each.over == "matrix"
        return over_matrix(name)


def _nominal_seconds(sweep: Pass) -> float:
    """Seconds of a sweep on a nominal core; only ratios between sweeps matter."""
    speed = NOMINAL_FLOPS[4] if sweep.over == "matrix" else NOMINAL_FLOPS[8] / 2
    return sweep.flops / speed + (sweep.reads_bytes + sweep.writes_bytes) / NOMINAL_READ


class SweepProgress:
    """Progress function: called with the name of a sweep, the number done, such as of rows, and the total.

    ``unit`` is what is counted, ``quiet_seconds`` the time at the beginning in which nothing is shown.
    """

    def __init__(self, unit: str = "rows", *, quiet_seconds: float = 0.0) -> None:
        self._unit, self._quiet = unit, math.inf if SILENCE.get() else quiet_seconds
        self._bar: Any = None
        self._tasks: dict[str, Any] = {}
        self._reports: dict[str, float] = {}
        self._began: dict[str, tuple[float, int]] = {}
        """Time of the first report of each sweep, and the number that an earlier attempt had done by then."""

        self._plan: Callable[[], Plan] | None = None
        self._forecast = Forecast()
        self._news = _News(self)
        self._start = time.monotonic()

    @cached_property
    def console(self) -> Console:
        """Console on stderr. Loaded when first needed: a call in Python may never show anything."""
        from rich.console import Console

        return Console(stderr=True)

    def expect(self, plan: Callable[[], Plan]) -> None:
        """Expect the sweeps of a plan from now on; ``plan`` returns it, and is called when one is shown."""
        self._plan, self._forecast = plan, Forecast()
        self._tasks.clear()
        self._began.clear()

    def __enter__(self) -> Self:
        self._start = time.monotonic()
        self._news.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._news.end()

    def __call__(self, name: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` of a sweep are done; ``name`` may be "stage: sweep"."""
        stage, _, sweep = name.rpartition(": ")
        now = time.monotonic()
        began, before = self._began.setdefault(name, (now, done if done < total else 0))
        self._forecast.on_progress(sweep, done, total)
        if now - self._start < self._quiet:
            return
        if self._plan is not None and self._forecast.plan is None:
            self._forecast.plan = self._plan()
            self._unit = _lines_of(self._forecast.plan)
        unit = unit_of(sweep, self._unit)
        title = printable(f"{stage}: " * bool(stage) + self._forecast.title(sweep))
        speed = (done - before) / (now - began) if now > began else 0.0
        rate = f"{_amount(speed, unit)}/s" if speed > 0 and unit != "%" else ""
        left = self._time_left(done, total, speed)
        if self._live:
            self._draw(name, title, done, total, rate, left)
        elif done == total or now - self._reports.get(name, began) >= LINE_SECONDS:
            self._reports[name] = now
            parts = [f"{title}: {_position(done, total, unit)}", rate, left]
            # Nobody may be listening any more: no reason to stop working.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stderr.write(printable(", ".join(filter(None, parts))) + "\n")
                sys.stderr.flush()

    @cached_property
    def _live(self) -> bool:
        """True if a bar can be drawn: on a terminal, or in a notebook with widgets."""
        return self.console.is_terminal or (self.console.is_jupyter and _has_widgets())

    def _draw(self, name: str, title: str, done: int, total: int, rate: str, left: str) -> None:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        if self._bar is None:
            texts = ("{task.percentage:>3.0f}%", "{task.fields[rate]}")
            self._bar = Bar(
                TextColumn("{task.description:<20}"),
                BarColumn(),
                *map(TextColumn, texts),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                console=self.console,
            )
            self._bar.start()
        if name not in self._tasks:
            for other in self._tasks.values():
                self._bar.update(other, left="")
            self._tasks[name] = self._bar.add_task(title, total=total, rate="", left="")
        self._bar.update(self._tasks[name], completed=done, rate=rate, left=left)

    def _time_left(self, done: int, total: int, speed: float) -> str:
        """Text on the time that is left: of all sweeps if the plan is known, else of this one.

        ``done`` and ``total`` are those of the sweep, ``speed`` is per second.
        """
        seconds = self._forecast.seconds_left()
        if seconds is not None:
            return f"about {about(seconds)} left in all" if seconds >= 1 else ""
        return f"{about((total - done) / speed)} left" if speed > 0 and done < total else ""


@contextlib.contextmanager
def listener(progress: Progress | bool | None, plan: Callable[[], Plan]) -> Iterator[Progress | None]:
    """Context with the function that sweeps of a call in Python report to, or None.

    Parameters
    ----------
    progress
        A function; True to show progress, False not to; None to show it where somebody watches: on a
        terminal or in a notebook, once the call has taken a second.
    plan
        Function that gives the plan of the sweeps to come; called when it is needed.
    """
    if isinstance(progress, SweepProgress):
        progress.expect(plan)
        yield progress
    elif progress is True or (progress is None and somebody_watches()):
        with SweepProgress(quiet_seconds=0.0 if progress else QUIET_SECONDS) as bar:
            bar.expect(plan)
            yield bar
    elif progress is None or progress is False or callable(progress):
        yield progress or None
    else:
        raise ArgumentError(
            "progress must be True, False, None, or a function of the name of a sweep, what is done and what "
            f"there is in all, not {progress!r}"
        )


def somebody_watches() -> bool:
    """True if stderr is a terminal, or this is a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return bool(sys.stderr is not None and sys.stderr.isatty()) or hasattr(shell, "kernel")


def _has_widgets() -> bool:
    try:
        import ipywidgets  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
    except ImportError:
        return False
    return True


def _lines_of(plan: Plan) -> str:
    """Unit that the sweeps of a plan count: ``"rows"``, or ``"columns"``."""
    return plan.orientation if plan.orientation in ("rows", "columns") else "rows"


def _position(done: int, total: int, unit: str) -> str:
    """Text that says that ``done`` of ``total`` are done, in a unit as of ``unit_of``, or in bytes."""
    if unit == "%":
        return f"{100 * done / total if total else 100:.0f} %"
    return f"{format_bytes(done) if unit == 'bytes' else f'{done:,.0f}'} of {_amount(total, unit)}"


def _amount(count: float, unit: str) -> str:
    """Text of a count with its unit."""
    return format_bytes(count) if unit == "bytes" else f"{count:,.0f} {unit}"
