"""Points counted on a grid, block after block: memory is that of the grid and a block, whatever there are.

Counts, and sums of colors in whole numbers, are exact, so no order changes them. Sums of values are taken
in the order of the rows by blocks of a size that follows from the columns alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.exporting.plots.coordinates import Points
from rankfold.pipeline.exporting.plots.row_colors import Labels, Values

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

PADDING = 0.03
"""Share of the extent that is left empty on every side."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What of the plane, or of the line, is drawn."""

    low: Float64
    high: Float64

    @property
    def size(self) -> Float64:
        """Length of every side, above 0."""
        return self.high - self.low

    def edges(self, counts: tuple[int, ...]) -> list[Any]:
        """Edges of bins along each axis, as ``numpy.histogram2d`` has them."""
        return [
            np.linspace(low, high, count + 1)
            for low, high, count in zip(self.low, self.high, counts, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Grid:
    """What lies in every bin."""

    extent: Extent
    counts: Int64
    """Points, (x, y) as ``numpy.histogram2d`` has them, or (x,)."""

    colors: Float64 | None = None
    """Sums of the colors of labels, (x, y, 3), each 0 to 255."""

    values: Float64 | None = None
    """Sums of values that are numbers."""

    value_counts: Int64 | None = None
    """Points that have such a value."""


def extent_of(points: Points) -> Extent:
    """What holds all points, with a margin; one read."""
    low = np.full(points.dimensions, np.inf)
    high = -low
    for _, block in points.blocks():
        np.minimum(low, block.min(axis=1), out=low)
        np.maximum(high, block.max(axis=1), out=high)
    size = high - low
    # Where all are equal, they lie in the middle of something.
    empty = size <= 1e-12 * np.maximum(np.abs(low), np.abs(high))
    margin = np.where(empty, np.maximum(0.5, 1e-3 * np.abs(low)), PADDING * size)
    return Extent(low - margin, high + margin)


def count_points(
    points: Points, extent: Extent, bins: tuple[int, ...], color: Labels | Values | None, palette: Int64
) -> Grid:
    """Points of every bin, and the sums of their colors or values; one read.

    Parameters
    ----------
    bins : tuple of int
        Along each axis.
    palette : (labels + 1, 3) int64
        Colors of labels, 0 to 255; the last is that of rows without a label.
    """
    size = int(np.prod(bins))
    counts = np.zeros(size, np.int64)
    colors = np.zeros((3, size)) if isinstance(color, Labels) else None
    values = np.zeros(size) if isinstance(color, Values) else None
    value_counts = np.zeros(size, np.int64) if isinstance(color, Values) else None
    edges = extent.edges(bins)
    for start, block in points.blocks():
        at = _bins(block, edges)
        counts += np.bincount(at, minlength=size)
        if isinstance(color, Labels) and colors is not None:
            codes = color.read(start, start + block.shape[1])
            for channel, total in zip(palette.T, colors, strict=True):
                total += np.bincount(at, channel[codes], size)
        elif isinstance(color, Values) and values is not None and value_counts is not None:
            block_values = color.read(start, start + block.shape[1])
            known = np.isfinite(block_values)
            values += np.bincount(at[known], block_values[known], size)
            value_counts += np.bincount(at[known], minlength=size)
    return Grid(
        extent,
        counts.reshape(bins),
        None if colors is None else np.moveaxis(colors.reshape(3, *bins), 0, -1),
        None if values is None else values.reshape(bins),
        None if value_counts is None else value_counts.reshape(bins),
    )


def _bins(block: Float64, edges: list[Float64]) -> Int64:
    """Number of the bin of each point, in C order; by comparison with edges, as ``numpy.histogram2d``."""
    at = np.zeros(block.shape[1], np.int64)
    for values, edge in zip(block, edges, strict=True):
        count = len(edge) - 1
        at = at * count + np.clip(np.searchsorted(edge, values, side="right") - 1, 0, count - 1)
    return at
