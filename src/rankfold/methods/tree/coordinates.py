"""Rows of a matrix as points: as they are, in a periodic box, or on the unit sphere.

Cosine distance is half the square of the chord between rows of length 1.

Great-circle distances are found by the chord between points of the unit sphere in three dimensions, which
grows with them: the poles and longitude 180 are places like any other. An angle is ``2 arcsin(chord / 2)``.
Its error is some 2e-16 radians, a nanometer on the Earth; near the antipode, where a chord hardly changes, it
is 2e-8.

In a periodic box points are first moved into it, from 0 up to its length: ``x - length floor(x / length)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import Metric
from rankfold.methods.knn.arguments import CORRELATION
from rankfold.methods.knn.row_blocks import BlockReader
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import DataError, InputError

Float64 = npt.NDArray[np.float64]
Box = tuple[float, ...]

HAVERSINE = "haversine"

TREE_METRICS = {
    "euclidean": Metric.EUCLIDEAN,
    "sqeuclidean": Metric.SQEUCLIDEAN,
    "manhattan": Metric.MANHATTAN,
    "chebyshev": Metric.CHEBYSHEV,
    HAVERSINE: Metric.EUCLIDEAN,
}
"""Metrics of points, each with the metric that the tree is searched by."""


OF_DIRECTIONS = ("cosine", CORRELATION)
"""Metrics of rows of length 1: the distance is half the square of the chord that the tree is searched by."""

FAR = 8.0
"""Rows of zeros have no direction: they are placed along the first column, this far from each other and from
the origin. That is more than the distance of any two points of the sphere."""


@dataclass(frozen=True, slots=True)
class PointReader:
    """Reads rows of a source as points."""

    source: Source
    metric: str
    """One of ``TREE_METRICS``, or of ``OF_DIRECTIONS``."""

    box: Box | None = None
    """Length of each column after which it repeats itself, 0 where it does not."""

    side: int = 1
    """-1 for queries of another matrix: their rows of zeros lie on the other side of the sphere."""

    @property
    def columns(self) -> int:
        """Number of coordinates of a point."""
        return 3 if self.metric == HAVERSINE else self.source.shape[1]

    @property
    def code(self) -> int:
        """Code, in kernels, of the metric that the tree is searched by."""
        return int(TREE_METRICS.get(self.metric, Metric.EUCLIDEAN))

    @property
    def period(self) -> Float64 | None:
        """(columns,) lengths of the box for kernels, inf where columns do not repeat; None without a box."""
        return None if self.box is None else np.array([length or np.inf for length in self.box])

    @property
    def _rows(self) -> BlockReader:
        return BlockReader(self.source, self.code, None, bounded=False)

    def read(self, start: int, stop: int) -> Float64:
        """Read rows ``start:stop`` as points, into a new array (rows, coordinates).

        Raises
        ------
        NonFiniteError, DataError
            A number is NaN or Inf, or a latitude is beyond a pole.
        """
        rows = self._rows
        x = rows.read(rows.buffer(stop - start), start, stop, 0).raw.astype(np.float64)
        if self.metric == HAVERSINE:
            return self._on_sphere(x, start)
        if self.metric in OF_DIRECTIONS:
            self._make_directions(x, start)
        for column, length in enumerate(self.box or ()):
            if length:
                wrap(x[:, column], length)
        return x

    def read_bytes(self, rows: int) -> int:
        """Bytes of memory that reading ``rows`` rows takes, their points included."""
        read = self._rows.memory_bytes(rows) + self._rows.read_bytes(rows)
        return read + rows * 8 * (self.source.shape[1] + 3 * self.columns)

    def _on_sphere(self, x: Float64, start: int) -> Float64:
        beyond = np.abs(x[:, 0]) > math.pi / 2 + 1e-9
        if beyond.any():
            row = int(beyond.argmax())
            raise DataError(
                f"row {start + row} (from 0) of {self.source.name} has latitude {x[row, 0]:.6g}, but "
                "haversine takes radians, from -pi/2 to pi/2, and latitude before longitude. Are these "
                "degrees, or columns the other way round? Convert with numpy.radians"
            )
        latitude, longitude = x[:, 0], x[:, 1]
        around = np.cos(latitude)
        return np.stack([around * np.cos(longitude), around * np.sin(longitude), np.sin(latitude)], axis=1)

    def _make_directions(self, x: Float64, start: int) -> None:
        """Scale rows ``x``, numbered from ``start`` on, to length 1, in place.

        Rows of zeros are put far from all others: see ``FAR``.
        """
        sizes = np.abs(x).max(axis=1, initial=0.0)
        zeros = np.flatnonzero(sizes == 0)
        sizes[zeros] = 1.0
        x /= sizes[:, None]  # squares of any rows are in range now
        lengths = np.sqrt(np.einsum("ij,ij->i", x, x))
        lengths[zeros] = 1.0
        x /= lengths[:, None]
        x[zeros, 0] = self.side * FAR * (1.0 + start + zeros)

    def keys_of(self, keys: Float64) -> Float64:
        """Convert distances ``keys`` that a search of the tree has found to those of the metric."""
        if self.metric in OF_DIRECTIONS:
            return keys * keys / 2
        return 2 * np.arcsin(np.minimum(keys / 2, 1.0)) if self.metric == HAVERSINE else keys

    def reach_of(self, radius: float) -> float:
        """Convert a radius by the metric to the one that the tree is searched by; infinite if all points are
        within it."""
        if self.metric in OF_DIRECTIONS:
            return math.sqrt(2 * radius)
        if self.metric != HAVERSINE:
            return radius
        return 2 * math.sin(radius / 2) if radius < math.pi else math.inf


def wrap(x: Float64, length: float) -> None:
    """Move coordinates into a box, from 0 up to its length, in place."""
    x -= length * np.floor(x / length)
    x[(x < 0) | (x >= length)] = 0.0


def box_of(value: object, columns: int, name: str) -> Box | None:
    """Check the argument ``box``, for a matrix called ``name``; returns a length for each of its columns.

    A length is 0 for a column that does not repeat itself; None is returned if none does.

    >>> box_of("10, 10, 0", 3, "x"), box_of(2, 2, "x")
    ((10.0, 10.0, 0.0), (2.0, 2.0))
    """
    if value is None:
        return None
    try:
        parts: Any = value.split(",") if isinstance(value, str) else np.ravel(np.asarray(value)).tolist()
        lengths = tuple(float(each) for each in parts)
    except (TypeError, ValueError):
        lengths = ()
    lengths = lengths * columns if len(lengths) == 1 else lengths
    if len(lengths) != columns or not all(math.isfinite(each) and each >= 0 for each in lengths):
        raise InputError(
            f"box must give the length of each of the {columns} columns of {name} after which it repeats "
            f"itself, 0 where it does not, not {value!r}"
        )
    return lengths if any(lengths) else None


def require_points(metric: str, box: Box | None, source: Source) -> None:
    """Raise ``InputError`` if points of a source cannot be compared by a metric, or in a box."""
    if metric not in TREE_METRICS:
        raise InputError(
            f"points in a tree are compared by {', '.join(TREE_METRICS)}, not by {metric}. Leave solver and "
            "box out, or take one of these"
        )
    if metric == HAVERSINE and source.shape[1] != 2:
        raise InputError(
            f"haversine takes two columns, latitude and longitude in radians, but {source.name} has "
            f"{source.shape[1]}"
        )
    if metric == HAVERSINE and box is not None:
        raise InputError("haversine is periodic as it is: leave box out")
