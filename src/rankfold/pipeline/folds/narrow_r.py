"""R factor of a narrow matrix on scratch, by a tree of Householder factorisations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankfold.kernels.qr import merge_r, panel_r
from rankfold.pipeline.blocks import Cut, grains
from rankfold.pipeline.checkpoint import State
from rankfold.pipeline.folds.combination import Combination, OverCombination, Work


@dataclass(frozen=True, slots=True)
class NarrowR(OverCombination):
    """Fold of rows of a combination into their R factor."""

    combination: Combination
    cut: Cut
    row_seconds: float
    slots: int = 1

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace and of two accumulators.

        LAPACK copies what it factorises twice: the rows, then their R factor below the one before.
        """
        rows, width = self.grain_rows, self.combination.width
        copies = max(2 * 8 * rows * width, (1 + 3 * 2) * 8 * width**2)
        return self.combination.memory_bytes(rows) + copies + 2 * self.accumulator_bytes

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        return 8 * self.combination.width**2

    def start(self) -> State:
        """R of no rows."""
        return {"r": np.zeros((self.combination.width, self.combination.width))}

    def step(self, state: State, work: Work, start: int, stop: int, slot: int) -> None:
        """Add rows."""
        for first, last in grains(start, stop, self.cut.grain_rows):
            state["r"] = merge_r(state["r"], panel_r(self.combination.rows(work, first, last)))

    def merge(self, total: State, other: State) -> None:
        """Join two R factors."""
        total["r"] = merge_r(total["r"], other["r"])
