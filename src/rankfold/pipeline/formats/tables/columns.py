"""Common parts of text and Parquet tables: conversion of Arrow arrays to rows of numbers.

A reader of a table yields batches of arrays. Here they are joined, and missing values become NaN or an
error. Arrow is imported when a table is read; if it is not installed, the message says how to install it.
"""

from __future__ import annotations

import itertools
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.dtypes import LARGEST_WHOLE, beyond_floats
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.formats.open_files import library
from rankfold.pipeline.formats.tables.options import count_words, without_columns
from rankfold.pipeline.formats.tables.row_names import RowNames

MOST_COLUMNS = 20
"""Largest number of columns that a message names."""

ALL_NUMBERS = "Keep columns of numbers alone with numeric=True (--numeric), or import the table"
"""Start of the advice for columns that hold no numbers; callers add how an import leaves them out."""


INDEX_NAME = re.compile(r"\s*(Unnamed: 0([._]\d+)*|__index_level_\d+__)?\s*")
"""Name of a first column that names rows: empty, or what pandas writes or reads instead of an empty name."""


def index_names(names: Sequence[Any]) -> list[Any]:
    """Names of the leading columns that name rows, recognized by ``INDEX_NAME``; empty if all columns match.

    >>> index_names(["Unnamed: 0", "income", "age"]), index_names(["income"]), index_names([""])
    (['Unnamed: 0'], [], [])
    """
    found = list(
        itertools.takewhile(lambda name: isinstance(name, str) and INDEX_NAME.fullmatch(name), names)
    )
    return found if len(found) < len(names) else []


class Batch(NamedTuple):
    """Some rows of a table."""

    columns: Sequence[Any]
    """An Arrow array for each column, or a single one that holds all elements row by row."""

    path: str
    row: int
    """Index of the first of these rows among those of the file, from 0."""

    bytes_read: int
    """Bytes of all files, as stored, that have been read once these rows have."""

    names: list[str] | None = None
    """Names of the rows; None if no column names them."""


class TableColumn(NamedTuple):
    """Description of a column of a table."""

    name: str
    kind: str
    """Kind of its values, as text."""

    obstacle: str | None
    """Reason why it is not a column of numbers; None if it is one."""

    vector: int = 0
    """Length of its lists of numbers, the rows of a matrix of its own; 0 if it holds no lists."""

    names_rows: bool = False
    """True if it names the rows by default."""


@dataclass(frozen=True, slots=True)
class Look:
    """Description of the columns of a table, from all of its rows or the first ones."""

    columns: tuple[TableColumn, ...]
    rows: int
    """Number of rows that were examined."""

    whole: bool
    """True if all rows were examined."""

    hint: str = ""
    """Advice if cells look like numbers in another style; else empty."""

    def left_out(self) -> str:
        """Text that lists the columns that hold no numbers, and the reasons."""
        words = [f"{each.name!r} ({each.obstacle})" for each in self.columns if each.obstacle is not None]
        more = f" and {len(words) - MOST_COLUMNS} more" if len(words) > MOST_COLUMNS else ""
        return f"{', '.join(words[:MOST_COLUMNS])}{more}{'.' if self.hint else ''}{self.hint}"

    def extent(self) -> str:
        """Text that says how many rows were examined."""
        rows = count_words(self.rows, "row")
        return f"all of {rows}" if self.whole else f"the first {rows}"


