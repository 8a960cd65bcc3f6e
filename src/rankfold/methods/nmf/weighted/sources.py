"""A matrix and what it is weighed by, as one source: a panel of both is one read.

Weights lie beside the matrix across the axis that is swept, so that a panel of rows has the rows of both, one
after the other, and a panel of columns has those of the matrix above those of the weights. Whoever plans a
sweep of that source counts the bytes of both.

A gap, a NaN where ``ignore`` says so, is an entry of weight zero. What an entry of weight zero holds is never
looked at: NaN, a negative number or a mark for what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.data.dtypes import ConvertedSource
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import SamePlaces, Source, Wrapper
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.errors import DataError

Array = npt.NDArray[Any]

TALLER = 4
"""Panels are as much taller than chunks of the matrix, at most, that chunks of the weights be read once."""

SHARE_OF_RANGE = 0.75
"""Of the exponents of a type, that weights may take."""

STRIP_BYTES = 4 * 2**20
"""Weights that are looked at together where the matrix alone is read, unless one chunk is larger."""


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """What entries of a matrix count."""

    source: Source | None = None
    """Of its shape; None where every entry counts one."""

    ignore: bool = False
    """Whether NaN counts nothing."""

    def beside(self, x: Source, orientation: Orientation) -> Source:
        """What is swept: the matrix, with its weights if there are any."""
        return x if self.source is None else PairedSource(x, self.source, orientation)

    def fill(self, x: Source) -> Source:
        """The matrix with zeros where nothing counts."""
        return ZeroFilled(x, self)

    def fingerprint(self) -> str:
        """That of the weights; nothing where there are none."""
        return "" if self.source is None else self.source.fingerprint()


@dataclass(frozen=True, slots=True, eq=False)
class PairedSource(Wrapper):
    """Both, in one type, for sweeps along one axis: rows (m, 2 n), or columns (2 m, n)."""

    inner: Source
    weights: Source
    orientation: Orientation

    @property
    def shape(self) -> tuple[int, int]:
        """Twice as long as the matrix across the sweep."""
        rows, columns = self.inner.shape
        return (rows, 2 * columns) if self._by_rows else (2 * rows, columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of a matrix of floats, else what holds its numbers and those of the weights."""
        dtype = self.inner.dtype
        if dtype.kind == "f" and dtype.itemsize >= 4:
            return dtype
        return np.promote_types(dtype, self.weights.dtype)

    @property
    def row_grid(self) -> Grid:
        """Chunks along the rows: where they are swept, between which no chunk of either is cut."""
        if not self._by_rows:
            return Grid.regular(self.shape[0], self.shape[0], splittable=False)
        return common_grid(self.inner.row_grid, self.weights.row_grid)

    @property
    def column_grid(self) -> Grid:
        """The same along the columns."""
        if self._by_rows:
            return Grid.regular(self.shape[1], self.shape[1], splittable=False)
        return common_grid(self.inner.column_grid, self.weights.column_grid)

    @property
    def _by_rows(self) -> bool:
        return self.orientation is Orientation.ROWS

    def read_into(self, out: Array, rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``, all of the axis across the sweep: see ``Source``."""
        x, weights = self.split(out)
        if self._by_rows:
            columns = (0, self.inner.shape[1])
        else:
            rows = (0, self.inner.shape[0])
        self._numbers.read_into(x, rows, columns)
        self._counts.read_into(weights, rows, columns)

    def split(self, panel: Array) -> tuple[Array, Array]:
        """Numbers of the matrix in a panel, and their weights."""
        if self._by_rows:
            return panel[:, : self.inner.shape[1]], panel[:, self.inner.shape[1] :]
        return panel[: self.inner.shape[0]], panel[self.inner.shape[0] :]

    def read_bytes(self, rows: int, columns: int) -> int:
        """Most memory of one ``read_into``: that of either, one after the other."""
        half = (rows, self.inner.shape[1]) if self._by_rows else (self.inner.shape[0], columns)
        return max(each.read_bytes(*half) for each in (self._numbers, self._counts))

    def check(self) -> None:
        """Raise ``ChunkError`` for what can be found wrong in either."""
        self.inner.check()
        self.weights.check()

    def fingerprint(self) -> str:
        """Those of both."""
        return f"{self.inner.fingerprint()} {self.weights.fingerprint()}"

    @property
    def _numbers(self) -> Source:
        return self.inner if self.inner.dtype == self.dtype else ConvertedSource(self.inner, self.dtype)

    @property
    def _counts(self) -> Source:
        return WeightsInType(self.weights, self.dtype)


@dataclass(frozen=True, slots=True)
class WeightsInType(ConvertedSource):
    """Weights in the type of the matrix, which is to hold their products with its numbers."""

    def convert(self, out: Array, strip: Array, rows: Span) -> None:
        """See ``ConvertedSource``."""
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
    """Edges at which neither a chunk of a matrix nor one of its weights is cut, if there are enough.

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
    """A matrix with zeros where nothing counts: what a start is found from."""

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
        """Rows of weights that are read together."""
        source = self.weights.source
        assert source is not None  # noqa: S101  asked before
        least = 1 if source.row_grid.splittable else source.row_grid.longest
        return min(rows, max(least, STRIP_BYTES // max(1, columns * source.dtype.itemsize)))

    def read_bytes(self, rows: int, columns: int) -> int:
        """Most memory of one ``read_into``: a strip of weights, a mask, and what reading takes."""
        own = self.inner.read_bytes(rows, columns) + rows * columns * self.weights.ignore
        if self.weights.source is None:
            return own
        strip = self._strip(rows, columns)
        room = strip * columns * (self.weights.source.dtype.itemsize + 1)
        return max(own, room + self.weights.source.read_bytes(strip, columns))

    def fingerprint(self) -> str:
        """Those of the matrix and of its weights."""
        return f"{self.inner.fingerprint()} {self.weights.fingerprint()} {self.weights.ignore}"
