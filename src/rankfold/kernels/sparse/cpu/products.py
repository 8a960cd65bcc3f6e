"""Products of sparse rows by sums in registers. See ``kernels/sparse/products.py``.

Serial loops that release the GIL: parallelism comes from the threads that call them, with ranges of rows or
of columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop
from rankfold.kernels._dispatch import plain, wide, writable, write_back
from rankfold.kernels.sparse.cpu._gather import Lanes, add_sum, parts, scatter_row, store_sum
from rankfold.kernels.sparse.cpu._order import begin_columns, place_nonzeros, positions
from rankfold.kernels.sparse.products import PIECE, check_room

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]


@compile_loop
def _multiply_rows(
    indptr: Int64, indices: Array, data: Array, q: Array, y: Array, column: int, lanes: Lanes
) -> None:
    end = indptr[len(indptr) - 1]
    for i in range(len(indptr) - 1):
        store_sum(lanes, indices, data, indptr[i], indptr[i + 1], end, q, y, i, column)  # type: ignore[call-arg]


@compile_loop
def _add_columns(
    pointers: Int64, rows: Array, values: Array, y: Array, z: Float64, column: int, lanes: Lanes
) -> None:
    end = pointers[len(pointers) - 1]
    for j in range(len(pointers) - 1):
        start, stop = pointers[j], pointers[j + 1]
        while start < stop:
            next_ = min(start + PIECE, stop)
            add_sum(lanes, rows, values, start, next_, end, y, z, j, column)  # type: ignore[call-arg]
            start = next_


@compile_loop
def _scatter_rows(
    indptr: Int64, indices: Array, data: Array, y: Array, z: Float64, column: int, lanes: Lanes
) -> None:
    end = indptr[len(indptr) - 1]
    for i in range(len(indptr) - 1):
        scatter_row(lanes, indices, data, indptr[i], indptr[i + 1], end, y, z, i, column)  # type: ignore[call-arg]


def multiply_rows(indptr: Array, indices: Array, data: Array, q: Array, *, y: Array) -> None:
    """See the contract. ``y = A @ q`` for a range of sparse rows."""
    starts, columns, values = positions(indptr), plain(indices), plain(data)
    block, into = wide(q), writable(y)
    for column, lanes in parts(y.shape[1], y.dtype):
        _multiply_rows(starts, columns, values, block, into, column, lanes)
    write_back(into, y)


@compile_loop
def _are_in_order(indptr: Int64, indices: Array) -> bool:
    for i in range(len(indptr) - 1):
        for p in range(indptr[i] + 1, indptr[i + 1]):
            if indices[p] <= indices[p - 1]:
                return False
    return True


def are_in_order(indptr: Array, indices: Array) -> bool:
    """See the contract. True if the indices of every row increase."""
    return bool(_are_in_order(positions(indptr), plain(indices)))


def order_columns(
    indptr: Array, indices: Array, data: Array, *, pointers: Int64, rows: Array, values: Array
) -> None:
    """See the contract. Sorts nonzeros by column; the three arrays that are written are contiguous."""
    check_room(indptr, indices, data, pointers=pointers, rows=rows, values=values)
    starts, columns = positions(indptr), plain(indices)
    begin_columns(starts, columns, pointers)
    place_nonzeros(starts, columns, plain(data), pointers, rows, values)


def add_columns(pointers: Array, rows: Array, values: Array, y: Array, *, z: Float64) -> None:
    """See the contract. ``z += A.T @ y`` for a range of columns."""
    starts, places, numbers = positions(pointers), plain(rows), plain(values)
    block, into = wide(y), writable(z)
    for column, lanes in parts(z.shape[1], y.dtype):
        _add_columns(starts, places, numbers, block, into, column, lanes)
    write_back(into, z)


def scatter_rows(indptr: Array, indices: Array, data: Array, y: Array, *, z: Float64) -> None:
    """See the contract. ``z += A.T @ y`` for a range of sparse rows."""
    starts, places, values = positions(indptr), plain(indices), plain(data)
    block, into = wide(y), writable(z)
    for column, lanes in parts(z.shape[1], z.dtype):
        _scatter_rows(starts, places, values, block, into, column, lanes)
    write_back(into, z)
