"""Sums of a kernel over all sources, from a request to a result: the task of both methods.

Sources are read once and held in memory. The opening of nodes is chosen from a sample, and stored with the
run. One sweep over targets follows. A sum is a function of the rows, of the weights and of the request alone:
groups of targets are fixed, and each is summed by itself.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import Metric
from rankfold.kernels.sums.laws import Law
from rankfold.kernels.sums.pairs import GROUP
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.parts.square_range import require_squares
from rankfold.methods.random_keys import Purpose
from rankfold.methods.sums.accuracy import SAMPLE, Choice, Sample, bounded_choice, choose, needs_choice
from rankfold.methods.sums.kernels import log_integral
from rankfold.methods.sums.points import TREE_COLUMNS, SourcePoints, require_near
from rankfold.methods.sums.request import SumRequest
from rankfold.methods.sums.sweeps import (
    SumAtSources,
    SumAtTargets,
    SumSweeps,
    rows_cut,
    write_rows,
)
from rankfold.methods.sums.work import Summation, Targets, Way, require_numbers
from rankfold.methods.task import Output
from rankfold.methods.tree.coordinates import PointReader
from rankfold.methods.tree.queries import curve_order
from rankfold.pipeline.data.selection import select
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import TaskFacts, plan_task
from rankfold.pipeline.storage.scratch import NOWHERE, ScratchMatrix

Float64 = npt.NDArray[np.float64]

LIKELY_PAIRS = 4000
"""Pairs summed for a target over a tree, as a plan assumes."""


@dataclass(frozen=True, slots=True)
class KernelSums:
    """Task of a kernel sum or of densities, at the sources themselves or at other targets."""

    source: Source
    targets: Source | None
    weights: Source | None
    parameters: SumRequest

    @property
    def at(self) -> Source:
        """Matrix of the points that get sums: the targets, or else the sources."""
        return self.source if self.targets is None else self.targets

    @property
    def is_density(self) -> bool:
        """True if sums are densities, to which a sample itself also contributes."""
        return self.parameters.kind == "density"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arrays of the result."""
        if self.is_density:
            return ("log_density",)
        return ("sums", "forces") if self.parameters.forces else ("sums",)

    @property
    def summation(self) -> Summation:
        """Kernel to sum, with or without forces."""
        law = self.parameters.law
        return Summation(law, self.parameters.forces, shifted=self.is_density)

    def request(self) -> dict[str, Any]:
        """Everything besides the matrix that decides the sums, for JSON."""
        others = {"targets": self.targets, "weights": self.weights}
        identity = {
            name: None if each is None else [each.fingerprint(), list(each.shape)]
            for name, each in others.items()
        }
        return {**self.parameters.as_dict(), **identity}

    def outputs(self) -> tuple[Output, ...]:
        """Arrays of the result: log densities, or sums and perhaps forces."""
        rows, columns = self.at.shape
        chunks = len(rows_cut(rows).panels) - 1
        shapes = ((rows,), (rows, columns))
        float64 = np.dtype(np.float64)
        return tuple(
            Output(name, shape, float64, chunks) for name, shape in zip(self.names, shapes, strict=False)
        )

    def plan(self, budget: Budget) -> Plan:
        """Plan of a sweep over targets, with all sources in memory."""
        sources, width = self.source.shape[0], self.summation.width(self.source.shape[1])
        by_tree = self.source.shape[1] <= TREE_COLUMNS and self.parameters.tol > 0
        pairs = float(min(sources, LIKELY_PAIRS) if by_tree else sources)
        fold, _ = self._fold(None, Way(), NOWHERE, NOWHERE)
        itself, rows = self.targets is None, self.at.shape[0]
        sweeps = SumSweeps(PointReader(self.source, "euclidean"), fold, pairs, itself)
        outline = TaskFacts(
            kind=self.parameters.kind,
            method="tree" if by_tree else "exact",
            source=self.at,
            dtype=np.dtype(np.float64),
            orientation="points in memory",
            rank=0,
            width=width,
            result_bytes=8 * rows * width,
            scratch_bytes=8 * rows * width if itself else 0,
            subject=f"{self.parameters.kind} of this {sources} x {self.source.shape[1]} matrix, which holds "
            "all points,",
        )
        return plan_task(outline, sweeps, budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Compute and write the sums of all targets; returns the facts (metadata) of the result."""
        reader = PointReader(self.source, "euclidean")
        points = SourcePoints.read(reader, self.weights, without_weightless=self.is_density)
        run.passes += 1
        self._check(points)
        choice = self._choice(run, points)
        fold, into = self._fold(points, choice.way, run.result, run.scratch / "sums.bin")
        rows, columns = self.at.shape
        shapes: tuple[tuple[int, ...], ...] = ((rows,), (rows, columns))
        for name, shape in zip(self.names, shapes, strict=False):
            create_output(run.result, name, shape, np.float64, (fold.cut.panel_rows, columns)[: len(shape)])
        met = run.sweep("sums", fold)["met"]
        if into is not None:
            self._write(run, points, into)
        by_tree = points.sources is not None and not choice.way.is_exact
        facts = run.facts(self.request(), "tree" if by_tree else "exact", self.source, fingerprint)
        facts |= {
            "error": choice.error,
            "error_bound": choice.bound,
            "error_sample": choice.sample,
            "opening": choice.way.opening,
            "order": choice.way.order if by_tree else 0,
            "pairs": int(met[0]),
            "nodes": int(met[1]),
        }
        run.describe(facts)
        return facts

    def _check(self, points: SourcePoints) -> None:
        if self.is_density and not (points.weights.min() >= 0 and points.weights.sum() > 0):
            raise DataError("weights of a density must be at least 0, and one of them above: these are not")
        law = self.parameters.law
        if law.law is Law.INVERSE and law.scale == 0:
            box = np.stack([points.rows.min(axis=0), points.rows.max(axis=0)])
            require_squares(box, Metric.EUCLIDEAN, self.source)

    def _choice(self, run: Run, points: SourcePoints) -> Choice:
        """Choose how to compute sums, or load the choice of an earlier attempt."""
        tol, summation = self.parameters.tol, self.summation
        few = self.targets is not None and self.at.shape[0] <= SAMPLE  # a sample would be all of them
        if few or not needs_choice(summation, points, tol):
            return Choice(Way())
        bounded = bounded_choice(summation, self.at.shape[0], tol)
        if bounded is not None:
            return bounded

        def make() -> dict[str, npt.NDArray[Any]]:
            return choose(summation, points, self._sample(points), tol, run.concurrency).as_state()

        return Choice.from_state(run.prepare(run.part("choice.part"), make))

    def _sample(self, points: SourcePoints) -> Sample:
        """Targets drawn at random: in whole groups as they will be summed, or one by one."""
        rows = self.at.shape[0]
        key = np.array([self.parameters.seed, Purpose.SUM_TARGETS], np.uint64)
        drawn = np.sort(np.random.Generator(np.random.Philox(key=key)).choice(rows, min(SAMPLE, rows), False))
        if self.targets is not None:
            # One by one, far nodes lie nearer to the limit of what is far, so that errors are not smaller.
            some = select(self.targets, rows=drawn, columns=None)
            x = PointReader(some, "euclidean").read(0, len(drawn))
            require_near(x, f"targets {self.targets.name}")
            x = np.ascontiguousarray(x[curve_order(x, np.stack([x.min(axis=0), x.max(axis=0)]))])
            order = np.arange(len(drawn))
            return Sample(Targets.others(x), np.arange(len(drawn) + 1), order, rows)
        groups = np.unique(drawn // GROUP)
        runs = [np.arange(g * GROUP, min((g + 1) * GROUP, rows)) for g in groups.tolist()]
        places = np.concatenate(runs)
        edges = np.cumsum([0, *map(len, runs)])
        targets = Targets.among(points, places, leave_out=not self.is_density)
        return Sample(targets, edges, np.searchsorted(places, drawn), rows)

    def _fold(
        self, points: SourcePoints | None, way: Way, result: Path, scratch: Path
    ) -> tuple[SumAtSources | SumAtTargets, ScratchMatrix | None]:
        """Fold over targets; and, if these are the sources, the scratch matrix for its sums, else None."""
        factor = self.parameters.law.factor
        if self.is_density:
            # In a plan, weights are neither known nor needed.
            total = 1.0 if points is None else float(points.weights.sum())
            integral = log_integral(self.parameters.kernel, self.parameters.length, self.source.shape[1])
            factor = -integral - math.log(total)
        rows, summation = self.at.shape[0], self.summation
        reader = PointReader(self.at, "euclidean")
        common: dict[str, Any] = {
            "cut": rows_cut(rows),
            "summation": summation,
            "points": points,
            "reader": reader,
            "way": way,
            "factor": factor,
        }
        if self.targets is not None:
            return SumAtTargets(**common, result=result, names=self.names), None
        into = ScratchMatrix(scratch, rows, summation.width(reader.columns), np.dtype(np.float64))
        return SumAtSources(**common, into=into, leave_out=not self.is_density), into

    def _write(self, run: Run, points: SourcePoints, into: ScratchMatrix) -> None:
        """Write sums in the order of rows; ``into`` has them on scratch in the order of the tree."""
        in_order = run.load(into)
        places = np.empty(into.rows, np.int64)
        places[points.ids] = np.arange(into.rows)
        for start, stop in itertools.pairwise(rows_cut(into.rows).panels.tolist()):
            values = in_order[places[start:stop]]
            if not self.is_density:
                require_numbers(values, start, self.source.name)
            write_rows(run.result, self.names, values, start)
        run.release(into)
