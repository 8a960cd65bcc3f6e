"""Nonnegative matrix factorisation in a few reads: solved on a compressed copy first, then on the matrix.

Two fused passes find directions that hold nearly all of the matrix and leave its product with them on
scratch. Coordinate descent there costs no reads. What it finds is polished by iterations over the
matrix itself, each of which reads it once, until the error falls no more.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.nonnegative import descend_rows
from rankfold.kernels.normal import gaussian_rows
from rankfold.kernels.orthonormal import orthonormalise
from rankfold.pipeline.blas import one_blas_thread
from rankfold.pipeline.blocks import Grid, cut
from rankfold.pipeline.checkpoint import State, kept
from rankfold.pipeline.errors import InputError, MemoryBudgetError
from rankfold.pipeline.finite import refuse_negative
from rankfold.pipeline.folds.nonnegative_pass import CompressedPass, Iteration, NonnegativePass
from rankfold.pipeline.layout import Layout, lay_out
from rankfold.pipeline.methods.fused import multiply, refuse_overflow
from rankfold.pipeline.methods.long_factor import OnScratch, create_long_array, write_combination
from rankfold.pipeline.methods.reduction import begin
from rankfold.pipeline.narrow import Narrow
from rankfold.pipeline.plan import BLAS_BYTES, RESERVE_BYTES, Plan, make_plan
from rankfold.pipeline.plan_sweeps import numbers_of
from rankfold.pipeline.request import Request
from rankfold.pipeline.result import write_group, write_small
from rankfold.pipeline.run import Run
from rankfold.pipeline.scheduler import Budget
from rankfold.pipeline.source import Source
from rankfold.pipeline.units import format_bytes
from rankfold.pipeline.view import Orientation

Float64 = npt.NDArray[np.float64]

START = 7
"""Purpose key of the random start."""

COMPRESSING = 2
"""Fused passes before the first iteration over the matrix."""

LEAST_DIRECTIONS = 64
"""Of the compressed matrix; three for each component if that is more."""

SWEEPS = {"matrix": 10, "scratch": 5}
"""Of coordinate descent in each iteration over either: beside the products with the data they cost little."""

COMPRESSED_ITERATIONS = 200
FREE = 50
"""By how much less than ``tol`` the error must fall for iterations that cost no reads to end."""

SMALL_BYTES = 64 * 2**20
"""Of a compressed matrix up to which iterations on it are not spread over tasks."""

_NOWHERE = Path("-")


@dataclass(frozen=True, slots=True)
class Nonnegative:
    """A matrix and what is asked of its factors, as ``execution`` takes them."""

    source: Source
    rank: int
    tol: float
    """Relative fall of the error in a pass below which passes end."""

    passes: int
    seed: int

    @classmethod
    def of(cls, source: Source, *, rank: int, tol: float, passes: int, seed: int) -> Nonnegative:
        """Check that it can be done."""
        rows, columns = source.shape
        if not 1 <= rank <= min(rows, columns):
            raise InputError(
                f"rank {rank} was asked for, but {source.name} is {rows} x {columns}: ask for 1 to "
                f"{min(rows, columns)}"
            )
        if not 0 < tol < 1:
            raise InputError(f"tol must lie between 0 and 1, not {tol}: it is a relative fall of the error")
        if passes <= COMPRESSING:
            raise InputError(f"nmf takes {COMPRESSING + 1} passes at least, but passes={passes}")
        if not 0 <= seed < 2**64:
            raise InputError(f"seed must lie in 0 .. 2**64 - 1, not {seed}")
        return cls(source, rank, tol, passes, seed)

    def request(self) -> dict[str, Any]:
        """See the protocol."""
        asked = {"rank": self.rank, "tol": self.tol, "passes": self.passes, "seed": self.seed}
        return {"kind": "nmf", **asked}

    def _compression(self) -> Request:
        """The passes that find the directions: noise takes some, and what is missed takes reads to find."""
        more = max(2 * self.rank, LEAST_DIRECTIONS - self.rank)
        fixed = {"method": "subspace", "passes": COMPRESSING, "oversampling": more}
        return Request("svd", self.rank, seed=self.seed, **fixed)  # type: ignore[arg-type]

    def plan(self, budget: Budget) -> Plan:
        """See the protocol."""
        made = make_plan(dataclasses.replace(self._compression(), rows=False), self.source, budget)
        layout = lay_out(self._compression(), self.source)
        one = self._iteration(layout, _NOWHERE, _NOWHERE, 1, "matrix")
        fold = self._pass(layout, made.slots, one, measured=True)
        small = self._compressed(layout, _NOWHERE, None, 1)
        need = max(fold.memory_bytes, small.memory_bytes) + BLAS_BYTES
        concurrency = min(made.concurrency, (budget.memory_bytes - RESERVE_BYTES) // need)
        peak = RESERVE_BYTES + need * max(concurrency, 1)
        if concurrency < 1:
            raise MemoryBudgetError(
                f"nmf of this {' x '.join(map(str, self.source.shape))} matrix needs {format_bytes(peak)} in "
                f"one worker, but --memory gives {format_bytes(budget.memory_bytes)}. Give --memory "
                f"{-(-peak // 2**20)}MiB, or a lower --rank."
            )
        view, rank = layout.view, self.rank
        data = view.long * view.short * view.source.dtype.itemsize
        flops = 4.0 * view.long * view.short * rank
        each = numbers_of("iteration", fold, data, fold.iteration.after.nbytes, flops)
        over_matrix = [sweep for sweep in made.passes if sweep.over == "matrix"]
        return dataclasses.replace(
            made,
            kind="nmf",
            method="hals",
            rank=rank,
            passes=(*over_matrix, *[each] * (self.passes - COMPRESSING)),
            most_passes=self.passes,
            likely_passes=min(self.passes, COMPRESSING + 3),
            concurrency=concurrency,
            peak_bytes=max(made.peak_bytes, peak),
            scratch_bytes=made.scratch_bytes + 2 * fold.iteration.after.nbytes,
            result_bytes=sum(self.source.shape) * rank * view.dtype.itemsize,
        )

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """See the protocol."""
        with one_blas_thread():
            layout = lay_out(self._compression(), self.source)
            found = _Factorisation(self, run, layout).found()
            facts = self._write(run, layout, found, fingerprint)
            write_group(run.result, facts)
        return facts

    def _pass(self, layout: Layout, slots: int, iteration: Iteration, *, measured: bool) -> NonnegativePass:
        return NonnegativePass(layout.panels(slots), iteration, measured, layout.row_seconds(4 * self.rank))

    def _compressed(self, layout: Layout, constants: Path, folder: Path | None, index: int) -> CompressedPass:
        y = layout.y(folder or _NOWHERE, COMPRESSING, layout.width)
        grid = Grid.regular(y.rows, y.rows, splittable=True)
        pieces = cut(grid, y.row_bytes + 4 * 8 * self.rank, 8 * self.rank * (y.columns + self.rank))
        iteration = self._iteration(layout, constants, folder or _NOWHERE, index, "scratch")
        return CompressedPass(y, pieces, iteration, y.row_bytes * 2e-9)

    def _iteration(self, layout: Layout, constants: Path, folder: Path, index: int, over: str) -> Iteration:
        """Number ``index`` of all, from 0."""
        before = self._factor(layout, folder, index - 1) if index else None
        return Iteration(constants, before, self._factor(layout, folder, index), SWEEPS[over])

    def _factor(self, layout: Layout, folder: Path, index: int) -> Narrow:
        return Narrow(folder / f"factor-{index:03d}.bin", layout.view.long, self.rank, layout.view.dtype)

    def _write(self, run: Run, layout: Layout, found: Found, fingerprint: str) -> dict[str, Any]:
        view, by_rows = layout.view, layout.view.orientation is Orientation.ROWS
        short, long = ("H", "W") if by_rows else ("W", "H")
        values = found.short.astype(view.dtype)
        write_small(run.result, {short: values if by_rows else np.ascontiguousarray(values.T)})
        array, same = create_long_array(run, layout, long, self.rank), np.eye(self.rank)
        factor = OnScratch(run, layout, [found.long], np.zeros(self.rank), self.rank, self.seed)
        combination = factor.combination(same, "factor")
        write_combination(run, layout, combination, same, np.ones(self.rank), array)
        if found.stopped == "passes":
            fell = "may still fall" if np.isinf(found.fall) else f"still fell by {found.fall:.1e}"
            run.warnings.append(
                f"the error {fell} after {run.passes} passes, tol = {self.tol:.1e}: allow more with passes= "
                "(--passes), or raise tol"
            )
        return {
            **run.facts(self.request(), "hals", self.source, fingerprint),
            "relative_error": found.errors[-1],
            "errors": found.errors,
            "compressed_iterations": found.compressed,
            "stopped": found.stopped,
            "converged": found.stopped == "tol",
            "squared_norm": found.total,
        }


@dataclass(frozen=True, slots=True)
class Found:
    """Factors and how they were reached."""

    short: Float64
    """(k, short)."""

    long: Narrow
    errors: list[float]
    """Relative error after each pass over the matrix that was an iteration."""

    fall: float
    """Of the error in the last of them, relative."""

    compressed: int
    """Iterations on the compressed matrix."""

    stopped: str
    """``"tol"``, ``"passes"`` or ``"exact"``."""

    total: float


@dataclass(slots=True)
class _Factorisation:
    task: Nonnegative
    run: Run
    layout: Layout
    iterations: int = 0
    short: Float64 = field(default_factory=lambda: np.zeros((0, 0)))
    """(k, short) the short factor as it stands."""

    def found(self) -> Found:
        compressed = self._on_directions(*self._directions())
        errors: list[float] = []
        total = 0.0
        while True:
            state = self._over_matrix(measured=not errors)
            total = total or float(state["squares"][0])
            errors.append(self._improve(state, state["product"], total))
            fall = (errors[-2] - errors[-1]) / max(errors[-1], 1e-300) if len(errors) > 1 else np.inf
            if errors[-1] == 0.0:
                stopped = "exact"
            elif fall < self.task.tol:
                stopped = "tol"
            elif self.run.passes >= self.task.passes:
                stopped = "passes"
            else:
                continue
            long = self.task._factor(self.layout, self.run.scratch, self.iterations - 1)
            return Found(self.short, long, errors, float(fall), compressed, stopped, total)

    def _directions(self) -> tuple[Float64, float, float]:
        """A basis, whose product with the matrix is left on scratch; the sum of its squares; their unit."""
        run, layout = self.run, self.layout
        request = self.task._compression()
        centring, start = begin(run, layout, request)
        q = start.block(layout.view, layout.width, request.seed)
        for index in range(1, COMPRESSING + 1):
            block, _ = multiply(run, layout, centring, start, q, index=index, known=None)
            if index < COMPRESSING:
                q = orthonormalise(block.load("z"))
                block.y.remove()
        return q, float((q * block.load("z")).sum()), centring.unit

    def _on_directions(self, q: Float64, total: float, unit: float) -> int:
        """Iterate on ``X q``, with the short factor's product with q in place of the factor; how often."""
        k = self.task.rank
        self.short = np.abs(gaussian_rows(self.task.seed, START, (0, self.layout.view.short), k)).T.copy()
        last, small = np.inf, self.layout.view.long * self.layout.width * 8 <= SMALL_BYTES
        for count in range(1, COMPRESSED_ITERATIONS + 1):
            constants = self._constants(f"compressed-{count:02d}", (self.short @ q).T)
            fold = self.task._compressed(self.layout, constants, self.run.scratch, self.iterations)
            state = _at_once(fold) if small else self.run.sweep(f"compressed-{count:02d}", fold)
            self.iterations += 1
            error = self._improve(state, state["product"] @ q.T, total)
            if last - error <= self.task.tol / FREE * error:
                break
            last = error
        self.short /= unit
        return count

    def _over_matrix(self, *, measured: bool) -> State:
        name = f"iteration-{self.run.passes + 1:02d}"
        constants = self._constants(name, self.short.T)
        folder = self.run.scratch
        iteration = self.task._iteration(self.layout, constants, folder, self.iterations, "matrix")
        fold = self.task._pass(self.layout, self.run.slots, iteration, measured=measured)
        state = self.run.pass_over_data(name, fold)
        self.iterations += 1
        refuse_overflow(state, self.layout.view, "product")
        refuse_negative(state, self.task.source.name)
        return state

    def _constants(self, name: str, right: Float64) -> Path:
        known = {"right": right, "gram": self.short @ self.short.T}
        return kept(self.run.part(name, "constants.npz"), known)

    def _improve(self, state: State, product: Float64, total: float) -> float:
        """Solve the short factor; the relative error that is left."""
        if self.iterations > 1:
            self.task._factor(self.layout, self.run.scratch, self.iterations - 2).remove()
        turned = np.ascontiguousarray(self.short.T)
        right = np.ascontiguousarray(product.T)
        descend_rows(state["gram"], right, w=turned, sweeps=SWEEPS["matrix"])
        self.short = np.ascontiguousarray(turned.T)
        squares = float(
            (state["gram"] * (self.short @ self.short.T)).sum() - 2 * (self.short * product).sum()
        )
        return float(np.sqrt(max(total + squares, 0.0) / total)) if total > 0 else 0.0


def _at_once(fold: CompressedPass) -> State:
    """A sweep so short that starting its tasks would take longer: here and now, and again after a kill."""
    state = fold.start()
    fold.step(state, fold.workspace(), 0, fold.cut.length, 0)
    return state
