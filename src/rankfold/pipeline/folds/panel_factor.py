"""R factor of a matrix in one pass, by Householder reflections: nothing is squared.

With a column of ones before the others, what is left below the first row and right of the first column
is the R factor of the matrix with its column means taken off, whatever it was shifted by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankfold.kernels.qr import merge_r, panel_r
from rankfold.pipeline.checkpoint import State
from rankfold.pipeline.finite import join_bad
from rankfold.pipeline.folds.conditioned import Grains, OverConditioned
from rankfold.pipeline.folds.local_columns import Centring
from rankfold.pipeline.folds.panels import Panels
from rankfold.pipeline.narrow import Narrow
from rankfold.pipeline.view import Orientation, aligned_empty

Float64 = npt.NDArray[np.float64]


@dataclass(slots=True)
class FactorWork:
    """Buffers of one segment."""

    grains: Grains
    stacked: Float64
    """R so far, and a grain below it."""


@dataclass(frozen=True, slots=True)
class PanelFactor(OverConditioned):
    """Fold of a matrix, times the unit, into its R factor."""

    panels: Panels
    """Of float64."""

    centring: Centring
    shift: Float64
    columns: Narrow | None
    row_seconds: float
    measured: bool = True

    @property
    def ones(self) -> bool:
        """Whether the matrix has a column of ones before its own."""
        return self.centring.centre and self.panels.view.orientation is Orientation.ROWS

    @property
    def width(self) -> int:
        """Columns in all."""
        return self.panels.view.short + self.ones

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace and of two accumulators; LAPACK copies a grain below R twice."""
        return self.grains_bytes + 3 * self._stacked_bytes + 2 * self.accumulator_bytes

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        return 8 * self.width**2

    @property
    def merge_bytes(self) -> int:
        """Bytes that two R factors and the copies of LAPACK take beyond what a grain does."""
        return max(0, 3 * 2 * 8 * self.width**2 - 2 * self._stacked_bytes)

    @property
    def _stacked_bytes(self) -> int:
        return 8 * self.width * (self.panels.grain_rows + self.width)

    def start(self) -> State:
        """R of no rows."""
        return {"r": np.zeros((self.width, self.width)), **self.measures()}

    def workspace(self) -> FactorWork:
        """Allocate the buffers."""
        stacked = aligned_empty((self.width + self.panels.grain_rows, self.width), np.float64)
        return FactorWork(self.buffers(self.shift), stacked)

    def read(self, work: FactorWork, start: int, stop: int, slot: int) -> None:
        """Fetch a panel."""
        self.panels.read(work.grains.panels, start, stop, slot)

    def step(self, state: State, work: FactorWork, start: int, stop: int, slot: int) -> None:
        """Factorise a panel, grain by grain, below what came before."""
        for first, last, d in self.conditioned(state, work.grains, start, stop, slot):
            stacked = work.stacked[: self.width + last - first]
            stacked[: self.width] = state["r"]
            below = stacked[self.width :]
            if self.ones:
                below[:, 0] = 1.0
            np.multiply(d, self.centring.unit, out=below[:, int(self.ones) :])
            state["r"] = panel_r(stacked)

    def merge(self, total: State, other: State) -> None:
        """Join two R factors."""
        total["r"] = merge_r(total["r"], other["r"])
        for name in ("sums", "squares"):
            total[name] += other[name]
        total["bad"] = join_bad(total["bad"], other["bad"])
