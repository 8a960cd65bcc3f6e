"""A sparse matrix in AnnData's layout: a Zarr group of ``data``, ``indices`` and ``indptr``.

https://anndata.readthedocs.io/en/stable/fileformat-prose.html: attributes ``encoding-type`` (``csr_matrix``
or ``csc_matrix``), ``encoding-version`` and ``shape``. Lines are rows (CSR) or columns (CSC), whichever are
stored contiguously. Panels of lines, those read at once, are made dense in the caller's buffer. A panel along
the other axis requires reading everything, which the grid marks as ``scattered``.

The trap: ``indptr`` has an element for every line. It is read slice by slice, and never kept.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from rankfold.pipeline.chunks.absence import Absence, sum_absences
from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.chunks.row_marks import RowMarks, join_marks
from rankfold.pipeline.data.dtypes import cut, require_matrix, whole_lengths
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.names import Names
from rankfold.pipeline.data.selection import Readable
from rankfold.pipeline.data.source import MOST_FILES, Csr, absence_of, index_dtype
from rankfold.pipeline.errors import ChunkError, DataError, InputError, UnfitFileError
from rankfold.pipeline.formats.locate import node_kind
from rankfold.pipeline.formats.zarr.vector import Vector, vector_at
from rankfold.pipeline.law import first_fall, first_outside
from rankfold.pipeline.regular import read_json

# The group of three vectors -----------------------------------------------------------------------


ENCODINGS = {"csr_matrix": "rows", "csc_matrix": "columns"}
"""Lines that are stored contiguously, rows or columns, by AnnData's name of the layout."""

PIECE = 2**17
"""Number of stored entries that are scattered into a dense buffer at a time."""

SPREAD_BYTES = 64
"""Bytes of memory to scatter one stored entry: its value, index and line, and temporaries of the checks."""

ENTRIES = 2**20
"""Number of stored entries that are read at a time if the result stays sparse."""

POINTERS = 2**16
"""Number of lines (rows of CSR, columns of CSC) whose pointers, ``indptr``, are read at a time."""


def spread_bytes(lines: int) -> int:
    """Upper bound in bytes on the memory to read ``lines`` rows (of CSR) or columns (of CSC) densely.

    It covers pointers and one piece of stored entries, not decoding of the chunks that hold them.
    """
    return SPREAD_BYTES * PIECE + 32 * min(lines, POINTERS)


def entry_bytes(lines: int, numbers: int) -> int:
    """Upper bound in bytes on the memory to read ``numbers`` stored entries as they are, beside the result.

    ``lines`` is the number of rows (of CSR) or columns (of CSC) that hold them. Decoding of the chunks that
    hold the entries is not included.
    """
    return SPREAD_BYTES * min(numbers, ENTRIES) + 32 * min(lines, POINTERS) + 8 * lines


