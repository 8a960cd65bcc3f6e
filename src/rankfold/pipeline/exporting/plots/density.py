"""Points counted on a grid, block of rows after block: memory does not grow with the number of points.

Counts, and sums of colors as integers, are exact in any order. Sums of values are taken
in the order of the rows by blocks of a size that follows from the columns alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.exporting.plots.coordinates import Points
from rankfold.pipeline.exporting.plots.row_colors import Labels, Values

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

CELLS = 40
"""Number of cells along each side of the coarse grid that finds where most points of a label lie."""

PADDING = 0.03
"""Margin on every side of the plotted area, as a share of the extent of the points."""


NO_COLORS = np.zeros((1, 3), np.int64)
NO_LABELS = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Extent:
    """Bounds of the plotted area, (2,) each, or of the plotted interval, (1,) each."""

    low: Float64
    high: Float64

    @property
    def size(self) -> Float64:
        """Length of the area along each axis, (2,) or (1,), above 0."""
        return self.high - self.low

    def edges(self, counts: tuple[int, ...]) -> list[Any]:
        """Edges of ``counts`` equal bins along each axis, (count + 1,) each, as of ``numpy.histogram2d``."""
        return [
            np.linspace(low, high, count + 1)
            for low, high, count in zip(self.low, self.high, counts, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Grid:
    """For every bin of a grid: number of points, and sums of their colors or values."""

    extent: Extent
    counts: Int64
    """Numbers of points in bins, (bins along x, bins along y) as of ``numpy.histogram2d``, or (bins,)."""

    colors: Float64 | None = None
    """Sums over the points of a bin of red, green, blue (0 to 255) of their labels, (x bins, y bins, 3)."""

    values: Float64 | None = None
    """Sums over the points of a bin of their finite values, with the shape of ``counts``."""

    value_counts: Int64 | None = None
    """Numbers of points with a finite value, with the shape of ``counts``."""

    places: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Position (x, y) where most points of a label lie, by label, if at least half of those there have it."""


def extent_of(points: Points) -> Extent:
    """Bounds of all points, with a margin of ``PADDING`` on every side; reads the points once."""
    low = np.full(points.dimensions, np.inf)
    high = -low
    for _, block in points.blocks():
        np.minimum(low, block.min(axis=1), out=low)
        np.maximum(high, block.max(axis=1), out=high)
    size = high - low
    # Equal coordinates get an interval around them.
    empty = size <= 1e-12 * np.maximum(np.abs(low), np.abs(high))
    margin = np.where(empty, np.maximum(0.5, 1e-3 * np.abs(low)), PADDING * size)
    return Extent(low - margin, high + margin)


def count_points(
    points: Points,
    extent: Extent,
    bins: tuple[int, ...],
    color: Labels | Values | None = None,
    palette: Int64 = NO_COLORS,
    named: Int64 = NO_LABELS,
) -> Grid:
    """Count the points of every bin, and sum their colors or values; reads the points once.

    Parameters
    ----------
    extent : Extent
        Bounds of the grid; points beyond count in its outermost bins.
    bins : tuple of int
        Number of bins along each axis.
    color : Labels or Values, optional
        What is summed: colors of the labels of points, or their values.
    palette : (labels + 1, 3) int64
        Colors of labels, 0 to 255; the last is that of rows without a label.
    named : (n,) int64
        Labels for which ``Grid.places`` is found.
    """
    size, edges = int(np.prod(bins)), extent.edges(bins)
    counts = np.zeros(size, np.int64)
    colors = np.zeros((3, size)) if isinstance(color, Labels) else None
    values = np.zeros(size) if isinstance(color, Values) else None
    value_counts = np.zeros(size, np.int64) if isinstance(color, Values) else None
    cells = np.zeros((len(named) + 1, CELLS * CELLS), np.int64)
    row_of = np.full(len(palette), len(named))
    row_of[named] = np.arange(len(named))
    for start, block in points.blocks():
        at = _bins(block, edges)
        counts += np.bincount(at, minlength=size)
        if isinstance(color, Labels) and colors is not None:
            codes = color.read(start, start + block.shape[1])
            for channel, total in zip(palette.T, colors, strict=True):
                total += np.bincount(at, channel[codes], size)
            if len(named):
                coarse = row_of[codes] * CELLS**2 + _coarse(at, bins)
                cells += np.bincount(coarse, minlength=cells.size).reshape(cells.shape)
        elif isinstance(color, Values) and values is not None and value_counts is not None:
            block_values = color.read(start, start + block.shape[1])
            known = np.isfinite(block_values)
            values += np.bincount(at[known], block_values[known], size)
            value_counts += np.bincount(at[known], minlength=size)
    together = cells.sum(axis=0)
    found = {int(label): _densest(each, together, extent) for label, each in zip(named, cells, strict=False)}
    return Grid(
        extent,
        counts.reshape(bins),
        None if colors is None else np.moveaxis(colors.reshape(3, *bins), 0, -1),
        None if values is None else values.reshape(bins),
        None if value_counts is None else value_counts.reshape(bins),
        {label: place for label, place in found.items() if place is not None},
    )


def _coarse(at: Int64, bins: tuple[int, ...]) -> Int64:
    """Flat index of the cell of the coarse grid (CELLS, CELLS) in which each point lies, (points,).

    ``at`` is the flat index of the bin of each point in a grid of ``bins``.
    """
    across, up = np.divmod(np.arange(bins[0] * bins[1]), bins[1])
    cells: Int64 = (across * CELLS // bins[0]) * CELLS + up * CELLS // bins[1]
    return cells[at]


def _densest(counts: Int64, together: Int64, extent: Extent) -> tuple[float, float] | None:
    """Center of mass (x, y) of the points of a label in the 3 by 3 cells that hold the most of them.

    ``counts`` and ``together`` (CELLS * CELLS,) are the numbers of points of the label, and of all labels, in
    the cells of the coarse grid over ``extent``. None if most points in these cells are of other labels.
    """
    nine, among = (
        np.lib.stride_tricks.sliding_window_view(np.pad(each.reshape(CELLS, CELLS), 1), (3, 3))
        for each in (counts, together)
    )
    weights = nine.sum(axis=(2, 3))
    i, j = np.unravel_index(np.argmax(weights), weights.shape)
    if 2 * weights[i, j] < among[i, j].sum():
        return None
    step = np.arange(-1, 2)
    around = nine[i, j] / max(1, weights[i, j])
    middle = i + around.sum(axis=1) @ step, j + around.sum(axis=0) @ step
    x, y = extent.low + (np.array(middle) + 0.5) / CELLS * extent.size
    return float(x), float(y)


def _bins(block: Float64, edges: list[Float64]) -> Int64:
    """Flat index (points,) of the bin of each point of ``block``, (axes, points), in C order.

    ``edges`` are those of the bins along each axis, with which points are compared as in
    ``numpy.histogram2d``.
    """
    at = np.zeros(block.shape[1], np.int64)
    for values, edge in zip(block, edges, strict=True):
        count = len(edge) - 1
        at = at * count + np.clip(np.searchsorted(edge, values, side="right") - 1, 0, count - 1)
    return at
