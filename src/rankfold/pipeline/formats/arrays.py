"""Objects in memory as sources: NumPy and SciPy arrays, lists, tensors, AnnData objects.

Pickling a NumPy array copies its data: tasks should carry paths instead. Sparse matrices can be read with
their zeros or as they are stored. Arrays of more axes are read box by box.

Objects are recognized by the module and the name of their type, so AnnData is never imported.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from rankfold.kernels.hashing.digest import LANES, mix_words
from rankfold.pipeline.chunks.geometry import Piece, Span, requests
from rankfold.pipeline.chunks.row_marks import RowMarks, digest_of
from rankfold.pipeline.data.cf_attributes import Attributes
from rankfold.pipeline.data.dtypes import LARGEST_WHOLE, cut, native, require_digits, require_matrix
from rankfold.pipeline.data.grid import Grid, regular_grids
from rankfold.pipeline.data.named_objects import names_of_values
from rankfold.pipeline.data.names import Axis, Named, distinct
from rankfold.pipeline.data.selection import Readable
from rankfold.pipeline.data.source import Csr, Matrix
from rankfold.pipeline.errors import ChunkError, InputError
from rankfold.pipeline.law import first_fall, first_outside

DIGEST_BYTES = 4 * 2**20
"""Largest size in bytes of a block of rows that is hashed at a time, so the matrix is not copied whole."""


class InMemory(Named, Matrix):
    """Base class of arrays in memory, dense or sparse, of two or more axes."""

    __slots__ = ()
    array: Any
    kind = "array"
    codec = "none"

    @property
    def path(self) -> str | None:
        """Local file or folder: None, since the array is in memory."""
        return None

    @property
    def name(self) -> str:
        """Name in messages: kind, type and shape."""
        return f"{self.kind} {self.dtype} {self.array.shape}"

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements in native byte order."""
        return native(self.array.dtype)

    @property
    def grids(self) -> tuple[Grid, ...]:
        """One chunk along each axis, which can be cut anywhere."""
        return regular_grids(self.array.shape, self.array.shape, splittable=True)

    def check(self) -> None:
        """No-op: an array in memory cannot be damaged."""

    def stored_bytes(self) -> int:
        """Bytes on disk: 0."""
        return 0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ArraySource(Readable, InMemory):
    """A matrix in memory, in any order and byte order."""

    array: npt.NDArray[Any]
    named: tuple[Axis, ...] = field(default=(), kw_only=True)
    attributes: Attributes = field(default_factory=dict, kw_only=True)
    dims: tuple[str, ...] = field(default=(), kw_only=True)
    """Names of both axes of a DataArray; empty for others, such as frames, which have only labels."""

    format = "NumPy array"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.array.shape
        return rows, columns

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; see ``Source``."""
        np.copyto(out, self.array[slice(*rows), slice(*columns)])

    def read_bytes(self, rows: int, columns: int) -> int:
        """Memory of a read: 0, since numbers are copied from one array to the other."""
        return 0

    def fingerprint(self) -> str:
        """Digest of type, shape and content; order in memory does not matter."""
        digest = hashlib.blake2b(f"{self.dtype.str} {self.shape}".encode(), digest_size=16)
        step = max(1, DIGEST_BYTES // (self.shape[1] * self.dtype.itemsize))
        lanes = np.arange(LANES, dtype=np.uint64)
        for top in range(0, self.shape[0], step):
            part = np.ascontiguousarray(self.array[top : top + step], self.dtype).reshape(-1).view(np.uint8)
            whole = len(part) - len(part) % 8
            mix_words(part[:whole].view(np.uint64), lanes=lanes)
            digest.update(part[whole:].data)
        digest.update(lanes.data)
        return self.named_digest(digest.hexdigest())

    def row_marks(self, rows: int) -> RowMarks:
        """Digests that change if the first ``rows`` rows have changed, computed from all their values."""
        first = dataclasses.replace(self, array=self.array[:rows], named=()).fingerprint()
        return RowMarks(digest_of(self.dtype.str, self.shape[1]), "", first)

    def lend(self, rows: Span, columns: Span) -> npt.NDArray[Any] | None:
        """View of ``self[rows, columns]``, which needs no copy.

        None unless the array is in C order, in native byte order, and writable, as compiled loops require.
        """
        if self.array.flags.c_contiguous and self.array.flags.writeable and self.array.dtype.isnative:
            return self.array[slice(*rows), slice(*columns)]
        return None


def without_mask(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The plain array of a masked array that has no gaps, as netCDF4 gives for any variable.

    Other arrays, and masked ones with gaps, are returned unchanged. ``InputError`` for records, which have
    columns of their own.
    """
    if array.dtype.names and array.ndim == 1:
        raise InputError(
            f"the array holds records of {', '.join(array.dtype.names[:8])}; pass pandas.DataFrame(x), which "
            "keeps their names, or numpy.lib.recfunctions.structured_to_unstructured(x)"
        )
    is_whole = isinstance(array, np.ma.MaskedArray) and not np.ma.is_masked(array)
    return np.asarray(array.data) if is_whole else array


