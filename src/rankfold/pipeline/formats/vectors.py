"""Columns of lists of numbers, such as embeddings, as matrices: of pandas, polars and Arrow, in memory.

The column is a Series, or the only column of a frame. Columns are recognized by the names of their types, so
no library is imported for that; pandas is imported to read objects of Arrow.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.dtypes import cut, require_digits
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.formats.open_files import library
from rankfold.pipeline.formats.tables.parquet import is_list, storage_of

Array = npt.NDArray[Any]

LARGEST_NUMBER = 8
"""Bytes of the widest number in a list; NumPy has wider floats on some machines."""


def is_arrow(x: object) -> bool:
    """True if an object is a table, a batch or an array of lists of Arrow, which pandas can read."""
    if type(x).__module__.partition(".")[0] != "pyarrow" or not hasattr(x, "to_pandas"):
        return False
    return hasattr(x, "schema") or is_list(getattr(x, "type", None))


def frame_of_arrow(x: Any) -> Any:
    """A table of Arrow as a frame of pandas, or an array as a Series; columns keep their Arrow types."""
    pandas = library("pandas", extra="frames", what=f"reading a pyarrow {type(x).__name__}")
    return x.to_pandas(types_mapper=pandas.ArrowDtype)


def vector_column(x: Any) -> Any:
    """The column of lists that an object is, or has as its only column; None for anything else."""
    if type(x).__name__ == "Series":
        return x if holds_lists(x) else None
    if type(x).__name__ != "DataFrame" or len(x.columns) != 1:
        return None
    column = x.iloc[:, 0] if hasattr(x, "iloc") else x[x.columns[0]]
    return column if holds_lists(column) else None


def holds_lists(column: Any) -> bool:
    """True if cells of a Series of pandas or polars are lists or arrays, by its type or its first value."""
    module = type(column).__module__.partition(".")[0]
    if module == "polars":
        return str(column.dtype).startswith(("List(", "Array("))
    if module != "pandas":
        return False
    if hasattr(column.dtype, "pyarrow_dtype"):
        return is_list(column.dtype.pyarrow_dtype)
    if column.dtype != np.object_:
        return False
    return _is_list(next((cell for cell in column.array if not _is_missing(cell)), None))


def array_of_vectors(column: Any) -> Array:
    """A column of m lists of n numbers as a matrix, (m, n), in a type that holds all; missing ones are NaN.

    Raises
    ------
    DataError
        A list has another length than the first, is missing, or holds no numbers; or all are empty.
    """
    name = "the column" if column.name in (None, "") else f"column {column.name!r}"
    if type(column).__module__.partition(".")[0] == "polars":
        return _of_polars(name, column)
    if hasattr(column.dtype, "pyarrow_dtype"):
        return _of_arrow(name, column.array.__arrow_array__())
    return _of_cells(name, column.array)


def _of_cells(name: str, cells: Any) -> Array:
    """Matrix (m, n) of a column whose m cells are Python objects: lists or arrays of n numbers."""
    rows = [None if _is_missing(cell) else _numbers(name, place, cell) for place, cell in enumerate(cells)]
    length = _require_one_length(name, [-1 if row is None else len(row) for row in rows])
    arrays = [row for row in rows if row is not None]
    common = np.result_type(*{row.dtype for row in arrays})
    if common.kind == "f":
        for row in arrays:
            _require_digits(name, row)
    out = np.empty((len(arrays), length), common)
    for place, row in enumerate(arrays):
        out[place] = row
    return out


def _numbers(name: str, place: int, cell: Any) -> Array:
    """The list in ``cell`` as a vector; ``DataError`` if it is not a list of numbers.

    ``name``, of the column, and ``place``, the number of the row, are for the message.
    """
    try:
        values = np.asarray(cell)
        if values.dtype == np.object_ and all(each is None or _is_number(each) for each in values.flat):
            _require_digits(name, np.asarray([each for each in values.flat if each is not None]))
            values = values.astype(np.float64)  # None becomes NaN
    except DataError:
        raise
    except (TypeError, ValueError):  # such as nested lists of unequal lengths
        values = np.asarray(None)
    if values.ndim != 1 or (len(values) and not _is_plain(values.dtype)):
        found = f"an array of shape {values.shape}" if _is_plain(values.dtype) else cut(repr(cell))
        raise DataError(f"{name} has no list of numbers at row {place}, but {found}")
    return values


def _of_arrow(name: str, column: Any) -> Array:
    """Matrix (m, n) of an Arrow column of m lists of n numbers, in one or more chunks."""
    kind = storage_of(column.type).value_type
    pieces = [getattr(piece, "storage", piece) for piece in getattr(column, "chunks", [column])]
    lengths = [np.asarray(piece.value_lengths().fill_null(-1)) for piece in pieces]
    length = _require_one_length(name, np.concatenate([*lengths, np.empty(0, np.int64)]))
    parts = [piece.flatten() for piece in pieces]
    if any(part.null_count for part in parts):
        if str(kind) == "bool":
            parts = [part.cast("uint8") for part in parts]
        for part in parts:
            _require_digits(name, part.drop_null().to_numpy(zero_copy_only=False))
    values = np.concatenate([part.to_numpy(zero_copy_only=False) for part in parts])
    return _as_rows(name, values, kind, length)


def _of_polars(name: str, column: Any) -> Array:
    """Matrix (m, n) of a polars column of m lists, or arrays, of n numbers."""
    lists = column.arr.to_list() if str(column.dtype).startswith("Array(") else column
    length = _require_one_length(name, lists.list.len().fill_null(-1).cast(sys.modules["polars"].Int64))
    numbers, kind = lists.explode(), lists.dtype.inner
    if numbers.null_count():
        if str(kind) == "Boolean":
            numbers = numbers.cast(sys.modules["polars"].Int8)
        _require_digits(name, numbers.drop_nulls().to_numpy())
    return _as_rows(name, numbers.to_numpy(), kind, length)


def _as_rows(name: str, values: Array, kind: object, length: int) -> Array:
    """Reshape ``values``, the concatenated numbers of all lists, into a matrix of ``length`` columns.

    ``DataError`` if they are not numbers; ``kind``, their type, is for the message.
    """
    if values.ndim != 1 or not _is_plain(values.dtype):
        raise DataError(f"{name} has no lists of numbers, but of {kind}")
    return values.reshape(-1, length)


def _require_one_length(name: str, lengths: Iterable[int]) -> int:
    """The common length of the lists of column ``name``, whose ``lengths`` are -1 for a missing list.

    Raises ``DataError`` if lengths differ or a list is missing, or if there are no numbers.
    """
    counts = np.asarray(lengths, np.int64)
    first = int(next((count for count in counts if count >= 0), 0))
    if not first:
        raise DataError(f"{name} has no list with numbers in it, and a matrix without columns has none")
    if (counts != first).any():
        wrong = int(np.argmax(counts != first))
        what = "no list" if counts[wrong] < 0 else f"a list of {counts[wrong]} numbers"
        raise DataError(
            f"{name} has {what} at row {wrong}, where the first list has {first}. A matrix needs lists of "
            "one length"
        )
    return first


def _require_digits(name: str, values: Array) -> None:
    """Raise ``DataError`` for integers of column ``name`` that float64 does not represent exactly."""
    if values.dtype.kind in "iu":
        require_digits(name, values)


def _is_list(cell: object) -> bool:
    return isinstance(cell, list | tuple) or getattr(cell, "ndim", 0) > 0


def _is_missing(cell: object) -> bool:
    is_nan = isinstance(cell, float) and math.isnan(cell)
    return cell is None or is_nan or type(cell).__name__ == "NAType"


def _is_number(value: object) -> bool:
    return isinstance(value, bool | int | float | np.number | np.bool_)


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """True for types of real numbers of at most 8 bytes, and for booleans."""
    return dtype.kind in "iufb" and dtype.itemsize <= LARGEST_NUMBER
