"""Mini-batches: centers move after every few rows, so that one read of the matrix moves them many times.

Rows are processed in order, batch by batch. Each batch is labeled by the current centers, and every center
moves to the mean of all rows that it has ever been assigned. This is sequential by nature: a pass is a single
stream. Sums are made in the same order whatever the cut of the matrix, so the result does not depend on it.

References
----------
Sculley, Web-scale k-means clustering, WWW 2010, algorithm 1: the step size of a center is one over the number
of its rows. Differences: batches are not drawn at random; rows are read once a pass, in order, and centers
start from a sample of all rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rankfold.kernels.clustering.nearest_centers import assign_rows, centers_of
from rankfold.methods.kmeans.passes import KeptRows, Layout, OverClusters
from rankfold.methods.kmeans.request import ClusterRequest
from rankfold.methods.kmeans.start import change_of, inertia_of
from rankfold.methods.parts.panels import Panels, numbers, refuse_bad
from rankfold.methods.parts.row_weights import RowWeights
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.fold import Sum, Workspace
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.storage.checkpoint import State, load_arrays, save_once
from rankfold.pipeline.storage.scratch import NOWHERE

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BatchPass(OverClusters):
    """Fold (work on each panel of rows) of a mini-batch pass; its sums include the moving centers."""

    panels: Panels
    constants: Path
    """Checkpoint file with the centers ``exact`` of the pass before, again as ``before``, their ``groups``,
    the ``shift`` that is subtracted from rows, and the number (or weight) of rows ``given`` to each so far.
    """

    k: int
    dtype: np.dtype[Any]
    batch_rows: int
    row_seconds: float
    groups: int = 1
    kept: tuple[KeptRows, ...] = ()
    weights: RowWeights | None = None
    copies: ClassVar[int] = 15  # in addition those of a batch, packed and intermediate

    def sums(self) -> Mapping[str, Sum]:
        """Sums of the current batch, as in ``OverClusters``; the moving centers; totals of all batches.

        ``centers`` (k, n) and ``given`` (k,), the rows assigned to each so far; ``total`` (n,) sum of all
        rows less the shift; ``all_squares`` (1,) their squared norms; ``cost`` (1,) inertia, added up over
        batches.
        """
        k, n = self.k, self.panels.view.short
        own = {"centers": Sum((k, n)), "given": Sum((k,))}
        return {
            **OverClusters.sums(self),
            **own,
            "total": Sum((n,)),
            "all_squares": Sum((1,)),
            "cost": Sum((1,)),
        }

    def start(self) -> State:
        """Sums before the first row: zeros, with the centers and ``given`` of the previous pass."""
        arrays = load_arrays(self.constants)
        return {**OverClusters.start(self), "centers": arrays["exact"], "given": arrays["given"]}

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Label rows ``start:stop``, and move the centers at the end of each batch."""
        for grain in self.panels.grains(work.panels, start, stop, slot):
            x, own = numbers(grain.raw), self.weights_of(grain)
            for first, last in self._pieces(grain.first, grain.last):
                here = slice(first - grain.first, last - grain.first)
                self._add(state, work, x[here], here, None if own is None else own[here])
                if not self.is_finite(state, work, grain, state["squares"]):
                    state["squares"][:] = 0
                    break
                if last % self.batch_rows == 0 or last == self.cut.length:
                    self._move(state, work)

    def _pieces(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield start and stop of rows ``first:last``, split at ends of batches."""
        while first < last:
            end = min(last, (first // self.batch_rows + 1) * self.batch_rows)
            yield first, end
            first = end

    def _add(self, state: State, work: Workspace, x: Array, here: slice, weights: Float64 | None) -> None:
        """Label rows ``x`` (r, n), at ``here`` in the buffers, and add them to the sums of the batch.

        ``weights`` (r,) are those of the rows, None for one each. Rows are added one by one, so that sums do
        not depend on how many are processed at a time.
        """
        labels, bounds = work.labels[here, 0], work.bounds[here]
        labels[...] = -1
        sums: dict[str, Any] = {name: state[name] for name in ("sums", "counts", "squares")}
        centers = centers_of(state["centers"], work.shift, work.groups)
        assign_rows(x, centers, labels=labels, bounds=bounds, weights=weights, **sums)

    def _move(self, state: State, work: Workspace) -> None:
        """End a batch in ``state``: add its cost to that of the pass, move centers, and clear its sums."""
        centers, sums, counts, squares = (state[name] for name in ("centers", "sums", "counts", "squares"))
        state["cost"] += inertia_of(centers, work.shift, sums, counts, float(squares[0]))
        state["total"] += sums.sum(axis=0)
        state["all_squares"] += squares
        move_centers(centers, state["given"], sums, counts, work.shift)
        for each in (sums, counts, squares):
            each[...] = 0


def move_centers(centers: Float64, given: Float64, sums: Float64, counts: Float64, shift: Array) -> None:
    """Move each center to the mean of all rows assigned to it, including those of a batch; in place.

    Parameters
    ----------
    centers : (k, n)
    given : (k,)
        Number of rows, or their weight, assigned to each before; updated. 0 gives the starting position no
        weight.
    sums, counts : (k, n), (k,)
        Sums over the rows of the batch minus the shift, and their numbers.
    shift : (n,)
        Vector that is subtracted from rows in ``sums``.
    """
    own = counts > 0
    given[own] += counts[own]
    near = centers[own] - shift.astype(np.float64)
    mean = sums[own] / counts[own, None]
    centers[own] += (mean - near) * (counts[own] / given[own])[:, None]


@dataclass(slots=True)
class Batches:
    """Centers (k, n) after mini-batch passes, and how the passes ended (``reason``: "tol" or "passes")."""

    centers: Float64
    inertia: list[float]
    """Inertia of each pass, with the centers current at each batch."""

    change: float
    """Squared movement of all centers in the last pass, over the mean variance of columns."""

    reason: str


def by_batches(run: Run, request: ClusterRequest, layout: Layout, centers: Float64, shift: Array) -> Batches:
    """Make mini-batch passes until centers converge, or one pass is left, which the caller needs for labels.

    They start from ``centers`` (k, n); ``shift`` (n,) is subtracted from rows before products.
    """
    k = len(centers)
    # Centers from a sample count as means of its rows; those of a caller count nothing.
    rows = layout.source.shape[0]
    mass = float(rows) if layout.weights is None else layout.weights.total()
    share = 0.0 if request.init == "custom" else layout.sample[0].count / k * (mass / rows)
    given, made = np.full(k, share), Batches(centers, [], np.inf, "")
    while not made.reason:
        name = f"batches-{run.passes + 1:02d}"
        arrays = {"exact": made.centers, "before": made.centers, "groups": np.zeros(k, np.int64)}
        constants = save_once(run.part(name, "constants.part"), {**arrays, "shift": shift, "given": given})
        fold = batch_pass(layout, run.slots, shift.dtype, request.batch_rows)
        state = run.pass_over_data(name, dataclasses.replace(fold, constants=constants))
        refuse_bad(state, layout.source)
        moved, squares = state["centers"] - made.centers, float(state["all_squares"][0])
        made.change = change_of(moved, state["total"], squares, mass)
        made.centers, given = state["centers"], state["given"]
        before, cost = (made.inertia or [np.inf])[-1], float(state["cost"][0])
        made.inertia.append(cost)
        # Steps of one over the number of rows never reach zero, so a small gain ends them too.
        if made.change <= request.tol or (request.tol > 0 and before - cost <= request.tol * cost):
            made.reason = "tol"
        elif run.passes + 1 >= request.passes:
            made.reason = "passes"
    return made


def batch_pass(layout: Layout, slots: int, dtype: np.dtype[Any], batch_rows: int) -> BatchPass:
    """Fold of a mini-batch pass, which takes all rows in order; the path of its constants is set later.

    ``dtype`` is the type of products. Centers move after every ``batch_rows`` rows.
    """
    panels = layout.panels(slots)
    edges = panels.cut.panels
    one = Cut(edges, np.array([0, len(edges) - 1]), panels.cut.grain_rows)
    panels = dataclasses.replace(panels, cut=one)
    return BatchPass(panels, NOWHERE, layout.k, dtype, batch_rows, layout.row_seconds, weights=layout.weights)
