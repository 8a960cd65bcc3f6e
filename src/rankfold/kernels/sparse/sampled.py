"""The sampled product of two dense matrices: its entries where a sparse one has stored entries, no others.

For a model L S it computes the entries where the data have values, at the cost of those.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]

CHUNK = 2**16
"""Entries that the reference body computes at once."""


@kernel
def sample_product(indptr: Array, indices: Array, left: Array, right: Array, *, out: Array) -> None:
    """Entries of ``left @ right.T`` at the stored positions of a range of sparse rows.

    Parameters
    ----------
    indptr, indices : as for ``products.multiply_rows``
        Indices are not checked.
    left : (r, k) float32 or float64
    right : (n, k) of that type
        Rows of both are contiguous, perhaps with gaps between them.
    out : (nnz or more,) of that type, written from ``indptr[0]`` to before ``indptr[-1]``
        ``left[i] @ right[indices[p]]`` for every stored position ``p`` of row ``i``.

    Notes
    -----
    Work 2 k flops an entry; no scratch (the reference body: ``CHUNK`` products). Products of a slab of 256
    bytes are added in halves, log2 of its width roundings; the rest of k is computed in powers of two.
    Bits depend on k, and not on the range of rows.
    """
    begin, end = int(indptr[0]), int(indptr[-1])
    rows = np.repeat(np.arange(len(left)), np.diff(indptr))
    for first in range(begin, end, CHUNK):
        part = slice(first, min(first + CHUNK, end))
        own = left[rows[part.start - begin : part.stop - begin]]
        out[part] = (own * right[indices[part]]).sum(axis=1)
