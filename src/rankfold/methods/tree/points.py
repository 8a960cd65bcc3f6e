"""The tree of a matrix: the leading process reads its rows once, holds them as points, and arranges them.

Tasks of this process use the tree in place; other processes map files that it is written to.

``Queries`` are the points whose neighbors are wanted. They are given panel by panel, in an order that keeps
the tree in cache.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.tree import LEAF, Tree, arrange_points, tree_bytes
from rankfold.methods.tree.coordinates import PointReader
from rankfold.pipeline.engine.blocks import panel_edges

Array = npt.NDArray[np.generic]

READ_BYTES = 4 * 2**20
"""Bytes of the points that are read at a time, unless a chunk has more."""

TOP_LEVELS = 4
"""Number of levels that are halved one by one; the parts below are then arranged in parallel."""


@dataclass(frozen=True, slots=True)
class PointTree:
    """The points of a matrix in a tree, and the position of each row in the tree."""

    tree: Tree
    places: Array
    """(points,) position in the flattened ``tree.ids`` of each row of the matrix."""

    @classmethod
    def read(cls, reader: PointReader, threads: int) -> PointTree:
        """Read all rows of a matrix as points, and arrange them in a tree by ``threads`` threads."""
        count = reader.source.shape[0]
        tree = Tree.empty(count, reader.columns)
        rows, edges = tree.rows(), read_edges(reader)
        for start, stop in itertools.pairwise(edges.tolist()):
            rows[start:stop] = reader.read(start, stop)
        ids = tree.ids.reshape(-1)[:count]
        ids[:] = np.arange(count)
        arrange(tree, count, threads)
        places = np.empty(count, place_dtype(count))
        places[ids] = np.arange(count, dtype=places.dtype)
        return cls(tree, places)


def arrange(tree: Tree, count: int, threads: int) -> None:
    """Arrange the ``count`` points that ``tree`` holds row by row, in place, by ``threads`` threads."""
    parts = [(0, 0, len(tree.ids))]
    with ThreadPoolExecutor(threads, "rankfold-tree") as pool:

        def halve(levels: int) -> None:
            list(
                pool.map(
                    lambda part: arrange_points(
                        tree, count=count, node=part[0], first=part[1], last=part[2], levels=levels
                    ),
                    parts,
                )
            )

        for _ in range(TOP_LEVELS):
            halve(1)
            parts = [half for part in parts if part[2] - part[1] > 1 for half in _halves(*part)]
        halve(-1)


def _halves(node: int, first: int, last: int) -> list[tuple[int, int, int]]:
    """Halves of a node as (node, first leaf, one past the last), leaving out those that are single leaves.

    Leaves are transposed already, and must not be again.
    """
    middle = (first + last) // 2
    halves = [(node + 1, first, middle), (node + 2 * (middle - first), middle, last)]
    return [half for half in halves if half[2] - half[1] > 1]


def place_dtype(count: int) -> np.dtype[np.generic]:
    """Shortest integer type for the positions of ``count`` points in a tree."""
    return np.dtype(np.int32 if count <= 2**31 - LEAF else np.int64)


def read_edges(reader: PointReader) -> npt.NDArray[np.int64]:
    """Edges of the runs of rows that are read at a time: whole chunks, where these cannot be split."""
    return panel_edges(reader.source.row_grid, max(1, READ_BYTES // (8 * reader.columns)))


def held_bytes(reader: PointReader) -> int:
    """Bytes of the tree of a matrix, and of the positions of its rows."""
    count = reader.source.shape[0]
    return tree_bytes(count, reader.columns) + count * place_dtype(count).itemsize


def building_bytes(reader: PointReader) -> int:
    """Additional bytes while the tree is built: rows being read, or a temporary array of positions."""
    count, tallest = reader.source.shape[0], int(np.diff(read_edges(reader)).max())
    return max(reader.read_bytes(tallest), count * place_dtype(count).itemsize)


def few_points() -> Tree:
    """Tree of a few equal points in a plane, to run loops over trees on."""
    tree = Tree.empty(2 * LEAF, 2)
    tree.rows()[:] = 0
    tree.ids.reshape(-1)[:] = np.arange(2 * LEAF)
    arrange_points(tree, count=2 * LEAF, node=0, first=0, last=2, levels=-1)
    return tree


Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

ORDER_BITS = 48
"""Number of bits of a position along the space-filling curve."""


@dataclass(frozen=True, slots=True)
class Queries:
    """A tree, and the points that are looked up in it."""

    points: PointTree | None
    """The tree; None in a plan, for which it is not built."""

    reader: PointReader
    """Reader of the queries; of the points, if these are the queries."""

    itself: bool
    """True if the points are the queries; none is its own neighbor then."""

    held: Float64 | None = None
    """(queries, d) queries that are not the points, if they are in memory."""

    def panel(self, start: int, stop: int) -> tuple[Int64, Float64, Int64]:
        """Queries ``start:stop``, as ``take`` returns them, read if they are not the points of the tree."""
        if self.itself:
            return self.take(np.arange(start, stop))
        return self._along_curve(self.reader.read(start, stop))

    def take(self, rows: Int64) -> tuple[Int64, Float64, Int64]:
        """Queries with the numbers ``rows`` (r,), in an order in which successive ones are near each other.

        They are in memory: points of the tree, or ``held``.

        Returns
        -------
        order : (r,)
            Indices into ``rows``, in this order.
        x : (r, d)
            Coordinates, in this order.
        own : (r,)
            Id of each query among the points of the tree, in this order, so that it does not find itself; -1
            throughout if the queries are not the points.
        """
        assert self.points is not None  # noqa: S101 - there is no run without
        if self.held is not None:
            return self._along_curve(self.held[rows])
        places = self.points.places[rows].astype(np.int64)
        order = np.argsort(places)
        places = places[order]
        return order, self.points.tree.points[places // LEAF, :, places % LEAF], rows[order]

    def _along_curve(self, x: Float64) -> tuple[Int64, Float64, Int64]:
        assert self.points is not None  # noqa: S101 - there is no run without
        order = curve_order(x, self.points.tree.boxes[0])
        return order, x[order], np.full(len(x), -1)

    def panel_bytes(self, rows: int) -> int:
        """Bytes of ``rows`` queries: their points twice, positions in the tree, order and ids."""
        reading = 0 if self.itself else self.reader.read_bytes(rows)
        return reading + rows * 8 * (2 * self.reader.columns + 6)


def curve_order(x: Float64, box: Float64) -> Int64:
    """Indices (n,) that sort points ``x`` (n, d) along a Morton curve: successive ones are near each other.

    ``box`` (2, d) has the smallest and the largest coordinates that the curve covers.

    >>> curve_order(np.array([[3.0], [1.0], [2.0]]), np.array([[0.0], [4.0]])).tolist()
    [1, 2, 0]
    """
    columns = x.shape[1]
    bits = max(1, ORDER_BITS // columns)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        shares = (x - box[0]) / (box[1] - box[0])
    cells = np.floor(np.clip(np.nan_to_num(shares), 0, 1) * (2**bits - 1)).astype(np.uint64)
    codes = np.zeros(len(x), np.uint64)
    for bit in range(bits - 1, -1, -1):
        for column in range(min(columns, ORDER_BITS)):
            codes = (codes << np.uint64(1)) | ((cells[:, column] >> np.uint64(bit)) & np.uint64(1))
    return np.argsort(codes, kind="stable")
