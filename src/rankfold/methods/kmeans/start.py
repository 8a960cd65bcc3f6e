"""Starting centers, from rows in memory: a few from parts of the matrix, or a sample of all rows.

Rows of a sample have weights for the rows they represent. Several starts are refined on it without reads, and
the best one is used: its cost on the sample is its cost on the matrix, up to sampling error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.clustering.far_rows import own_distances
from rankfold.kernels.clustering.nearest_centers import assign_rows, centers_of
from rankfold.methods.kmeans.passes import KeptRows, likelihoods
from rankfold.methods.parts.row_weights import RowWeights
from rankfold.methods.random_keys import Purpose
from rankfold.pipeline.storage.checkpoint import State

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

MOST_STEPS = 100
"""Largest number of Lloyd's steps on a sample."""

FEW_STEPS = 5
"""Number of steps after which starts are compared: their cost then predicts well which will be best."""

FINALISTS = 3
"""Number of starts that are refined further."""

FALL = 1e-4
"""Relative fall of the cost on a sample below which steps end; steps on the matrix refine further."""

GROUPING_STEPS = 5
"""Steps of the power method on centers: any direction of high variance is good enough."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Sampled rows (r, n), and the number of rows, or their weight, that each represents (r,)."""

    rows: Array
    weights: Float64
    shift: Array
    """(n,) vector near the mean, subtracted from rows before products, in the type of the products."""

    @classmethod
    def of(cls, rows: Array, weights: Float64, shift: Array) -> Sample:
        """Sample of the rows with a positive weight; of all rows with weight one if there are none."""
        counting = weights > 0
        if counting.all():
            return cls(rows, weights, shift)
        if not counting.any():
            return cls(rows, np.ones(len(rows)), shift)
        return cls(rows[counting], weights[counting], shift)


@dataclass(frozen=True, slots=True)
class First:
    """Centers (k, n) of a few rows, which define the probabilities with which all rows are sampled."""

    centers: Float64
    rarity: Float64
    """(k,) total weight over k, divided by the weight of the rows of each center: above 1 for small clusters.
    """

    shift: Array

    @classmethod
    def of(cls, sample: Sample, k: int, seed: int, most_groups: int) -> First:
        """Cluster a sample from one start into ``k`` centers, in at most ``most_groups`` groups."""
        centers, _ = best_start(sample, k, 1, seed, most_groups)
        labels, _ = nearest(sample.rows, centers, sample.shift)
        masses, mass = np.bincount(labels, sample.weights, minlength=k), float(sample.weights.sum())
        return cls(centers, mass / (k * np.maximum(masses, mass / len(sample.rows))), sample.shift)


def weigh(
    state: State, first: First, kept: Sequence[KeptRows], all_rows: int, weights: RowWeights | None
) -> Sample:
    """Sample of the rows that a ``SamplePass`` has kept, weighted by inverse probability and cluster size.

    ``state`` has the sums of the pass, ``kept`` are its two storages of rows, ``all_rows`` is the number of
    rows of the matrix, ``weights`` are the weights of its rows.

    A row of likelihood w has a key below the next key t with probability 1 - exp(-w t), and one of its keys
    for two likelihoods is below with probability 1 - exp(-w t - w' t'). Its weight is its own weight over
    that probability. Weights in each of the first clusters are scaled to the total weight of its rows, which
    the same read has summed. A cluster without kept rows is represented by the mean of its rows.
    """
    held = [each.held(state) for each in kept]
    if len(held[0][0]) >= all_rows:
        _, ids, rows = held[0]
        each = np.ones(all_rows) if weights is None else weights.at(ids)
        return Sample.of(rows, each, first.shift)
    # There may be fewer far rows than places: then all of them were kept.
    limits = [
        keys[-1] if len(keys) == each.count else np.inf for (keys, *_), each in zip(held, kept, strict=True)
    ]
    names, places = np.unique(
        np.concatenate([ids[: each.count - 1] for (_, ids, _), each in zip(held, kept, strict=True)]),
        return_index=True,
    )
    rows = np.concatenate([rows[: each.count - 1] for (*_, rows), each in zip(held, kept, strict=True)])[
        places
    ]
    own = None if weights is None else weights.at(names)
    if own is not None:
        rows, own = rows[own > 0], own[own > 0]
    labels, squares = nearest(rows, first.centers, first.shift)
    hazard = np.zeros(len(rows))
    for likely, limit in zip(likelihoods(squares, first.rarity[labels], own), limits, strict=True):
        hazard += np.multiply(likely, limit, out=np.zeros(len(rows)), where=likely > 0)
    each = 1 / -np.expm1(-hazard)
    return _stratify(Sample(rows, each if own is None else own * each, first.shift), labels, first, state)


