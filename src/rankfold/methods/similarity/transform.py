"""Place new rows in a result of kernel_pca or nystroem: one pass, which compares them with its points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankfold.methods.parts.outputs import create_output
from rankfold.methods.similarity.features import Points, WriteFeatures, refuse_outside, row_chunk, trace_error
from rankfold.methods.similarity.request import KernelChoice, check_matrix
from rankfold.methods.task import Output, count
from rankfold.pipeline.blas import one_blas_thread
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation, working_dtype
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.formats.open_like import open_like
from rankfold.pipeline.planning.imagined_result import ImaginedResult
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import TaskFacts, one_sweep, plan_task
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.storage.run_directory import digest
from rankfold.pipeline.storage.scratch import NOWHERE

OUTPUTS = {"kernel_pca": "scores", "nystroem": "features"}
"""Name of the array that is made for new rows, by method."""


@dataclass(frozen=True, slots=True)
class SimilarRows:
    """Task that computes scores or features of new rows from the points of a result."""

    kind: str
    points: Points
    source: Source
    digest: str

    @property
    def name(self) -> str:
        """Name of the array that is written: ``"scores"`` or ``"features"``."""
        return OUTPUTS[self.kind]

    @property
    def width(self) -> int:
        """Number of columns of the array that is written."""
        return self.points.coefficients.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the array: float64 for scores, the working type of the rows for features."""
        return np.dtype(np.float64) if self.kind == "kernel_pca" else working_dtype(self.source.dtype)

    def request(self) -> dict[str, Any]:
        """Everything besides the new rows that determines the result, for JSON."""
        what = {"kind": "transform", "of": self.kind, "rank": self.width, "result": self.digest}
        return {**what, "kernel": self.points.choice.kernel}

    def outputs(self) -> tuple[Output, ...]:
        """The array of the result: scores or features, (rows, width)."""
        rows = self.source.shape[0]
        return (Output(self.name, (rows, self.width), self.dtype, count(rows, self._chunk)),)

    @property
    def _chunk(self) -> int:
        return row_chunk(self.source, self.width, self.dtype.itemsize)

    def fold(self, array: Path, slots: int) -> WriteFeatures:
        """Fold that computes and writes ``array``, with ``slots`` buffers for rows."""
        return WriteFeatures.of(self.source, self.points, array, self.dtype, slots)

    def plan(self, budget: Budget) -> Plan:
        """Plan the pass over the new rows within a budget."""
        rows = self.source.shape[0]
        writes = rows * self.width * self.dtype.itemsize
        outline = TaskFacts(
            "transform",
            "similarities",
            self.source,
            np.dtype(np.float64),
            Orientation.ROWS,
            self.width,
            result_bytes=writes,
        )
        sweep = one_sweep(
            outline,
            lambda slots: self.fold(NOWHERE, slots),
            flops=rows * self.fold(NOWHERE, 1).row_flops,
            driver_bytes=0,
            accumulator_bytes=16,
            writes_bytes=writes,
            other_reads_bytes=self.fold(NOWHERE, 1).reads_bytes,
        )
        return plan_task(outline, sweep, budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Compute the array in one pass, write it into ``run.result``, and return the facts (metadata)."""
        with one_blas_thread():
            shape, chunks = (self.source.shape[0], self.width), (self._chunk, self.width)
            array = create_output(run.result, self.name, shape, self.dtype, chunks)
            state = run.pass_over_data("transform", self.fold(array, run.slots))
            refuse_outside(state, self.source, self.dtype)
        facts = run.facts(self.request(), "similarities", self.source, fingerprint)
        if self.kind == "nystroem":
            facts["trace_error"] = trace_error(state)
            if not np.isfinite(facts["trace_error"]):
                raise DataError(
                    f"squares of features of {self.source.name} leave the range of floating point: the "
                    "result is damaged, or rows are far from those that it was made of"
                )
        run.describe(facts)
        return facts


def similar_rows_task(result: Result, x: object, function: Callable[..., Any] | None = None) -> SimilarRows:
    """Check new rows and a result, and make the task; ``function`` is a kernel of the caller's own."""
    source, kind = open_like(x, result, str(result.path)), str(result.attrs["kind"])
    check_matrix(source, "transform")
    choice = KernelChoice.from_dict(result.attrs["request"], function)
    points = points_of(result, choice)
    columns = points.rows.shape[1]
    if source.shape[1] != columns:
        raise InputError(
            f"{result.path} was fitted to {columns} columns, but {source.name} is {source.shape[0]} x "
            f"{source.shape[1]}. Give samples of the same {columns} columns, in the same order."
        )
    facts = result.attrs
    made_by = digest([facts["request"], facts["input"]["fingerprint"]])
    return SimilarRows(kind, points, source, made_by)


def points_of(result: Result, choice: KernelChoice) -> Points:
    """Points of a result, with which rows are compared, and the coefficients that make scores or features."""
    if isinstance(result, ImaginedResult):
        return _imagined_points(result, choice)
    result.require_whole()
    shift = np.asarray(result["shift"][...])
    if result.attrs["kind"] == "kernel_pca":
        values = np.asarray(result["eigenvalues"][...])
        weights = np.divide(1.0, values, out=np.zeros(len(values)), where=values > 0)
        offset = np.asarray(result["offset"][...])
        return Points(choice, result.matrix("rows"), result.matrix("scores"), weights, offset, shift)
    normalization = result.matrix("normalization")
    ones = np.ones(normalization.shape[1])
    return Points(choice, result.matrix("points"), normalization, ones, 0 * ones, shift)


def _imagined_points(result: ImaginedResult, choice: KernelChoice) -> Points:
    """Points of a result that does not exist yet, with zeros for weights, for plans."""
    names = ("rows", "scores") if result.attrs["kind"] == "kernel_pca" else ("points", "normalization")
    rows, coefficients = (result.matrix(name) for name in names)
    zeros = np.zeros(coefficients.shape[1])
    return Points(choice, rows, coefficients, zeros, zeros, np.zeros(rows.shape[1]))
