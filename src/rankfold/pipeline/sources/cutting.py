"""Cutting a span along the chunks of its axis, for buffers of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankfold.pipeline.blocks import Grid
from rankfold.pipeline.source import Span


def steps(span: Span, grid: Grid, most: int) -> Iterator[Span]:
    """Cut a span into pieces of at most ``most``, or one chunk where chunks are not to be split.

    >>> list(steps((1, 10), Grid.regular(12, 4, splittable=False), 5))
    [(1, 4), (4, 8), (8, 10)]
    """
    start, stop = span
    while start < stop:
        end = min(stop, start + max(1, most))
        if not grid.splittable and end < stop:
            end = int(grid.edges[np.searchsorted(grid.edges, end, side="right") - 1])
            if end <= start:
                end = min(stop, int(grid.edges[np.searchsorted(grid.edges, start, side="right")]))
        yield start, end
        start = end


def unit(grid: Grid) -> int:
    """Places that are read at once at the least."""
    return 1 if grid.splittable else grid.longest
