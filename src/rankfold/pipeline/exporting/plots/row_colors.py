"""Labels or values that color rows: one for each row, read block after block from their source.

Words and booleans are labels, numbers with a fraction are values. Integers are labels if few distinct ones
occur.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.names import Names
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.exporting.plots.row_columns import Column, open_column

MOST_WHOLE_LABELS = 100
"""Most distinct integers that count as labels; with more, they are values."""

MOST_LABELS = 65536
"""Most distinct words that count as labels; with more, they are names of rows."""

BLOCK_ROWS = 2**20
"""Rows that are read at a time to find the distinct labels."""


@dataclass(frozen=True, slots=True)
class Labels:
    """A label for each row, as an integer code."""

    column: Column
    known: npt.NDArray[Any] | None
    """Distinct labels in sorted order; None if the column holds integer codes already."""

    names: tuple[str, ...]
    counts: npt.NDArray[np.int64]
    """Number of rows of each label; the last entry is that of rows without a label."""

    def read(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Codes of the labels of rows ``start:stop``; ``len(names)`` for rows without one."""
        return _codes(self.column.read(start, stop), self.known, len(self.names))


@dataclass(frozen=True, slots=True)
class Values:
    """A number for each row, NaN if there is none."""

    column: Column
    low: float
    high: float
    missing_count: int

    def read(self, start: int, stop: int) -> npt.NDArray[np.float64]:
        """Values of rows ``start:stop``."""
        return np.asarray(self.column.read(start, stop), np.float64)


def colors_of(color: Any, rows: int, rows_named: Names | None = None) -> Labels | Values:
    """Labels or values of ``rows`` rows, from an array or its path; matched by name where both have names.

    Raises
    ------
    InputError
        Another length or type, several numbers for a row, a path that does not exist, or nothing but NaN.
    """
    column = open_column(color).among(rows_named)
    if column.length != rows:
        hint = ". The first line of a .csv file holds the names of its columns" if column.has_header else ""
        raise InputError(f"{column.name} has {column.length} values, and the result has {rows} rows{hint}")
    if column.categories is not None:
        return _labels(column, None, column.categories)
    kind = column.kind
    if kind in "SUTOb":
        return _labels(column, *_distinct(column, MOST_LABELS, required=True))
    if kind in "iu":
        known, names = _distinct(column, MOST_WHOLE_LABELS, required=False)
        if known is not None:
            return _labels(column, known, names)
    elif kind != "f":
        raise InputError(f"{column.name} is neither text nor real numbers, by which rows could be colored")
    return _values(column)


def _values(column: Column) -> Values:
    low, high, missing_count = np.inf, -np.inf, 0
    for start in range(0, column.length, BLOCK_ROWS):
        block = np.asarray(column.read(start, min(start + BLOCK_ROWS, column.length)), np.float64)
        finite = block[np.isfinite(block)]
        missing_count += len(block) - len(finite)
        low, high = min(low, finite.min(initial=np.inf)), max(high, finite.max(initial=-np.inf))
    if missing_count == column.length:
        raise InputError(f"{column.name} holds no number, only NaN or Inf: nothing to color by")
    return Values(column, float(low), float(high), missing_count)


def _labels(column: Column, known: npt.NDArray[Any] | None, names: tuple[str, ...]) -> Labels:
    counts = np.zeros(len(names) + 1, np.int64)
    for start in range(0, column.length, BLOCK_ROWS):
        block = column.read(start, min(start + BLOCK_ROWS, column.length))
        counts += np.bincount(_codes(block, known, len(names)), minlength=len(names) + 1)
    return Labels(column, known, names, counts)


def _codes(block: npt.NDArray[Any], known: npt.NDArray[Any] | None, count: int) -> npt.NDArray[np.int64]:
    if known is None:
        codes = block.astype(np.int64)
        return np.where((codes < 0) | (codes >= count), count, codes)
    at = np.searchsorted(known, block)
    at[(at == len(known)) | (block == "" if block.dtype.kind == "U" else False)] = count
    return at


def _distinct(
    column: Column, most: int, *, required: bool
) -> tuple[npt.NDArray[Any] | None, tuple[str, ...]]:
    """Distinct labels in sorted order, and their names; None and no names if there are more than ``most``."""
    known: npt.NDArray[Any] | None = None
    for start in range(0, column.length, BLOCK_ROWS):
        block = np.unique(column.read(start, min(start + BLOCK_ROWS, column.length)))
        known = block if known is None else np.union1d(known, block)
        if len(known) > most and not required:
            return None, ()
        if len(known) > most:
            raise InputError(
                f"{column.name} has more than {most} different labels: these are names of rows, by which "
                "nothing can be colored"
            )
    assert known is not None  # noqa: S101  there is a row
    known = known[known != ""] if known.dtype.kind == "U" else known
    return known, tuple(str(each) for each in known)
