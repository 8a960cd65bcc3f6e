"""Stored entries that are kept, line by line. See ``kernels/sparse/kept.py``.

Serial loops that release the GIL: parallelism comes from the threads that call them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop
from rankfold.kernels._dispatch import plain
from rankfold.kernels.sparse.cpu._order import Index
from rankfold.kernels.sparse.cpu._order import positions as in_int64

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]


@compile_loop
def _count(indices: Array, indptr: Int64, lines: Int64, new_places: Int64, counts: Int64) -> None:
    for j in range(len(lines)):
        count = 0
        for p in range(indptr[lines[j]], indptr[lines[j] + 1]):
            count += new_places[Index(indices[p])] >= 0
        counts[j] = count


def count_kept(indices: Array, indptr: Array, lines: Int64, new_places: Int64, *, counts: Int64) -> None:
    """See the contract. Counts the stored entries of each line that are kept."""
    found = np.empty(len(lines), np.int64)
    _count(plain(indices), in_int64(indptr), plain(lines), plain(new_places), found)
    counts[...] = found


@compile_loop
def _find(
    indices: Array, indptr: Int64, lines: Int64, new_places: Int64, pointers: Int64, positions: Int64
) -> bool:
    right = True
    for j in range(len(lines)):
        at, end = pointers[j, 0], pointers[j, 1]
        for p in range(indptr[lines[j]], indptr[lines[j] + 1]):
            if new_places[Index(indices[p])] >= 0:
                if at < end:
                    positions[at] = p
                at += 1
        right &= at == end
    return right


def find_kept(
    indices: Array, indptr: Array, lines: Int64, new_places: Int64, *, pointers: Int64, positions: Int64
) -> bool:
    """See the contract. Positions of the stored entries that are kept."""
    into = np.ascontiguousarray(positions)
    arguments = plain(indices), in_int64(indptr), plain(lines), plain(new_places), plain(pointers)
    right = bool(_find(*arguments, into))
    if into is not positions:
        positions[...] = into
    return right
