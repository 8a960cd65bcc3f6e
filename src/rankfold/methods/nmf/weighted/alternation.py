"""Iterations of a weighted factorization: each reads the matrix and its weights once.

The error follows from the residual in the pass, with the new long factor, and from the change of the short
factor after it. No digits are lost to a difference of large sums.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.nonnegative.weighted_rows import (
    descend_weighted_rows,
    gradient_weighted_rows,
    pair_count,
    pair_places,
)
from rankfold.methods.nmf.alternation import (
    SWEEPS,
    Factors,
    Frobenius,
    KullbackLeibler,
    Model,
    ShortUpdate,
    Sizes,
    StepError,
    linear_model,
    penalty_of,
    sizes_of,
    weights,
)
from rankfold.methods.nmf.passes.divergence import UPDATES
from rankfold.methods.nmf.weighted.least_squares import WeightedPass
from rankfold.methods.nmf.weighted.ratios import WeightedRatios, plain_divergence
from rankfold.methods.nmf.weighted.sources import Weights, refuse_bad_weights
from rankfold.methods.parts.panels import Panels, refuse_bad, refuse_negative
from rankfold.methods.svd.operator import refuse_overflow
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import View
from rankfold.pipeline.engine.blocks import Cut, cut, grains
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.planning.seconds import NOMINAL_FLOPS, NOMINAL_READ
from rankfold.pipeline.storage.checkpoint import State, save_once
from rankfold.pipeline.storage.scratch import NOWHERE, ScratchMatrix

Float64 = npt.NDArray[np.float64]

PLACE_NUMBERS = 2**20
"""Largest number of values in the packed Gram matrices of columns that are solved together; results do not
depend on it."""


@dataclass(frozen=True, slots=True)
class Weighting:
    """Layout and cost of sweeps over a matrix and its weights, and the folds of these sweeps."""

    source: Source
    """The matrix, with its gaps."""

    weights: Weights
    model: Model
    """Model whose view is of the matrix with gaps filled with zeros."""

    @property
    def pair_view(self) -> View:
        """View that is swept: the matrix joined with its weights, or the matrix alone if it has none."""
        view = self.model.view
        return View(self.weights.beside(self.source, view.orientation), view.orientation)

    @property
    def least_squares(self) -> bool:
        """True to solve rows and columns by Gram matrices of their own; False for multiplicative updates."""
        return self.model.parameters.solver != "mu"

    @property
    def number_flops(self) -> float:
        """Flops for each entry of the matrix in a pass."""
        rank = self.model.parameters.rank
        if self.least_squares:
            return 4.0 * pair_count(rank) + 6 * rank
        return (2.0 + 6 * UPDATES + 6) * rank

    @property
    def read_bytes(self) -> int:
        """Bytes that a pass reads."""
        each = (self.source, self.weights.source)
        item = sum(source.dtype.itemsize for source in each if source is not None)
        return self.source.shape[0] * self.source.shape[1] * item

    def accumulator_bytes(self) -> int:
        """Bytes of those sums of a pass that are as wide as the short factor."""
        rank, short = self.model.parameters.rank, self.model.view.short
        return 8 * short * (rank + (pair_count(rank) if self.least_squares else rank))

    def cut(self) -> Cut:
        """Cut of the matrix into panels (rows read at a time) and streams (rows summed in order)."""
        view = self.pair_view
        # Memory for weights of the rows too, whether these are read or not.
        row_bytes = 2 * self.model.view.short * self.model.view.dtype.itemsize
        return cut(view.grid, row_bytes, self.accumulator_bytes())

    def fold(
        self, constants: Any, before: ScratchMatrix | None, after: ScratchMatrix, slots: int, *, first: bool
    ) -> WeightedPass | WeightedRatios:
        """Fold of one iteration that reads the long factor from ``before`` and writes it to ``after``.

        ``constants`` is the path of the arrays of ``linear_model``; ``before`` is None if the factor starts
        from zero; ``first`` is True in the first pass, which checks numbers.
        """
        view, model = self.pair_view, self.model
        panels = Panels(view, self.cut(), slots, view.source.dtype, borrows=True)
        item = model.view.dtype.itemsize
        seconds = model.view.short * (
            self.read_bytes / self.source.shape[0] / self.source.shape[1] / NOMINAL_READ
            + self.number_flops / NOMINAL_FLOPS[item]
        )
        each: dict[str, Any] = {
            "panels": panels,
            "view": model.view,
            "constants": constants,
            "before": before,
            "after": after,
            "ignore": self.weights.ignore,
            "first_pass": first,
            "pow2_scale": model.pow2_scale,
            "row_seconds": seconds,
        }
        if self.least_squares:
            return WeightedPass(**each, sweeps=SWEEPS)
        return WeightedRatios(**each, divergence=model.parameters.loss != "frobenius")

    def largest_fold(self, slots: int) -> WeightedPass | WeightedRatios:
        """Fold of an iteration with the largest memory, to plan with."""
        before, after = (self.model.factor(NOWHERE, index) for index in (0, 1))
        return self.fold(NOWHERE, before, after, slots, first=True)

    @property
    def driver_bytes(self) -> int:
        """Bytes of solving the short factor, including the sums that it is solved from."""
        rank, short = self.model.parameters.rank, self.model.view.short
        if not self.least_squares:
            return 2 * self.accumulator_bytes() + 8 * short * 8 * rank
        places = min(short, _places(rank))
        block = 8 * places * (3 * pair_count(rank) + rank * rank + 12 * rank)
        return 2 * self.accumulator_bytes() + block + 8 * short * 8 * rank

    def refuse(self, state: State) -> None:
        """Raise ``DataError`` if the first pass has counted bad weights or numbers in ``state``, or if all
        weights are zero."""
        refuse_bad_weights(state, self.weights.source)
        refuse_bad(state, self.source)
        refuse_negative(state, self.source)
        if not state["weight"].any():
            raise DataError(
                f"no entry of {self.source.name} counts: all are missing, or of weight zero. Give a weight "
                "above zero to those that are to be factorized"
            )

    def idle_in_words(self, state: State) -> list[str]:
        """Warnings on rows and columns without any entry of positive weight; ``state`` is of a first pass."""
        names = ("rows", "columns") if self.model.by_rows else ("columns", "rows")
        counts = int(state["idle"][0]), int((state["weight"] == 0).sum())
        factors = {"rows": "rows of W", "columns": "columns of H"}
        return [
            f"nothing counts in {count} of the {name}, missing or of weight zero: their {factors[name]} are 0"
            for name, count in sorted(zip(names, counts, strict=True), reverse=True)
            if count
        ]


def _places(rank: int) -> int:
    """Number of columns of the short factor that are solved together."""
    return max(1, PLACE_NUMBERS // pair_count(rank))


# Least squares ------------------------------------------------------------------------------------


def improve_weighted_short(model: Model, factors: Factors, state: State) -> ShortUpdate:
    """Solve the short factor, starting from that of ``factors``, each column with its own Gram matrix.

    ``state`` has the sums ``grams``, ``product``, ``gram`` and ``sums`` of ``WeightedPass.sums``. Columns
    whose weights are all zero become 0.
    """
    long, short = model.penalties()
    linear, diagonal = weights(short, long, Sizes.of(factors.short.T), sizes_of(state))
    rank, length = factors.short.shape
    places = pair_places(rank)
    new, slope, change = np.empty_like(factors.short), np.zeros(rank), 0.0
    for first, last in grains(0, length, _places(rank)):
        part = slice(first, last)
        grams = np.ascontiguousarray(state["grams"][:, part].T)
        right = np.ascontiguousarray(state["product"][:, part].T)
        before = np.ascontiguousarray(factors.short[:, part].T)
        penalized, rows = grams.copy(), before.copy()
        penalized[:, np.diag(places)] += diagonal
        rows[~grams[:, np.diag(places)].any(axis=1)] = 0
        descend_weighted_rows(penalized, right - linear, w=rows, sweeps=SWEEPS)
        rows = np.ascontiguousarray(model.round_to_type(rows))
        new[:, part] = rows.T
        slope += gradient_weighted_rows(penalized, right - linear, rows)
        difference = rows - before
        change += float((_times(grams, before + rows, places) * difference).sum())
        change -= 2 * float((right * difference).sum())
    return ShortUpdate(new, 0.0, change, slope)


def _times(grams: Float64, rows: Float64, places: npt.NDArray[np.int64]) -> Float64:
    """Product (r, k) of each row of ``rows`` (r, k) with its Gram matrix, packed as a row of ``grams`` (r,
    pairs).

    ``places`` (k, k) are the places of entries in a packed matrix.
    """
    total = np.zeros_like(rows)
    for t in range(rows.shape[1]):
        total += rows[:, t, None] * grams[:, places[t]]
    return total


@dataclass(slots=True)
class WeightedFrobenius(Frobenius):
    """Iterations that lower ``sum v (x - L S)^2 / 2`` plus penalties, with v the weights of the entries x."""

    weighting: Weighting | None = None

    def step(self, run: Run) -> StepError:
        """Improve ``factors`` in one read of the matrix; the errors returned are those of the new factors."""
        model, factors, weighting = self.model, self.factors, self.weighting
        assert weighting is not None  # noqa: S101  a field after those with defaults
        name, after = f"iteration-{run.passes + 1:02d}", model.factor(run.scratch, self.index + 1)
        constants = save_once(run.part(name, "constants.part"), linear_model(model, factors))
        fold = weighting.fold(constants, factors.long, after, run.slots, first=not self.index)
        state = run.pass_over_data(name, fold)
        if not self.index:
            weighting.refuse(state)
            run.warnings.extend(weighting.idle_in_words(state))
            self.total = float(state["squares"][0])
        refuse_overflow(state, View(weighting.source, model.view.orientation), "product")
        update = improve_weighted_short(model, factors, state)
        stationarity = self._stationarity(state["gradient"])
        self._take(run, Factors(update.short, after, sizes_of(state)), update.slope)
        return self._step_error(float(state["residual"][0]) + update.change, stationarity)


# Ratios -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class WeightedUpdates(KullbackLeibler):
    """Multiplicative updates that lower a weighted loss plus penalties.

    The error of a step is the loss before the update of the short factor. The loss after it is lower.
    """

    weighting: Weighting | None = None

    def step(self, run: Run) -> StepError:
        """Improve ``factors`` in one read of the matrix, and return the errors of this step."""
        model, factors, weighting = self.model, self.factors, self.weighting
        assert weighting is not None  # noqa: S101  a field after those with defaults
        if not self.index:  # long rows of the start ignore weights: they are solved again
            factors.remove_long(run)
            factors = self.factors = Factors(factors.short)
        scale = np.full(1, model.scales(factors.short)[0])
        name, after = f"iteration-{run.passes + 1:02d}", model.factor(run.scratch, self.index + 1)
        arrays = {**linear_model(model, factors), "scale": scale}
        constants = save_once(run.part(name, "constants.part"), arrays)
        fold = weighting.fold(constants, factors.long, after, run.slots, first=not self.index)
        assert isinstance(fold, WeightedRatios)  # noqa: S101
        state = run.pass_over_data(name, fold)
        if not self.index:
            weighting.refuse(state)
            run.warnings.extend(weighting.idle_in_words(state))
            self.total = float(state["squares"][0])
            self.whole = plain_divergence(state) if fold.divergence else self.total
        refuse_overflow(state, View(weighting.source, model.view.orientation), "product")
        loss = float(state["loss"][0])
        more = penalty_of(model, Factors(factors.short, after, sizes_of(state)))
        self._move(run, state, after, fold)
        if not self.whole > 0:
            return StepError(0.0, 0.0, float("nan"))
        if fold.divergence:
            return StepError(max(loss, 0.0) / self.whole, (loss + more) / self.whole, float("nan"))
        error, cost = (float(np.sqrt(max(value, 0.0) / self.whole)) for value in (loss, loss + 2 * more))
        return StepError(error, cost, float("nan"))

    def _move(self, run: Run, state: State, after: ScratchMatrix, fold: WeightedRatios) -> None:
        factors, (long, short) = self.factors, self.model.penalties()
        linear, diagonal = weights(short, long, Sizes.of(factors.short.T), sizes_of(state))
        above, column = factors.short * state["product"], (slice(None), None)
        under = fold.denominator(above, state["below"], factors.short, linear[column], diagonal[column])
        floor = float(np.finfo(self.model.view.dtype).eps) * self.model.scales(factors.short)[1]
        new = self.model.round_to_type(np.maximum(above / under, floor))
        new[:, ~factors.short.any(axis=0) if self.index else state["weight"] == 0] = 0
        factors.remove_long(run)
        self.factors = dataclasses.replace(factors, short=new, long=after, sizes=sizes_of(state))
        self.index += 1
