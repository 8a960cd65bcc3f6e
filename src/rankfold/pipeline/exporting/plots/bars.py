"""Bar charts of counts: rows of each cluster, edges of each row, rows along one coordinate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import InputError
from rankfold.pipeline.exporting.outcome import Outcome
from rankfold.pipeline.exporting.plots.canvas import (
    LIGHT,
    Theme,
    drawn,
    label_axes,
    log_scale,
    quiet,
    whole_numbers,
)
from rankfold.pipeline.exporting.plots.coordinates import Plottable, Points
from rankfold.pipeline.exporting.plots.density import count_points, extent_of
from rankfold.pipeline.formats.csr import csr_source

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

MOST_SINGLE = 100
"""Largest number of bars, of one integer or one cluster each, that are drawn with gaps between them."""

BINS = 100
BLOCK = 2**20

WIDEST_RATIO = 50
"""Ratio of the largest count to the smallest above 0, beyond which counts have a logarithmic scale."""


@dataclass(frozen=True, slots=True)
class Bars:
    """Data of a bar chart."""

    counts: Int64
    edges: Float64
    """Edges of the bars along the x axis, (bars + 1,)."""

    x: str
    y: str
    note: str = ""
    whole: bool = True
    """True if the x axis has integers: then counts get a logarithmic scale if they differ much."""

    left: int = 150
    right: int = 12
    size: tuple[int, int] = (1478, 500)

    @property
    def alt(self) -> str:
        """Description of the picture in words."""
        return f"{self.y} by {self.x}, {int(self.counts.sum()):,} in all"

    def draw(self, axes: Axes, theme: Theme = LIGHT) -> None:
        """Draw the plot into matplotlib axes, which rankfold or a user has made."""
        gap = 0.15 if len(self.counts) <= MOST_SINGLE else 0.0
        width = np.diff(self.edges)
        axes.bar(
            self.edges[:-1] + gap / 2 * width,
            self.counts,
            (1 - gap) * width,
            align="edge",
            color=theme.accent,
            linewidth=0,
        )
        filled = self.counts[self.counts > 0]
        if self.whole and len(filled) and filled.max() > WIDEST_RATIO * filled.min():
            log_scale(axes, 0.7, filled.max())
            axes.set_ylim(bottom=0.7)
        else:
            axes.yaxis.set_major_locator(whole_numbers(6))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        label_axes(axes, theme, self.x, self.y)
        if self.whole:
            axes.xaxis.set_major_locator(whole_numbers(12))
        axes.set_xlim(self.edges[0], self.edges[-1])
        quiet(axes, theme, grid="y")
        axes.set_title(drawn(self.note), loc="right", color=theme.muted, fontsize=9, pad=8)


def line_of(points: Points) -> Bars:
    """Histogram of the rows along one coordinate, in ``BINS`` bins; reads the points twice."""
    extent = extent_of(points)
    grid = count_points(points, extent, (BINS,))
    return Bars(grid.counts, extent.edges((BINS,))[0], points.names[0], "rows", whole=False)


def sizes_of(result: Outcome) -> Bars:
    """Bar chart of the number of rows of each cluster, in order of cluster labels.

    With more than ``MOST_SINGLE`` clusters, the order is by size.
    """
    counts = np.asarray(result["counts"][...], np.int64)
    x = "cluster"
    if len(counts) > MOST_SINGLE:
        counts, x = np.sort(counts)[::-1], "clusters from the largest on"
    note = f"{len(counts)} clusters of {counts.min():,} to {counts.max():,} rows"
    return Bars(counts, np.arange(len(counts) + 1, dtype=np.float64) - 0.5, x, "rows", note)


def has_graph(result: Plottable) -> bool:
    """True if a result has a graph of its rows: a sparse group ``graph`` in its store."""
    from pathlib import Path

    return (Path(result.path) / "graph").exists()


def degrees_of(result: Plottable) -> Bars:
    """Histogram of the number of edges of each row in the graph of a result.

    If all rows have equally many, it counts instead how many rows list each row as a neighbor; this takes 8
    bytes of memory for each row.
    """
    graph = csr_source(str(result.path), "graph")
    graph.check_lengths()
    rows, stored = graph.shape[0], graph.nnz
    counts = _histogram(np.diff(graph.pointers(*span)) for span in _spans(rows))
    x = "edges of a row"
    if np.count_nonzero(counts) == 1 and "indices" in set(result):
        incoming = np.zeros(graph.shape[1], np.int64)
        for span in _spans(stored):
            incoming += np.bincount(graph.places(*span), minlength=len(incoming))
        counts, x = _histogram(iter([incoming])), f"rows that have a row among their {counts.argmax()}"
    return _degree_bars(counts, x)


def _degree_bars(counts: Int64, x: str) -> Bars:
    rows, degrees = int(counts.sum()), np.arange(len(counts))
    if not rows:
        raise InputError("this graph has no rows")
    middle = int(np.searchsorted(np.cumsum(counts), (rows + 1) // 2))
    first = int(np.flatnonzero(counts)[0])
    note = f"median {middle:,}, from {first:,} to {len(counts) - 1:,}"
    low = 0 if first <= (len(counts) - first) // 5 else first
    step = max(1, -(-(len(counts) - low) // MOST_SINGLE))
    edges = np.arange(low, len(counts) + step, step)
    binned = np.histogram(degrees, np.append(edges, edges[-1] + step), weights=counts)[0]
    return Bars(binned[:-1].astype(np.int64), np.asarray(edges, np.float64) - 0.5, x, "rows", note)


def _histogram(blocks: Iterator[Int64]) -> Int64:
    """Number of occurrences of each integer from 0 to the largest, over all blocks, (largest + 1,)."""
    counts = np.zeros(1, np.int64)
    for block in blocks:
        more = np.bincount(block.astype(np.int64), minlength=len(counts))
        more[: len(counts)] += counts
        counts = more
    return counts


def _spans(length: int) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each block of ``range(length)``."""
    for start in range(0, length, BLOCK):
        yield start, min(length, start + BLOCK)
