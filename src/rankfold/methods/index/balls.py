"""Balls around partitions, and what they rule out for queries.

By the triangle inequality no row of a partition is nearer to a query than its center is, less the radius of
its ball. Distances are those of points; for cosine of points of the unit sphere, chords.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import Metric
from rankfold.kernels.neighbors.meeting import Rows
from rankfold.methods.index.layout import at_once
from rankfold.methods.knn.pair_fold import Room
from rankfold.pipeline.engine.fold import Workspace

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

MEASURED = 2**20
"""Bytes of rows in float64 whose distances from a center are measured at a time."""

SLACK = 2.0**-40
"""By which a measured distance may be too small or too large, of itself: terms are at most some 10^9."""


def reach(rows: Array, center: Array, metric: int) -> float:
    """The distance from a center that none of some rows exceeds: a chord of the unit sphere for cosine.

    Rows of zeros are at cosine distance 1 from all: a chord of root 2, which is what differences of a unit
    vector and zeros would not tell.
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
    """Rows in float64; of unit length for cosine, unless they are zeros."""
    points: Float64 = rows.astype(np.float64)
    if metric == Metric.COSINE:
        norms = np.sqrt(np.einsum("ij,ij->i", points, points))
        points *= np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)[:, None]
    return points


def reach_of(keys: Float64, metric: int) -> Float64:
    """How far a center may be from a query, less a radius, for keys to be met: a chord for cosine."""
    if metric == Metric.EUCLIDEAN:
        return keys
    return np.sqrt(keys if metric == Metric.SQEUCLIDEAN else 2.0 * keys)


def may_be_near(
    work: Workspace, some: tuple[int, int], queries: Rows, keys: Float64
) -> npt.NDArray[np.bool_]:
    """(queries, partitions) whether some partitions may hold rows at distances up to these.

    ``work`` has ``centers`` and ``radii`` of all partitions, and the ``metric``; ``keys`` (queries,) are
    distances by it.
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
        # What the products may be wrong by, and what centering has rounded.
        apart -= (len(shift) + 64) * 2.0**-51 * (own + squares + float(shift @ shift))
        np.sqrt(np.maximum(apart, 0.0, out=apart), out=apart)
        with np.errstate(invalid="ignore", over="ignore"):
            limits = reach_of(keys[part], metric)[:, None]
            # NaN and infinities rule nothing out.
            near[part] = ~(apart * (1 - SLACK) - radii > limits * (1 + SLACK))
    return near


def taken(queries: Rows, some: Int64, room: Room) -> Rows:
    """Some of the queries, side by side."""
    shape = len(some), queries.raw.shape[1]
    raw = room.array("taken", shape, queries.raw.dtype)
    np.take(queries.raw, some, axis=0, out=raw)
    copy = raw
    if queries.copy is not queries.raw:
        assert queries.copy is not None  # noqa: S101 - metrics have products
        copy = room.array("taken copy", shape, np.float32)
        np.take(queries.copy, some, axis=0, out=copy)
    return Rows(0, raw, copy, queries.norms[some], queries.scale[some])
