"""Readers of sparse matrices in CSR, CSC or COO (triplets), whose vectors are each read once, in order.

The vectors may be slices of an open file or streams that only go forward, so entries are taken from each of
them in order. CSC yields entries in the order of columns: they are sorted later. Lines are rows in CSR,
columns in CSC.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.source import CompressedSource
from rankfold.pipeline.errors import ChunkError
from rankfold.pipeline.importing.readers.reader import Entries

ENTRY_BYTES = 64
"""Bytes of memory for each entry of a block: index, value, line, and copies while it is checked, joined."""

FEWEST = 4096
"""Least number of entries that are read at once, however small the memory."""


class Vector(Protocol):
    """One-dimensional array that is read in order, once."""

    def take(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Read the elements ``start:stop``; ``start`` must be the ``stop`` of the previous call."""


Opener = Callable[[], contextlib.AbstractContextManager[dict[str, Vector]]]
"""Function that opens the vectors of a matrix, by name: data, indices, indptr, or data, row, col."""


@dataclass(frozen=True, slots=True)
class CompressedReader:
    """Reader of a sparse matrix in CSR or CSC from vectors that are read in order."""

    name: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    entry_count: int
    by: str
    """``rows`` for CSR, ``columns`` for CSC."""

    vectors: Opener
    notes: tuple[str, ...] = field(default=())

    @property
    def in_row_order(self) -> bool:
        """True for CSR; CSC yields its entries column by column."""
        return self.by == "rows"

    @property
    def total_bytes(self) -> int:
        """Bytes of the stored values, decoded."""
        return max(1, self.entry_count * self.dtype.itemsize)

    def blocks(self, memory_bytes: int) -> Iterator[tuple[Entries, int]]:
        """Yield the entries of whole rows (CSR) or columns (CSC), with the bytes of values read so far.

        A block is of as many as fit into ``memory_bytes``, but at least one; see ``EntryReader``.
        """
        lines, short = self.shape if self.by == "rows" else self.shape[::-1]
        with self.vectors() as vectors:
            for top, ends in self._groups(vectors["indptr"], lines, memory_bytes):
                start, stop = int(ends[0]), int(ends[-1])
                if start == stop:
                    continue
                indices, values = vectors["indices"].take(start, stop), vectors["data"].take(start, stop)
                require_inside(self.name, "indices", indices, start, short)
                line_numbers = np.repeat(np.arange(top, top + len(ends) - 1), np.diff(ends))
                rows, columns = (line_numbers, indices) if self.by == "rows" else (indices, line_numbers)
                yield Entries(rows, columns, values), stop * self.dtype.itemsize

    def _groups(
        self, indptr: Vector, lines: int, memory_bytes: int
    ) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Yield groups of rows (CSR) or columns (CSC) whose entries fit into memory.

        Each is the index of its first line, and its part of ``indptr``, (lines of the group + 1,). ``lines``
        is the number of all rows (or columns).
        """
        most, step = max(1, memory_bytes // ENTRY_BYTES), max(1, memory_bytes // ENTRY_BYTES)
        last = indptr.take(0, 1).astype(np.int64)
        if last[0] != 0:
            raise ChunkError(f"{self.name}: indptr begins with {last[0]} instead of 0. Restore the file")
        for top in range(0, lines, step):
            bottom = min(lines, top + step)
            ends = np.concatenate([last, indptr.take(top + 1, bottom + 1).astype(np.int64)])
            if (np.diff(ends) < 0).any() or ends[-1] > self.entry_count:
                raise ChunkError(
                    f"{self.name}: indptr[{top}:{bottom + 1}] is not increasing up to {self.entry_count}, "
                    "the length of data. Restore the file"
                )
            for first, after in groups_of_lines(ends, most):
                yield top + first, ends[first : after + 1]
            last = ends[-1:]
        if last[0] != self.entry_count:
            raise ChunkError(
                f"{self.name}: indptr ends with {last[0]} instead of {self.entry_count}, the length of data. "
                "Restore the file"
            )


@dataclass(frozen=True, slots=True)
class LinesReader:
    """Reader of a sparse matrix of which any rows (CSR) or columns (CSC) can be read, as one in memory."""

    source: CompressedSource
    notes: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        """Name of the matrix in messages."""
        return self.source.name

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.source.dtype

    @property
    def entry_count(self) -> int:
        """Number of stored values."""
        return self.source.nnz

    @property
    def in_row_order(self) -> bool:
        """True for CSR; CSC yields its entries column by column."""
        return self.source.by == "rows"

    @property
    def total_bytes(self) -> int:
        """Bytes of the stored values, decoded."""
        return max(1, self.entry_count * self.dtype.itemsize)

    def blocks(self, memory_bytes: int) -> Iterator[tuple[Entries, int]]:
        """Yield the entries of whole rows (CSR) or columns (CSC), with the bytes of values read so far.

        A block is of as many as fit into ``memory_bytes``, but at least one; see ``EntryReader``.
        """
        is_rows, count = self.source.by == "rows", self.shape[0 if self.source.by == "rows" else 1]
        most, stored = self._most_numbers(memory_bytes), 0
        for top in range(0, count, most):
            ends = self.source.pointers(top, min(count, top + most))
            for first, last in groups_of_lines(ends, most):
                lines = self.source.read_sparse((top + first, top + last))
                numbers = np.repeat(np.arange(top + first, top + last), np.diff(lines.indptr))
                stored += len(numbers)
                rows, columns = (numbers, lines.indices) if is_rows else (lines.indices, numbers)
                if len(numbers):
                    yield Entries(rows, columns, lines.data), stored * self.dtype.itemsize

    def _most_numbers(self, memory_bytes: int) -> int:
        """Number of entries of a block that fit into memory, counting what reading them takes."""
        most = max(FEWEST, memory_bytes // (2 * ENTRY_BYTES))
        while most > FEWEST and 2 * ENTRY_BYTES * most + self.source.sparse_bytes(most) > memory_bytes:
            most = max(FEWEST, most // 2)
        return most


def groups_of_lines(ends: npt.NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Yield (first, last + 1) of groups of consecutive lines with at most ``most`` entries each.

    A group has at least one line. Lines are rows or columns; ``ends`` is their ``indptr``, (lines + 1,), and
    indices count from its first line.
    """
    first, count = 0, len(ends) - 1
    while first < count:
        after = int(np.searchsorted(ends, ends[first] + most, side="right")) - 1
        after = min(max(after, first + 1), count)
        yield first, after
        first = after


