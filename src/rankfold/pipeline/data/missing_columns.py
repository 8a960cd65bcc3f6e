"""A matrix without its missing columns, such as places on land in data of the ocean.

A missing column has no number, only NaN. Such columns are looked for in the first rows only, ``LOOKED_BYTES``
of them. So every read also checks the columns left out: a number in one of them is an error, never silently
lost. Which columns are kept is held as one bit each. Columns that are kept may hold NaN; the reductions
decide how to treat it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.encoding import scratch
from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.chunks.row_marks import RowMarks
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.selection import steps, unit
from rankfold.pipeline.data.source import Source, Wrapper, row_marks
from rankfold.pipeline.errors import DataError

FETCH_BYTES = 8 * 2**20
"""Bytes of the buffer of a read, including columns left out, unless one chunk takes more."""

COPY_BYTES = 2**20
"""Bytes of the rows of the buffer that are checked and copied at a time."""

BLOCK = 4096
"""Number of columns between two cumulative counts of kept columns in a ``ColumnMask``."""

FIRST_ROW = 2**20
"""Largest number of columns that are read at once in the search for missing ones."""

LOOKED_BYTES = 64 * 2**20
"""Bytes of the first rows that are read to find columns without a number; at least one row is read."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnMask:
    """Mask of the columns of a matrix that are kept, in one bit for each column."""

    bits: npt.NDArray[np.uint8]
    """Mask packed by ``np.packbits``: 1 for kept columns."""

    before: npt.NDArray[np.int64]
    """Number of kept columns before each block of ``BLOCK`` columns, and in all, (blocks + 1,)."""

    length: int
    """Number of all columns."""

    @property
    def count(self) -> int:
        """Number of columns kept."""
        return int(self.before[-1])

    @classmethod
    def of(cls, mask: npt.NDArray[np.bool_]) -> ColumnMask:
        """Make it from a mask (columns,) that is True for kept columns."""
        counts = np.add.reduceat(mask, np.arange(0, len(mask), BLOCK), dtype=np.int64)
        return cls(np.packbits(mask), np.concatenate([[0], np.cumsum(counts)]), len(mask))

    def mask(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Mask of columns ``start:stop``, True for kept ones."""
        first = start // 8
        bits = np.unpackbits(self.bits[first : -(-stop // 8)])
        return bits[start - first * 8 : stop - first * 8].view(bool)

    def place(self, index: int) -> int:
        """Index in the whole matrix of the kept column that has number ``index`` among those kept."""
        block = int(np.searchsorted(self.before, index, side="right")) - 1
        mask = self.mask(block * BLOCK, min(self.length, (block + 1) * BLOCK))
        return block * BLOCK + int(np.flatnonzero(mask)[index - int(self.before[block])])

    def rank(self, column: int) -> int:
        """Number of kept columns before ``column``."""
        block = column // BLOCK
        return int(self.before[block]) + int(np.count_nonzero(self.mask(block * BLOCK, column)))


@dataclass(frozen=True, slots=True, eq=False)
class WithoutMissing(Wrapper):
    """A matrix without the columns that are NaN throughout its first rows."""

    inner: Source
    chosen: ColumnMask
    looked: int = 1
    """Number of first rows in which missing columns were looked for."""

    @property
    def name(self) -> str:
        """Name of the matrix in messages."""
        return f"{self.inner.name} [{self.chosen.count} of {self.chosen.length} columns not missing]"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and columns kept."""
        return self.inner.shape[0], self.chosen.count

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements in native byte order."""
        return self.inner.dtype

    @property
    def format(self) -> str:
        """Kind of store, and how many columns are left out."""
        inner = getattr(self.inner, "format", type(self.inner).__name__)
        return f"{inner}, without {self.chosen.length - self.chosen.count} missing columns"

    @property
    def row_grid(self) -> Grid:
        """Chunks along the rows."""
        return self.inner.row_grid

    @property
    def column_grid(self) -> Grid:
        """Chunks along the kept columns; chunks without kept columns are left out."""
        grid = self.inner.column_grid
        edges = {self.chosen.rank(edge) for edge in grid.edges[:-1].tolist()}
        return Grid(np.asarray(sorted(edges | {0, self.chosen.count}), np.int64), grid.splittable)

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; ``DataError`` for a number in a column left out."""
        if rows[0] >= rows[1] or columns[0] >= columns[1]:
            return
        span = self._edge(columns[0]), self._edge(columns[1])
        at = 0
        for left, right in steps(span, self.inner.column_grid, FETCH_BYTES // self._item_column()):
            mask = self.chosen.mask(left, right)
            count = int(np.count_nonzero(mask))
            most = FETCH_BYTES // (self.dtype.itemsize * (right - left))
            for top, bottom in steps(rows, self.inner.row_grid, most):
                size = (bottom - top) * (right - left) * self.dtype.itemsize
                buffer = scratch.get("sifted", size).view(self.dtype).reshape(bottom - top, right - left)
                self.inner.read_into(buffer, (top, bottom), (left, right))
                target = out[top - rows[0] : bottom - rows[0], at : at + count]
                self._sift(buffer, mask, target, (top, left))
            at += count

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound on the bytes of one ``read_into`` in addition to ``out``.

        That is what the matrix takes, the buffer, and copies of a few rows.
        """
        tall, wide = (unit(grid) for grid in (self.inner.row_grid, self.inner.column_grid))
        item = self.dtype.itemsize
        wide = max(wide, min(self.chosen.length, FETCH_BYTES // self._item_column()))
        # Kept and other numbers, masks of NaN; and the column numbers that NumPy makes from masks.
        copies = 4 * max(COPY_BYTES, wide * item) + 32 * wide
        # Buffers of a thread are an eighth larger than what was asked for.
        buffer = max(FETCH_BYTES, tall * wide * item) * 9 // 8
        return self.inner.read_bytes(max(rows, tall) + 1, wide) + buffer + copies

    def fingerprint(self) -> str:
        """Digest of the matrix and of the kept columns."""
        digest = hashlib.blake2b(self.inner.fingerprint().encode(), digest_size=16)
        digest.update(self.chosen.bits.data)
        return digest.hexdigest()

    def row_marks(self, rows: int) -> RowMarks:
        """Digests that change if the first rows have changed; see ``GrowingSource``."""
        kept = hashlib.blake2b(self.chosen.bits.data, digest_size=16).hexdigest()
        return row_marks(self.inner, rows).beside(kept)

    def _item_column(self) -> int:
        """Bytes of one column in the smallest number of rows that are read at once."""
        return self.dtype.itemsize * unit(self.inner.row_grid)

    def _edge(self, index: int) -> int:
        """First column of the whole matrix that is read for a span of columns that begins at kept ``index``.

        Columns left out are read with the kept one before them, except after an edge of a chunk. So reading
        along the grid never reads a chunk twice.
        """
        if index == 0:
            return 0
        if index == self.chosen.count:
            return self.chosen.length
        place, before = self.chosen.place(index), self.chosen.place(index - 1)
        edge, _ = self.inner.column_grid.chunk_of(place)
        return edge if edge > before else place

    def _sift(
        self, buffer: npt.NDArray[Any], mask: npt.NDArray[np.bool_], out: npt.NDArray[Any], corner: Span
    ) -> None:
        """Copy kept columns of ``buffer`` into ``out``, a few rows at a time; check that others are NaN.

        ``mask`` is True for kept columns; ``corner`` is the row and column of the buffer in the whole matrix.
        """
        if mask.all():
            out[...] = buffer
            return
        step = max(1, COPY_BYTES // (buffer.shape[1] * buffer.itemsize))
        for top in range(0, len(buffer), step):
            part = buffer[top : top + step]
            present = ~np.isnan(part[:, ~mask])
            if present.any():
                row, number = np.argwhere(present)[0].tolist()
                column = int(np.flatnonzero(~mask)[number])
                raise DataError(self._complaint(corner[0] + top + row, corner[1] + column, part[row, column]))
            out[top : top + step] = part[:, mask]

    def _complaint(self, row: int, column: int, value: Any) -> str:
        return (
            f"{self.inner.name}: column {column} is NaN in {_first_rows(self.looked)}, so "
            f"drop_missing_columns leaves it out, but row {row} holds {value} in it. Fill or remove its "
            "gaps, select columns yourself with select_columns= (--select-columns), or start at a row where "
            "it is not missing with select_rows= (--select-rows)"
        )


def without_missing_columns(source: Source) -> Source:
    """The matrix without columns that are NaN in its first rows; the matrix itself if there are none.

    Reads one row; where that has NaN, further rows, ``LOOKED_BYTES`` in all.
    """
    if source.dtype.kind != "f":
        return source
    rows, columns = source.shape
    row_bytes = max(1, columns) * source.dtype.itemsize
    mask, looked = np.zeros(columns, bool), max(1, min(rows, LOOKED_BYTES // row_bytes))
    for left, right in steps((0, columns), source.column_grid, FIRST_ROW):
        some, most = mask[left:right], max(1, FETCH_BYTES // ((right - left) * source.dtype.itemsize))
        for top in (0, *range(1, looked, most)):
            if some.all():
                break
            part = np.empty((min(looked - top, most) if top else 1, right - left), source.dtype)
            source.read_into(part, (top, top + len(part)), (left, right))
            some |= ~np.isnan(part).all(axis=0)
    if mask.all():
        return source
    if not mask.any():
        raise DataError(
            f"{source.name}: all {columns} columns are NaN in {_first_rows(looked)}, so drop_missing_columns "
            "would leave nothing. Leave out rows that hold no number with drop_missing_rows=True "
            "(--drop-missing-rows), or start at one that does with select_rows= (--select-rows)"
        )
    return WithoutMissing(source, ColumnMask.of(mask), looked)


def _first_rows(count: int) -> str:
    return "row 0" if count == 1 else f"rows 0 to {count - 1}"
