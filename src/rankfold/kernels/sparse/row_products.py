"""Products of sparse rows with sparse rows: full columns as dense blocks, the others by lists.

The list of a column has the rows of one side with an entry there, as ``order_columns`` makes it. Each entry
of a row of the other side walks one list, so that a column which a share f of the rows hold costs f^2
a pair. As part of a dense block it costs the same whatever f is, some thirty times less than a step of a
list: at ``COMMON_FILL`` both cost the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.sparse.products import check_arrays

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

COMMON_FILL = 0.15
"""Share of rows from which on a column is common and goes into the dense block."""


@kernel
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
    """Split sparse rows into a dense block of some columns and the rest, and scale the values of both.

    Parameters
    ----------
    indptr, indices : as for ``multiply_rows``
        Not checked.
    data : float32, float64 or uint8
    scale : (r,)
        Factor for the values of each row, in float64.
    places : (n,) int32
        Column of ``block`` that each of the n columns goes to; -1 if it stays in the rest.
    block : (r, h) float32 or float64, written
        Repeated entries of a row and column add up, rounded to this type each time.
    pointers, columns, values : (r + 1,) int64, (nnz or more,) of an index type and of that of ``block``
        The rest: the other columns, in the layout of ``indptr``, ``indices`` and ``data``. Written.

    Raises
    ------
    ValueError
        Pointers are outside the arrays, or the rest does not fit.

    Notes
    -----
    Some 3 ns a nonzero, and r h zeros; no scratch. Numbers are scaled in float64, then rounded.
    """
    check_rest(indptr, indices, data, columns=columns, values=values)
    block[...], pointers[0], count = 0, 0, 0
    for i in range(len(indptr) - 1):
        for p in range(int(indptr[i]), int(indptr[i + 1])):
            value = np.float64(data[p]) * scale[i]
            place = places[indices[p]]
            if place >= 0:
                block[i, place] += value
            else:
                columns[count], values[count] = indices[p], value
                count += 1
        pointers[i + 1] = count


@kernel
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
    """``products += X @ Y[first:].T`` for r sparse rows X in CSR, and s sparse rows Y sorted by column (CSC).

    Parameters
    ----------
    indptr, indices, data : as for ``multiply_rows``
        Rows of X; a column is an index of ``pointers``, which is not checked.
    pointers, rows, values : as ``order_columns`` writes them
        Rows of Y, of the type of ``data``.
    first : int
        First row of Y that is multiplied: lists are walked from their end.
    products : (r, s - first) of that type, dense, added to

    Notes
    -----
    Work, for a column that a rows of X and b rows of Y hold, a b products of some 1.2 ns: a row of
    ``products`` stays in cache if s is below a few thousand. No scratch. Sums are made in the type of
    ``products``, each by the nonzeros of its row in order: of t products none of which is zero it is within t
    eps of the sum of magnitudes.

    References
    ----------
    Bayardo, Ma, Srikant, Scaling up all pairs similarity search, WWW 2007: products of all pairs by inverted
    lists. Unlike there every list is walked whole and nothing is pruned, since columns that make lists long
    are multiplied as a dense block.
    """
    for i in range(len(indptr) - 1):
        for p in range(int(indptr[i]), int(indptr[i + 1])):
            nonzeros = slice(int(pointers[indices[p]]), int(pointers[indices[p] + 1]))
            members, terms = rows[nonzeros], data[p] * values[nonzeros]
            np.add.at(products[i], members[members >= first] - first, terms[members >= first])


def check_rest(indptr: Array, indices: Array, data: Array, *, columns: Array, values: Array) -> None:
    """Raise ``ValueError`` if pointers are outside the arrays, or the arrays to be written are too short."""
    check_arrays(indptr, indices, data)
    nonzeros = int(indptr[-1]) - int(indptr[0])
    if min(len(columns), len(values)) < nonzeros:
        raise ValueError(f"{nonzeros} nonzeros do not fit into {len(columns)} columns, {len(values)} values")
