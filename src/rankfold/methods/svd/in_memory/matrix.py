"""A matrix that is read once and held in memory: centered, scaled, and multiplied from either side.

A line is a stored row, or a stored column if the matrix is stored by columns. The unit is a power of two that
the matrix is multiplied by, so that squares of its numbers stay in the range of float64.

Zeros of a sparse matrix stay zeros. With S the stored matrix, D_w the weights of columns and mu the means of
weighted columns, the matrix is S D_w - 1 mu', and the second term is subtracted from each product:

    A q = S D_w q - 1 (mu'q),    A'w = D_w S'w - mu (1'w)

A dense one is centered in place, which loses no digit however far the mean is from zero.

A sparse matrix and its transpose are multiplied with blocks each from a copy stored in its own order. Both
products are sums over stored numbers that are contiguous in memory, line by line, so that no sum depends on
how lines would be shared out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse

from rankfold.kernels.sparse.products import multiply_rows
from rankfold.methods.parts.conditioned import (
    Centering,
    Statistics,
    divisors,
    local_columns,
    standard_deviations,
)
from rankfold.methods.parts.panels import count_bad, no_bad, refuse_bad
from rankfold.methods.parts.square_range import refuse_size
from rankfold.pipeline.data.source import CompressedSource, Csr, Source
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.blocks import Cut

Float64 = npt.NDArray[np.float64]
Heard = Callable[[int], None]
"""Callable that is called with the number of lines read so far."""

MODERATE = 200
"""Largest absolute exponent of two at which squares and their sums stay in the range of float64 without a
unit."""

ROUNDING = 16 * float(np.finfo(np.float64).eps)
"""Deviation of a column, relative to its mean, up to which it may be rounding of the mean alone."""


class MatrixInMemory(Protocol):
    """Protocol of a matrix A in memory, centered and scaled, times a power of two (its unit)."""

    @property
    def statistics(self) -> Statistics:
        """Statistics of its columns, in the units of the data; ``total`` is the sum of squares of A."""

    @property
    def unit(self) -> float:
        """The power of two that A is multiplied by; 1 for scaled columns."""

    @property
    def rounding(self) -> float:
        """Norm, about, of the rounding error of the product of A with a vector of length 1."""

    def to_long(self, q: Float64) -> Float64:
        """Products (long, b) with vectors ``q`` (short, b): A q where rows are the longer side, else A'q."""

    def to_short(self, w: Float64) -> Float64:
        """Products (short, b) with vectors ``w`` (long, b): A'w where rows are the longer side, else A w."""


def unit_of(largest: float) -> float:
    """A power of two that scales numbers so that their squares are in range; 1 if they are already.

    >>> unit_of(3.0), unit_of(0.0), unit_of(2.0**300) == 2.0**-301
    (1.0, 1.0, True)
    """
    exponent = int(np.frexp(largest)[1])
    return 1.0 if abs(exponent) <= MODERATE or largest == 0 else float(np.ldexp(1.0, min(-exponent, 1000)))


# Dense --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DenseMatrix:
    """A dense matrix in memory that multiplies blocks of vectors: see ``MatrixInMemory``."""

    x: Float64
    """(rows, columns) matrix, centered, scaled, times the unit."""

    statistics: Statistics
    unit: float
    rounding: float

    def to_long(self, q: Float64) -> Float64:
        """Products (long, b) with vectors ``q`` (short, b) of the shorter side."""
        return self.x @ q if self.x.shape[0] >= self.x.shape[1] else self.x.T @ q

    def to_short(self, w: Float64) -> Float64:
        """Products (short, b) with vectors ``w`` (long, b) of the longer side."""
        return self.x.T @ w if self.x.shape[0] >= self.x.shape[1] else self.x @ w


def read_dense(view: View, cut: Cut, centering: Centering, heard: Heard) -> DenseMatrix:
    """Read a whole matrix into memory as float64, panel by panel; center and scale it.

    ``heard`` is called with the number of lines read after each panel.
    """
    source = view.source
    x = np.empty(source.shape)
    panel = view.panel_buffer(cut.panel_rows, source.dtype)
    for index in range(len(cut.panels) - 1):
        start, stop = cut.panel(index)
        view.read(panel, start, stop)
        there = x[start:stop] if view.orientation is Orientation.ROWS else x[:, start:stop]
        there[...] = view.part(panel, 0, stop - start)
        heard(stop)
    largest = max(float(x.max()), -float(x.min()))
    if not np.isfinite(largest):
        _refuse(source, x)
    unit = unit_of(largest)
    if unit != 1:
        x *= unit
    columns = local_columns(x, centering)
    mean, squares = columns.mean / unit, columns.squares
    deviation = _deviations(columns.deviation, unit, centering)
    if centering.center:
        x -= columns.mean
    if centering.scale:
        scale, squares, unit = _out_of_unit(source, columns.deviation, columns.scale, squares, unit)
        x *= scale
    total, eps = float(squares.sum()), float(np.finfo(np.float64).eps)
    return DenseMatrix(x, Statistics(mean, deviation, total), unit, eps * float(np.sqrt(total)))