@dataclass(frozen=True, slots=True)
class TripletReader:
    """Reader of a sparse matrix in COO: vectors of rows, columns and values, in any order."""

    name: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    entry_count: int
    vectors: Opener
    notes: tuple[str, ...] = field(default=())

    @property
    def in_row_order(self) -> bool:
        """False: the order is not known before they are read."""
        return False

    @property
    def total_bytes(self) -> int:
        """Bytes of the stored values, decoded."""
        return max(1, self.entry_count * self.dtype.itemsize)

    def blocks(self, memory_bytes: int) -> Iterator[tuple[Entries, int]]:
        """Yield the entries of successive slices of the vectors, with the bytes of values read so far.

        See ``EntryReader``.
        """
        step = max(1, memory_bytes // ENTRY_BYTES)
        with self.vectors() as vectors:
            for start in range(0, self.entry_count, step):
                stop = min(self.entry_count, start + step)
                rows, columns, values = (vectors[name].take(start, stop) for name in ("row", "col", "data"))
                require_inside(self.name, "row", rows, start, self.shape[0])
                require_inside(self.name, "col", columns, start, self.shape[1])
                yield Entries(rows, columns, values), stop * self.dtype.itemsize


def require_vectors(name: str, vectors: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> None:
    """Raise ``ChunkError`` unless the (shape, type) of each vector suits a sparse matrix.

    ``vectors`` has them by name: ``data``, ``indices``, ``indptr``, or ``data``, ``row``, ``col``; ``name``
    is that of the matrix.
    """
    for vector, (shape, dtype) in vectors.items():
        if len(shape) != 1 or (vector != "data" and dtype.kind not in "iu"):
            kind = "numbers" if vector == "data" else "whole numbers"
            raise ChunkError(
                f"{name}: {vector} is {dtype} {shape}, but should be a vector of {kind}. Restore the file"
            )


def require_inside(name: str, vector: str, indices: npt.NDArray[Any], start: int, length: int) -> None:
    """Raise ``ChunkError`` unless all indices are in ``range(length)``.

    For the message, ``name`` is that of the matrix, and ``start`` the position of the first index in the
    vector that is called ``vector``.
    """
    if len(indices) and (indices.min() < 0 or indices.max() >= length):
        wrong = int(np.argmax((indices < 0) | (indices >= length)))
        raise ChunkError(
            f"{name}: {vector}[{start + wrong}] is {indices[wrong]}, but the matrix has only {length}. "
            "Restore the file"
        )
