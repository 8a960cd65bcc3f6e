"""Checked grains of a matrix with their weights: code that folds over weighted panels share.

A panel is the rows read at a time, a grain some of them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.methods.nmf.weighted.sources import PairedSource
from rankfold.methods.parts.finite import BAD, count_bad, count_negative, join_bad
from rankfold.methods.parts.panels import Grain, OverPanels, Panels
from rankfold.pipeline.data.origin import place_of
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.fold import Buffer, Sum, Workspace
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]

MASKS = 3
"""Number of boolean masks of a grain that are in memory at once."""


class WeightedGrain(NamedTuple):
    """Rows of a grain and their weights, each array (rows, short); ``x`` is zero where the weight is."""

    x: Array
    weights: Array
    rest: Array
    """Array of that shape for temporary values."""


class OverWeightedPanels(OverPanels):
    """Base of folds over a matrix and its weights, which compute in the type of the output."""

    __slots__ = ()
    panels: Panels
    """Panels of the matrix with its weights, or of the matrix alone."""

    view: View
    """View of the matrix alone."""

    after: ScratchMatrix
    ignore: bool
    first_pass: bool
    pow2_scale: float
    """Power of two that brings numbers near 1, whose squares then stay in the range of any type."""

    def grain_buffers(self, *more: str) -> dict[str, Buffer]:
        """Buffers for values of a grain, their weights, and temporary values, laid out as the matrix."""
        shape = self.view.panel_shape(self.panels.grain_rows)
        return {name: Buffer(shape, self.after.dtype) for name in ("x", "weights", "rest", *more)}

    def check_sums(self) -> Mapping[str, Sum]:
        """Sums of the first pass, which check the matrix and its weights.

        Weighted sum of squares ``squares`` (1,), sums of weights of each column ``weight`` (short,), number
        of rows without any weight ``idle`` (1,), and counts of bad numbers, negative numbers and bad weights.
        """
        return {
            "squares": Sum((1,)),
            "weight": Sum((self.view.short,)),
            "idle": Sum((1,)),
            "bad": BAD,
            "negative": BAD,
            "bad_weights": BAD,
        }

    @property
    def mask_bytes(self) -> int:
        """Bytes of boolean masks of a grain."""
        return MASKS * self.panels.grain_rows * self.view.short

    def weigh(self, state: State, work: Workspace, grain: Grain) -> WeightedGrain | None:
        """Values of a grain and their weights; None if the first pass finds bad ones, which are counted.

        The first pass also adds to the sums of ``check_sums``.
        """
        count = grain.last - grain.first
        x, weights, rest = (self.view.part(room, 0, count) for room in (work.x, work.weights, work.rest))
        source = self.panels.view.source
        if isinstance(source, PairedSource):
            numbers, weights[...] = source.split(grain.raw)
        else:
            numbers, weights[...] = grain.raw, 1
        x[...] = numbers
        sound = not self.first_pass or self._count_bad_weights(state, weights, grain.first)
        if self.ignore:
            np.copyto(weights, 0, where=np.isnan(x))
        np.copyto(x, 0, where=weights == 0)
        if self.first_pass:
            sound = sound and self._count_bad(state, x, grain.first)
            if not sound:
                return None
        rows = WeightedGrain(*(self.view.as_rows(each) for each in (x, weights, rest)))
        if self.first_pass:
            state["weight"] += rows.weights.sum(axis=0, dtype=np.float64)
            state["idle"] += count - np.count_nonzero(rows.weights.any(axis=1))
            np.copyto(rest, x)
            state["squares"] += self.squares(rest, weights)
        return rows

    def squares(self, rest: Array, weights: Array) -> Array:
        """Weighted sum of squares of ``rest``, which is overwritten."""
        rest *= rest.dtype.type(self.pow2_scale)
        rest *= rest
        rest *= weights
        return np.asarray(rest.sum(dtype=np.float64) / self.pow2_scale**2)

    def _count_bad_weights(self, state: State, weights: Array, first: int) -> bool:
        """Count weights that are negative, NaN or Inf; True if there are none."""
        if weights.min() >= 0 and weights.max() < np.inf:
            return True
        row, column = self.panels.corner(first)
        bad = ~((weights >= 0) & (weights < np.inf))
        place = np.unravel_index(int(bad.argmax()), bad.shape)
        here = np.array([bad.sum(), row + place[0], column + place[1]], dtype=np.int64)
        state["bad_weights"] = join_bad(state["bad_weights"], here)
        return False

    def _count_bad(self, state: State, x: Array, first: int) -> bool:
        """Count NaN, Inf and negative numbers; True if all are finite."""
        corner, part = self.panels.corner(first), functools.partial(np.asarray, x)
        if not np.isfinite(x).all():
            count_bad(state, part, *corner)
            return False
        if not x.min() >= 0:
            count_negative(state, part, *corner)
        return True


def refuse_bad_weights(state: State, weights: Source | None) -> None:
    """Raise ``DataError`` if weights that are negative, NaN or Inf were counted."""
    count, row, column = (int(v) for v in state["bad_weights"])
    if count and weights is not None:
        raise DataError(
            f"{count} weights in {weights.name} are negative, NaN or Inf, the first at "
            f"{place_of(weights, row, column)}. A weight is a finite number of at least 0, and 0 leaves an "
            "entry out: replace them, and run again."
        )


def is_by_rows(view: View) -> bool:
    """True if W is the long factor."""
    return view.orientation is Orientation.ROWS
