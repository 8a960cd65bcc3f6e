"""A matrix on disk or in memory, behind one small protocol.

Code that sweeps over a matrix sees only this: its shape and type, how it is chunked, and
``read_into`` a buffer that the caller owns and uses again. A source is a description that pickles
(a path, never an open store), so a task may carry it to another process.

A sparse matrix also gives its stored entries as they are, for code that does not need the zeros. Its lines
are its rows, or its columns if it is compressed by columns (CSC); a place is an index within a line.

The base of ``stacked.py`` is an array of any number of axes, read box by box: a store of (time,
latitude, longitude) is a ``Volume``, and the matrix of time by places asks it for boxes. All
boxes of one read are requested together, since several may lie in the same chunk, which should be
decoded once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
import scipy.sparse

from rankfold.kernels.sparse.products import are_in_order
from rankfold.pipeline.chunks.absence import Absence
from rankfold.pipeline.chunks.geometry import Piece, Span
from rankfold.pipeline.chunks.row_marks import RowMarks
from rankfold.pipeline.data.grid import Even, Grid, require_few_edges
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.text import shell_words


@runtime_checkable
class Source(Protocol):
    """A matrix that can be read a rectangle at a time, whatever kind of store it is in."""

    @property
    def name(self) -> str:
        """Name of the matrix in messages."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows (samples) and columns (features)."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements as stored, in native byte order."""

    @property
    def row_grid(self) -> Grid:
        """Native chunks along the rows."""

    @property
    def column_grid(self) -> Grid:
        """Native chunks along the columns."""

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``.

        ``out`` has the shape of the selection and the type ``dtype``; its rows are contiguous but
        may lie apart. Raises ``ChunkError`` for a chunk that is missing, truncated or damaged. Safe
        to call from several threads at once.
        """

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound on the bytes that a ``read_into`` of so many rows and columns takes besides ``out``."""

    def check(self) -> None:
        """Raise ``ChunkError`` for damage that can be found without reading the data."""

    def fingerprint(self) -> str:
        """Digest that changes when the data may have changed: metadata, chunk sizes and times."""


# Stored numbers alone ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Csr:
    """Some lines of a sparse matrix in CSR form: rows, or columns if the matrix is compressed by columns."""

    indptr: npt.NDArray[np.integer[Any]]
    """Position of the first entry of each of these lines, from 0, and number of entries, (lines + 1,)."""

    indices: npt.NDArray[np.integer[Any]]
    """Index of every entry within its line, (entries,), which is within bounds; of the type of ``indptr``."""

    data: npt.NDArray[Any]
    """Values of the entries, (entries,). Entries at the same position stand for their sum."""


def sum_places(lines: Csr, across: int) -> Csr:
    """The lines with entries sorted by index and duplicates summed; the same object if they are so already.

    ``across`` is the length of a line.
    """
    if are_in_order(lines.indptr, lines.indices):
        return lines
    shape = len(lines.indptr) - 1, across
    rows = scipy.sparse.csr_array((lines.data, lines.indices, lines.indptr), shape=shape).copy()
    rows.sum_duplicates()
    return Csr(rows.indptr, rows.indices, rows.data)


class CompressedSource(Source, Protocol):
    """A sparse ``Source``, whose stored entries can be read without the zeros between them."""

    @property
    def by(self) -> str:
        """Compressed axis, whose lines are contiguous in the store: ``rows`` (CSR) or ``columns`` (CSC)."""

    @property
    def nnz(self) -> int:
        """Number of stored entries."""

    def pointers(self, top: int, bottom: int) -> npt.NDArray[np.int64]:
        """Number of stored entries before each line from ``top`` to ``bottom``, (bottom - top + 1,).

        They are counted from line 0 of the matrix. ``ChunkError`` if a file holds invalid ones.
        """

    def read_sparse(self, lines: Span) -> Csr:
        """Read lines ``start:stop`` (``lines``), with all their entries; thread-safe.

        Do not write to them: they may share the caller's memory. Raises ``ChunkError`` for pointers that
        decrease and for places outside the matrix.
        """

    def sparse_bytes(self, numbers: int) -> int:
        """Upper bound on the bytes that ``read_sparse`` of so many entries takes besides its result."""


def compressed(source: Source) -> CompressedSource | None:
    """The matrix as a ``CompressedSource`` if it is sparse; None for others."""
    return cast(CompressedSource, source) if hasattr(source, "read_sparse") else None


def require_compressed(source: Source) -> CompressedSource:
    """The matrix as a ``CompressedSource``; ``TypeError`` if it is not sparse."""
    stored = compressed(source)
    if stored is None:
        raise TypeError(f"{source.name} does not tell its stored numbers")
    return stored


def require_rows(source: Source, what: str = "so that rows cannot be read by themselves") -> None:
    """Raise ``InputError`` for a matrix that is compressed by columns; the message says how to convert it.

    ``what`` is the reason in the message.
    """
    if source.row_grid.scattered:
        path = getattr(source, "path", None)
        remedy = f": rankfold import {shell_words([source.name])} STORE.zarr" if path else ", as x.tocsr()"
        raise InputError(
            f"{source.name} is compressed by columns, {what}. Write it by rows (CSR) first{remedy}"
        )


def number_bytes(source: CompressedSource) -> int:
    """Bytes of a stored entry: of its value and its index."""
    return int(source.dtype.itemsize + index_dtype(*source.shape, source.nnz).itemsize)


def stored_size(source: CompressedSource) -> tuple[int, int]:
    """Number of stored entries of a sparse matrix, and bytes of all its values, indices and pointers."""
    lines = source.shape[0 if source.by == "rows" else 1]
    return source.nnz, source.nnz * number_bytes(source) + 8 * lines


def sparse_by_rows(source: Source) -> CompressedSource | None:
    """The matrix as a ``CompressedSource`` if sparse products pay and it is compressed by rows; else None."""
    stored = sparse(source)
    return stored if stored is not None and stored.by == "rows" else None


LARGEST_FILL = 0.15
"""Largest share of stored entries for sparse products.

