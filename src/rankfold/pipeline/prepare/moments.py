"""Moments and sums of columns and rows, for steps that are measured: one read, bitwise reproducible.

A panel is what is read at once: rows of a dense matrix, or lines (rows, or columns if the matrix is stored by
columns) of a compressed one. Panels follow from shape and type, and their sums are merged in order, whatever
the number of threads.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.data.selection import steps as pieces
from rankfold.pipeline.data.source import CompressedSource, Source, compressed, sum_places

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
T = TypeVar("T")

PANEL_BYTES = 8 * 2**20
"""Approximate bytes of a panel as it is read."""

MOST_THREADS = 4

FAINTEST = 2.0**-480
"""Absolute value below which the square of a number loses some of its digits to underflow."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Count of present values, mean, and sum of squared deviations from it, (n,) each, by column."""

    count: Float64
    mean: Float64
    squares: Float64

    def merged(self, other: Moments) -> Moments:
        """Moments of the rows of ``self`` and ``other`` together.

        Chan, Golub, LeVeque, The American Statistician 37(3), 1983.
        """
        count = self.count + other.count
        share = np.divide(other.count, count, out=np.zeros_like(count), where=count > 0)
        apart = other.mean - self.mean
        mean = self.mean + apart * share
        return Moments(count, mean, self.squares + other.squares + apart**2 * self.count * share)

    def variance(self, ddof: int) -> Float64:
        """Variances (n,) with divisor ``count - ddof``; 0 where a column has at most ``ddof`` values."""
        return np.divide(
            self.squares, self.count - ddof, out=np.zeros_like(self.squares), where=self.count > ddof
        )


def column_moments(
    source: Source,
    *,
    change: Callable[[Float64], Float64] | None = None,
    absent: Callable[[Array], Array] = lambda values: ~np.isfinite(values),
) -> Moments:
    """Count, mean, and sum of squared deviations of each column, in one read.

    Parameters
    ----------
    source : Source
    change : function, optional
        Applied to values in float64 before they are summed; must keep zeros.
    absent : function, optional
        Returns the mask of missing values, which are left out: by default NaN and Inf, which the methods then
        refuse when they read them.
    """

    def of_values(values: Array) -> tuple[Float64, Array]:
        gone = absent(values)
        wide = values.astype(np.float64)
        wide[gone] = 0
        return (wide if change is None else change(wide)), gone

    def dense(block: Array) -> Moments:
        wide, gone = of_values(block)
        there = len(block) - gone.sum(axis=0, dtype=np.float64)
        mean = np.divide(wide.sum(axis=0), there, out=np.zeros(len(there)), where=there > 0)
        wide -= mean
        wide[gone] = 0
        return Moments(there, mean, np.einsum("ij,ij->j", wide, wide))

    def stored(columns: Array, values: Array, rows: int, width: int, _: int) -> Moments:
        wide, gone = of_values(values)
        there = np.full(width, float(rows))
        if gone.any():
            there -= np.bincount(columns[gone], minlength=width)
            columns, wide = columns[~gone], wide[~gone]
        sums = np.bincount(columns, weights=wide, minlength=width)
        mean = np.divide(sums, there, out=np.zeros(width), where=there > 0)
        squares = np.bincount(columns, weights=(wide - mean[columns]) ** 2, minlength=width)
        zeros = there - np.bincount(columns, minlength=width)
        return Moments(there, mean, squares + zeros * mean**2)

    return _over_panels(source, dense, stored, Moments.merged)


@dataclass(frozen=True, slots=True)
class ColumnSums:
    """Sum of each column, sum of its squares, and counts of its negative and fractional entries, (n,) each.

    Sums of whole numbers are exact in float64: columns of the same counts have the same sums, whatever the
    order and cuts of the read.
    """

    total: Float64
    squares: Float64
    negative: Float64
    fractional: Float64

    def variance(self, rows: int) -> Float64:
        """Variances (n,) of ``rows`` numbers, with divisor ``rows - 1``; 0 for a constant column."""
        mean = self.total / rows
        apart = np.maximum(self.squares / rows - mean**2, 0.0)
        return np.asarray(apart * (rows / (rows - 1)) if rows > 1 else np.zeros(len(mean)), np.float64)


def column_sums(source: Source, *, most: Float64 | None = None) -> ColumnSums:
    """Sums of the columns and of their squares, after values are clipped to at most ``most`` (n,); one read.

    NaN and Inf are left out here; the methods refuse them when they read them.
    """
    bounds = np.full(source.shape[1], np.inf) if most is None else most

    def parts(values: Array, bound: Float64) -> tuple[Array, ...]:
        wide = values.astype(np.float64)
        wide[~np.isfinite(wide)] = 0
        above = wide > bound
        negative, fractional = wide < 0, wide != np.rint(wide)
        wide[above] = 0
        return wide, wide**2, above, negative, fractional

    def dense(block: Array) -> Array:
        return np.stack([each.sum(axis=0, dtype=np.float64) for each in parts(block, bounds)])

    def stored(columns: Array, values: Array, _: int, width: int, first: int) -> Array:
        return np.stack(
            [
                np.bincount(columns, weights=each, minlength=width)
                for each in parts(values, bounds[first + columns])
            ]
        )

    total, squares, above, negative, fractional = _over_panels(source, dense, stored, np.add)
    if most is not None:  # products, so that these sums do not depend on the order either
        total, squares = total + above * bounds, squares + above * bounds**2
    return ColumnSums(total, squares, negative, fractional)


