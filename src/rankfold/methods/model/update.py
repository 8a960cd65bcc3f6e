"""Update principal components, or singular triplets, of a result with rows that it has not seen.

A result with all of its components summarizes its samples: the update equals a fit to all rows, up to
rounding. For a truncated result the missing part is bounded, and error estimates include the bound.

With fewer new rows than columns, the rows are kept in memory (``KeepRows``), since they are smaller than any
sum over them. For many sparse rows, products of columns with columns (a Gram matrix) are summed, at a cost
proportional to stored numbers; the error estimates include the rounding of squares. If the tolerance is below
that, rows are made dense and factorized by QR, without squares.

A ``Summary`` of samples can be added to: number, mean, and a factor of their scatter matrix. Two summaries
merge into that of all samples, in any order and grouping. A summary whose factor is truncated to fewer rows
keeps a bound of the error of truncation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.dense import fix_signs
from rankfold.kernels.linear.qr import panel_r
from rankfold.methods.claims import claim, has_converged, in_words
from rankfold.methods.model.arguments import UpdateArguments
from rankfold.methods.model.model import FactorModel, open_model
from rankfold.methods.parts.conditioned import Centering, divisors
from rankfold.methods.parts.outputs import write_outputs
from rankfold.methods.parts.panels import BAD, OverPanels, Panels, refuse_bad
from rankfold.methods.svd.error_estimates import errors_of_remainder
from rankfold.methods.svd.operator import CONSTANT_DEVIATION, begin
from rankfold.methods.svd.plan import make_plan
from rankfold.methods.svd.request import DEFAULT_PASSES, DEFAULT_TOL, Request
from rankfold.methods.svd.solvers.gram import gram, gram_fold
from rankfold.methods.svd.solvers.tsqr import tsqr, zero
from rankfold.methods.svd.strategy import choose_strategy
from rankfold.methods.svd.svd import VARIANCES
from rankfold.methods.svd.write import warn_of_constant
from rankfold.methods.task import Output, vectors
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import Source, sparse_by_rows
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.blocks import cut
from rankfold.pipeline.engine.fold import Sum, Workspace
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import DataError, InputError, MemoryBudgetError
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import TaskFacts, one_sweep, plan_task
from rankfold.pipeline.prepare.prepared import lacks_row_weights
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.result import Result

Float64 = npt.NDArray[np.float64]

WORKING_COPIES = (8, 5)
"""Memory of a merge and its SVD: copies of the stacked factors, and of a square matrix of their shorter
side."""

EPS = float(np.finfo(np.float64).eps)

SQUARES_TOL = 1e-6
"""Smallest tolerance at which sums of squares are precise enough: they resolve singular values down to 1.5e-5
of the largest to that relative error."""

UNTRUSTED_ERROR = 1e-2
"""Estimated relative error of singular values above which the last value does not bound the truncated
part."""


@dataclass(frozen=True, slots=True)
class Update:
    """Task that updates a result of ``pca`` or ``svd`` with new rows."""

    model: FactorModel
    source: Source
    """The new rows as a matrix, (rows, n)."""

    rank: int
    """Number of components that the updated result keeps."""

    digest: str
    """Digest of the model: see ``FactorModel.digest``."""

    whole: Source | None = None
    """Matrix with the rows of the result followed by the new ones, which the new result names as its input;
    None if there is none."""

    @classmethod
    def of(cls, model: FactorModel, source: Source, rank: int | None, whole: Source | None = None) -> Update:
        """Make the task; ``InputError`` if the new rows or the rank do not fit the result.

        ``rank`` None keeps as many components as the result has.
        """
        if model.paired:
            raise InputError(f"{model.name} is of complex numbers, and only real ones are updated: fit again")
        if lacks_row_weights(source):
            raise InputError(
                f"rows of {model.name} were weighed, and new ones have no weights: fit again to all"
            )
        columns, (rows, width) = model.right.shape[1], source.shape
        if width != columns:
            raise InputError(
                f"{model.name} was fitted to {columns} columns, but {source.name} is {rows} x {width}. "
                f"Give samples of the same {columns} columns, in the same order."
            )
        if rows < 1:
            raise InputError(f"{source.name} is {rows} x {width}: there is nothing to add")
        target_rank, most = model.rank if rank is None else rank, min(model.rank + rows + 1, columns)
        if not 1 <= target_rank <= most:
            raise InputError(
                f"rank {target_rank} was asked for, but {model.rank} components and {rows} new rows give 1 "
                f"to {most}"
            )
        return cls(model, source, target_rank, model.digest(), whole)

    @property
    def _fit_request(self) -> Mapping[str, Any]:
        """Request of the fit that made the result."""
        request: Mapping[str, Any] = self.model.result.attrs["request"]
        return request

    @property
    def _tall(self) -> bool:
        """True if there are at least as many new rows as columns: a pass then reduces them to sums."""
        return self.source.shape[0] >= self.source.shape[1]

    def request(self) -> dict[str, Any]:
        """Parameters of the fit, the new rank, and the digest of the result, as JSON types."""
        names = ("tol", "center", "scale", "whiten")
        parameters = {name: self._fit_request[name] for name in names}
        kind = self.model.kind
        return {"kind": kind, "rank": self.rank, **parameters, "rows": False, "update_of": self.digest}

    def outputs(self) -> tuple[Output, ...]:
        """Arrays of the updated result: right vectors (k, n), and vectors (k,) of values and errors.

        Also the mean and scale of columns, (n,), if the fit centered or scaled them.
        """
        columns, is_centered = self.source.shape[1], self.model.is_centered
        components = Output(self.model.right_name, (self.rank, columns), self.model.dtype)
        values = VARIANCES if is_centered else (self.model.factors.spectrum,)
        small = vectors(self.rank, "residuals", "error_estimates", *values)
        of_columns = ["mean"] * is_centered + ["scale"] * bool(self._fit_request["scale"])
        return (components, *small, *vectors(columns, *of_columns))

    def plan(self, budget: Budget) -> Plan:
        """Plan of the one pass over the new rows."""
        if not self._tall or self._sums_squares:
            return self._plan_squares(budget) if self._tall else self._small_plan(budget)
        try:
            plan = make_plan(self._factorization(), self.source, budget)
        except MemoryBudgetError as error:
            raise MemoryBudgetError.of(
                f"{error.message} Or add fewer rows at a time than there are columns: they are held as they "
                "are.",
                error.need_bytes,
            ) from None
        return dataclasses.replace(plan, kind="update", rank=self.rank)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Summarize new rows, merge with the result, and write components; return the new result's facts."""
        with one_blas_thread():
            units = self.model.columns(0, self.source.shape[1])[1]
            new = self._summarize(run, units)
            summary = merge_summaries(self._summary(units), new)
            if not (np.isfinite(summary.total) and np.isfinite(summary.factor).all()):
                raise DataError(f"squares of {self.source.name} leave the range of float64. Rescale it")
            facts = self._write(run, summary, units, fingerprint)
            run.describe(facts)
        return facts

    def _summarize(self, run: Run, units: Float64) -> Summary:
        """Summary of the new rows, found in the way that suits their number and storage.

        ``units`` (n,) are the divisors by which the result scaled columns.
        """
        if not self._tall:
            return self._read_rows(run, units)
        return self._sum_squares(run, units) if self._sums_squares else self._factorize(run, units)

    @property
    def _sums_squares(self) -> bool:
        """True if new rows are sparse and the tolerance allows for rounding of squares."""
        return sparse_by_rows(self.source) is not None and float(self._fit_request["tol"]) >= SQUARES_TOL

    def _scatter(self) -> Request:
        """Request for all eigenpairs of the scatter matrix of the new rows, found by the solver ``gram``."""
        columns, center = self.source.shape[1], self._fit_request["center"]
        return Request("pca", columns, method="gram", passes=1, center=center, rows=False)

    def _sum_squares(self, run: Run, units: Float64) -> Summary:
        """Summary of the new rows by one pass that sums products of columns; ``units`` (n,): divisors."""
        request = self._scatter()
        layout = choose_strategy(request, self.source, run.device)
        centering, start = begin(run, layout, request)
        scatter = gram(run, layout, centering, start)
        values = np.maximum(scatter.values, 0.0)
        factor = np.sqrt(values)[:, None] * scatter.vectors.T / centering.pow2_scale / units
        lost = EPS * (values[0] + scatter.mean_squares) / (centering.pow2_scale * units.min()) ** 2
        squares = self._pool_squares(np.einsum("ij,ij->j", factor, factor))
        return Summary(self.source.shape[0], scatter.mean / units, factor, squares, lost)

    def _factorization(self) -> Request:
        """Request for the R factor of the new rows about their mean; scaling follows with all rows."""
        columns = self.source.shape[1]
        return Request("qr", columns, method="tsqr", center=self._fit_request["center"], rows=False)

    def _factorize(self, run: Run, units: Float64) -> Summary:
        """Summary of the new rows by one pass that computes their R factor; ``units`` (n,): divisors."""
        request = self._factorization()
        layout = choose_strategy(request, self.source, run.device)
        centering, start = begin(run, layout, request)
        factorization = tsqr(
            run, layout, centering, start, form=False, passes=DEFAULT_PASSES, seed=request.seed
        )
        factor = factorization.r / centering.pow2_scale / units
        squares = np.einsum("ij,ij->j", factor, factor)
        return Summary(
            self.source.shape[0], factorization.columns.mean / units, factor, self._pool_squares(squares)
        )

    def _read_rows(self, run: Run, units: Float64) -> Summary:
        """Summary of new rows that are read into memory as a whole; ``units`` (n,): divisors."""
        state = run.pass_over_data("rows", self._fold(run.slots))
        refuse_bad(state, self.source)
        summary = Summary.of_rows(state["rows"] / units, center=self._fit_request["center"])
        return dataclasses.replace(summary, squares=self._pool_squares(summary.squares))

    def _pool_squares(self, squares: Float64) -> Float64:
        """Sums of squares (n,) of columns as they are if columns are scaled, else their total (1,)."""
        return squares if self._fit_request["scale"] else squares.sum(keepdims=True)

    def _fold(self, slots: int) -> KeepRows:
        rows, columns = self.source.shape
        whole = cut(Grid.regular(rows, rows, splittable=False), 8 * columns, 8 * rows * columns)
        view = View(self.source, Orientation.ROWS)
        return KeepRows(Panels(view, whole, slots, np.dtype(np.float64)), 1e-9 * 8 * columns)

    def _task_facts(self) -> TaskFacts:
        return TaskFacts(
            kind="update",
            method="summary",
            source=self.source,
            dtype=np.dtype(np.float64),
            orientation=Orientation.ROWS,
            rank=self.rank,
            result_bytes=8 * self.source.shape[1] * (self.rank + 2),
        )

    def _plan_squares(self, budget: Budget) -> Plan:
        layout = choose_strategy(self._scatter(), self.source, budget.device)
        centering = Centering(self._fit_request["center"], False, 1.0, 0.0, 1.0)
        columns = self.source.shape[1]
        (wide, square), task_facts = WORKING_COPIES, self._task_facts()
        merged = wide * (columns + self.model.rank + 1) * columns + square * columns**2
        sweep = one_sweep(
            task_facts,
            lambda slots: gram_fold(layout, slots, centering, np.zeros(0), None),
            flops=float(layout.numbers) ** 2 / layout.view.long,
            driver_bytes=max(layout.sample_bytes, 8 * merged),
            accumulator_bytes=8 * columns**2,
            stored=(layout.numbers, layout.read_bytes),
        )
        return plan_task(task_facts, sweep, budget, lambda: "")

    def _small_plan(self, budget: Budget) -> Plan:
        (rows, columns), rank = self.source.shape, self.model.rank
        (wide, square), task_facts = WORKING_COPIES, self._task_facts()
        total_rows = rows + rank + 1
        sweep = one_sweep(
            task_facts,
            self._fold,
            flops=6.0 * total_rows * columns * min(total_rows, columns),
            driver_bytes=8 * (wide * total_rows * columns + square * min(total_rows, columns) ** 2),
            accumulator_bytes=8 * rows * columns,
        )
        return plan_task(task_facts, sweep, budget, lambda: ", or add fewer rows at a time")

    def _summary(self, units: Float64) -> Summary:
        """Summary of the samples of the result, in the units (n,) that it scaled columns to."""
        model, columns = self.model, self.model.right.shape[1]
        mean, _ = model.columns(0, columns)
        factor = model.s[:, None] * model.vectors(0, columns).T.astype(np.float64)
        count, total = model.shape[0], float(model.result.attrs["squared_norm"])
        squares = np.array([total])
        if self._fit_request["scale"]:
            squares = np.full(columns, count - 1.0)
            squares[model.result.attrs["unscaled"]] = 0.0
        truncation_bound = self._carried.get("lost_squares", 0.0)
        if not self._carried and model.rank < min(count, columns):
            cut_off = max(total - float((model.s**2).sum()), 4 * EPS * total)
            error_estimate = float(np.max(model.result.error_estimates[...]))
            truncation_bound = (
                min(cut_off, float(model.s[-1] ** 2)) if error_estimate <= UNTRUSTED_ERROR else cut_off
            )
        return Summary(count, mean / units, factor, squares, truncation_bound)

    def _write(self, run: Run, summary: Summary, units: Float64, fingerprint: str) -> dict[str, Any]:
        """Decompose ``summary``, with columns in ``units`` (n,); write components, and return the facts."""
        small = {"mean": summary.mean * units} if self.model.is_centered else {}
        scale, constant_columns = np.ones(1), list[int]()
        if self._fit_request["scale"]:
            deviation = np.sqrt(summary.squares / max(summary.count - 1, 1))
            deviation[deviation <= CONSTANT_DEVIATION * np.abs(summary.mean)] = 0.0
            scale, constant_columns = divisors(deviation), warn_of_constant(run, deviation)
            small["scale"] = scale * units
        _, s, vt = np.linalg.svd(summary.factor / scale, full_matrices=False)
        next_value = float(s[self.rank]) if self.rank < len(s) else 0.0
        s, vt = s[: self.rank], vt[: self.rank]
        s[s <= zero(max(summary.factor.shape)) * s[0]] = 0.0
        truncation_bound = summary.truncation_bound / float(scale.min()) ** 2
        total = float((summary.squares / scale**2).sum())
        errors = self._errors(s, truncation_bound, summary)
        small |= {
            self.model.right_name: (vt * fix_signs(vt.T)[:, None]).astype(self.model.dtype),
            "error_estimates": errors,
            "residuals": self._residuals(s, truncation_bound),
        }
        if self.model.is_centered:
            share = s**2 / total if total > 0 else np.zeros_like(s)
            variance = s**2 / max(summary.count - 1, 1)
            small |= dict(zip(VARIANCES, (s, variance, share), strict=True))
        else:
            small[self.model.factors.spectrum] = s
        write_outputs(run.result, small)
        facts = self._facts(run, summary, s, total, float(errors.max()), fingerprint)
        carried = {
            "lost_squares": truncation_bound + next_value**2,
            "error": self._old_error + float((self._rounding_errors(s, summary) * s).max()),
            "residual": self._old_residual,
        }
        return {**facts, "unscaled": constant_columns, "carried": carried}

    @property
    def _carried(self) -> dict[str, float]:
        """Bounds that an earlier update stored with its result, by name; empty if the result is of a fit.

        ``lost_squares`` bounds by how much any squared singular value is below that of all samples, whatever
        its size: each update truncates a scatter of its own, and these bounds add up. ``error`` and
        ``residual`` are those of ``_old_error`` and ``_old_residual``.
        """
        return dict(self.model.result.attrs.get("carried", {}))

    @property
    def _old_error(self) -> float:
        """Bound of the absolute error of old singular values, by their solver and by rounding since."""
        errors = np.asarray(self.model.result.error_estimates[...]) * self.model.s
        return self._carried.get("error", float(errors.max()))

    @property
    def _old_residual(self) -> float:
        """Largest residual |A'A v - s^2 v| of the old components, as their solver found it."""
        residuals = np.asarray(self.model.result.residuals[...]) * self.model.s * self.model.s[0]
        return self._carried.get("residual", float(residuals.max()))

    @property
    def _rounding(self) -> float:
        return float(np.finfo(self.model.dtype).eps)

    def _errors(self, s: Float64, truncation_bound: float, summary: Summary) -> Float64:
        """(k,) estimated relative errors of values ``s``, by those of old values, truncation and rounding.

        ``truncation_bound`` bounds by how much any squared value is too small.
        """
        size, rounding = np.where(s > 0, s, np.inf), self._rounding_errors(s, summary)
        errors = errors_of_remainder(s, truncation_bound) + self._old_error / size + rounding
        errors = np.minimum(errors, 1.0)
        errors[s <= 0] = float(np.sqrt(truncation_bound) + self._old_error > 1e-10 * s[0])
        return np.asarray(errors)

    def _rounding_errors(self, s: Float64, summary: Summary) -> Float64:
        """(k,) relative rounding errors of values ``s``.

        A mean is accurate to eps of itself, and its shift by the new samples is a row of the factor.
        """
        rows, new = summary.count, self.source.shape[0]
        mean_shift = 2 * np.sqrt(new * (rows - new) / rows) * np.linalg.norm(summary.mean)
        size = np.where(s > 0, s, np.inf)
        return np.asarray((self._rounding * s[0] + EPS * mean_shift) / size)

    def _residuals(self, s: Float64, truncation_bound: float) -> Float64:
        """(k,) residuals relative to the largest value, from truncation and from the old components."""
        residual = truncation_bound + self._old_residual
        size = np.where(s > 0, s * s[0], np.inf)
        return np.minimum(residual / size, 1.0) + self._rounding

    def _facts(
        self, run: Run, summary: Summary, s: Float64, total: float, worst: float, fingerprint: str
    ) -> dict[str, Any]:
        """Reproducible facts of the update: ``total`` is the sum of squares, ``worst`` the largest error.

        ``s`` (k,) are the new singular values. Warns if ``worst`` is above the tolerance.
        """
        tol = DEFAULT_TOL if self._fit_request.get("adaptive") else self._fit_request["tol"]
        if not has_converged(worst, tol):
            error, allowed = in_words(worst, tol)
            run.warnings.append(
                f"the largest estimated error of a singular value is {error}, above tol = {allowed}: the "
                f"{self.model.rank} components of {self.model.result.path.name} leave out variance of its "
                "samples that these values may need. Fit with more components, or all, before updating"
            )
        facts = run.facts(self.request(), "update", self.whole or self.source, fingerprint)
        facts["input"]["shape"] = [summary.count, self.source.shape[1]]
        share = float((s**2).sum() / total) if total > 0 else 1.0
        return {
            **facts,
            "added_rows": self.source.shape[0],
            **claim(worst, tol),
            "squared_norm": total,
            "captured": min(share, 1.0),
        }


