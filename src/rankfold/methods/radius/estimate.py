"""Estimate the number of edges of a graph from a sample of rows.

All ordered pairs within the radius are counted among ``s`` rows out of ``m``. Their number times
``m (m - 1) / (s (s - 1))`` is an unbiased estimate, since all pairs are drawn with the same probability. If
all rows are drawn it is the exact number.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from rankfold.kernels.neighbors.tree import count_within
from rankfold.methods.random_keys import Purpose
from rankfold.methods.tree.coordinates import PointReader
from rankfold.methods.tree.points import PointTree
from rankfold.methods.tree.queries import Queries
from rankfold.pipeline.data.selection import select
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.planning.shape_only import ShapeOnly

SAMPLE_ROWS = 2**15
"""Number of rows in the sample: a hundredth of a second to read, a tenth to count."""

DEVIATIONS = 4
"""Standard deviations of the count, as if pairs were independent, by which the bound exceeds it."""


@dataclass(frozen=True, slots=True)
class EdgeEstimate:
    """Estimated number of edges, and an upper bound."""

    edges: int
    most: int
    """Upper bound that is very unlikely to be exceeded; equal to ``edges`` where all rows were counted."""

    @classmethod
    def of(cls, reader: PointReader, queries: PointReader | None, radius: float) -> EdgeEstimate:
        """Count the edges among a sample; zeros for a matrix of which only the shape exists yet."""
        if any(_is_imagined(each.source) for each in (reader, queries) if each is not None):
            return cls(0, 0)
        points, all_pairs = _sample(reader), reader.source.shape[0]
        some = points if queries is None else _sample(queries)
        count = _count(points, some, radius, itself=queries is None)
        if queries is None:
            pairs, drawn = all_pairs * (all_pairs - 1), _pairs(points.source.shape[0])
        else:
            pairs = all_pairs * queries.source.shape[0]
            drawn = points.source.shape[0] * some.source.shape[0]
        if drawn >= pairs:
            return cls(count, count)
        # Each pair is counted from both sides: the count has twice the variance.
        upper = count + DEVIATIONS * math.sqrt(2 * count) + DEVIATIONS
        return cls(round(count * pairs / drawn), min(pairs, round(upper * pairs / drawn)))


def _is_imagined(source: object) -> bool:
    """True if a source, beneath its preparation (``prepare=``) and selections, has only a shape."""
    while hasattr(source, "inner"):
        source = source.inner
    return isinstance(source, ShapeOnly)


def _pairs(rows: int) -> int:
    return max(1, rows * (rows - 1))


def _sample(reader: PointReader) -> PointReader:
    """Reader of a random sample of rows, in order; of all rows if they are few."""
    rows = reader.source.shape[0]
    if rows <= SAMPLE_ROWS:
        return reader
    key = np.array([0, Purpose.RADIUS_ROWS], np.uint64)
    drawn = np.random.Generator(np.random.Philox(key=key)).choice(rows, SAMPLE_ROWS, replace=False)
    source: Source = select(reader.source, rows=np.sort(drawn), columns=None)
    return dataclasses.replace(reader, source=source)


def _count(points: PointReader, some: PointReader, radius: float, *, itself: bool) -> int:
    """Number of pairs of a point and one of ``some``, the queries, within the radius.

    ``itself`` is True if queries are the points: a point has no pair with itself.
    """
    tree = PointTree.read(points, 1)
    rows = some.source.shape[0]
    x = some.read(0, rows)
    _, x, own = Queries(tree, some, itself, None if itself else x).take(np.arange(rows))
    counts = np.zeros(rows, np.int64)
    where = {"metric": points.code, "radius": points.reach_of(radius), "counts": counts}
    count_within(tree.tree, x, own, points.period, **where)  # type: ignore[arg-type]
    return int(counts.sum())
