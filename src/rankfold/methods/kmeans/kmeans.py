"""Clusters of rows around their means: one read samples rows for a start, each further read is a step.

The result is a function of only the rows, the cut of the matrix, and the arguments. Labels are exact: the
pairs of row and center that bounds exclude change only the time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.argument import is_word
from rankfold.methods.kmeans.arguments import INITS, KMEANS, KMeansArguments
from rankfold.methods.kmeans.batches import batch_pass, by_batches
from rankfold.methods.kmeans.iteration import (
    MOST_FAR_ROWS,
    TILE_ROWS,
    Clusters,
    exchange,
    far_rows,
    step_pass,
)
from rankfold.methods.kmeans.passes import Layout, SamplePass, WriteLabels, working_type
from rankfold.methods.kmeans.request import ClusterRequest, centers_among, digest, given_centers
from rankfold.methods.kmeans.start import First, Sample, best_start, means, weigh
from rankfold.methods.parts.outputs import create_output, write_outputs
from rankfold.methods.parts.panels import refuse_bad
from rankfold.methods.parts.row_weights import BLOCK_ROWS, RowWeights, open_row_weights
from rankfold.methods.parts.sample import Sample as FewRows
from rankfold.methods.parts.square_range import refuse_size
from rankfold.methods.task import Output, count
from rankfold.pipeline.data.source import Source, require_rows
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import PanelSweeps, TaskFacts, plan_task, smaller_argument
from rankfold.pipeline.prepare.moments import FAINTEST
from rankfold.pipeline.storage.checkpoint import save_once
from rankfold.pipeline.storage.scratch import NOWHERE

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

LIKELY_STEPS = 30
"""Number of Lloyd's steps that usually reach the tolerance."""

LIKELY_BATCH_PASSES = 6
"""Number of mini-batch passes that usually reach the tolerance, including one that labels rows."""

OPEN_SHARE = 0.3
"""Share of the pairs of row and center, over all steps, that are compared: bounds exclude the others."""

WIDE = np.dtype(np.float64)