@dataclass(frozen=True, slots=True)
class NumericTable(ABC):
    """Reader of columns of numbers in one or more files, from the first row to the last.

    It implements ``RowReader``, the protocol of what an import reads.
    """

    name: str
    paths: tuple[str, ...]
    dtype: np.dtype[Any]
    column_names: tuple[str, ...]
    """Names of the columns that are read."""

    has_names: bool
    """True if ``column_names`` are from the file; False if they are plain numbers 0, 1, ..."""

    row_names: RowNames | None = field(default=None, compare=False, kw_only=True)
    """Collector of the names of the rows, filled as they are read; None without names."""

    @property
    def columns(self) -> int:
        """Number of elements in a row."""
        return len(self.column_names)

    @property
    def block_dtype(self) -> np.dtype[Any]:
        """Type of the elements of the arrays that ``blocks`` yields."""
        return self.dtype

    @property
    def total_bytes(self) -> int:
        """Bytes of the files as they are stored."""
        return sum(map(os.path.getsize, self.paths))

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """Decisions made while reading, such as on header or marks of missing values, as sentences.

        Complete once all rows have been read.
        """

    @abstractmethod
    def batches(self, memory_bytes: int) -> Iterator[Batch]:
        """Yield all rows from first to last, in batches that take about ``memory_bytes``."""

    def blocks(self, memory_bytes: int) -> Iterator[tuple[npt.NDArray[Any], int]]:
        """Yield batches as arrays (rows, columns), each with the bytes of the stored files read so far.

        ``memory_bytes`` is about what a batch takes. Names of rows are added to ``row_names``.
        """
        for batch in self.batches(memory_bytes):
            if self.row_names is not None and batch.names is not None:
                self.row_names.add(batch.names, batch.row)
            yield self._join_columns(batch), batch.bytes_read

    def _join_columns(self, batch: Batch) -> npt.NDArray[Any]:
        if len(batch.columns) == 1:
            numbers = self._convert(batch.columns[0], batch, self.column_names, self.columns)
            return numbers.astype(self.block_dtype, copy=False).reshape(-1, self.columns)
        rows = np.empty((len(batch.columns[0]), self.columns), self.block_dtype)
        for position, (column, name) in enumerate(zip(batch.columns, self.column_names, strict=True)):
            rows[:, position] = self._convert(column, batch, (name,), 1)
        return rows

    def _convert(self, column: Any, batch: Batch, names: Sequence[str], width: int) -> npt.NDArray[Any]:
        """Convert an Arrow array, with ``width`` elements for each row, to a flat NumPy array.

        ``names`` are those of its columns; they and ``batch`` are for messages. Raises ``DataError`` for
        missing values that the type does not hold, and for integers and decimals without a fraction that
        floats do not represent exactly.
        """
        decimals = column if str(column.type).startswith("decimal") else None
        if decimals is not None:
            column = column.cast("float64", safe=False)
        if column.null_count and self.dtype.kind != "f":
            place = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise DataError(
                f"{batch.path}: column {names[place % len(names)]!r} has no value in row "
                f"{batch.row + place // width + 1} of the data, and {self.dtype} cannot say so. Import it as "
                "float64 or float32"
            )
        if column.null_count and str(column.type) == "bool":
            column = column.cast("uint8")
        if column.null_count and "int64" in str(column.type):  # to_numpy converts these to floats
            self._require_held(column.fill_null(0).to_numpy(), batch, names, width)
        numbers: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
        if decimals is not None:
            self._require_held(_large_decimals(decimals, numbers), batch, names, width)
        elif numbers.dtype.kind in "iu":
            self._require_held(numbers, batch, names, width)
        return numbers

    def _require_held(
        self, numbers: npt.NDArray[Any], batch: Batch, names: Sequence[str], width: int
    ) -> None:
        """Raise ``DataError`` for integers that a float ``block_dtype`` would not represent exactly.

        Other parameters as in ``_convert``.
        """
        if numbers.dtype.itemsize < 8 or self.block_dtype.kind != "f":
            return
        wide = beyond_floats(numbers)
        if wide.any():
            place = int(wide.argmax())
            name, row = names[place % len(names)], batch.row + place // width
            raise self.digits_lost(batch.path, name, str(numbers[place]), row)

    def digits_lost(self, path: str, name: str, number: str, row: int) -> DataError:
        """The error for ``number``, the text of an integer that the float type does not represent exactly.

        It is in column ``name`` and row ``row``, counted from 0, of the file ``path``.
        """
        return DataError(
            f"{path}: column {name!r} has {number} in row {row + 1} of the data, which {self.block_dtype} "
            "does not hold to the last digit. Where it is a name and no number, import the table with "
            f"{without_columns([name])}"
        )


def _large_decimals(decimals: Any, rounded: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    """Large decimals without a fraction as integers, (n,), from an Arrow array; 0 for others, (0,) if none.

    ``rounded`` are the decimals as float64, (n,), NaN for missing ones. If their type has digits after the
    point, only those that float64 does not represent exactly are returned.
    """
    large = np.flatnonzero(np.abs(rounded) >= LARGEST_WHOLE)
    integers = np.zeros(len(rounded) if len(large) else 0, object)
    for place in large:
        number = decimals[int(place)].as_py()
        is_held = decimals.type.scale > 0 and number == Decimal(float(rounded[place]))
        if number == number.to_integral_value() and not is_held:
            integers[place] = int(number)
    return integers


def load_arrow(path: str, part: str = "") -> Any:
    """Import Arrow or a part of it, such as ``csv``; ``InputError`` if it is not installed."""
    return library(f"pyarrow.{part}" if part else "pyarrow", extra="formats", what=f"reading {path}")


def clip_bytes(count: int, limits: tuple[int, int]) -> int:
    """``count`` bytes, clipped to the least and most of ``limits``."""
    return min(max(count, limits[0]), limits[1])
