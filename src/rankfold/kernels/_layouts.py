"""Layout of arrays in memory: the one layout that loops are compiled for, so that each is compiled once for
a type, and alignment to cache lines."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

CACHE_LINE = 64
"""Bytes of a cache line."""


def aligned_empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """Uninitialized C-order array that starts on a cache line: equal speed on every run."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + CACHE_LINE, dtype=np.uint8)
    offset = -memory.ctypes.data % CACHE_LINE
    return memory[offset : offset + size].view(dtype).reshape(shape)


def plain(a: Array) -> Array:
    """Read-only view of an array in C order; of a copy if the array has another layout."""
    view = np.ascontiguousarray(a).view()
    view.flags.writeable = False
    return view


def wide(a: Array) -> Array:
    """Read-only C-order matrix whose first columns are those of ``a``.

    If ``a`` is part of a wider matrix, it is a view with the further columns of that matrix, not a copy.
    """
    return plain(_whole(a))


def writable(a: Array) -> Array:
    """C-order matrix to write into, whose first columns are those of ``a``; wider if ``a`` is part of one.

    If ``a`` has another layout, it is a copy, which the caller writes back: see ``write_back``.
    """
    return np.ascontiguousarray(_whole(a))


def write_back(into: Array, a: Array) -> None:
    """Copy ``into = writable(a)`` back to ``a``, unless both share memory."""
    if not np.may_share_memory(into, a):
        a[...] = into


def _whole(a: Array) -> Array:
    """The wider matrix that ``a`` is the first columns of, or ``a`` itself."""
    width, rest = divmod(a.strides[0], a.itemsize)
    if not a.flags.c_contiguous and a.strides[1] == a.itemsize and width >= a.shape[1] and not rest:
        # The last row may seem to end beyond the memory: nothing reads or writes what is between rows.
        return np.lib.stride_tricks.as_strided(a, (len(a), width), a.strides)
    return a
