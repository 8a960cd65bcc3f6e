"""Several matrices stacked by rows: files of one kind, to which others are added with time.

A file that has been read before is recognized by its size and time, so a series grows by files as a Zarr
store grows by chunks. The series is sparse if all its parts are compressed by rows (CSR).

Files may differ in the type of their numbers, as netCDF files do whose packing changed. They are read in a
type that holds them all; a whole number that it would round is an error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.absence import Absence, sum_absences
from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.chunks.row_marks import RowMarks, digest_of
from rankfold.pipeline.data.cf_attributes import Attributes
from rankfold.pipeline.data.decoded import DecodedVolume
from rankfold.pipeline.data.dtypes import ConvertedSource, require_digits
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.names import Axis, Names
from rankfold.pipeline.data.origin import attributes_of, names_of
from rankfold.pipeline.data.selection import Readable
from rankfold.pipeline.data.source import (
    MOST_FILES,
    CompressedSource,
    Csr,
    Source,
    Volume,
    absence_of,
    compressed,
    index_dtype,
    require_compressed,
    row_marks,
)
from rankfold.pipeline.data.stacked import StackedSource
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.prepare.alike import all_with_columns, compare_units

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, repr=False)
class PartInType(ConvertedSource):
    """A part of a series in the type of the whole; ``DataError`` for whole numbers that lose digits."""

    def convert(self, out: npt.NDArray[Any], strip: npt.NDArray[Any], rows: Span) -> None:
        """Check the digits of ``strip``, values of the part in ``rows``, then convert it into ``out``."""
        require_digits(self.name, strip)
        ConvertedSource.convert(self, out, strip, rows)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Series(Readable):
    """Sources with the same columns, stacked by rows in order."""

    name: str
    parts: tuple[Source, ...]
    edges: Int64
    """First row of each part, and the number of all rows, (parts + 1,)."""

    dtype: np.dtype[Any]
    """The type that holds the elements of all parts, in native byte order."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return int(self.edges[-1]), self.parts[0].shape[1]

    @property
    def format(self) -> str:
        """Number of parts and their kind of store, and their types if these differ, as text."""
        kind = getattr(self.parts[0], "format", type(self.parts[0]).__name__)
        types = dict.fromkeys(str(part.dtype) for part in self.parts)
        return f"{len(self.parts)} of {kind}" + (f", of {', '.join(types)}" if len(types) > 1 else "")

    @property
    def codec(self) -> str:
        """Compression of the chunks of the first part, as text."""
        return str(getattr(self.parts[0], "codec", "unknown"))

    @property
    def row_grid(self) -> Grid:
        """Native chunks of all parts along the rows."""
        grids = [part.row_grid for part in self.parts]
        edges = [grid.edges[1:] + start for grid, start in zip(grids, self.edges, strict=False)]
        splittable, scattered = all(each.splittable for each in grids), any(each.scattered for each in grids)
        return Grid(np.concatenate([[0], *edges]), splittable, scattered)

    @property
    def column_grid(self) -> Grid:
        """Native chunks along the columns if all parts have the same; else one chunk."""
        grid, others = self.parts[0].column_grid, [part.column_grid for part in self.parts]
        same = all(np.array_equal(each.edges, grid.edges) for each in others)
        edges = grid.edges if same else np.array([0, self.shape[1]], np.int64)
        splittable, scattered = (
            all(each.splittable for each in others),
            any(each.scattered for each in others),
        )
        return Grid(edges, splittable, scattered)

    @property
    def stacked(self) -> StackedSource | None:
        """Description of the whole series as one stacked array, for names and lengths of axes, not to read.

        None if parts are not stacked arrays whose first axis becomes the rows, or the outer ones.
        """
        first = self.parts[0]
        if not isinstance(first, StackedSource) or first.row_axes[0] != 0:
            return None
        inner = first.shape[0] // first.inner.shape[0]
        shape = (self.shape[0] // inner, *first.inner.shape[1:])
        return StackedSource(_with_shape(first.inner, shape), first.row_axes, first.column_axes)

    def names(self, axis: int) -> Names | None:
        """Names of the rows (0) or columns (1); None without any.

        Columns have the names of the first part. Rows have names if every part has labels along one axis.
        """
        if axis == 1:
            return names_of(self.parts[0], 1)
        found = [names_of(part, 0) for part in self.parts]
        labels = [each.labels for each in found if each is not None and each.labels is not None]
        if len(labels) < len(self.parts) or found[0] is None:
            return None
        first = found[0].axes[0]
        whole = Axis.of(first.name, self.shape[0], np.concatenate(labels))
        return Names.of([dataclasses.replace(whole, attributes=first.attributes)])

    @property
    def attributes(self) -> Attributes:
        """Attributes of the values of the first part, such as units."""
        return attributes_of(self.parts[0])

    def pieces(self, rows: Span) -> Iterator[tuple[Source, Span, Span]]:
        """Yield each part that overlaps the span ``rows``, and the overlap, (start, stop), in two ways.

        First as rows of the part, then counted from the start of the span.
        """
        first = int(np.searchsorted(self.edges, rows[0], side="right")) - 1
        for part, start, stop in zip(
            self.parts[first:], self.edges[first:], self.edges[first + 1 :], strict=False
        ):
            top, bottom = max(rows[0], int(start)), min(rows[1], int(stop))
            if top >= bottom:
                return
            yield part, (top - int(start), bottom - int(start)), (top - rows[0], bottom - rows[0])

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; see ``Source``."""
        for part, own, at in self.pieces(rows):
            self._in_type(part).read_into(out[slice(*at)], own, columns)

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound in bytes on the memory of one ``read_into`` of that size, beside ``out``.

        Parts are read one after the other.
        """
        parts = map(self._in_type, self.parts)
        return max(part.read_bytes(min(rows, part.shape[0]), columns) for part in parts)

    def _in_type(self, part: Source) -> Source:
        """``part`` itself if it has the type of the series, else a source that converts it as it is read."""
        return part if part.dtype == self.dtype else PartInType(part, self.dtype)

    def check(self) -> None:
        """Raise ``ChunkError`` for damage of any part that can be found without reading the data."""
        for part in self.parts:
            part.check()

    def absent_chunks(self, most: int = MOST_FILES) -> Absence | None:
        """Number of missing chunks of all parts together, by a look at about ``most`` files."""
        share = -(-most // len(self.parts))
        return sum_absences(absence_of(part, share) for part in self.parts)

    def fingerprint(self) -> str:
        """Digest of the fingerprints of all parts."""
        return digest_of(*(part.fingerprint() for part in self.parts))

    def row_marks(self, rows: int) -> RowMarks:
        """Digests that change if the first ``rows`` rows have changed: see ``GrowingSource``.

        Parts that hold only such rows are compared by their fingerprints, the next part by its own marks.
        """
        whole = int(np.searchsorted(self.edges, rows, side="right")) - 1
        files = digest_of(*(part.fingerprint() for part in self.parts[:whole]))
        rest, numbers = rows - int(self.edges[whole]), ""
        if rest:
            numbers = digest_of(*row_marks(self.parts[whole], rest).as_dict().values())
        return RowMarks(digest_of(self.dtype.str, self.shape[1]), files, numbers)

    def stored_bytes(self) -> int:
        """Bytes of all parts on disk."""
        counts = (getattr(part, "stored_bytes", None) for part in self.parts)
        return sum(int(count()) for count in counts if count is not None)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparseSeries(Series):
    """Sparse matrices compressed by rows, with the same columns, stacked by rows."""

    before: Int64
    """Cumulative number of stored entries before each part, and in all, (parts + 1,)."""

    by = "rows"

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return int(self.before[-1])

    def pointers(self, top: int, bottom: int) -> Int64:
        """Cumulative number of stored entries before each of rows ``top:bottom``, and after the last."""
        ends = np.empty(bottom - top + 1, np.int64)
        ends[-1] = self.nnz
        for part, own, at in self.pieces((top, bottom)):
            number = int(np.searchsorted(self.edges, top + at[0], side="right")) - 1
            ends[at[0] : at[1] + 1] = require_compressed(part).pointers(*own) + self.before[number]
        if top == bottom < self.shape[0]:
            ends[:] = self.pointers(top, top + 1)[:1]
        return ends

    def read_sparse(self, lines: Span) -> Csr:
        """Rows in the span ``lines`` as they are stored, in new memory; see ``CompressedSource``."""
        parts = [self._read_part(require_compressed(part), own) for part, own, _ in self.pieces(lines)]
        index = index_dtype(*self.shape, self.nnz)
        counts = np.concatenate([[0], *(np.diff(part.indptr) for part in parts)])
        indices = np.concatenate([np.zeros(0, index), *(part.indices for part in parts)])
        data = np.concatenate([np.zeros(0, self.dtype), *(part.data for part in parts)])
        return Csr(np.cumsum(counts).astype(index), indices.astype(index, copy=False), data)

    def _read_part(self, part: CompressedSource, lines: Span) -> Csr:
        """Rows ``lines`` of a part in its own type; ``DataError`` if that of the series would round them."""
        rows = part.read_sparse(lines)
        if part.dtype != self.dtype:
            require_digits(part.name, rows.data)
        return rows

    def sparse_bytes(self, numbers: int) -> int:
        """Upper bound in bytes on the memory of a sparse read of ``numbers`` entries, beside its result.

        It covers reading of a part, and the entries before they are concatenated.
        """
        most = max(require_compressed(part).sparse_bytes(numbers) for part in self.parts)
        return most + numbers * (self.dtype.itemsize + 16)


def _with_shape(volume: Volume, shape: tuple[int, ...]) -> Volume:
    """Copy of an array description that states ``shape``; only for names of its axes, never to be read."""
    if isinstance(volume, DecodedVolume):
        return dataclasses.replace(volume, inner=_with_shape(volume.inner, shape))
    return cast(Volume, dataclasses.replace(cast(Any, volume), shape=shape))


def series(name: str, parts: Sequence[Source]) -> Series:
    """Stack several matrices by rows into one, called ``name`` in messages; check that they fit together.

    Raises
    ------
    InputError
        A matrix has other columns than the first.
    """
    first, columns = parts[0], names_of(parts[0], 1)
    compare_units(parts[1:], attributes_of(first), first.name)
    parts = [first, *all_with_columns(parts[1:], columns, first.name)]
    for part in parts[1:]:
        if part.shape[1] != first.shape[1]:
            raise InputError(
                f"{part.name} has {part.shape[1]} columns, but {first.name} has {first.shape[1]}: files of a "
                "series have the same columns"
            )
    edges = np.cumsum([0, *(part.shape[0] for part in parts)])
    dtype = np.result_type(*{part.dtype for part in parts})
    stored = [compressed(part) for part in parts]
    if any(each is None or each.by != "rows" for each in stored):
        return Series(name, tuple(parts), edges, dtype)
    numbers = [cast(CompressedSource, each).nnz for each in stored]
    return SparseSeries(name, tuple(parts), edges, dtype, np.cumsum([0, *numbers]))
