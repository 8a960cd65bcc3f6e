"""Nonnegative matrix factorization in a few reads: solved on a compressed copy first, then on the matrix.

One fused pass finds columns that capture nearly all of the matrix and leaves them on scratch. Descent on
these costs no reads. The result is refined by iterations over the matrix itself, each of which reads it once,
until the error stops falling.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rankfold.methods.nmf.alternation import (
    Alternation,
    Factors,
    Frobenius,
    KullbackLeibler,
    Model,
    StepError,
)
from rankfold.methods.nmf.in_memory import FrobeniusInMemory, stays, whole_read
from rankfold.methods.nmf.passes.choice import divergence_pass, nonnegative_pass
from rankfold.methods.nmf.passes.frobenius import NmfIteration
from rankfold.methods.nmf.passes.sparse import DivergenceIteration
from rankfold.methods.nmf.request import CustomStart, FactorRequest, digest
from rankfold.methods.nmf.start import (
    SMALL_BYTES,
    SWEEPS,
    FactorStart,
    compress,
    compressed_pass,
    factorize_compressed,
    random_short,
    replace_zero_components,
    require_range,
    sample_row_count,
    sampled_short,
    signs_pass,
    singular_short,
)
from rankfold.methods.parts.combination import Combination, WriteRows
from rankfold.methods.parts.outputs import write_outputs
from rankfold.methods.svd.long_factor import OnScratch, create_long_array, write_combination
from rankfold.methods.svd.operator import begin
from rankfold.methods.svd.orientation import orientation_of
from rankfold.methods.svd.plan import sweeps_of
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.strategy import Strategy, choose_strategy
from rankfold.methods.task import Output, count
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.fold import DeclaredFold
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import (
    PanelSweeps,
    TaskFacts,
    cut_store,
    plan_task,
    smaller_argument,
)
from rankfold.pipeline.planning.shape_only import ShapeOnly
from rankfold.pipeline.planning.traffic import panel_traffic
from rankfold.pipeline.storage.scratch import NOWHERE

Float64 = npt.NDArray[np.float64]

LEAST_DIRECTIONS = 64
"""Least number of columns of the compressed matrix; two for each component if that is more."""

LIKELY_ITERATIONS = {"mu": 20}
"""Number of reads of the matrix that usually reach the tolerance, by solver; three for the others."""

LIKELY_COMPRESSED_ITERATIONS = 15
"""Usual number of iterations on the compressed matrix."""


SUMS = ("W_gram", "W_product")
"""Names of the arrays ``W' W`` and ``W' X``, which results that are to grow have in addition."""


@dataclass(frozen=True, slots=True)
class Nonnegative:
    """Task of a nonnegative factorization: a matrix and the parameters of its factors."""

    source: Source
    parameters: FactorRequest
    """Parameters with every open choice resolved."""

    custom: Float64 | None = None
    """(k, short) starting factor of the short side, for the orientation in which a CPU sweeps the matrix."""

    both: CustomStart | None = None
    """Factors W and H of the caller to start from; None for other starts."""

    @classmethod
    def of(cls, source: Source, parameters: FactorRequest, custom: CustomStart | None = None) -> Nonnegative:
        """Check arguments and make the task; raises ``InputError``."""
        parameters.check()
        parameters = parameters.resolve()
        if parameters.init == "custom" and custom is None:
            raise InputError("init custom has no name: give the factors, init=(W, H), or a result of nmf")
        if custom is None:
            return cls(source, parameters)
        orientation = orientation_of(compression_of(parameters, source), source)
        short = custom.short(source.shape, parameters.rank, by_rows=orientation is Orientation.ROWS)
        return cls(source, parameters, short, custom)

    def request(self) -> dict[str, Any]:
        """Parameters of the factorization, and a hash of the starting factor, as a dictionary."""
        return {**self.parameters.as_dict(), "start": digest(self.custom)}

    def outputs(self) -> tuple[Output, ...]:
        """Names, shapes, types and numbers of chunks of the results W (m, k) and H (k, n)."""
        layout, rank, (rows, columns) = self._layout("cpu"), self.parameters.rank, self.source.shape
        by_rows, long = layout.view.orientation is Orientation.ROWS, layout.view.long
        chunks = count(long, min(layout.out_chunk, long))
        w = Output("W", (rows, rank), layout.view.dtype, chunks if by_rows else 1)
        return w, Output("H", (rank, columns), layout.view.dtype, 1 if by_rows else chunks)

    def _layout(self, device: str) -> Strategy:
        return choose_strategy(compression_of(self.parameters, self.source), self.source, device)

    def plan(self, budget: Budget) -> Plan:
        """Plan the compressing passes and the iterations."""
        layout, parameters = self._layout(budget.device), self.parameters
        model = Model(parameters, layout.view, 1.0)
        factor, item = model.factor(NOWHERE, 0).nbytes, layout.view.dtype.itemsize
        task_facts = TaskFacts(
            kind="nmf",
            method=parameters.solver,
            source=self.source,
            dtype=layout.view.dtype,
            orientation=layout.view.orientation,
            rank=parameters.rank,
            result_bytes=sum(self.source.shape) * parameters.rank * item,
            scratch_bytes=layout.view.long * (layout.width * item + 16) + 2 * factor,
            width=layout.width,
            decided_by="how fast the error falls",
            subject=f"nmf of this {self.source.shape[0]} x {self.source.shape[1]} matrix",
        )
        plan = plan_task(
            task_facts,
            self._sweeps(layout, model),
            budget,
            lambda: self._way_out(layout, budget),
            lambda: self._smaller(budget),
        )
        # Iterations differ in name only: a single one was planned to fit memory, and is repeated here.
        matrix = [sweep for sweep in plan.passes if sweep.over == "matrix"]
        compressing, iterations = matrix[:-1], matrix[-1:]
        likely = LIKELY_ITERATIONS.get(parameters.solver, 3)
        if not stays(layout, parameters):
            numbers = range(len(compressing) + 1, parameters.passes + 1)
            iterations = [dataclasses.replace(matrix[-1], name=f"iteration-{i:02d}") for i in numbers]
        most = len(compressing) + len(iterations)
        return dataclasses.replace(
            plan,
            passes=(*compressing, *self._likely_beside(layout, model), *iterations),
            most_passes=most,
            likely_passes=min(most, len(compressing) + likely),
            traffic=panel_traffic(layout.view.long, layout.view.short, parameters.rank, budget.workers),
        )

    def _planned(self, device: str) -> PanelSweeps:
        layout = self._layout(device)
        return self._sweeps(layout, Model(self.parameters, layout.view, 1.0))

    def _with(self, **changes: Any) -> Self:
        """A copy of the task with some parameters changed."""
        return dataclasses.replace(self, parameters=dataclasses.replace(self.parameters, **changes))

    def _with_small_chunks(self) -> Self:
        """A copy of the task for a store with small chunks, to plan with."""
        return dataclasses.replace(self, source=ShapeOnly.plain(self.source.shape, self.source.dtype))

    def _smaller(self, budget: Budget) -> str:
        """Text that suggests a rank that fits; empty if the caller gives starting factors, which fix it."""
        if self.custom is not None:
            return ""
        device = budget.device
        return smaller_argument(
            "rank", self.parameters.rank, lambda rank: self._with(rank=rank)._planned(device), budget
        )

    def _cut(self, layout: Strategy) -> Cut:
        """Cut of the matrix into panels (rows read at a time)."""
        return layout.cut

    def _way_out(self, layout: Strategy, budget: Budget) -> str:
        """Text, beginning with ", or", that suggests smaller chunks of the store if those would fit; may be
        empty."""
        cut = self._cut(layout)
        if cut.panel_rows <= 2 * cut.grain_rows:
            return ""
        what = f"make panels of {cut.panel_rows} {layout.view.orientation.value}"
        return cut_store(what, self._with_small_chunks()._planned(budget.device), budget)

    def _sweeps(self, layout: Strategy, model: Model) -> PanelSweeps:
        """Sweeps whose memory has to fit: the compressing pass, one iteration, and sweeps over scratch."""
        short, rank = layout.view.short, self.parameters.rank
        first = (
            sweeps_of(compression_of(self.parameters, self.source), layout)
            if self.parameters.compressing
            else None
        )
        driver = max(_driver_bytes(layout, model), 0 if first is None else first.driver_bytes)

        def sweeps(slots: int) -> list[Pass]:
            before = [] if first is None else first.sweeps_of(slots)
            each = self._iteration(layout, model, slots)
            # Short factors, new and old, and the sums from which they are solved.
            each = dataclasses.replace(each, resident_bytes=4 * 8 * short * rank)
            if stays(layout, self.parameters):
                iterations = min(self.parameters.passes, LIKELY_ITERATIONS.get(self.parameters.solver, 3))
                each = whole_read(layout, rank, iterations)
            return [*before, each, *self._sweeps_beside(layout, model)]

        sums = max(8 * short * rank, 0 if first is None else first.accumulator_bytes)
        return PanelSweeps(sweeps, layout.cut, driver, sums)

    def _sweeps_beside(self, layout: Strategy, model: Model) -> list[Pass]:
        """Sweeps over scratch: the one that writes the long factor, then one over the compressed matrix."""
        folds: list[Any] = [_writing(layout, model)]
        y = layout.y(NOWHERE, 1, layout.width)
        if self.parameters.init == "compressed":
            folds.append(compressed_pass(y, model, NOWHERE, NOWHERE, 1))
        elif self.parameters.init == "nndsvd":
            folds.append(signs_pass(y, self.parameters.rank, NOWHERE))
        beside = 8 * layout.view.short * (self.parameters.rank + layout.width)
        sweeps = [numbers_of("scratch", fold, 0, 0, 0.0, over="scratch") for fold in folds]
        return [dataclasses.replace(sweep, resident_bytes=beside) for sweep in sweeps]

    def _likely_beside(self, layout: Strategy, model: Model) -> list[Pass]:
        """Iterations on the compressed matrix, as one sweep over scratch, to estimate their time."""
        y, rank = layout.y(NOWHERE, 1, layout.width), self.parameters.rank
        count = LIKELY_COMPRESSED_ITERATIONS
        if self.parameters.init != "compressed":
            return []
        flops = 2.0 * count * y.rows * rank * (2 * y.columns + (SWEEPS + 1) * rank)
        if y.rows * y.columns * 8 <= SMALL_BYTES:  # they run in memory, on one thread
            return [
                Pass("compressed-all", "scratch", y.nbytes, 0, flops, segment_bytes=0, tasks=0, streams=1)
            ]
        fold, factor = compressed_pass(y, model, NOWHERE, NOWHERE, 1), model.factor(NOWHERE, 0).nbytes
        bytes_ = count * (y.nbytes + factor), count * factor
        one = numbers_of("compressed-all", fold, *bytes_, flops, over="scratch")
        return [dataclasses.replace(one, tasks=count * one.tasks)]

    def _iteration(self, layout: Strategy, model: Model, slots: int) -> Pass:
        """Planned bytes and operations of one iteration over the matrix, with ``slots`` panel buffers."""
        flops = (
            (4.0 if self.parameters.loss == "frobenius" else 14.0) * layout.numbers * model.parameters.rank
        )
        fold, factor = self._fold(layout, model, slots), model.factor(NOWHERE, 0).nbytes
        return numbers_of("iteration", fold, layout.read_bytes, factor, flops)

    def _fold(self, layout: Strategy, model: Model, slots: int) -> DeclaredFold:
        """Fold of one iteration over the matrix, with the options that take most memory."""
        before, after = model.factor(NOWHERE, 0), model.factor(NOWHERE, 1)
        panels, seconds = layout.panels(slots), layout.row_seconds(4 * self.parameters.rank)
        if self.parameters.loss != "frobenius":
            update = DivergenceIteration(NOWHERE, before, after)
            return divergence_pass(layout, panels, update, seconds, first_pass=True)
        residual = not layout.fullest or layout.view.dtype != np.float64
        iteration = NmfIteration(NOWHERE, before, after, model.solvers()[0], residual=residual)
        return nonnegative_pass(layout, panels, iteration, seconds, first_pass=True)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Find a start, iterate, and write the factors; returns the facts of the result."""
        with one_blas_thread():
            layout = self._layout(run.device)
            start, model = self._begin(run, layout)
            fit = self._iterate(run, layout, model, start)
            facts = self._write(run, layout, model, fit, fingerprint)
            run.describe(facts)
        return facts

    def _begin(self, run: Run, layout: Strategy) -> tuple[FactorStart, Model]:
        centering, start = begin(run, layout, compression_of(self.parameters, self.source))
        model, init = Model(self.parameters, layout.view, centering.pow2_scale), self.parameters.init
        require_range(model)
        if self.both is not None:
            short = self.both.short(self.source.shape, self.parameters.rank, by_rows=model.by_rows)
        elif init == "random":
            short = random_short(model)
        elif init == "rows":
            short = sampled_short(layout, model)
        else:
            compressed = compress(run, layout, model, centering, start)
            if init == "compressed":
                return factorize_compressed(compressed, run, model), model
            short = singular_short(compressed, run, layout, model)
        # Starting factors of a caller may leave a small residual: it is computed explicitly at once.
        if self.both is not None:
            return FactorStart(Factors(model.round_to_type(short)), error=0.0), model
        return FactorStart(Factors(model.round_to_type(replace_zero_components(short, model)))), model

    def _iterate(self, run: Run, layout: Strategy, model: Model, start: FactorStart) -> NmfFit:
        factors, began, parameters = start.factors, time.monotonic(), self.parameters
        if parameters.solver == "mu":
            factors.short = model.fill_zeros(factors.short)
        if parameters.loss != "frobenius":
            factors.remove_long(run)
            factors = dataclasses.replace(factors, long=None, sizes=None)
        alternation = self._alternation(layout, model, start, factors)
        history: list[StepError] = []
        while True:
            history.append(alternation.step(run))
            reason = self._stop_reason(history, time.monotonic() - began)
            if reason:
                sums = alternation.sums if isinstance(alternation, Frobenius) else None
                last = alternation.factors, history, start.iterations, reason, alternation.total
                return NmfFit(*last, sums)

    def _alternation(
        self, layout: Strategy, model: Model, start: FactorStart, factors: Factors
    ) -> Alternation:
        if self.parameters.loss != "frobenius":
            return KullbackLeibler(model, layout, factors)
        kind = FrobeniusInMemory if stays(layout, self.parameters) else Frobenius
        return kind(model, layout, factors, start.total, start.error)

    def _stop_reason(self, history: list[StepError], seconds: float) -> str:
        """Reason to stop after the last of ``history``, ``seconds`` after the first began; empty to go on.

        Each iteration counts as a pass, even on a matrix in memory.
        """
        parameters, last = self.parameters, history[-1]
        if last.cost == 0:
            return "exact"
        if parameters.grad_tol > 0 and last.stationarity <= parameters.grad_tol:
            return "grad_tol"
        if len(history) > 1 and fall(history) < parameters.tol:
            return "tol"
        if parameters.compressing + len(history) >= parameters.passes:
            return "passes"
        return "time_limit" if 0 < parameters.time_limit <= seconds else ""

    def _write(
        self, run: Run, layout: Strategy, model: Model, fit: NmfFit, fingerprint: str
    ) -> dict[str, Any]:
        short, long = ("H", "W") if model.by_rows else ("W", "H")
        scale, factors = _gauge(model, fit.factors), fit.factors
        values = model.without_floor(factors.short) * scale[:, None]
        values = values.astype(layout.view.dtype)
        write_outputs(run.result, {short: values if model.by_rows else np.ascontiguousarray(values.T)})
        rank, inverse = self.parameters.rank, np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
        array = create_long_array(run, layout, long, rank)
        basis, seed = [factors.require_long()[0]], self.parameters.seed
        factor = OnScratch(run, layout, basis, np.zeros(rank), rank, seed)
        combination = factor.combination(np.eye(rank), "factor")
        gram = write_combination(run, layout, combination, np.eye(rank), inverse, array)
        if run.growth is not None and fit.sums is not None:
            write_outputs(run.result, dict(zip(SUMS, fit.sums, strict=True)))
        last = fit.history[-1]
        if fit.stop_reason in ("passes", "time_limit"):
            fell = fall(fit.history) if len(fit.history) > 1 else np.inf
            made = self.parameters.compressing + len(fit.history)
            trend = "may still fall" if np.isinf(fell) else f"still fell by {fell:.1e}"
            run.warnings.append(
                f"the error {trend} after {made} passes, tol = {self.parameters.tol:.1e}: allow more "
                f"with {fit.stop_reason}= (--{fit.stop_reason.replace('_', '-')}), or raise tol"
            )
        return {
            **run.facts(self.request(), self.parameters.solver, self.source, fingerprint),
            "relative_error": last.error,
            "errors": [step.error for step in fit.history],
            "cost": last.cost,
            "stationarity": None if np.isnan(last.stationarity) else last.stationarity,
            "compressed_iterations": fit.compressed_iterations,
            "squared_norm": fit.total,
            "product_norm": float(np.sqrt(max((gram * (factors.short @ factors.short.T)).sum(), 0.0))),
            "stopped": fit.stop_reason,
            "converged": fit.stop_reason in ("exact", "grad_tol", "tol"),
        }


