"""Rows of a block, prepared for comparison: as stored, as multiplied, and their norms.

The rows as stored decide distances; the copy that is multiplied only bounds them. The copy is centered where
the mean is far from zero relative to the spread, since rounding errors grow with norms. Rows that are float32
and lie near zero are their own copy. See ``kernels/neighbors/bounds.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import aligned_empty
from rankfold.kernels.neighbors.lists import Metric
from rankfold.kernels.neighbors.meeting import Rows, square_norms
from rankfold.methods.knn.projection import Directions
from rankfold.methods.parts.panels import numbers, remedy
from rankfold.methods.parts.sample import Sample
from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.data.dtypes import note_digits
from rankfold.pipeline.data.origin import place_of
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation, View, working_dtype
from rankfold.pipeline.errors import DataError, NonFiniteError

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

LARGEST_SQUARE = 2.0**96
"""Products of rows with squared norms above this are made in float64: those of float32 must stay in range."""

SMALLEST_SQUARE = 2.0**-80
"""Products of rows with squared norms below this are made in float64."""

FAINTEST_SQUARE = 2.0**-960
"""Squared norms below this have lost some of their terms to underflow."""

WORTH_CENTERING = 4.0
"""Mean square over variance above which a centered copy is worth its memory."""

DIRECT_TYPES = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.uint8))
"""Types that distances are measured in as they are stored; others are converted, without loss below 2^53."""


@dataclass(slots=True)
class RowBuffer:
    """Buffers for rows of several blocks: as stored, as multiplied, squared norms, and scales."""

    raw: Array
    """(rows, columns) as stored; empty if rows are used where they lie in memory."""

    copy: npt.NDArray[np.float32] | None
    """(rows, columns) as multiplied; None if that takes no memory of its own."""

    norms: Float64
    """(rows,) squared norms of the rows as multiplied."""

    scale: Float64
    """(rows,) reciprocal norms of the rows for cosine, else ones."""


@dataclass(frozen=True, slots=True)
class BlockReader:
    """Reads rows of a source into memory and prepares them for comparison."""

    source: Source
    metric: int
    shift: Float64 | None
    """(columns,) subtracted from rows of the copy, or None."""

    bounded: bool
    """True if products bound the metric, so that there is a copy."""

    directions: Directions | None = None
    """Directions in which the copy has coordinates; None if it is of the rows themselves."""

    @property
    def copy_columns(self) -> int:
        """Columns of the copy."""
        return self.columns if self.directions is None else self.directions.columns

    @property
    def columns(self) -> int:
        """Number of columns of the source."""
        return self.source.shape[1]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is stored."""
        return self.columns * self.source.dtype.itemsize

    @property
    def bytes_to_read(self) -> int:
        """Bytes to read for a row; 0 if it is in memory already."""
        return 0 if self.lent else self.row_bytes

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of rows in memory: see ``DIRECT_TYPES``."""
        return row_dtype(self.source.dtype)

    @property
    def copies(self) -> bool:
        """True if the copy of rows that is multiplied takes memory of its own."""
        plain = self.dtype == np.float32 and self.shift is None and self.metric != Metric.COSINE
        return self.bounded and not (plain and self.directions is None)

    @property
    def lent(self) -> bool:
        """True if rows are used where they lie in memory."""
        return self.dtype == self.source.dtype and self._lend(0, 0) is not None

    def _lend(self, start: int, stop: int) -> Array | None:
        return View(self.source, Orientation.ROWS).lend(start, stop)

    def memory_bytes(self, rows: int) -> int:
        """Bytes of a buffer for ``rows`` rows."""
        raw = self.columns * self.dtype.itemsize * (not self.lent)
        return rows * (raw + 4 * self.copy_columns * self.copies + 2 * 8)

    def read_bytes(self, tallest: int) -> int:
        """Bytes besides the buffers while ``tallest`` rows are read, including conversion to another type."""
        conversion_bytes = (
            tallest * self.columns * self.source.dtype.itemsize * (self.dtype != self.source.dtype)
        )
        return int(
            conversion_bytes
            + 2 * self._step * self.columns * 8
            + self.source.read_bytes(tallest, self.columns)
        )

    @property
    def _step(self) -> int:
        """Number of rows that are centered at a time."""
        return max(1, 2**20 // (8 * self.columns))

    def buffer(self, rows: int) -> RowBuffer:
        """Allocate buffers for ``rows`` rows."""
        raw = aligned_empty((0 if self.lent else rows, self.columns), self.dtype)
        copy = aligned_empty((rows, self.copy_columns), np.float32) if self.copies else None
        return RowBuffer(raw, copy, np.zeros(rows), np.ones(rows))

    def read(self, into: RowBuffer, start: int, stop: int, at: int) -> Rows:
        """Read rows ``start:stop`` into the buffer ``into`` from its row ``at`` on, and prepare them."""
        lent = self._lend(start, stop) if self.lent else None
        raw = into.raw[at : at + stop - start] if lent is None else lent
        if lent is None:
            self._fetch(raw, start, stop)
        return self.prepare(into, raw, start, at)

    def ready(self, raw: Array, copy: npt.NDArray[np.float32] | None = None) -> Rows:
        """Prepare rows ``raw`` that are in memory as stored, numbered from 0.

        ``copy`` is a buffer of their shape for the copy that is multiplied; None to allocate one if needed.
        """
        if copy is None and self.copies:
            copy = np.empty((len(raw), self.copy_columns), np.float32)
        return self.prepare(RowBuffer(raw, copy, np.zeros(len(raw)), np.ones(len(raw))), raw, 0, 0)

    def prepare(self, into: RowBuffer, raw: Array, start: int, at: int) -> Rows:
        """Prepare rows ``raw``, given as stored; ``start`` is the number of the first in the matrix.

        Their copy for products, norms and scales are written into ``into`` from its row ``at`` on.
        """
        count = len(raw)
        norms, scale = into.norms[at : at + count], into.scale[at : at + count]
        copy = into.copy[at : at + count] if into.copy is not None else None
        if copy is None and self.bounded:
            copy = raw
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            for top in range(0, count, self._step):
                some = slice(top, min(count, top + self._step))
                self._prepare(raw[some], None if copy is None else copy[some], norms[some], scale[some])
        if not np.isfinite(norms).all():
            self._refuse(raw, norms, start)
        leading = 0 if self.directions is None else self.directions.leading
        return Rows(start, raw, copy, norms, scale, leading)

    def _fetch(self, raw: Array, start: int, stop: int) -> None:
        whole = (0, self.columns)
        if raw.dtype == self.source.dtype:
            self.source.read_into(raw, (start, stop), whole)
            return
        source_rows = np.empty(raw.shape, self.source.dtype)
        self.source.read_into(source_rows, (start, stop), whole)
        note_digits(self.source.name, source_rows)
        np.copyto(raw, numbers(source_rows), casting="same_kind")

    def _prepare(self, raw: Array, copy: Array | None, norms: Float64, scale: Float64) -> None:
        """Write norms and scales of rows ``raw``, and the copy if it is not the rows themselves, in place."""
        if not self.bounded:  # nothing is squared before it is known to be near
            norms[:] = np.where(np.isfinite(raw).all(axis=1), 0.0, np.nan)
            return
        if self.metric != Metric.COSINE and self.shift is None and self.directions is None:
            square_norms(raw, out=norms)
            if copy is not None and self.copies:
                copy[...] = raw
            return
        values = raw.astype(np.float64)
        if self.metric == Metric.COSINE:
            np.einsum("ij,ij->i", values, values, out=norms)
            np.divide(1.0, np.sqrt(norms), out=scale, where=norms > 0)
            scale[norms == 0] = 0.0
            # Distances would need what such squares have lost: refused below, unless the row is zero.
            faint = np.flatnonzero(norms < FAINTEST_SQUARE)
            norms[faint[values[faint].any(axis=1)]] = np.nan
            values *= scale[:, None]
            norms[np.isfinite(norms)] = 1.0
        elif self.shift is not None:
            values -= self.shift
        if self.metric != Metric.COSINE:
            np.einsum("ij,ij->i", values, values, out=norms)
        if copy is None or not self.copies:
            return
        if self.directions is None:
            copy[...] = values
        else:
            self.directions.project(values, copy)

    def _refuse(self, raw: Array, norms: Float64, start: int) -> None:
        bad = ~np.isfinite(raw)
        if bad.any():
            row, column = np.unravel_index(int(bad.argmax()), bad.shape)
            place = start + int(row), int(column)
            refuse_nonfinite(self.source, (start, start + len(raw)), int(bad.sum()), place)
        if np.isnan(norms).any():
            refuse_faint(self.source, start + int(np.isnan(norms).argmax()))
        row, column = np.unravel_index(int(np.abs(raw).argmax()), raw.shape)
        refuse_large(self.source, (start + int(row), int(column)))


def refuse_nonfinite(source: Source, rows: Span, count: int, place: tuple[int, int]) -> NoReturn:
    """Raise ``NonFiniteError`` for rows that hold ``count`` NaN or Inf, the first of them at ``place``.

    ``rows`` are the first and the end, ``place`` is a row and a column of the matrix.
    """
    raise NonFiniteError(
        f"{source.name} holds NaN or Inf: {count} in rows {rows[0]} to {rows[1] - 1}, the first at "
        f"{place_of(source, *place)}. Nothing was computed. {remedy(source)}"
    )


def refuse_faint(source: Source, row: int) -> NoReturn:
    """Raise ``DataError`` for a row that is too short for its direction to be computed."""
    raise DataError(
        f"row {row} (from 0) of {source.name} is so short that its squares leave the range of float64, but "
        "cosine needs its direction. Scale it up, or set it to zero, and run again."
    )


def refuse_large(source: Source, place: tuple[int, int]) -> NoReturn:
    """Raise ``DataError`` for a number that cannot be squared, in the row and column ``place``."""
    raise DataError(
        f"the number in row {place[0]}, column {place[1]} (from 0) of {source.name} is so large that its "
        "square leaves the range of float64. Is it a mark for what is missing? Replace or drop it, and run "
        "again."
    )


def row_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Type in memory of the rows of a matrix stored as ``dtype``: see ``DIRECT_TYPES``."""
    if dtype == np.bool_:
        return np.dtype(np.uint8)
    return dtype if dtype in DIRECT_TYPES else working_dtype(dtype)


def choose_shift(source: Source, metric: int) -> tuple[Float64 | None, bool]:
    """Vector (columns,) to subtract from rows before products, or None; and True if these need float64.

    Both are decided by a sample of the rows.
    """
    sample = Sample.of(View(source, Orientation.ROWS), 0).read().astype(np.float64)
    mean = sample.mean(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = float(np.einsum("ij,ij->", sample, sample)) / len(sample)
        spread = squares - float(mean @ mean)
    centered = metric in (Metric.EUCLIDEAN, Metric.SQEUCLIDEAN) and squares > WORTH_CENTERING * spread
    size = spread if centered else squares
    precise = not SMALLEST_SQUARE < size < LARGEST_SQUARE
    return (mean if centered else None), precise and metric != Metric.COSINE
