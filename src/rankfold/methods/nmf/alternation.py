"""Iterations of a nonnegative factorization over the matrix: each reads it once.

The long factor has a row for each row of the matrix, or for each column if the matrix is swept along its
columns; the short factor is the other one. The long factor is improved row by row while a panel (rows read at
a time) is in memory. The short factor is improved at the end of the read, from sums no larger than itself.
The error follows from the same sums.

The module also has the penalties of the factors. One factor can be made smaller and the other larger without
changing their product. If both are penalized, the penalties fix the sizes of the factors, and are those of
scikit-learn. A penalty on one factor alone would shrink that factor to zero; it is therefore evaluated with
each component of the other factor scaled to unit norm. With a_j and b_j the components of the penalized
factor and of the other:

    l1 sum_j |a_j|_1 |b_j|_2 + l2/2 sum_j |a_j|^2 |b_j|^2

For fixed b this is again linear plus quadratic in a. For fixed a it would be so in b, but for |b_j|_2. That
is bounded from above by |b_j|^2 / (2 c) + c / 2, with c the current |b_j|: updates still never raise the
objective.

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
"""Number of sweeps over its components (of descent, ADMM or multiplicative updates) that a factor gets in
each iteration over the matrix: cheap beside products with the data."""

PLACES = 4096
"""Number of columns of the short factor that are solved together, so that buffers stay in cache."""

DIFFERENCE = 30_000
"""Threshold for the relative squared error, in multiples of the machine epsilon of the working type.

Below it squares of the residual are summed explicitly. Above it they are computed as ``|X|^2`` plus terms of
nearly that size, which rounding of the products changes by up to five epsilons of ``|X|^2``: errors are
accurate to 1e-4."""


@dataclass(slots=True)
class Factors:
    """Both factors of a matrix that is seen as (long, short): the product of ``long`` and ``short``."""

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
    """Relative error: Frobenius norm of the residual over that of the matrix, or Kullback-Leibler divergence
    from the factors over that from independence of rows and columns."""

    cost: float
    """``error`` with the penalties included: the quantity that iterations lower."""

    stationarity: float
    """Norm of the projected gradient at the factors before the step, over ``|X|``; NaN where it is unknown,
    as in a first step or for multiplicative updates of a divergence."""


class Alternation(Protocol):
    """Iterations of a factorization, with the current factors."""

    factors: Factors
    total: float
    """``|X|^2``, the squared Frobenius norm of the matrix; 0 until a pass has computed it."""

    def step(self, run: Run) -> StepError:
        """Improve ``factors`` in one read of the matrix, and return the errors of this step."""


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
        """Power of two near the size of a typical number of either factor, if both have numbers of one size.

        Squares of numbers of that size stay in the range of the working type."""
        return float(np.exp2(np.round(-np.log2(self.pow2_scale) / 2)))

    def for_start(self) -> Model:
        """A copy of the model with which a start is found by least squares, whatever the loss.

        Its solver is HALS, or ADMM if that of this model is. It has no penalties if the loss is a divergence.
        """
        model = self if self.parameters.loss == "frobenius" else self.without_penalties()
        solver = "admm" if self.parameters.solver == "admm" else "hals"
        return dataclasses.replace(model, parameters=dataclasses.replace(model.parameters, solver=solver))

    def without_penalties(self) -> Model:
        """A copy of the model without penalties, to find components before penalties may remove some."""
        parameters = dataclasses.replace(self.parameters, alpha_w=0.0, alpha_h=0.0)
        return dataclasses.replace(self, parameters=parameters)

    def penalties(self, share: float = 1.0) -> tuple[Penalty, Penalty]:
        """Penalties of the long and of the short factor, if the long one has only a ``share`` of its rows.

        ``share`` is a fraction, 1 for all rows. A penalty on the short factor alone is multiplied by norms of
        the long factor (see ``weights``), which the missing rows have reduced already.
        """
        parameters, (rows, columns) = self.parameters, self.view.source.shape
        both = (
            Penalty.of(parameters.alpha_w, parameters.l1_ratio, columns),
            Penalty.of(parameters.alpha_h, parameters.l1_ratio, rows),
        )
        long, short = both if self.by_rows else both[::-1]
        return long, short.scale(share) if long else Penalty(short.l1 * share**0.5, short.l2)

    def solvers(self, *, sweeps: int = SWEEPS, scales: tuple[float, float] = (0.0, 0.0)) -> Solvers:
        """Solvers of the long and of the short factor.

        ``sweeps`` is the number of sweeps over the components of the long factor; the short one gets
        ``SWEEPS``. ``scales`` are the sizes of a typical number in the long and the short factor, which only
        multiplicative updates use.
        """
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
        """A copy of a short factor, rounded to the working type and converted back to float64."""
        return np.ascontiguousarray(short.astype(self.view.dtype), np.float64)

    def scales(self, short: Float64) -> tuple[float, float]:
        """Sizes of a typical number in the long factor and in ``short`` (k, short), such that their product
        has numbers of the size of those in the matrix."""
        size = float(short.mean())
        return (1 / self.pow2_scale / len(short) / size if size > 0 else 1.0), size

    def fill_zeros(self, short: Float64) -> Float64:
        """A copy of ``short`` (k, short) without zeros, which multiplicative updates cannot leave.

        Numbers below ``FILL`` times the mean of their component are raised to that.
        """
        return self.round_to_type(np.maximum(short, FILL * short.mean(axis=1)[:, None]))

    def without_floor(self, short: Float64) -> Float64:
        """``short`` (k, short) with zeros where multiplicative updates have left numbers at their floor."""
        if self.parameters.solver != "mu":
            return short
        floor = 2 * float(np.finfo(self.view.dtype).eps) * self.scales(short)[1]
        return np.where(short > floor, short, 0.0)

    def factor(self, folder: Any, index: int) -> ScratchMatrix:
        """Scratch matrix (long, k), a file in ``folder``, for the long factor after ``index`` iterations."""
        return self._scratch(folder / f"factor-{index:03d}.bin")

    def compressed_factor(self, folder: Any, index: int) -> ScratchMatrix:
        """Scratch matrix (long, k) in ``folder`` for the long factor that iteration ``index`` over the
        compressed matrix makes, counted from 0."""
        return self._scratch(folder / f"compressed-{index:03d}.bin")

    def _scratch(self, path: Any) -> ScratchMatrix:
        return ScratchMatrix(path, self.view.long, self.parameters.rank, self.view.dtype)


Solvers = tuple[RowSolver, RowSolver]


def linear_model(model: Model, factors: Factors, *, share: float = 1.0) -> dict[str, Float64]:
    """Arrays of the normal equations of the long factor, except products with the data.

    They are the short factor ``right`` (short, k), its ``gram`` (k, k), and the terms of penalties,
    ``linear`` (k,) and ``diagonal`` (k,). ``share`` is the fraction of all long rows that are factorized.
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
    """(k, short) new short factor, with numbers rounded to the working type."""

    squares: float
    """``|X - L S|^2 - |X|^2`` with the new short factor S and the long factor L; 0 for weighted entries,
    where it is not needed."""

    change: float
    """``|X - L S|^2`` with the new short factor S minus that with the old one; L is the long factor."""

    slope: Float64
    """(k,) sums of squares of the projected gradient at the new short factor, for each component."""