@dataclass(frozen=True, slots=True, repr=False)
class CsrSource(Readable):
    """A sparse matrix in CSR or CSC, stored as three vectors on disk: values, indices and pointers."""

    name: str
    shape: tuple[int, int]
    data: Vector
    indices: Vector
    indptr: Vector
    by: str
    """``rows`` for CSR, ``columns`` for CSC: the lines that are stored contiguously."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored numbers in native byte order."""
        return self.data.dtype

    @property
    def path(self) -> str:
        """Folder or file of the store."""
        return self.data.path

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self.data.length

    @property
    def format(self) -> str:
        """Layout, number of stored entries and their share of all elements, as text."""
        share = self.nnz / (self.shape[0] * self.shape[1])
        layout = "CSR" if self.by == "rows" else "CSC"
        return f"{layout} in {self.data.format}, {self.nnz} stored numbers ({share:.2%})"

    @property
    def codec(self) -> str:
        """Compression of the chunks, as text."""
        return self.data.codec

    @property
    def row_grid(self) -> Grid:
        """The rows as one chunk: it can be cut anywhere in CSR; in CSC each row is spread over the store."""
        return self._grid(0)

    @property
    def column_grid(self) -> Grid:
        """The columns as one chunk: it can be cut anywhere in CSC; in CSR each is spread over the store."""
        return self._grid(1)

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``, zeros included; see ``Source``."""
        out[...] = 0
        lines, across, view = (rows, columns, out) if self.by == "rows" else (columns, rows, out.T)
        for top in range(*lines, POINTERS):
            bottom = min(lines[1], top + POINTERS)
            ends = self.pointers(top, bottom)
            for start in range(int(ends[0]), int(ends[-1]), PIECE):
                stop = min(int(ends[-1]), start + PIECE)
                self._spread(view, ends, (start, stop), top - lines[0], across)

    def names(self, axis: int) -> Names | None:
        """Names of the rows (0) or columns (1); None if it has none."""
        written = self.data.names_of_group(axis)
        return written or Names.of([self.data.axis_of_group(axis, ("row", "column")[axis], self.shape[axis])])

    def pointers(self, top: int, bottom: int) -> npt.NDArray[np.int64]:
        """``indptr[top : bottom + 1]``, checked: where rows (CSR) or columns (CSC) start in ``data``.

        ``ChunkError`` if they decrease, or do not go from 0 to the number of stored entries.
        """
        ends, lines = self.indptr.take(top, bottom + 1).astype(np.int64, copy=False), self.indptr.length - 1
        first, last = (0 if top == 0 else ends[0]), (self.nnz if bottom == lines else ends[-1])
        if not 0 <= ends[0] == first <= last == ends[-1] <= self.nnz or first_fall(ends) is not None:
            raise ChunkError(
                f"{self.name}: indptr[{top}:{bottom + 1}] is not increasing from 0 to {self.nnz}, the length "
                "of data. Restore the store"
            )
        return ends

    def entries(self, start: int, stop: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        """Indices and values of stored entries ``start:stop``, (stop - start,) each.

        Indices are those of columns (CSR) or rows (CSC); ``ChunkError`` for one outside the matrix.
        """
        return self.places(start, stop).astype(np.int64, copy=False), self.data.take(start, stop)

    def places(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Indices of columns (CSR) or rows (CSC) of stored entries ``start:stop``, in their stored type.

        ``ChunkError`` for an index outside the matrix.
        """
        indices, short = self.indices.take(start, stop), self.shape[1 if self.by == "rows" else 0]
        if (wrong := first_outside(indices, 0, short - 1)) is not None:
            raise ChunkError(
                f"{self.name}: indices[{start + wrong}] is {indices[wrong]}, but the matrix has {short} "
                f"{'columns' if self.by == 'rows' else 'rows'}. Restore the store"
            )
        return indices

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound in bytes on the memory of one ``read_into`` of that size, beside ``out``.

        It covers pointers, a piece of entries to scatter, and decoding of a chunk.
        """
        vectors = max(v.read_bytes(1, PIECE) for v in (self.data, self.indices, self.indptr))
        return vectors + spread_bytes(rows if self.by == "rows" else columns)

    def read_sparse(self, lines: Span) -> Csr:
        """Rows (CSR) or columns (CSC) in the span ``lines`` as stored, in new memory.

        See ``CompressedSource``.
        """
        start, stop = lines
        pointers: npt.NDArray[Any] = np.empty(stop - start + 1, index_dtype(*self.shape, self.nnz))
        first = int(self.pointers(start, start + 1)[0])
        for top in range(start, stop, POINTERS):
            bottom = min(stop, top + POINTERS)
            ends = self.pointers(top, bottom)
            pointers[top - start : bottom - start + 1] = ends - first
        last = first + int(pointers[-1])
        indices: npt.NDArray[Any] = np.empty(last - first, pointers.dtype)
        data: npt.NDArray[Any] = np.empty(last - first, self.dtype)
        for begin in range(first, last, ENTRIES):
            end = min(last, begin + ENTRIES)
            indices[begin - first : end - first], data[begin - first : end - first] = self.entries(begin, end)
        return Csr(pointers, indices, data)

    def sparse_bytes(self, numbers: int) -> int:
        """Upper bound in bytes on the memory of a sparse read of ``numbers`` entries, beside its result.

        It covers pointers, a piece of entries and its checks, and decoding of a chunk.
        """
        vectors = max(v.read_bytes(1, min(numbers, ENTRIES)) for v in (self.data, self.indices, self.indptr))
        return vectors + entry_bytes(self.shape[0 if self.by == "rows" else 1], numbers)

    def check(self) -> None:
        """Raise ``ChunkError`` for lengths that do not agree, or chunk files that are missing."""
        self.check_lengths()
        for vector in (self.data, self.indices, self.indptr):
            if vector.length:
                vector.check()
        first, last = (int(self.indptr.take(at, at + 1)[0]) for at in (0, self.indptr.length - 1))
        if (first, last) != (0, self.nnz):
            raise ChunkError(
                f"{self.name}: indptr goes from {first} to {last} instead of 0 to {self.nnz}. "
                "Restore the store"
            )

    def check_lengths(self) -> None:
        """Raise ``ChunkError`` for lengths of the three vectors that do not agree."""
        lines = self.shape[0 if self.by == "rows" else 1]
        if self.indices.length != self.nnz or self.indptr.length != lines + 1:
            raise ChunkError(
                f"{self.name}: data has {self.nnz} numbers, indices {self.indices.length}, indptr "
                f"{self.indptr.length} for {lines} {self.by}: the first two must agree, the last be one "
                "more. Restore the store"
            )

    def absent_chunks(self, most: int = MOST_FILES) -> Absence | None:
        """Number of missing chunks of all three vectors, by a look at up to ``most`` files of each."""
        return sum_absences(absence_of(v, most) for v in (self.data, self.indices, self.indptr) if v.length)

    def fingerprint(self) -> str:
        """Digest of shape, layout, and the fingerprints of the vectors."""
        parts = [str(self.shape), self.by]
        parts += [vector.fingerprint() for vector in (self.data, self.indices, self.indptr)]
        return hashlib.blake2b(" ".join(parts).encode(), digest_size=16).hexdigest()

    def row_marks(self, rows: int) -> RowMarks:
        """Digests that change if the first ``rows`` rows have changed: see ``GrowingSource``."""
        if self.by != "rows":
            raise InputError(f"{self.name} is compressed by columns, in each of which a new row has a place")
        stored = int(self.pointers(rows, rows)[0])
        counts = ((self.indptr, rows + 1), (self.indices, stored), (self.data, stored))
        return join_marks([vector.row_marks(count) for vector, count in counts]).beside(self.shape[1])

    def stored_bytes(self) -> int:
        """Bytes on disk of the three vectors."""
        return sum(vector.stored_bytes() for vector in (self.data, self.indices, self.indptr))

    def _grid(self, axis: int) -> Grid:
        length, together = self.shape[axis], (axis == 0) == (self.by == "rows")
        edges = np.asarray([0, length], dtype=np.int64)
        return Grid(edges, splittable=together, scattered=not together)

    def _spread(
        self, view: npt.NDArray[Any], ends: npt.NDArray[np.int64], piece: Span, top: int, across: Span
    ) -> None:
        """Add stored entries ``piece``, (start, stop), to the dense array ``view`` of (lines, indices).

        Lines are rows (CSR) or columns (CSC). ``ends`` are their pointers, the first that of line ``top`` of
        ``view``; ``across`` is the span of indices within a line that ``view`` covers.
        """
        indices, values = self.entries(*piece)
        bounds = np.clip(ends, *piece)
        lines = np.repeat(np.arange(top, top + len(ends) - 1), np.diff(bounds))
        if across != (0, self.shape[1 if self.by == "rows" else 0]):
            inside = (indices >= across[0]) & (indices < across[1])
            lines, indices, values = lines[inside], indices[inside] - across[0], values[inside]
        with np.errstate(over="ignore", invalid="ignore"):  # the reader refuses numbers that are not finite
            if len(lines) > 1 and not bool(((np.diff(indices) > 0) | (np.diff(lines) > 0)).all()):
                # Not in order: an element may be stored twice, and its value is the sum.
                for start in range(0, len(lines), PIECE // 4):
                    part = slice(start, start + PIECE // 4)
                    self._require_sums(view, lines[part], indices[part], values[part])
                    np.add.at(view, (lines[part], indices[part]), values[part])
            else:
                # The first line continues from the piece before and may repeat one of its elements: add.
                if piece[0] > ends[0] and len(lines):
                    part = slice(0, int(np.searchsorted(lines, lines[0], "right")))
                    self._require_sums(view, lines[part], indices[part], values[part])
                view[lines, indices] += values

    def _require_sums(
        self,
        view: npt.NDArray[Any],
        lines: npt.NDArray[np.int64],
        indices: npt.NDArray[np.int64],
        values: npt.NDArray[Any],
    ) -> None:
        """Raise ``DataError`` if integers stored for one element add up to more than their type holds.

        ``values`` are about to be added to ``view`` at positions (``lines``, ``indices``).
        """
        if self.dtype.kind not in "iu" or self.dtype.itemsize == 8:
            return
        added = scipy.sparse.coo_array((values.astype(np.int64), (lines, indices)), view.shape)
        added.sum_duplicates()
        total = added.data + view[added.row, added.col]
        limits = np.iinfo(self.dtype)
        if (wrong := first_outside(total, limits.min, limits.max)) is not None:
            raise DataError(
                f"{self.name}: numbers of one place add up to {total[wrong]}, which {self.dtype} does not "
                "hold. Import it as wider numbers, with dtype='int64' (--dtype int64)"
            )


def compressed_kind(folder: str) -> str | None:
    """``rows`` for a folder that holds a CSR matrix of AnnData, ``columns`` for CSC; None for others."""
    if not os.path.isdir(folder) or node_kind(folder) != "group":
        return None
    return ENCODINGS.get(str(_attributes(folder).get("encoding-type")))


def csr_source(path: str, group: str, missing: str | None = "error") -> CsrSource:
    """The sparse matrix in a group of the Zarr store in the folder ``path``.

    ``missing`` is the option ``missing_chunks`` of ``open_source``: ``error`` or ``fill``.
    """
    folder = os.path.join(path, group)
    name = f"{path}::{group}" if group else path
    if (by := compressed_kind(folder)) is None:
        raise InputError(f"{name} is not a sparse matrix: its attributes say {cut(_attributes(folder))}")
    rows, columns = whole_lengths(name, _attributes(folder).get("shape"))
    names = (f"{group}/{part}" if group else part for part in ("data", "indices", "indptr"))
    parts = [vector_at(path, each, missing=missing) for each in names]
    require_matrix(name, (rows, columns), parts[0].dtype)
    for vector in parts[1:]:
        if vector.dtype.kind not in "iu":
            raise ChunkError(
                f"{vector.name} holds {vector.dtype}, but numbers of places are whole. Restore the store"
            )
    return CsrSource(name, (rows, columns), parts[0], parts[1], parts[2], by)


def _attributes(folder: str) -> dict[str, Any]:
    """Attributes of the Zarr group in ``folder``, version 2 or 3, read without Zarr; empty if it has none.

    Errors such as a stale file handle are raised: the document is then not missing.
    """
    for document in ("zarr.json", ".zattrs"):
        try:
            values = read_json(os.path.join(folder, document))
        except UnfitFileError:
            raise
        except (FileNotFoundError, NotADirectoryError, ValueError):
            continue
        if not isinstance(values, dict):
            continue
        attributes = values.get("attributes", {}) if document == "zarr.json" else values
        return attributes if isinstance(attributes, dict) else {}
    return {}
