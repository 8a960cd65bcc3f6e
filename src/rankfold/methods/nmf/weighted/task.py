"""Task of a nonnegative factorization with weights or gaps: checked, planned and run.

The start is found without weights, from the matrix with zeros at gaps and at weights of zero. Iterations then
use the weights.

Gaps need dozens of iterations. Alternation in effect fills a gap with the value of the model, and each
iteration thus corrects a share of the error of the start, which comes from zeros in gaps. Therefore
iterations begin on a sample of rows in memory, which costs no read, before any on all rows.
"""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rankfold.kernels.nonnegative.weighted_rows import descend_weighted_rows, pair_count, pair_products
from rankfold.methods.nmf.alternation import SWEEPS, Factors, Model
from rankfold.methods.nmf.nmf import Nonnegative, compression_of
from rankfold.methods.nmf.request import CustomStart, FactorRequest
from rankfold.methods.nmf.row_solvers import FIRST_SWEEPS
from rankfold.methods.nmf.start import FactorStart, remaining_decrease, sample_row_count
from rankfold.methods.nmf.weighted.alternation import (
    WeightedFrobenius,
    WeightedUpdates,
    Weighting,
    improve_weighted_short,
)
from rankfold.methods.nmf.weighted.rows import RowFactors, RowWeightedNonnegative
from rankfold.methods.nmf.weighted.sources import PairedSource, Weights, is_by_rows
from rankfold.methods.svd.strategy import Strategy, choose_strategy
from rankfold.pipeline.data.source import Source, compressed
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError, argument
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import PanelSweeps, fits
from rankfold.pipeline.planning.shape_only import ShapeOnly
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.manifest import require_whole_input
from rankfold.pipeline.storage.scratch import NOWHERE

PASSES = {"hals": 25}
"""Default of the largest number of reads of the matrix, by solver; others have that without weights.
Convergence is slow with gaps."""

LIKELY_ITERATIONS = {"hals": 5, "mu": 15}
"""Number of reads of the matrix that usually reach the tolerance, by solver."""


@dataclass(frozen=True, slots=True)
class WeightedNonnegative(RowWeightedNonnegative):
    """Task of a nonnegative factorization: a matrix, weights of entries, and parameters of the factors."""

    weights: Weights = field(default_factory=Weights)

    @classmethod
    def weigh(
        cls,
        source: Source,
        parameters: FactorRequest,
        custom: CustomStart | None,
        weights: Weights,
        row_weights: RowFactors | None = None,
    ) -> WeightedNonnegative:
        """Check arguments and make the task; raises ``InputError``.

        ``custom`` are factors of the caller to start from, ``weights`` are of entries, with gaps, and
        ``row_weights`` are of rows.
        """
        check_weights(source, parameters, weights)
        most = parameters.passes or PASSES.get(parameters.resolve().solver, 0)
        plain = Nonnegative.of(source, dataclasses.replace(parameters, passes=most), custom)
        task = cls(source, plain.parameters, plain.custom, plain.both, row_weights, weights)
        task.refuse_scattered()
        return task

    def refuse_scattered(self) -> None:
        """Raise ``InputError`` for sparse weights that would be read completely for every panel."""
        view, weights = self._layout("cpu").view, self.weights.source
        if weights is None:
            return
        by_rows = view.orientation is Orientation.ROWS
        if (weights.row_grid if by_rows else weights.column_grid).scattered:
            along, stored = ("rows", "CSR") if by_rows else ("columns", "CSC")
            raise InputError(
                f"weights {weights.name} are sparse and cannot be read by {along}, as {self.source.name} is: "
                f"store them as {stored}, or dense"
            )

    def request(self) -> dict[str, Any]:
        """Parameters, treatment of gaps, and fingerprints of the weights."""
        more: dict[str, Any] = {"missing": "ignore"} if self.weights.ignore else {}
        if self.weights.source is not None:
            more["weights"] = self.weights.fingerprint()
        return {**RowWeightedNonnegative.request(self), **more}

    def _layout(self, device: str) -> Strategy:
        return choose_strategy(
            compression_of(self.parameters, self.source), self.weights.fill(self.scaled), "cpu"
        )

    def plan(self, budget: Budget) -> Plan:
        """Plan as without weights; raises ``InputError`` for a GPU."""
        if budget.device != "cpu":
            raise InputError(
                "nmf with weights or gaps has no code for a GPU: leave out device='gpu' (--device gpu), or "
                "weights and missing"
            )
        plan = Nonnegative.plan(self, budget)
        likely = self.parameters.compressing + LIKELY_ITERATIONS[self.parameters.solver]
        return dataclasses.replace(plan, likely_passes=min(plan.most_passes, likely))

    def _weighting(self, model: Model) -> Weighting:
        return Weighting(self.scaled, self.weights, model)

    def _with_small_chunks(self) -> Self:
        """A copy of the task for a matrix and weights with small chunks, to plan with."""
        weights = self.weights
        if weights.source is not None:
            small = ShapeOnly.plain(weights.source.shape, weights.source.dtype)
            weights = dataclasses.replace(weights, source=small)
        return dataclasses.replace(Nonnegative._with_small_chunks(self), weights=weights)

    def _cut(self, layout: Strategy) -> Cut:
        """Cut into panels (rows read at a time) whose edges cut no chunk of the matrix or of its weights."""
        return self._weighting(Model(self.parameters, layout.view, 1.0)).cut()

    def _way_out(self, layout: Strategy, budget: Budget) -> str:
        way_out = Nonnegative._way_out(self, layout, budget)
        weighting = self._weighting(Model(self.parameters, layout.view, 1.0))
        if weighting.least_squares and fits(self._with(solver="mu")._planned("cpu"), budget):
            way_out += f", or {argument('solver', 'mu')}, which does without sums for each column"
        return way_out

    def _sweeps(self, layout: Strategy, model: Model) -> PanelSweeps:
        plain, weighting = Nonnegative._sweeps(self, layout, model), self._weighting(model)
        driver = max(plain.driver_bytes, weighting.driver_bytes, sample_bytes(weighting))
        sums = max(plain.accumulator_bytes, weighting.accumulator_bytes())
        own = weighting.read_bytes

        def sweeps(slots: int) -> list[Pass]:
            return [
                dataclasses.replace(each, reads_bytes=own) if each.over == "matrix" else each
                for each in plain.sweeps_of(slots)
            ]

        return PanelSweeps(sweeps, weighting.cut(), driver, sums)

    def _iteration(self, layout: Strategy, model: Model, slots: int) -> Pass:
        weighting, factor = self._weighting(model), model.factor(NOWHERE, 0).nbytes
        flops = weighting.number_flops * self.source.shape[0] * self.source.shape[1]
        fold = weighting.largest_fold(slots)
        return numbers_of("iteration", fold, weighting.read_bytes, factor, flops)

    def _begin(self, run: Run, layout: Strategy) -> tuple[FactorStart, Model]:
        if self.weights.source is not None:
            self.weights.source.check()
            require_whole_input(getattr(self.weights.source, "path", None))
        start, model = RowWeightedNonnegative._begin(self, run, layout)
        weighting, factors = self._weighting(model), start.factors
        if self.both is None:
            factors = dataclasses.replace(factors, short=improve_start(weighting, factors.short))
        # The error of the start, with zeros for gaps, does not bound the error of later iterations.
        return dataclasses.replace(start, factors=factors, total=0.0), model

    def _alternation(
        self, layout: Strategy, model: Model, start: FactorStart, factors: Factors
    ) -> WeightedFrobenius | WeightedUpdates:
        weighting = self._weighting(model)
        if weighting.least_squares:
            return WeightedFrobenius(model, layout, factors, weighting=weighting)
        return WeightedUpdates(model, layout, factors, weighting=weighting)


