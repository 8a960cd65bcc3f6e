"""Place new rows in a result by one pass, which compares them with the points of the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankfold.methods.parts.outputs import create_output
from rankfold.methods.registry import METHODS
from rankfold.methods.similarity.features import Points, WriteFeatures, refuse_outside, row_chunk
from rankfold.methods.similarity.request import KernelChoice, check_matrix
from rankfold.methods.task import Output, count
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation, working_dtype
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats.open_like import open_like
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import TaskFacts, one_sweep, plan_task
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.storage.run_directory import digest
from rankfold.pipeline.storage.scratch import NOWHERE


@dataclass(frozen=True, slots=True)
class SimilarRows:
    """Task that computes scores or features of new rows, ``source``, from the points of a result.

    ``kind`` is the method of the result, ``digest`` a hash of its request and input.
    """

    kind: str
    points: Points
    source: Source
    digest: str
    dtype: np.dtype[Any]
    """Type of the array that is written."""

    measure: Callable[[State, Source], dict[str, Any]] | None = None
    """Function that returns further facts, from the sums of the pass and ``source``; None for no more
    facts."""

    @property
    def name(self) -> str:
        """Name of the array that is written: ``"scores"`` or ``"features"``."""
        return METHODS[self.kind].matrices[0]

    @property
    def width(self) -> int:
        """Number of columns of the array that is written."""
        return self.points.coefficients.shape[1]

    def request(self) -> dict[str, Any]:
        """Everything besides the new rows that determines the result, as JSON types."""
        what = {"kind": "transform", "of": self.kind, "rank": self.width, "result": self.digest}
        return {**what, "kernel": self.points.choice.kernel}

    def outputs(self) -> tuple[Output, ...]:
        """Declare the array of the result: scores or features, (rows, width)."""
        rows = self.source.shape[0]
        return (Output(self.name, (rows, self.width), self.dtype, count(rows, self._chunk)),)

    @property
    def _chunk(self) -> int:
        return row_chunk(self.source, self.width, self.dtype.itemsize)

    def fold(self, array: Path, slots: int) -> WriteFeatures:
        """Fold that computes and writes the array at path ``array``, with ``slots`` buffers for panels."""
        return WriteFeatures.of(self.source, self.points, array, self.dtype, slots)

    def plan(self, budget: Budget) -> Plan:
        """Plan the pass over the new rows within a budget."""
        rows = self.source.shape[0]
        writes = rows * self.width * self.dtype.itemsize
        task_facts = TaskFacts(
            "transform",
            "similarities",
            self.source,
            np.dtype(np.float64),
            Orientation.ROWS,
            self.width,
            result_bytes=writes,
        )
        sweep = one_sweep(
            task_facts,
            lambda slots: self.fold(NOWHERE, slots),
            flops=rows * self.fold(NOWHERE, 1).row_flops,
            driver_bytes=0,
            accumulator_bytes=16,
            writes_bytes=writes,
            other_reads_bytes=self.fold(NOWHERE, 1).reads_bytes,
        )
        return plan_task(task_facts, sweep, budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Compute the array in one pass, write it into ``run.result``, and return the facts (metadata)."""
        with one_blas_thread():
            shape, chunks = (self.source.shape[0], self.width), (self._chunk, self.width)
            array = create_output(run.result, self.name, shape, self.dtype, chunks)
            state = run.pass_over_data("transform", self.fold(array, run.slots))
            refuse_outside(state, self.source, self.dtype)
        facts = run.facts(self.request(), "similarities", self.source, fingerprint)
        if self.measure is not None:
            facts |= self.measure(state, self.source)
        run.describe(facts)
        return facts


def similar_rows_task(
    result: Result,
    x: object,
    function: Callable[..., Any] | None,
    points_of: Callable[[Result, KernelChoice], Points],
    *,
    dtype: np.dtype[Any] | None = None,
    measure: Callable[[State, Source], dict[str, Any]] | None = None,
) -> SimilarRows:
    """Check new rows and a result, and make the task.

    Parameters
    ----------
    result, x
        The result, and the new rows.
    function
        Kernel of the caller's own, which a result does not hold; None for one of ours.
    points_of
        Function that reads the points of the result, with which rows are compared, and the coefficients that
        make scores or features.
    dtype, measure
        Fields of the task; by default the working type of the rows, and nothing that is measured.
    """
    source, kind = open_like(x, result, str(result.path)), str(result.attrs["kind"])
    check_matrix(source, "transform")
    points = points_of(result, KernelChoice.from_dict(result.attrs["request"], function))
    columns = points.rows.shape[1]
    if source.shape[1] != columns:
        raise InputError(
            f"{result.path} was fitted to {columns} columns, but {source.name} is {source.shape[0]} x "
            f"{source.shape[1]}. Give samples of the same {columns} columns, in the same order."
        )
    facts = result.attrs
    made_by = digest([facts["request"], facts["input"]["fingerprint"]])
    return SimilarRows(kind, points, source, made_by, dtype or working_dtype(source.dtype), measure)


def imagined_points(choice: KernelChoice, rows: Source, coefficients: Source) -> Points:
    """Points of a result that does not exist yet, for plans.

    ``rows`` (p, d) and ``coefficients`` (p, k) have shapes alone; weights are zeros.
    """
    zeros = np.zeros(coefficients.shape[1])
    return Points(choice, rows, coefficients, zeros, zeros, np.zeros(rows.shape[1]))
