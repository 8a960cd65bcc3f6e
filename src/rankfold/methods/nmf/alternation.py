"""Iterations of a nonnegative factorization over the matrix: each reads it once.

The long factor has a row for each row of the matrix, or for each column if the matrix is swept along its
columns; the short factor is the other one. The long factor is improved row by row while a panel (rows read at
a time) is in memory. The short factor is improved at the end of the read, from sums no larger than itself.
The error follows from the same sums.

Penalties of nonnegative factors, in a normalization where they are meaningful.

One factor can be made smaller and the other larger without changing their product. If both are penalized,
the penalties fix their sizes, and they are scikit-learn's. A penalty on one factor alone would shrink it to
zero; it is therefore evaluated with each component of the other factor scaled to unit norm. With a_j and b_j
the components of the penalized factor and of the other:

    l1 sum_j |a_j|_1 |b_j|_2 + l2/2 sum_j |a_j|^2 |b_j|^2

For fixed b this is again linear plus quadratic in a. In b only |b_j|_2 is not. It is bounded from above by
|b_j|^2 / (2 c) + c / 2, with c the current |b_j|: updates still never raise the objective.

References
----------
Hunter, Lange, A tutorial on MM algorithms, The American Statistician 58(1), 2004: why minimizing a bound that
touches the objective never raises the objective.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.kernels.nonnegative.projected_gradient import gradient_rows
from rankfold.methods.nmf.passes.choice import divergence_pass, finish, nonnegative_pass
from rankfold.methods.nmf.passes.divergence import below, independence_divergence
from rankfold.methods.nmf.passes.frobenius import NmfIteration
from rankfold.methods.nmf.passes.sparse import DivergenceIteration
from rankfold.methods.nmf.request import FactorRequest
from rankfold.methods.nmf.row_solvers import (
    FILL,
    Descent,
    Multiplicative,
    Pivoting,
    RowSolver,
    Splitting,
    limits_of,
)
from rankfold.methods.parts.panels import refuse_bad, refuse_negative
from rankfold.methods.svd.operator import refuse_overflow
from rankfold.methods.svd.strategy import Strategy
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.blocks import grains
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.storage.checkpoint import State, save_once
from rankfold.pipeline.storage.scratch import ScratchMatrix

Float64 = npt.NDArray[np.float64]

SWEEPS = 10
"""Sweeps of descent, or updates, of a factor in each iteration: cheap beside products with the data."""

PLACES = 4096
"""Number of columns of the short factor that are solved together, so that buffers stay in cache."""

DIFFERENCE = 30_000
"""Threshold for the relative squared error, in units of rounding of the working type.

