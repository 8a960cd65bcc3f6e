"""The history of a run from its folder: attempts, segments, workers, and facts of the result.

A sweep is one run through the matrix or through temporary files; a segment is a part of it, the unit of work
of a worker. Everything is read from ``run.json``, the journal and the result; nothing is run, no matrix is
opened.
"""

from __future__ import annotations

import bisect
import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rankfold.pipeline.errors import InputError
from rankfold.pipeline.storage.journal import epoch_of, lines_of, load_record
from rankfold.pipeline.storage.result import Result


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a sweep that one process ran."""

    process: str
    sweep: str
    began: float
    """Seconds since 1970, as all times here."""

    ended: float | None
    """End time; None if it was killed, or still runs."""

    rows: int = 0
    read_bytes: int = 0
    cut: str = ""
    """Reason why it ended before it was complete; empty if it was complete."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a worker at the time ``at``; ``what`` is the kind of event.

    A worker ``came``, ``left``, ``handed over`` or was ``gone``.
    """

    at: float
    what: str
    worker: str
    process: str
    """Process of the worker, or of the driver if that noticed the event."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class RunAttempt:
    """One start of a run; a run that was interrupted and continued has several.

    ``began`` is in seconds since 1970, and ``facts`` are those in ``run.json``.
    """

    began: float
    seconds: float | None
    """Seconds that it took; None if it did not finish."""

    facts: dict[str, Any]

    @property
    def parallelism(self) -> int:
        """Number of segments that run at once in all its processes."""
        place = self.facts.get("place", {})
        return int(place.get("workers", 1)) * int(self.facts.get("plan", {}).get("concurrency", 1))

    @property
    def has_peaks(self) -> bool:
        """True if its measured and its planned peak memory are known."""
        return self.facts.get("measured_bytes") is not None and bool(self.facts.get("planned_bytes"))

    @property
    def compile_seconds(self) -> float:
        """Seconds of compiling before the work began; compiling is done once after an installation."""
        return float(self.facts.get("compile_seconds", 0.0))

    @property
    def load_seconds(self) -> float:
        """Seconds of loading compiled kernels and their libraries before the work began."""
        return float(self.facts.get("load_seconds", 0.0))


class Peak(NamedTuple):
    """Largest memory of a worker above its baseline, over all steps that led to a result.

    The baseline is the memory of a worker process before it works.
    """

    measured_bytes: int
    planned_bytes: int
    baseline_bytes: int | None
    """Baseline of the attempt with the largest measured peak."""


