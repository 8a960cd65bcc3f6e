"""Features of rows by their similarities to landmarks: some passes choose these, and one writes features.

A similarity is a value of the kernel function k. With landmarks L and W = k(L, L), features ``k(x, L)
W^-1/2`` have products ``k(x, L) W^-1 k(L, y)``, which approximate similarities. Directions of W whose
eigenvalues are below 1e-12 of the largest are left out.

References
----------
Williams, Seeger, Using the Nystroem method to speed up kernel machines, NIPS 2000. Zhang, Tsang, Kwok,
Improved Nystroem low-rank approximation and error analysis, ICML 2008, for means of clusters as landmarks.

Error of products of features as similarities, on all pairs of sampled rows, with an interval.

The error of the trace covers similarities of rows with themselves, and is exact, since every row is visited.
The error of pairs covers pairs of different rows, and is estimated from a sample.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels.similarity.functions import rows_of
from rankfold.methods.chain import Chain, Link
from rankfold.methods.kmeans.arguments import KMEANS
from rankfold.methods.nystroem.arguments import CLUSTER_PASSES, NystroemArguments
from rankfold.methods.nystroem.landmarks import Draws, rounds
from rankfold.methods.nystroem.request import NystroemRequest
from rankfold.methods.parts.outputs import create_output, write_outputs
from rankfold.methods.similarity.blocks import finite_similarities, require_finite, shift_of
from rankfold.methods.similarity.features import (
    Points,
    WriteFeatures,
    features_of,
    refuse_outside,
    row_chunk,
    trace_error,
)
from rankfold.methods.task import Output, Task, count, vectors
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation, working_dtype
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import PanelSweeps, TaskFacts, plan_task
from rankfold.pipeline.planning.shape_only import ShapeOnly
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.storage.scratch import NOWHERE

Float64 = npt.NDArray[np.float64]

DOUBLE = np.dtype(np.float64)

LEAST = 1e-12
"""Eigenvalue of the matrix of landmarks' similarities, relative to the largest, below which its direction is
left out."""

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True)
class Nystroem:
    """Task of Nystroem features of a matrix."""

    source: Source
    parameters: NystroemRequest
    clusters: Result | None = None
    """``kmeans`` result whose centers are the landmarks; None before it is made, or if landmarks are rows."""

    def when_made(self, results: Mapping[str, Path]) -> Nystroem:
        """Copy of the task with the clusters in ``results``: paths of results by the name of their link."""
        return dataclasses.replace(self, clusters=Result(results["landmarks"]))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the features."""
        return working_dtype(self.source.dtype)

    def request(self) -> dict[str, Any]:
        """Everything besides the numbers in ``source`` that determines the features, as JSON types."""
        return self.parameters.as_dict()

    @property
    def _chunk(self) -> int:
        return row_chunk(self.source, self.parameters.rank, self.dtype.itemsize)

    def outputs(self) -> tuple[Output, ...]:
        """Declare the arrays of the result: features, landmarks, and constants for new rows."""
        (rows, columns), rank = self.source.shape, self.parameters.rank
        return (
            Output("features", (rows, rank), self.dtype, count(rows, self._chunk)),
            Output("points", (rank, columns), DOUBLE),
            Output("normalization", (rank, rank), DOUBLE),
            Output("landmarks", (rank,), np.dtype(np.int64)),
            *vectors(columns, "shift"),
        )

    # Plan -----------------------------------------------------------------------------------------

    def plan(self, budget: Budget) -> Plan:
        """Plan of the passes that draw landmarks, and of the one that writes features."""
        rows, rank = self.source.shape[0], self.parameters.rank
        task_facts = TaskFacts(
            "nystroem",
            self.parameters.landmarks,
            self.source,
            DOUBLE,
            Orientation.ROWS,
            rank,
            result_bytes=rows * rank * self.dtype.itemsize,
            subject=f"nystroem of {rows} rows with {rank} landmarks",
        )
        most, likely = rounds(self.parameters)
        looked_at = min(SAMPLE_ROWS, rows)
        sample = looked_at * (3 * self.source.shape[1] + 6 * looked_at + 3 * rank)
        driver = 8 * (8 * rank**2 + 4 * rank * self.source.shape[1] + sample)
        fold = self._fold(self._imagined(), NOWHERE, 1)
        sweeps = PanelSweeps(
            self._sweeps,
            fold.cut,
            driver,
            fold.accumulator_bytes,
            likely=lambda passes: passes - most + likely,
        )
        return plan_task(task_facts, sweeps, budget)

    def _sweeps(self, slots: int) -> list[Pass]:
        """Passes that draw landmarks, if these are rows, and the one that writes features, for a plan."""
        (rows, columns), rank = self.source.shape, self.parameters.rank
        reads = rows * columns * self.source.dtype.itemsize
        draw = Draws(self.source, self.parameters, np.zeros(columns)).fold(
            None, 0, _imagined(rank, columns), slots
        )
        most, likely = rounds(self.parameters)
        sweep = numbers_of("draw", draw, reads, 0, rows * draw.row_flops)
        draws = [dataclasses.replace(sweep, name=f"draw-{i:02d}", is_likely=i < likely) for i in range(most)]
        fold = self._fold(self._imagined(), NOWHERE, slots)
        writes = rows * rank * self.dtype.itemsize
        reads += fold.reads_bytes
        return [*draws, numbers_of("features", fold, reads, writes, rows * fold.row_flops)]

    def _imagined(self) -> Points:
        """Points of the sizes that the landmarks will have, without values, for a plan."""
        rank, columns, zeros = self.parameters.rank, self.source.shape[1], np.zeros(self.parameters.rank)
        points, square = (ShapeOnly.plain((rank, width), DOUBLE) for width in (columns, rank))
        return Points(self.parameters.choice, points, square, zeros, zeros, np.zeros(columns))

    def _fold(self, points: Points, array: Path, slots: int) -> WriteFeatures:
        sample = min(SAMPLE_ROWS, self.source.shape[0]), self.parameters.seed
        return WriteFeatures.of(self.source, points, array, self.dtype, slots, sample)

    # Run ------------------------------------------------------------------------------------------

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Choose landmarks and write the features; returns the facts (metadata) of the result."""
        choice = self.parameters.choice
        with one_blas_thread():
            shift = shift_of(self.source, choice.similarity)
            landmarks, ids = self._landmarks(run, shift)
            normalization, facts = normalize(landmarks, self.parameters, shift, self.source.name)
            small = {"points": landmarks, "normalization": normalization, "shift": shift}
            write_outputs(run.result, {**small, "landmarks": ids})
            rows, square = (open_source(run.result / name) for name in ("points", "normalization"))
            ones = np.ones(len(landmarks))
            points = Points(choice, rows, square, ones, 0 * ones, shift)
            shape, width = (self.source.shape[0], len(landmarks)), len(landmarks)
            path = create_output(run.result, "features", shape, self.dtype, (self._chunk, width))
            fold = self._fold(points, path, run.slots)
            state = run.pass_over_data("features", fold)
            refuse_outside(state, self.source, self.dtype)
            facts |= self._errors(state, fold, float(facts["condition"]))
        self._warn(run, facts, len(landmarks))
        facts = {**run.facts(self.request(), self.parameters.landmarks, self.source, fingerprint), **facts}
        run.describe(facts)
        return facts

    def _landmarks(self, run: Run, shift: Float64) -> tuple[Float64, npt.NDArray[np.int64]]:
        """(p, d) landmarks, and their (p,) row numbers, -1 for means of clusters."""
        if self.clusters is not None:
            self.clusters.require_whole()
            centers = np.asarray(self.clusters["centers"][...])
            return centers, np.full(len(centers), -1)
        return Draws(self.source, self.parameters, shift).choose(run)

    def _errors(self, state: State, fold: WriteFeatures, condition: float) -> dict[str, Any]:
        """Facts on the error of features: of the trace, exact but for rounding; of pairs, by a sample.

        ``state`` has the sums of the pass by ``fold``; ``condition`` is that of the similarities of
        landmarks.
        """
        own, captured = (float(state[name][0]) for name in ("own", "captured"))
        require_finite([own, captured], self.source.name)
        rounding = 64 * EPS * float(np.sqrt(condition))
        error = trace_error(state)
        least, most = error - rounding, error + rounding
        _, _, raw = fold.kept[0].held(state)
        choice = self.parameters.choice
        rows = rows_of(raw, choice.similarity, fold.points.shift)
        similarities = finite_similarities(rows, rows, choice.similarity, self.source.name)
        (features,) = features_of([rows], fold.points, None)
        sampled = sampled_error(similarities, features @ features.T, self.source.shape[0])
        return {
            "trace": own,
            "trace_error": error,
            "trace_error_interval": [least if error < 0 else max(least, 0.0), most],
            "pair_error": sampled.value,
            "pair_error_interval": [sampled.low, sampled.high],
            "sample_rows": len(raw),
        }

    def _warn(self, run: Run, facts: Mapping[str, Any], landmarks: int) -> None:
        asked = self.parameters
        if landmarks < asked.rank:
            run.warnings.append(
                f"{landmarks} landmarks tell all similarities: there are as many features, fewer than the "
                f"{asked.rank} asked for"
            )
        if facts["negative_eigenvalues"]:
            run.warnings.append(
                f"the kernel {asked.choice.kernel} is not positive here: similarities of landmarks have "
                f"{facts['negative_eigenvalues']} negative eigenvalues, whose directions are left out"
            )
        if facts["trace_error"] < 0:
            run.warnings.append(
                f"the kernel {asked.choice.kernel} is not positive here: features tell "
                f"{-facts['trace_error']:.2g} of the trace of similarities more than there is"
            )


def _imagined(rank: int, columns: int) -> State:
    """Pivots and their inverse factor, of the largest sizes, for a plan; memory that is never touched."""
    return {"pivots": np.empty((rank, columns)), "inverse": np.empty((rank, rank))}


def normalize(
    landmarks: Float64, asked: NystroemRequest, shift: Float64, name: str
) -> tuple[Float64, dict[str, Any]]:
    """(p, p) inverse square root of the similarities of p landmarks (p, d), and facts on these similarities.

    ``name`` is that of the matrix, for messages. Raises ``DataError`` if similarities are not finite.
    """
    similarity = asked.choice.similarity
    rows = rows_of(landmarks, similarity, shift)
    gram = finite_similarities(rows, rows, similarity, name)
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    largest = max(float(np.abs(values).max()), float(np.finfo(np.float64).tiny))
    kept = values > LEAST * largest
    roots = np.divide(1.0, np.sqrt(np.where(kept, values, 1.0)), out=np.zeros(len(values)), where=kept)
    facts = {
        "landmarks": len(landmarks),
        "directions": int(kept.sum()),
        "negative_eigenvalues": int((values < -LEAST * len(values) * largest).sum()),
        "condition": largest / float(values[kept].min()) if kept.any() else 1.0,
    }
    return np.asarray((vectors * roots) @ vectors.T), facts


def nystroem_task(x: object, arguments: NystroemArguments) -> Task:
    """Make the task of Nystroem features of a matrix; a chain if landmarks are means of clusters."""
    source = open_source(x)
    asked = NystroemRequest.of(source, arguments)
    task = Nystroem(source, asked)
    if asked.landmarks != "kmeans":
        return task
    clusters = KMEANS.task(source, k=asked.rank, passes=CLUSTER_PASSES, seed=asked.seed, n_init=1)
    return Chain(task.request(), (Link("landmarks", clusters), Link("features", task, task.when_made)))


SAMPLE_ROWS = 256
"""Largest number of rows sampled, all pairs of which are compared with products of features."""

WIDTH = 1.96
"""Half the width of an interval in standard errors, so that it holds the truth in 95 of 100 samples."""


class SampledError(NamedTuple):
    """Root of the summed squares of errors on pairs over those of similarities, and its 95 % interval."""

    value: float
    low: float
    high: float


def sampled_error(similarities: Float64, products: Float64, rows: int) -> SampledError:
    """Error from (s, s) similarities of sampled rows, and (s, s) products of their features.

    ``rows`` is the number of rows that were sampled from.

    References
    ----------
    Efron, Stein, The jackknife estimate of variance, Annals of Statistics 9, 1981: each row is left out in
    turn, with all its pairs; and corrected for the share of rows that is sampled.
    """
    count = len(similarities)
    errors, sizes = np.square(similarities - products), np.square(similarities)
    for squares in (errors, sizes):
        np.fill_diagonal(squares, 0.0)
    errors, sizes = errors.sum(axis=1), sizes.sum(axis=1)
    total, size = float(errors.sum()), float(sizes.sum())
    if not size > 0:
        return SampledError(0.0, 0.0, 0.0)
    without = (total - 2 * errors) / np.maximum(size - 2 * sizes, np.finfo(np.float64).tiny)
    spread = (count - 1) / count * np.square(without - without.mean()).sum() * (1 - count / rows)
    ratio, width = total / size, WIDTH * float(np.sqrt(spread))
    return SampledError(*(float(np.sqrt(max(each, 0.0))) for each in (ratio, ratio - width, ratio + width)))
