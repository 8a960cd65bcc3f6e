"""Rows of a sparse matrix, prepared for comparison: cut into blocks, read without zeros, with their norms.

Blocks follow from shape and pointers, and have similar counts of stored numbers. They are taller than those
of dense rows, since every pair of blocks measures its own candidates and measuring is most of the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import Metric
from rankfold.kernels.neighbors.sparse_meeting import MOST_COMMON, SparseRows, square_rows
from rankfold.kernels.sparse.row_products import COMMON_FILL
from rankfold.methods.knn.row_blocks import (
    DIRECT_TYPES,
    FAINTEST_SQUARE,
    refuse_faint,
    refuse_large,
    refuse_nonfinite,
    row_dtype,
)
from rankfold.methods.parts.panels import numbers
from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.data.source import (
    CompressedSource,
    Csr,
    Source,
    index_dtype,
    number_bytes,
    sparse_by_rows,
)
from rankfold.pipeline.engine.pairs import MOST_BLOCKS
from rankfold.pipeline.formats.arrays import SparseSource

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

BLOCK_NUMBERS, BLOCK_ROWS = 3 * 2**19, 8192
"""Largest number of stored entries and most rows of a block, unless ``MOST_BLOCKS`` such blocks cannot hold
all rows."""

POINTERS = 2**20
"""Number of rows whose pointers are read at once."""

PIECE = 2**17
"""Number of stored entries that are sorted, and duplicates added up, at once, where the columns of a row do
not increase."""

SORT_BYTES = 48
"""Bytes for each entry while rows are sorted by column and duplicates added up."""

SAMPLE_RUNS, SAMPLE_NUMBERS = 8, 2**18
"""Number of runs of rows in which common columns are counted, and about how many entries in all."""


def sparse_rows(source: Source) -> CompressedSource | None:
    """The matrix as a sparse source if its rows are to be compared in sparse form, else None."""
    stored = sparse_by_rows(source)
    return stored if stored is not None and row_dtype(stored.dtype) in DIRECT_TYPES else None


@dataclass(frozen=True, slots=True)
class SparseBlocks:
    """Rows of a sparse matrix cut into blocks: ``edges`` (blocks + 1,) are their first rows, and the end."""

    edges: Int64
    numbers: Int64
    """(blocks + 1,) number of stored entries before each edge."""

    longest: int
    """Largest number of stored entries of a row."""

    @property
    def most(self) -> int:
        """Number of stored entries of the fullest block."""
        return int(np.diff(self.numbers).max())

    def most_of(self, rows: int) -> int:
        """Largest number of stored entries of successive blocks of at most ``rows`` rows together, or of one
        block."""
        stop = np.searchsorted(self.edges, self.edges[:-1] + rows, side="right") - 1
        stop = np.maximum(stop, np.arange(1, len(self.edges)))
        return int((self.numbers[stop] - self.numbers[:-1]).max())


def column_dtype(columns: int) -> np.dtype[Any]:
    """Integer type of column numbers in memory: the narrower one that holds them."""
    return index_dtype(1, columns, 1)


def cut_blocks(source: CompressedSource, also: tuple[int, ...] = ()) -> SparseBlocks:
    """Cut rows where a block would have too many rows or stored entries, and before each row in ``also``."""
    rows, most = source.shape[0], max(BLOCK_NUMBERS, 2 * source.nnz // MOST_BLOCKS)
    tallest = max(BLOCK_ROWS, 2 * -(-rows // MOST_BLOCKS))
    edges, before, longest = [0], [0], 0
    starts = np.union1d(np.arange(0, rows + 1, POINTERS), [rows, *also]).tolist()
    for top, bottom in pairwise(starts):
        pointers = source.pointers(top, bottom)
        longest = max(longest, int(np.diff(pointers).max(initial=0)))
        for stop in _cuts(pointers, tallest, most):
            edges.append(top + stop)
            before.append(int(pointers[stop]))
    return SparseBlocks(np.array(edges, np.int64), np.array(before, np.int64), longest)


def _cuts(pointers: Array, tallest: int, most: int) -> list[int]:
    """Ends of blocks, as indices into ``pointers`` (rows + 1,), the CSR pointers of rows to be cut.

    Blocks are few, and of similar heights where entries allow it. A block has at most ``tallest`` rows and
    ``most`` entries, unless a single row has more.
    """
    count = len(pointers) - 1
    pieces = max(1, -(-count // tallest), -(-int(pointers[-1] - pointers[0]) // most))
    stops = []
    for piece in range(pieces):
        start, end = count * piece // pieces, count * (piece + 1) // pieces
        while start < end:
            fits = int(np.searchsorted(pointers, pointers[start] + most, side="right")) - 1
            start = min(end, max(start + 1, fits))
            stops.append(start)
    return stops


def common_columns(source: CompressedSource) -> Int64:
    """Indices (c,), ascending, of columns in which many rows of a sample store an entry; if these are too
    many, of the fullest."""
    rows, columns = source.shape
    sample = min(rows, max(SAMPLE_RUNS, SAMPLE_NUMBERS * rows // max(1, source.nnz)))
    counts, count = np.zeros(columns, np.int64), 0
    for run in range(SAMPLE_RUNS):
        start = rows * run // SAMPLE_RUNS
        stop = min(rows * (run + 1) // SAMPLE_RUNS, start + -(-sample // SAMPLE_RUNS))
        if stop > start:
            counts += np.bincount(source.read_sparse((start, stop)).indices, minlength=columns)
            count += stop - start
    common = np.flatnonzero(counts > COMMON_FILL * count)
    if len(common) > MOST_COMMON:
        common = np.sort(common[np.argsort(-counts[common], kind="stable")[:MOST_COMMON]])
    return common


@dataclass(frozen=True, slots=True)
class SparseReader:
    """Reads rows of a sparse matrix into memory, with their norms."""

    source: CompressedSource
    metric: int

    @property
    def columns(self) -> int:
        """Number of columns of the source."""
        return self.source.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of values in memory: see ``DIRECT_TYPES``."""
        return row_dtype(self.source.dtype)

    @property
    def lent(self) -> bool:
        """True if the entries of a matrix in memory are used in place."""
        if not isinstance(self.source, SparseSource):
            return False
        array = self.source.array
        return bool(array.dtype == self.dtype and array.indices.dtype == column_dtype(self.columns))

    @property
    def bytes_to_read(self) -> int:
        """Bytes to read for a row, on average; 0 if they are in memory already."""
        if self.lent:
            return 0
        return -(-self.source.nnz * number_bytes(self.source) // self.source.shape[0])

    @property
    def _number_bytes(self) -> int:
        """Bytes of a stored entry in memory: its value and its column."""
        return column_dtype(self.columns).itemsize + self.dtype.itemsize

    def memory_bytes(self, rows: int, stored: int) -> int:
        """Bytes of ``rows`` rows in memory that have ``stored`` entries in all."""
        return stored * self._number_bytes * (not self.lent) + 5 * 8 * (rows + 1)

    def read_bytes(self, rows: int, stored: int, longest: int) -> int:
        """Additional bytes while ``rows`` rows with ``stored`` entries are read, converted and sorted.

        ``longest`` is the largest number of entries of a row.
        """
        each = 2 * (8 + self.source.dtype.itemsize) + self._number_bytes
        sorting = SORT_BYTES * max(min(stored, PIECE), longest)
        copies = 0 if self.lent else stored * each + sorting
        return copies + 5 * 8 * (rows + 1) + self.source.sparse_bytes(stored)

    def read(self, start: int, stop: int) -> SparseRows:
        """Read rows ``start:stop`` with their norms; entries stored twice for a column are added up."""
        stored = self.source.read_sparse((start, stop))
        rows = self._rows(start, stored)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            if not self._square(rows):
                stored = add_up(stored)
                rows = self._rows(start, stored)
                self._square(rows)
            rows.norms[:] = rows.squares[:, 0]
            if self.metric == Metric.COSINE:
                self._scale(rows)
        if not np.isfinite(rows.norms).all():
            self._refuse(stored, rows)
        return rows

    def _rows(self, start: int, stored: Csr) -> SparseRows:
        count = len(stored.indptr) - 1
        data = numbers(stored.data).astype(self.dtype, copy=False)
        indices = stored.indices.astype(column_dtype(self.columns), copy=False)
        arrays = np.asarray(stored.indptr, np.int64), indices, data
        return SparseRows(start, self.columns, *arrays, np.empty(count), np.ones(count), np.empty((count, 2)))

    def _square(self, rows: SparseRows) -> bool:
        """Write ``squares`` of the scaled rows, in place; returns True if columns increase in every row."""
        return square_rows(rows.indptr, rows.indices, rows.data, rows.scale, squares=rows.squares)

    def _scale(self, rows: SparseRows) -> None:
        """Set ``scale`` to reciprocal norms, ``squares`` to those of the scaled rows, ``norms`` to 1."""
        norms, scale = rows.norms, rows.scale
        np.divide(1.0, np.sqrt(norms), out=scale, where=norms > 0)
        scale[norms == 0] = 0.0
        # Distances would need what such squares have lost: refused, unless the row is zero.
        for row in np.flatnonzero(norms < FAINTEST_SQUARE).tolist():
            if rows.data[rows.indptr[row] : rows.indptr[row + 1]].any():
                norms[row] = np.nan
        norms[np.isfinite(norms)] = 1.0
        self._square(rows)

    def _refuse(self, stored: Csr, rows: SparseRows) -> None:
        start, stop = rows.first, rows.first + len(rows)
        bad = np.flatnonzero(~np.isfinite(stored.data))
        if len(bad):
            refuse_nonfinite(self.source, (start, stop), len(bad), self._place(start, stored, int(bad[0])))
        if np.isnan(rows.norms).any():
            refuse_faint(self.source, start + int(np.isnan(rows.norms).argmax()))
        refuse_large(self.source, self._place(start, stored, int(np.abs(stored.data).argmax())))

    def _place(self, start: int, stored: Csr, at: int) -> Span:
        """Row and column of the stored entry at index ``at`` of rows that begin with row ``start``."""
        row = int(np.searchsorted(stored.indptr, at, side="right")) - 1
        return start + row, int(stored.indices[at])


def add_up(stored: Csr) -> Csr:
    """Sort the entries of each row by column, into new arrays.

    Entries of the same column are added up, in the order in which they are stored.
    """
    lengths, pieces = [], []
    start, count = 0, len(stored.indptr) - 1
    while start < count:
        fits = int(np.searchsorted(stored.indptr, stored.indptr[start] + PIECE, side="right")) - 1
        stop = min(count, max(start + 1, fits))
        first, last = int(stored.indptr[start]), int(stored.indptr[stop])
        rows = np.repeat(np.arange(stop - start), np.diff(stored.indptr[start : stop + 1]))
        order = np.lexsort((stored.indices[first:last], rows))
        rows, places = rows[order], stored.indices[first:last][order]
        fresh = np.ones(len(order), np.bool_)
        fresh[1:] = (np.diff(rows) > 0) | (np.diff(places) > 0)
        sums = np.zeros(int(fresh.sum()), stored.data.dtype)
        np.add.at(sums, np.cumsum(fresh) - 1, stored.data[first:last][order])
        lengths.append(np.bincount(rows[fresh], minlength=stop - start))
        pieces.append((places[fresh], sums))
        start = stop
    pointers = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    indices, data = (np.concatenate(part) for part in zip(*pieces, strict=True))
    return Csr(pointers, indices, data)
