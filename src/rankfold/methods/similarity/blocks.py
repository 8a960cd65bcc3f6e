"""Rows of a matrix in blocks (runs of rows), prepared for kernel functions.

All blocks stay in memory, or each is read when used. The edges of blocks, and so the order of all sums,
follow from the matrix alone.

Checks that similarities (values of a kernel function) are finite numbers, wherever they are made.

A non-integer power of a negative product has no value, and a high power may overflow even where rows and
their squares are finite.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.similarity.functions import Rows, Similarity, rows_of
from rankfold.kernels.similarity.tiles import evaluate
from rankfold.methods.knn.row_blocks import refuse_large, refuse_nonfinite
from rankfold.methods.parts.panels import numbers
from rankfold.methods.parts.sample import Sample
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.pairs import block_edges
from rankfold.pipeline.errors import DataError

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@dataclass(slots=True)
class RowBlocks:
    """Blocks of rows of a matrix, read and prepared when asked for.

    ``edges`` (blocks + 1,) are the first row of each block, and the number of rows.
    """

    source: Source
    similarity: Similarity
    shift: Float64
    """(columns,) subtracted from rows if the kernel function depends on differences alone; else zeros."""

    edges: Int64
    stay: bool
    """True if blocks stay in memory once they are read."""

    resident: dict[int, Rows] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source, similarity: Similarity, *, stay: bool) -> RowBlocks:
        """Cut the rows of a matrix into blocks; the shift is the mean of a sample of rows, or zeros."""
        edges = edges_of(source)
        return cls(source, similarity, shift_of(source, similarity), edges, stay)

    @property
    def count(self) -> int:
        """Number of blocks."""
        return len(self.edges) - 1

    @property
    def rows(self) -> int:
        """Number of rows of the matrix."""
        return int(self.edges[-1])

    def span(self, index: int) -> slice:
        """Rows of block ``index``, as a slice of all rows."""
        return slice(int(self.edges[index]), int(self.edges[index + 1]))

    def block(self, index: int) -> Rows:
        """Read and prepare block ``index``; raises ``NonFiniteError``, or ``DataError`` for large squares."""
        if index in self.resident:
            return self.resident[index]
        span = self.span(index)
        raw = np.empty((span.stop - span.start, self.source.shape[1]), self.source.dtype)
        self.source.read_into(raw, (span.start, span.stop), (0, raw.shape[1]))
        rows = checked_rows(raw, self.similarity, self.shift, self.source, span.start)
        if self.stay:
            self.resident[index] = rows
        return rows


def checked_rows(raw: Array, similarity: Similarity, shift: Float64, source: Source, first: int) -> Rows:
    """Prepare rows ``raw`` (r, d) for kernel functions; raises if one is not finite, or too large to square.

    ``first`` is the number of the first of them in the matrix ``source``, for messages.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        rows = rows_of(numbers(raw), similarity, shift)
    bad = ~np.isfinite(rows.values)
    if raw.dtype.kind == "f" and bad.any():
        bad = ~np.isfinite(raw)
        if bad.any():
            row, column = np.unravel_index(int(bad.argmax()), bad.shape)
            place = first + int(row), int(column)
            refuse_nonfinite(source, (first, first + len(raw)), int(bad.sum()), place)
    if not np.isfinite(rows.squares).all():
        row, column = np.unravel_index(int(np.abs(rows.values).argmax()), raw.shape)
        refuse_large(source, (first + int(row), int(column)))
    return rows


def edges_of(source: Source) -> Int64:
    """(blocks + 1,) first row of each block of a matrix, and the number of rows.

    Blocks are whole chunks where these cannot be split.
    """
    return block_edges(source.row_grid, source.shape[1])


def tallest(source: Source) -> int:
    """Number of rows of the tallest block."""
    return int(np.diff(edges_of(source)).max())


def shift_of(source: Source, similarity: Similarity) -> Float64:
    """(columns,) mean of a sample of rows; zeros if the kernel function is not of differences alone."""
    if not similarity.is_of_differences:
        return np.zeros(source.shape[1])
    sample = Sample.of(View(source, Orientation.ROWS), 0).read()
    with np.errstate(over="ignore", invalid="ignore"):
        mean = numbers(sample).mean(axis=0, dtype=np.float64)
    return np.where(np.isfinite(mean), mean, 0.0)


def block_bytes(source: Source, rows: int) -> int:
    """Bytes in memory of ``rows`` rows as prepared for kernel functions."""
    return 8 * rows * (source.shape[1] + 1)


def reading_bytes(source: Source, rows: int) -> int:
    """Additional bytes while ``rows`` rows are read: rows as stored, and copies made to prepare them."""
    item = source.dtype.itemsize + 8 + 2
    return int(source.read_bytes(rows, source.shape[1]) + rows * source.shape[1] * item)


def require_finite(numbers: npt.ArrayLike, name: str, dtype: str = "float64") -> None:
    """Raise ``DataError`` if similarities of rows, or values computed from them, are not finite.

    ``name`` is that of the matrix, and ``dtype`` the type in which values are not finite, for the message.
    """
    if not np.isfinite(numbers).all():
        raise DataError(
            f"similarities of rows of {name} are no numbers, or they, or sums of their squares, leave "
            f"the range of {dtype}: take another kernel, a smaller gamma or degree, or rescale the columns"
        )


def finite_similarities(x: Rows, y: Rows, similarity: Similarity, name: str) -> Float64:
    """(m, p) similarities of m rows ``x`` with p rows ``y``; raises ``DataError`` if one is not finite.

    ``name`` is that of the matrix, for the message.
    """
    out = np.empty((len(x.squares), len(y.squares)))
    evaluate(x, y, similarity=similarity, out=out)
    require_finite(out, name)
    return out