def _refuse(source: Source, x: Float64) -> None:
    state = {"bad": no_bad()}
    count_bad(state, lambda: x, 0, 0)
    refuse_bad(state, source)


def _deviations(deviation: Float64, unit: float, centering: Centering) -> Float64:
    """Standard deviations of columns in the units of the data, from those times ``unit``; 1 if not scaled."""
    return deviation / unit if centering.scale else deviation


def _out_of_unit(
    source: Source, deviation: Float64, weights: Float64, squares: Float64, unit: float
) -> tuple[Float64, Float64, float]:
    """Weights and sums of squares of scaled columns, for a matrix whose numbers were multiplied by ``unit``.

    ``deviation``, ``weights`` and ``squares`` (n,) are those of its columns. Columns over their deviations
    are the same in any unit. Constant columns are not scaled: their weights return them to the units of the
    data. Returns (weights, squares, 1.0), the last being the new unit.

    Raises
    ------
    DataError
        Squares of constant columns leave the range of float64 there.
    """
    constant = deviation == 0
    if unit < 1:
        if squares[constant].any():
            refuse_size(source, 0.5 / unit, "squares of constant columns, which are not scaled,")
        return weights, squares, 1.0
    return (
        np.where(constant, weights / unit, weights),
        np.where(constant, squares / unit / unit, squares),
        1.0,
    )


# Sparse -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SparseMatrix:
    """A sparse matrix in memory that multiplies blocks of vectors: see ``MatrixInMemory``."""

    shape: tuple[int, int]
    rows: Csr
    """The matrix by rows, with weighted columns, times the unit; not centered."""

    columns: Csr
    """The matrix of ``rows``, stored by columns."""

    mean: Float64 | None
    """(columns,) means of the weighted columns; None where they are not centered."""

    statistics: Statistics
    unit: float
    rounding: float

    def to_long(self, q: Float64) -> Float64:
        """Products (long, b) with vectors ``q`` (short, b) of the shorter side."""
        return self._times(q) if self.shape[0] >= self.shape[1] else self._turned_times(q)

    def to_short(self, w: Float64) -> Float64:
        """Products (short, b) with vectors ``w`` (long, b) of the longer side."""
        return self._turned_times(w) if self.shape[0] >= self.shape[1] else self._times(w)

    def _times(self, q: Float64) -> Float64:
        y = multiply_lines(self.rows, q)
        if self.mean is not None:
            y -= self.mean @ q
        return y

    def _turned_times(self, w: Float64) -> Float64:
        z = multiply_lines(self.columns, w)
        if self.mean is not None:
            z -= np.outer(self.mean, w.sum(axis=0))
        return z


def read_sparse(source: CompressedSource, centering: Centering, heard: Heard) -> SparseMatrix:
    """Read the stored numbers of a matrix into memory, by rows and by columns; center and scale it.

    ``heard`` is called with the number of lines when all are read.
    """
    by_rows = source.by == "rows"
    lines, across = source.shape if by_rows else source.shape[::-1]
    stored = source.read_sparse((0, lines))
    heard(lines)
    largest = float(max(stored.data.max(initial=0), -float(stored.data.min(initial=0))))
    if not np.isfinite(largest):
        _refuse_stored(source, stored.indptr, stored.indices, stored.data)
    unit = unit_of(largest)
    rows, columns = both_orders(stored, across, unit)
    del stored
    if not by_rows:
        rows, columns = columns, rows
    return _conditioned(source, rows, columns, unit, centering)


