"""Nonnegative factors of a matrix that has gained rows: W of new rows against H, then H against all rows.

H is solved from sums over all rows, ``W' W`` and ``W' X``. The earlier result keeps those of its rows, which
need not be read again; those of new rows come from the one read that solves their W. W of earlier rows stays,
so ``relative_error`` is that of these factors over all rows, and above that of a fit to all rows. Like every
error found as a difference of sums, it is resolved down to the root of eps.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.growth.growth import Step
from rankfold.methods.growth.join_rows import JoinRows, new_rows
from rankfold.methods.nmf.arguments import NmfArguments
from rankfold.methods.nmf.nmf import SUMS, Nonnegative, compression_of
from rankfold.methods.nmf.passes.frobenius import NmfIteration, NonnegativePass
from rankfold.methods.nmf.request import CustomStart, FactorRequest
from rankfold.methods.nmf.row_solvers import Pivoting
from rankfold.methods.parts.outputs import create_output, write_outputs
from rankfold.methods.parts.panels import Panels, refuse_bad, refuse_negative
from rankfold.methods.svd.operator import refuse_overflow
from rankfold.methods.svd.orientation import orientation_of
from rankfold.methods.svd.strategy import matching_chunk
from rankfold.methods.task import Output, Task, count
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.blocks import Cut, cut
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats.zarr.layout import source_at
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import PanelSweeps, TaskFacts, plan_task
from rankfold.pipeline.planning.seconds import NOMINAL_FLOPS, NOMINAL_READ
from rankfold.pipeline.storage.checkpoint import State, save_once
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.storage.scratch import NOWHERE, ScratchMatrix

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FactorGrowth:
    """Task that adds new rows to an earlier nonnegative factorization."""

    whole: Nonnegative
    """The factorization of all rows, as it was asked for: it gives the request and the rank."""

    earlier: Result
    """The nmf result of the first ``old_rows`` rows of the matrix."""

    part: Source
    """The matrix of new rows."""

    old_rows: int
    """Number of rows that have W in the earlier result."""

    @property
    def source(self) -> Source:
        """The matrix of all rows."""
        return self.whole.source

    @property
    def view(self) -> View:
        """View of the new rows, swept along the rows even if they are fewer than the columns."""
        return View(self.part, Orientation.ROWS)

    @property
    def rank(self) -> int:
        """Number of components."""
        return self.whole.parameters.rank

    def request(self) -> dict[str, Any]:
        """The request of the factorization of all rows, as JSON types."""
        return self.whole.request()

    def outputs(self) -> tuple[Output, ...]:
        """Arrays of the result: ``W`` (rows, k), ``H`` (k, columns), and two sums over all rows.

        The sums ``W'W`` (k, k) and ``W'X`` (k, columns) are what a later growth starts from.
        """
        (rows, columns), k, dtype = self.source.shape, self.rank, self.view.dtype
        wide = np.dtype(np.float64)
        w = Output("W", (rows, k), dtype, count(rows, self._rows_cut.panel_rows))
        sums = Output(SUMS[0], (k, k), wide), Output(SUMS[1], (k, columns), wide)
        return (w, Output("H", (k, columns), dtype), *sums)

    # Plan -----------------------------------------------------------------------------------------

    def plan(self, budget: Budget) -> Plan:
        """Plan of one pass over the new rows, and of a sweep that joins old and new rows of W."""
        (rows, columns), k, item = self.source.shape, self.rank, self.view.dtype.itemsize
        task_facts = TaskFacts(
            kind="nmf",
            method="rows",
            source=self.part,
            dtype=self.view.dtype,
            orientation=Orientation.ROWS,
            rank=k,
            result_bytes=(rows + columns) * k * item + 8 * k * (k + columns),
            scratch_bytes=self.part.shape[0] * k * item,
        )
        fold = self._fold(NOWHERE, NOWHERE, 1)
        sweeps = PanelSweeps(self._sweeps, fold.cut, 8 * 10 * columns * k, 8 * k * (columns + k))
        return plan_task(task_facts, sweeps, budget)

    def _sweeps(self, slots: int) -> list[Pass]:
        (rows, columns), k, item = self.part.shape, self.rank, self.view.dtype.itemsize
        reads, new = rows * columns * self.part.dtype.itemsize, rows * k * item
        first = numbers_of(
            "iteration-01", self._fold(NOWHERE, NOWHERE, slots), reads, new, 4.0 * rows * columns * k
        )
        all_rows = self.source.shape[0] * k * item
        join = numbers_of("rows", self._join(NOWHERE, NOWHERE), all_rows, all_rows, 0.0, over="scratch")
        return [first, join]

    def _fold(self, constants: Path, scratch: Path, slots: int) -> NonnegativePass:
        view, k = self.view, self.rank
        pieces = cut(view.grid, view.short * self.part.dtype.itemsize, 8 * k * (view.short + k))
        panels = Panels(view, pieces, slots, view.dtype)
        iteration = NmfIteration(constants, None, self._new(scratch), Pivoting())
        flops = 4 * k / NOMINAL_FLOPS[view.dtype.itemsize]
        seconds = view.short * (self.part.dtype.itemsize / NOMINAL_READ + flops)
        return NonnegativePass(panels, iteration, first_pass=True, row_seconds=seconds)

    def _new(self, folder: Path) -> ScratchMatrix:
        """Scratch matrix in ``folder`` for W of the new rows, (new rows, k)."""
        return ScratchMatrix(folder / "new-rows.bin", self.part.shape[0], self.rank, self.view.dtype)

    @property
    def _rows_cut(self) -> Cut:
        """Cut of all rows of W into panels (rows at a time) that are whole chunks of the result."""
        row_bytes = self.rank * self.view.dtype.itemsize
        read = self.source.shape[1] * self.source.dtype.itemsize
        chunk = matching_chunk(self.source.row_grid, read, row_bytes)
        grid = Grid.regular(self.source.shape[0], min(chunk, self.source.shape[0]), splittable=False)
        return cut(grid, row_bytes, 8)

    def _join(self, scratch: Path, array: Path) -> JoinRows:
        old = source_at(str(self.earlier.path), "W", missing="error")
        return JoinRows(self._rows_cut, old, self._new(scratch), array, self.old_rows)

    # Run ------------------------------------------------------------------------------------------

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Solve W of new rows and then H, and write the result; return its facts (metadata).

        ``fingerprint`` is that of the matrix of all rows.
        """
        with one_blas_thread():
            h = np.asarray(self.earlier.H[...], np.float64)
            state = self._solve_rows(run, h)
            sums = {name: np.asarray(self.earlier[name][...]) for name in SUMS}
            sums = {SUMS[0]: sums[SUMS[0]] + state["gram"], SUMS[1]: sums[SUMS[1]] + state["product"]}
            new = self._solve_columns(h, *sums.values())
            self._write(run, new, sums)
            facts = self._facts(run, fingerprint, (h, new), sums, state)
            run.describe(facts)
        return facts

    def _solve_rows(self, run: Run, h: Float64) -> State:
        """Solve W of the new rows against ``h`` (k, n), to scratch; return sums over these rows."""
        k = self.rank
        arrays = {"right": h.T, "gram": h @ h.T, "linear": np.zeros(k), "diagonal": np.zeros(k)}
        constants = save_once(run.part("iteration-01", "constants.part"), arrays)
        state = run.pass_over_data("iteration-01", self._fold(constants, run.scratch, run.slots))
        refuse_bad(state, self.part)
        refuse_negative(state, self.part)
        refuse_overflow(state, self.view, "product")
        return state

    def _solve_columns(self, h: Float64, gram: Float64, product: Float64) -> Float64:
        """Solve H (k, n) against all rows, starting from ``h``; ``gram`` is ``W'W``, ``product`` ``W'X``."""
        columns = np.ascontiguousarray(h.T)
        Pivoting().improve(gram, product.T.copy(), np.zeros(self.rank), columns, fresh=False)
        return np.ascontiguousarray(columns.T.astype(self.view.dtype), np.float64)

    def _write(self, run: Run, h: Float64, sums: dict[str, Float64]) -> None:
        shape, chunks = (self.source.shape[0], self.rank), (self._rows_cut.panel_rows, self.rank)
        array = create_output(run.result, "W", shape, self.view.dtype, chunks)
        run.sweep("rows", self._join(run.scratch, array))
        write_outputs(run.result, {"H": h.astype(self.view.dtype), **sums})

    def _facts(
        self,
        run: Run,
        fingerprint: str,
        factors: tuple[Float64, Float64],
        sums: dict[str, Float64],
        state: State,
    ) -> dict[str, Any]:
        own = float(state["squares"][0])
        total = float(self.earlier.attrs["squared_norm"]) + own
        floor = float(np.sqrt(np.finfo(self.view.dtype).eps))
        gram, product = sums.values()
        before, after = (_relative(total, h, gram, product, floor) for h in factors)
        fell = (before - after) / max(after, 1e-300)
        return {
            **run.facts(self.request(), "rows", self.source, fingerprint),
            "relative_error": after,
            "relative_error_floor": floor,
            "new_rows_error": _relative(own, factors[0], state["gram"], state["product"], floor),
            "errors": [after],
            "cost": after,
            "stationarity": None,
            "compressed_iterations": 0,
            "squared_norm": total,
            "product_norm": float(np.sqrt(max((sums[SUMS[0]] * (factors[1] @ factors[1].T)).sum(), 0.0))),
            "stopped": "rows",
            "converged": bool(fell < self.whole.parameters.tol),
        }


