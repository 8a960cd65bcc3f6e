"""Points whose neighbors are wanted, panel by panel, each panel in an order that keeps the tree in cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.tree import LEAF
from rankfold.methods.tree.coordinates import PointReader
from rankfold.methods.tree.points import PointTree

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
        """Queries ``start:stop``: their order, points in this order, and own ids, -1 for other queries."""
        if self.itself:
            return self.take(np.arange(start, stop))
        return self._along_curve(self.reader.read(start, stop))

    def take(self, rows: Int64) -> tuple[Int64, Float64, Int64]:
        """Queries ``rows``, in memory: their order, points in this order, own ids, -1 for other queries."""
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
    """Order of points along a Morton curve in a box, (2, d): neighbors along it are near each other.

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