def improve_short(
    model: Model, factors: Factors, state: State, product: Float64, solver: RowSolver, *, share: float = 1.0
) -> ShortUpdate:
    """Solve the short factor by ``solver``, starting from that of ``factors``, for the new long factor L.

    ``state`` has the sums ``gram`` (k, k), which is ``L'L``, and ``sums`` (k,), column sums of L; ``product``
    (k, short) is ``L'X``. ``share`` is the fraction of all long rows that L has.
    """
    long, short = model.penalties(share)
    sizes = sizes_of(state)
    linear, diagonal = weights(short, long, Sizes.of(factors.short.T), sizes)
    gram, short_rows = state["gram"] + np.diag(diagonal), factors.short.T.copy()
    right = np.ascontiguousarray(product.T)
    solver.improve(gram, right.copy(), linear, short_rows, fresh=False)
    new = model.round_to_type(short_rows.T)
    difference, slope = new - factors.short, state["gram"] @ factors.short - product
    change = 2 * float((slope * difference).sum()) + float(((state["gram"] @ difference) * difference).sum())
    squares = float((state["gram"] * (new @ new.T)).sum() - 2 * (new * product).sum())
    gradient = gradient_rows(gram, right - linear, solver.clear_floor(np.ascontiguousarray(new.T)))
    return ShortUpdate(new, squares, change, gradient)


