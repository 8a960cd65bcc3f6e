"""Panels whose columns are centered and scaled on the way, and measured while they are in cache.

A tall matrix is shifted by a vector fixed before the pass; what the true mean differs from it is put
right afterwards by whoever reads the accumulator. A wide matrix has whole columns in each panel and is
centered exactly here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.center_scale import measure
from rankfold.methods.parts.finite import BAD, count_bad
from rankfold.methods.parts.panels import OverPanels, Panels, numbers
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.fold import Buffer, Constant, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Centering:
    """What is done to columns before they are multiplied."""

    center: bool
    scale: bool
    pow2_scale: float
    """Power of two near the reciprocal of the largest element: squares of ``A`` stay in range."""

    constant_below: float
    """Standard deviation, relative to the mean, under which a column counts as constant."""


@dataclass(frozen=True, slots=True)
class LocalColumns:
    """Mean, deviation, scale and sum of squares of some whole columns."""

    mean: Float64
    deviation: Float64
    """Standard deviation, 0 for constant columns; 1 where nothing is scaled."""

    scale: Float64
    """What centered columns are multiplied by: 1, or 1 / standard deviation (1 where that is 0)."""

    squares: Float64
    """Sum of squares of each column once centered and scaled, times pow2_scale squared."""


def measure_columns(
    x: npt.NDArray[Any], centering: Centering, first: int, file: ScratchMatrix | None
) -> LocalColumns | None:
    """Statistics of whole columns from ``first`` on, also written to ``file``; None if not finite."""
    columns = local_columns(x, centering)
    if not np.isfinite(columns.squares).all():
        return None
    if file is not None:
        file.write(first, np.column_stack([columns.mean, columns.deviation]))
    return columns


def local_columns(x: npt.NDArray[Any], centering: Centering) -> LocalColumns:
    """Statistics of whole columns (m, c); not finite where a column is not.

    The mean is taken twice, the second time of what the first left: for float64 data of mean 1e8 and
    standard deviation 1 a single sum leaves a residual mean of 1e-8.
    """
    rows, columns = x.shape
    x = numbers(x)
    mean = np.zeros(columns)
    if centering.center:
        mean = measure(x, mean, 1.0)[0] / rows
    sums, squares = measure(x, mean, centering.pow2_scale)
    if centering.center:
        correction = sums / rows
        mean = mean + correction / centering.pow2_scale
        squares = squares - rows * correction**2
    factor, deviation = np.ones(columns), np.ones(columns)
    if centering.scale:
        deviation = np.sqrt(np.maximum(squares, 0.0) / max(rows - 1, 1)) / centering.pow2_scale
        varies = deviation > centering.constant_below * np.abs(mean)
        deviation[~varies] = 0.0
        factor[varies] = 1.0 / deviation[varies]
        squares = squares * factor**2
    return LocalColumns(mean, deviation, factor, squares)


# Folds over such panels ---------------------------------------------------------------------------


Array = npt.NDArray[Any]


class OverConditionedPanels(OverPanels):
    """What folds over centered and scaled panels share."""

    __slots__ = ()
    panels: Panels
    centering: Centering
    columns: ScratchMatrix | None
    """Where mean and scale of each column go when the sweep runs along the columns."""

    measures_columns: bool
    """Whether sums and squares are taken: the first pass over the data."""

    shift: Float64

    def buffers(self) -> Mapping[str, Buffer]:
        """What columns are shifted by, from ``shift_part`` if the fold does not hold it itself."""
        short = self.panels.view.short
        buffers: dict[str, Buffer] = {"ones": Buffer((max(short, self.panels.grain_rows),))}
        if self.shift_part is not None:
            buffers["shift"] = Constant((short,), part=self.shift_part)
        return buffers

    @property
    def shift_part(self) -> Path | None:
        """Where ``shift`` (short,) is kept."""
        return None

    @property
    def vectors_bytes(self) -> int:
        """Bytes of vectors along either side of a grain."""
        return 6 * 8 * max(self.panels.view.short, self.panels.grain_rows)

    @property
    def beside_bytes(self) -> int:
        """Bytes of vectors along either side of a grain, and nothing else."""
        return self.vectors_bytes

    def sums(self) -> Mapping[str, Sum]:
        """Sums and squares of columns."""
        short = (self.panels.view.short,)
        return {"sums": Sum(short), "squares": Sum(short), "bad": BAD}

    def workspace(self) -> Workspace:
        """Buffers, panels, and ones."""
        work = super().workspace()
        work.ones[:] = 1.0
        if self.shift_part is None:
            work.shift = self.shift
        return work

    def condition_grains(
        self, state: State, work: Workspace, start: int, stop: int, slot: int
    ) -> Iterator[tuple[int, int, Array]]:
        """Grains of the panel in a slot, ready to multiply: first and last long row, (rows, short).

        Those with NaN or Inf are counted and left out.
        """
        condition = (
            self._shift_columns if self.panels.view.orientation is Orientation.ROWS else self._center_columns
        )
        for first, last, raw in self.panels.grains(work.panels, start, stop, slot):
            d = condition(state, work, first, raw)
            if d is None:
                count_bad(state, raw, *self.panels.corner(first))
            else:
                yield first, last, self.panels.view.as_rows(d)

    def _shift_columns(self, state: State, work: Workspace, first: int, raw: Array) -> Array | None:
        if self.measures_columns:
            sums, squares = measure(numbers(raw), work.shift, self.centering.pow2_scale)
            if not np.isfinite(squares).all():
                return None
            state["sums"] += sums
            state["squares"] += squares
        if not self.centering.center and raw.dtype == self.panels.dtype:
            return raw
        return self.panels.condition(work.panels, raw, work.shift, work.ones[: raw.shape[1]])

    def _center_columns(self, state: State, work: Workspace, first: int, raw: Array) -> Array | None:
        columns = measure_columns(raw, self.centering, first, self.columns)
        if columns is None:
            return None
        state["squares"][0] += columns.squares.sum()
        if not (self.centering.center or self.centering.scale) and raw.dtype == self.panels.dtype:
            return raw
        return self.panels.condition(work.panels, raw, columns.mean, columns.scale)
