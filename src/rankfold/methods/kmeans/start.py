"""Centers to begin with, from rows in memory: a few that lie anywhere, or a sample of all.

Rows of a sample stand for others, by weights. Several starts are refined on it without reads, and the best
one goes on: what it costs there is what it costs on the matrix, but for the chance of sampling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.clustering.far_rows import own_distances
from rankfold.kernels.clustering.nearest_centers import assign_rows, centers_of
from rankfold.methods.kmeans.kept_rows import held
from rankfold.methods.kmeans.passes import likelihood
from rankfold.methods.random_keys import Purpose
from rankfold.pipeline.storage.checkpoint import State

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

MOST_STEPS = 100
"""Of Lloyd's on a sample."""

FALL = 1e-4
"""Relative fall of the cost on a sample below which steps end: the matrix has the last word."""

GROUPING_STEPS = 5
"""Of Lloyd's on centers, that bring near ones into one group."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows, and how many each stands for."""

    rows: Array
    weights: Float64
    shift: Array
    """(n,) near the mean, in the type that rows are multiplied in."""


def weigh(state: State, cost: float, all_rows: int, centers: Float64, shift: Array) -> Sample:
    """The rows that a read has kept, each by how unlikely it was.

    A row of likelihood w is among those before the next key t with probability 1 - exp(-w t).
    """
    keys, _, rows = held(state)
    if len(keys) >= all_rows:
        return Sample(rows, np.ones(len(keys)), shift)
    rows, next_key = rows[:-1], float(keys[-1])
    squares = np.empty(len(rows))
    labels = _labels(rows, centers, shift)
    own_distances(rows, centers, labels, out=squares)
    chances = -np.expm1(-likelihood(squares, cost) * next_key)
    return Sample(rows, 1 / np.maximum(chances, 1e-300), shift)


def _labels(rows: Array, centers: Float64, shift: Array) -> npt.NDArray[np.int32]:
    labels = np.full(len(rows), -1, np.int32)
    packed = centers_of(centers, shift, np.zeros(len(centers), np.int64))
    room = np.zeros(centers.shape), np.zeros(len(centers)), np.zeros(1)
    bounds = np.empty((len(rows), 2), np.float32)
    assign_rows(rows, packed, labels=labels, bounds=bounds, sums=room[0], counts=room[1], squares=room[2])
    return labels


def best_start(sample: Sample, k: int, starts: int, seed: int, most_groups: int) -> tuple[Float64, float]:
    """Centers of least cost on a sample, of several starts; and that cost, by weight."""
    best: tuple[Float64, float] | None = None
    for start in range(starts):
        centers, cost = refine(sample, seeds(sample, k, seed, start), most_groups)
        if best is None or cost < best[1]:
            best = centers, cost
    if best is None:
        raise ValueError("there must be a start")
    return best


def seeds(sample: Sample, k: int, seed: int, start: int) -> Float64:
    """Rows that centers begin at: each the best of a few, drawn by weight and squared distance.

    References
    ----------
    Arthur, Vassilvitskii, k-means++: the advantages of careful seeding, SODA 2007, section 3.1: several
    candidates for each center, of which the one that lowers the cost most is taken.
    """
    key = np.array([seed, Purpose.CLUSTER_SEEDS], np.uint64)
    generator = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, start]))
    rows = sample.rows.astype(sample.shift.dtype) - sample.shift
    norms = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    tries, chosen = 2 + int(np.log(k)), np.empty(k, np.int64)
    cost = np.full(len(rows), np.inf)
    for place in range(k):
        masses = sample.weights if place == 0 else sample.weights * cost
        candidates = _draw(generator, masses, 1 if place == 0 else tries)
        squares = norms - 2.0 * (rows[candidates] @ rows.T) + norms[candidates][:, None]
        lower = np.minimum(cost, np.maximum(squares, 0))
        # A row is no distance from itself, whatever rounding says.
        lower[np.arange(len(candidates)), candidates] = 0
        best = int((lower @ sample.weights).argmin())
        chosen[place], cost = candidates[best], lower[best]
    return sample.rows[chosen].astype(np.float64)


