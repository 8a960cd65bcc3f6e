"""Sums of stored values in one read of them. See ``kernels/sparse/moments.py``.

Serial loops that release the GIL: parallelism comes from the threads that call them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop
from rankfold.kernels._dispatch import plain
from rankfold.kernels.sparse.cpu._order import positions

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]


@compile_loop
def _add_moments(
    pointers: Int64, values: Array, shift: Float64, unit: float, sums: Float64, squares: Float64
) -> None:
    for i in range(len(pointers) - 1):
        start, stop = pointers[i], pointers[i + 1]
        if start == stop:
            continue
        total, square, from_ = sums[i], squares[i], shift[i]
        for p in range(start, stop):
            difference = (np.float64(values[p]) - from_) * unit
            total += difference
            square += difference * difference
        sums[i], squares[i] = total, square


def add_moments(
    pointers: Array, values: Array, shift: Float64, unit: float, *, sums: Float64, squares: Float64
) -> None:
    """See the contract. Adds sums and sums of squares of every line."""
    into, into_squares = np.ascontiguousarray(sums), np.ascontiguousarray(squares)
    _add_moments(positions(pointers), plain(values), plain(shift), float(unit), into, into_squares)
    if into is not sums:
        sums[...] = into
    if into_squares is not squares:
        squares[...] = into_squares


@compile_loop
def _add_rows(
    indptr: Int64, indices: Array, data: Array, buckets: Int64, factors: Array, sums: Array
) -> None:
    for i in range(len(buckets)):
        into, factor = sums[buckets[i]], factors[i]
        for p in range(indptr[i], indptr[i + 1]):
            into[indices[p]] += factor * data[p]


def add_rows_to_buckets(
    indptr: Array, indices: Array, data: Array, buckets: npt.NDArray[np.int64], factors: Array, *, sums: Array
) -> None:
    """See the contract. ``sums[buckets[i]] += factors[i] * row i`` for every sparse row."""
    into = np.ascontiguousarray(sums)
    rows = positions(indptr), plain(indices), plain(data)
    _add_rows(*rows, plain(buckets), plain(factors), into)
    if into is not sums:
        sums[...] = into
