"""Sweeps over targets, block by block, and their memory.

Targets that are the sources are summed in the order of the tree, where groups are near each other, and
written to scratch; the driver brings them into the order of rows. Others are read panel by panel, each panel
sorted along a curve, and written as whole chunks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.sums.nearest import nearest_sources
from rankfold.kernels.sums.pairs import GROUP, scratch_bytes, sum_pairs
from rankfold.kernels.sums.tree_sums import sum_in_tree
from rankfold.methods.sums.points import (
    TREE_COLUMNS,
    SourcePoints,
    building_bytes,
    points_bytes,
    require_near,
)
from rankfold.methods.sums.work import Summation, Targets, Way, require_numbers
from rankfold.methods.tree.coordinates import PointReader
from rankfold.methods.tree.queries import curve_order
from rankfold.pipeline.engine.blocks import Cut, own_streams
from rankfold.pipeline.engine.fold import DeclaredFold, Sum, Workspace
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.planning.peak_memory import RESERVE_BYTES
from rankfold.pipeline.planning.planner import FittedSweeps
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.scratch import ScratchMatrix

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

PANEL_ROWS = (2**10, 2**15)
"""Fewest and most targets of a block; in between, a block has a 64th of all targets, in whole groups."""

SAMPLE_BYTES = 64 * 2**20
"""Most bytes to measure errors at a sample: a thousand groups of targets, their sums, and pieces of them."""


def rows_cut(rows: int) -> Cut:
    """Cut of targets into blocks, which are also chunks of the result."""
    chunk = min(max(PANEL_ROWS[0], min(rows // 64, PANEL_ROWS[1])) // GROUP * GROUP, max(rows, 1))
    return own_streams(np.append(np.arange(0, rows, chunk), rows), chunk)


def write_rows(result: Path, names: tuple[str, ...], values: Float64, start: int) -> None:
    """Write sums of some targets, and their forces, as whole chunks."""
    stop = start + len(values)
    write_whole_chunks(result / names[0], np.ascontiguousarray(values[:, 0]), (start, stop))
    if len(names) > 1:
        write_whole_chunks(
            result / names[1], np.ascontiguousarray(values[:, 1:]), (start, stop), (0, values.shape[1] - 1)
        )


@dataclass(frozen=True, slots=True)
class SumFold(DeclaredFold):
    """Base of the folds that compute sums, and forces if asked for, at blocks of targets."""

    cut: Cut
    summation: Summation
    points: SourcePoints | None
    """Sources; None in a plan."""

    reader: PointReader
    """Reader of the targets."""

    way: Way
    factor: float
    """Factor that sums are multiplied by; for logarithms, a term that is added."""

    slots: int = 1
    row_seconds: float = 2e-5

    kernels = (sum_pairs, sum_in_tree, nearest_sources)

    def sums(self) -> Mapping[str, Sum]:
        """``met`` (2,): numbers of pairs, and of nodes of the tree, summed for all targets."""
        return {"met": Sum((2,), np.dtype(np.int64))}

    @property
    def temporary_bytes(self) -> int:
        """Additional bytes: targets in two orders, with their indices, weights, bounds and sums; buffers to
        read a block; scratch of a group.
        """
        rows, columns = self.cut.panel_rows, self.reader.columns
        numbers = 3 * columns + 10 + 3 * self.summation.width(columns)
        nearest = 0 if columns <= TREE_COLUMNS else 3 * 8 * 2**20
        return self.reader.read_bytes(rows) + rows * 8 * numbers + scratch_bytes(columns) + nearest

    def values(self, targets: Targets, state: State) -> Float64:
        """(m, width) sums and forces at targets, times ``factor``; for densities, logarithms plus ``factor``.

        Adds the numbers of pairs and nodes to ``state``.
        """
        assert self.points is not None  # noqa: S101 - there is no run without
        sums, met = self.summation.at(self.points, targets, self.way)
        state["met"] += met
        if self.summation.shifted:
            return self.summation.logarithms(self.points, targets, sums[:, 0])[:, None] + self.factor
        return sums * self.factor + 0.0  # which turns -0 into 0


@dataclass(frozen=True, slots=True)
class SumAtSources(SumFold):
    """Fold that sums at the sources themselves, in the order of the tree, and writes to scratch."""

    into: ScratchMatrix | None = None
    leave_out: bool = True

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Sum at positions ``start:stop`` of the order of the tree, and write the sums to scratch."""
        assert self.points is not None and self.into is not None  # noqa: S101
        targets = Targets.among(self.points, np.arange(start, stop), leave_out=self.leave_out)
        self.into.write(start, np.ascontiguousarray(self.values(targets, state)))


@dataclass(frozen=True, slots=True)
class SumAtTargets(SumFold):
    """Fold that sums at targets other than the sources, and writes to the result."""

    result: Path = Path("-")
    names: tuple[str, ...] = ()

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Read targets ``start:stop``, sum at them, and write the sums to the result."""
        assert self.points is not None  # noqa: S101
        x = self.reader.read(start, stop)
        require_near(x, f"targets {self.reader.source.name}")
        box = np.stack([x.min(axis=0), x.max(axis=0)])
        order = curve_order(x, box)
        in_order = self.values(Targets.others(np.ascontiguousarray(x[order])), state)
        by_row = np.empty_like(in_order)
        by_row[order] = in_order
        if not self.summation.shifted:
            require_numbers(by_row, start, self.reader.source.name)
        write_rows(self.result, self.names, by_row, start)


@dataclass(frozen=True, slots=True)
class SumSweeps:
    """A sweep over targets while sources are held in memory, for a plan."""

    reader: PointReader
    """Reader of the sources."""

    fold: SumAtSources | SumAtTargets
    pairs: float
    """Estimated number of pairs summed for a target."""

    itself: bool

    def arrange(self, budget: Budget) -> FittedSweeps:
        """Arrange as many threads as there is memory for besides the sources."""
        fold, rows = self.fold, self.fold.cut.length
        width = self.fold.summation.width(self.reader.columns)
        points, building = points_bytes(self.reader), building_bytes(self.reader)
        driver = max(building, SAMPLE_BYTES, 8 * rows * width + fold.temporary_bytes if self.itself else 0)
        room = budget.memory_bytes - RESERVE_BYTES - points
        task = fold.memory_bytes
        concurrency = max(1, min(budget.threads, fold.cut.stream_count, room // task))
        source = self.reader.source
        reads, item = source.shape[0] * source.shape[1], source.dtype.itemsize
        flops = source.shape[0] * math.log2(source.shape[0] + 1) * 10.0 * source.shape[1]
        reading = Pass("tree", "matrix", reads * item, 0, flops, points + building, 1, 1, blas_bytes=0)
        mine = 0 if self.itself else rows * fold.reader.source.shape[1] * fold.reader.source.dtype.itemsize
        sweep: Any = numbers_of(
            "sums",
            fold,
            mine,
            8 * rows * width,
            rows * self.pairs * 20.0,
            over="scratch" if self.itself else "matrix",
        )
        return FittedSweeps(
            passes=(reading, sweep),
            concurrency=concurrency,
            peak_bytes=RESERVE_BYTES + points + max(driver, concurrency * task),
            driver_bytes=points + driver,
            checkpoint_bytes=0,
            most_at_once=fold.cut.stream_count,
            grain_rows=fold.cut.panel_rows,
            panel_rows=fold.cut.panel_rows,
            most_passes=1,
            likely_passes=1,
        )