@dataclass(frozen=True, slots=True)
class Clustering:
    """Task of a clustering: a matrix and the parameters of its clusters."""

    source: Source
    parameters: ClusterRequest
    given: Float64 | None = None
    """(k, n) centers of the caller to start from; None to find some."""

    weights: RowWeights | None = None
    """Weights of the rows; None for one each."""

    @classmethod
    def of(
        cls,
        source: Source,
        parameters: ClusterRequest,
        given: Float64 | None = None,
        weights: RowWeights | None = None,
    ) -> Clustering:
        """Check arguments and make the task; raises ``InputError``."""
        parameters.check(source.shape, source.name)
        if parameters.init == "custom" and given is None:
            raise InputError("init custom has no name: give the centers, or a result of kmeans")
        require_rows(source)
        if given is not None and given.shape != (parameters.k, source.shape[1]):
            raise InputError(
                f"centers to start from have shape {given.shape}, but {parameters.k} clusters of "
                f"{source.shape[1]} columns were asked for"
            )
        _ = Layout(source, parameters.k).view.dtype  # refuses complex numbers
        return cls(source, parameters, given, weights)

    @property
    def layout(self) -> Layout:
        """Cut of the matrix into rows that are read at a time, and intermediate files between passes."""
        return Layout(self.source, self.parameters.k, self.weights)

    def request(self) -> dict[str, Any]:
        """Parameters, and digests of starting centers and weights, for JSON: they determine the result."""
        weights = {} if self.weights is None else {"weights": self.weights.source.fingerprint()}
        return {**self.parameters.as_dict(), "centers": digest(self.given), **weights}

    def outputs(self) -> tuple[Output, ...]:
        """Names, shapes, types and numbers of chunks of the results: labels, centers, counts, inertia, and
        weights of clusters if rows have some."""
        (rows, columns), k, cut = self.source.shape, self.parameters.k, self.layout.label_cut
        return (
            Output("labels", (rows,), np.dtype(np.int32), count(rows, cut.panel_rows)),
            Output("centers", (k, columns), WIDE),
            Output("counts", (k,), np.dtype(np.int64)),
            Output("inertia", (self.parameters.passes,), WIDE),
            *(() if self.weights is None else (Output("cluster_weights", (k,), WIDE),)),
        )

    @property
    def means_output(self) -> Output:
        """Array of cluster means, stored in addition in results that can be extended by new rows."""
        return Output("means", (self.parameters.k, self.source.shape[1]), WIDE)

    # Plan -----------------------------------------------------------------------------------------

    def plan(self, budget: Budget) -> Plan:
        """Plan the passes: sample rows, take Lloyd's steps or mini-batches, write labels."""
        layout, parameters, (rows, columns) = self.layout, self.parameters, self.source.shape
        row_bytes = 4 * (2 + layout.groups)
        task_facts = TaskFacts(
            kind="kmeans",
            method=self.parameters.solver,
            source=self.source,
            dtype=layout.view.dtype,
            orientation=Orientation.ROWS,
            rank=parameters.k,
            result_bytes=4 * rows + 8 * parameters.k * (columns + 1),
            scratch_bytes=2 * rows * row_bytes,
            decided_by="how fast centers come to rest",
            subject=f"kmeans of this {rows} x {columns} matrix",
        )
        plan = plan_task(task_facts, self._all_sweeps(), budget, smaller=lambda: self._smaller(budget))
        start = [each for each in plan.passes if each.name == "sample"]
        step = next(each for each in plan.passes if each.name == "iteration")
        often = next((each for each in plan.passes if each.name == "batches"), step)
        numbers = range(parameters.start_passes + 1, parameters.passes + 1)
        steps = [dataclasses.replace(often, name=f"{often.name}-{i:02d}") for i in numbers]
        steps[-1] = dataclasses.replace(step, name=f"iteration-{parameters.passes:02d}")
        write = [each for each in plan.passes if each.over == "scratch"]
        likely = LIKELY_BATCH_PASSES if parameters.batch_rows else LIKELY_STEPS
        return dataclasses.replace(
            plan,
            passes=(*start, *steps, *write),
            most_passes=parameters.passes,
            likely_passes=min(parameters.passes, parameters.start_passes + likely),
        )

    def _all_sweeps(self) -> PanelSweeps:
        cut = self.layout.panels(1).cut
        return PanelSweeps(self._sweeps, cut, self._driver_bytes(), self.layout.sums_bytes)

    def _smaller(self, budget: Budget) -> str:
        """Text that suggests a number of clusters that fits; empty if the caller gives centers."""
        if self.given is not None:
            return ""

        def sweeps_of(k: int) -> PanelSweeps:
            return dataclasses.replace(
                self, parameters=dataclasses.replace(self.parameters, k=k)
            )._all_sweeps()

        return smaller_argument("k", self.parameters.k, sweeps_of, budget)

    def _sweeps(self, slots: int) -> list[Pass]:
        layout, (rows, columns) = self.layout, self.source.shape
        reads, flops = rows * columns * self.source.dtype.itemsize, 2.0 * rows * columns * self.parameters.k
        resident, sweeps = 8 * 6 * self.parameters.k * columns, []
        if self.parameters.start_passes:
            sweeps.append(numbers_of("sample", self._sample_pass(slots, NOWHERE), reads, 0, flops))
        fold, written = step_pass(layout, slots, layout.groups, WIDE), 4 * rows * (2 + layout.groups)
        fold = dataclasses.replace(fold, kept=far_rows(layout, min(MOST_FAR_ROWS, self.parameters.k)))
        sweeps.append(numbers_of("iteration", fold, reads + written, written, OPEN_SHARE * flops))
        if self.parameters.batch_rows:
            batches = batch_pass(layout, slots, WIDE, self.parameters.batch_rows)
            sweeps.append(numbers_of("batches", batches, reads, 0, flops))
        sweeps = [dataclasses.replace(each, resident_bytes=resident) for each in sweeps]
        return [*sweeps, numbers_of("labels", self._write(NOWHERE), 4 * rows, 4 * rows, 0.0, over="scratch")]

    def _driver_bytes(self) -> int:
        """Bytes in the leading process: centers, sums, sampled rows with and without shift, and starts."""
        layout, k, columns = self.layout, self.parameters.k, self.source.shape[1]
        few = FewRows.of(layout.view, k).memory_bytes
        rows = sum(each.count for each in layout.sample)
        sample = rows * (3 * layout.row_bytes + 8 * (6 * (3 + int(np.log(k))) + layout.groups))
        tile = min(TILE_ROWS, rows + k) * (24 * k + 2 * layout.row_bytes)
        weighing = 0 if self.weights is None else self.weights.read_bytes(BLOCK_ROWS) + 4 * 8 * rows
        return 8 * 12 * k * (columns + 1) + tile + few + weighing + (0 if self.given is not None else sample)

    # Run ------------------------------------------------------------------------------------------

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Find starting centers, take steps, and write the result; returns its facts (metadata)."""
        if self.weights is not None:
            self.weights.total()  # raises for invalid weights
        with one_blas_thread():
            centers, shift = self._start(run)
            clusters, reason = self._clusters(run, centers, shift)
            facts = self._write_result(run, clusters, reason, fingerprint)
            run.describe(facts)
        return facts

    def label(self, run: Run) -> Clusters:
        """Label rows by the given centers in one read; returns the clusters, with labels on scratch."""
        centers, shift = self._start(run)
        clusters = Clusters(self.parameters, self.layout, centers, shift)
        clusters.label(run)
        return clusters

    def _clusters(self, run: Run, centers: Float64, shift: Array) -> tuple[Clusters, str]:
        """Iterate from centers; returns the clusters, and the reason to stop."""
        if not self.parameters.batch_rows:
            clusters = Clusters(self.parameters, self.layout, centers, shift)
            return clusters, clusters.iterate(run)
        made = by_batches(run, self.parameters, self.layout, centers, shift)
        clusters = Clusters(self.parameters, self.layout, made.centers, shift)
        clusters.label(run)
        clusters.inertia[:0], clusters.change = made.inertia, made.change
        return clusters, made.reason

    def _start(self, run: Run) -> tuple[Float64, Array]:
        """Starting centers (k, n), and the shift (n,) that is subtracted from rows before products."""
        # A pass refuses numbers that overflow, and says where they are.
        with np.errstate(over="ignore", invalid="ignore"):
            few = run.prepare(run.part("start.part"), self._look)
        shift = few["shift"]
        if self.given is not None:
            return self.given, shift
        if self.parameters.init == "sample":
            return few["centers"], shift
        first = First(few["centers"], few["rarity"], shift)
        named = {"exact": first.centers, "before": first.centers, "rarity": first.rarity, "shift": shift}
        named["groups"] = np.zeros(len(first.centers), np.int64)
        constants = save_once(run.part("sample", "constants.part"), named)
        state = run.pass_over_data("sample", self._sample_pass(run.slots, constants, first))
        refuse_bad(state, self.source)

        def choose() -> dict[str, Array]:
            kept, rows = self.layout.sample, self.source.shape[0]
            return {"centers": self._best(weigh(state, first, kept, rows, self.weights))}

        return run.prepare(run.part("centers.part"), choose)["centers"], shift

    def _look(self) -> dict[str, Array]:
        """Read a few rows; returns their mean as ``shift`` (n,), and their ``centers`` unless some are given.

        For ``"k-means||"`` also the ``rarity`` (k,) of each center: see ``First``.
        """
        layout, wanted = self.layout, 0 if self.given is not None else self.parameters.k
        few = FewRows.of(layout.view, wanted)
        rows = few.read()
        size = float(np.abs(rows).max(initial=0.0))
        if 0 < size < FAINTEST:
            refuse_size(self.source, size)
        shift = rows.mean(axis=0, dtype=np.float64).astype(working_type(layout, rows))
        if not wanted:
            return {"shift": shift}
        own = np.ones(len(rows))
        if self.weights is not None:
            own = np.concatenate([self.weights.read(*span) for span in few.spans])
        sample = Sample.of(rows.astype(layout.view.dtype), own, shift)
        if self.parameters.init == "sample":
            return {"shift": shift, "centers": self._best(sample)}
        first = First.of(sample, min(wanted, len(sample.rows)), self.parameters.seed, layout.groups)
        return {"shift": shift, "centers": first.centers, "rarity": first.rarity}

    def _best(self, sample: Sample) -> Float64:
        parameters = self.parameters
        each = parameters.k, parameters.n_init, parameters.seed, self.layout.groups
        return exchange(sample, *best_start(sample, *each), self.layout.groups)[0]

    def _sample_pass(self, slots: int, constants: Path, first: First | None = None) -> SamplePass:
        layout, kept = self.layout, self.layout.sample
        sample_bytes = sum(each.count for each in kept) * (layout.row_bytes + 16)
        panels = layout.panels(slots, sums_bytes=sample_bytes)
        k, dtype = self.parameters.k, WIDE
        if first is not None:
            k, dtype = len(first.centers), first.shift.dtype
        each = k, 1, dtype, kept, self.parameters.seed, layout.row_seconds
        return SamplePass(panels, constants, *each, weights=self.weights)

    def _write(self, folder: Path, index: int = 0, array: Path = NOWHERE) -> WriteLabels:
        counted = 0 if self.weights is None else self.parameters.k
        return WriteLabels(self.layout.label_cut, self.layout.labels(folder, index), array, counted)

    def _write_result(self, run: Run, clusters: Clusters, reason: str, fingerprint: str) -> dict[str, Any]:
        rows, cut = self.source.shape[0], self.layout.label_cut
        array = create_output(run.result, "labels", (rows,), np.int32, (cut.panel_rows,))
        state = run.sweep("labels", self._write(run.scratch, clusters.index - 1, array))
        counts = np.rint(clusters.counts).astype(np.int64) if self.weights is None else state["counts"]
        arrays = {"centers": clusters.centers, "counts": counts, "inertia": np.array(clusters.inertia)}
        if self.weights is not None:
            arrays["cluster_weights"] = clusters.counts
        if run.growth is not None:
            sums = clusters.shift, clusters.sums, clusters.counts
            arrays["means"] = means(clusters.centers, *sums)
        write_outputs(run.result, arrays)
        self._warn(run, clusters, reason)
        return {
            **run.facts(self.request(), self.parameters.solver, self.source, fingerprint),
            "final_inertia": clusters.inertia[-1],
            "steps": len(clusters.inertia),
            "change": clusters.change if np.isfinite(clusters.change) else None,
            "empty_clusters": int((clusters.counts == 0).sum()),
            "stopped": reason,
            "converged": reason != "passes",
        }

    def _warn(self, run: Run, clusters: Clusters, reason: str) -> None:
        empty = int((clusters.counts == 0).sum())
        if empty and reason != "passes":
            run.warnings.append(
                f"{empty} of {self.parameters.k} clusters have no rows: no more rows differ from the centers "
                "that there are. Ask for fewer clusters, k= (--k)"
            )
        labels_only = self.given is not None and self.parameters.passes == 1
        if reason == "passes" and not labels_only:
            run.warnings.append(
                f"centers still moved by {clusters.change:.1e} in pass {run.passes}, tol = "
                f"{self.parameters.tol:.1e}: allow more with passes= (--passes), or raise tol"
            )


def kmeans_task(x: object, arguments: KMeansArguments) -> Clustering:
    """Make the task of clusters of the rows of a matrix."""
    init: object = arguments.init
    is_name = is_word(init, INITS)
    given = None if is_name else given_centers(init)
    k = arguments.k
    if k is None:
        if given is None:
            raise InputError("kmeans needs a number of clusters: say how many, k= (--k)")
        k = len(given)
    request = ClusterRequest.of(k, str(init) if is_name else "custom", arguments)
    source = open_source(x)
    if given is not None:
        given = centers_among(given, init, source)
    weights = arguments.weights
    own = None if weights is None else RowWeights(open_row_weights(weights, source, "weights"))
    return Clustering.of(source, request, given, own)


def pending_task(
    inputs: Sequence[object], arguments: Mapping[str, Any], start: Mapping[str, Source] | None
) -> Clustering:
    """Make a task, for a plan, that begins at the centers of a result still to be made.

    ``arguments`` are those besides ``init``. ``start`` has the matrices of that result by name, of which
    ``centers`` gives the number of clusters if ``arguments`` do not. See ``Method.pending_task``.
    """
    k = arguments["k"]
    if k is None and start is not None:
        k = start["centers"].shape[0]
    task = KMEANS.task(*inputs, **{**arguments, "k": k, "init": "sample"})
    assert isinstance(task, Clustering)  # noqa: S101 - that is what the declaration says
    return dataclasses.replace(task, parameters=dataclasses.replace(task.parameters, init="custom"))
