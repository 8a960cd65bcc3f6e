"""NaN, Inf, and negative numbers where they are not allowed: counted over the whole matrix, then refused.

The count is complete because a sweep continues past them: a user who corrected one cell at a time would
read the matrix once per cell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.origin import leaves_out_missing, place_of
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.fold import Sum
from rankfold.pipeline.errors import DataError, NonFiniteError
from rankfold.pipeline.storage.checkpoint import State

NO_INDEX = np.iinfo(np.int64).max
"""Row and column of the first bad element where there is none."""


def no_bad() -> npt.NDArray[np.int64]:
    """(3,) count of no bad elements: 0, with ``NO_INDEX`` for row and column of the first."""
    return np.array([0, NO_INDEX, NO_INDEX], dtype=np.int64)


Part = Callable[[], npt.NDArray[Any]]
"""Callable that returns a part of the matrix as it was read, on the host."""


def count_bad(state: State, part: Part, row: int, column: int) -> None:
    """Count the bad elements of a part of the matrix whose corner is ``(row, column)``.

    The part has squares that are not finite. Without a bad element they overflow, and ``DataError`` is
    raised.
    """
    x = part()
    bad = ~np.isfinite(x)
    if not bad.any():
        first = np.unravel_index(int(np.abs(x).argmax()), x.shape)
        raise DataError(
            f"numbers as that in row {row + first[0]}, column {column + first[1]} (from 0) are so much "
            "larger than others of the matrix that squares leave the range of float64. Are they marks for "
            "what is missing? Replace or drop them, and run again."
        )
    _count(state, "bad", bad, row, column)


def count_negative(state: State, part: Part, row: int, column: int) -> None:
    """Count the negative elements of a part of the matrix whose corner is ``(row, column)``."""
    _count(state, "negative", part() < 0, row, column)


def _count(state: State, name: str, mask: npt.NDArray[np.bool_], row: int, column: int) -> None:
    """Add to ``state[name]`` the count of elements where ``mask`` is True, and the position of the first."""
    first = np.unravel_index(int(mask.argmax()), mask.shape)
    here = np.array([mask.sum(), row + first[0], column + first[1]], dtype=np.int64)
    state[name] = join_bad(state[name], here)


def join_bad(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Join two (3,) counts of bad elements: their sum, and row and column of the first in row order."""
    first = min((int(a[1]), int(a[2])), (int(b[1]), int(b[2])))
    return np.array([a[0] + b[0], *first], dtype=np.int64)


BAD = Sum((3,), np.dtype(np.int64), no_bad, join_bad, on_host=True)
"""Sum of a fold that counts bad or negative elements: their count, and row and column of the first."""


def refuse_bad(state: State, source: Source) -> None:
    """Raise ``NonFiniteError`` if a sweep counted bad elements of a matrix."""
    count, row, column = (int(v) for v in state["bad"])
    if count:
        raise NonFiniteError(
            f"{source.name} holds {count} NaN or Inf, the first at {place_of(source, row, column)}. Nothing "
            f"was computed. {remedy(source)}"
        )


def refuse_infinite(state: State, source: Source) -> None:
    """Raise ``NonFiniteError`` if a sweep counted infinite elements; NaN is missing, and not counted."""
    count, row, column = (int(v) for v in state["bad"])
    if count:
        raise NonFiniteError(
            f"{source.name} holds {count} infinite numbers, the first at {place_of(source, row, column)}. "
            "Nothing was computed: NaN is what is missing, Inf is not. Replace them, and run again."
        )


def remedy(source: Source) -> str:
    """Advice on NaN and Inf in a matrix."""
    if leaves_out_missing(source):
        return (
            "Columns that hold no number in the first rows were left out; these hold numbers there, and lack "
            "some later. Leave out rows that hold no number, such as empty months, with "
            "drop_missing_rows=True (--drop-missing-rows), start at another row, select_rows= "
            "(--select-rows), or select columns, select_columns= (--select-columns), or fill what is "
            "missing, for instance with numpy.nan_to_num, and run again."
        )
    return (
        "Leave out columns that never hold a number, as places on land, with drop_missing_columns=True "
        "(--drop-missing-columns), and such rows with drop_missing_rows=True (--drop-missing-rows); have svd "
        "and pca complete other NaN, with missing='em' (--missing em), or nmf leave them out, with "
        "missing='ignore' (--missing ignore); replace or drop the rest, for instance with numpy.nan_to_num, "
        "and run again."
    )


def refuse_negative(state: State, source: Source) -> None:
    """Raise ``DataError`` if a sweep counted negative elements of a matrix."""
    count, row, column = (int(v) for v in state["negative"])
    if count:
        raise DataError(
            f"{source.name} holds {count} negative numbers, the first at {place_of(source, row, column)}. A "
            "nonnegative factorization has no use for them: replace them, or take svd or pca."
        )
