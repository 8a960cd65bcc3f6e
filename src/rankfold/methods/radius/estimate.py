"""How many edges a graph will have, from a sample of rows: counted, not guessed.

Of ``s`` rows out of ``m`` the ordered pairs within the radius are counted, all of them. Their number times
``m (m - 1) / (s (s - 1))`` is an estimate without bias, since every pair is as likely to be drawn. Where all
rows are drawn it is the number itself.
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
"""Rows that are looked at: a hundredth of a second to read, a tenth to count."""

DEVIATIONS = 4
"""Of the count, as if pairs came by chance, that the bound is above it."""


@dataclass(frozen=True, slots=True)
class EdgeEstimate:
    """What a sample says of the number of edges."""

    edges: int
    most: int
    """A bound that holds but by mischance; the same where all rows were counted."""

    @classmethod
    def of(cls, reader: PointReader, queries: PointReader | None, radius: float) -> EdgeEstimate:
        """Count among a sample; nothing where there are no numbers to be read yet."""
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
        # Pairs are counted from either side: their number has twice the variance.
        upper = count + DEVIATIONS * math.sqrt(2 * count) + DEVIATIONS
        return cls(round(count * pairs / drawn), min(pairs, round(upper * pairs / drawn)))


def _is_imagined(source: object) -> bool:
    """Whether there is nothing but a shape, under steps and selections."""
    while hasattr(source, "inner"):
        source = source.inner
    return isinstance(source, ShapeOnly)


def _pairs(rows: int) -> int:
    return max(1, rows * (rows - 1))


def _sample(reader: PointReader) -> PointReader:
    """Rows that are drawn, in order; all where they are few."""
    rows = reader.source.shape[0]
    if rows <= SAMPLE_ROWS:
        return reader
    key = np.array([0, Purpose.RADIUS_ROWS], np.uint64)
    drawn = np.random.Generator(np.random.Philox(key=key)).choice(rows, SAMPLE_ROWS, replace=False)
    source: Source = select(reader.source, rows=np.sort(drawn), columns=None)
    return dataclasses.replace(reader, source=source)


def _count(points: PointReader, some: PointReader, radius: float, *, itself: bool) -> int:
    """Pairs within the radius."""
    tree = PointTree.read(points, 1)
    rows = some.source.shape[0]
    x = some.read(0, rows)
    _, x, own = Queries(tree, some, itself, None if itself else x).take(np.arange(rows))
    counts = np.zeros(rows, np.int64)
    where = {"metric": points.code, "radius": points.reach_of(radius), "counts": counts}
    count_within(tree.tree, x, own, points.period, **where)  # type: ignore[arg-type]
    return int(counts.sum())