Above it, dense products, of 3 ns an element, beat sparse ones, of 20 ns an entry.
"""


def sparse(source: Source) -> CompressedSource | None:
    """The matrix as a ``CompressedSource`` if it is sparse enough for sparse products to pay; else None."""
    stored = compressed(source)
    if stored is None:
        return None
    rows, columns = source.shape
    return stored if stored.nnz <= LARGEST_FILL * rows * columns else None


def index_dtype(lines: int, across: int, numbers: int) -> np.dtype[Any]:
    """The narrower type, int32 or int64, that holds all pointers and indices of a sparse matrix.

    ``lines`` and ``across`` are the lengths of its axes, ``numbers`` the number of its stored entries.

    >>> index_dtype(10, 10, 50).name, index_dtype(10, 10, 2**31).name
    ('int32', 'int64')
    """
    return np.dtype(np.int32 if max(lines, across, numbers) < 2**31 else np.int64)


# Rows to which others are added -------------------------------------------------------------------


class GrowingSource(Source, Protocol):
    """A ``Source`` that can tell if its first rows are unchanged after others were appended."""

    def row_marks(self, rows: int) -> RowMarks:
        """Digests of the first ``rows`` rows, which do not change if others are appended after them.

        Reads sizes and times of files, and at most one row of chunks. Raises
        ``InputError`` if that is not enough.
        """


def row_marks(source: Source | Volume, rows: int) -> RowMarks:
    """Digests of the first rows of a matrix: see ``GrowingSource``.

    Raises
    ------
    InputError
        Only a read of all of them would show whether they have changed.
    """
    if not hasattr(source, "row_marks"):
        raise InputError(
            f"nothing but a read of all rows tells whether those of {source.name} have changed: leave out "
            "grows, or keep it in a folder as Zarr, which is appended to, or as one file for each addition"
        )
    return cast(GrowingSource, source).row_marks(rows)


# More axes ----------------------------------------------------------------------------------------


class Volume(Protocol):
    """An array of any number of axes that can be read box by box; like ``Source``, it pickles."""

    @property
    def name(self) -> str:
        """Name of the array in messages."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of every axis."""

    @property
    def axes(self) -> tuple[str, ...]:
        """Name of every axis, or its number where it has none."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements in native byte order."""

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Native chunks along every axis."""

    @property
    def path(self) -> str | None:
        """Local file or folder; None if it has none."""

    @property
    def format(self) -> str:
        """Kind of store."""

    @property
    def codec(self) -> str:
        """Compression of chunks."""

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Read every box into ``out`` of its piece; ``ChunkError`` for missing or damaged chunks.

        Thread-safe.
        """

    def read_bytes(self, elements: int) -> int:
        """Upper bound on the bytes that one ``read_boxes`` of so many elements takes besides the output."""

    def check(self) -> None:
        """Raise ``ChunkError`` for damage that can be found without reading the data."""

    def fingerprint(self) -> str:
        """Digest that changes when the data may have changed."""

    def stored_bytes(self) -> int:
        """Bytes on disk, 0 if there are none."""


