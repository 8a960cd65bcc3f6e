"""Planned and measured cost of runs, compared with the limits of the machine: the content of a report, for
JSON.

A page shows the same values. A sweep is one run through the matrix or through temporary files; a segment is a
part of it that one worker runs at a time.

Scaling of a run with the number of segments (units of work) that run at once: Amdahl's and Gustafson's
laws, fitted.

Both have one parameter, the serial share s of the work: Amdahl's at a fixed size, T(p) = T(1) (s + (1 - s) /
p); Gustafson's for work that grows with p, where the speedup over p = 1 is p - s (p - 1). Here p is the
number of segments that run at once.

References
----------
Amdahl, Validity of the single processor approach to achieving large scale computing capabilities, AFIPS 1967.
Gustafson, Reevaluating Amdahl's law, Communications of the ACM 31(5), 1988.
"""

from __future__ import annotations

import itertools
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold._version import __version__
from rankfold.cluster.local.calibration import cached_rates
from rankfold.pipeline.planning.seconds import Rates
from rankfold.workflows.reports.history import History, RunAttempt, Segment, periods

QUALITIES = (
    "largest_error_estimate",
    "captured",
    "relative_error",
    "orthogonality",
    "recall",
    "recall_interval",
    "value",
    "standard_error",
    "largest_residual",
    "left_orthogonality",
    "right_orthogonality",
    "trustworthiness",
    "trustworthiness_error",
    "continuity",
    "continuity_error",
    "preservation",
    "preservation_error",
)
"""Attributes of results that measure quality."""

STOP_REASONS = ("Interrupted", "KeyboardInterrupt", "Reschedule", "Stop")
"""Reasons, besides completion, for which segments end with a checkpoint; any other reason is an error."""

SHORT_SECONDS = 0.05
"""Seconds of a sweep below which its time mostly reflects its start, not the machine's limit."""


def report_facts(title: str, stages: Sequence[History], others: Sequence[History] = ()) -> dict[str, Any]:
    """All content of a report on ``stages``, as a dictionary for JSON.

    ``others`` are runs of the same requests with other numbers of workers, to compare with.
    """
    rates = cached_rates()
    return {
        "title": title,
        "version": __version__,
        "limits": {
            "host": platform.node(),
            "flops_float32": rates.flops_float32,
            "flops_float64": rates.flops_float64,
            "read_bytes": rates.read_bytes,
        },
        "stages": [stage_facts(stage, rates) for stage in stages],
        "scaling": [
            scaling_facts(stage.name, scaling)
            for stage in stages
            if (scaling := scaling_of(stage, others)) is not None
        ],
    }


def stage_facts(stage: History, rates: Rates) -> dict[str, Any]:
    """Facts of one stage, by name: planned and measured cost, attempts, workers, origin.

    ``rates`` is the speed of this machine, with which sweeps are compared.
    """
    last = stage.last
    facts = last.facts if last else {}
    return {
        "name": stage.name,
        "out": str(stage.out),
        "kind": stage.facts.get("kind") or stage.record.get("method") or stage.plan.get("kind", ""),
        "method": stage.facts.get("method", ""),
        "state": stage.state,
        "message": stage.record.get("message", "") if stage.state == "failed" else "",
        "why": stage.record.get("why", []),
        "request": stage.facts.get("request", {}),
        "input": {name: fact for name, fact in stage.facts.get("input", {}).items() if name != "names"},
        "warnings": stage.facts.get("warnings", []),
        "planned": _plan_facts(stage),
        "measured": _measurements(stage),
        "sweeps": sweep_facts(stage, rates),
        "attempts": [_attempt(one) for one in stage.attempts],
        "workers": [
            {"at": one.at, "what": one.what, "worker": one.worker, "why": one.why} for one in stage.events
        ],
        "segments": segment_counts(stage),
        "provenance": {key: facts[key] for key in ("host", "system", "python", "blas") if key in facts},
    }


def _plan_facts(stage: History) -> dict[str, Any]:
    plan = stage.plan
    keys = ("likely_passes", "most_passes", "reads_bytes", "peak_bytes", "budget_bytes", "scratch_bytes")
    return {key: plan[key] for key in (*keys, "seconds", "tasks", "shape", "dtype") if key in plan}


def _measurements(stage: History) -> dict[str, Any]:
    facts = stage.last.facts if stage.last else {}
    if "seconds" not in facts:
        return {}
    peak = stage.peak
    quality = {key: stage.facts[key] for key in QUALITIES if stage.facts.get(key) is not None}
    return {
        "passes": stage.passes,  # an import has none of these
        "reads_bytes": read_bytes(stage),
        "peak_bytes": peak and peak.measured_bytes,
        "baseline_bytes": peak and peak.baseline_bytes,
        "seconds": facts["seconds"],
        "wait_seconds": facts.get("wait_seconds"),
        "compile_seconds": stage.compile_seconds,
        "load_seconds": stage.load_seconds,
        "all_attempts_seconds": stage.seconds,
        **quality,
    }


