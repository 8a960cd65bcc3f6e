"""Products of sparse rows with sparse rows. See ``kernels/sparse/row_products.py``.

Serial loops that release the GIL, as those of ``products``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, compile_with_contraction
from rankfold.kernels._dispatch import plain, writable, write_back
from rankfold.kernels.sparse.cpu._order import Index, positions
from rankfold.kernels.sparse.row_products import check_rest

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]


@compile_loop
def _part_columns(
    indptr: Int64,
    indices: Array,
    data: Array,
    scale: Float64,
    places: npt.NDArray[np.int32],
    block: Array,
    pointers: Int64,
    columns: Array,
    values: Array,
) -> None:
    count = Index(0)
    pointers[0] = 0
    for i in range(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            column = indices[Index(p)]
            value, place = np.float64(data[Index(p)]) * scale[i], places[Index(column)]
            if place >= 0:
                block[i, Index(place)] += value
            else:
                columns[count], values[count] = column, value
                count += Index(1)
        pointers[i + 1] = count


@compile_with_contraction
def _add_row_products(
    indptr: Int64,
    indices: Array,
    data: Array,
    pointers: Int64,
    rows: Array,
    values: Array,
    first: int,
    products: Array,
) -> None:
    for i in range(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            column, value = Index(indices[Index(p)]), data[Index(p)]
            begin, t = pointers[column], pointers[column + Index(1)] - 1
            while t >= begin and rows[Index(t)] >= first:
                products[Index(i), Index(rows[Index(t)] - first)] += value * values[Index(t)]
                t -= 1


def part_columns(
    indptr: Array,
    indices: Array,
    data: Array,
    scale: Float64,
    places: npt.NDArray[np.int32],
    *,
    block: Array,
    pointers: Int64,
    columns: Array,
    values: Array,
) -> None:
    """See the contract; the last three arrays are contiguous. Splits a dense block from sparse rows."""
    check_rest(indptr, indices, data, columns=columns, values=values)
    block[...] = 0
    into = writable(block)
    inputs = (positions(indptr), plain(indices), plain(data), plain(scale), plain(places))
    _part_columns(*inputs, into, pointers, columns, values)
    write_back(into, block)


def add_row_products(
    indptr: Array,
    indices: Array,
    data: Array,
    *,
    pointers: Int64,
    rows: Array,
    values: Array,
    first: int,
    products: Array,
) -> None:
    """See the contract. ``products += X @ Y[first:].T``, a dense (rows of X, rows of Y - first) matrix.

    X is the CSR of ``indptr, indices, data``; Y is ``pointers, rows, values``, sorted by column.
    """
    inputs, lists = (positions(indptr), plain(indices), plain(data)), (plain(rows), plain(values))
    into = writable(products)
    _add_row_products(*inputs, positions(pointers), *lists, int(first), into)
    write_back(into, products)
