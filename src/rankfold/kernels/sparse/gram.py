"""The scatter of sparse rows: products of columns with columns, added to a matrix in float64.

Only what is on and above the diagonal is formed, since each panel would otherwise write all of the matrix;
``mirror_upper`` copies it over the diagonal once, in the end. Rows are not centered: centering is a matrix of
rank one, which the caller subtracts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.linear.products import MIRROR_ROWS
from rankfold.kernels.sparse.products import check_rows

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@kernel
def add_gram(indptr: Array, indices: Array, data: Array, *, scatter: Float64) -> None:
    """``scatter += A.T @ A`` on and above the diagonal, for a range of sparse rows.

    Parameters
    ----------
    indptr : (r + 1,) int32 or int64
        Absolute positions in the next two, as for ``multiply_rows``.
    indices : int32 or int64
        Columns, in any order and perhaps repeated: values of a column that a row repeats add up.
    data : float32 or float64
    scatter : (n, n) float64, C order, added to
        What is below the diagonal is neither read nor written.

    Raises
    ------
    ValueError
        As by ``order_columns``; ``scatter`` is then left as it was.

    Notes
    -----
    Products are formed and added in float64. A row of t nonzeros needs t (t + 1) / 2 of them, at some 2 ns
    each; dense columns make n (n + 1) / 2 a row, at 0.05 ns. So the fullest columns are made dense and
    multiplied by BLAS; others are multiplied with those by gathered sums, and with each other by output row.
    The dense columns are those for which the counts of these rows promise the least time, so that bits depend
    on where panels are cut.

    Scratch, for h dense columns: 32 MiB, or 4 KiB h where that is more, for their rows; 8 h^2 bytes for their
    products; 256 (n + r) for a few columns at a time; and 40 bytes a nonzero of the others.

    References
    ----------
    Gustavson, Two fast algorithms for sparse matrices: multiplication and permuted transposition, ACM
    Transactions on Mathematical Software 4(3), 1978: products by output row, whose sums stay in cache. Unlike
    there the result is dense, and of each row only what follows a nonzero is visited.
    """
    check_rows(indptr, indices, data, len(scatter))
    wide = data.astype(np.float64)
    for i in range(len(indptr) - 1):
        nonzeros = slice(int(indptr[i]), int(indptr[i + 1]))
        columns, values = indices[nonzeros], wide[nonzeros]
        one, other = np.nonzero(columns[:, None] <= columns)
        np.add.at(scatter, (columns[one], columns[other]), values[one] * values[other])


def mirror_upper(scatter: Array) -> None:
    """Copy what is above the diagonal of a square matrix to below it."""
    for first in range(0, len(scatter), MIRROR_ROWS):
        stop = min(first + MIRROR_ROWS, len(scatter))
        square = scatter[first:stop, first:stop]
        square[...] = np.triu(square) + np.triu(square, 1).T
        scatter[stop:, first:stop] = scatter[first:stop, stop:].T