def _relative(total: float, h: Float64, gram: Float64, product: Float64, floor: float) -> float:
    """``|X - W H| / |X|`` in the Frobenius norm, at least ``floor``, from sums over rows and ``h`` (k, n).

    The sums are ``total`` ``|X|^2``, ``gram`` ``W'W`` (k, k) and ``product`` ``W'X`` (k, n).
    """
    if not total > 0:
        return 0.0
    squares = total - 2 * float((h * product).sum()) + float((gram * (h @ h.T)).sum())
    return float(np.sqrt(max(squares / total, floor**2)))


def grow_factors(task: Task, earlier: Result | None, first: int, grows: str) -> Step:
    """Make the step by which a result of nmf takes in the rows that its matrix has gained.

    ``task`` factorizes all rows. ``earlier`` is the result of the ``first`` rows, or None to only check that
    a result can grow. ``grows`` is one of ``GROWS``. See ``Method.grow``.
    """
    if type(task) is not Nonnegative or task.both is not None:
        raise InputError(
            "nmf with weights, gaps, or factors given to start from does not grow: leave out grows"
        )
    _require_sums(task, grows)
    rows = task.source.shape[0]
    if earlier is None:
        return Step(task, rows)
    if grows == "polish":
        return Step(_polish(task, earlier), rows)
    if any(name not in set(earlier) for name in SUMS):
        raise InputError(f"{earlier.path} keeps no sums of its rows: say overwrite to begin anew")
    return Step(FactorGrowth(task, earlier, new_rows(task.source, first), first), rows - first)


