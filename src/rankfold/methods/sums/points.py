"""Sources in memory: read once with their weights, and arranged in a tree if they have up to three columns.

Tasks of this process use them in place; other processes map files of them, which the engine writes:
see ``rankfold.pipeline.engine.scheduler``.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankfold.kernels.sums.moments import moments_bytes
from rankfold.kernels.sums.tree import SumTree, tree_bytes
from rankfold.kernels.sums.tree_sums import Sources
from rankfold.methods.parts.row_weights import open_row_weights
from rankfold.methods.tree.coordinates import PointReader
from rankfold.methods.tree.points import read_edges
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import DataError

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

TREE_COLUMNS = 3
"""Largest number of columns for a tree; with more, every target sums over all sources."""

FARTHEST = 1e100
"""Largest magnitude of a coordinate for which all powers in sums are finite."""


@dataclass(frozen=True, slots=True)
class SourcePoints:
    """Coordinates and weights of all sources in memory, and the tree of those that are summed."""

    rows: Float64
    """(n, d) coordinates, in the order of the tree if there is one; the ``weightless`` points that are not
    summed come last."""

    ids: Int64
    """(n,) row of the matrix that each point of ``rows`` is."""

    row_weights: Float64
    """(n,) weight of each point of ``rows``."""

    sources: Sources | None
    """Tree of the summed points with their weights; None with more than ``TREE_COLUMNS`` columns."""

    weightless: int = 0
    """Number of points at the end of ``rows`` that are not summed."""

    @classmethod
    def read(
        cls, reader: PointReader, weights: Source | None, *, without_weightless: bool = False
    ) -> SourcePoints:
        """Read all rows of a matrix with their weights, and arrange them in the order of the tree.

        ``weights`` are None if each row has weight 1. With ``without_weightless``, rows of weight 0 are left
        out of the sums.
        """
        count, edges = reader.source.shape[0], read_edges(reader)
        x, ids = np.empty((count, reader.columns)), np.arange(count)
        for start, stop in itertools.pairwise(edges.tolist()):
            x[start:stop] = reader.read(start, stop)
        require_near(x, reader.source.name)
        own = read_weights(weights, count)
        summed = int(np.count_nonzero(own)) if without_weightless else count
        summed = summed or count  # no weights at all, which a density refuses
        if summed < count:
            ids = np.concatenate([np.flatnonzero(own), np.flatnonzero(own == 0)])
            for column in range(reader.columns):
                x[:, column] = x[ids, column]
        if reader.columns > TREE_COLUMNS:
            return cls(x, ids, own[ids], None, count - summed)
        if summed < count:  # still targets: sorted here, so that near ones are together
            SumTree.of(x[summed:], ids[summed:])
        tree = SumTree.of(x[:summed], ids[:summed])
        own = own[ids]
        return cls(x, ids, own, Sources.of(tree, own[:summed]), count - summed)

    @property
    def x(self) -> Float64:
        """(n - weightless, d) coordinates of the points that are summed."""
        return self.rows[: len(self.rows) - self.weightless]

    @property
    def weights(self) -> Float64:
        """(n - weightless,) weights of the points that are summed."""
        return self.row_weights[: len(self.rows) - self.weightless]

    @property
    def tree(self) -> SumTree:
        """Tree of the points that are summed, without weights; only up to ``TREE_COLUMNS`` columns."""
        assert self.sources is not None  # noqa: S101 - there is one of few columns
        return SumTree(self.x, self.ids[: len(self.x)], self.sources.nodes, self.sources.boxes)

    @property
    def has_one_sign(self) -> bool:
        """True if no two weights of summed points are of different signs."""
        return bool((self.weights >= 0).all() or (self.weights <= 0).all())


def require_near(x: Float64, name: str) -> None:
    """Raise ``DataError`` if powers of coordinates ``x`` (r, d), of the matrix ``name``, would overflow."""
    largest = max(float(x.max()), -float(x.min()))
    if largest > FARTHEST:
        raise DataError(
            f"a coordinate of {name} is {largest:.3g} in magnitude, whose powers no sum can hold, at most "
            f"{FARTHEST:g}: scale the coordinates"
        )


def points_bytes(reader: PointReader) -> int:
    """Bytes of the points of a matrix in memory, of their weights in two orders, and of the tree."""
    count, columns = reader.source.shape[0], reader.columns
    plain = count * 8 * (columns + 3)
    return plain + (tree_bytes(count, columns) + moments_bytes(count) if columns <= TREE_COLUMNS else 0)


def building_bytes(reader: PointReader) -> int:
    """Additional bytes while points are read, a block at a time, and weights are arranged."""
    tallest = int(np.diff(read_edges(reader)).max())
    return max(reader.read_bytes(tallest), 2 * 8 * reader.source.shape[0])


# Weights ------------------------------------------------------------------------------------------


def open_weights(value: object, source: Source) -> Source | None:
    """Open the weights of the rows of the matrix ``source``, (rows, 1); None if ``value`` is None."""
    return None if value is None else open_row_weights(value, source, "weights")


def read_weights(source: Source | None, rows: int) -> Float64:
    """(rows,) weights as float64; all 1 if there is no source of weights."""
    if source is None:
        return np.ones(rows)
    reader, weights = PointReader(source, "euclidean"), np.empty(rows)
    for start, stop in itertools.pairwise(read_edges(reader).tolist()):
        weights[start:stop] = reader.read(start, stop)[:, 0]
    return weights
