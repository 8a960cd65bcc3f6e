"""Nonzeros of rows in the order of their columns, by counting."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop
from rankfold.kernels._dispatch import plain
from rankfold.kernels.sparse.products import wrong_index, wrong_pointer

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]

Index = np.uint64
"""Type of indices that are never negative, so that no code checks whether they count from the end."""


def positions(pointers: Array) -> Int64:
    """Pointers as int64, the one type that loops are compiled for; a copy is small next to the nonzeros."""
    return plain(np.asarray(pointers, np.int64))


def begin_columns(indptr: Int64, indices: Array, pointers: Int64) -> None:
    """Write the begin of column ``j`` into ``pointers[j + 1]``, and check rows and indices.

    Raises ``ValueError`` as the contract of ``order_columns`` says; the ends of the arrays are not checked.
    """
    row, place = _count(indptr, indices, pointers)
    if row >= 0:
        raise ValueError(wrong_pointer(indptr, row))
    if place >= 0:
        raise ValueError(wrong_index(indptr, indices, place, len(pointers) - 1))


@compile_loop
def _count(indptr: Int64, indices: Array, pointers: Int64) -> tuple[int, int]:
    """Write the begins of columns into ``pointers[1:]``.

    Returns the first row that ends before it begins, and the position of the first wrong index; -1 for none.
    """
    columns = Index(len(pointers) - 1)
    pointers[:] = 0
    for i in range(len(indptr) - 1):
        if indptr[i + 1] < indptr[i]:
            return i, -1
        for p in range(indptr[i], indptr[i + 1]):
            j = Index(indices[p])  # a negative number becomes larger than all others
            if j >= columns:
                return -1, p
            pointers[j + Index(1)] += 1
    begin = 0
    for column in range(1, len(pointers)):
        count = pointers[column]
        pointers[column] = begin
        begin += count
    return -1, -1


@compile_loop
def place_nonzeros(
    indptr: Int64, indices: Array, data: Array, pointers: Int64, rows: Array, values: Array
) -> None:
    """Write rows and values of the nonzeros by column into ``rows`` and ``values``.

    ``pointers[1:]`` has the begins of columns, as ``begin_columns`` writes them; it ends as their ends.
    """
    # A begin moves up as its column fills, and ends where the next column begins.
    for i in range(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            j = Index(indices[p]) + Index(1)
            place = pointers[j]
            rows[Index(place)] = i
            values[Index(place)] = data[p]
            pointers[j] = place + 1
