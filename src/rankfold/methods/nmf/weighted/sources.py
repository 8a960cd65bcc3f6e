"""A matrix and its weights as one source, of which a panel is read at once.

Weights are joined to the matrix along the axis that is not swept. A panel of rows holds rows of the matrix to
the left of those of the weights; a panel of columns holds columns of the matrix above those of the weights. A
plan of a sweep over that source thus counts the bytes of both.

A gap, which is a NaN if ``ignore`` is set, is an entry of weight zero. Values of weight zero are never used:
they may be NaN, negative, or a marker of missing data.

The folds over panels with weights have a common base here, ``OverWeightedPanels``, which checks each grain.

A panel is the rows read at a time, a grain some of them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.methods.parts.panels import BAD, Grain, OverPanels, Panels, count_bad, count_negative, join_bad
from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.data.dtypes import ConvertedSource
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.origin import place_of
from rankfold.pipeline.data.source import SamePlaces, Source, Wrapper
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.fold import Buffer, Sum, Workspace
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]

TALLER = 4
"""Edges of panels cut no chunk of the weights either, so that each is read once, unless panels were then more
than this many times as tall as chunks of the matrix."""

SHARE_OF_RANGE = 0.75
"""Share of the exponent range of a type that weights may use."""

STRIP_BYTES = 4 * 2**20
"""Bytes of weights read at once to fill zeros into the matrix, unless one chunk is larger."""


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Weights of the entries of a matrix, and treatment of gaps (NaN)."""

    source: Source | None = None
    """Weights, of the shape of the matrix; None if all are one."""

    ignore: bool = False
    """True if NaN has weight zero."""

    def beside(self, x: Source, orientation: Orientation) -> Source:
        """Source to sweep: the matrix, joined with its weights if there are any."""
        return x if self.source is None else PairedSource(x, self.source, orientation)

    def fill(self, x: Source) -> Source:
        """The matrix with zeros at gaps and at weights of zero."""
        return ZeroFilled(x, self)

    def fingerprint(self) -> str:
        """Fingerprint of the weights; empty if there are none."""
        return "" if self.source is None else self.source.fingerprint()


