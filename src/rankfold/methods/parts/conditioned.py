"""Panels whose columns are centered and scaled when they are read, and measured while they are in cache.

A tall matrix is shifted by a vector fixed before the pass; its difference from the true mean is corrected
afterwards by whoever reads the accumulator. A wide matrix has whole columns in each panel and is centered
exactly here. A panel is the rows, or columns, in memory at a time, a grain those of one product.

Also means and deviations of the columns of a tall matrix: by a separate pass, or from sums of another.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.center_scale import measure
from rankfold.methods.parts.panels import BAD, Grain, OverPanels, Panels, numbers
from rankfold.pipeline.data.real_parts import is_complex, numbers_of_parts, twice
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Constant, Given, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Centering:
    """How columns are centered and scaled before they are multiplied; A is the matrix after both."""

    center: bool
    """True if column means are subtracted."""

    scale: bool
    """True if columns are divided by their standard deviations."""

    pow2_scale: float
    """Power of two near the reciprocal of the largest element, by which centered columns are multiplied so
    that their squares stay in range."""

    constant_below: float
    """Standard deviation, relative to the mean, up to which a column counts as constant."""

    factor: float
    """Power of two that A is multiplied by, so that its squares stay in range."""

    def panel_factor(self, orientation: Orientation) -> float:
        """Power of two that panels are multiplied by, for a sweep in that orientation.

        ``pow2_scale`` along the rows, where columns are not scaled yet; ``factor`` along the columns.
        """
        return self.pow2_scale if orientation is Orientation.ROWS else self.factor

    def scaled_squares(self, squares: Float64, factors: Float64) -> Float64:
        """Sums of squares (c,) of columns that are multiplied by ``factors`` (c,) and by ``factor``.

        ``squares`` (c,) are those of columns multiplied by ``pow2_scale`` alone. Constant columns have a
        factor of 1; where they leave the range of float64, so do their products.
        """
        unit = self.factor / self.pow2_scale
        with np.errstate(over="ignore", invalid="ignore"):
            constant = np.minimum(squares * unit * unit, np.finfo(np.float64).max)
            return np.where(factors == 1, constant, squares * (factors * unit) ** 2)


@dataclass(frozen=True, slots=True)
class LocalColumns:
    """Mean, deviation, scale and sum of squares of some whole columns, (c,) each, on their device."""

    mean: Float64
    deviation: Float64
    """Standard deviation, 0 for constant columns; 1 where nothing is scaled."""

    scale: Float64
    """Factors of centered columns: 1, or 1 / standard deviation (1 where that is 0)."""

    squares: Float64
    """Sum of squares of each column once centered and scaled, times the factor of A squared."""


def local_columns(x: npt.NDArray[Any], centering: Centering) -> LocalColumns:
    """Statistics of whole columns ``x`` (m, c); not finite for columns with NaN or Inf.

    The mean is taken twice, the second time of the differences from the first: for float64 data of mean 1e8
    and standard deviation 1 a single sum leaves a residual mean of 1e-8.
    """
    rows, columns = x.shape
    x = numbers(x)
    mean = np.zeros_like(x, np.float64, shape=columns)
    if centering.center:
        mean = measure(x, mean, 1.0)[0] / rows
    sums, squares = measure(x, mean, centering.pow2_scale)
    if centering.center:
        correction = sums / rows
        mean = mean + correction / centering.pow2_scale
        squares = squares - rows * correction**2
    factor, deviation = np.ones_like(mean), np.ones_like(mean)
    if centering.scale:
        deviation = np.sqrt(np.maximum(squares, 0.0) / max(rows - 1, 1)) / centering.pow2_scale
        varies = deviation > centering.constant_below * np.abs(mean)
        deviation = np.where(varies, deviation, 0.0)
        factor = 1.0 / np.where(varies, deviation, 1.0)
        squares = centering.scaled_squares(squares, factor)
    return LocalColumns(mean, deviation, factor, squares)


# Folds over such panels ---------------------------------------------------------------------------


Array = npt.NDArray[Any]


class OverColumns(OverPanels):
    """Base class of folds that measure whole columns, where the sweep runs along the columns."""

    __slots__ = ()
    panels: Panels
    centering: Centering
    columns: ScratchMatrix | None
    """Scratch matrix (columns, 2) for mean and deviation of each column; None if they are not to be
    written."""

    def measure_columns(self, state: State, work: Workspace, grain: Grain) -> LocalColumns | None:
        """Statistics of the columns of a grain, which are also written to ``columns``.

        None if they are not finite; NaN and Inf are then counted in ``state``.
        """
        columns = local_columns(grain.raw, self.centering)
        if not self.is_finite(state, work, grain, columns.squares):
            return None
        if self.columns is not None:
            pairs = np.column_stack([columns.mean, columns.deviation])
            work.device.send(pairs, functools.partial(self.columns.write, grain.first))
        return columns


class OverConditionedPanels(OverColumns):
    """Base class of folds over panels of a matrix whose columns are centered and scaled."""

    __slots__ = ()

    measures_columns: bool
    """True if sums and squares of columns are added up as well, as in the first pass over the data."""

    shift: Float64
    """(short,) vector subtracted from the rows of a tall matrix, near the column means; may be in
    ``shift_part``."""

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays of a segment by name: ``shift`` (short,) of the columns, and a vector of ``ones``.

        The shift is read from ``shift_part``, or held by the fold.
        """
        short = self.panels.view.short
        buffers: dict[str, Buffer] = {"ones": Buffer((max(short, self.panels.grain_rows),))}
        if self.shift_part is not None:
            buffers["shift"] = Constant((short,), part=self.shift_part)
        else:
            buffers["shift"] = Given.of(self.shift)
        return buffers

    @property
    def shift_part(self) -> Path | None:
        """Path of the checkpoint file with ``shift`` (short,); None if the fold holds it itself."""
        return None

    @property
    def vectors_bytes(self) -> int:
        """Bytes of the vectors along either side of a grain that a step allocates."""
        return 6 * 8 * max(self.panels.view.short, self.panels.grain_rows)

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums: vectors along either side of a grain."""
        return self.vectors_bytes

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all long rows, by name: ``sums``, ``squares`` (short,) and ``bad``.

        For a tall matrix they are the sums and sums of squares of its columns less ``shift``, times
        ``pow2_scale``, if ``measures_columns``. Of a wide matrix ``squares[0]`` is the sum of all squares.
        ``bad`` is count and first position of NaN and Inf.
        """
        short = (self.panels.view.short,)
        return {"sums": Sum(short), "squares": Sum(short), "bad": BAD}

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers and panels on ``device``, and fill the vector of ones."""
        work = super().workspace(device)
        work.ones[:] = 1.0
        return work

    def condition_grains(
        self, state: State, work: Workspace, start: int, stop: int, slot: int
    ) -> Iterator[tuple[int, int, Array]]:
        """Yield the centered and scaled grains of panel ``slot``, which holds the long rows ``start:stop``.

        Each comes as index of its first long row, index after the last, and values (rows, short). Sums of
        columns are added to ``state`` if they are measured. Grains with NaN or Inf are left out, and their
        bad elements are counted.
        """
        condition = (
            self._shift_columns if self.panels.view.orientation is Orientation.ROWS else self._center_columns
        )
        for grain in self.panels.grains(work.panels, start, stop, slot):
            d = condition(state, work, grain)
            if d is not None:
                yield grain.first, grain.last, self.panels.view.as_rows(d)

    def _shift_columns(self, state: State, work: Workspace, grain: Grain) -> Array | None:
        raw = grain.raw
        if self.measures_columns:
            sums, squares = measure(numbers(raw), work.shift, self.centering.pow2_scale)
            if not self.is_finite(state, work, grain, squares):
                return None
            state["sums"] += sums
            state["squares"] += squares
        if not self.centering.center and raw.dtype == self.panels.dtype:
            return raw
        return self.panels.condition(work.panels, raw, work.shift, work.ones[: raw.shape[1]])

    def _center_columns(self, state: State, work: Workspace, grain: Grain) -> Array | None:
        raw, columns = grain.raw, self.measure_columns(state, work, grain)
        if columns is None:
            return None
        state["squares"][0] += columns.squares.sum()
        if not (self.centering.center or self.centering.scale) and raw.dtype == self.panels.dtype:
            return raw
        return self.panels.condition(work.panels, raw, columns.mean, columns.scale)


@dataclass(frozen=True, slots=True)
class ColumnStatistics(OverPanels):
    """Fold that sums the columns of ``x - shift`` and their squares over all rows of a tall matrix."""

    panels: Panels
    shift: npt.NDArray[np.float64]
    """(short,) vector subtracted from each row, near the column means."""

    pow2_scale: float
    """Power of two that differences are multiplied by before they are summed and squared."""

    row_seconds: float

    kernels = (measure,)

    def buffers(self) -> Mapping[str, Buffer]:
        """The one working array: ``shift`` of the columns, (short,)."""
        return {"shift": Given.of(self.shift)}

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all rows, by name.

        ``sums`` and ``squares`` (short,) are those of the columns less ``shift``, times ``pow2_scale``;
        ``bad`` is count and first position of NaN and Inf.
        """
        short = (self.panels.view.short,)
        return {"sums": Sum(short), "squares": Sum(short), "bad": BAD}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums: sums and squares of the columns of one grain."""
        return 2 * 8 * self.panels.view.short

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Add rows ``start:stop``, read into panel buffer ``slot``, to the sums ``state``, in place."""
        for grain in self.panels.grains(work.panels, start, stop, slot):
            sums, squares = measure(numbers(grain.raw), work.shift, self.pow2_scale)
            if self.is_finite(state, work, grain, squares):
                state["sums"] += sums
                state["squares"] += squares


