"""Cost of a search in a tree, and the condition for using one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rankfold.kernels.neighbors.tree import LEAF
from rankfold.methods.tree.coordinates import PointReader
from rankfold.methods.tree.points import building_bytes, held_bytes
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.planning.passes import RESERVE_BYTES, Pass, numbers_of
from rankfold.pipeline.planning.planner import FittedSweeps

FEW_DIMENSIONS = 10
"""Largest number of columns for a tree; above this nearly all leaves would be visited, and all pairs are
compared."""

WORTH = 4
"""A tree is used if each query measures at least this many times fewer points than there are."""

POINT_FLOPS = 60.0
"""Floating-point operations that take as long as measuring one point of a leaf, with its share of the descent
in the tree."""


def visited_points(points: int, columns: int, k: float) -> float:
    """Expected number of points in the leaves that a search for k neighbors of one query visits.

    ``points`` is the number of points in the tree, assumed to fill space evenly. The leaves that are visited
    cover a ball with k points, and a leaf in every direction beyond it.
    """
    ball = math.pi ** (columns / 2) / math.gamma(columns / 2 + 1)
    width = 2 * (k / (LEAF * ball)) ** (1 / columns)
    return min(float(points), float(LEAF * (1 + width) ** columns))


def is_worth_it(points: int, columns: int, k: int) -> bool:
    """True if a search for k neighbors in a tree of ``points`` points measures far fewer pairs than all."""
    return columns <= FEW_DIMENSIONS and WORTH * visited_points(points, columns, k) <= points


@dataclass(frozen=True, slots=True)
class TreeSweeps:
    """Sweeps that look up queries in a tree that stays in memory, with their cost, for a plan."""

    reader: PointReader
    """Reader of the points in the tree."""

    left: Source
    """Rows whose neighbors are searched for."""

    folds: tuple[tuple[str, Any, float, int], ...]
    """For each sweep: name, fold, number of points measured for each query, and bytes written."""

    driver_bytes: int = 0
    """Largest memory of the leading process between sweeps, besides the tree."""

    resident_bytes: int = 0
    """Bytes that the leading process holds throughout besides the tree."""

    def arrange(self, budget: Budget) -> FittedSweeps:
        """Choose as many threads as fit into memory in addition to the tree."""
        held, building = held_bytes(self.reader) + self.resident_bytes, building_bytes(self.reader)
        task = max(fold.memory_bytes for _, fold, _, _ in self.folds)
        streams = max(fold.cut.stream_count for _, fold, _, _ in self.folds)
        room = budget.memory_bytes - RESERVE_BYTES - held
        concurrency = max(1, min(budget.threads, streams, room // task))
        panel_rows = max(fold.cut.panel_rows for _, fold, _, _ in self.folds)
        return FittedSweeps(
            passes=(self._reading(held + building), *self._sweeps()),
            concurrency=concurrency,
            peak_bytes=RESERVE_BYTES + held + max(building, concurrency * task, self.driver_bytes),
            driver_bytes=held + max(building, self.driver_bytes),
            checkpoint_bytes=0,
            most_at_once=streams,
            grain_rows=panel_rows,
            panel_rows=panel_rows,
            most_passes=1,
            likely_passes=1,
        )

    def _reading(self, memory: int) -> Pass:
        source, columns = self.reader.source, self.reader.columns
        flops = source.shape[0] * math.log2(source.shape[0] + 1) * 10.0
        reads = source.shape[0] * source.shape[1] * source.dtype.itemsize
        return Pass("tree", "matrix", reads, 0, flops * columns, memory, 1, 1, blas_bytes=0)

    def _sweeps(self) -> list[Pass]:
        rows, own = self.left.shape[0], self.left is self.reader.source
        reads = 0 if own else rows * self.left.shape[1] * self.left.dtype.itemsize
        over = "scratch" if own else "matrix"
        return [
            numbers_of(name, fold, reads, writes, rows * each * POINT_FLOPS, over=over)
            for name, fold, each, writes in self.folds
        ]