def check_weights(source: Source, parameters: FactorRequest, weights: Weights) -> None:
    """Raise ``InputError`` for weights or gaps that the matrix, solver or parameters do not support."""
    beside = "weights" if weights.source is not None else "missing='ignore'"
    if compressed(source) is not None:
        raise InputError(
            f"{source.name} is sparse, and {beside} is for dense matrices: what it does not store counts as "
            "zeros. Leave it out, or store the matrix dense"
        )
    if weights.source is not None and weights.source.shape != source.shape:
        rows, columns = weights.source.shape
        raise InputError(
            f"weights {weights.source.name} are {rows} x {columns}, but {source.name} is {source.shape[0]} x "
            f"{source.shape[1]}: give one weight for each entry"
        )
    solver = parameters.resolve().solver
    if parameters.has_constraints:
        raise InputError(
            f"constraints take no {beside}: leave out constraint_W and constraint_H, or {beside}"
        )
    if solver not in LIKELY_ITERATIONS:
        raise InputError(f"solver {solver} takes no {beside}: take hals or mu")
    if parameters.grad_tol and solver == "mu":
        raise InputError(f"grad_tol with {beside} is for solver hals: say tol for mu")


Float64 = npt.NDArray[np.float64]

LARGEST_SHARE, FEW_ROWS = 8, 1024
"""The sample has at most one in ``LARGEST_SHARE`` of all rows, or ``FEW_ROWS`` rows if that is more."""

LARGEST_BYTES = 2**25
"""Largest number of bytes of the sample in float64."""

LARGEST_SUMS = 2**28
"""Largest number of bytes of Gram matrices of the short side, of which memory holds a few copies."""

FEWEST_ROWS = 8
"""Least number of rows of a sample for each component: fewer do not improve the short factor."""

PLACES = 16
"""Number of runs of rows in a sample, spread evenly along the matrix."""

READS, FLOPS = 2, 2e10
"""Limit on the work of iterations: that of ``READS`` passes over the matrix, or ``FLOPS`` if that is more."""

LEAST_ITERATIONS, MOST_ITERATIONS = 20, 200


