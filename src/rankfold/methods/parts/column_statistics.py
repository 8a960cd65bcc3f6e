"""Means and deviations of the columns of a tall matrix: by a separate pass, or from sums of another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.center_scale import measure
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.finite import BAD
from rankfold.methods.parts.panels import OverPanels, Panels, numbers
from rankfold.pipeline.data.real_parts import is_complex, numbers_of_parts, twice
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.fold import Buffer, Given, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ColumnStatistics(OverPanels):
    """Fold that sums the columns of ``x - shift`` and their squares over all rows."""

    panels: Panels
    shift: npt.NDArray[np.float64]
    pow2_scale: float
    row_seconds: float

    kernels = (measure,)

    def buffers(self) -> Mapping[str, Buffer]:
        """Shift of the columns, (short,)."""
        return {"shift": Given.of(self.shift)}

    def sums(self) -> Mapping[str, Sum]:
        """Sum and sum of squares of each column, (short,) each, and count and position of bad numbers."""
        short = (self.panels.view.short,)
        return {"sums": Sum(short), "squares": Sum(short), "bad": BAD}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of sums and squares of the columns of one grain (rows of one product)."""
        return 2 * 8 * self.panels.view.short

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Add sums and squares of the columns of a panel, grain by grain."""
        for grain in self.panels.grains(work.panels, start, stop, slot):
            sums, squares = measure(numbers(grain.raw), work.shift, self.pow2_scale)
            if self.is_finite(state, work, grain, squares):
                state["sums"] += sums
                state["squares"] += squares


def standard_deviations(squares: Float64, count: int, mean: Float64, centering: Centering) -> Float64:
    """Standard deviations from centered sums of squares; 0 for columns that are constant up to rounding."""
    deviation = np.sqrt(np.maximum(squares, 0.0) / max(count - 1, 1))
    return np.where(deviation > centering.constant_below * np.abs(mean), deviation, 0.0)


def divisors(deviation: Float64) -> Float64:
    """Divisors of columns for scaling: the deviations, or 1 for constant columns."""
    return np.where(deviation > 0, deviation, 1.0)


# From sums --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Statistics:
    """Means and deviations of the columns of a tall matrix, after a pass over all rows.

    For a complex matrix ``mean`` has both parts of each mean in turn, and ``deviation`` each deviation twice.
    """

    mean: Float64
    deviation: Float64
    total: float
    """Sum of squares of A, centered, scaled and times its factor; also for a wide matrix."""


def statistics(state: State, view: View, shift: Float64, centering: Centering) -> Statistics:
    """Statistics of the columns, from the sums of a pass."""
    total, count = float(state["squares"].sum()), view.long
    if not (view.orientation is Orientation.ROWS and centering.center):
        return Statistics(np.zeros(len(state["sums"])), np.ones(len(state["sums"])), total)
    d = state["sums"] / count
    return Statistics(shift + d / centering.pow2_scale, np.ones(len(d)), total - count * float(d @ d))


def scaled_statistics(state: State, view: View, shift: Float64, centering: Centering) -> Statistics:
    """Statistics of columns that are to be scaled, from sums about the provisional shift."""
    count = view.long
    d = state["sums"] / count if centering.center else np.zeros(view.short)
    squares = state["squares"] - count * d**2
    mean = shift + d / centering.pow2_scale
    deviation = deviations(squares, view, mean, centering)
    units = unit_divisors(deviation, centering)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        constant = np.minimum(squares / units / units, np.finfo(np.float64).max)
        total = np.where(deviation > 0, squares / units**2, constant).sum()
    return Statistics(mean, deviation, float(total))


def unit_divisors(deviation: Float64, centering: Centering) -> Float64:
    """Divisors that turn columns times pow2_scale into those of A, scaled and times its factor."""
    return divisors(deviation) * (centering.pow2_scale / centering.factor)


def deviations(squares: Float64, view: View, mean: Float64, centering: Centering) -> Float64:
    """Standard deviations of the columns; for complex columns from both parts, and once for each part.

    ``squares`` are times pow2_scale squared, which would leave the range of float64 without it.
    """
    paired, mean = is_complex(view.source), mean * centering.pow2_scale
    if paired:
        squares, mean = squares[::2] + squares[1::2], np.abs(numbers_of_parts(mean, paired=True))
    found = standard_deviations(squares, view.long, mean, centering) / centering.pow2_scale
    return twice(found, paired=paired)


def mean_about_shift(state: State, view: View, centering: Centering) -> Float64:
    """True mean less provisional shift, from sums: the difference of both vectors would lose digits."""
    if not (centering.center and view.orientation is Orientation.ROWS):
        return np.zeros(view.short)
    return np.asarray(state["sums"] / view.long / centering.pow2_scale)
