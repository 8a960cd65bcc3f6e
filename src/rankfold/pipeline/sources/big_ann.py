"""Files of vectors as in the big-ann benchmarks: ``.fbin``, ``.u8bin``, ``.i8bin``, ``.ibin``.

https://big-ann-benchmarks.com: number of rows and of columns as 32-bit integers, least significant byte
first, then the rows. Nothing in the file says what its numbers are, only the name does: so the size must
be just right.
"""

from __future__ import annotations

import os
import sys

import numpy as np

from rankfold.pipeline.errors import ChunkError, InputError
from rankfold.pipeline.sources.matrix import require_matrix
from rankfold.pipeline.sources.npy import NpySource

TYPES = {".fbin": "float32", ".u8bin": "uint8", ".i8bin": "int8", ".ibin": "int32"}
"""Type of the numbers by the end of the file's name."""

HEADER_BYTES = 8


def big_ann_source(path: str) -> NpySource:
    """The matrix in such a file, by its header and its name."""
    ending = os.path.splitext(path)[1]
    dtype = np.dtype(TYPES[ending])
    with open(path, "rb") as file:
        head, size = file.read(HEADER_BYTES), os.fstat(file.fileno()).st_size
    if len(head) < HEADER_BYTES:
        raise InputError(f"{path} holds {size} bytes, less than the {HEADER_BYTES} of its header")
    rows, columns = (int(n) for n in np.frombuffer(head, "<u4"))
    require_matrix(path, (rows, columns), dtype)
    expected = HEADER_BYTES + rows * columns * dtype.itemsize
    if size < expected:
        raise ChunkError(
            f"{path} is truncated: it holds {size} bytes, its header promises {expected} for {rows} x "
            f"{columns} {dtype}. Restore the file"
        )
    if size > expected:
        raise InputError(
            f"{path} holds {size} bytes, but its header says {rows} x {columns}, which is {expected} bytes "
            f"of {dtype}. Is it really a {ending} file?"
        )
    swapped = sys.byteorder == "big" and dtype.itemsize > 1
    return NpySource(
        path, os.path.abspath(path), (rows, columns), dtype, HEADER_BYTES, False, swapped, ending[1:]
    )
