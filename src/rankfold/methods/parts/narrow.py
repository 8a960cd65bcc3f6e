"""Of a tall narrow matrix on scratch: inner products of its columns in float64, and its R factor by a tree of
Householder factorizations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankfold.kernels.linear.qr import merge_r, panel_r
from rankfold.methods.parts.combination import Combination, OverCombination, Work
from rankfold.pipeline.engine.blocks import Cut, grains
from rankfold.pipeline.storage.checkpoint import State


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


# R factor -----------------------------------------------------------------------------------------


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

        LAPACK copies what it factorizes twice: the rows, then their R factor below the one before.
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
