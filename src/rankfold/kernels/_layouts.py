"""How arrays lie: in the one layout that loops are compiled for, so that each is compiled once for a type,
and on cache lines."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

CACHE_LINE = 64
"""Bytes."""


def aligned_empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """Uninitialized C-order array that starts on a cache line: equal speed on every run."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + CACHE_LINE, dtype=np.uint8)
    offset = -memory.ctypes.data % CACHE_LINE
    return memory[offset : offset + size].view(dtype).reshape(shape)


def plain(a: Array) -> Array:
    """An input in C order and read only; copied if it lies otherwise."""
    view = np.ascontiguousarray(a).view()
    view.flags.writeable = False
    return view


def wide(a: Array) -> Array:
    """The same of a matrix, which may have more columns then: parts of a wider one are not copied."""
    return plain(_whole(a))


def writable(a: Array) -> Array:
    """A matrix to write into, in C order and with more columns where it is part of a wider one.

    It is a copy, which the caller writes back, where that is not how the matrix lies: see ``write_back``.
    """
    return np.ascontiguousarray(_whole(a))


def write_back(into: Array, a: Array) -> None:
    """Bring what was written into ``into = writable(a)`` to ``a``."""
    if not np.may_share_memory(into, a):
        a[...] = into


def _whole(a: Array) -> Array:
    """The wider matrix of which one is a part, or the matrix itself."""
    width, rest = divmod(a.strides[0], a.itemsize)
    if not a.flags.c_contiguous and a.strides[1] == a.itemsize and width >= a.shape[1] and not rest:
        # The last row may seem to end beyond the memory: nothing reads or writes what is between rows.
        return np.lib.stride_tricks.as_strided(a, (len(a), width), a.strides)
    return a