@dataclass(frozen=True, slots=True)
class NmfFit:
    """Factors and the history of the iterations that led to them."""

    factors: Factors
    history: list[StepError]
    """Errors of each iteration over the matrix."""

    compressed_iterations: int
    """Number of iterations on the compressed matrix."""

    stop_reason: str
    """``"exact"`` if the cost is 0, or the argument that ended the iterations: ``"grad_tol"``, ``"tol"``,
    ``"passes"`` or ``"time_limit"``."""

    total: float
    """``|X|^2``, the squared Frobenius norm of the matrix."""

    sums: tuple[Float64, Float64] | None = None
    """``L' L`` (k, k) and ``L' X`` (k, short) of the long factor L; None under a divergence."""


def compression_of(parameters: FactorRequest, source: Source) -> Request:
    """SVD request of the pass that compresses the matrix to more columns than the factors have components.

    Directions that it misses would cost more reads later. If the rank exceeds the number of rows or columns,
    all directions are found.
    """
    rank, seed = min(parameters.rank, *source.shape), parameters.seed
    more = max(rank, LEAST_DIRECTIONS - rank)
    return Request("svd", rank, method="subspace", passes=1, oversampling=more, seed=seed, rows=False)


def fall(history: list[StepError]) -> float:
    """Fall of the cost in the last iteration, relative to the cost after it; needs two iterations."""
    return (history[-2].cost - history[-1].cost) / max(history[-1].cost, 1e-300)