def _require_sums(task: Nonnegative, grows: str) -> None:
    """Raise ``InputError`` if ``grows`` is ``"rows"`` but sums over rows are not enough to solve H."""
    parameters, (rows, columns) = task.parameters, task.source.shape
    plain = FactorRequest.of("auto", NmfArguments(parameters.rank))
    for name in ("loss", "alpha_w", "alpha_h", "constraint_w", "constraint_h"):
        if getattr(parameters, name) != getattr(plain, name) and grows == "rows":
            raise InputError(
                f"{name} is {getattr(parameters, name)}, and nmf grows by least squares of factors that are "
                "not negative, no more: leave it out, or say grows polish, which reads all rows"
            )
    if not _by_rows(task) and grows == "rows":
        raise InputError(
            f"{task.source.name} is {rows} x {columns}, which nmf sweeps by columns, so that no sums over "
            "rows are kept: begin with more rows than columns, or say grows polish"
        )


def _by_rows(task: Nonnegative) -> bool:
    """True if sweeps run along the rows: W goes to scratch, and H is solved from sums over rows."""
    return orientation_of(compression_of(task.parameters, task.source), task.source) is Orientation.ROWS


def _polish(task: Nonnegative, earlier: Result) -> Nonnegative:
    """Task of a fit to all rows that starts from H of the earlier result."""
    h = earlier.H
    if not _by_rows(task):
        raise InputError("W of the rows that have come is not known to start from: leave out grows")
    # W of all rows follows from H: only its shape is used.
    w = np.broadcast_to(np.zeros((), h.dtype), (task.source.shape[0], task.parameters.rank))
    custom = dataclasses.replace(task.parameters, init="custom")
    return Nonnegative.of(task.source, custom, CustomStart(w, h))