def _stratify(sample: Sample, labels: npt.NDArray[np.int32], first: First, state: State) -> Sample:
    """Scale weights of a sample so that they sum to the total weight of each of the first clusters.

    The mean of a cluster without sampled rows is added to the sample, with the weight of the cluster.
    """
    k, counts = len(first.centers), state["counts"]
    masses = np.bincount(labels, sample.weights, minlength=k)
    weights = sample.weights * np.divide(counts, masses, out=np.ones(k), where=masses > 0)[labels]
    unseen = np.flatnonzero((masses == 0) & (counts > 0))
    centers = means(first.centers, first.shift, state["sums"], counts)[unseen].astype(sample.rows.dtype)
    return Sample(
        np.concatenate([sample.rows, centers]), np.concatenate([weights, counts[unseen]]), first.shift
    )


def nearest(rows: Array, centers: Float64, shift: Array) -> tuple[npt.NDArray[np.int32], Float64]:
    """Nearest center of each row, (r,), and its squared distance, (r,)."""
    labels, squares = np.full(len(rows), -1, np.int32), np.empty(len(rows))
    packed = centers_of(centers, shift, np.zeros(len(centers), np.int64))
    room = np.zeros(centers.shape), np.zeros(len(centers)), np.zeros(1)
    bounds = np.empty((len(rows), 2), np.float32)
    assign_rows(rows, packed, labels=labels, bounds=bounds, sums=room[0], counts=room[1], squares=room[2])
    own_distances(rows, centers, labels, out=squares)
    return labels, squares


def best_start(sample: Sample, k: int, starts: int, seed: int, most_groups: int) -> tuple[Float64, float]:
    """Best centers (k, n) of several starts on a sample, and their weighted cost.

    All starts take a few steps, and only the better ones are refined to convergence. ``starts`` is their
    number, ``seed`` the key of their random numbers; for ``most_groups`` see ``group_centers``.
    """
    tries = [seeds(sample, k, seed, start) for start in range(starts)]
    few = FEW_STEPS if starts > FINALISTS else 0
    if few:
        refined = [refine(sample, each, most_groups, few) for each in tries]
        order = sorted(range(starts), key=lambda i: refined[i][1])[:FINALISTS]
        tries = [refined[i][0] for i in sorted(order)]
    final = [refine(sample, each, most_groups, MOST_STEPS) for each in tries]
    return min(final, key=lambda each: each[1])