def improve_short_rows(model: Model, factors: Factors, state: State, solver: RowSolver) -> ShortUpdate:
    """Solve the short factor of a sparse matrix; ``factors`` are not changed.

    ``state`` has the sums of a pass, of which ``product`` is ``X'L`` (short, k). The factor is solved in the
    working type, a block of columns at a time: with few stored numbers, solving may take longer than the
    products.
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
    """Iterations that lower ``|X - L S|^2 / 2`` plus penalties, with L the long factor and S the short."""

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
        """Improve ``factors`` in one read of the matrix; the errors returned are those of the new factors."""
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
        """Write the improved long factor to ``after``; return the sums that the short one is solved from.

        ``solver`` is that of long rows. ``close`` is True to sum squares of the residual explicitly.
        """
        model, factors, name = self.model, self.factors, f"iteration-{run.passes + 1:02d}"
        constants = save_once(run.part(name, "constants.part"), linear_model(model, factors))
        iteration = NmfIteration(constants, factors.long, after, solver, residual=close)
        seconds = self.layout.row_seconds((6 if close else 4) * model.parameters.rank)
        panels = dataclasses.replace(self.layout.panels(run.slots), borrows=True)
        fold = nonnegative_pass(self.layout, panels, iteration, seconds, first_pass=self.index == 0)
        return run.pass_over_data(name, fold)

    def _is_close(self) -> bool:
        """True if the error is small enough that squares of the residual are summed explicitly.

        For a sparse matrix this sum is a difference in float64, no gain if that is the working type.
        """
        dtype = self.model.view.dtype
        if self.layout.fullest and dtype == np.float64:
            return False
        return bool(self.error**2 < DIFFERENCE * float(np.finfo(dtype).eps))

    def _stationarity(self, gradient: Float64) -> float:
        """Norm of the projected gradient over ``|X|``, with components of the other factor at unit norm.

        ``gradient`` (k,) has the sums of squares of the projected gradient of the long factor. NaN if that of
        the short factor is unknown, as before the first step.
        """
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
    """Iterations that lower ``sum x log(x / y) - x + y`` plus penalties.

    The x are the entries of the matrix, and the y those of ``L S``, with L the long factor and S the short.
    """

    model: Model
    layout: Strategy
    factors: Factors
    total: float = 0.0
    whole: float = 0.0
    """Divergence of the matrix from independence of rows and columns, or ``|X|^2`` for a weighted Frobenius
    loss: losses are divided by it. 0 before the first step."""

    index: int = 0

    def step(self, run: Run) -> StepError:
        """Improve ``factors`` in one read of the matrix.

        The errors returned are those of the new long factor with the old short one.
        """
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
    """Sizes of the components of the long factor L, from the sums of a pass: ``sums`` (k,) of columns of L,
    and ``gram`` (k, k), which is ``L'L``."""
    return Sizes(state["sums"], np.diag(state["gram"]))


def _over(squares: Float64, norms: Float64) -> float:
    return float(np.divide(squares, norms, out=np.zeros_like(squares), where=norms > 0).sum())


def penalty_of(model: Model, factors: Factors) -> float:
    return penalty(*model.penalties(), factors.require_long()[1], Sizes.of(factors.short.T))


@dataclass(frozen=True, slots=True)
class Penalty:
    """Penalty of one factor: ``l1`` times the sum of its elements plus ``l2 / 2`` times that of squares."""

    l1: float = 0.0
    l2: float = 0.0

    @classmethod
    def of(cls, alpha: float, l1_ratio: float, count: int) -> Penalty:
        """Penalty as in scikit-learn: ``alpha * count``, of which ``l1`` is the share ``l1_ratio``.

        ``count`` is the number of columns of the matrix for a penalty of W, that of its rows for one of H.
        """
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

    Components of the second factor are to be multiplied by them, those of the first divided. ``first`` and
    ``one`` are penalty and sizes of the first factor, ``second`` and ``two`` of the second. The scales are
    ones unless both factors are penalized.
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
    """Value of the penalties of two factors, where one alone is normalized as the module says.

    ``first`` and ``one`` are penalty and sizes of the first factor, ``second`` and ``two`` of the second.
    """
    if bool(first) == bool(second):
        value = first.l1 * one.sums.sum() + first.l2 / 2 * one.squares.sum()
        return float(value + second.l1 * two.sums.sum() + second.l2 / 2 * two.squares.sum())
    if second:
        first, one, two = second, two, one
    norms = np.sqrt(two.squares)
    return float(first.l1 * (one.sums * norms).sum() + first.l2 / 2 * (one.squares * two.squares).sum())
