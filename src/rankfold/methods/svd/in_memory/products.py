"""The products of a sparse matrix and of its transpose with blocks, each from a copy stored in its own order.

Both are sums over stored numbers that are contiguous in memory, line by line (a line is a row, or a column
where the matrix is stored by columns), so that no sum depends on how lines would be shared out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse

from rankfold.kernels.sparse.products import multiply_rows
from rankfold.pipeline.data.source import Csr

Float64 = npt.NDArray[np.float64]


def multiply_lines(lines: Csr, q: Float64) -> Float64:
    """Product of a sparse matrix, given by its lines, with the columns of ``q``.

    Parameters
    ----------
    lines : Csr
        (l, n), of float32 or float64.
    q : (n, b) float64, in C order

    Returns
    -------
    (l, b) float64, in C order

    Notes
    -----
    Work 2 nnz b flops, in float64 whatever the type of what is stored.
    """
    y = np.empty((len(lines.indptr) - 1, q.shape[1]))
    multiply_rows(lines.indptr, lines.indices, lines.data, q, y=y)
    return y


def both_orders(stored: Csr, across: int, unit: float) -> tuple[Csr, Csr]:
    """Store a sparse matrix in both orders, as CSR of itself and of its transpose; duplicates are summed.

    Numbers stay float32 if stored as such and unchanged; else they are float64.

    Parameters
    ----------
    stored : Csr
        (l, across). Left untouched.
    unit : float
        Factor of every number.

    Returns
    -------
    lines, turned : Csr
        (l, across) and (across, l). The first may share memory with ``stored``.

    Notes
    -----
    Memory 2 nnz (8 + index) bytes at most. The transposition is a counting sort.
    """
    values = stored.data
    if unit != 1 or values.dtype != np.float32:
        values = values.astype(np.float64, copy=False)
    if unit != 1:
        values = values * unit
    shape = len(stored.indptr) - 1, across
    lines = scipy.sparse.csr_array((values, stored.indices, stored.indptr), shape=shape)
    if not lines.has_canonical_format:
        lines = lines.astype(np.float64)
        lines.sum_duplicates()
    turned = lines.T.tocsr()
    return Csr(lines.indptr, lines.indices, lines.data), Csr(turned.indptr, turned.indices, turned.data)
