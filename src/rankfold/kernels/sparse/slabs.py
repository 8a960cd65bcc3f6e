"""A block of vectors cut into slabs: few columns that are multiplied together, in whole cache lines.

A gathered row of a slab is 256 bytes: four cache lines from their beginning, one of 64 numbers in float32 or
32 in float64. Of a block in one piece, a part of a row lies in five lines, and the parts of all rows crowd
into some of the sets of a cache: products then take 1.3 to 1.9 times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SLAB_BYTES = 256
"""Of a row of a slab: what eight vector registers of 32 bytes sum at a time."""


def slab_shape(rows: int, columns: int, dtype: npt.DTypeLike) -> tuple[int, int, int]:
    """Slabs, rows and columns of each, of a block: the columns of one are a power of two.

    Narrow blocks, of fewer columns than a slab holds, make one slab; the last slab of others may hold columns
    that the block has not.
    """
    widest = SLAB_BYTES // np.dtype(dtype).itemsize
    width = min(widest, 1 << max(0, columns - 1).bit_length())
    return -(-columns // width), rows, width


def cut_block(block: Array, *, slabs: Array) -> None:
    """Write a block (n, b) as slabs (s, n, w), with zeros for columns that it has not."""
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
