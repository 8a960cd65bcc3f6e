"""Find the stored entries of some lines that are kept when places across the lines are left out.

Lines are rows of CSR, and places across them columns; or lines are columns of CSC, and places rows. Entries
stay where they are: the result is their positions in ``indices``, whatever the type of the data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import light_kernel

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]


@light_kernel
def count_kept(indices: Array, indptr: Array, lines: Int64, new_places: Int64, *, counts: Int64) -> None:
    """Count the stored entries of each line whose place across the lines is kept.

    Parameters
    ----------
    indices, indptr : as for ``products.multiply_rows``
        Indices are not checked.
    lines : (l,) int64
        Numbers of the lines of ``indptr`` to read, in any order.
    new_places : (n,) int64
        New number of each place across the lines; negative where it is left out.
    counts : (l,) int64, written
        Number of entries of each of these lines that are kept.

    Notes
    -----
    One read of the indices of these lines; no scratch (the reference body: 17 bytes an index).
    """
    begin, end = int(indptr[0]), int(indptr[-1])
    before = np.concatenate([[0], np.cumsum(new_places[indices[begin:end]] >= 0)])
    counts[...] = before[indptr[lines + 1] - begin] - before[indptr[lines] - begin]


@light_kernel
def find_kept(
    indices: Array, indptr: Array, lines: Int64, new_places: Int64, *, pointers: Int64, positions: Int64
) -> bool:
    """Find the positions, in ``indices``, of the stored entries whose place across the lines is kept.

    Parameters
    ----------
    indices, indptr, lines, new_places : as for ``count_kept``
    pointers : (l, 2) int64
        Begin and end of the range of ``positions`` for each line, as long as ``count_kept`` counts.
    positions : (p,) int64, written in these ranges

    Returns
    -------
    bool
        True if the counts are right. If they are not, what is written is still within the ranges.

    Notes
    -----
    As ``count_kept``. The reference body works a line at a time.
    """
    right = True
    for line, (begin, end) in zip(lines.tolist(), pointers.tolist(), strict=True):
        first, last = int(indptr[line]), int(indptr[line + 1])
        kept = first + np.flatnonzero(new_places[indices[first:last]] >= 0)
        right &= len(kept) == end - begin
        kept = kept[: end - begin]
        positions[begin : begin + len(kept)] = kept
    return right
