"""Steps of Lloyd's algorithm over the matrix, each of which reads it once.

A step labels rows by the centers it begins with, and ends with the means of their clusters. Sums of clusters
are updated: rows that left are subtracted and rows that joined are added. Every ``ALL_ROWS_EVERY`` steps all
rows are summed again, so that rounding does not accumulate. Labels, inertia and centers of the result are
those of the last step before its means are computed: they are consistent, and need no extra read.

An empty cluster keeps its center for one more step, which finds the rows farthest from their own centers.
Those rows, farthest first, are the next centers of the empty clusters, in order.

Lloyd's steps end where no small move of a center lowers the cost. On a sample of rows, exchanges of centers
leave such a local minimum: some centers are added near those with the highest cost, and steps are taken. As
many centers are removed whose loss costs least, and steps are taken again. Centers of lower cost are kept;
else fewer are exchanged, down to none.

References
----------
Fritzke, Breathing k-means: superior k-means solutions through dynamic k-values, arXiv:2006.15666, 2020.
Differences: a center is added towards the farthest row of its cluster, not in a random direction; only a few
steps are taken in between; and when a center is removed, only its nearest center is protected from removal.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.kmeans.passes import KeptRows, Layout, LloydPass
from rankfold.methods.kmeans.request import ClusterRequest
from rankfold.methods.kmeans.start import (
    FALL,
    FEW_STEPS,
    MOST_STEPS,
    Sample,
    change_of,
    group_centers,
    inertia_of,
    means,
    place_far,
    refine,
)
from rankfold.methods.parts.panels import refuse_bad
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.storage.checkpoint import State, save_once
from rankfold.pipeline.storage.scratch import NOWHERE, ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

ALL_ROWS_EVERY = 16
"""Number of steps after which all rows are summed again."""

MOST_FAR_ROWS = 64
"""Largest number of rows far from their centers that a step looks for, to replace centers of empty
clusters."""


@dataclass(slots=True)
class Clusters:
    """Lloyd's iteration: the current centers, and sums, labels and inertia of the last step."""

    request: ClusterRequest
    layout: Layout
    centers: Float64
    """(k, n) centers for the next step, or of the last step once iterations have ended."""

    shift: Array
    groups: Int64 = field(init=False)
    before: Float64 | None = None
    scratch: tuple[ScratchMatrix, ScratchMatrix] | None = None
    sums: Float64 = field(init=False)
    counts: Float64 = field(init=False)
    squares: float = 0.0
    index: int = 0
    empty: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Indices of the empty clusters, for which the next step looks for rows far from their centers."""

    inertia: list[float] = field(default_factory=list)
    """Inertia of each step: sum of squared distances of rows from their centers."""

    change: float = np.inf
    """Squared movement of all centers in the last step, over the mean variance of columns."""

    def __post_init__(self) -> None:
        self.groups = group_centers(self.centers, self.layout.groups)

    def iterate(self, run: Run) -> str:
        """Take Lloyd's steps until labels or centers settle or no pass is left.

        Returns the reason to stop: ``"labels"`` (none changed), ``"tol"`` or ``"passes"``.
        """
        while True:
            new, reason = self._step(run)
            if reason:
                return reason
            self.before, self.centers = self.centers, new

    @property
    def labels(self) -> ScratchMatrix:
        """Intermediate file with the labels (rows, 1) of the last step; ``LookupError`` before one."""
        if self.scratch is None:
            raise LookupError("no step has been made")
        return self.scratch[0]

    def label(self, run: Run) -> None:
        """Label rows by the current centers in one pass, without moving the centers."""
        self._step(run)

    def _step(self, run: Run) -> tuple[Float64, str]:
        sought = min(len(self.empty), MOST_FAR_ROWS)
        state = self._sum(run, sought)
        if not self.index:
            refuse_bad(state, self.layout.source)
        self.inertia.append(inertia_of(self.centers, self.shift, self.sums, self.counts, self.squares))
        new, placed = means(self.centers, self.shift, self.sums, self.counts), 0
        empty = np.flatnonzero(self.counts == 0)
        for kept in self._far_rows(sought):
            keys, _, rows = kept.held(state)
            placed = place_far(new, empty, rows.astype(np.float64), -keys)
        self.change = self._change(new)
        # Empty clusters may still get far rows if this step did not look for any.
        open_ends = placed > 0 or (len(empty) > 0 and not sought)
        self.empty, self.index = empty, self.index + 1
        return new, self._stop_reason(int(state["moved"][0]), open_ends=open_ends)

    def _sum(self, run: Run, sought: int) -> State:
        """Label rows by the centers in one pass, and update sums of clusters; returns sums of the pass.

        The pass also keeps the ``sought`` rows farthest from their centers.
        """
        # Differences of weights leave rounding in an empty cluster, which would not be found empty.
        whole = self.index % ALL_ROWS_EVERY == 0 or self.layout.weights is not None
        name = f"iteration-{run.passes + 1:02d}"
        before = self.centers if self.before is None else self.before
        arrays = {"exact": self.centers, "before": before, "groups": self.groups, "shift": self.shift}
        constants = save_once(run.part(name, "constants.part"), arrays)
        fold = step_pass(self.layout, run.slots, int(self.groups.max()) + 1, self.shift.dtype)
        groups, scratch = fold.groups, run.scratch
        after = (
            self.layout.labels(scratch, self.index),
            self.layout.bounds(scratch, self.index, groups),
        )
        places: dict[str, Any] = {"constants": constants, "before": self.scratch, "after": after}
        fold = dataclasses.replace(fold, **places, whole=whole, kept=self._far_rows(sought))
        state = run.pass_over_data(name, fold)
        for each in self.scratch or ():
            run.release(each)
        self.scratch = after
        if whole:
            self.sums, self.counts, self.squares = state["sums"], state["counts"], float(state["squares"][0])
        else:
            self.sums, self.counts = self.sums + state["sums"], self.counts + state["counts"]
        return state

    def _far_rows(self, sought: int) -> tuple[KeptRows, ...]:
        """Storage for the ``sought`` rows farthest from their centers, a tuple of one; empty for 0."""
        return far_rows(self.layout, sought) if sought else ()

    def _change(self, new: Float64) -> float:
        mass = float(self.counts.sum())
        return change_of(new - self.centers, self.sums.sum(axis=0), self.squares, mass)

    def _stop_reason(self, moved: int, *, open_ends: bool) -> str:
        if not open_ends and moved == 0:
            return "labels"
        if not open_ends and self.change <= self.request.tol:
            return "tol"
        return "passes" if self.request.start_passes + self.index >= self.request.passes else ""


def step_pass(layout: Layout, slots: int, groups: int, dtype: np.dtype[Any]) -> LloydPass:
    """Fold of one Lloyd's step with placeholders for its files: for a plan, or for a run to fill in.

    ``groups`` is the number of groups of centers that share a bound, ``dtype`` the type of products.
    """
    scratch = layout.labels(NOWHERE, 0), layout.bounds(NOWHERE, 0, groups)
    panels = layout.panels(slots)
    return LloydPass(
        panels,
        NOWHERE,
        layout.k,
        groups,
        dtype,
        None,
        scratch,
        whole=True,
        kept=(),
        row_seconds=layout.row_seconds,
        weights=layout.weights,
    )


def far_rows(layout: Layout, count: int) -> tuple[KeptRows, ...]:
    """Storage for the ``count`` rows that are farthest from their centers: a tuple of one ``KeptRows``."""
    return (KeptRows(count, layout.view.short, layout.view.dtype),)


MOST_AT_ONCE = 5
"""Largest number of centers that one exchange adds and removes; one less after each that does not help."""

MOST_EXCHANGES = 24
"""Largest number of exchanges that are tried."""

ASIDE = 0.01
"""Distance of an added center from the existing one, as a share of that to its farthest row."""

TILE_ROWS = 1024
"""Number of rows whose distances from all centers are in memory at once."""


def exchange(sample: Sample, centers: Float64, cost: float, most_groups: int) -> tuple[Float64, float]:
    """Improve converged centers (k, n) on a sample by exchanges; returns new centers and their cost.

    A cost is the weighted sum of squared distances of rows from their nearest centers; ``cost`` is that of
    ``centers``. Steps use bounds of distances that centers share in at most ``most_groups`` groups.
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
    """Centers (k + count, n): those given, then one near each of the ``count`` with the highest cost.

    There are fewer if some of these have no rows in the sample.
    """
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
    """Index of the nearest center of each row, and squared distances of the nearest and the second nearest.

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
