"""Passes over the matrix until the estimates of missing numbers have settled: their plan, and their work.

Passes run along the rows, and complete each row by itself. Of every ``period`` numbers of a row one is held
out of the model to estimate its error; solvers take those numbers as they are.

One pass fits the current model to every row, and sums over all rows what the next model needs. Rows are read
by panels (rows in memory at a time) and handled by grains (rows of one matrix product).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.complete_rows import COUNT_BINS, TOTALS, RowModel, RowSums, fit_rows
from rankfold.kernels.linear.products import add_product
from rankfold.methods.claims import has_converged
from rankfold.methods.parts.panels import BAD, Grain, OverPanels, Panels, numbers, refuse_infinite
from rankfold.methods.random_keys import Purpose
from rankfold.methods.svd.completion.first_model import RowSample, first_model, out_of_range
from rankfold.methods.svd.completion.low_rank_model import (
    BLOCK_BYTES,
    DEPTH,
    Acceleration,
    as_arrays,
    from_arrays,
    next_model,
    row_model,
)
from rankfold.methods.svd.request import Request
from rankfold.methods.task import Output
from rankfold.pipeline.data.origin import columns_in_words
from rankfold.pipeline.data.source import Source, compressed
from rankfold.pipeline.data.view import Orientation, View, working_dtype
from rankfold.pipeline.engine.blocks import Cut, cut
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Constant, Sum, Workspace
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.planning.planner import PanelSweeps
from rankfold.pipeline.planning.seconds import NOMINAL_FLOPS, NOMINAL_READ
from rankfold.pipeline.prepare.gaps import CompleteRows, ImputeLowRank, blank_completion, warm_filling
from rankfold.pipeline.prepare.prepared import complete_source, fitted_of
from rankfold.pipeline.storage.checkpoint import State, save_once
from rankfold.pipeline.storage.scratch import NOWHERE

if TYPE_CHECKING:
    from rankfold.methods.svd.strategy import Strategy


Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

SQUARES_BYTES = 2**27
"""Largest number of bytes of the sums S_j of all columns, (k + 1, k + 1) each: see ``low_rank_model.py``.
Above it all columns share one."""

HELD_OUT = 2000
"""Smallest number of entries to hold out, unless one of every ``PERIODS[0]`` is fewer."""

PERIODS = 20, 100
"""Smallest and largest period: of so many numbers in a row, one is held out."""

LEAST_HELD = 30
"""Smallest number of held-out numbers in a mean of squared errors; fewer only if no more were held out."""

LIKELY_PASSES = 5
"""Typical number of passes. Measured: 2 to 9, and up to 16 where many components are near the noise."""

KEPT_MODELS = 2 * DEPTH + 6
"""Number of arrays of the size of a model in memory between passes, changes of models included; twice as many
while models are mixed: see ``low_rank_model.py``."""

GAP_SHARE = 0.1
"""Assumed share of missing numbers, for estimates of time."""

FALLS = 0.25, 0.8
"""Smallest and largest ratio of one change to the one before that estimates assume; the largest if none is
known."""

BELOW_UNCERTAINTY = 0.003
"""Change still to come, relative to the error of missing numbers, at which passes end whatever the tolerance:
it makes the squared error larger by a hundred-thousandth."""

MOST_NAMES = 5
"""Largest number of columns that a message names."""


@dataclass(frozen=True, slots=True)
class Completion:
    """Choices that decide the completed numbers: they follow from the request and the matrix alone.

    Of the matrix only shape, type and chunks count.
    """

    view: View
    """The matrix with missing numbers, swept along its rows."""

    rank: int
    """Number of components of the model: as many as are asked for, fewer than there are rows or columns."""

    period: int
    """Length of runs of columns: one number of each run is held out, more in rows with many missing."""

    exact: bool
    """True if each column has its own sum S_j, False if all share one: see ``low_rank_model.py``."""

    cut: Cut
    """Cut of the rows for the passes."""

    most_passes: int
    """Largest number of passes that complete the matrix."""

    seed: int

    @classmethod
    def of(cls, request: Request, source: Source) -> Completion:
        """Choices for a request and its matrix ``source``, which has missing numbers."""
        view = View(source, Orientation.ROWS, precision=request.working_dtype)
        m, n = source.shape
        rank = max(1, min(request.rank, m - 1, n - 1))
        squares = 8 * n * (rank + 1) * (rank + 2) // 2
        exact = squares <= SQUARES_BYTES
        period = min(max(m * n // HELD_OUT, PERIODS[0]), PERIODS[1])
        sums = 8 * n * (rank + 4) + squares * exact
        pieces = cut(view.grid, n * view.dtype.itemsize, sums, reads_per_byte=8)
        return cls(view, rank, period, exact, pieces, int(request.completion_passes or 1), request.seed)

    @property
    def held_out(self) -> tuple[int, int]:
        """Key and period that choose the numbers held out: see ``key`` and ``period`` of ``fit_rows``."""
        bits = np.random.Philox(key=np.array([self.seed, Purpose.HELD_OUT], np.uint64))
        return int(bits.random_raw()), self.period

    @property
    def sample(self) -> RowSample:
        """Sample of rows for the first model."""
        return RowSample.of(self.view, self.rank)

    def fold(self, slots: int, model: Path) -> CompletionPass:
        """The fold of a pass with the model in the file ``model``, and ``slots`` buffers for panels."""
        panels = Panels(self.view, self.cut, slots, self.view.dtype)
        key, period = self.held_out
        each = self.view.source.dtype.itemsize / NOMINAL_READ + self.flops / NOMINAL_FLOPS[8]
        return CompletionPass(panels, model, self.rank, key, period, self.exact, self.view.short * each)

    @property
    def flops(self) -> float:
        """Flops per element of the matrix in a pass, with ``GAP_SHARE`` as the share of missing ones."""
        return 6 * self.rank + GAP_SHARE * 3 * self.rank**2

    # A plan ---------------------------------------------------------------------------------------

    def sweeps(self, slots: int) -> list[Pass]:
        """Planned passes with ``slots`` buffers for panels, as many as may be made.

        The first ``LIKELY_PASSES`` of them are marked as likely.
        """
        fold = self.fold(slots, NOWHERE)
        numbers = self.view.long * self.view.short
        reads = numbers * self.view.source.dtype.itemsize
        return [
            dataclasses.replace(
                numbers_of(pass_name(i), fold, reads, 0, numbers * self.flops),
                item=8,
                is_likely=i <= LIKELY_PASSES,
                resident_bytes=KEPT_MODELS * self.model_bytes,
            )
            for i in range(1, self.most_passes + 1)
        ]

    @property
    def model_bytes(self) -> int:
        """Bytes of the arrays of a model."""
        return 8 * (self.view.short * (self.rank + 1) + 2 * self.rank**2)

    @property
    def driver_bytes(self) -> int:
        """Bytes that finding the next model takes between passes, or the first one if that takes more."""
        sums = self.fold(1, NOWHERE).accumulator_bytes
        solving = 8 * min(BLOCK_BYTES, sums) + 2 * KEPT_MODELS * self.model_bytes
        return max(2 * sums + solving, sums + solving + self.sample.memory_bytes)


def pass_name(index: int) -> str:
    """Name of the completion pass with that index, from 1."""
    return f"completion-{index:02d}"


def completed_blank(request: Request, source: Source) -> Source:
    """Matrix of the shape and type of the completed one, without a fitted model: a stand-in for plans.

    ``source`` itself if the request does not ask for completion.
    """
    if request.missing != "em":
        return source
    rank = Completion.of(request, source).rank
    step = blank_completion(source.shape[1], rank)
    found = {**step.found, "missing": np.broadcast_to(np.int64(0), (source.shape[1],))}
    return complete_source(source, ImputeLowRank(rank), step, found)


def kept_outputs(request: Request, source: Source) -> tuple[Output, ...]:
    """Arrays of the completing model that the result will hold; empty if nothing is completed."""
    arrays = fitted_of(completed_blank(request, source)) if request.missing == "em" else {}
    return tuple(
        Output(name, each.shape, each.dtype) for name, each in arrays.items() if ImputeLowRank.name in name
    )


def with_completion(sweeps: PanelSweeps, request: Request, strategy: Strategy) -> PanelSweeps:
    """Sweeps of a solver after the passes that complete its matrix; unchanged if nothing is completed.

    ``strategy.view.source`` is then that of ``completed_blank``.
    """
    if request.missing != "em":
        return sweeps
    completed: Any = strategy.view.source
    before = Completion.of(request, completed.inner)
    most, likely = before.most_passes, min(LIKELY_PASSES, before.most_passes)
    return PanelSweeps(
        lambda slots: [*before.sweeps(slots), *sweeps.sweeps_of(slots)],
        sweeps.cut,
        max(sweeps.driver_bytes + 2 * before.model_bytes, before.driver_bytes),
        max(sweeps.accumulator_bytes, before.fold(1, NOWHERE).accumulator_bytes),
        lambda passes: likely + sweeps.likely(passes - most),
    )


def decided_by(request: Request, otherwise: str) -> str:
    """Text that says what decides the number of passes; ``otherwise`` is that text for the solver alone."""
    if request.missing != "em":
        return otherwise
    most = int(request.completion_passes or 1)
    also = f", as others do on {otherwise}" if otherwise else ""
    return f"what is missing, for up to {most} that complete it, typically {min(LIKELY_PASSES, most)}{also}"


# The work -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class History:
    """Errors and changes of successive models, each measured by the pass that used the model."""

    tol: float
    """Change still to come, relative like ``changes``, at which passes end."""

    changes: list[float | None] = dataclasses.field(default_factory=list)
    """Norm of the change of missing numbers from the model before, over that of the completed matrix less its
    column means; None for the first model."""

    errors: list[float | None] = dataclasses.field(default_factory=list)
    """Root mean square error of each model on held-out numbers, None where there are none:
    ``HeldOut.error``."""

    remaining: float = np.inf
    """Estimated change still to come after the next model, relative like ``changes``; inf after the first
    pass."""

    uncertainty: float = 0.0
    """Norm of the error of missing numbers over that of the completed matrix less its column means, estimated
    from numbers held out."""

    def add(self, state: State) -> None:
        """Record error and change of the model of a pass, from the sums ``state`` of ``CompletionPass``."""
        changes, norm = (float(state["totals"][i]) for i in (4, 5))
        error = HeldOut.of(state["by_count"]).error
        self.errors.append(error)
        if error is not None and norm > 0:
            missing = float(state["columns"][0].sum())
            self.uncertainty = error * float(np.sqrt(missing / norm))
        if len(self.errors) == 1:
            self.changes.append(None)  # there is no model before
            return
        change = float(np.sqrt(changes / norm)) if norm > 0 else 0.0
        self.changes.append(change)
        # A single fall may be luck: the slower of the last two counts.
        known = [each for each in self.changes[-3:] if each is not None]
        falls = [after / before if before > 0 else 0.0 for before, after in itertools.pairwise(known)]
        fall = min(max(falls, default=FALLS[1]), FALLS[1])
        fall = max(fall, FALLS[0])
        self.remaining = change * fall**2 / (1 - fall)

    @property
    def has_converged(self) -> bool:
        """True if the change still to come is small enough to stop."""
        return has_converged(self.remaining, max(self.tol, BELOW_UNCERTAINTY * self.uncertainty))


class HeldOut(NamedTuple):
    """Errors of missing numbers, estimated from numbers that were held out."""

    error: float | None
    """Root mean square of the error of the model; None where nothing was held out."""

    mean_error: float | None
    """Root mean square of the error of column means as estimates; None where nothing was held out."""

    effective: float
    """Effective sample size: so many numbers held out at random among the missing ones would tell as much."""

    @classmethod
    def of(cls, by_count: Float64) -> HeldOut:
        """Weight errors of held-out numbers so that rows count as they do among missing numbers.

        ``by_count`` is (4, bins), as in ``RowSums``: a bin is a range of counts of known numbers in a row.

        A missing number of a row with c known ones is as hard to predict as one held out that left c: where
        chance decides which numbers of a row are missing, nothing else distinguishes them. Rows that miss
        much are hardest, and rare among known numbers, so a plain mean over all held out would describe
        nearly complete rows only. Bins with fewer than ``LEAST_HELD`` held out are joined with their
        neighbors.
        """
        missing, held, *squares = by_count
        if not held.any():
            return cls(None, None, 0.0)
        if not missing.any():
            model, mean = (float(np.sqrt(each.sum() / held.sum())) for each in squares)
            return cls(model, mean, float(held.sum()))
        sums, spread = np.zeros(2), 0.0
        for at in np.flatnonzero(missing):
            reach = 0
            while held[max(0, at - reach) : at + reach + 1].sum() < LEAST_HELD and reach < len(held):
                reach += 1
            near, share = slice(max(0, at - reach), at + reach + 1), missing[at] / missing.sum()
            sums += [share * each[near].sum() / held[near].sum() for each in squares]
            spread += share**2 / held[near].sum()
        return cls(float(np.sqrt(sums[0])), float(np.sqrt(sums[1])), float(1 / spread))


def complete(run: Run, request: Request, source: Source) -> tuple[Source, dict[str, Any]]:
    """Fit the model that completes missing numbers; return the completed matrix, and facts for the result.

    Missing numbers are filled in whenever the returned matrix is read. Without ``missing="em"`` in the
    request it is ``source`` itself, without facts; if nothing is missing, ``source`` itself, with facts.

    Raises
    ------
    DataError
        A number is infinite, squares of numbers leave the range of float64, or all of a column is missing.
    """
    if request.missing != "em":
        return source, {}
    plan = Completion.of(request, source)
    with one_blas_thread():
        model, state, history = _fit(run, plan, request.tol)
    run.earlier_passes, run.passes = run.passes, 0
    counts = state["columns"][0]
    facts = _facts(plan, model, state, history)
    if not counts.any():
        run.warnings.append(
            f"nothing is missing in {source.name}, which holds no NaN: missing='em' took a pass to see that. "
            "If a number stands for what is missing, open it with prepare='mark_missing(-1)'"
        )
        return source, {"completion": facts}
    if len(history.errors) == 1:
        run.warnings.append(
            "one pass does not tell whether what is missing still changes: allow more with passes= (--passes)"
        )
    elif not history.has_converged:
        run.warnings.append(
            f"what is missing may still change by {history.remaining:.1e} of the norm, above tol = "
            f"{request.tol:.1e}, after {len(history.errors)} passes: allow more with passes= (--passes), or "
            "raise tol"
        )
    if compressed(source) is not None:
        run.warnings.append(
            f"{source.name} is sparse: missing='em' fills panels in with its zeros, which takes the time of "
            "a dense matrix"
        )
    step = CompleteRows(model)
    found = {**step.found, "missing": counts.astype(np.int64)}
    return complete_source(source, ImputeLowRank(plan.rank), step, found), {"completion": facts}


def _fit(run: Run, plan: Completion, tol: float) -> tuple[RowModel, State, History]:
    """Fit the model by passes; return it, the sums of the last pass, and the history of all passes."""

    def make() -> State:
        first = first_model(plan.sample, plan.rank, plan.seed, plan.held_out, exact=plan.exact)
        return as_arrays(first, first)

    first = run.prepare(run.part("completion", "first.part"), make)
    model = before = from_arrays(first)
    history, acceleration = History(tol), Acceleration()
    for i in range(1, plan.most_passes + 1):
        part = save_once(run.part(pass_name(i), "model.part"), as_arrays(model, before))
        state = run.pass_over_data(pass_name(i), plan.fold(run.slots, part))
        _refuse(state, plan)
        history.add(state)
        if not state["columns"][0].any():
            history.remaining = 0.0
            break
        plain = next_model(model, state, plan.view.long)
        model, before = acceleration.following(model, plain), model
        if history.has_converged:
            break
    return model, state, history


def _refuse(state: State, plan: Completion) -> None:
    """Raise ``DataError`` for numbers that are infinite or out of range, and for columns without numbers."""
    source, rows = plan.view.source, plan.view.long
    refuse_infinite(state, source)
    if not all(np.isfinite(state[name]).all() for name in ("totals", "products", "moments")):
        raise out_of_range(plan.view)
    empty = np.flatnonzero(state["columns"][0] == rows)
    if len(empty) == source.shape[1]:
        raise DataError(f"{source.name} holds no number at all: everything is missing. Give another matrix")
    if len(empty):
        names = columns_in_words(source, empty[:MOST_NAMES].tolist())
        more = f" and {len(empty) - MOST_NAMES} more" if len(empty) > MOST_NAMES else ""
        raise DataError(
            f"{len(empty)} columns of {source.name} hold no number, so that nothing tells what is missing "
            f"there: {names}{more}. Leave them out, with drop_missing_columns=True "
            "(--drop-missing-columns) or select_columns= (--select-columns)"
        )


def _facts(plan: Completion, model: RowModel, state: State, history: History) -> dict[str, Any]:
    """Facts of a completion, for the result."""
    n, totals = plan.view.short, state["totals"]
    missing, held, told = int(state["columns"][0].sum()), int(totals[1]), HeldOut.of(state["by_count"])
    explained = np.diag(model.gram) / n > np.diag(model.spread)
    return {
        "passes": len(history.errors),
        "missing": missing,
        "missing_share": missing / (plan.view.long * n),
        "empty_rows": int(totals[6]),
        "held_out": held,
        "held_out_error": history.errors[-1],
        "held_out_effective": told.effective,
        "mean_error": told.mean_error,
        "noise": float(np.sqrt(model.noise[0])),
        "components": int(explained.sum()),
        "changes": history.changes,
        "held_out_errors": history.errors,
        "remaining_change": history.remaining if np.isfinite(history.remaining) else None,
        "converged": history.has_converged,
    }


@dataclass(frozen=True, slots=True)
class CompletionPass(OverPanels):
    """Fold that sums over all rows what the next model is computed from: see ``low_rank_model.py``."""

    panels: Panels
    model: Path
    """Path of the file with the arrays of the current model and of the one before: see ``as_arrays``."""

    rank: int
    """Number k of components of the model."""

    key: int
    """Key that chooses the numbers held out: see ``fit_rows``."""

    period: int
    """Length of runs of columns: one number of each run is held out."""

    exact: bool
    """True if each column has its own sum S_j: see ``low_rank_model.py``."""

    row_seconds: float

    kernels = (fit_rows, add_product)

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays of a segment by name.

        Arrays of the current model and, with ``_before`` added to their names, of the one before. ``d``
        (grain rows, n) are deviations, ``z`` (grain rows, k + 1) coordinates of rows, and ``product`` (n, k +
        1) is ``d'z``.
        """
        short, k, rows, dtype = self.panels.view.short, self.rank, self.panels.grain_rows, self.panels.dtype
        shapes = {"mean": (short,), "loadings": (short, k), "gram": (k, k), "spread": (k, k), "noise": (1,)}
        models = {
            name + suffix: Constant(shape, part=self.model)
            for suffix in ("", "_before")
            for name, shape in shapes.items()
        }
        return {
            **models,
            "d": Buffer((rows, short), dtype),
            "z": Buffer((rows, k + 1), dtype),
            "product": Buffer((short, k + 1), dtype),
        }

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all rows by name, those of ``RowSums``, and ``bad``: count and first position of Inf.

        With q = (k + 1)(k + 2) / 2: ``shared`` and ``moments`` (q,), ``products`` (n, k + 1), ``columns`` (3,
        n), ``totals`` (TOTALS,), ``by_count`` (4, COUNT_BINS), and if ``exact`` also ``squares`` (n, q).
        """
        short, k = self.panels.view.short, self.rank
        triangle = (k + 1) * (k + 2) // 2
        own = {"squares": Sum((short, triangle))} if self.exact else {}
        return {
            **own,
            "shared": Sum((triangle,)),
            "moments": Sum((triangle,)),
            "products": Sum((short, k + 1)),
            "columns": Sum((3, short)),
            "totals": Sum((TOTALS,)),
            "by_count": Sum((4, COUNT_BINS)),
            "bad": BAD,
        }

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums: 4 vectors along a row, eight (k + 1, k + 1) matrices."""
        return 4 * 8 * self.panels.view.short + 8 * 8 * (self.rank + 1) ** 2

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers and panels; ``models`` lists two ``RowModel``: the current and the one before."""
        work = OverPanels.workspace(self, device)
        work.models = [
            RowModel(*(getattr(work, name + suffix) for name in RowModel._fields))
            for suffix in ("", "_before")
        ]
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Fit the model to rows ``start:stop``, read into panel ``slot``, and add to the sums ``state``."""
        for grain in self.panels.grains(work.panels, start, stop, slot):
            self._add(state, work, grain)

    def _add(self, state: State, work: Workspace, grain: Grain) -> None:
        raw = numbers(grain.raw)
        if raw.dtype.kind == "f" and np.isinf(raw).any():
            mark_infinite(state, raw, grain.first)
            return
        d, z = work.d[: len(raw)], work.z[: len(raw)]
        none = {"squares": np.empty((0, len(state["shared"])))}
        sums = RowSums(**{name: (none | state)[name] for name in RowSums._fields})
        fit_rows(raw, grain.first, self.key, self.period, *work.models, d=d, z=z, sums=sums)
        add_product(d, z, total=state["products"], work=work.product)