def read_bytes(stage: History) -> int | None:
    """Bytes read from the matrix, including repetitions after interruptions; None if they were not
    recorded.
    """
    total, has_reads = 0.0, False
    for one in stage.segments:
        sweep_plan = stage.planned_sweep(one.sweep)
        if sweep_plan.get("over") != "matrix":
            continue
        has_reads = True
        total += one.read_bytes or sweep_plan["reads_bytes"] * one.rows / long_side(stage)
    if has_reads:
        return round(total)
    noted = stage.record.get("outcome", {}).get("read_bytes")  # for an import, which keeps no journal
    return noted if isinstance(noted, int) else None


def long_side(stage: History) -> int:
    """Length of the side of the matrix that a sweep goes along: its rows, or columns if these are swept."""
    rows, columns = stage.plan["shape"]
    return int(columns if stage.plan["orientation"] == "columns" else rows)


def segment_counts(stage: History) -> dict[str, int]:
    """Number of segments that were begun, still run, and ended in each way (stopped, failed, lost)."""
    running = sum(1 for one in stage.segments if stage.goes_on(one))
    return {
        "begun": len(stage.segments),
        "running": running,
        "stopped": sum(1 for one in stage.segments if one.cut in STOP_REASONS),
        "failed": sum(1 for one in stage.segments if one.cut and one.cut not in STOP_REASONS),
        "lost": sum(1 for one in stage.segments if one.ended is None) - running,
    }


def _attempt(attempt: RunAttempt) -> dict[str, Any]:
    keys = ("run", "started", "host", "place", "command", "folder", "passes", "sweep_seconds")
    return {
        **{key: attempt.facts[key] for key in keys if key in attempt.facts},
        "seconds": attempt.seconds,
        "lanes": attempt.parallelism,
    }


def sweep_facts(stage: History, rates: Rates) -> list[dict[str, Any]]:
    """Facts of each sweep of the last attempt, with the least seconds that a machine of this speed needs."""
    if stage.last is None:
        return []
    single = stage.plan.get("working_dtype") == "float32"
    flops_rate = rates.flops_float32 if single else rates.flops_float64
    sweeps = []
    for name, seconds in stage.last.facts.get("sweep_seconds", {}).items():
        sweep_plan, own = stage.planned_sweep(name), _of_sweep(stage, name)
        parallelism = at_once(own) or stage.last.parallelism
        if own and own[-1].began < stage.last.began:  # it was already done when the last attempt began
            seconds = busy_seconds(own)
        facts: dict[str, Any] = {"name": name, "seconds": seconds, "over": sweep_plan.get("over", "scratch")}
        if sweep_plan:
            traffic_bytes = sweep_plan["reads_bytes"] + sweep_plan["writes_bytes"]
            least = (
                max(sweep_plan["flops"] / flops_rate, sweep_plan["reads_bytes"] / rates.read_bytes)
                / parallelism
            )
            facts |= {
                "flops": sweep_plan["flops"],
                "bytes": traffic_bytes,
                "lanes": parallelism,
                "least_seconds": least,
                "share_of_limit": least / seconds if seconds > 0 else None,
                "long_enough": seconds >= SHORT_SECONDS,
            }
        sweeps.append(facts)
    return sweeps


def _of_sweep(stage: History, sweep: str) -> list[Segment]:
    segments = [one for one in stage.segments if one.sweep == sweep and one.ended]
    return sorted(segments, key=lambda one: one.began)


def at_once(segments: Sequence[Segment]) -> int:
    """Largest number of segments that ran at the same time; 0 if there are none."""
    steps = sorted([(one.began, 1) for one in segments] + [(one.ended or 0.0, -1) for one in segments])
    return max(itertools.accumulate(step for _, step in steps), default=0)


def busy_seconds(segments: Sequence[Segment]) -> float:
    """Seconds in which at least one segment ran."""
    spans = [(one.began, one.ended or one.began) for one in segments]
    return sum(one.ended - one.began for one in periods(spans, gap_seconds=0.0))