def column_counts(source: Source) -> Float64:
    """Number of nonzero entries of each column, (n,)."""
    return _over_panels(
        source,
        lambda block: np.count_nonzero(block, axis=0).astype(np.float64),
        lambda columns, values, rows, width, first: np.bincount(columns[values != 0], minlength=width).astype(
            float
        ),
        np.add,
    )


def row_sums(source: Source) -> Float64:
    """Sums (m,) of the rows of a matrix that is dense or compressed by rows (CSR)."""
    stored = compressed(source)
    if stored is None:
        parts = _in_order(source, lambda span: _block(source, span).sum(axis=1, dtype=np.float64))
    else:
        parts = _in_order(source, lambda span: _sums_of_lines(stored, span))
    return np.concatenate(list(parts))


def weighted_means(source: Source, weights: Float64) -> Float64:
    """Means (n,) of the columns, in which each row counts by its weight, ``weights`` (m,).

    NaN and Inf count as 0 here; the methods refuse them when they read them.
    """
    stored, width = compressed(source), source.shape[1]
    by_columns = stored is not None and stored.by == "columns"

    def of(span: Span) -> Float64:
        if stored is None:
            block = _block(source, span).astype(np.float64)
            block[~np.isfinite(block)] = 0
            return np.asarray(np.einsum("i,ij->j", weights[slice(*span)], block))
        lines = stored.read_sparse(span)
        own = np.repeat(np.arange(span[1] - span[0]), np.diff(lines.indptr))
        rows, columns = (lines.indices, own) if by_columns else (own + span[0], lines.indices)
        values = np.where(np.isfinite(lines.data), lines.data, 0).astype(np.float64) * weights[rows]
        count = span[1] - span[0] if by_columns else width
        return np.bincount(columns, weights=values, minlength=count).astype(np.float64)

    parts = _in_order(source, of)
    if by_columns:
        sums = np.concatenate(list(parts))
    else:
        sums = np.zeros(width)
        for part in parts:
            sums += part
    return np.asarray(sums / weights.sum(), np.float64)


def _sums_of_lines(stored: CompressedSource, span: Span) -> Float64:
    lines = stored.read_sparse(span)
    rows = np.repeat(np.arange(span[1] - span[0]), np.diff(lines.indptr))
    sums = np.bincount(rows, weights=lines.data.astype(np.float64), minlength=span[1] - span[0])
    return sums.astype(np.float64)


# Panels -------------------------------------------------------------------------------------------


def _over_panels(
    source: Source,
    dense: Callable[[Array], T],
    stored: Callable[[Array, Array, int, int, int], T],
    merge: Callable[[T, T], T],
) -> T:
    """Apply ``dense`` to each block of rows, or ``stored`` to each sparse panel, and merge results in order.

    ``stored`` is called with the columns and values of the stored entries, the numbers of rows and columns of
    the panel, and its first column. Results of a matrix that is compressed by columns are not merged but
    concatenated.
    """
    lines = compressed(source)
    width = source.shape[1]

    def of(span: Span) -> T:
        if lines is None:
            return dense(_block(source, span))
        part = sum_places(lines.read_sparse(span), width if lines.by == "rows" else source.shape[0])
        if lines.by == "rows":
            return stored(part.indices, part.data, span[1] - span[0], width, 0)
        columns = np.repeat(np.arange(span[1] - span[0]), np.diff(part.indptr))
        return stored(columns, part.data, source.shape[0], span[1] - span[0], span[0])

    parts = _in_order(source, of)
    if lines is not None and lines.by == "columns":
        beside: T = _beside(list(parts))
        return beside
    total = next(parts)
    for part in parts:
        total = merge(total, part)
    return total


def _beside(parts: list[Any]) -> Any:
    """Concatenate results of panels of columns: fields of ``Moments``, or arrays along the last axis."""
    if isinstance(parts[0], Moments):
        fields = ("count", "mean", "squares")
        return Moments(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))
    return np.concatenate(parts, axis=-1)


def _in_order(source: Source, of: Callable[[Span], T]) -> Iterator[T]:
    """Yield ``of(span)`` of each panel in order, computed in threads, with few panels in memory."""
    threads = min(MOST_THREADS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(threads, "rankfold-measure") as pool:
        for span in _spans(source):
            waiting.append(pool.submit(of, span))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _spans(source: Source) -> Iterator[Span]:
    """Yield the ``(start, stop)`` of each panel, along the rows or the compressed axis of a matrix."""
    lines = compressed(source)
    if lines is None:
        row_bytes = max(1, source.shape[1] * 8)
        yield from pieces((0, source.shape[0]), source.row_grid, PANEL_BYTES // row_bytes)
        return
    grid = source.row_grid if lines.by == "rows" else source.column_grid
    mean = max(1, lines.nnz // grid.length)
    yield from pieces((0, grid.length), grid, max(1, PANEL_BYTES // (16 * mean)))


def _block(source: Source, span: Span) -> Array:
    block = np.empty((span[1] - span[0], source.shape[1]), source.dtype)
    source.read_into(block, span, (0, source.shape[1]))
    return block
