"""Rows held as they are: for a matrix of fewer rows than columns, which is smaller than any sum over it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankfold.pipeline.checkpoint import State
from rankfold.pipeline.finite import count_bad, join_bad, no_bad
from rankfold.pipeline.folds.panels import Buffers, OverPanels, Panels


@dataclass(frozen=True, slots=True)
class KeepRows(OverPanels):
    """Fold of a matrix into itself, in float64."""

    panels: Panels
    """By rows."""

    row_seconds: float

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace and of two accumulators."""
        rows, columns = self.panels.view.source.shape
        return self.panels.memory_bytes + 2 * 8 * rows * columns

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        return 8 * self.panels.view.source.shape[0] * self.panels.view.source.shape[1]

    def start(self) -> State:
        """No rows yet."""
        return {"rows": np.zeros(self.panels.view.source.shape), "bad": no_bad()}

    def workspace(self) -> Buffers:
        """Allocate the buffers."""
        return self.panels.buffers()

    def read(self, work: Buffers, start: int, stop: int, slot: int) -> None:
        """Fetch a panel."""
        self.panels.read(work, start, stop, slot)

    def step(self, state: State, work: Buffers, start: int, stop: int, slot: int) -> None:
        """Put a panel in its place; NaN and Inf are counted and left out."""
        for first, last, raw in self.panels.grains(work, start, stop, slot):
            if np.isfinite(raw).all():
                state["rows"][first:last] = raw
            else:
                count_bad(state, raw, *self.panels.corner(first))

    def merge(self, total: State, other: State) -> None:
        """Join rows that either has."""
        total["rows"] += other["rows"]
        total["bad"] = join_bad(total["bad"], other["bad"])
