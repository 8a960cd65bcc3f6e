"""Move centers from where they lower the cost little to where it is high, to leave a local minimum.

Lloyd's steps end where no small move of a center lowers the cost. Then some centers are added near those with
the highest cost, and steps are taken. As many centers are removed whose loss costs least, and steps are taken
again. Centers of lower cost are kept; else fewer are exchanged, down to none.

References
----------
Fritzke, Breathing k-means: superior k-means solutions through dynamic k-values, arXiv:2006.15666, 2020.
Differences: a center is added towards the farthest row of its cluster, not in a random direction; only a few
steps are taken in between; and when a center is removed, only its nearest center is protected from removal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.kmeans.start import FALL, FEW_STEPS, MOST_STEPS, Sample, refine

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

MOST_AT_ONCE = 5
"""Number of centers that are exchanged at first."""

MOST_EXCHANGES = 24
"""Most exchanges that are tried in all."""

ASIDE = 0.01
"""Distance of an added center from the existing one, as a share of that to its farthest row."""

TILE_ROWS = 1024
"""Number of rows whose distances from all centers are in memory at once."""


def exchange(sample: Sample, centers: Float64, cost: float, most_groups: int) -> tuple[Float64, float]:
    """Improve converged centers (k, n) on a sample by exchanges; returns centers and their cost.

    ``cost`` is that of ``centers``. At most ``most_groups`` groups of centers have common distance bounds.
    """
    k, at_once = len(centers), min(MOST_AT_ONCE, len(centers) - 1)
    for _ in range(MOST_EXCHANGES):
        if at_once < 1 or cost <= 0:
            break
        more = _add(sample, centers, at_once)
        wide, _ = refine(sample, more, most_groups, FEW_STEPS)
        other, other_cost = refine(sample, _remove(sample, wide, k), most_groups, FEW_STEPS)
        if other_cost < (1 - FALL) * cost:
            centers, cost = other, other_cost
        else:
            at_once -= 1
    rested = refine(sample, centers, most_groups, MOST_STEPS)
    return min((centers, cost), rested, key=lambda each: each[1])


def _add(sample: Sample, centers: Float64, count: int) -> Float64:
    """Add ``count`` centers near those with the highest cost."""
    labels, squares, _ = _two_nearest(sample, centers)
    costs = np.bincount(labels, squares * sample.weights, minlength=len(centers))
    more = [centers]
    for j in np.argsort(-costs, kind="stable")[:count]:
        own = np.flatnonzero(labels == j)
        if own.size:
            farthest = sample.rows[own[squares[own].argmax()]].astype(np.float64)
            more.append(centers[[j]] + ASIDE * (farthest - centers[j]))
    return np.concatenate(more)


def _remove(sample: Sample, centers: Float64, k: int) -> Float64:
    """Remove the centers whose removal raises the cost least, until ``k`` are left; returns those, (k, n).

    Of two centers nearest to each other only one is removed, since the estimate for each assumes that the
    other remains.
    """
    labels, squares, others = _two_nearest(sample, centers)
    use = np.bincount(labels, (others - squares) * sample.weights, minlength=len(centers))
    order, removed, spared = np.argsort(use, kind="stable"), set[int](), set[int]()
    for j in order.tolist():
        if len(removed) == len(centers) - k:
            break
        if j not in spared:
            removed.add(j)
            gaps = ((centers - centers[j]) ** 2).sum(axis=1)
            gaps[j] = np.inf
            spared.add(int(gaps.argmin()))
    for j in order.tolist():
        if len(removed) < len(centers) - k:
            removed.add(j)
    return np.delete(centers, sorted(removed), axis=0)


def _two_nearest(sample: Sample, centers: Float64) -> tuple[Int64, Float64, Float64]:
    """Nearest center of each row of a sample, and squared distances of the nearest and the second nearest.

    Each is (rows,). Distances are computed from matrix products, up to rounding.
    """
    dtype, count = sample.shift.dtype, len(sample.rows)
    near = (centers - sample.shift.astype(np.float64)).astype(dtype)
    norms = np.einsum("ij,ij->i", near, near, dtype=np.float64)
    labels, first, second = np.empty(count, np.int64), np.empty(count), np.empty(count)
    for start in range(0, count, TILE_ROWS):
        here = slice(start, start + TILE_ROWS)
        rows = sample.rows[here].astype(dtype) - sample.shift
        squares = norms - 2.0 * (rows @ near.T)
        squares += np.einsum("ij,ij->i", rows, rows, dtype=np.float64)[:, None]
        two = np.partition(squares, 1, axis=1)[:, :2]
        labels[here] = squares.argmin(axis=1)
        first[here], second[here] = np.maximum(two, 0).T
    return labels, first, second
