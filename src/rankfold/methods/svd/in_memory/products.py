"""The two products of a sparse matrix in memory: one order of its numbers for each side.

Both are sums over stored numbers that lie together, line by line, so that no sum depends on how lines would
be shared out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from rankfold.pipeline.data.source import Csr

Float64 = npt.NDArray[np.float64]


def multiply_rows(lines: Csr, q: Float64) -> Float64:
    """Lines of a sparse matrix times the columns of ``q``.

    Parameters
    ----------
    lines : Csr
        (l, n), of float64.
    q : (n, b) float64, in C order

    Returns
    -------
    (l, b) float64, in C order

    Notes
    -----
    Work 2 nnz b flops. Each number of the result is one chain of additions, in the order of storage.
    """
    return np.asarray(as_array(lines, len(q)) @ q, dtype=np.float64)


def both_orders(stored: Csr, across: int, unit: float) -> tuple[Csr, Csr]:
    """A sparse matrix by its lines and by what lies across them, as float64; duplicates are summed.

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
    Memory 2 nnz (8 + index) bytes, less what is float64 and in order already. The turn is a counting sort.
    """
    values = stored.data.astype(np.float64, copy=False)
    if unit != 1:
        values = values * unit
    lines = as_array(Csr(stored.indptr, stored.indices, values), across)
    if not lines.has_canonical_format:
        lines = lines.copy()
        lines.sum_duplicates()
    turned = lines.T.tocsr()
    return Csr(lines.indptr, lines.indices, lines.data), Csr(turned.indptr, turned.indices, turned.data)


def as_array(lines: Csr, across: int) -> Any:
    """The same numbers as a SciPy array, where they lie."""
    shape = len(lines.indptr) - 1, across
    return scipy.sparse.csr_array((lines.data, lines.indices, lines.indptr), shape=shape)
