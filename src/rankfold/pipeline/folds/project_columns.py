"""New data into components where rows are too long to be held: columns are swept, products add up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.checkpoint import State
from rankfold.pipeline.finite import join_bad, no_bad
from rankfold.pipeline.folds.panels import Buffers, OverPanels, Panels
from rankfold.pipeline.folds.project_rows import measured_squares, refuse_overflow
from rankfold.pipeline.narrow import Narrow
from rankfold.pipeline.view import aligned_empty

Array = npt.NDArray[Any]


@dataclass(slots=True)
class ColumnWork:
    """Buffers of one segment."""

    panels: Buffers
    basis: Array
    columns: npt.NDArray[np.float64]
    y: Array


@dataclass(frozen=True, slots=True)
class ProjectColumns(OverPanels):
    """Fold of a matrix swept by columns into ``(x - mean) * factor @ basis``, summed in float64."""

    panels: Panels
    basis: Narrow
    """(columns, k) right vectors, of the working type."""

    columns: Narrow
    """(columns, 2): mean and factor of each column."""

    reach: float
    """Power of two that keeps squares of the raw numbers in range."""

    row_seconds: float

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace, and of two accumulators, which a merge holds beside it."""
        rows, short, rank = self.panels.grain_rows, self.panels.view.short, self.basis.columns
        constants = rows * (self.basis.row_bytes + 9 * 8)
        return self.panels.memory_bytes + constants + short * rank * (self.panels.dtype.itemsize + 2 * 8)

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        return 8 * self.panels.view.short * self.basis.columns

    def start(self) -> State:
        """Accumulator of no columns."""
        shape = self.panels.view.short, self.basis.columns
        return {"product": np.zeros(shape), "squares": np.zeros(1), "bad": no_bad()}

    def workspace(self) -> ColumnWork:
        """Allocate the buffers."""
        rows, dtype = self.panels.grain_rows, self.panels.dtype
        return ColumnWork(
            panels=self.panels.buffers(),
            basis=aligned_empty((rows, self.basis.columns), dtype),
            columns=aligned_empty((rows, 2), np.float64),
            y=aligned_empty((self.panels.view.short, self.basis.columns), dtype),
        )

    def read(self, work: ColumnWork, start: int, stop: int, slot: int) -> None:
        """Fetch a panel."""
        self.panels.read(work.panels, start, stop, slot)

    def step(self, state: State, work: ColumnWork, start: int, stop: int, slot: int) -> None:
        """Multiply a panel, grain by grain."""
        for first, last, raw in self.panels.grains(work.panels, start, stop, slot):
            basis, columns = work.basis[: last - first], work.columns[: last - first]
            self.columns.read_into(columns, first)
            mean, factor = np.ascontiguousarray(columns.T)
            squares = measured_squares(raw, mean, factor, self.reach)
            if squares is None:
                refuse_overflow(state, raw, *self.panels.corner(first))
                continue
            state["squares"] += squares
            self.basis.read_into(basis, first)
            np.matmul(self.panels.conditioned(work.panels, raw, mean, factor), basis, out=work.y)
            state["product"] += work.y

    def merge(self, total: State, other: State) -> None:
        """Add the sums."""
        for name in ("product", "squares"):
            total[name] += other[name]
        total["bad"] = join_bad(total["bad"], other["bad"])