MOST_FILES = 100_000
"""Largest number of files of a store that are examined, evenly spaced if there are more."""


@runtime_checkable
class Chunked(Protocol):
    """An array whose store may lack some of its chunks."""

    @property
    def name(self) -> str:
        """Name of the array in messages."""

    def absent_chunks(self, most: int = MOST_FILES) -> Absence | None:
        """Number of chunks that the store lacks, by a look at up to ``most`` of its files.

        None if it has no chunks.
        """


def absence_of(source: object, most: int = MOST_FILES) -> Absence | None:
    """Number of chunks that the store of a matrix lacks, by a look at up to ``most`` of its files.

    None if the store has no chunks.
    """
    return source.absent_chunks(most) if isinstance(source, Chunked) else None


class Wrapper:
    """Base of sources and volumes that read through another, ``inner``, and have some of its properties."""

    __slots__ = ()
    inner: Any

    @property
    def name(self) -> str:
        """Name of the matrix in messages."""
        return str(self.inner.name)

    @property
    def path(self) -> str | None:
        """Local file or folder of the wrapped source; None if that has none."""
        return getattr(self.inner, "path", None)

    @property
    def codec(self) -> str:
        """Compression of chunks."""
        return str(getattr(self.inner, "codec", "unknown"))

    @property
    def attributes(self) -> Mapping[str, str]:
        """Attributes of its values, such as units."""
        found: Mapping[str, str] = getattr(self.inner, "attributes", {})
        return found

    def check(self) -> None:
        """Raise ``ChunkError`` for damage found without reading the data, also in parts left out."""
        self.inner.check()

    def absent_chunks(self, most: int = MOST_FILES) -> Absence | None:
        """Number of chunks that its store lacks; see ``absence_of``."""
        return absence_of(self.inner, most)

    def stored_bytes(self) -> int:
        """Bytes on disk of everything that is read from."""
        count = getattr(self.inner, "stored_bytes", None)
        return int(count()) if count else 0


class SamePlaces(Wrapper):
    """A wrapper that changes values but not positions: it has the shape and the chunks of ``inner``."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.inner.shape
        return rows, columns

    @property
    def row_grid(self) -> Grid:
        """Chunks along the rows."""
        grid: Grid = self.inner.row_grid
        return grid

    @property
    def column_grid(self) -> Grid:
        """Chunks along the columns."""
        grid: Grid = self.inner.column_grid
        return grid


class Matrix:
    """Base that makes a ``Volume`` of two axes a ``Source``: grids of both axes, and ``read_into``."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def grids(self) -> tuple[Grid, ...]: ...

        def read_boxes(self, pieces: Sequence[Piece]) -> None: ...

    @property
    def row_grid(self) -> Grid:
        """Native chunks along the rows."""
        return self.grids[0]

    @property
    def column_grid(self) -> Grid:
        """Native chunks along the columns."""
        return self.grids[1]

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; see ``Source``."""
        self.read_boxes([Piece((rows, columns), out)])


def stack_grids(grids: Sequence[Grid]) -> Grid:
    """Cut into chunks of an axis that stacks several axes in C order, from ``grids``, the cuts of these.

    It has an edge wherever the elements on both sides share no chunk.

    >>> day, lat = (Grid.regular(3, chunk, splittable=False) for chunk in (1, 2))
    >>> stack_grids([lat, day]).edges.tolist(), stack_grids([day, lat]).edges.tolist()
    ([0, 6, 9], [0, 2, 3, 5, 6, 8, 9])
    """
    if not grids:
        return Grid.regular(1, 1, splittable=True)
    # Axes with chunks of length 1 cut everywhere; the first with longer chunks cuts, and later axes never do.
    at = next((i for i, grid in enumerate(grids) if grid.longest > 1), len(grids) - 1)
    before = math.prod(grid.length for grid in grids[:at])
    inner = math.prod(grid.length for grid in grids[at + 1 :])
    splittable, whole = all(grid.splittable for grid in grids), grids[at].length * inner
    if isinstance(grids[at].cuts, Even) and (before == 1 or grids[at].length % grids[at].longest == 0):
        return Grid.regular(before * whole, grids[at].longest * inner, splittable=splittable)
    require_few_edges(before * grids[at].count)
    steps = grids[at].edges[1:] * inner
    edges = (np.arange(before, dtype=np.int64)[:, None] * whole + steps).ravel()
    return Grid(np.concatenate([[0], edges]), splittable)