@dataclass(frozen=True, slots=True, eq=False)
class PairedSource(Wrapper):
    """A matrix joined with its weights, in one type: (m, 2 n) for sweeps by rows, (2 m, n) by columns."""

    inner: Source
    weights: Source
    orientation: Orientation

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix, doubled along the axis that is not swept."""
        rows, columns = self.inner.shape
        return (rows, 2 * columns) if self._by_rows else (2 * rows, columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the matrix if float32 or float64, else a type that holds its numbers and the weights."""
        dtype = self.inner.dtype
        if dtype.kind == "f" and dtype.itemsize >= 4:
            return dtype
        return np.promote_types(dtype, self.weights.dtype)

    @property
    def row_grid(self) -> Grid:
        """Chunks along the rows; in a sweep by rows, those of ``common_grid`` for matrix and weights."""
        if not self._by_rows:
            return Grid.regular(self.shape[0], self.shape[0], splittable=False)
        return common_grid(self.inner.row_grid, self.weights.row_grid)

    @property
    def column_grid(self) -> Grid:
        """Chunks along the columns; in a sweep by columns, ``common_grid`` of the matrix and its weights."""
        if self._by_rows:
            return Grid.regular(self.shape[1], self.shape[1], splittable=False)
        return common_grid(self.inner.column_grid, self.weights.column_grid)

    @property
    def _by_rows(self) -> bool:
        return self.orientation is Orientation.ROWS

    def read_into(self, out: Array, rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``, all of the axis that is not swept; see ``Source``."""
        x, weights = self.split(out)
        if self._by_rows:
            columns = (0, self.inner.shape[1])
        else:
            rows = (0, self.inner.shape[0])
        self._numbers.read_into(x, rows, columns)
        self._counts.read_into(weights, rows, columns)

    def split(self, panel: Array) -> tuple[Array, Array]:
        """Views of the two halves of a panel: numbers of the matrix, and their weights."""
        if self._by_rows:
            return panel[:, : self.inner.shape[1]], panel[:, self.inner.shape[1] :]
        return panel[: self.inner.shape[0]], panel[self.inner.shape[0] :]

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound on the memory of one ``read_into``, which reads matrix and weights one after the
        other."""
        half = (rows, self.inner.shape[1]) if self._by_rows else (self.inner.shape[0], columns)
        return max(each.read_bytes(*half) for each in (self._numbers, self._counts))

    def check(self) -> None:
        """Check the matrix and its weights; raises ``ChunkError``."""
        self.inner.check()
        self.weights.check()

    def fingerprint(self) -> str:
        """Fingerprints of the matrix and its weights."""
        return f"{self.inner.fingerprint()} {self.weights.fingerprint()}"

    @property
    def _numbers(self) -> Source:
        return self.inner if self.inner.dtype == self.dtype else ConvertedSource(self.inner, self.dtype)

    @property
    def _counts(self) -> Source:
        return WeightsInType(self.weights, self.dtype)


@dataclass(frozen=True, slots=True)
class WeightsInType(ConvertedSource):
    """Weights converted to the type of the matrix; ``DataError`` if products could leave its range."""

    def convert(self, out: Array, strip: Array, rows: Span) -> None:
        """Check the range of ``strip``, weights of the rows in the span ``rows``, then convert it into
        ``out``."""
        if strip.dtype.kind == "f" and strip.dtype.itemsize >= self.dtype.itemsize:
            self._check_range(strip, rows[0])
        ConvertedSource.convert(self, out, strip, rows)

    def _check_range(self, strip: Array, top: int) -> None:
        most = float(np.finfo(self.dtype).max) ** SHARE_OF_RANGE
        bad = (strip > most) & np.isfinite(strip) | (strip < 1 / most) & (strip > 0)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise DataError(
                f"weights {self.name}: {strip[row, column]:.3g} in row {top + row} is out of the range that "
                f"products in {self.dtype.name} bear, {1 / most:.0e} to {most:.0e}. Multiply all weights by "
                "one number, which changes no factor, replace those that differ so much by 0, or store the "
                "matrix as float64"
            )


def common_grid(x: Grid, weights: Grid) -> Grid:
    """Grid whose edges cut no chunk of a matrix or of its weights; that of the matrix if too few are common.

    >>> three, four = (Grid.regular(24, n, splittable=False) for n in (3, 4))
    >>> common_grid(three, four).edges.tolist()
    [0, 12, 24]
    >>> common_grid(three, Grid.regular(24, 13, splittable=False)).edges.tolist()
    [0, 3, 6, 9, 12, 15, 18, 21, 24]
    """
    scattered = x.scattered or weights.scattered
    if weights.splittable:
        return Grid(x.cuts, x.splittable, scattered)
    if x.splittable:
        return Grid(weights.cuts, splittable=False, scattered=scattered)
    common = Grid(np.intersect1d(x.edges, weights.edges), splittable=False, scattered=scattered)
    if common.longest <= TALLER * x.longest:
        return common
    return Grid(x.cuts, x.splittable, scattered)


@dataclass(frozen=True, slots=True, eq=False)
class ZeroFilled(SamePlaces):
    """A matrix with zeros at gaps and at weights of zero, from which a start is found."""

    inner: Source
    weights: Weights

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements in native byte order."""
        return self.inner.dtype

    def read_into(self, out: Array, rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; see ``Source``."""
        self.inner.read_into(out, rows, columns)
        if self.weights.ignore and self.dtype.kind == "f":
            np.copyto(out, 0, where=np.isnan(out))
        if self.weights.source is None:
            return
        height, width = out.shape
        step = self._strip(height, width)
        strip = np.empty((min(step, height), width), self.weights.source.dtype)
        for top in range(0, height, step):
            part = strip[: min(step, height - top)]
            self.weights.source.read_into(part, (rows[0] + top, rows[0] + top + len(part)), columns)
            np.copyto(out[top : top + len(part)], self.dtype.type(0), where=part == 0)

    def _strip(self, rows: int, columns: int) -> int:
        """Number of rows of weights that are read together for a block of ``rows`` rows and ``columns``
        columns."""
        source = self.weights.source
        assert source is not None  # noqa: S101  asked before
        least = 1 if source.row_grid.splittable else source.row_grid.longest
        return min(rows, max(least, STRIP_BYTES // max(1, columns * source.dtype.itemsize)))

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound on the memory of one ``read_into``: a strip of weights, a mask, and the memory of
        reading."""
        own = self.inner.read_bytes(rows, columns) + rows * columns * self.weights.ignore
        if self.weights.source is None:
            return own
        strip = self._strip(rows, columns)
        room = strip * columns * (self.weights.source.dtype.itemsize + 1)
        return max(own, room + self.weights.source.read_bytes(strip, columns))

    def fingerprint(self) -> str:
        """Fingerprints of the matrix and its weights, and ``ignore``."""
        return f"{self.inner.fingerprint()} {self.weights.fingerprint()} {self.weights.ignore}"


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
        """Buffers for a grain, laid out as the matrix: ``x`` its values, ``weights``, ``rest`` for temporary
        values, and others under the names ``more``."""
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
        """Bytes of the boolean masks of a grain that are in memory at once."""
        return MASKS * self.panels.grain_rows * self.view.short

    def weigh(self, state: State, work: Workspace, grain: Grain) -> WeightedGrain | None:
        """Values of a grain and their weights, in buffers of ``work``.

        The first pass also adds to the sums of ``check_sums`` in ``state``. It returns None if values or
        weights are not finite, or weights are negative, which it counts; negative values are only counted.
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
        """Count weights that are negative, NaN or Inf in ``state``; True if there are none.

        ``first`` is the number of the first long row of the grain.
        """
        if weights.min() >= 0 and weights.max() < np.inf:
            return True
        row, column = self.panels.corner(first)
        bad = ~((weights >= 0) & (weights < np.inf))
        place = np.unravel_index(int(bad.argmax()), bad.shape)
        here = np.array([bad.sum(), row + place[0], column + place[1]], dtype=np.int64)
        state["bad_weights"] = join_bad(state["bad_weights"], here)
        return False

    def _count_bad(self, state: State, x: Array, first: int) -> bool:
        """Count NaN, Inf and negative numbers in ``state``; True if all are finite.

        ``first`` is the number of the first long row of the grain.
        """
        corner, part = self.panels.corner(first), functools.partial(np.asarray, x)
        if not np.isfinite(x).all():
            count_bad(state, part, *corner)
            return False
        if not x.min() >= 0:
            count_negative(state, part, *corner)
        return True


def refuse_bad_weights(state: State, weights: Source | None) -> None:
    """Raise ``DataError`` if a pass has counted weights that are negative, NaN or Inf in ``state``."""
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