def standard_deviations(squares: Float64, count: int, mean: Float64, centering: Centering) -> Float64:
    """Standard deviations (n,) of columns of ``count`` rows; 0 for those constant up to rounding.

    ``squares`` (n,) are sums of squares about ``mean`` (n,), in one unit.
    """
    deviation = np.sqrt(np.maximum(squares, 0.0) / max(count - 1, 1))
    return np.where(deviation > centering.constant_below * np.abs(mean), deviation, 0.0)


def divisors(deviation: Float64) -> Float64:
    """Divisors (n,) of columns for scaling: the deviations (n,), or 1 for constant columns."""
    return np.where(deviation > 0, deviation, 1.0)


# From sums --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Statistics:
    """Means and deviations of the n columns of a tall matrix, in units of the data.

    For a complex matrix ``mean`` (2 n,) has both parts of each mean in turn, and ``deviation`` (2 n,) each
    deviation twice.
    """

    mean: Float64
    """(n,) column means; zeros if they are not subtracted."""

    deviation: Float64
    """(n,) standard deviations, 0 for constant columns; ones if columns are not scaled."""

    total: float
    """Sum of squares of A, centered, scaled and times its factor; also for a wide matrix."""


def statistics(state: State, view: View, shift: Float64, centering: Centering) -> Statistics:
    """Statistics of columns that are not scaled, from the sums of a pass about ``shift`` (short,).

    Of a wide matrix only ``total`` is found: mean and deviation are 0 and 1.
    """
    total, count = float(state["squares"].sum()), view.long
    if not (view.orientation is Orientation.ROWS and centering.center):
        return Statistics(np.zeros(len(state["sums"])), np.ones(len(state["sums"])), total)
    d = state["sums"] / count
    return Statistics(shift + d / centering.pow2_scale, np.ones(len(d)), total - count * float(d @ d))