def _draw(generator: np.random.Generator, masses: Float64, count: int) -> Int64:
    """Rows by their masses; any, where nothing has a mass."""
    ends = np.cumsum(masses)
    if not 0 < ends[-1] < np.inf:
        ends = np.arange(1.0, len(masses) + 1)
    drawn = np.searchsorted(ends, generator.random(count) * ends[-1], side="right")
    rows: Int64 = np.minimum(drawn, len(masses) - 1).astype(np.int64)
    return rows


def refine(sample: Sample, centers: Float64, most_groups: int) -> tuple[Float64, float]:
    """Centers after Lloyd's steps on a sample, and their cost before the last of these."""
    rows, k = sample.rows, len(centers)
    labels, groups = np.full(len(rows), -1, np.int32), group_centers(centers, most_groups)
    bounds = np.empty((len(rows), 2 + int(groups.max())), np.float32)
    before: Float64 | None = None
    last = np.inf
    for _ in range(MOST_STEPS):
        sums, counts, squares = np.zeros(centers.shape), np.zeros(k), np.zeros(1)
        packed = centers_of(centers, sample.shift, groups, before)
        into: dict[str, Any] = {"sums": sums, "counts": counts, "squares": squares}
        assign_rows(rows, packed, labels=labels, bounds=bounds, weights=sample.weights, **into)
        cost = inertia_of(centers, sample.shift, sums, counts, float(squares[0]))
        before, after = centers, means(centers, sample.shift, sums, counts)
        empty = np.flatnonzero(counts == 0)
        if empty.size:
            _fill_empty(sample, before, labels, after, empty)
        elif last - cost <= FALL * cost:
            return centers, cost
        centers, last = after, cost
    return before if before is not None else centers, last


def _fill_empty(
    sample: Sample, centers: Float64, labels: npt.NDArray[np.int32], after: Float64, empty: Int64
) -> None:
    """Bring centers without rows to those that cost most."""
    squares = np.empty(len(sample.rows))
    own_distances(sample.rows, centers, labels, out=squares)
    order = np.argsort(-(squares * sample.weights), kind="stable")[: len(empty)]
    place_far(after, empty, sample.rows[order].astype(np.float64), squares[order])


# Centers ------------------------------------------------------------------------------------------


def means(centers: Float64, shift: Array, sums: Float64, counts: Float64) -> Float64:
    """Means of clusters; of one without rows the center stays."""
    occupied = counts > 0
    new = centers.copy()
    new[occupied] = shift.astype(np.float64) + sums[occupied] / counts[occupied, None]
    return new


def inertia_of(centers: Float64, shift: Array, sums: Float64, counts: Float64, squares: float) -> float:
    """Squared distances of rows from their centers in all, from sums of rows less the shift.

    Right to some units of rounding in ``squares``, which is no more than rows vary in all.
    """
    near = centers - shift.astype(np.float64)
    cost = squares - 2 * float((near * sums).sum()) + float(counts @ (near * near).sum(axis=1))
    return max(cost, 0.0)


def place_far(centers: Float64, empty: Int64, rows: Float64, squares: Float64) -> int:
    """Move centers of empty clusters to rows that are far from theirs, farthest first; how many it moved.

    Rows that are where their center is are left, and so is one that is equal to another before it.
    """
    used: list[Float64] = []
    for row, square in zip(rows, squares, strict=True):
        if len(used) < len(empty) and square > 0 and not any(np.array_equal(row, other) for other in used):
            centers[empty[len(used)]] = row
            used.append(row)
    return len(used)


def group_centers(centers: Float64, most: int) -> Int64:
    """(k,) groups 0, 1, .. of centers, near ones together: at most so many, and none without a center."""
    if most <= 1 or len(centers) <= most:
        return np.arange(len(centers)) if 1 < len(centers) <= most else np.zeros(len(centers), np.int64)
    heads = centers[np.arange(most) * len(centers) // most]
    for _ in range(GROUPING_STEPS):
        squares = (heads * heads).sum(axis=1) - 2 * centers @ heads.T
        groups = squares.argmin(axis=1)
        for group in np.unique(groups):
            heads[group] = centers[groups == group].mean(axis=0)
    names: Int64 = np.unique(groups, return_inverse=True)[1].astype(np.int64)
    return names
