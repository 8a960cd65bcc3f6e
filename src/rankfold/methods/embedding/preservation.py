"""Share of neighbors that two searches among the same rows have in common."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.argument import integer
from rankfold.methods.embedding.arguments import PRESERVATION, PreservationArguments
from rankfold.methods.knn.graph import CHUNK_BYTES
from rankfold.methods.task import Output
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.planning.passes import RESERVE_BYTES, Pass
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, FixedSweeps, TaskFacts, plan_task
from rankfold.pipeline.storage.result import Result

COMPARED_BYTES = 8 * 2**20
"""Bytes of neighbor lists, of both results, that are compared at a time."""


def share_in_common(first: Result, second: Result, k: int) -> tuple[float, float]:
    """Mean share of the first k neighbors of a row that two results of ``knn`` have in common.

    Returns it with its standard error, which takes the rows as a sample of a larger population.

    Notes
    -----
    Lists are read once, some MiB at a time: work m k log k.
    """
    rows = first.indices.shape[0]
    total = squares = 0
    for common in _in_common([first, second], rows, k):
        total += int(common.sum())
        squares += int(np.square(common).sum())
    return share_of(total, squares, rows, k)


def share_of(total: int, squares: int, rows: int, k: int) -> tuple[float, float]:
    """Mean share of common neighbors over ``rows`` rows of k neighbors each, and its standard error.

    ``total`` is the sum over rows of how many of the k neighbors are common, ``squares`` the sum of the
    squares of these counts.
    """
    variance = (rows * squares - total * total) / (rows * max(1, rows - 1))
    return total / (rows * k), math.sqrt(variance / rows) / k


def _in_common(results: list[Result], rows: int, k: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield, some rows at a time, (r,) numbers of the first k neighbors that both results share."""
    height = results[0].indices.shape[1] + results[1].indices.shape[1]
    step = max(1, COMPARED_BYTES // (8 * height))
    for start in range(0, rows, step):
        both = [np.asarray(result.indices[start : start + step])[:, :k] for result in results]
        yield count_common(*both)


def count_common(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """(rows,) number of neighbors that two lists (rows, k) share; none is in a list twice."""
    neighbors = np.sort(np.concatenate([first, second], axis=1), axis=1)
    common: npt.NDArray[np.int64] = (neighbors[:, 1:] == neighbors[:, :-1]).sum(axis=1)
    return common


@dataclass(frozen=True, slots=True)
class Comparison:
    """Task of comparing the first k neighbors of each row in two results of ``knn`` of the same rows."""

    first: Result
    second: Result
    k: int

    @classmethod
    def of(cls, first: Result, second: Result, k: object) -> Comparison:
        """Check the results and make the task, with all neighbors that both have if ``k`` is None.

        Raises ``InputError`` if they cannot be compared.
        """
        for each in (first, second):
            if each.attrs["kind"] not in PRESERVATION.results:
                raise InputError(f"{each.path} is the result of {each.attrs['kind']}: give two of knn")
        (rows, one), (others, two) = (each.matrix("indices").shape for each in (first, second))
        if rows != others:
            raise InputError(
                f"the first result has neighbors of {rows} rows, the second of {others}. Give two of the "
                "same rows, in the same order"
            )
        most = min(one, two)
        count = most if k is None else integer("k", k)
        if not 1 <= count <= most:
            raise InputError(f"k {count} was asked for, but both results have {most}: ask for 1 to {most}")
        return cls(first, second, count)

    @property
    def source(self) -> Source:
        """Row numbers of the neighbors in the first result, (rows, k) or wider."""
        return self.first.matrix("indices")

    @property
    def other(self) -> Source:
        """Row numbers of the neighbors in the second result, (rows, k) or wider."""
        return self.second.matrix("indices")

    def request(self) -> dict[str, Any]:
        """Everything besides the first result that determines the measure, as JSON types."""
        return {"kind": "neighborhood_preservation", "k": self.k, "second": self.other.fingerprint()}

    def outputs(self) -> tuple[Output, ...]:
        """No arrays: the result has only facts."""
        return ()

    def plan(self, budget: Budget) -> Plan:
        """Plan one pass over the neighbor lists of both results."""
        item, rows = self.source.dtype.itemsize, self.source.shape[0]
        reads = item * rows * (self.source.shape[1] + self.other.shape[1])
        memory_bytes = 4 * COMPARED_BYTES + 4 * min(reads, CHUNK_BYTES[1])
        sweep = Pass("compare", "matrix", reads, 0, 20.0 * rows * self.k, memory_bytes, 1, 1)
        fitted = FittedSweeps((sweep,), 1, RESERVE_BYTES + memory_bytes, memory_bytes, 0, 1, rows, rows, 1, 1)
        kind, dtype = "neighborhood_preservation", self.source.dtype
        return plan_task(
            TaskFacts(kind, "exact", self.source, dtype, "rows", self.k, 0), FixedSweeps(fitted), budget
        )

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Compare the neighbor lists; returns the facts (metadata) of the result.

        Among these are ``value``, the mean share in common, and ``standard_error``.
        """
        value, error = share_in_common(self.first, self.second, self.k)
        facts = {
            **run.facts(self.request(), "exact", self.source, fingerprint),
            "passes": 1,
            "value": value,
            "standard_error": error,
        }
        run.describe(facts)
        return facts


def preservation_task(
    first: Result | str | Path, second: Result | str | Path, arguments: PreservationArguments
) -> Comparison:
    """Make the task of ``rankfold.neighborhood_preservation`` for two results of knn or their paths."""
    one, two = (each if isinstance(each, Result) else Result(each) for each in (first, second))
    return Comparison.of(one, two, arguments.k)
