"""The two products of a sparse matrix in memory: one order of its numbers for each side.

Both are sums over stored numbers that lie together, line by line, so that no sum depends on how lines would
be shared out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from rankfold.pipeline.data.sparse import Csr

Float64 = npt.NDArray[np.float64]


def multiply(lines: Any, q: Float64) -> Float64:
    """Lines of a sparse matrix times the columns of ``q``.

    Parameters
    ----------
    lines : (l, n) SciPy CSR array of float64
    q : (n, b) float64, in C order

    Returns
    -------
    (l, b) float64, in C order

    Notes
    -----
    Work 2 nnz b flops. Each number of the result is one chain of additions, in the order of storage.
    """
    return np.asarray(lines @ q, dtype=np.float64)


def both_orders(stored: Csr, across: int, unit: float) -> tuple[Any, Any]:
    """A sparse matrix by its lines and by what lies across them, as float64; duplicates are summed.

    Parameters
    ----------
    stored : Csr
        (l, across). Left untouched.
    unit : float
        What every number is multiplied by.

    Returns
    -------
    lines, turned : (l, across) and (across, l) SciPy CSR arrays

    Notes
    -----
    Memory 2 nnz (8 + index) bytes, less what is float64 and in order already. The turn is a counting sort.
    """
    shape = len(stored.indptr) - 1, across
    values = stored.data.astype(np.float64, copy=False)
    if unit != 1:
        values = values * unit
    lines = scipy.sparse.csr_array((values, stored.indices, stored.indptr), shape=shape)
    if not lines.has_canonical_format:
        lines = lines.copy()
        lines.sum_duplicates()
    return lines, lines.T.tocsr()