def group_sweeps(sweeps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge successive facts of sweeps of the same kind and cost into one, with their count and mean time."""
    groups: list[list[dict[str, Any]]] = []
    for one in sweeps:
        if groups and _kind_of(groups[-1][0]) == _kind_of(one):
            groups[-1].append(one)
        else:
            groups.append([one])
    return [_together(group) for group in groups]


def _kind_of(sweep: dict[str, Any]) -> tuple[object, ...]:
    stem = re.sub(r"-\d+$", "", sweep["name"])
    return stem, sweep["over"], sweep.get("flops"), sweep.get("bytes"), sweep.get("lanes")


def _together(group: list[dict[str, Any]]) -> dict[str, Any]:
    if len(group) == 1:
        return {**group[0], "count": 1}
    name = f"{group[0]['name']} to {group[-1]['name'].rpartition('-')[2]}"
    seconds = sum(one["seconds"] for one in group) / len(group)
    facts = {**group[0], "name": name, "seconds": seconds, "count": len(group)}
    if "least_seconds" in facts:
        facts |= {"share_of_limit": facts["least_seconds"] / seconds, "long_enough": seconds >= SHORT_SECONDS}
    return facts


def scaling_of(stage: History, others: Sequence[History]) -> Scaling | None:
    """Law of scaling fitted to a stage and to other runs of the same request; None without a second run."""
    alike = [stage, *(one for one in others if _same_request(one, stage))]
    timings = [timing for one in alike if (timing := timing_of(one)) is not None]
    return fit(sorted(timings, key=lambda one: one.parallelism)) if len(timings) > 1 else None


def _same_request(one: History, other: History) -> bool:
    return bool(one.facts) and one.facts.get("request") == other.facts.get("request")


def timing_of(stage: History) -> Timing | None:
    """Work and time of a run; None unless it was finished in one attempt, without losing a worker."""
    single_attempt = len(stage.attempts) == 1 and not any(event.what == "gone" for event in stage.events)
    if not single_attempt or not stage.attempts[0].seconds or not stage.facts:
        return None
    rows, columns = stage.plan["shape"]
    return Timing(stage.attempts[0].parallelism, float(rows) * columns, stage.attempts[0].seconds)


def scaling_facts(name: str, scaling: Scaling) -> dict[str, Any]:
    """Law of scaling fitted to the stage ``name``, with the measured speedups, for JSON."""
    return {
        "stage": name,
        "law": scaling.law,
        "serial": scaling.serial,
        "measured": [
            {"lanes": parallelism, "speedup": speedup, "efficiency": efficiency, "seconds": one.seconds}
            for (parallelism, speedup, efficiency), one in zip(scaling.points, scaling.timings, strict=True)
        ],
    }


Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Timing:
    """Work, time and parallelism of a run that finished in one attempt."""

    parallelism: int
    """Number p of segments that ran at once."""

    work: float
    """Amount of work, in any unit proportional to it."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Scaling:
    """A law of scaling fitted to runs."""

    law: str
    """Name of the law of scaling that was fitted: ``amdahl`` or ``gustafson``."""

    serial: float
    """Serial share of the work, in [0, 1]."""

    single_seconds: float
    """Fitted time in seconds of a unit of work, if one segment runs at a time."""

    timings: tuple[Timing, ...]

    def speedup(self, parallelism: npt.ArrayLike) -> Float64:
        """Predicted speedup for p = ``parallelism``, over one segment at a time."""
        p = np.asarray(parallelism, np.float64)
        if self.law == "amdahl":
            return np.asarray(1 / (self.serial + (1 - self.serial) / p))
        return np.asarray(p - self.serial * (p - 1))

    @property
    def points(self) -> list[tuple[int, float, float]]:
        """For each timing: number p of segments at once, speedup over p = 1, and efficiency (speedup / p)."""
        points = []
        for one in self.timings:
            speedup = self.single_seconds * one.work / one.seconds
            points.append((one.parallelism, speedup, speedup / one.parallelism))
        return points


def fit_amdahl(timings: Sequence[Timing]) -> Scaling | None:
    """Fit Amdahl's law to runs of equal work; None unless they have at least two different p.

    Least squares of T = a + b / p with a, b >= 0, weighted so that relative errors count alike.
    """
    from scipy.optimize import nnls

    if len({one.parallelism for one in timings}) < 2 or not _all_equal([one.work for one in timings]):
        return None
    p, seconds = (
        np.array([getattr(one, key) for one in timings], float) for key in ("parallelism", "seconds")
    )
    (a, b), _ = nnls(np.stack([np.ones_like(p), 1 / p], axis=1) / seconds[:, None], np.ones_like(p))
    return Scaling("amdahl", float(a / (a + b)), float(a + b) / timings[0].work, tuple(timings))


def fit_gustafson(timings: Sequence[Timing]) -> Scaling | None:
    """Fit Gustafson's law to runs whose work is proportional to their p, which must differ; else None.

    The rate of a run, work / seconds, is r (p - s (p - 1)) = r (1 - s) p + r s: least squares of a line.
    """
    from scipy.optimize import nnls

    if len({one.parallelism for one in timings}) < 2 or not _all_equal(
        [one.work / one.parallelism for one in timings]
    ):
        return None
    p = np.array([one.parallelism for one in timings], float)
    rate = np.array([one.work / one.seconds for one in timings])
    (slope, offset), _ = nnls(np.stack([p, np.ones_like(p)], axis=1) / rate[:, None], np.ones_like(p))
    single = slope + offset
    return Scaling("gustafson", float(offset / single), float(1 / single), tuple(timings))


def fit(timings: Sequence[Timing]) -> Scaling | None:
    """Fit Amdahl's law to runs of equal work, or Gustafson's to work proportional to p;
    None if neither applies.
    """
    return fit_amdahl(timings) or fit_gustafson(timings)


def _all_equal(values: Sequence[float]) -> bool:
    return max(values) <= 1.05 * min(values)
