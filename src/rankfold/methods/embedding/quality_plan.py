"""Plan of counting passes: rows held at a time, reads, memory, tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rankfold.methods.embedding.neighbor_ranks import CountNearer, GatherRows, MeasureThresholds
from rankfold.methods.embedding.quality_request import EmbeddingQualityRequest
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.planning.passes import BLAS_BYTES, Pass, numbers_of
from rankfold.pipeline.planning.peak_memory import RESERVE_BYTES
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, TaskFacts, plan_task

FEWEST_ROWS = 1024
"""Fewest rows to hold in memory, if possible: with fewer, a pass is mostly reading, and fewer threads are
better."""

THRESHOLD_BYTES = 16 * 8
"""Bytes for each neighbor of a held row while the leading process measures and sorts their distances."""

SAMPLE_BYTES = 8 * 8
"""Bytes for each row of a sample: its index, and arrays for picking it."""


@dataclass(frozen=True, slots=True)
class ResidentSweeps:
    """Sweeps in which all rows pass groups of rows that are held in memory, for a plan."""

    source: Source
    parameters: EmbeddingQualityRequest
    gather: GatherRows | None
    folds: Callable[[int], tuple[MeasureThresholds, CountNearer]]
    picking_bytes: int
    """Additional bytes for reading separate rows instead of consecutive ones."""

    def segment_bytes(self, rows: int) -> int:
        """Bytes of one thread with ``rows`` held rows, besides those that all threads share."""
        measure, count = self.folds(rows)
        most = max(measure.memory_bytes + self.picking_bytes, count.memory_bytes)
        return BLAS_BYTES + max(most, 0 if self.gather is None else self.gather.memory_bytes)

    def peak_bytes(self, rows: int, threads: int) -> int:
        """Most memory of a process with this many threads and held rows, or of the leading process."""
        shared_bytes = max(fold.resident_bytes for fold in self.folds(rows))
        leads = rows * self.parameters.k * THRESHOLD_BYTES + BLAS_BYTES
        sample = 0 if self.gather is None else self.parameters.rows * SAMPLE_BYTES
        return RESERVE_BYTES + sample + max(shared_bytes + threads * self.segment_bytes(rows), leads)

    def arrange(self, budget: Budget) -> FittedSweeps:
        """Choose as many threads as fit with a small group, then as few groups of rows as fit.

        With some thousand held rows, a pass counts for much longer than it reads, so threads come first.
        """
        groups, threads = self._groups(budget)
        rows = -(-self.parameters.rows // groups)
        count = self.folds(rows)[1]
        return FittedSweeps(
            passes=_passes(self, rows, groups),
            concurrency=threads,
            peak_bytes=self.peak_bytes(rows, threads),
            driver_bytes=rows * self.parameters.k * THRESHOLD_BYTES,
            checkpoint_bytes=rows * self.parameters.k * 8 * (count.cut.stream_count + groups),
            most_at_once=count.cut.stream_count,
            grain_rows=count.cut.grain_rows,
            panel_rows=count.cut.panel_rows,
            most_passes=groups,
            likely_passes=groups,
            groups=groups,
        )

    def _groups(self, budget: Budget) -> tuple[int, int]:
        rows, have = self.parameters.rows, budget.memory_bytes
        few = min(rows, FEWEST_ROWS)
        threads = min(budget.threads, self.folds(rows)[1].cut.stream_count)
        while threads > 1 and self.peak_bytes(few, threads) > have:
            threads -= 1
        fewest, fits = 0, rows
        while fits - fewest > 1:
            middle = (fewest + fits) // 2
            good = self.peak_bytes(-(-rows // middle), threads) <= have
            fewest, fits = (fewest, middle) if good else (middle, fits)
        return fits, threads


def plan_embedding_quality(sweeps: ResidentSweeps, budget: Budget) -> Plan:
    """Plan the passes of trustworthiness or continuity within a budget.

    Raises
    ------
    MemoryBudgetError
        Even a single row that is held takes more than the budget.
    """
    source, parameters, count = sweeps.source, sweeps.parameters, sweeps.folds(1)[1]
    sample_bytes = 0 if sweeps.gather is None else parameters.rows * count.group.reader.row_bytes
    outline = TaskFacts(
        kind=parameters.kind,
        method="exact" if parameters.exact else "sampled",
        source=source,
        dtype=count.passing.dtype,
        orientation="rows",
        rank=parameters.k,
        result_bytes=0,
        scratch_bytes=sample_bytes + parameters.rows * parameters.k * 4 * 8,
        subject=f"{parameters.kind} of {source.shape[0]} rows of {source.shape[1]} numbers",
    )
    return plan_task(outline, sweeps, budget, lambda: _way_out(sweeps))


def _passes(sweeps: ResidentSweeps, rows: int, groups: int) -> tuple[Pass, ...]:
    """All sweeps: writing the sample to a store of its own; then, for each group, distances of neighbors and
    counts of nearer rows.
    """
    source, parameters = sweeps.source, sweeps.parameters
    measure, count = sweeps.folds(rows)
    row_bytes, elements = count.passing.bytes_to_read, float(source.shape[0]) * source.shape[1]
    passes = []
    if sweeps.gather is not None:
        size = parameters.rows * source.shape[1] * source.dtype.itemsize
        passes.append(numbers_of("rows", sweeps.gather, size, size, 0.0))
    neighbors = min(source.shape[0], rows * parameters.k)
    flops = 3.0 * rows * parameters.k * source.shape[1]
    for _ in range(groups):
        passes.append(numbers_of("thresholds", measure, neighbors * row_bytes, 0, flops))
        passes.append(numbers_of("ranks", count, source.shape[0] * row_bytes, 0, 2.0 * elements * rows))
    return tuple(passes)


def _way_out(sweeps: ResidentSweeps) -> str:
    source, tallest = sweeps.source, sweeps.folds(1)[1].cut.panel_rows
    if source.row_grid.splittable or source.row_grid.longest != tallest:
        return ""
    return (
        f", or cut the store: its chunks of {tallest} rows must be held whole, and `rankfold import "
        "STORE NEW.zarr` writes one with small chunks"
    )