def update_task(result: FactorModel | Result | str | Path, x: object, arguments: UpdateArguments) -> Update:
    """Make the task that updates ``result`` with the new rows ``x``."""
    model = open_model(result)
    return Update.of(model, model.source(x), arguments.rank)


@dataclass(frozen=True, slots=True)
class KeepRows(OverPanels):
    """Fold that copies a matrix into memory as float64: its one sum holds all rows."""

    panels: Panels
    """Panels (rows read at a time) of the matrix."""

    row_seconds: float

    def sums(self) -> Mapping[str, Sum]:
        """The sum ``rows`` (m, n) of all rows, and ``bad``, count and first position of NaN and Inf.

        Each stream (part of the rows) fills in its own rows and leaves the others 0.
        """
        return {"rows": Sum(self.panels.view.source.shape), "bad": BAD}

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Copy rows ``start:stop``, read into panel buffer ``slot``, to ``state["rows"]``.

        Grains (rows of one product) with NaN or Inf are counted and left out.
        """
        for grain in self.panels.grains(work.panels, start, stop, slot):
            if self.is_finite(state, work, grain, grain.raw):
                state["rows"][grain.first : grain.last] = grain.raw


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of m samples of n features about their mean; about 0, with a mean of 0, if not centered."""

    count: int
    """Number m of samples."""

    mean: Float64
    """(n,) mean of the samples."""

    factor: Float64
    """(p, n), p <= n: ``factor.T @ factor`` is the scatter matrix of the samples, except for truncation."""

    squares: Float64
    """(n,) centered sums of squares of each feature, or (1,) their total. Truncation does not change them."""

    truncation_bound: float = 0.0
    """Upper bound on how much truncation reduced any squared singular value of the samples."""

    @classmethod
    def of_rows(cls, rows: Float64, *, center: bool) -> Summary:
        """Summary of samples in memory, (m, n), about their mean if ``center``."""
        mean = rows.mean(axis=0) if center else np.zeros(rows.shape[1])
        factor = rows - mean
        if center:  # for a mean of 1e8 and deviations of 1, one sum leaves an error of 1e-8
            mean_residual = factor.mean(axis=0)
            mean, factor = mean + mean_residual, factor - mean_residual
        return cls(len(rows), mean, _short(factor), np.einsum("ij,ij->j", factor, factor))

    @property
    def total(self) -> float:
        """Sum of squares over all features."""
        return float(self.squares.sum())

    def cut_to(self, rows: int) -> Summary:
        """The summary with its factor truncated to at most ``rows`` rows, along the leading directions."""
        if rows >= len(self.factor):
            return self
        _, s, vt = np.linalg.svd(self.factor, full_matrices=False)
        return replace(
            self,
            factor=s[:rows, None] * vt[:rows],
            truncation_bound=self.truncation_bound + float(s[rows] ** 2),
        )


def merge_summaries(a: Summary, b: Summary) -> Summary:
    """Merge two summaries into that of all their samples; both are left as they are.

    Notes
    -----
    Work 2 p n min(p, n) flops for p rows of both factors together, by Householder reflections, no squares.

    References
    ----------
    Chan, Golub, LeVeque, The American Statistician 37(3), 1983, for the contribution of the means to the
    scatter of two groups; it is one more row of the factor.
    """
    count = a.count + b.count
    apart = b.mean - a.mean
    between = np.sqrt(a.count * b.count / count) * apart
    squares = between**2
    return Summary(
        count,
        a.mean + apart * (b.count / count),
        _short(np.vstack([a.factor, b.factor, between])),
        a.squares + b.squares + (squares if len(a.squares) == len(squares) else squares.sum()),
        a.truncation_bound + b.truncation_bound,
    )


def _short(factor: Float64) -> Float64:
    """A factor (p, n) of the same scatter matrix with no more rows than columns, by QR."""
    return panel_r(factor) if len(factor) > factor.shape[1] else factor