Below it squares of the residual are summed explicitly instead of by a difference. Products in the working
type change that difference by up to five units, so errors are accurate to 1e-4."""


@dataclass(slots=True)
class Factors:
    """Both factors of a matrix seen as long by short."""

    short: Float64
    """(k, short) in float64, with numbers rounded to the working type."""

    long: ScratchMatrix | None = None
    """(long, k) on scratch; None before a step has solved it from the short factor."""

    sizes: Sizes | None = None
    """Sums and sums of squares of the components of the long factor; None before the first step."""

    def require_long(self) -> tuple[ScratchMatrix, Sizes]:
        """The long factor and its sizes; ``LookupError`` before the first step."""
        if self.long is None or self.sizes is None:
            raise LookupError("no step has been made")
        return self.long, self.sizes

    def remove_long(self, run: Run) -> None:
        """Delete the scratch file of the long factor, if there is one."""
        if self.long is not None:
            run.release(self.long)


@dataclass(frozen=True, slots=True)
class StepError:
    """Errors that belong to one step: one read of the matrix that improves both factors."""

    error: float
    """Relative error: over the Frobenius norm of the matrix, or over its divergence from independence."""

    cost: float
    """Relative error with penalties included, the quantity that falls."""

    stationarity: float
    """Norm of the projected gradient of the factors before the step, or NaN."""


class Alternation(Protocol):
    """Iterations of a factorization, with the current factors."""

    factors: Factors
    total: float
    """``|X|^2``, once a pass has computed it."""

    def step(self, run: Run) -> StepError:
        """Improve both factors in one read of the matrix."""


@dataclass(frozen=True, slots=True)
class Model:
    """Parameters of a factorization, in terms of long and short side, not rows and columns."""

    parameters: FactorRequest
    view: View
    pow2_scale: float
    """Power of two that brings the largest numbers of the matrix near 1."""

    @property
    def by_rows(self) -> bool:
        """True if W is the long factor."""
        return self.view.orientation is Orientation.ROWS

    @property
    def balance(self) -> float:
        """Power of two near the typical number of both factors if these are of equal size.

        Factors of that size keep squares in range."""
        return float(np.exp2(np.round(-np.log2(self.pow2_scale) / 2)))

    def for_start(self) -> Model:
        """The model used to find a start: least squares, by descent unless the solver is ADMM."""
        model = self if self.parameters.loss == "frobenius" else self.without_penalties()
        solver = "admm" if self.parameters.solver == "admm" else "hals"
        return dataclasses.replace(model, parameters=dataclasses.replace(model.parameters, solver=solver))

    def without_penalties(self) -> Model:
        """A copy of the model without penalties, to find components before penalties may remove some."""
        parameters = dataclasses.replace(self.parameters, alpha_w=0.0, alpha_h=0.0)
        return dataclasses.replace(self, parameters=parameters)

    def penalties(self, share: float = 1.0) -> tuple[Penalty, Penalty]:
        """Penalties of the long and the short factor, for a long factor with a ``share`` of all rows.

        A penalty on the short factor alone includes norms of the long one, which a share of rows has reduced
        already.
        """
        parameters, (rows, columns) = self.parameters, self.view.source.shape
        both = (
            Penalty.of(parameters.alpha_w, parameters.l1_ratio, columns),
            Penalty.of(parameters.alpha_h, parameters.l1_ratio, rows),
        )
        long, short = both if self.by_rows else both[::-1]
        return long, short.scale(share) if long else Penalty(short.l1 * share**0.5, short.l2)

    def solvers(self, *, sweeps: int = SWEEPS, scales: tuple[float, float] = (0.0, 0.0)) -> Solvers:
        """Solvers of the long and the short factor."""
        bounds = (self.parameters.constraint_w, self.parameters.constraint_h)
        long, short = bounds if self.by_rows else bounds[::-1]
        return self._solver(long, sweeps, scales[0]), self._solver(short, SWEEPS, scales[1])

    def _solver(self, bound: str | float, sweeps: int, scale: float) -> RowSolver:
        if self.parameters.solver == "bpp":
            return Pivoting()
        if self.parameters.solver == "admm":
            return Splitting(sweeps, *limits_of(bound))
        return Multiplicative(sweeps, scale) if self.parameters.solver == "mu" else Descent(sweeps)

    def round_to_type(self, short: Float64) -> Float64:
        """Round a short factor to the working type; the result is float64 for sums."""
        return np.ascontiguousarray(short.astype(self.view.dtype), np.float64)

    def scales(self, short: Float64) -> tuple[float, float]:
        """Typical sizes of numbers in the long factor and in ``short``, such that products fit the matrix."""
        size = float(short.mean())
        return (1 / self.pow2_scale / len(short) / size if size > 0 else 1.0), size

    def fill_zeros(self, short: Float64) -> Float64:
        """Raise small numbers of a short factor above zero, which multiplicative updates cannot leave."""
        return self.round_to_type(np.maximum(short, FILL * short.mean(axis=1)[:, None]))

    def without_floor(self, short: Float64) -> Float64:
        """A short factor with zeros where multiplicative updates stopped at their floor."""
        if self.parameters.solver != "mu":
            return short
        floor = 2 * float(np.finfo(self.view.dtype).eps) * self.scales(short)[1]
        return np.where(short > floor, short, 0.0)

    def factor(self, folder: Any, index: int) -> ScratchMatrix:
        """Scratch matrix of the long factor after ``index`` iterations."""
        return self._scratch(folder / f"factor-{index:03d}.bin")

    def compressed_factor(self, folder: Any, index: int) -> ScratchMatrix:
        """Scratch matrix of the long factor of sweep ``index`` over a compressed matrix."""
        return self._scratch(folder / f"compressed-{index:03d}.bin")

    def _scratch(self, path: Any) -> ScratchMatrix:
        return ScratchMatrix(path, self.view.long, self.parameters.rank, self.view.dtype)


Solvers = tuple[RowSolver, RowSolver]


def linear_model(model: Model, factors: Factors, *, share: float = 1.0) -> dict[str, Float64]:
    """Arrays of the normal equations of the long factor, except products with the data.

    They are the short factor ``right`` (short, k), its ``gram`` (k, k), and the terms of penalties,
    ``linear`` (k,) and ``diagonal`` (k,).
    """
    long, short = model.penalties(share)
    gram, k = factors.short @ factors.short.T, len(factors.short)
    mine = factors.sizes or Sizes(np.zeros(k), np.zeros(k))
    linear, diagonal = weights(long, short, mine, Sizes.of(factors.short.T))
    return {"right": factors.short.T, "gram": gram, "linear": linear, "diagonal": diagonal}


@dataclass(slots=True)
class ShortUpdate:
    """A new short factor, and the errors and gradient that follow from it."""

    short: Float64
    squares: float
    """``|X - L S|^2 - |X|^2`` with the new factor."""

    change: float
    """``squares`` minus its value with the old factor."""

    slope: Float64
    """(k,) sums of squares of the projected gradient of the short factor, for each component."""


def improve_short(
    model: Model, factors: Factors, state: State, product: Float64, solver: RowSolver, *, share: float = 1.0
) -> ShortUpdate:
    """Solve the short factor from ``product`` (k, short), the product of the long factor with the data."""
    long, short = model.penalties(share)
    sizes = sizes_of(state)
    linear, diagonal = weights(short, long, Sizes.of(factors.short.T), sizes)
    gram, short_rows = state["gram"] + np.diag(diagonal), np.ascontiguousarray(factors.short.T)
    right = np.ascontiguousarray(product.T)
    solver.improve(gram, right.copy(), linear, short_rows, fresh=False)
    new = model.round_to_type(short_rows.T)
    difference, slope = new - factors.short, state["gram"] @ factors.short - product
    change = 2 * float((slope * difference).sum()) + float(((state["gram"] @ difference) * difference).sum())
    squares = float((state["gram"] * (new @ new.T)).sum() - 2 * (new * product).sum())
    gradient = gradient_rows(gram, right - linear, solver.clear_floor(np.ascontiguousarray(new.T)))
    return ShortUpdate(new, squares, change, gradient)


def improve_short_rows(model: Model, factors: Factors, state: State, solver: RowSolver) -> ShortUpdate:
    """Solve the short factor of a sparse matrix, whose sums hold a transposed product (short, k).

    It is solved in the working type, a block of columns at a time: with few stored numbers, solving may take
    longer than the products.
    """
    long, short = model.penalties()
    gram, dtype, places = state["gram"], model.view.dtype, factors.short.shape[1]
    linear, diagonal = weights(short, long, Sizes.of(factors.short.T), sizes_of(state))
    penalized, other = gram + np.diag(diagonal), np.zeros_like(gram)
    system = penalized.astype(dtype), linear.astype(dtype)
    new, gradient, meeting, change = np.empty_like(factors.short), np.zeros(len(gram)), 0.0, 0.0
    for first, last in grains(0, places, PLACES):
        product, before = state["product"][first:last], np.ascontiguousarray(factors.short[:, first:last].T)
        rows = before.astype(dtype)
        solver.improve(system[0], product.astype(dtype), system[1], rows, fresh=False)
        wide = rows.astype(np.float64)
        new[:, first:last] = wide.T
        gradient += gradient_rows(penalized, product - linear, solver.clear_floor(wide))
        meeting += float(np.vdot(wide, product))
        other += wide.T @ wide
        difference = wide - before
        change += float(np.vdot(2 * (before @ gram - product) + difference @ gram, difference))
    return ShortUpdate(new, float((gram * other).sum()) - 2 * meeting, change, gradient)


@dataclass(slots=True)
class Frobenius:
    """Iterations that lower ``|X - L S|^2 / 2`` plus penalties."""

    model: Model
    layout: Strategy
    factors: Factors
    total: float = 0.0
    """``|X|^2``; 0 until a pass has computed it."""

    error: float = np.inf
    slope: Float64 | None = None
    index: int = 0
    sums: tuple[Float64, Float64] | None = None
    """``L' L`` (k, k) and ``L' X`` (k, short), with L the long factor."""

    def step(self, run: Run) -> StepError:
        """Improve both factors in one read; the error refers to the new factors."""
        model, factors = self.model, self.factors
        solve_long, solve_short = model.solvers(scales=model.scales(factors.short))
        after, close = model.factor(run.scratch, self.index + 1), self._is_close()
        state = self._sum(run, after, solve_long, close=close)
        refuse_overflow(state, model.view, "product")
        refuse_negative(state, model.view.source)
        self.total = self.total or float(state["squares"][0])
        if self.layout.fullest:
            update = improve_short_rows(model, factors, state, solve_short)
        else:
            update = improve_short(model, factors, state, state["product"], solve_short)
        product = state["product"].T if self.layout.fullest else state["product"]
        self.sums = state["gram"], np.ascontiguousarray(product)
        stationarity = self._stationarity(state["gradient"])
        self._take(run, Factors(update.short, after, sizes_of(state)), update.slope)
        if close:
            residual = float(state["residual"][0])
            if self.layout.fullest:  # the difference of two sums in float64
                residual = max(residual, float(np.finfo(np.float64).eps) * self.total)
            return self._step_error(residual + update.change, stationarity)
        # An error below rounding of the difference need not be zero: the next pass computes it explicitly.
        least = float(np.finfo(model.view.dtype).eps) * self.total
        return self._step_error(max(self.total + update.squares, least), stationarity)

    def _sum(self, run: Run, after: ScratchMatrix, solver: RowSolver, *, close: bool) -> State:
        """Write the improved long factor to ``after``; return the sums that the short one is solved from."""
        model, factors, name = self.model, self.factors, f"iteration-{run.passes + 1:02d}"
        constants = save_once(run.part(name, "constants.part"), linear_model(model, factors))
        iteration = NmfIteration(constants, factors.long, after, solver, residual=close)
        seconds = self.layout.row_seconds((6 if close else 4) * model.parameters.rank)
        panels = dataclasses.replace(self.layout.panels(run.slots), borrows=True)
        fold = nonnegative_pass(self.layout, panels, iteration, seconds, first_pass=self.index == 0)
        return run.pass_over_data(name, fold)

    def _is_close(self) -> bool:
        """True if the error is small enough that squares of the residual are summed explicitly.

        For a sparse matrix these are a difference in float64, which is no gain if that is the working type.
        """
        dtype = self.model.view.dtype
        if self.layout.fullest and dtype == np.float64:
            return False
        return bool(self.error**2 < DIFFERENCE * float(np.finfo(dtype).eps))

    def _stationarity(self, gradient: Float64) -> float:
        """Norm of the projected gradient over ``|X|``, with components of the other factor at unit norm."""
        sizes = self.factors.sizes
        if self.slope is None or sizes is None or not self.total > 0:
            return float("nan")
        own = _over(gradient, (self.factors.short**2).sum(axis=1)) + _over(self.slope, sizes.squares)
        return float(np.sqrt(own / self.total))

    def _take(self, run: Run, factors: Factors, slope: Float64) -> None:
        self.factors.remove_long(run)
        self.factors, self.slope, self.index = factors, slope, self.index + 1

    def _step_error(self, squares: float, stationarity: float) -> StepError:
        if not self.total > 0:
            return StepError(0.0, 0.0, stationarity)
        self.error = float(np.sqrt(max(squares, 0.0) / self.total))
        more = 2 * penalty_of(self.model, self.factors)
        return StepError(self.error, float(np.sqrt(max(squares + more, 0.0) / self.total)), stationarity)


@dataclass(slots=True)
class KullbackLeibler:
    """Iterations that lower ``sum x log(x / y) - x + y``, y = L S, plus penalties."""

    model: Model
    layout: Strategy
    factors: Factors
    total: float = 0.0
    whole: float = 0.0
    """Divergence of the matrix from the product of its row and column sums: ``independence_divergence``."""

    index: int = 0

    def step(self, run: Run) -> StepError:
        """Improve both factors in one read; the error is from before the update of the short factor."""
        model, factors, name = self.model, self.factors, f"iteration-{run.passes + 1:02d}"
        view, scale = model.view, np.full(1, model.scales(factors.short)[0])
        arrays = {**linear_model(model, factors), "scale": scale}
        constants = save_once(run.part(name, "constants.part"), arrays)
        after = model.factor(run.scratch, self.index + 1)
        seconds = self.layout.row_seconds(14 * model.parameters.rank)
        panels = dataclasses.replace(self.layout.panels(run.slots), borrows=True)
        iteration = DivergenceIteration(constants, factors.long, after)
        fold = divergence_pass(self.layout, panels, iteration, seconds, first_pass=self.index == 0)
        state = finish(fold, run.pass_over_data(name, fold))
        refuse_bad(state, view.source)
        refuse_negative(state, view.source)
        if not self.index:
            self.whole, self.total = independence_divergence(state), float(state["squares"][0])
        divergence = float(state["divergence"][0])
        cost = divergence + penalty_of(model, Factors(factors.short, after, sizes_of(state)))
        self._take(run, state, after)
        if not self.whole > 0:
            return StepError(0.0, 0.0, float("nan"))
        return StepError(max(divergence, 0.0) / self.whole, cost / self.whole, float("nan"))

    def _take(self, run: Run, state: State, after: ScratchMatrix) -> None:
        factors, (long, short) = self.factors, self.model.penalties()
        sizes = sizes_of(state)
        linear, diagonal = weights(short, long, Sizes.of(factors.short.T), sizes)
        above = factors.short * state["product"]
        new = above / below(above, (state["sums"] + linear)[:, None], diagonal[:, None])
        factors.remove_long(run)
        floor = float(np.finfo(self.model.view.dtype).eps) * self.model.scales(factors.short)[1]
        short_factor = self.model.round_to_type(np.maximum(new, floor))
        self.factors, self.index = Factors(short_factor, after, sizes), self.index + 1


def sizes_of(state: State) -> Sizes:
    """Sums and sums of squares of the components of the long factor, from the sums of a pass."""
    return Sizes(state["sums"], np.diag(state["gram"]))


def _over(squares: Float64, norms: Float64) -> float:
    return float(np.divide(squares, norms, out=np.zeros_like(squares), where=norms > 0).sum())


def penalty_of(model: Model, factors: Factors) -> float:
    return penalty(*model.penalties(), factors.require_long()[1], Sizes.of(factors.short.T))


@dataclass(frozen=True, slots=True)
class Penalty:
    """Weights of the sum of a factor's elements and of half their squares."""

    l1: float = 0.0
    l2: float = 0.0

    @classmethod
    def of(cls, alpha: float, l1_ratio: float, count: int) -> Penalty:
        """Penalty as in scikit-learn, for a factor whose other side has ``count`` rows or columns."""
        return cls(alpha * l1_ratio * count, alpha * (1 - l1_ratio) * count)

    def __bool__(self) -> bool:
        return self.l1 > 0 or self.l2 > 0

    def scale(self, share: float) -> Penalty:
        """The penalty with both weights times ``share``, for a factorization of a share of the rows."""
        return Penalty(self.l1 * share, self.l2 * share)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sums and sums of squares, each (k,), of the components of a factor; penalties follow from them."""

    sums: Float64
    squares: Float64

    @classmethod
    def of(cls, columns: npt.NDArray[np.floating]) -> Sizes:
        """Sizes of a factor (r, k) whose components are columns."""
        return cls(
            columns.sum(axis=0, dtype=np.float64), np.einsum("ij,ij->j", columns, columns, dtype=float)
        )


def weights(own: Penalty, other: Penalty, mine: Sizes, theirs: Sizes) -> tuple[Float64, Float64]:
    """Terms of the penalties in the normal equations of a factor, ``linear`` (k,) and ``diagonal`` (k,).

    A solver subtracts the first from products with the data, and adds the second to the diagonal of the Gram
    matrix. ``own`` and ``mine`` are of the factor to solve, ``other`` and ``theirs`` of the other factor.
    """
    k = len(mine.sums)
    if bool(own) == bool(other):
        return np.full(k, own.l1), np.full(k, own.l2)
    if own:
        return own.l1 * np.sqrt(theirs.squares), own.l2 * theirs.squares
    norms = np.sqrt(mine.squares)
    inverse = np.divide(1.0, norms, out=np.zeros(k), where=norms > 0)
    return np.zeros(k), other.l1 * theirs.sums * inverse + other.l2 * theirs.squares


def cheapest(first: Penalty, second: Penalty, one: Sizes, two: Sizes) -> Float64:
    """Scales (k,) of components that make the penalty least without a change of the product.

    Components of the second factor are to be multiplied by them, those of the first divided.
    """
    if not (first and second):
        return np.ones(len(one.sums))
    alive = (one.squares > 0) & (two.squares > 0)
    low, high = np.full(len(one.sums), -200.0), np.full(len(one.sums), 200.0)
    for _ in range(60):
        middle = (low + high) / 2
        d = np.exp(middle)
        rises = second.l1 * two.sums * d + second.l2 * two.squares * d**2
        more = rises > first.l1 * one.sums / d + first.l2 * one.squares / d**2
        low, high = np.where(more, low, middle), np.where(more, middle, high)
    return np.where(alive, np.exp(low), 1.0)


def penalty(first: Penalty, second: Penalty, one: Sizes, two: Sizes) -> float:
    """Value of the penalty for two factors."""
    if bool(first) == bool(second):
        value = first.l1 * one.sums.sum() + first.l2 / 2 * one.squares.sum()
        return float(value + second.l1 * two.sums.sum() + second.l2 / 2 * two.squares.sum())
    if second:
        first, one, two = second, two, one
    norms = np.sqrt(two.squares)
    return float(first.l1 * (one.sums * norms).sum() + first.l2 / 2 * (one.squares * two.squares).sum())
