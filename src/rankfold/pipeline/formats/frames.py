"""Data frames of pandas, polars and Dask: their columns as a numeric array, and names of rows and columns.

Frames are recognized by the module and the name of their type, so none of these libraries is imported here.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.dtypes import LARGEST_ITEM, LARGEST_WHOLE, SUPPORTED_DTYPES, require_digits
from rankfold.pipeline.data.named_objects import is_counted, labels_of_index
from rankfold.pipeline.data.names import Axis
from rankfold.pipeline.data.pandas_index import attributes_of_index
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats.arrays import axes_of
from rankfold.pipeline.formats.tables.columns import MOST_COLUMNS, index_names
from rankfold.pipeline.formats.tables.options import ReadOptions, choose_columns, name_rows
from rankfold.pipeline.formats.tables.row_names import RowNames, texts_of_values
from rankfold.pipeline.formats.vectors import holds_lists

LOG = logging.getLogger("rankfold")

LIBRARIES = ("pandas", "polars", "dask")

TYPES_OF_OBJECTS = {
    "integer": "Int64",
    "floating": "float64",
    "mixed-integer-float": "float64",
    "boolean": "boolean",
}
"""Types of pandas for columns of Python objects, by what pandas infers of their values."""


def is_frame(x: object) -> bool:
    """True if an object is a data frame, or another object of these libraries that is not an array."""
    library = _library(x)
    return library in LIBRARIES and (library != "dask" or hasattr(type(x), "to_dask_array"))


def without_subclass(x: Any) -> Any:
    """A frame of a derived class, as of GeoPandas or of a view of AnnData, as one of the library itself."""
    bases = (each for each in type(x).__mro__ if each.__module__.partition(".")[0] in LIBRARIES)
    base = next(bases, type(x))
    return x if base is type(x) else base(x)


def array_of_frame(frame: Any) -> npt.NDArray[Any]:
    """Values of a pandas frame, (rows, columns), in a type that holds all columns; missing ones are NaN."""
    common = _common_type(frame)
    if not frame.isna().to_numpy().any():
        if common.kind in "fc":
            _require_digits(frame)
        values: npt.NDArray[Any] = frame.to_numpy(dtype=common)
        return values
    _require_digits(frame)
    values = frame.to_numpy(dtype=common if common.kind in "fc" else np.dtype(np.float64), na_value=np.nan)
    return values


def dask_array_of_frame(frame: Any) -> Any:
    """Values of a Dask frame as a Dask array (rows, columns).

    Computes all partitions once, to count their rows.
    """
    common = _common_type(frame)
    if any(not isinstance(dtype, np.dtype) for dtype in frame.dtypes) and common.kind not in "fc":
        common = np.dtype(np.float64)  # has NaN for missing values of nullable columns
    if common.kind in "fc" and any(_is_wide(dtype) for dtype in frame.dtypes):
        frame = frame.map_partitions(_require_digits, meta=frame._meta)
    return frame.astype(common).to_dask_array(lengths=True)


def _is_wide(dtype: Any) -> bool:
    """True if a pandas type has 64-bit integers, which a float may not represent exactly."""
    plain = np.dtype(_plain_type(dtype))
    return plain.kind in "iu" and plain.itemsize == 8


def _require_digits(frame: Any) -> Any:
    """Return a frame of pandas unchanged; ``DataError`` for integers that float64 does not hold exactly."""
    for place, dtype in enumerate(frame.dtypes):
        if _is_wide(dtype):
            column = frame.iloc[:, place].dropna().to_numpy(dtype=_plain_type(dtype))
            require_digits(f"column {frame.columns[place]!r} of the DataFrame", column)
    return frame


def plain_columns(frame: Any) -> Any:
    """The frame with categorical columns of numbers, and decimals, as plain numbers, as Parquet is read."""
    if type(frame).__name__ != "DataFrame":
        return frame
    library = _library(frame)
    if library == "polars":
        decimals = [name for name, dtype in frame.schema.items() if dtype.is_decimal()]
        for name in decimals:
            _require_decimals(name, frame[name].drop_nulls())
        float64 = sys.modules["polars"].Float64  # imported already: the frame is of polars
        return frame.with_columns(frame[name].cast(float64) for name in decimals) if decimals else frame
    if library == "dask":
        types = {name: kind for name, dtype in frame.dtypes.items() if (kind := _type_of_numbers(dtype))}
        return frame.astype(types) if types else frame
    plain = frame.copy(deep=False)
    for place, dtype in enumerate(frame.dtypes):
        kind = _type_of_numbers(dtype)
        if kind is None and dtype != np.object_:
            continue
        column = frame.iloc[:, place]
        if kind is None and (numbers := _as_numbers(frame.columns[place], column)) is not None:
            plain.isetitem(place, numbers)
            continue
        if str(dtype).startswith("decimal") or _are_decimals(column):
            kind, values = "float64", column.dropna()
            _require_decimals(frame.columns[place], values)
            column = column.astype(object).where(column.notna(), np.nan)
        if kind is not None:
            plain.isetitem(place, column.astype(kind))
    return plain


def _type_of_numbers(dtype: Any) -> str | None:
    """Pandas type for a categorical or decimal column as plain numbers; None for other columns."""
    if str(dtype).startswith("decimal"):
        return "float64"
    kind = _plain_type(getattr(getattr(dtype, "categories", None), "dtype", None))
    if not isinstance(kind, np.dtype) or kind.kind not in "iufb":
        return None
    nullable = {"b": "boolean", "i": f"Int{8 * kind.itemsize}", "u": f"UInt{8 * kind.itemsize}"}
    return nullable.get(kind.kind, kind.name)


def _as_numbers(name: Any, column: Any) -> Any:
    """A pandas column of objects that are all numbers, or all truth values, or missing, in a type for these.

    A frame with text has such columns after it was transposed. None for other columns, and for whole numbers
    of more than 64 bits. ``name`` is that of the column in messages.
    """
    objects = sys.modules["pandas"].api.types.infer_dtype(column, skipna=True)  # the column is of pandas
    if objects not in TYPES_OF_OBJECTS:
        return None
    if objects == "mixed-integer-float":
        whole = [each for each in column.dropna() if isinstance(each, int | np.integer)]
        require_digits(f"column {name!r} of the DataFrame", np.array(whole, object))
    try:
        return column.where(column.notna(), np.nan).astype(TYPES_OF_OBJECTS[objects])
    except (OverflowError, TypeError):
        return None


def _are_decimals(column: Any) -> bool:
    """True if a column of objects holds only decimals and missing values, and at least one decimal."""
    if column.dtype != object:
        return False
    values = column.dropna()
    return len(values) > 0 and all(isinstance(each, Decimal) for each in values)


def _require_decimals(name: Any, values: Any) -> None:
    """Raise ``DataError`` for whole decimals of column ``name`` that float64 does not hold exactly."""
    for each in values:
        if each.is_finite() and abs(each) > LARGEST_WHOLE and each == each.to_integral_value():
            require_digits(f"column {name!r} of the DataFrame", np.array([int(each)], object))


def numeric_frame(frame: Any) -> Any:
    """The columns of a frame of pandas, polars or Dask that hold numbers or truth values.

    Columns that are left out are named in a warning.
    """
    wrong = _texts_of(frame)
    if not wrong:
        return frame
    kept = list(dict.fromkeys(name for name in frame.columns if name not in wrong))
    if not kept:
        raise InputError(f"no column holds numbers: {_in_words(wrong)}{_way_to_lists(frame, wrong)}")
    LOG.warning("left out: %s%s", _in_words(wrong), _way_to_lists(frame, wrong))
    return frame[kept]


def _common_type(frame: Any) -> np.dtype[Any]:
    """The type that holds all columns of a frame of pandas or Dask."""
    if type(frame).__name__ != "DataFrame":
        raise InputError(
            f"cannot read a {_library(frame)} {type(frame).__name__}; pass a DataFrame, as x.to_frame()"
        )
    _require_all_numbers(frame)
    if not len(frame.columns):
        raise InputError("the DataFrame has no columns: a matrix without columns cannot be reduced")
    return np.result_type(*map(_plain_type, frame.dtypes))


def _plain_type(dtype: Any) -> Any:
    """NumPy type for the type of a pandas column, which may be nullable or sparse."""
    return getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", dtype))


def _texts_of(frame: Any) -> dict[Any, Any]:
    """Columns of a frame that hold no numbers, by name, each with text on what it holds."""
    wrong: dict[Any, Any] = dict.fromkeys(
        index_names(list(frame.columns)), "names of rows, as pandas writes an index"
    )
    if _library(frame) == "polars":
        return wrong | {
            name: dtype
            for name, dtype in frame.schema.items()
            if not (dtype.is_numeric() or str(dtype) == "Boolean")
            or dtype.is_decimal()
            or str(dtype).endswith("128")
        }
    plain = [(name, dtype, _plain_type(dtype)) for name, dtype in frame.dtypes.items()]
    return wrong | {
        name: dtype
        for name, dtype, kind in plain
        if getattr(kind, "kind", "O") not in LARGEST_ITEM or kind.itemsize > LARGEST_ITEM[kind.kind]
    }


def _require_all_numbers(frame: Any) -> None:
    """Raise ``InputError`` for columns that hold no numbers, naming all of them."""
    wrong = _texts_of(frame)
    if wrong:
        it, first = "them" if len(wrong) > 1 else "it", str(frame.columns[0])
        able = first in wrong and len(wrong) < len(frame.columns)
        named = f" If {first!r} names the rows, say {name_rows(first)}." if able else ""
        raise InputError(
            f"{_in_words(wrong)}; supported are {SUPPORTED_DTYPES}.{named} Keep columns of numbers alone "
            f"with rankfold.open(x, numeric=True), leave {it} out, as x.drop(columns={[*wrong]!r}), or "
            f"convert{_way_to_lists(frame, wrong)}"
        )


def _way_to_lists(frame: Any, wrong: dict[Any, Any]) -> str:
    """Text that says how to pass the first column of lists of a frame; empty if there is none.

    ``wrong`` are the columns that hold no numbers, by name, among which it is looked for.
    """
    names = () if _library(frame) == "dask" else tuple(wrong)
    lists = (name for name in names if list(frame.columns).count(name) == 1 and holds_lists(frame[name]))
    name = next(lists, None)
    return "" if name is None else f". Lists of one length are a matrix by themselves: pass x[{name!r}]"


def _in_words(columns: dict[Any, Any]) -> str:
    words = [f"column {name!r} of the DataFrame holds {dtype}" for name, dtype in columns.items()]
    more = f" and {len(words) - MOST_COLUMNS} more" if len(words) > MOST_COLUMNS else ""
    return ", ".join(words[:MOST_COLUMNS]) + more


def split_names(frame: Any, index_col: str | None) -> tuple[Any, Axis | None]:
    """Split a frame into a frame without the column that names its rows, and the axis of rows with names.

    The axis is None if no column names rows. ``index_col`` is the name of that column; by default (None) it
    is a first column without a name, in a frame of pandas or polars whose index is a plain count. A column
    of a Dask frame is computed by partitions.
    """
    if _library(frame) == "polars" and hasattr(frame, "collect"):  # a LazyFrame must compute its columns
        raise InputError(f"cannot read a polars {type(frame).__name__}; pass a DataFrame, as x.collect()")
    if not hasattr(frame, "columns"):
        return frame, None
    library, index, unnamed = _library(frame), getattr(frame, "index", None), index_names(list(frame.columns))
    column, because = index_col, ""
    if index_col is None:
        if len(unnamed) != 1 or library == "dask" or not (index is None or is_counted(index)):
            return frame, None
        column = unnamed[0]
        called = f"the name {column!r}" if column.strip() else "no name"
        because = f"the first column of the DataFrame has {called}, so it names rows"
    elif index_col not in list(frame.columns) and getattr(index, "name", None) == index_col:
        return frame, None
    else:
        choose_columns(list(map(str, frame.columns)), ReadOptions(index_col=index_col), "the DataFrame")
        column = next(each for each in frame.columns if str(each) == index_col)
    title = "row" if column in unnamed else str(column)
    names = RowNames(str(column), "the DataFrame", title=title, because=because)
    parts = frame[column].partitions if library == "dask" else [frame[column]]
    for part in parts:
        values = part.compute() if library == "dask" else part
        names.add(_names_in(values), names.rows)
    for note in names.notes():
        LOG.warning("%s", note)
    return frame.drop(column) if library == "polars" else frame.drop(columns=[column]), names.axis()


def _names_in(column: Any) -> list[str]:
    """Values of a column of pandas or polars as names of rows; empty text for missing ones."""
    if _library(column) == "polars":
        dates = str(column.dtype).startswith(("Date", "Datetime"))
        return texts_of_values(column.to_numpy().astype("datetime64[ns]") if dates else column.to_list())
    if getattr(column.dtype, "kind", "") == "M":
        return texts_of_values(column.to_numpy().astype("datetime64[ns]"))
    return texts_of_values(column.astype(object).where(column.notna(), None))


def axes_of_frame(frame: Any, shape: tuple[int, ...], names: Axis | None = None) -> tuple[Axis, Axis]:
    """Axes of the rows and columns of a frame as a matrix of ``shape``, labeled by its index and columns.

    The default index of pandas gives no labels, and the index of a Dask frame is not computed. ``names``, if
    given, is the axis of rows, with names from a column. Columns of a Series of lists have no labels.
    """
    index, columns = getattr(frame, "index", None), getattr(frame, "columns", None)
    given = [
        None if _library(frame) in ("dask", "polars") else labels_of_index(index),
        None if columns is None else labels_of_index(columns),
    ]
    titles: list[str] = [
        name if isinstance(name := getattr(each, "name", None), str) else usual
        for each, usual in zip((index, columns), ("row", "column"), strict=True)
    ]
    row, column = (
        axis if labels is None else replace(axis, attributes=attributes_of_index(each))
        for axis, labels, each in zip(axes_of(titles, given, shape), given, (index, columns), strict=True)
    )
    return row if names is None else names, column


def array_of_polars(frame: Any) -> npt.NDArray[Any]:
    """Values of a polars frame, (rows, columns), in a type that holds all columns; missing ones are NaN."""
    if type(frame).__name__ != "DataFrame":
        raise InputError(f"cannot read a polars {type(frame).__name__}; pass a DataFrame, as x.to_frame()")
    _require_all_numbers(frame)
    if not frame.width:
        raise InputError("the DataFrame has no columns: a matrix without columns cannot be reduced")
    if any(kind == "Boolean" for kind in map(str, frame.dtypes)) and sum(frame.null_count().row(0)):
        polars = sys.modules["polars"]  # imported already: the frame is of polars
        frame = frame.with_columns(
            frame[name].cast(polars.Int8) for name, kind in frame.schema.items() if kind == polars.Boolean
        )
    values: npt.NDArray[Any] = frame.to_numpy()
    for name, kind in frame.schema.items():
        if values.dtype.kind == "f" and str(kind) in ("Int64", "UInt64"):
            require_digits(f"column {name!r} of the DataFrame", frame[name].drop_nulls().to_numpy())
    return values


def _library(frame: object) -> str:
    """Name of the library of frames that defines the class of an object or a base of it; else of its own."""
    names = [each.__module__.partition(".")[0] for each in type(frame).__mro__]
    return next((name for name in names if name in LIBRARIES), names[0])