def mark_infinite(state: State, raw: Array, first: int) -> None:
    """Add to ``state["bad"]`` the count of Inf in ``raw``, and row and column of the first.

    ``raw`` holds rows of the matrix from the row ``first`` on, and at least one Inf.
    """
    rows, columns = np.nonzero(np.isinf(raw))
    here = np.array([len(rows), first + rows[0], columns[0]], np.int64)
    state["bad"] = BAD.combine(state["bad"], here)


@functools.cache
def warm_completion(dtype: np.dtype[Any], working: np.dtype[Any] | None) -> None:
    """Compile the loops of completion by running each once, for types of matrix and products, and float64.

    ``dtype`` is the type of the matrix, ``working`` that of products with it, None for the default.
    """
    warm_filling()
    model = row_model(np.zeros(4), np.ones((4, 1)), np.eye(1), 1.0)
    double = np.dtype(np.float64)
    for raw, out in ((dtype, working or working_dtype(dtype)), (double, double)):
        x = numbers(np.ones((2, 4), raw))
        sums = RowSums(
            *(np.zeros(shape) for shape in ((4, 3), (3,), (3,), (4, 2), (3, 4), (TOTALS,), (4, COUNT_BINS)))
        )
        fit_rows(x, 0, 1, 20, model, model, d=np.empty((2, 4), out), z=np.empty((2, 2), out), sums=sums)
