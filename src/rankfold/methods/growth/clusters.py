"""Clusters of a matrix that has gained rows: new rows take the nearest center, and centers become the means.

Old rows keep their labels and are not read. An earlier result keeps the means of its clusters. From these the
centers are the means of all rows by their labels, and the inertia is that of these labels and centers, both
up to rounding. Nearest labels would give at most that inertia.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.claims import has_converged
from rankfold.methods.growth.growth import Step
from rankfold.methods.growth.join_rows import JoinRows, new_rows
from rankfold.methods.kmeans.iteration import Clusters
from rankfold.methods.kmeans.kmeans import Clustering
from rankfold.methods.kmeans.request import given_centers
from rankfold.methods.kmeans.start import change_of, means
from rankfold.methods.parts.outputs import create_output, write_outputs
from rankfold.methods.task import Output, Task
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats.zarr.vector import vector_at
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.planning.passes import numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.storage.scratch import NOWHERE, ScratchMatrix

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GroupMeans:
    """Clusters of some rows: their sizes, means, and inertia about given centers."""

    counts: Float64
    """(k,) number of rows of each cluster."""

    means: Float64
    """(k, n) means of the clusters."""

    centers: Float64
    """(k, n) centers that ``inertia`` is measured from."""

    inertia: float
    """Sum of squared distances of rows, each from the row of ``centers`` of its cluster."""

    def inertia_about(self, centers: Float64) -> float:
        """Sum of squared distances of rows, each from the row of ``centers`` (k, n) of its cluster.

        Clusters keep their rows, whatever ``centers`` are given.
        """
        spread = self.inertia - self._between(self.centers)
        return max(spread, 0.0) + self._between(centers)

    def _between(self, centers: Float64) -> float:
        return float(self.counts @ ((self.means - centers) ** 2).sum(axis=1))


@dataclass(frozen=True, slots=True)
class ClusterGrowth:
    """Task that adds new rows to an earlier clustering."""

    whole: Clustering
    """The clustering of all rows, as it was asked for: it gives the request and the outputs."""

    part: Clustering
    """The clustering of the new rows alone: one step from the centers of the earlier result."""

    earlier: Result
    """The kmeans result of the first ``old_rows`` rows of the matrix."""

    old_rows: int
    """Number of rows that have labels in the earlier result."""

    @property
    def source(self) -> Source:
        """The matrix of all rows."""
        return self.whole.source

    def request(self) -> dict[str, Any]:
        """The request of the clustering of all rows, as JSON types."""
        return self.whole.request()

    def outputs(self) -> tuple[Output, ...]:
        """Arrays of the result: those of a clustering of all rows, and ``means`` (k, n) of the clusters."""
        return (*self.whole.outputs(), self.whole.means_output)

    def plan(self, budget: Budget) -> Plan:
        """Plan of one pass over the new rows, and a sweep that joins old and new labels."""
        plan, rows = self.part.plan(budget), self.source.shape[0]
        *matrix, _ = plan.passes
        join = numbers_of("labels", self._join(NOWHERE_LABELS), 4 * rows, 4 * rows, 0.0, over="scratch")
        return dataclasses.replace(plan, passes=(*matrix, join))

    def _join(self, new: ScratchMatrix, array: Any = NOWHERE) -> JoinRows:
        old = vector_at(str(self.earlier.path), "labels")
        return JoinRows(self.whole.layout.label_cut, old, new, array, self.old_rows)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Label new rows, update centers and inertia, and write the result; return its facts (metadata).

        ``fingerprint`` is that of the matrix of all rows.
        """
        with one_blas_thread():
            clusters = self.part.label(run)
            old, new = self._old(), _group_means(clusters)
            counts = old.counts + new.counts
            share = np.divide(new.counts, counts, out=np.zeros_like(counts), where=counts > 0)
            centers = np.where(
                counts[:, None] > 0, old.means + share[:, None] * (new.means - old.means), new.centers
            )
            inertia = old.inertia_about(centers) + new.inertia_about(centers)
            total = clusters.sums.sum(axis=0)
            change = change_of(centers - new.centers, total, clusters.squares, self.part.source.shape[0])
            self._write(run, clusters, centers, counts)
            write_outputs(run.result, {"inertia": np.array([inertia])})
            facts = self._facts(run, fingerprint, counts, inertia, change)
            run.describe(facts)
        return facts

    def _old(self) -> GroupMeans:
        """Sizes, means and inertia of the clusters of the old rows, read from the earlier result."""
        counts = np.asarray(self.earlier.counts[...], np.float64)
        own_means = np.asarray(self.earlier["means"][...], np.float64)
        centers = np.asarray(self.earlier.centers[...], np.float64)
        return GroupMeans(counts, own_means, centers, float(self.earlier.attrs["final_inertia"]))

    def _write(self, run: Run, clusters: Clusters, centers: Float64, counts: Float64) -> None:
        rows, cut = self.source.shape[0], self.whole.layout.label_cut
        array = create_output(run.result, "labels", (rows,), np.int32, (cut.panel_rows,))
        run.sweep("labels", self._join(clusters.labels, array))
        sizes = np.rint(counts).astype(np.int64)
        write_outputs(run.result, {"centers": centers, "means": centers, "counts": sizes})

    def _facts(
        self, run: Run, fingerprint: str, counts: Float64, inertia: float, change: float
    ) -> dict[str, Any]:
        parameters, empty = self.whole.parameters, int((counts == 0).sum())
        return {
            **run.facts(self.request(), "running means", self.source, fingerprint),
            "final_inertia": inertia,
            "steps": 1,
            "change": change if np.isfinite(change) else None,
            "empty_clusters": empty,
            "stopped": "rows",
            "converged": has_converged(change, parameters.tol),
        }


NOWHERE_LABELS = ScratchMatrix(NOWHERE, 0, 1, np.dtype(np.int32))
"""Scratch matrix without rows that stands for the labels of new rows while a plan is made."""


def _group_means(clusters: Clusters) -> GroupMeans:
    """Sizes, means and inertia of the clusters of those rows that one step of kmeans has labeled."""
    centers = clusters.centers
    new_means = means(centers, clusters.shift, clusters.sums, clusters.counts)
    return GroupMeans(clusters.counts, new_means, centers, clusters.inertia[-1])


def grow_clusters(task: Task, earlier: Result | None, first: int, grows: str) -> Step:
    """Make the step by which a kmeans result takes in the rows that its matrix has gained.

    ``task`` clusters all rows. ``earlier`` is the result of the ``first`` rows, or None to only check that a
    result can grow. ``grows`` is one of ``GROWS``. See ``Method.grow``.
    """
    assert isinstance(task, Clustering)  # noqa: S101 - that is what the registry says
    if task.weights is not None:
        raise InputError("kmeans with weights does not grow: leave out grows")
    rows = task.source.shape[0]
    if earlier is None:
        return Step(task, rows)
    centers = given_centers(earlier)
    given = dataclasses.replace(task.parameters, init="custom", batch_rows=0)
    if grows == "polish":
        polished = dataclasses.replace(given, batch_rows=task.parameters.batch_rows)
        return Step(Clustering.of(task.source, polished, centers), rows)
    if "means" not in set(earlier):
        raise InputError(f"{earlier.path} keeps no means of its clusters: say overwrite to begin anew")
    part = Clustering.of(new_rows(task.source, first), dataclasses.replace(given, passes=1), centers)
    return Step(ClusterGrowth(task, part, earlier, first), rows - first)
