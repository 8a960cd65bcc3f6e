"""Inner products of the columns of a narrow matrix on scratch, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankfold.pipeline.blocks import Cut, grains
from rankfold.pipeline.checkpoint import State
from rankfold.pipeline.folds.combination import Combination, OverCombination, Work


@dataclass(frozen=True, slots=True)
class NarrowGram(OverCombination):
    """Fold of rows of a combination into their Gram matrix."""

    combination: Combination
    cut: Cut
    row_seconds: float
    slots: int = 1

    @property
    def memory_bytes(self) -> int:
        """Bytes that one segment allocates, and of two accumulators, which a merge holds beside it."""
        return self.combination.memory_bytes(self.grain_rows) + 3 * 8 * self.combination.width**2

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        return 8 * self.combination.width**2

    def start(self) -> State:
        """Products of no rows."""
        return {"gram": np.zeros((self.combination.width, self.combination.width))}

    def step(self, state: State, work: Work, start: int, stop: int, slot: int) -> None:
        """Add rows."""
        for first, last in grains(start, stop, self.cut.grain_rows):
            rows = self.combination.rows(work, first, last)
            state["gram"] += rows.T @ rows

    def merge(self, total: State, other: State) -> None:
        """Add the products."""
        total["gram"] += other["gram"]