def row_count(model: Model) -> int:
    """Number of long rows of the sample that iterations begin on; 0 for none: with penalties, if rows are too
    few, or if Gram matrices of the short side are too large."""
    view, rank = model.view, model.parameters.rank
    if any(model.penalties()) or 8 * view.short * pair_count(rank) > LARGEST_SUMS:
        return 0
    most = min(max(view.long // LARGEST_SHARE, FEW_ROWS), view.long, LARGEST_BYTES // (8 * view.short))
    rows = min(sample_row_count(rank), most)
    return 0 if rows < FEWEST_ROWS * rank else rows - rows % PLACES


def sample_bytes(weighting: Weighting) -> int:
    """Bytes for reading a sample, and for iterations on it; 0 if there is none."""
    view, alone, rank = weighting.pair_view, weighting.model.view, weighting.model.parameters.rank
    rows, short, pairs = row_count(weighting.model), alone.short, pair_count(rank)
    if not rows:
        return 0
    each = rows // PLACES
    reading = view.read_bytes(each) + each * view.short * view.source.dtype.itemsize
    sums = 8 * short * (rank + pairs)
    return reading + 8 * rows * (4 * short + 2 * pairs + 8 * rank) + 3 * sums + 8 * short * pairs


def improve_start(weighting: Weighting, short: Float64) -> Float64:
    """Improve a short factor (k, short) by iterations of weighted least squares on a sample of rows, whatever
    the loss.

    Returns a new factor, or ``short`` itself if there is no sample.
    """
    rank, view = len(short), weighting.model.view
    rows = row_count(weighting.model)
    if not rows:
        return short
    x, counts = read_sample(weighting, rows)
    factors, long = Factors(short), np.zeros((rows, rank))
    affordable = max(READS * view.long // rows, int(FLOPS / (4 * rows * view.short * pair_count(rank))))
    most = min(max(LEAST_ITERATIONS, affordable), MOST_ITERATIONS)
    model, costs = weighting.model, list[float]()
    known = counts.any(axis=0)
    while len(costs) < most:
        state = _iterate(x, counts, factors, long, fresh=not costs)
        update = improve_weighted_short(model, factors, state)
        # A column without any weight in the sample may have some in other rows: it keeps its start.
        factors.short = np.where(known, update.short, short)
        total = float(state["squares"][0])
        squares = max(float(state["residual"][0]) + update.change, 0.0)
        costs.append(float(np.sqrt(squares / total)) if total > 0 else 0.0)
        if remaining_decrease(costs) <= model.parameters.tol * costs[-1]:
            break
    return factors.short


def read_sample(weighting: Weighting, rows: int) -> tuple[Float64, Float64]:
    """Read a sample of long rows and their weights, both (rows, short).

    Entries that are missing, not finite, or of a bad weight get weight 0; negative ones are read as 0.
    """
    with ThreadPoolExecutor(1) as thread:  # its end frees the buffers that chunks are decoded in
        return thread.submit(_read, weighting, rows).result()


def _read(weighting: Weighting, rows: int) -> tuple[Float64, Float64]:
    view, alone, each = weighting.pair_view, weighting.model.view, rows // PLACES
    x, counts = np.empty((rows, alone.short)), np.ones((rows, alone.short))
    for i in range(PLACES):
        panel = np.empty(view.panel_shape(each), view.source.dtype)
        start = view.long * i // PLACES
        view.read(panel, start, start + each)
        here = slice(i * each, (i + 1) * each)
        numbers = panel
        if isinstance(view.source, PairedSource):
            numbers, beside = view.source.split(panel)
            counts[here] = beside if is_by_rows(view) else beside.T
        x[here] = numbers if is_by_rows(view) else numbers.T
    # The first pass reports bad entries.
    counts[~(np.isfinite(x) & (counts > 0) & (counts < np.inf))] = 0
    x[counts == 0] = 0
    return np.maximum(x, 0), counts


def _iterate(x: Float64, counts: Float64, factors: Factors, long: Float64, *, fresh: bool) -> State:
    """Improve the long factor ``long`` (rows, k) of a sample in place; return sums as ``WeightedPass.sums``.

    ``x`` and ``counts`` (rows, short) are the rows and their weights. ``fresh`` is True if ``long`` is zero.
    """
    rank, right = len(factors.short), np.ascontiguousarray(factors.short.T)
    pairs = np.empty((len(right), pair_count(rank)))
    pair_products(right, out=pairs)
    weighted, grams = x * counts, counts @ pairs
    descend_weighted_rows(grams, weighted @ right, w=long, sweeps=FIRST_SWEEPS if fresh else SWEEPS)
    pair_products(long, out=grams)
    residual = counts * (x - long @ factors.short) ** 2
    return {
        "grams": grams.T @ counts,
        "product": long.T @ weighted,
        "gram": long.T @ long,
        "sums": long.sum(axis=0),
        "squares": np.array([(weighted * x).sum()]),
        "residual": np.array([residual.sum()]),
    }
