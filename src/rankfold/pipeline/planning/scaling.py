"""Number of workers that help, and what limits it: streams, reading, merges, or an exchange.

A sweep folds its streams (runs of panels) in parallel, so workers without a stream are idle. Segments read
bytes as fast as they fold them; at the limit of the file system they wait for each other. Streams are folded
in parallel, but the merges that follow the last of them run one after the other. Where each worker reads what
all others wrote, as in a layout, every additional worker reads that once more. Rates are those of a nominal
core, by which segments are cut as well: results do not depend on any of this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rankfold.pipeline.engine.sweep import FAN_IN, part_counts
from rankfold.pipeline.planning.seconds import (
    NOMINAL_FLOPS,
    NOMINAL_READ,
    Rates,
    Reading,
    work_seconds,
)
from rankfold.pipeline.units import format_bytes

if TYPE_CHECKING:
    from rankfold.pipeline.planning.passes import Pass
    from rankfold.pipeline.planning.plan import Plan

NOMINAL = Rates(NOMINAL_FLOPS[4], NOMINAL_FLOPS[8], NOMINAL_READ)
"""Rates of a nominal core."""

MERGE_BYTE_SECONDS = 4e-9
"""Seconds to write, read and add a byte of an accumulator: see ``blocks.READS_PER_BYTE``."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Number of workers beyond which more do not help, and why."""

    workers: int
    reason: str
    """``"streams"``, ``"reading"``, ``"merges"`` or ``"exchange"``."""

    streams: int
    """Number of workers with which each running segment has a stream (panels folded in order) of its own."""

    reading: int | None
    """Number of workers that use the whole bandwidth of the file system; None if that is not known."""

    merges: int | None
    """Number of workers with which merging takes as long as folding; None where nothing is merged."""

    bandwidth: float = 0.0
    """Bytes per second of the file system."""

    exchange: int | None = None
    """Number of workers with which a sweep in which each reads what all others wrote takes least time.

    None if no sweep does so, or if the bandwidth of the file system is not known.
    """

    def __str__(self) -> str:
        if self.reason == "reading":
            return f"{self.workers}; more wait for a file system of {format_bytes(int(self.bandwidth))}/s"
        if self.reason == "exchange":
            return f"{self.workers}; more take longer to read what the others wrote than they gain"
        if self.reason == "merges":
            return f"{self.workers}; with more, merging streams takes longer than folding them"
        return f"{self.workers}; more find no stream to fold"


def scaling_of(plan: Plan) -> Scaling:
    """Scaling of the sweep of a plan that takes the longest.

    The file system is described by ``plan.bandwidth``. On a device, whose rates are not those of a core, only
    streams count.
    """
    sweeps = [sweep for sweep in plan.likely_sweeps if sweep.tasks]
    if plan.device != "cpu" or not sweeps:
        return Scaling(plan.useful_workers, "streams", plan.useful_workers, None, None)
    longest = max(sweeps, key=lambda sweep: _work(plan, sweep))
    return _of_sweep(plan, longest)


def _work(plan: Plan, sweep: Pass) -> float:
    return work_seconds(plan, sweep, NOMINAL, Reading(1 / NOMINAL.read_bytes, alone=False)).total


def _of_sweep(plan: Plan, sweep: Pass) -> Scaling:
    # Streams of pairs of blocks are counted as if each block were a group.
    streams = plan.useful_workers if plan.groups else max(1, -(-sweep.streams // max(1, plan.concurrency)))
    worker_seconds, moved = (
        _work(plan, sweep) / max(1, plan.concurrency),
        sweep.reads_bytes + sweep.writes_bytes,
    )
    limits = {"streams": streams}
    if plan.bandwidth and moved:
        limits["reading"] = max(1, math.ceil(plan.bandwidth * worker_seconds / moved))
    if plan.bandwidth and sweep.exchange_bytes:
        # w workers take worker_seconds / w, and the file system w times what each of them reads: least where
        # both are equal.
        limits["exchange"] = max(1, round(math.sqrt(worker_seconds * plan.bandwidth / sweep.exchange_bytes)))
    if tail := tail_seconds(sweep):
        limits["merges"] = max(1, math.ceil(worker_seconds / tail))
    reason = min(limits, key=lambda name: limits[name])
    return Scaling(
        limits[reason],
        reason,
        streams,
        limits.get("reading"),
        limits.get("merges"),
        plan.bandwidth,
        limits.get("exchange"),
    )


def tail_seconds(sweep: Pass) -> float:
    """Seconds of the merges behind the last stream, which run one after the other: one of each tree level.

    >>> from rankfold.pipeline.planning.passes import Pass
    >>> tail_seconds(Pass("pass-01", "matrix", 0, 0, 0.0, 0, 9363, 8192, accumulator_bytes=10**6))
    0.16
    """
    return (len(part_counts(sweep.streams)) - 1) * merge_seconds(sweep)


def merge_seconds(sweep: Pass) -> float:
    """Seconds of one merge, of at most ``FAN_IN`` streams; 0 if there is one stream."""
    return min(FAN_IN, sweep.streams) * sweep.accumulator_bytes * MERGE_BYTE_SECONDS * (sweep.streams > 1)
