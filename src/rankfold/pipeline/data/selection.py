"""Some rows and columns of a matrix, as a matrix: only what they need is read.

A slice without a step is read straight into the output. Other selections may pass through a buffer of a
few MiB, or of one chunk where chunks are decoded whole: ``Picks.fetches`` decides what is read at once.

The lines of a sparse matrix are its rows, or its columns if it is compressed by columns (CSC); a place is an
index within a line. Contiguous lines are read as they are stored, and entries at places that are left out are
dropped. Kept entries of each line are counted when the matrix is opened: a plan needs the counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from rankfold.kernels.sparse.kept import count_kept, find_kept
from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.chunks.lazy_array import LazyArray, in_one_line
from rankfold.pipeline.chunks.reads import SKIP_BYTES
from rankfold.pipeline.chunks.row_marks import RowMarks
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.index_selection import Fetch, Part, Picks, Selection, pick
from rankfold.pipeline.data.source import (
    CompressedSource,
    Csr,
    SamePlaces,
    Source,
    Wrapper,
    compressed,
    index_dtype,
    require_compressed,
    row_marks,
)
from rankfold.pipeline.errors import ChunkError, InputError
from rankfold.pipeline.text import facts_table, shortened
from rankfold.pipeline.units import format_bytes


def steps(span: Span, grid: Grid, most: int) -> Iterator[Span]:
    """Cut a span of an axis into pieces of at most ``most`` indices, or one chunk if chunks cannot be split.

    >>> list(steps((1, 10), Grid.regular(12, 4, splittable=False), 5))
    [(1, 4), (4, 8), (8, 10)]
    """
    start, stop = span
    while start < stop:
        end = min(stop, start + max(1, most))
        if not grid.splittable and end < stop:
            end, _ = grid.chunk_of(end)
            if end <= start:
                end = min(stop, grid.chunk_of(start)[1])
        yield start, end
        start = end


def unit(grid: Grid) -> int:
    """Smallest number of indices along an axis that are read at once: 1, or those of the longest chunk."""
    return 1 if grid.splittable else grid.longest


# Any part of a matrix -----------------------------------------------------------------------------


class Readable(LazyArray):
    """A ``Source`` that supports slices, sums and conversion like a dense NumPy array, also if it is sparse.

    Comparison with ``==`` compares sources, not elements as for arrays: caches use them as keys.
    """

    __slots__ = ()
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    if TYPE_CHECKING:

        @property
        def name(self) -> str: ...

        @property
        def shape(self) -> tuple[int, int]: ...

        @property
        def row_grid(self) -> Grid: ...

        @property
        def column_grid(self) -> Grid: ...

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return in_one_line(self.name, self)

    def _repr_html_(self) -> str:
        """Name, shape, type, size in memory and largest chunk of the matrix, as HTML for notebooks."""
        (rows, columns), size = self.shape, format_bytes(self.size * self.dtype.itemsize)
        facts = {
            "shape": f"{rows:,} × {columns:,}",
            "type": self.dtype,
            "size in memory": size,
            "largest chunk": f"{self.row_grid.longest:,} × {self.column_grid.longest:,}",
        }
        return facts_table(shortened(self.name), facts)

    def read_selection(self, selection: tuple[Any, ...]) -> npt.NDArray[Any]:
        """Read the rows and columns that slices or ascending indices select, one of them for each axis."""
        lines = list(zip(selection, self.shape, ("row", "column"), strict=True))
        rows, columns = (
            len(range(length)[line]) if isinstance(line, slice) else len(line) for line, length, _ in lines
        )
        out = np.empty((rows, columns), self.dtype)
        if out.size:
            picks = (pick(line, length, what=what, name=self.name) for line, length, what in lines)
            SelectedSource(cast(Source, self), *picks).read_into(out, (0, rows), (0, columns))
        return out


# The selected matrix ------------------------------------------------------------------------------


FETCH_BYTES = 4 * 2**20
"""Bytes of the buffer for pieces of which only a part is selected, unless one chunk takes more."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SelectedSource(Readable, Wrapper):
    """Selected rows and columns of another matrix; None selects all."""

    inner: Source
    rows: Picks | None
    columns: Picks | None

    @property
    def name(self) -> str:
        """Name in messages: that of the matrix, and what is kept."""
        return f"{self.inner.name} [{', '.join(picks.words for picks in (self.rows, self.columns) if picks)}]"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns kept."""
        rows, columns = self.inner.shape
        return self.rows.count if self.rows else rows, self.columns.count if self.columns else columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements in native byte order."""
        return self.inner.dtype

    @property
    def format(self) -> str:
        """Kind of store."""
        return f"part of {getattr(self.inner, 'format', type(self.inner).__name__)}"

    @property
    def row_grid(self) -> Grid:
        """Chunks along the rows kept."""
        return self.rows.grid(self.inner.row_grid) if self.rows else self.inner.row_grid

    @property
    def column_grid(self) -> Grid:
        """Chunks along the columns kept."""
        return self.columns.grid(self.inner.column_grid) if self.columns else self.inner.column_grid

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; see ``Source``."""
        tall, wide = (unit(grid) for grid in (self.inner.row_grid, self.inner.column_grid))
        item = self.dtype.itemsize
        down = _fetches(
            self.rows,
            rows,
            self.inner.row_grid,
            gap=SKIP_BYTES // (item * max(1, columns[1] - columns[0])),
            most=max(1, FETCH_BYTES // (item * max(wide, columns[1] - columns[0]))),
        )
        for row in down:
            across = _fetches(
                self.columns,
                columns,
                self._column_cells,
                gap=max(SKIP_BYTES // item, self._least_columns),
                most=max(1, FETCH_BYTES // (item * tall), self._least_columns),
            )
            for column in across:
                self._fetch(out, row, column)

    @property
    def _least_columns(self) -> int:
        """Number of all columns, if reading a few of them costs as much as reading all; else 0."""
        return self.inner.shape[1] if self.inner.column_grid.scattered else 0

    @property
    def _column_cells(self) -> Grid:
        """Chunks along the columns of the whole matrix.

        One chunk if reading a few columns costs as much as all.
        """
        if not self._least_columns:
            return self.inner.column_grid
        return Grid.regular(self._least_columns, self._least_columns, splittable=True)

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound on the bytes of one ``read_into`` in addition to ``out``.

        That is what the matrix takes, and the buffer unless all is contiguous.
        """
        if all(picks is None or picks.contiguous for picks in (self.rows, self.columns)):
            # One row more: a selection may begin anywhere in a chunk.
            return max(self.inner.read_bytes(rows, columns), self.inner.read_bytes(rows + 1, columns))
        tall, wide = unit(self.inner.row_grid), max(unit(self.inner.column_grid), self._least_columns)
        # Twice: the next buffer is allocated before the last one is freed.
        buffer = 2 * max(FETCH_BYTES, tall * wide * self.dtype.itemsize)
        return self.inner.read_bytes(max(rows, tall) + 1, max(columns, wide)) + buffer

    def fingerprint(self) -> str:
        """Digest of the matrix and of the selection."""
        digest = hashlib.blake2b(self.inner.fingerprint().encode(), digest_size=16)
        for picks in (self.rows, self.columns):
            digest.update(b"all" if picks is None else np.ascontiguousarray(picks.runs, "<i8").data)
            digest.update(b";")
        return digest.hexdigest()

    def row_marks(self, rows: int) -> RowMarks:
        """Digests that change if the first rows have changed; see ``GrowingSource``."""
        runs = np.zeros((0, 3), np.int64) if self.rows is None else self.rows.runs
        if self.rows is not None and not (self.rows.contiguous and runs[0, 0] == 0):
            raise InputError(
                f"{self.name} leaves out rows before others, so that it does not grow at its end: leave out "
                "grows, or the selection of rows"
            )
        columns = "all" if self.columns is None else self.columns.runs.tolist()
        return row_marks(self.inner, rows).beside(columns)

    def _fetch(self, out: npt.NDArray[Any], row: Fetch, column: Fetch) -> None:
        """Read some rows and columns straight into ``out``, or by a buffer if only parts are wanted."""
        if row.direct and column.direct:
            self.inner.read_into(out[_to(row.parts[0]), _to(column.parts[0])], row.inner, column.inner)
            return
        item = self.dtype.itemsize
        for top in _chop(row, self.inner.row_grid, FETCH_BYTES // (item * column.length)):
            for left in _chop(column, self.inner.column_grid, FETCH_BYTES // (item * top.length)):
                buffer = np.empty((top.length, left.length), self.dtype)
                self.inner.read_into(buffer, top.inner, left.inner)
                for down in top.parts:
                    for across in left.parts:
                        rows, columns = _from(down, top), _from(across, left)
                        out[_to(down), _to(across)] = buffer[rows, columns]


def select(source: Source, *, rows: Selection, columns: Selection) -> Source:
    """The selected part of a matrix, as a matrix; the matrix itself if both selections are None."""
    down = pick(rows, source.shape[0], what="row", name=source.name)
    across = pick(columns, source.shape[1], what="column", name=source.name)
    if down is None and across is None:
        return source
    stored = compressed(source)
    return SelectedSource(source, down, across) if stored is None else _select_stored(stored, down, across)


def _fetches(picks: Picks | None, span: Span, grid: Grid, *, gap: int, most: int) -> Iterator[Fetch]:
    if picks is None:
        if span[0] < span[1]:
            yield Fetch(span, [Part(span[0], span[1] - span[0], 1, 0)])
        return
    yield from picks.fetches(span, grid, gap=gap, most=most)


def _chop(fetch: Fetch, grid: Grid, most: int) -> Iterator[Fetch]:
    """Split a fetch of contiguous indices into whole chunks: at most ``most`` indices, or one chunk.

    A fetch with gaps stays as it is.
    """
    if not fetch.direct:
        yield fetch
        return
    shift = fetch.parts[0].at - fetch.inner[0]
    for start, stop in steps(fetch.inner, grid, most):
        yield Fetch((start, stop), [Part(start, stop - start, 1, start + shift)])


def _to(part: Part) -> slice:
    return slice(part.at, part.at + part.size)


def _from(part: Part, fetch: Fetch) -> slice:
    start = part.first - fetch.inner[0]
    return slice(start, start + (part.size - 1) * part.step + 1, part.step)


# Of stored numbers --------------------------------------------------------------------------------


PIECE_NUMBERS = 2**18
"""Number of stored entries that are read at a time, unless a single line has more."""

GAP_NUMBERS = 2**14
"""Largest number of stored entries between two kept lines that are read along with them, not skipped."""

POINTER_LINES = 2**16
"""Number of lines whose pointers are processed together."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SelectedSparse(SelectedSource):
    """Selected rows and columns of a sparse matrix, as a sparse matrix."""

    ends: npt.NDArray[np.int64]
    """Number of kept entries before each selected line, and in all, (selected lines + 1,)."""

    longest: int
    """Largest number of stored entries of a selected line in the whole matrix, kept or not."""

    @property
    def by(self) -> str:
        """Compressed axis, whose lines are contiguous in the store: ``rows`` (CSR) or ``columns`` (CSC)."""
        return require_compressed(self.inner).by

    @property
    def nnz(self) -> int:
        """Number of stored entries that are kept."""
        return int(self.ends[-1])

    @property
    def _along(self) -> Picks | None:
        return self.rows if self.by == "rows" else self.columns

    @property
    def _across(self) -> Picks | None:
        return self.columns if self.by == "rows" else self.rows

    def pointers(self, top: int, bottom: int) -> npt.NDArray[np.int64]:
        """Number of kept entries before each selected line from ``top`` to ``bottom``, (bottom - top + 1,).

        Lines are rows, or columns if ``by`` says so; they and entries are counted from the first selected
        line.
        """
        return self.ends[top : bottom + 1]

    def read_sparse(self, lines: Span) -> Csr:
        """Read selected lines ``start:stop``, counted among the selected ones, into new memory."""
        start, stop = lines
        source, index = require_compressed(self.inner), index_dtype(*self.shape, self.nnz)
        counted = np.diff(self.ends[start : stop + 1])
        counts, parts = np.zeros(stop - start, np.int64), []
        new_places = _new_places(self._across, source)
        for here, numbers in _pieces(source, _line_numbers(self._along, lines)):
            first, last = int(numbers[0]), int(numbers[-1]) + 1
            part = source.read_sparse((first, last))
            kept = np.zeros(len(here), np.int64)
            count_kept(part.indices, part.indptr, numbers - first, new_places, counts=kept)
            self._require_counted(kept, counted[here], (first, last))
            ends = np.cumsum(kept)
            positions = np.zeros(int(ends[-1]), np.int64)
            bounds = {"pointers": np.stack([ends - kept, ends], axis=1), "positions": positions}
            find_kept(part.indices, part.indptr, numbers - first, new_places, **bounds)
            counts[here] = kept
            parts.append((here, ends - kept, new_places[part.indices[positions]], part.data[positions]))
        pointers = np.concatenate([[0], np.cumsum(counts)])
        indices, data = np.empty(int(pointers[-1]), index), np.empty(int(pointers[-1]), self.dtype)
        for here, begins, places, values in parts:
            at: Any = slice(pointers[here[0]], pointers[here[0]] + len(places))
            if len(here) > 1 and (np.diff(here) != 1).any():
                at = np.repeat(pointers[here] - begins, counts[here]) + np.arange(len(places))
            indices[at], data[at] = places, values
        return Csr(pointers.astype(index), indices, data)

    def _require_counted(
        self, kept: npt.NDArray[np.int64], counted: npt.NDArray[np.int64], span: Span
    ) -> None:
        """Raise ``ChunkError`` if lines hold other numbers of kept entries than when they were counted.

        ``kept`` and ``counted`` (lines,); ``span`` are the lines, for the message. Fewer are allowed if
        values go through preparation steps, since these may sum duplicate entries.
        """
        if (kept > counted).any() or (not isinstance(self.inner, SamePlaces) and (kept < counted).any()):
            raise ChunkError(
                f"{self.name}: {self.by} {span[0]} to {span[1]} (from 0) hold other places than when they "
                "were counted. Open the matrix again, once nobody writes to it"
            )

    def sparse_bytes(self, numbers: int) -> int:
        """Upper bound on the bytes that ``read_sparse`` of so many entries takes besides its result.

        It takes a piece of the store, its kept part, and the new index of each place.
        """
        stored, most = require_compressed(self.inner), max(PIECE_NUMBERS, self.longest)
        piece = most * (PIECE_BYTES + 2 * stored.dtype.itemsize)
        across = stored.shape[1 if self.by == "rows" else 0]
        return stored.sparse_bytes(most) + piece + 8 * across + 40 * POINTER_LINES


PIECE_BYTES = 72
"""Bytes that an entry takes while it is read, in addition to its value: indices, position, destination."""


def _select_stored(source: CompressedSource, rows: Picks | None, columns: Picks | None) -> SelectedSparse:
    """Make the selection from a sparse matrix, whose kept entries in each line are counted.

    Reads the indices of all entries of selected lines if it keeps only some places of a line.
    """
    places: CompressedSource = source
    while isinstance(places, SamePlaces):
        places = require_compressed(places.inner)
    along, across = (rows, columns) if source.by == "rows" else (columns, rows)
    count = along.count if along else source.shape[0 if source.by == "rows" else 1]
    new_places = _new_places(across, source)
    counts, longest = np.zeros(count, np.int64), 0
    for top in range(0, count, POINTER_LINES):
        numbers = _line_numbers(along, (top, min(top + POINTER_LINES, count)))
        for here, lines in _pieces(places, numbers):
            lengths = np.diff(_ends(places, lines), axis=0)[0]
            longest = max(longest, int(lengths.max()))
            if across is not None:
                first = int(lines[0])
                part = places.read_sparse((first, int(lines[-1]) + 1))
                count_kept(part.indices, part.indptr, lines - first, new_places, counts=lengths)
            counts[top + here] = lengths
    return SelectedSparse(source, rows, columns, np.concatenate([[0], np.cumsum(counts)]), longest)


def _line_numbers(picks: Picks | None, span: Span) -> npt.NDArray[np.int64]:
    """Indices in the whole matrix of selected lines number ``start:stop`` (``span``); None selects all."""
    return np.arange(*span) if picks is None else picks.places(span)


def _new_places(picks: Picks | None, source: CompressedSource) -> npt.NDArray[np.int64]:
    """New index of each place of a line, (length of a line,), -1 if the selection ``picks`` leaves it out."""
    length = source.shape[1 if source.by == "rows" else 0]
    if picks is None:
        return np.arange(length)
    places = np.full(length, -1, np.int64)
    places[picks.places()] = np.arange(picks.count)
    return places


def _ends(source: CompressedSource, lines: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Number of stored entries before, and up to the end of, each of some ascending lines, (2, lines)."""
    first = int(lines[0])
    ends = source.pointers(first, int(lines[-1]) + 1)
    return np.stack([ends[lines - first], ends[lines - first + 1]])


def _pieces(
    source: CompressedSource, numbers: npt.NDArray[np.int64]
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Cut lines into pieces that are read at once, with at most ``PIECE_NUMBERS`` entries or one line.

    ``numbers`` are the wanted lines, in any order. Yields indices into ``numbers``, and the ascending line
    numbers there.
    """
    order = np.argsort(numbers, kind="stable")
    lines, start = numbers[order], 0
    while start < len(lines):
        near = int(np.searchsorted(lines, lines[start] + POINTER_LINES))
        before, behind = _ends(source, lines[start:near])
        apart = np.flatnonzero(before[1:] - behind[:-1] > GAP_NUMBERS)
        stop = int(apart[0]) + 1 if len(apart) else len(before)
        full = int(np.searchsorted(behind[:stop], before[0] + PIECE_NUMBERS, side="right"))
        stop = start + max(1, min(stop, full))
        yield order[start:stop], lines[start:stop]
        start = stop
