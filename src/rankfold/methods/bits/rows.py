"""Rows of a block as sets: bits that are packed when they are read, or lists of members.

A column is a member of a row unless its number is zero; NaN and Inf are refused. Bits that are packed already
are bytes of eight columns each. The order of bits in a byte does not matter: counts do not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.bits.bit_meeting import BitRows, words_of
from rankfold.kernels.neighbors.sparse_meeting import SparseRows
from rankfold.methods.knn.row_blocks import refuse_nonfinite
from rankfold.methods.knn.sparse_rows import SparseReader, add_up, column_dtype
from rankfold.pipeline.data.source import Csr, Source
from rankfold.pipeline.data.view import Orientation, View

Array = npt.NDArray[Any]

STEP_BYTES = 2**20
"""Approximate bytes of the values that are packed at a time."""

FILTER_BYTES = 16
"""Bytes for each stored entry while entries of value zero are removed from sparse rows."""


@dataclass(frozen=True, slots=True)
class BitReader:
    """Reads rows of a source as packed bits."""

    source: Source
    packed: bool
    """True if rows are packed already, as bytes of eight columns each."""

    @property
    def bits(self) -> int:
        """Number of columns of a row, one bit each."""
        return self.source.shape[1] * (8 if self.packed else 1)

    @property
    def words(self) -> int:
        """Number of 64-bit words of a packed row."""
        return words_of(self.bits)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of words in memory."""
        return np.dtype(np.uint64)

    @property
    def bytes_to_read(self) -> int:
        """Bytes to read for a row; 0 if it is in memory already."""
        return 0 if self._lent else self.source.shape[1] * self.source.dtype.itemsize

    @property
    def _lent(self) -> bool:
        return self._lend(0, 0) is not None

    def _lend(self, start: int, stop: int) -> Array | None:
        return View(self.source, Orientation.ROWS).lend(start, stop)

    def memory_bytes(self, rows: int) -> int:
        """Bytes of ``rows`` rows in memory: packed words, and the number of members of each row."""
        return rows * (8 * self.words + 8)

    def read_bytes(self, rows: int) -> int:
        """Additional bytes while ``rows`` rows are read: rows as stored, and those being packed."""
        columns, itemsize = self.source.shape[1], self.source.dtype.itemsize
        raw = 0 if self._lent else rows * columns * itemsize + self.source.read_bytes(rows, columns)
        return raw + self._step * (3 * columns + 16 * self.words)

    @property
    def _step(self) -> int:
        """Number of rows that are packed at a time."""
        return max(1, STEP_BYTES // self.source.shape[1])

    def read(self, start: int, stop: int) -> BitRows:
        """Read rows ``start:stop`` as packed words, with the number of members of each."""
        columns = self.source.shape[1]
        raw = self._lend(start, stop)
        if raw is None:
            raw = np.empty((stop - start, columns), self.source.dtype)
            self.source.read_into(raw, (start, stop), (0, columns))
        words, sizes = np.zeros((len(raw), self.words), np.uint64), np.zeros(len(raw), np.int64)
        into = words.view(np.uint8)
        for top in range(0, len(raw), self._step):
            some = slice(top, min(len(raw), top + self._step))
            self._pack(raw[some], into[some], start + top)
            np.bitwise_count(words[some]).sum(axis=1, dtype=np.int64, out=sizes[some])
        return BitRows(start, self.bits, words, sizes)

    def _pack(self, raw: Array, into: npt.NDArray[np.uint8], start: int) -> None:
        """Pack rows ``raw``, of which the first has the number ``start``, into the bytes of their words.

        These are ``into`` (rows, bytes), which is written.
        """
        if self.packed:
            into[:, : raw.shape[1]] = raw
            return
        if raw.dtype.kind == "f":
            bad = ~np.isfinite(raw)
            if bad.any():
                row, column = np.unravel_index(int(bad.argmax()), bad.shape)
                place = start + int(row), int(column)
                refuse_nonfinite(self.source, (start, start + len(raw)), int(bad.sum()), place)
        packed = np.packbits(raw if raw.dtype == np.bool_ else raw != 0, axis=1)
        into[:, : packed.shape[1]] = packed


@dataclass(frozen=True, slots=True)
class SetReader(SparseReader):
    """Reads rows of a sparse matrix as sets: the columns of the nonzero entries of each row."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries of rows in memory, which are all ones."""
        return np.dtype(np.uint8)

    @property
    def lent(self) -> bool:
        """False: rows are never used where they lie in memory, since entries are replaced by ones."""
        return False

    def read_bytes(self, rows: int, stored: int, longest: int) -> int:
        """Additional bytes while ``rows`` rows of ``stored`` entries in all are read and zeros removed.

        ``longest`` is the largest number of entries of a row.
        """
        return SparseReader.read_bytes(self, rows, stored, longest) + FILTER_BYTES * stored

    def read(self, start: int, stop: int) -> SparseRows:
        """Read rows ``start:stop`` as the columns of their nonzero entries, with ones as values."""
        stored = self.source.read_sparse((start, stop))
        self._require_finite(start, stop, stored)
        if not _increases(stored):
            stored = add_up(stored)
        indptr, indices = np.asarray(stored.indptr, np.int64), stored.indices
        members = stored.data != 0
        if not members.all():
            before = np.concatenate([[0], np.cumsum(members)])
            indptr, indices = before[indptr - indptr[0]], indices[members]
        count, ones = len(indptr) - 1, np.ones(len(indices), self.dtype)
        columns = indices.astype(column_dtype(self.columns), copy=False)
        each = np.ones(count)
        return SparseRows(start, self.columns, indptr, columns, ones, each, each, np.empty((count, 2)))

    def _require_finite(self, start: int, stop: int, stored: Csr) -> None:
        bad = np.flatnonzero(~np.isfinite(stored.data))
        if len(bad):
            place = self._place(start, stored, int(bad[0]))
            refuse_nonfinite(self.source, (start, stop), len(bad), place)


def _increases(stored: Csr) -> bool:
    """True if the columns of the entries of every row increase."""
    falls = np.flatnonzero(stored.indices[1:] <= stored.indices[:-1]) + 1
    firsts = np.asarray(stored.indptr) - int(stored.indptr[0])
    return bool(np.isin(falls, firsts).all())
