"""Requirements on the shape and type of a matrix, and conversion to another type without silent loss.

Rounding to fewer digits is what asking for float32 means. A number that overflows, or a fraction where
whole numbers were asked for, is an error: NumPy would wrap around or truncate silently.

A matrix has two axes, neither of them empty, and numbers of a supported type. A matrix in another type is
converted as it is read.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.absence import Absence
from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.chunks.row_marks import RowMarks
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.selection import Readable
from rankfold.pipeline.data.source import MOST_FILES, Source, absence_of, row_marks
from rankfold.pipeline.errors import DataError, InputError

LOG = logging.getLogger("rankfold")

SUPPORTED_DTYPES = (
    "float16, float32, float64, complex64, complex128, integers of 8 to 64 bits with or without sign, and "
    "bool"
)


LARGEST_ITEM = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}
"""Bytes of the widest supported type, by the kind of a dtype."""

MOST_BYTES = 2**60
"""Largest number of bytes of a matrix, or of a chunk; more can only come from a damaged header."""

MOST_CHUNKS = 2**26
"""Largest number of chunks along one axis: their edges alone take 512 MiB."""


def require_matrix(name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Raise ``InputError`` unless an array of this shape and type is a matrix that can be read."""
    if len(shape) != 2:
        raise InputError(
            f"{name} has {len(shape)} axes, shape {tuple(shape)}; a matrix has two, samples in rows and "
            "features in columns. Reshape it, or name another array"
        )
    require_lengths(name, shape, dtype)
    if 0 in shape:
        empty = "rows" if shape[0] == 0 else "columns"
        raise InputError(f"{name} has shape {tuple(shape)}: a matrix without {empty} cannot be reduced")
    require_numbers(name, dtype)


def require_lengths(name: str, shape: Sequence[int], dtype: np.dtype[Any], *, what: str = "shape") -> None:
    """Raise ``InputError`` for an impossible shape of an array or a chunk, as in damaged headers.

    ``what`` names the shape in the message.
    """
    if not all(isinstance(length, int | np.integer) and not isinstance(length, bool) for length in shape):
        raise InputError(f"{name} has {what} {cut(shape)}, which are not whole numbers. Restore it")
    if min(shape, default=0) < 0 or math.prod(map(int, shape)) * max(1, dtype.itemsize) > MOST_BYTES:
        raise InputError(f"{name} has {what} {cut(shape)}, which no array has. Is it damaged? Restore it")


