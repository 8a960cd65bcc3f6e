"""A block of vectors cut into slabs: few columns that are multiplied together, in whole cache lines.

A gathered row of a slab is 256 bytes: four whole cache lines, 64 numbers in float32 or 32 in float64. In a
block that is not cut, a part of a row touches five lines, and the parts of all rows crowd into some of the
sets of a cache: products then take 1.3 to 1.9 times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SLAB_BYTES = 256
"""Bytes of a row of a slab: eight vector registers of 32 bytes, which are summed at a time."""


def slab_shape(rows: int, columns: int, dtype: npt.DTypeLike) -> tuple[int, int, int]:
    """Shape of the slabs of a block: their number, then rows and columns of each; columns are a power of two.

    Narrow blocks, of fewer columns than a slab holds, make one slab; the last slab of others may hold columns
    beyond those of the block.
    """
    widest = SLAB_BYTES // np.dtype(dtype).itemsize
    width = min(widest, 1 << max(0, columns - 1).bit_length())
    return -(-columns // width), rows, width


def cut_block(block: Array, *, slabs: Array) -> None:
    """Write a block (n, b) as slabs (s, n, w), with zeros in columns beyond b."""
    width = slabs.shape[2]
    for s, slab in enumerate(slabs):
        part = block[:, s * width : (s + 1) * width]
        slab[:, : part.shape[1]] = part
        slab[:, part.shape[1] :] = 0


def join_slabs(slabs: Array, *, block: Array) -> None:
    """Write slabs (s, n, w) as a block (n, b), without the columns beyond b."""
    width = slabs.shape[2]
    for s, slab in enumerate(slabs):
        part = block[:, s * width : (s + 1) * width]
        part[...] = slab[:, : part.shape[1]]