def seeds(sample: Sample, k: int, seed: int, start: int) -> Float64:
    """Choose rows as starting centers (k, n) by k-means++: each is the best of a few candidates.

    Candidates are drawn with probability proportional to weight times squared distance. The random numbers
    are a function of ``seed`` and of the number ``start`` of this start.

    References
    ----------
    Arthur, Vassilvitskii, k-means++: the advantages of careful seeding, SODA 2007, section 3.1: several
    candidates for each center, of which the one that lowers the cost most is chosen.
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
        # The distance of a row from itself is 0, despite rounding.
        lower[np.arange(len(candidates)), candidates] = 0
        best = int((lower @ sample.weights).argmin())
        chosen[place], cost = candidates[best], lower[best]
    return sample.rows[chosen].astype(np.float64)


def _draw(generator: np.random.Generator, masses: Float64, count: int) -> Int64:
    """Draw ``count`` row numbers, with replacement, with probability proportional to ``masses`` (r,);
    uniformly if all are 0."""
    ends = np.cumsum(masses)
    if not 0 < ends[-1] < np.inf:
        ends = np.arange(1.0, len(masses) + 1)
    drawn = np.searchsorted(ends, generator.random(count) * ends[-1], side="right")
    rows: Int64 = np.minimum(drawn, len(masses) - 1).astype(np.int64)
    return rows


def refine(sample: Sample, centers: Float64, most_groups: int, steps: int) -> tuple[Float64, float]:
    """Take up to ``steps`` Lloyd's steps from ``centers`` (k, n) on a sample; returns centers and cost.

    The cost is the weighted sum of squared distances; fewer steps are taken if it hardly falls. For
    ``most_groups`` see ``group_centers``.
    """
    rows, k = sample.rows, len(centers)
    labels, groups = np.full(len(rows), -1, np.int32), group_centers(centers, most_groups)
    bounds = np.empty((len(rows), 2 + int(groups.max())), np.float32)
    before: Float64 | None = None
    last = np.inf
    for _ in range(steps):
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
    """Move the centers ``after[empty]`` of empty clusters, in place, to the rows with the highest cost.

    The cost of a row is that with its old center ``centers[labels]``.
    """
    squares = np.empty(len(sample.rows))
    own_distances(sample.rows, centers, labels, out=squares)
    order = np.argsort(-(squares * sample.weights), kind="stable")[: len(empty)]
    place_far(after, empty, sample.rows[order].astype(np.float64), squares[order])


# Centers ------------------------------------------------------------------------------------------


def means(centers: Float64, shift: Array, sums: Float64, counts: Float64) -> Float64:
    """(k, n) means of clusters; an empty cluster keeps its center.

    ``sums`` (k, n) are of rows less ``shift`` (n,), ``counts`` (k,) of rows or of their weights.
    """
    occupied = counts > 0
    new = centers.copy()
    new[occupied] = shift.astype(np.float64) + sums[occupied] / counts[occupied, None]
    return new


def inertia_of(centers: Float64, shift: Array, sums: Float64, counts: Float64, squares: float) -> float:
    """Sum of squared distances of rows from their centers (k, n), from sums over rows less ``shift`` (n,).

    ``sums`` (k, n) are of the rows of each cluster, ``counts`` (k,) their numbers or weights, ``squares`` the
    squared norms of all rows. The result is accurate to some units of rounding in ``squares``, which is near
    the total variation of the rows.
    """
    near = centers - shift.astype(np.float64)
    cost = squares - 2 * float((near * sums).sum()) + float(counts @ (near * near).sum(axis=1))
    return max(cost, 0.0)


def change_of(moved: Float64, total: Float64, squares: float, mass: float) -> float:
    """Squared movement ``moved`` (k, n) of all centers, summed, over the mean variance of columns.

    ``total`` (n,) is the sum of all rows less a shift, ``squares`` the sum of their squared norms, ``mass``
    the number of rows, or the sum of their weights.
    """
    variance = max(squares - float(total @ total) / mass, 0.0) / (mass * len(total))
    apart = float((moved**2).sum())
    return apart / variance if variance > 0 else (np.inf if apart > 0 else 0.0)


def place_far(centers: Float64, empty: Int64, rows: Float64, squares: Float64) -> int:
    """Move centers of empty clusters, in place, to rows far from their own centers; returns how many moved.

    ``empty`` are indices of clusters, ``rows`` (r, n) are in the order in which they are used, farthest
    first, ``squares`` (r,) are their squared distances. Rows that equal their center are skipped, and so are
    rows equal to an earlier one.
    """
    used: list[Float64] = []
    for row, square in zip(rows, squares, strict=True):
        if len(used) < len(empty) and square > 0 and not any(np.array_equal(row, other) for other in used):
            centers[empty[len(used)]] = row
            used.append(row)
    return len(used)


def group_centers(centers: Float64, most: int) -> Int64:
    """(k,) group numbers 0, 1, .. of centers: at most ``most`` groups of near centers, none empty.

    Centers are split in two along the direction of largest variance, and so are the parts, until they are
    small enough. If possible, sizes of groups are multiples of four, which products process together.
    """
    k = len(centers)
    size = 4 * max(1, -(-k // (4 * max(most, 1))))
    groups, parts, count = np.zeros(k, np.int64), [np.arange(k)], 0
    while parts:
        part = parts.pop()
        if len(part) <= size:
            groups[part] = count
            count += 1
            continue
        order = part[np.argsort(_along(centers[part]), kind="stable")]
        half = size * (-(-len(part) // size) // 2)
        parts += [order[half:], order[:half]]
    return groups


def _along(points: Float64) -> Float64:
    """Coordinates (p,) of ``points`` (p, n), less their mean and up to a factor, along the direction of
    largest variance, which some steps of the power method find."""
    points = points - points.mean(axis=0)
    points /= max(float(np.abs(points).max()), 1e-300)
    direction = points[np.einsum("ij,ij->i", points, points).argmax()]
    for _ in range(GROUPING_STEPS):
        direction = (points @ direction) @ points
        direction = direction / max(float(np.sqrt(direction @ direction)), 1e-300)
    places: Float64 = points @ direction
    return places