def scaled_statistics(state: State, view: View, shift: Float64, centering: Centering) -> Statistics:
    """Statistics of a tall matrix whose columns are scaled, from sums of a pass about ``shift`` (short,)."""
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
    """Divisors (n,) that turn centered columns times ``pow2_scale`` into columns of A times its factor."""
    return divisors(deviation) * (centering.pow2_scale / centering.factor)


def deviations(squares: Float64, view: View, mean: Float64, centering: Centering) -> Float64:
    """Standard deviations (n,) of the columns; of complex ones from both parts, and once for each part.

    ``squares`` (n,) are sums of squares of centered columns times ``pow2_scale``, which would leave the range
    of float64 without it; ``mean`` (n,) is in units of the data.
    """
    paired, mean = is_complex(view.source), mean * centering.pow2_scale
    if paired:
        squares, mean = squares[::2] + squares[1::2], np.abs(numbers_of_parts(mean, paired=True))
    found = standard_deviations(squares, view.long, mean, centering) / centering.pow2_scale
    return twice(found, paired=paired)


def mean_about_shift(state: State, view: View, centering: Centering) -> Float64:
    """(short,) true mean less provisional shift, from the sums of a pass; zeros if nothing is shifted.

    The difference of both vectors would lose digits.
    """
    if not (centering.center and view.orientation is Orientation.ROWS):
        return np.zeros(view.short)
    return np.asarray(state["sums"] / view.long / centering.pow2_scale)