def require_chunks(name: str, shape: Sequence[int], chunks: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Raise ``InputError`` for impossible shapes of an array and its chunks, or for too many chunks."""
    require_lengths(name, shape, dtype)
    require_lengths(name, chunks, dtype, what="chunks of shape")
    if min(chunks, default=1) < 1:
        raise InputError(f"{name} has chunks of shape {cut(chunks)}; none can be empty. Restore it")
    most = max((-(-length // chunk) for length, chunk in zip(shape, chunks, strict=True)), default=1)
    if most > MOST_CHUNKS:
        raise InputError(
            f"{name} has {most} chunks of shape {cut(chunks)} along one axis; at most {MOST_CHUNKS} "
            "are read. Is it damaged? Restore it, or write it in larger chunks"
        )


def whole_lengths(name: str, shape: Any) -> tuple[int, int]:
    """Numbers of rows and columns of a sparse matrix, from its attribute ``shape``; ``InputError`` if bad."""
    values = np.asarray(shape, object).tolist() if isinstance(shape, list | tuple | np.ndarray) else None
    if not isinstance(values, list) or len(values) != 2 or not all(map(_is_length, values)):
        raise InputError(f"{name} is sparse, but says that its shape is {cut(shape)}. Restore it")
    rows, columns = values
    return int(rows), int(columns)


def cut(value: object, most: int = 80) -> str:
    """Text of a value from a file, cut off after ``most`` characters, for a message."""
    text = str(tuple(value)) if isinstance(value, list) else str(value)
    return text if len(text) <= most else f"{text[:most]}..."


def _is_length(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and value % 1 == 0


def require_numbers(name: str, dtype: np.dtype[Any]) -> None:
    """Raise ``InputError`` for a type that is not supported."""
    if dtype.itemsize > LARGEST_ITEM.get(dtype.kind, 0):
        raise InputError(f"{name} holds {dtype}; supported are {SUPPORTED_DTYPES}. Convert it first")


def require_real(name: str, dtype: np.dtype[Any]) -> None:
    """Raise ``InputError`` for complex numbers."""
    if dtype.kind == "c":
        raise InputError(f"{name} are {dtype}, and must be real. Give the real part, or absolute values")


LARGEST_WHOLE = 2**53
"""Whole numbers of up to this size are exact in float64."""


def beyond_floats(numbers: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Mask of whole numbers that are too large for float64 to hold them exactly."""
    wide: npt.NDArray[np.bool_] = numbers > LARGEST_WHOLE
    return wide if numbers.dtype.kind == "u" else wide | (numbers < -LARGEST_WHOLE)


def require_digits(name: str, numbers: npt.NDArray[Any]) -> None:
    """Raise ``DataError`` for whole numbers of a table that float64 does not hold exactly.

    Such numbers are mostly identifiers, which must not be rounded.
    """
    if (number := _beyond_digits(numbers)) is not None:
        raise DataError(
            f"{name} holds whole numbers such as {number}, which float64 does not hold to the last "
            "digit. Where they are names and no numbers, leave them out; else round them first, "
            "x.astype(float) or an import with dtype='float64' (--dtype float64)"
        )


def note_digits(name: str, numbers: npt.NDArray[Any]) -> None:
    """Warn of whole numbers in a matrix that float64 does not hold exactly, once for each matrix."""
    if name not in _NOTED and (number := _beyond_digits(numbers)) is not None:
        _NOTED.add(name)
        LOG.warning(
            "%s holds whole numbers such as %s, which are rounded to the 53 bits of float64: where they are "
            "names and no numbers, leave them out",
            name,
            number,
        )


_NOTED: set[str] = set()


def _beyond_digits(numbers: npt.NDArray[Any]) -> int | None:
    """A whole number that float64 does not hold exactly, or None.

    Minimum and maximum come first, which takes no memory; mostly no number is large. Powers of two are
    exact, such as the -2**63 that marks missing values.
    """
    if numbers.dtype.kind not in "iuO" or numbers.dtype.itemsize < 8 or not numbers.size:
        return None
    ends = (int(numbers.min()), int(numbers.max()))
    lost = next((each for each in ends if int(float(each)) != each), None)
    if lost is not None or max(map(abs, ends)) <= LARGEST_WHOLE:
        return lost
    wide = numbers[beyond_floats(numbers)]
    if wide.dtype.kind == "O":
        return next((int(each) for each in wide if int(float(each)) != each), None)
    sizes = np.where(wide < 0, -wide, wide).astype(np.uint64)  # also of the least number: it wraps to 2**63
    # Without its trailing zero bits, a number that float64 holds has at most 53 bits.
    rounded = sizes // (sizes & (~sizes + np.uint64(1))) > LARGEST_WHOLE
    return int(wide[rounded.argmax()]) if rounded.any() else None


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in the byte order of this machine."""
    return dtype.newbyteorder("=")


# Conversion ---------------------------------------------------------------------------------------


def parse_dtype(text: str) -> np.dtype[Any]:
    """Type of that name; ``InputError`` unless a matrix may have it."""
    try:
        dtype = np.dtype(text)
    except TypeError:
        raise InputError(
            f"dtype={text!r} is not a type; say for instance float32, float64 or uint8"
        ) from None
    require_matrix("the new store", (1, 1), dtype)
    return dtype.newbyteorder("=")


def convert_into(out: npt.NDArray[Any], x: npt.NDArray[Any], where: str) -> None:
    """Copy ``x`` into ``out`` of the same shape; ``DataError`` for a value that the type of ``out`` lacks.

    ``where`` begins the message.
    """
    if x.dtype == out.dtype or np.can_cast(x.dtype, out.dtype):
        out[...] = x
        return
    with np.errstate(invalid="ignore", over="ignore"):
        out[...] = x
        bad = np.isinf(out) & np.isfinite(x) if out.dtype.kind == "f" else _differs(out, x)
    if bad.any():
        first = x[tuple(index[0] for index in np.nonzero(bad))]
        raise DataError(f"{where}: {first} cannot be written as {out.dtype}. Choose a type that holds it")


def _differs(out: npt.NDArray[Any], x: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Mask of values of ``x`` that changed when they were converted to ``out``, of integers or booleans."""
    difference: npt.NDArray[np.bool_]
    if out.dtype.kind == "b":
        difference = (x != 0) & (x != 1)
    elif x.dtype.kind == "f":
        low, high = np.iinfo(out.dtype).min, np.iinfo(out.dtype).max
        # 2^63 - 1 rounds up to 2^63 as a float: compare with the power of two, strictly.
        difference = ~((x >= float(low)) & (x < float(high) + 1) & (x == np.trunc(x)))
    else:
        difference = (out != x) | ((out < 0) != (x < 0))
    return difference


# A matrix in another type -------------------------------------------------------------------------


STRIP_BYTES = 4 * 2**20
"""Bytes of a strip: rows of the source that are in memory before they are converted, at least one chunk."""


@dataclass(frozen=True, slots=True, repr=False)
class ConvertedSource(Readable):
    """A matrix whose values are those of another, converted to ``dtype`` as they are read."""

    source: Source
    dtype: np.dtype[Any]

    @property
    def name(self) -> str:
        """Name of the matrix in messages."""
        return self.source.name

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.source.shape

    @property
    def row_grid(self) -> Grid:
        """Native chunks along the rows."""
        return self.source.row_grid

    @property
    def column_grid(self) -> Grid:
        """Native chunks along the columns."""
        return self.source.column_grid

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; see ``Source``."""
        height, width = rows[1] - rows[0], columns[1] - columns[0]
        step = self._strip(height, width)
        strip = np.empty((min(step, height), width), self.source.dtype)
        for top in range(0, height, step):
            part = strip[: min(step, height - top)]
            span = rows[0] + top, rows[0] + top + len(part)
            self.source.read_into(part, span, columns)
            self.convert(out[top : top + len(part)], part, span)

    def convert(self, out: npt.NDArray[Any], strip: npt.NDArray[Any], rows: Span) -> None:
        """Convert ``strip``, values of the source in ``rows``, into ``out``."""
        convert_into(out, strip, f"{self.name}, rows {rows[0]}:{rows[1]}")

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound on the bytes of one ``read_into`` in addition to ``out``.

        It takes a strip of rows in the old type, its checks, and what reading it takes.
        """
        strip = self._strip(rows, columns)
        return strip * columns * (self.source.dtype.itemsize + 16) + self.source.read_bytes(strip, columns)

    def check(self) -> None:
        """Raise ``ChunkError`` for damage of the source that can be found without reading the data."""
        self.source.check()

    def absent_chunks(self, most: int = MOST_FILES) -> Absence | None:
        """Number of chunks that the store of the source lacks; see ``absence_of``."""
        return absence_of(self.source, most)

    def fingerprint(self) -> str:
        """Digest of the source, followed by the type."""
        return f"{self.source.fingerprint()} {self.dtype.str}"

    def row_marks(self, rows: int) -> RowMarks:
        """Digests that change if the first rows have changed; see ``GrowingSource``."""
        return row_marks(self.source, rows).beside(self.dtype.str)

    def _strip(self, rows: int, columns: int) -> int:
        least = 1 if self.row_grid.splittable else self.row_grid.longest
        return min(rows, max(least, STRIP_BYTES // (columns * self.source.dtype.itemsize)))