@dataclass(frozen=True, slots=True)
class History:
    """A result at ``out``, or what is to become one, and the history of its computation."""

    name: str
    out: Path
    attempts: tuple[RunAttempt, ...] = ()
    segments: tuple[Segment, ...] = ()
    events: tuple[Event, ...] = ()
    result: Result | None = None
    record: dict[str, Any] = field(default_factory=dict)
    """Facts of the stage in the record of its workflow."""

    running: bool = False
    """True if a process computes it now."""

    steps: tuple[RunAttempt, ...] = ()
    """Attempts at intermediate results that this one was made from, in the same run."""

    whole_plan: dict[str, Any] | None = None
    """Plan of the intermediate results and of this one together; None if there are none."""

    @classmethod
    def of(cls, out: Path, record: dict[str, Any] | None = None, *, running: bool = False) -> History:
        """History of the result at ``out``, which may not exist yet.

        Only attempts with the request of the last one count. ``record`` are the facts of its stage in the
        record of a workflow; ``running`` is True if a process computes it now.
        """
        run = out.with_name(out.name + ".run")
        noted = load_record(run / "run.json")
        request = noted["attempts"][-1].get("run") if noted["attempts"] else None
        attempts, steps = (
            tuple(
                RunAttempt(epoch_of(facts["started"]), facts.get("seconds"), facts)
                for facts in each
                if facts.get("run") == request and "started" in facts
            )
            for each in (noted["attempts"], itertools.chain(*noted.get("steps", {}).values()))
        )
        plan = noted.get("plan", {})
        whole_plan = plan if steps and plan.get("run") == request else None
        lines = lines_of(run, request)
        try:
            result = Result(out) if out.exists() else None
        except InputError:  # a store that was imported
            result = None
        name = out.name.removesuffix(".zarr")
        segments, events = tuple(_segments(lines)), tuple(_events(lines))
        return cls(name, out, attempts, segments, events, result, record or {}, running, steps, whole_plan)

    @property
    def last(self) -> RunAttempt | None:
        """The latest attempt; if the result is finished, the one that finished it. None before the first."""
        return self.attempts[-1] if self.attempts else None

    @property
    def facts(self) -> dict[str, Any]:
        """Attributes of the result; empty if there is none."""
        return {} if self.result is None else self.result.attrs

    @property
    def plan(self) -> dict[str, Any]:
        """The plan of the result and its intermediate results together, or else that of the last attempt.

        Empty if there is none.
        """
        return self.whole_plan or (self.last.facts.get("plan", {}) if self.last else {})

    @property
    def finished(self) -> list[RunAttempt]:
        """Finished attempts at intermediate results, then the last attempt at the result, finished or not."""
        return [
            one for one in (*self.steps, *self.attempts[-1:]) if one is self.last or one.seconds is not None
        ]

    @property
    def peak(self) -> Peak | None:
        """Largest measured and largest planned peak memory of the attempts in ``finished``.

        None if none was measured.
        """
        measured = [one.facts for one in self.finished if one.has_peaks]
        if not measured:
            return None
        most = max(measured, key=lambda facts: int(facts["measured_bytes"]))
        planned = max(int(facts["planned_bytes"]) for facts in measured)
        return Peak(int(most["measured_bytes"]), planned, most.get("baseline_bytes"))

    @property
    def passes(self) -> int | None:
        """Passes over the matrix, including those for intermediate results; None if
        there are none, as for an import.
        """
        counts = [one.facts["passes"] for one in self.finished if one.facts.get("passes") is not None]
        return sum(counts) if counts else None

    @property
    def bars(self) -> tuple[Segment, ...]:
        """Bars of a timeline: the segments; or whole attempts, if there are no segments, as for an import."""
        if self.segments:
            return self.segments
        return tuple(
            Segment(
                f"{one.facts.get('host', '')}-{one.facts.get('pid', '')}.",
                str(one.facts.get("plan", {}).get("kind", self.name)),
                one.began,
                None if one.seconds is None else one.began + one.seconds,
            )
            for one in (*self.steps, *self.attempts)
        )

    @property
    def state(self) -> str:
        """``done``, ``running``, ``interrupted``, ``failed`` or ``not begun``."""
        state = self.record.get("state", "done" if self.out.exists() else "")
        if self.running:
            return "running"
        if state in ("failed", "interrupted"):
            return str(state)
        if state == "running" or (self.attempts and not self.out.exists()):
            return "interrupted"
        return "done" if self.out.exists() else "not begun"

    @property
    def seconds(self) -> float | None:
        """Seconds of all attempts together, with compiling, loading and intermediate results; None before the
        first attempt.

        An attempt that was killed counts up to the last line of its journal.
        """
        if not self.attempts:
            return None
        signs = sorted(
            [at for one in self.segments for at in (one.began, one.ended or one.began)]
            + [one.at for one in self.events]
        )
        nexts = [*(one.began for one in self.attempts[1:]), math.inf]
        total = self.compile_seconds + self.load_seconds + sum(one.seconds or 0.0 for one in self.steps)
        for one, following in zip(self.attempts, nexts, strict=True):
            last = bisect.bisect_left(signs, following) - 1
            cut_off = max(0.0, signs[last] - one.began) if last >= 0 else 0.0
            total += cut_off if one.seconds is None else one.seconds
        return total

    @property
    def compile_seconds(self) -> float:
        """Seconds of compiling in all attempts."""
        return sum(one.compile_seconds for one in (*self.steps, *self.attempts))

    @property
    def load_seconds(self) -> float:
        """Seconds of loading kernels in all attempts."""
        return sum(one.load_seconds for one in (*self.steps, *self.attempts))

    def goes_on(self, segment: Segment) -> bool:
        """True if a segment whose end was not recorded probably still runs."""
        return bool(self.running and segment.ended is None and self.last and segment.began >= self.last.began)

    def events_with_process(self) -> Iterator[tuple[Event, str | None]]:
        """Yield each event with the process of its worker, None if unknown; workers' names are reused."""
        process_of: dict[str, str] = {}
        for event in self.events:
            if event.what == "came":
                process_of[event.worker] = event.process
            yield event, process_of.get(event.worker)

    def seen_until(self, segment: Segment) -> float:
        """Time when a segment ended; of a killed one, when its loss was noticed, or else of the last event.

        The last event is that before the next attempt.
        """
        if segment.ended is not None:
            return segment.ended
        next_attempt = min(
            (one.began for one in self.attempts if one.began > segment.began), default=math.inf
        )
        signs = [at for one in self.segments for at in (one.began, one.ended or one.began)]
        signs += [one.at for one in self.events]
        losses = [
            one.at
            for one, process in self.events_with_process()
            if one.what == "gone" and process == segment.process
        ]
        last = max((at for at in signs if at < next_attempt), default=segment.began)
        return min((at for at in losses if at > segment.began), default=max(last, segment.began))

    def planned_sweep(self, name: str) -> dict[str, Any]:
        """Planned cost of the sweep ``name``, as in the plan; empty if the plan has none.

        The plan may have one entry for all sweeps of a kind, whose names end in numbers.
        """
        passes = {one["name"]: one for one in self.plan.get("passes", [])}
        return passes.get(name) or passes.get(re.sub(r"-\d+(-\d+)?$", "", name)) or {}


