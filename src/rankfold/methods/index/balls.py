"""Balls around partitions, and the partitions that they rule out for queries.

By the triangle inequality, the distance of a query from any row of a partition is at least that from the
center, less the radius of the ball. Distances are Euclidean; for cosine they are chords of the unit sphere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import Metric
from rankfold.kernels.neighbors.meeting import Rows
from rankfold.methods.index.layout import at_once
from rankfold.methods.knn.pair_fold import BufferPool
from rankfold.pipeline.engine.fold import Workspace

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

MEASURED = 2**20
"""Bytes of rows in float64 whose distances from a center are measured at a time."""

SLACK = 2.0**-40
"""Largest relative error of a measured distance: its sum has at most some 10^9 terms."""


def reach(rows: Array, center: Array, metric: int) -> float:
    """Radius of a ball around a center that contains some rows; a chord of the unit sphere for cosine.

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
    """Copy some of the queries into contiguous buffers of ``room``."""
    shape = len(some), queries.raw.shape[1]
    raw = room.array("taken", shape, queries.raw.dtype)
    np.take(queries.raw, some, axis=0, out=raw)
    copy = raw
    if queries.copy is not queries.raw:
        assert queries.copy is not None  # noqa: S101 - metrics have products
        copy = room.array("taken copy", shape, np.float32)
        np.take(queries.copy, some, axis=0, out=copy)
    return Rows(0, raw, copy, queries.norms[some], queries.scale[some])
