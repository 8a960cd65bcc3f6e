"""Number of partitions of an index, and cuts of its rows for writing and for reading.

Everything follows from the shape, the native chunks and the request, and nothing from memory or workers.

Balls around the centers of partitions contain their rows, and rule out partitions for queries. By the
triangle inequality, the distance of a query from any row of a partition is at least that from the center,
less the radius of the ball. Distances are Euclidean; for cosine they are chords of the unit sphere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import Metric
from rankfold.kernels.neighbors.meeting import Rows
from rankfold.methods.knn.pair_fold import BufferPool
from rankfold.methods.partitions.layout import SAMPLE_ROWS, Layout, pack_partitions
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.blocks import Cut, own_streams, panel_edges
from rankfold.pipeline.engine.fold import Workspace

Int64 = npt.NDArray[np.int64]

LEAST_ROWS = 256
"""Least average number of rows of a partition: with fewer, starting a comparison costs more than its
products."""

ROWS_AT_ONCE = 8 * 2**20
"""Bytes of rows in float32 that a search reads at once."""

CHUNK_BYTES = (2**20, 16 * 2**20)
"""Least and most bytes of a chunk of rows; between these limits there are about ``TARGET_CHUNKS`` chunks."""

TARGET_CHUNKS = 8192


@dataclass(frozen=True)
class IndexLayout(Layout):
    """Layout of an index: each row of the matrix is in one partition."""

    @classmethod
    def of_index(cls, source: Source, partition_rows: int | None) -> IndexLayout:
        """Layout of an index. Neighbors are searched for later, so k and recall have no meaning."""
        return cls(source, 1, partition_rows, 0.0, 1)

    @cached_property
    def count(self) -> int:
        """Number of partitions that is aimed at; a query is compared with all centers and some partitions."""
        usual = max(LEAST_ROWS, math.isqrt(self.rows) // 2)
        least = max(self.partition_rows or usual, 2)
        return max(1, min(self.rows // least, self._most_sample_rows // SAMPLE_ROWS[0]))

    @property
    def spill(self) -> int:
        """Number of partitions that a row is put into: 1, since more probes find what more copies would."""
        return 1

    @property
    def stored_chunk(self) -> int:
        """Number of rows in a chunk of the result."""
        least, most = (max(1, size // self.row_bytes) for size in CHUNK_BYTES)
        return min(self.rows, max(1, min(max(self.rows // TARGET_CHUNKS, least), most)))

    @cached_property
    def stored(self) -> Cut:
        """Cut of the rows, by partition, into whole chunks of the result."""
        chunk = self.stored_chunk
        chunks = max(1, CHUNK_BYTES[1] // (self.row_bytes * chunk))
        edges = panel_edges(Grid.regular(self.rows, chunk * chunks, splittable=False), 1)
        return own_streams(edges, int(np.diff(edges).max()))


def rows_at_once(columns: int) -> int:
    """Largest number of rows of an index that a search reads at once."""
    return max(1, ROWS_AT_ONCE // (4 * columns))


def reads_of(edges: Int64, columns: int) -> Int64:
    """Edges of the runs of rows that are read at once: adjacent partitions, or a piece of a large one.

    ``edges`` (partitions + 1,) are those of the partitions. Both count rows of the index, sorted by
    partition.

    >>> reads_of(np.array([0, 3, 5, 40]), 2**17).tolist()
    [0, 5, 16, 28, 40]
    >>> reads_of(np.array([0, 3, 6, 19, 22]), 2**17).tolist()
    [0, 6, 22]
    """
    most = rows_at_once(columns)
    return pack_partitions(edges, most, most)


def most_together(reads: Int64, edges: Int64) -> int:
    """Largest number of partitions that are read at once, pieces counted as well.

    ``reads`` are edges from ``reads_of``, ``edges`` (partitions + 1,) those of the partitions.

    >>> most_together(np.array([0, 6, 22]), np.array([0, 3, 6, 19, 22]))
    2
    """
    first = np.searchsorted(edges, reads[:-1], side="right") - 1
    last = np.searchsorted(edges, reads[1:], side="left")
    return int((last - first).max())


AT_ONCE = 2048
"""Largest number of queries that are compared with centers, or with a partition, at a time."""

BYTES_AT_ONCE = 8 * 2**20
"""Largest number of bytes, in float32, of the queries that are compared at a time."""


def at_once(columns: int) -> int:
    """Number of queries that are compared with centers, or with a partition, at a time."""
    return max(64, min(AT_ONCE, BYTES_AT_ONCE // (4 * columns)))


Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

MEASURED = 2**20
"""Bytes of rows in float64 whose distances from a center are measured at a time."""

SLACK = 2.0**-40
"""Largest relative error of a measured distance: its sum has at most some 10^9 terms."""


def reach(rows: Array, center: Array, metric: int) -> float:
    """Radius of a ball around a center (n,) that contains ``rows`` (r, n); a chord of the unit sphere for
    cosine.

    Rows of zeros are at cosine distance 1 from all, a chord of root 2; the difference of a unit vector and
    zeros would give 1.
    """
    step, farthest = max(1, MEASURED // (8 * rows.shape[1])), 0.0
    own = as_points(center[None], metric)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for top in range(0, len(rows), step):
            points = as_points(rows[top : top + step], metric)
            apart = points - own
            squares = np.einsum("ij,ij->i", apart, apart)
            if metric == Metric.COSINE:
                squares[~points.any(axis=1) | ~own.any()] = 2.0
            farthest = max(farthest, float(np.sqrt(squares.max())))
    return farthest * (1 + SLACK)


def as_points(rows: Array, metric: int) -> Float64:
    """Convert rows to float64; for cosine also to unit length, unless they are zeros."""
    points: Float64 = rows.astype(np.float64)
    if metric == Metric.COSINE:
        norms = np.sqrt(np.einsum("ij,ij->i", points, points))
        points *= np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)[:, None]
    return points


def reach_of(keys: Float64, metric: int) -> Float64:
    """Convert distances (keys) by a metric to Euclidean ones; for cosine to chords of the unit sphere."""
    if metric == Metric.EUCLIDEAN:
        return keys
    return np.sqrt(keys if metric == Metric.SQEUCLIDEAN else 2.0 * keys)


def may_be_near(
    work: Workspace, some: tuple[int, int], queries: Rows, keys: Float64
) -> npt.NDArray[np.bool_]:
    """(queries, partitions) True where a partition may hold rows within a distance of a query.

    ``work`` has ``centers`` and ``radii`` of all partitions, and the ``metric``. ``some`` are the first
    partition and one past the last; ``keys`` (queries,) are the distances, by the metric.
    """
    (first, last), metric = some, work.metric
    centers, radii = as_points(work.centers[first:last], metric), work.radii[first:last]
    shift = centers.mean(axis=0)
    centers -= shift
    squares = np.einsum("ij,ij->i", centers, centers)
    near = np.ones((len(queries), last - first), np.bool_)
    step = at_once(len(shift))
    for top in range(0, len(queries), step):
        part = slice(top, min(len(queries), top + step))
        points = as_points(queries.raw[part], metric) - shift
        own = np.einsum("ij,ij->i", points, points)[:, None]
        apart = points @ centers.T
        apart *= -2.0
        apart += own + squares
        # Subtract the largest rounding errors of the products and of centering.
        apart -= (len(shift) + 64) * 2.0**-51 * (own + squares + float(shift @ shift))
        np.sqrt(np.maximum(apart, 0.0, out=apart), out=apart)
        with np.errstate(invalid="ignore", over="ignore"):
            limits = reach_of(keys[part], metric)[:, None]
            # NaN and infinities rule nothing out.
            near[part] = ~(apart * (1 - SLACK) - radii > limits * (1 + SLACK))
    return near


def taken(queries: Rows, some: Int64, room: BufferPool) -> Rows:
    """Copies of the queries with the indices ``some`` (r,), in contiguous buffers of ``room``."""
    shape = len(some), queries.raw.shape[1]
    raw = room.array("taken", shape, queries.raw.dtype)
    np.take(queries.raw, some, axis=0, out=raw)
    copy = raw
    if queries.copy is not queries.raw:
        assert queries.copy is not None  # noqa: S101 - metrics have products
        copy = room.array("taken copy", shape, np.float32)
        np.take(queries.copy, some, axis=0, out=copy)
    return Rows(0, raw, copy, queries.norms[some], queries.scale[some])