def preparation(compile_seconds: float, load_seconds: float, write: Callable[[float], str]) -> str:
    """Text on the time for compiling and loading kernels before the work began; empty if below a second.

    ``write`` turns seconds into text.

    >>> preparation(0.2, 1.5, "{:.3g} s".format)
    ', 1.5 s of it loading kernels'
    """
    kinds = ((compile_seconds, "compiling"), (load_seconds, "loading kernels"))
    shares = [(write(seconds), what) for seconds, what in kinds if seconds >= 1]
    return "".join(f", {seconds} {'' if i else 'of it '}{what}" for i, (seconds, what) in enumerate(shares))


def _segments(lines: list[dict[str, Any]]) -> Iterator[Segment]:
    open_segments: dict[tuple[str, int], dict[str, Any]] = {}
    for line in lines:
        if line["what"] == "segment":
            open_segments[line["process"], line["id"]] = line
        elif line["what"] == "end" and (line["process"], line["id"]) in open_segments:
            first = open_segments.pop((line["process"], line["id"]))
            counts = int(line.get("rows", 0)), int(line.get("read_bytes", 0))
            yield Segment(
                first["process"], first["sweep"], first["at"], line["at"], *counts, line.get("cut", "")
            )
    for first in open_segments.values():
        yield Segment(first["process"], first["sweep"], first["at"], None)


def _events(lines: list[dict[str, Any]]) -> Iterator[Event]:
    for line in lines:
        if line["what"] not in ("segment", "end"):
            yield Event(
                line["at"], line["what"], line.get("worker", ""), line["process"], line.get("why") or ""
            )


@dataclass(frozen=True, slots=True)
class Period:
    """A period of work on a time axis from which pauses were removed; times are in seconds since 1970."""

    began: float
    ended: float
    offset: float
    """Position of its start on that axis, in seconds from 0."""


def periods(times: list[tuple[float, float]], *, gap_seconds: float) -> list[Period]:
    """Periods of work, merged across pauses of at most ``gap_seconds``; longer pauses are left out.

    ``times`` are spans of work, from start to end, in any order.
    A workflow that continues after a night takes as much of the axis as one that was not interrupted.
    """
    stretches: list[Period] = []
    for began, ended in sorted(times):
        if stretches and began - stretches[-1].ended <= gap_seconds:
            last = stretches[-1]
            stretches[-1] = Period(last.began, max(last.ended, ended), last.offset)
        else:
            stretches.append(Period(began, ended, 0.0))
    lengths = [one.ended - one.began for one in stretches]
    between = 0.02 * sum(lengths)
    offsets = itertools.accumulate((length + between for length in lengths[:-1]), initial=0.0)
    return [Period(one.began, one.ended, offset) for one, offset in zip(stretches, offsets, strict=True)]
