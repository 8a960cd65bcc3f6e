"""The two products of a sparse matrix in memory: one order of its numbers for each side.

Both are sums over stored numbers that lie together, line by line, so that no sum depends on how lines would
be shared out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse

from rankfold.kernels.sparse.products import multiply_rows
from rankfold.pipeline.data.source import Csr

Float64 = npt.NDArray[np.float64]


def multiply_lines(lines: Csr, q: Float64) -> Float64:
    """Lines of a sparse matrix times the columns of ``q``.

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
    """A sparse matrix by its lines and by what lies across them; duplicates are summed.

    As float32 where that is what is stored and nothing is changed, else as float64.

    Parameters
    ----------
    stored : Csr
        (l, across). Left untouched.
    unit : float
        What every number is multiplied by.

    Returns
    -------
    lines, turned : Csr
        (l, across) and (across, l). The first may be what was given.

    Notes
    -----
    Memory 2 nnz (8 + index) bytes at most. The turn is a counting sort.
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
