"""Nonnegative matrix factorization in a few reads: solved on a compressed copy first, then on the matrix.

One fused pass finds columns that hold nearly all of the matrix and leaves them on scratch. Descent there
costs no reads. What it finds is polished by iterations over the matrix itself, each of which reads it once,
until the error falls no more.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from rankfold.methods.nmf.arguments import INITS
from rankfold.methods.nmf.frobenius_pass import NmfIteration, NonnegativePass
from rankfold.methods.nmf.kl_pass import DivergencePass
from rankfold.methods.nmf.request import CustomStart, FactorRequest, digest
from rankfold.methods.nmf.start import (
    SMALL_BYTES,
    SWEEPS,
    Begun,
    compress,
    compressed_pass,
    most_sampled,
    random_short,
    revived,
    sampled_short,
    signs_pass,
    singular_short,
    solved_on,
)
from rankfold.methods.parts.combination import Combination
from rankfold.methods.parts.write_rows import WriteRows
from rankfold.methods.svd.long_factor import OnScratch, create_long_array, write_combination
from rankfold.methods.svd.operator import begin
from rankfold.methods.svd.plan import sweeps_of
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.strategy import Strategy, choose_orientation, choose_strategy
from rankfold.methods.task import Output, count
from rankfold.pipeline.blas import one_blas_thread
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import Outline, PanelSweeps, plan_task
from rankfold.pipeline.planning.traffic import panel_traffic
from rankfold.pipeline.storage.result import write_small

Float64 = npt.NDArray[np.float64]

LEAST_DIRECTIONS = 64
"""Of the compressed matrix; two for each component if that is more."""

LIKELY_ITERATIONS = {"mu": 20}
"""Reads that the tolerance usually takes, by solver; three for the others."""

LIKELY_COMPRESSED = 15
"""Iterations on the compressed matrix that are usual."""

LARGEST_EXPONENT = {4: 80, 8: 500}
"""Of two, in the largest numbers, by item size: times the square root of them these stay in range."""

_NOWHERE = Path("-")


@dataclass(frozen=True, slots=True)
class Nonnegative:
    """A matrix and what is asked of its factors, as ``execution`` takes them."""

    source: Source
    asked: FactorRequest
    """Settled."""

    custom: Float64 | None = None
    """(k, short) the factor of the short side to start from."""

    @classmethod
    def of(cls, source: Source, asked: FactorRequest, custom: CustomStart | None = None) -> Nonnegative:
        """Check that it can be done."""
        asked.check(source.shape, source.name)
        asked = asked.resolved()
        if asked.init == "custom" and custom is None:
            raise InputError("init custom has no name: give the factors, init=(W, H), or a result of nmf")
        by_rows = choose_orientation(source, asked.rank) is Orientation.ROWS
        short = None if custom is None else custom.short(source.shape, asked.rank, by_rows=by_rows)
        return cls(source, asked, short)

    def request(self) -> dict[str, Any]:
        """See the protocol."""
        return {**self.asked.as_dict(), "start": digest(self.custom)}

    def _compression(self) -> Request:
        """The pass that compresses the matrix: what it misses takes reads to find, so its block is wide."""
        rank = self.asked.rank
        more, seed = max(rank, LEAST_DIRECTIONS - rank), self.asked.seed
        return Request("svd", rank, method="subspace", passes=1, oversampling=more, seed=seed, rows=False)

    def outputs(self) -> tuple[Output, ...]:
        """See the protocol."""
        layout, rank, (rows, columns) = self._layout(), self.asked.rank, self.source.shape
        by_rows, long = layout.view.orientation is Orientation.ROWS, layout.view.long
        chunks = count(long, min(layout.out_chunk, long))
        w = Output("W", (rows, rank), layout.view.dtype, chunks if by_rows else 1)
        return w, Output("H", (rank, columns), layout.view.dtype, 1 if by_rows else chunks)

    def _layout(self) -> Strategy:
        return choose_strategy(self._compression(), self.source)

    def plan(self, budget: Budget) -> Plan:
        """See the protocol."""
        layout, asked = self._layout(), self.asked
        model = Model(asked, layout.view, 1.0)
        factor, item = model.factor(_NOWHERE, 0).nbytes, layout.view.dtype.itemsize
        outline = Outline(
            kind="nmf",
            method=asked.solver,
            source=self.source,
            dtype=layout.view.dtype,
            orientation=layout.view.orientation,
            rank=asked.rank,
            result_bytes=sum(self.source.shape) * asked.rank * item,
            scratch_bytes=layout.view.long * (layout.width * item + 16) + 2 * factor,
            width=layout.width,
            decided_by="how fast the error falls",
            subject=f"nmf of this {self.source.shape[0]} x {self.source.shape[1]} matrix",
        )
        made = plan_task(outline, self._sweeps(layout, model), budget, lambda: ", or a lower --rank")
        # Iterations differ in name alone, and one stood for all of them while memory was shared out.
        matrix = [sweep for sweep in made.passes if sweep.over == "matrix"]
        compressing, each = matrix[:-1], matrix[-1]
        numbers = range(len(compressing) + 1, asked.passes + 1)
        iterations = (dataclasses.replace(each, name=f"iteration-{i:02d}") for i in numbers)
        return dataclasses.replace(
            made,
            passes=(*compressing, *self._likely_beside(layout, model), *iterations),
            most_passes=asked.passes,
            likely_passes=min(asked.passes, len(compressing) + LIKELY_ITERATIONS.get(asked.solver, 3)),
            traffic=panel_traffic(layout.view.long, layout.view.short, asked.rank, budget.workers),
        )

    def _sweeps(self, layout: Strategy, model: Model) -> PanelSweeps:
        """The pass that compresses, sweeps over scratch to find directions by, one iteration, the rest."""
        short, rank = layout.view.short, self.asked.rank
        first = sweeps_of(self._compression(), layout) if self.asked.compressing else None
        driver = max(_driver_bytes(layout, model), 0 if first is None else first.driver_bytes)
        elements = layout.view.long * short

        def sweeps(slots: int) -> list[Pass]:
            fold = self._fold(layout, model, slots)
            flops = (14.0 if isinstance(fold, DivergencePass) else 4.0) * elements * rank
            factor = model.factor(_NOWHERE, 0).nbytes
            each = numbers_of("iteration", fold, elements * self.source.dtype.itemsize, factor, flops)
            # Factors of the short side, as they are and as they were, and what they are solved from.
            each = dataclasses.replace(each, resident_bytes=4 * 8 * short * rank)
            before = [] if first is None else first.sweeps_of(slots)
            return [*before, each, *self._sweeps_beside(layout, model)]

        sums = max(8 * short * rank, 0 if first is None else first.accumulator_bytes)
        return PanelSweeps(sweeps, layout.cut, driver, sums)

    def _sweeps_beside(self, layout: Strategy, model: Model) -> list[Pass]:
        """Those over scratch: of the compressed matrix, and the one that writes the long factor."""
        folds: list[Any] = [_writing(layout, model)]
        y = layout.y(_NOWHERE, 1, layout.width)
        if self.asked.init == "compressed":
            folds.append(compressed_pass(y, model, _NOWHERE, _NOWHERE, 1))
        elif self.asked.init == "nndsvd":
            folds.append(signs_pass(y, self.asked.rank, _NOWHERE))
        beside = 8 * layout.view.short * (self.asked.rank + layout.width)
        sweeps = [numbers_of("scratch", fold, 0, 0, 0.0, over="scratch") for fold in folds]
        return [dataclasses.replace(sweep, resident_bytes=beside) for sweep in sweeps]

    def _likely_beside(self, layout: Strategy, model: Model) -> list[Pass]:
        """Iterations on the compressed matrix, as one sweep over scratch: for the time that they take."""
        y, rank, count = layout.y(_NOWHERE, 1, layout.width), self.asked.rank, LIKELY_COMPRESSED
        if self.asked.init != "compressed":
            return []
        flops = 2.0 * count * y.rows * rank * (2 * y.columns + (SWEEPS + 1) * rank)
        if y.rows * y.columns * 8 <= SMALL_BYTES:  # they are made in memory, by one thread
            return [
                Pass("compressed-all", "scratch", y.nbytes, 0, flops, segment_bytes=0, tasks=0, streams=1)
            ]
        fold, factor = compressed_pass(y, model, _NOWHERE, _NOWHERE, 1), model.factor(_NOWHERE, 0).nbytes
        bytes_ = count * (y.nbytes + factor), count * factor
        one = numbers_of("compressed-all", fold, *bytes_, flops, over="scratch")
        return [dataclasses.replace(one, tasks=count * one.tasks)]

    def _fold(self, layout: Strategy, model: Model, slots: int) -> NonnegativePass | DivergencePass:
        """The one that iterates over the matrix, in its largest form."""
        before, after = model.factor(_NOWHERE, 0), model.factor(_NOWHERE, 1)
        panels, seconds = layout.panels(slots), layout.row_seconds(4 * self.asked.rank)
        if self.asked.loss != "frobenius":
            return DivergencePass(panels, _NOWHERE, before, after, True, seconds)
        iteration = NmfIteration(_NOWHERE, before, after, model.solvers()[0], residual=True)
        return NonnegativePass(panels, iteration, True, seconds)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """See the protocol."""
        with one_blas_thread():
            layout = self._layout()
            begun, model = self._begin(run, layout)
            found = self._iterate(run, layout, model, begun)
            facts = self._write(run, layout, model, found, fingerprint)
            run.describe(facts)
        return facts

    def _begin(self, run: Run, layout: Strategy) -> tuple[Begun, Model]:
        centering, start = begin(run, layout, self._compression())
        model, init = Model(self.asked, layout.view, centering.pow2_scale), self.asked.init
        refuse_size(model)
        if self.custom is not None:
            short = self.custom
        elif init == "random":
            short = random_short(model)
        elif init == "rows":
            short = sampled_short(layout, model)
        else:
            compressed = compress(run, layout, model, centering, start)
            if init == "compressed":
                return solved_on(compressed, run, model), model
            short = singular_short(compressed, run, layout, model)
        # From factors that a caller gives little may be left: it is formed at once.
        if self.custom is not None:
            return Begun(Factors(model.rounded(short)), error=0.0), model
        return Begun(Factors(model.rounded(revived(short, model)))), model

    def _iterate(self, run: Run, layout: Strategy, model: Model, begun: Begun) -> NmfFit:
        factors, began, asked = begun.factors, time.monotonic(), self.asked
        if asked.solver == "mu":
            factors.short = model.filled(factors.short)
        alternation: Alternation
        if asked.loss == "frobenius":
            alternation = Frobenius(model, layout, factors, begun.total, begun.error)
        else:
            factors.remove_long(run)
            alternation = KullbackLeibler(model, layout, dataclasses.replace(factors, long=None, sizes=None))
        history: list[StepError] = []
        while True:
            history.append(alternation.step(run))
            stopped = self._stopped(history, run.passes, time.monotonic() - began)
            if stopped:
                return NmfFit(alternation.factors, history, begun.iterations, stopped, alternation.total)

    def _stopped(self, history: list[StepError], passes: int, seconds: float) -> str:
        """Why iterations end, or nothing."""
        asked, left = self.asked, history[-1]
        if left.cost == 0:
            return "exact"
        if asked.grad_tol > 0 and left.stationarity <= asked.grad_tol:
            return "grad_tol"
        if len(history) > 1 and fall(history) < asked.tol:
            return "tol"
        if passes >= asked.passes:
            return "passes"
        return "time_limit" if 0 < asked.time_limit <= seconds else ""

    def _write(
        self, run: Run, layout: Strategy, model: Model, found: NmfFit, fingerprint: str
    ) -> dict[str, Any]:
        short, long = ("H", "W") if model.by_rows else ("W", "H")
        scale, factors = _gauge(model, found.factors), found.factors
        values = model.without_floor(factors.short) * scale[:, None]
        values = values.astype(layout.view.dtype)
        write_small(run.result, {short: values if model.by_rows else np.ascontiguousarray(values.T)})
        rank, inverse = self.asked.rank, np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
        array = create_long_array(run, layout, long, rank)
        factor = OnScratch(run, layout, [factors.standing()[0]], np.zeros(rank), rank, self.asked.seed)
        combination = factor.combination(np.eye(rank), "factor")
        gram = write_combination(run, layout, combination, np.eye(rank), inverse, array)
        last = found.history[-1]
        if found.stopped in ("passes", "time_limit"):
            fell = fall(found.history) if len(found.history) > 1 else np.inf
            told = "may still fall" if np.isinf(fell) else f"still fell by {fell:.1e}"
            run.warnings.append(
                f"the error {told} after {run.passes} passes, tol = {self.asked.tol:.1e}: allow more with "
                f"{found.stopped}= (--{found.stopped.replace('_', '-')}), or raise tol"
            )
        return {
            **run.facts(self.request(), self.asked.solver, self.source, fingerprint),
            "relative_error": last.error,
            "errors": [left.error for left in found.history],
            "cost": last.cost,
            "stationarity": None if np.isnan(last.stationarity) else last.stationarity,
            "compressed_iterations": found.compressed,
            "squared_norm": found.total,
            "product_norm": float(np.sqrt(max((gram * (factors.short @ factors.short.T)).sum(), 0.0))),
            "stopped": found.stopped,
            "converged": found.stopped in ("exact", "grad_tol", "tol"),
        }


@dataclass(frozen=True, slots=True)
class NmfFit:
    """Factors and how they were reached."""

    factors: Factors
    history: list[StepError]
    """After each pass over the matrix that was an iteration."""

    compressed: int
    """Iterations on the compressed matrix."""

    stopped: str
    """``"exact"``, ``"grad_tol"``, ``"tol"``, ``"passes"`` or ``"time_limit"``."""

    total: float
    """``|X|^2``."""


def refuse_size(model: Model) -> None:
    """Raise for a matrix whose products with its factors would leave the range of the working type."""
    dtype, exponent = model.view.dtype, int(-np.log2(model.pow2_scale))
    if abs(exponent) > LARGEST_EXPONENT[dtype.itemsize]:
        size = exponent * np.log10(2)
        raise DataError(
            f"numbers of {model.view.source.name} are near 1e{size:+.0f}: products with them leave the range "
            f"of {dtype}. Store them in other units, 1e{-size:+.0f} times as large, or as float64."
        )


def fall(history: list[StepError]) -> float:
    """Relative fall of the cost in the last pass."""
    return (history[-2].cost - history[-1].cost) / max(history[-1].cost, 1e-300)


def _gauge(model: Model, factors: Factors) -> Float64:
    """What components of the short factor are multiplied by: the one that is not penalized has unit norms."""
    long, short = model.penalties()
    if bool(long) == bool(short) or model.asked.constrained:
        return np.ones(model.asked.rank)
    if short:
        return np.asarray(np.sqrt(factors.standing()[1].squares))
    norms = np.linalg.norm(factors.short, axis=1)
    return np.asarray(np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0))


def _writing(layout: Strategy, model: Model) -> WriteRows:
    """What writes the long factor."""
    rank, dtype = model.asked.rank, layout.view.dtype
    combination = Combination((model.factor(_NOWHERE, 0),), _NOWHERE, rank, 0, 0)
    cut = layout.narrow_cut(combination, rank)
    seconds = layout.row_seconds(4)
    return WriteRows(combination, cut, _NOWHERE, _NOWHERE, not model.by_rows, dtype, rank, seconds)


def _driver_bytes(layout: Strategy, model: Model) -> int:
    """Memory of solving the short factor, and of iterating in memory."""
    rank, view, width = model.asked.rank, layout.view, layout.width * bool(model.asked.compressing)
    rows = 0
    if model.asked.init == "compressed":
        whole = 8 * view.long * layout.width <= SMALL_BYTES
        rows = view.long if whole else min(view.long, most_sampled(rank))
    sample = layout.sample_bytes + 2 * 8 * layout.sample.rows * view.short * (model.asked.init == "rows")
    solving = 8 * view.short * (8 * rank + 3 * width) + 8 * rows * (2 * layout.width + 4 * rank)
    return max(sample, solving)


def nmf_task(x: object, rank: object = None, *, init: object = "auto", **asked: Any) -> Nonnegative:
    """What is to be factorized without negative numbers, checked; arguments of ``rankfold.nmf``."""
    named = isinstance(init, str) and (init in INITS or not Path(init).exists())
    custom = None if named else CustomStart.of(init)
    given = {name.lower(): value for name, value in asked.items()}
    request = FactorRequest.of(rank=rank, init=str(init) if named else "custom", **given)
    return Nonnegative.of(open_source(x), request, custom)