def _refuse_stored(
    source: CompressedSource, indptr: npt.NDArray[Any], indices: npt.NDArray[Any], data: npt.NDArray[Any]
) -> None:
    """Raise ``DataError`` for numbers that are not finite; it names row and column of the first, by rows.

    ``indptr``, ``indices`` and ``data`` are the lines of ``source`` in CSR form.
    """
    bad = np.flatnonzero(~np.isfinite(data))
    lines = np.searchsorted(indptr, bad, side="right") - 1
    places = (lines, indices[bad]) if source.by == "rows" else (indices[bad], lines)
    first = np.lexsort(places[::-1])[0]
    refuse_bad({"bad": np.array([len(bad), places[0][first], places[1][first]], np.int64)}, source)


def _conditioned(source: Source, rows: Csr, columns: Csr, unit: float, centering: Centering) -> SparseMatrix:
    """Find statistics of the columns of a matrix, and center and scale it by them.

    ``rows`` and ``columns`` are the matrix in both orders, times ``unit``. Sums of squares are those of
    differences from the mean: of stored numbers one by one, of zeros together.
    """
    count = source.shape[0]
    stored = np.diff(columns.indptr)
    mean = _sums(columns.data, columns.indptr) / count if centering.center else np.zeros(len(stored))
    differences = columns.data - np.repeat(mean, stored)
    differences *= differences
    squares = _sums(differences, columns.indptr) + (count - stored) * mean**2
    if centering.center:
        squares[squares <= count * (ROUNDING * mean) ** 2] = 0.0
    weights, deviation, unit_read = np.ones_like(mean), np.ones_like(mean), unit
    if centering.scale:
        deviation = standard_deviations(squares, count, mean, centering)
        weights = 1.0 / divisors(deviation)
        squares = squares * weights**2
        weights, squares, unit = _out_of_unit(source, deviation, weights, squares, unit)
        rows = Csr(rows.indptr, rows.indices, rows.data * weights[rows.indices])
        columns = Csr(columns.indptr, columns.indices, columns.data * np.repeat(weights, stored))
    total, eps = float(squares.sum()), float(np.finfo(np.float64).eps)
    weighted = mean * weights
    far = float(np.sqrt(total + count * float(weighted @ weighted)))
    shown = Statistics(mean / unit_read, _deviations(deviation, unit_read, centering), total)
    means = weighted if centering.center else None
    return SparseMatrix(source.shape, rows, columns, means, shown, unit, eps * far)


def _sums(values: Float64, indptr: npt.NDArray[Any]) -> Float64:
    """Sum of the values of each line, (lines,); ``indptr`` (lines + 1,) are the starts of lines."""
    sums, filled = np.zeros(len(indptr) - 1), indptr[1:] > indptr[:-1]
    if filled.any():
        sums[filled] = np.add.reduceat(values, indptr[:-1][filled], dtype=np.float64)
    return sums


def multiply_lines(lines: Csr, q: Float64) -> Float64:
    """Product of a sparse matrix, given by its lines, with the columns of ``q``.

    Parameters
    ----------
    lines : Csr
        (l, n), of float32 or float64.
    q : (n, b) float64, in C order

    Returns
    -------
    (l, b) float64, in C order

    Notes
    -----
    Work 2 nnz b flops, in float64 whatever the type of what is stored.
    """
    y = np.empty((len(lines.indptr) - 1, q.shape[1]))
    multiply_rows(lines.indptr, lines.indices, lines.data, q, y=y)
    return y


def both_orders(stored: Csr, across: int, unit: float) -> tuple[Csr, Csr]:
    """Store a sparse matrix in both orders, as CSR of itself and of its transpose; duplicates are summed.

    Numbers stay float32 if stored as such and unchanged; else they are float64.

    Parameters
    ----------
    stored : Csr
        (l, across). Left untouched.
    across : int
        Length of a line.
    unit : float
        Factor of every number.

    Returns
    -------
    lines, turned : Csr
        (l, across) and (across, l). The first may share memory with ``stored``.

    Notes
    -----
    Memory 2 nnz (8 + index) bytes at most. The transposition is a counting sort.
    """
    values = stored.data
    if unit != 1 or values.dtype != np.float32:
        values = values.astype(np.float64, copy=False)
    if unit != 1:
        values = values * unit
    shape = len(stored.indptr) - 1, across
    lines = scipy.sparse.csr_array((values, stored.indices, stored.indptr), shape=shape)
    if not lines.has_canonical_format:
        lines = lines.astype(np.float64)
        lines.sum_duplicates()
    turned = lines.T.tocsr()
    return Csr(lines.indptr, lines.indices, lines.data), Csr(turned.indptr, turned.indices, turned.data)
