"""Folds over a tall narrow matrix on scratch: the Gram matrix of its columns in float64, and its R factor by
a tree of Householder factorizations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rankfold.kernels.linear.gaussian import gaussian_rows
from rankfold.kernels.linear.products import add_gram, product
from rankfold.kernels.linear.qr import merge_r, panel_r
from rankfold.methods.parts.combination import Combination, OverCombination
from rankfold.pipeline.engine.blocks import Cut, grains
from rankfold.pipeline.engine.fold import Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State


@dataclass(frozen=True, slots=True)
class NarrowGram(OverCombination):
    """Fold that sums the Gram matrix of a combination's columns over all rows."""

    combination: Combination
    cut: Cut
    row_seconds: float
    slots: int = 1

    kernels = (gaussian_rows, product, add_gram)

    def sums(self) -> Mapping[str, Sum]:
        """Gram matrix of the combination's columns, (width, width)."""
        return {"gram": Sum((self.combination.width,) * 2)}

    @property
    def temporary_bytes(self) -> int:
        """Bytes that the combination takes besides its buffers, and those of the Gram matrix of a grain."""
        return self.combination.temporary_bytes + 8 * self.combination.width**2

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Add the Gram matrix of the rows of a panel, grain by grain."""
        for first, last in grains(start, stop, self.cut.grain_rows):
            rows = self.combination.rows(work, first, last)
            add_gram(rows, total=state["gram"])


# R factor -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NarrowR(OverCombination):
    """Fold that finds the R factor of a combination by a tree of Householder factorizations."""

    combination: Combination
    cut: Cut
    row_seconds: float
    slots: int = 1

    kernels = (gaussian_rows, product, panel_r, merge_r)

    def sums(self) -> Mapping[str, Sum]:
        """R factor of the rows so far, (width, width); those of two streams are factorized together."""
        return {"r": Sum((self.combination.width,) * 2, join=merge_r)}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of copies that LAPACK makes of what it factorizes: rows, and R factors that are merged."""
        rows, width = self.grain_rows, self.combination.width
        copies = max(2 * 8 * rows * width, (1 + 3 * 2) * 8 * width**2)
        return self.combination.temporary_bytes + copies

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Merge the R factor of the rows of a panel, grain by grain."""
        for first, last in grains(start, stop, self.cut.grain_rows):
            state["r"] = merge_r(state["r"], panel_r(self.combination.rows(work, first, last)))