def _gauge(model: Model, factors: Factors) -> Float64:
    """Scales (k,) that components of the short factor are multiplied by, and those of the long one divided.

    If only one factor is penalized, components of the other get unit norm. The scales are ones if both or
    neither are penalized, or under constraints.
    """
    long, short = model.penalties()
    if bool(long) == bool(short) or model.parameters.has_constraints:
        return np.ones(model.parameters.rank)
    if short:
        return np.asarray(np.sqrt(factors.require_long()[1].squares))
    norms = np.linalg.norm(factors.short, axis=1)
    return np.asarray(np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0))


def _writing(layout: Strategy, model: Model) -> WriteRows:
    """Fold that copies the long factor from scratch into the result, to plan with."""
    rank, dtype = model.parameters.rank, layout.view.dtype
    combination = Combination((model.factor(NOWHERE, 0),), NOWHERE, rank, 0, 0)
    cut = layout.narrow_cut(combination, rank)
    seconds = layout.row_seconds(4)
    return WriteRows(combination, cut, NOWHERE, NOWHERE, not model.by_rows, dtype, rank, seconds)


def _driver_bytes(layout: Strategy, model: Model) -> int:
    """Upper bound on the bytes of the leading process: to read a sample, or, if that is more, to solve the
    short factor and iterate on a compressed matrix in memory."""
    rank, view, width = model.parameters.rank, layout.view, layout.width * bool(model.parameters.compressing)
    rows = 0
    if model.parameters.init == "compressed":
        whole = 8 * view.long * layout.width <= SMALL_BYTES
        rows = view.long if whole else min(view.long, sample_row_count(rank))
    sample = layout.sample_bytes + 2 * 8 * layout.sample.rows * view.short * (model.parameters.init == "rows")
    solving = 8 * view.short * (8 * rank + 3 * width) + 8 * rows * (2 * layout.width + 4 * rank)
    return max(sample, solving)