def array_source(array: npt.NDArray[Any]) -> ArraySource:
    """Check a NumPy array of two axes and make a ``Source`` of it."""
    if isinstance(array, np.ma.MaskedArray):
        raise InputError(
            "a masked array has gaps, which would be taken for numbers; pass "
            "x.astype(float).filled(numpy.nan), or x.filled(value)"
        )
    require_matrix("array", array.shape, array.dtype)
    return ArraySource(np.asarray(array))


# More axes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ArrayVolume(InMemory):
    """A NumPy array with names for its axes."""

    array: npt.NDArray[Any]
    axes: tuple[str, ...]
    format: str = "NumPy array"
    named: tuple[Axis, ...] = field(default=(), kw_only=True)
    attributes: Attributes = field(default_factory=dict, kw_only=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of every axis."""
        return self.array.shape

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Copy every box into ``out`` of its piece."""
        for box, out in pieces:
            np.copyto(out, self.array[tuple(slice(*span) for span in box)])

    def read_bytes(self, elements: int) -> int:
        """Memory of a read: 0, since numbers are copied from one array to the other."""
        return 0

    def fingerprint(self) -> str:
        """Digest of type, shape and content; order in memory does not matter."""
        digest = hashlib.blake2b(f"{self.dtype.str} {self.shape}".encode(), digest_size=16)
        whole = Piece(tuple((0, length) for length in self.shape), self.array)
        step = max(1, DIGEST_BYTES // self.dtype.itemsize)
        for _, part in requests(whole, (1,) * self.array.ndim, step):
            digest.update(np.ascontiguousarray(part, self.dtype).data)
        return self.named_digest(digest.hexdigest())


def array_volume(
    array: npt.NDArray[Any], axes: tuple[str, ...], *, format: str = "NumPy array"
) -> ArrayVolume:
    """Make a ``Volume`` of a NumPy array with names of its axes; ``InputError`` for masked arrays."""
    if isinstance(array, np.ma.MaskedArray):
        raise InputError("a masked array has gaps, which would be taken for numbers; pass x.filled(value)")
    return ArrayVolume(np.asarray(array), axes, format)


# Sparse arrays ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparseSource(Readable, InMemory):
    """A sparse matrix in memory."""

    array: Any
    """SciPy array compressed by rows, without duplicates."""

    named: tuple[Axis, ...] = field(default=(), kw_only=True)
    attributes: Attributes = field(default_factory=dict, kw_only=True)

    kind = "sparse"
    by = "rows"
    format = "SciPy sparse array"

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return int(self.array.nnz)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.array.shape
        return rows, columns

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``, zeros included; see ``Source``."""
        part = self.array[slice(*rows), slice(*columns)]
        if out.flags.c_contiguous or out.flags.f_contiguous:
            part.toarray(out=out)
        else:
            np.copyto(out, part.toarray())

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound in bytes on the memory of one ``read_into`` of that size, beside ``out``.

        It covers the selected part, and its dense copy if ``out`` is not contiguous.
        """
        return rows * columns * self.dtype.itemsize + min(rows * columns, self.nnz) * 16

    def pointers(self, top: int, bottom: int) -> npt.NDArray[np.int64]:
        """``indptr[top : bottom + 1]``: where rows ``top:bottom`` start among the stored entries."""
        ends: npt.NDArray[np.int64] = self.array.indptr[top : bottom + 1].astype(np.int64, copy=False)
        return ends

    def read_sparse(self, lines: Span) -> Csr:
        """Rows in the span ``lines``, as views where types allow; see ``CompressedSource``."""
        start, stop = lines
        first, last = self.array.indptr[start], self.array.indptr[stop]
        data = self.array.data[first:last].astype(self.dtype, copy=False)
        pointers = self.array.indptr[start : stop + 1]
        return Csr(pointers - first if first else pointers, self.array.indices[first:last], data)

    def sparse_bytes(self, numbers: int) -> int:
        """Memory of a sparse read in bytes: only pointers, since stored entries are not copied."""
        return int(self.array.indptr.nbytes)

    def fingerprint(self) -> str:
        """Digest of type, shape and content."""
        digest = hashlib.blake2b(f"csr {self.dtype.str} {self.shape}".encode(), digest_size=16)
        for part in (self.array.indptr, self.array.indices, self.array.data):
            numbers = np.ascontiguousarray(part).view(np.uint8)
            whole, lanes = len(numbers) - len(numbers) % 8, np.arange(LANES, dtype=np.uint64)
            mix_words(numbers[:whole].view(np.uint64), lanes=lanes)
            digest.update(numbers[whole:].data)
            digest.update(lanes.data)
        return self.named_digest(digest.hexdigest())

    def row_marks(self, rows: int) -> RowMarks:
        """Digests that change if the first ``rows`` rows have changed, computed from all their values."""
        first = dataclasses.replace(self, array=self.array[:rows], named=()).fingerprint()
        return RowMarks(digest_of(self.dtype.str, self.shape[1]), "", first)


def sparse_source(x: Any) -> SparseSource:
    """Check a SciPy sparse matrix and make a ``Source`` of it, in CSR without duplicates."""
    require_matrix(f"sparse {x.format}", x.shape, x.dtype)
    _require_places(x)
    return SparseSource(lines_of(x, "rows"))


def lines_of(x: Any, by: str) -> Any:
    """The sparse matrix ``x`` of SciPy in CSR (``by`` is ``rows``) or CSC (``columns``), duplicates summed.

    If sums of integers overflow their type, where SciPy wraps around, all values become int64.
    """
    compress = scipy.sparse.csr_array if by == "rows" else scipy.sparse.csc_array
    is_narrow = x.dtype.kind in "iu" and x.dtype.itemsize < 8
    if is_narrow and not getattr(x, "has_canonical_format", True):
        lines = compress(x.astype(np.int64))
        lines.sum_duplicates()
        kept = lines.astype(x.dtype)
        return kept if np.array_equal(kept.data, lines.data) else lines
    lines = compress(x)
    if not lines.has_canonical_format:
        lines = lines.copy()
        lines.sum_duplicates()
    return lines


def _require_places(x: Any) -> None:
    """Raise ``ChunkError`` for a sparse matrix with indices out of bounds, which SciPy does not check."""
    rows, columns = x.shape
    if x.format in ("csr", "csc"):
        lines, short = (rows, columns) if x.format == "csr" else (columns, rows)
        ends, fits = x.indptr, len(x.indptr) == lines + 1
        if (
            not fits
            or ends[0] != 0
            or ends[-1] > min(len(x.indices), len(x.data))
            or first_fall(ends) is not None
        ):
            raise ChunkError(
                f"sparse {x.format}: indptr is not increasing from 0 to {len(x.data)} in {lines + 1}"
            )
        found = [("indices", x.indices[: ends[-1]], short)]
    else:
        found = [("row", x.row, rows), ("col", x.col, columns)] if x.format == "coo" else []
    for name, places, length in found:
        if (wrong := first_outside(places, 0, length - 1)) is not None:
            raise ChunkError(
                f"sparse {x.format}: {name}[{wrong}] is {places[wrong]}, but is to be below {length}"
            )


# Lists, tensors, cells ----------------------------------------------------------------------------


def array_of_lists(x: list[Any] | tuple[Any, ...]) -> npt.NDArray[Any]:
    """A list of rows as an array, with the rows along its first axis.

    ``InputError`` unless rows have one length, hold numbers, and have equal labels if they have any.
    """
    if any(isinstance(row, np.ma.MaskedArray) and np.ma.is_masked(row) for row in x):
        raise InputError(
            f"a {type(x).__name__} of masked arrays has gaps; pass numpy.ma.stack(x).filled(numpy.nan)"
        )
    names = [names_of_values(row) for row in x]
    if any(a is not None and b is not None and not a.is_like(b) for a, b in itertools.pairwise(names)):
        raise InputError(
            f"the rows of a {type(x).__name__} have other labels, or in another order; pass "
            "pandas.DataFrame(x), or xarray.concat(x, 'row'), which go by them"
        )
    try:
        array = np.asarray(x)
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"a {type(x).__name__} is read as a list of rows, all of the same length; this one is "
            f"not: {cut(error)}"
        ) from error
    if array.dtype.kind not in "iufb":
        raise InputError(f"a {type(x).__name__} of rows must hold numbers; this one holds {array.dtype}")
    if array.dtype.kind == "f" and array.ndim == 2 and np.abs(array).max(initial=0) >= LARGEST_WHOLE:
        wide = (each for row in x for each in row if isinstance(each, int | np.integer))
        for number in wide:
            require_digits(f"a {type(x).__name__} of rows", np.array([number]))
    return array


def axes_of_lists(x: list[Any] | tuple[Any, ...], shape: tuple[int, ...]) -> tuple[Axis, Axis]:
    """Axes of rows and columns of a list of rows of ``shape``, named as its rows are, such as Series.

    Columns are labeled by the index of the rows, if every row has one; rows by their names, if these are all
    text.
    """
    names = [names_of_values(row) for row in x]
    columns = [each.labels for each in names if each is not None and each.labels is not None]
    titles = [getattr(row, "name", None) for row in x]
    labels = [
        titles if all(isinstance(each, str) for each in titles) else None,
        columns[0] if len(columns) == len(x) else None,
    ]
    return axes_of(("row", "column"), labels, shape[:2])


def axes_of_cells(cells: Any, shape: tuple[int, int]) -> tuple[Axis, Axis]:
    """Axes of the observations and variables of an AnnData object of ``shape``, with distinct labels."""
    labels = [getattr(cells, f"{each}_names", None) for each in ("obs", "var")]
    row, column = axes_of(("obs", "var"), labels, shape)
    return distinct(row), distinct(column)


def axes_of(names: Sequence[str], labels: Sequence[Any], lengths: Sequence[int]) -> tuple[Axis, Axis]:
    """Axes of rows and columns; ``names``, ``labels`` (None without) and ``lengths`` give (rows, columns).

    Labels of another length than that of the axis are left out.
    """
    row, column = (
        Axis.of(name, int(length), None if each is None else np.asarray(each))
        for name, each, length in zip(names, labels, lengths, strict=True)
    )
    return row, column


CPU_DEVICES = (1, 3)
"""Device types of the DLPack protocol whose memory NumPy can read: CPU, and pinned by CUDA."""


def array_of_tensor(x: Any) -> npt.NDArray[Any]:
    """A tensor of another library as an array that shares its memory, by the DLPack protocol."""
    name = f"{type(x).__module__.partition('.')[0]} tensor {tuple(x.shape)} of {x.dtype}"
    if "bfloat16" in str(x.dtype):
        raise InputError(
            f"the {name} is not read: NumPy has no bfloat16. Pass x.float(), which holds the same numbers"
        )
    if x.__dlpack_device__()[0] not in CPU_DEVICES:
        raise InputError(f"the {name} lies on a device. Pass x.cpu(), or x.get() of CuPy")
    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"the {name} cannot be shared with NumPy: {cut(error)}. Pass x.detach().resolve_conj().numpy(), "
            "or x.to_dense() of a sparse one"
        ) from error


def matrix_of_cells(cells: Any) -> Any:
    """The matrix ``X`` of an AnnData object, in whatever type it is: NumPy, sparse, on disk."""
    if cells.X is None:
        raise InputError("the AnnData object has no X; pass one of its layers, as x.layers['counts']")
    return cells.X


def is_cells(x: object) -> bool:
    """True if an object is an AnnData object or a view of one, or its ``raw``."""
    return type(x).__module__.partition(".")[0] == "anndata" and type(x).__name__ in ("AnnData", "Raw")


def is_kept_sparse(x: object) -> bool:
    """True if an object is a sparse matrix that AnnData keeps on disk."""
    return (
        type(x).__module__.partition(".")[0] == "anndata" and hasattr(x, "group") and hasattr(x, "to_memory")
    )
