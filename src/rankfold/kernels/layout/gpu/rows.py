"""Rows placed on a device, a thread for each. See ``kernels/layout/rows.py`` and rows.cu."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from rankfold.kernels.gpu.sources import blocks_of, launch, row_pitch, rows_whole
from rankfold.kernels.layout.forces import Forces
from rankfold.kernels.layout.gpu._vectors import THREADS, known_width, scratch
from rankfold.kernels.layout.rows import NewRows

Array = Any


def place_rows(
    positions: Array, rows: NewRows, *, forces: Forces, rates: Array, negatives: int, out: Array
) -> None:
    """See the contract. Places new rows among vertices that stay.

    Scratch beyond three dimensions: two vectors of d numbers for each row.
    """
    count, k = rows.neighbors.shape
    if not count:
        return
    all_, placed = cupy.ascontiguousarray(positions), rows_whole(out)
    width, arrays = all_.shape[1], [cupy.ascontiguousarray(each) for each in rows]
    tables = [cupy.ascontiguousarray(each) for each in (*forces, rates)]
    launch(
        __package__,
        "rows",
        f"place_rows<{known_width(width)}>",
        (blocks_of(count, THREADS),),
        THREADS,
        (
            *(all_, np.int64(len(all_)), np.int32(width)),
            *(*arrays, np.int64(count), np.int32(k)),
            *(*tables, np.int32(len(rates)), np.int32(negatives)),
            *(scratch(count, width), placed, row_pitch(placed)),
        ),
    )
    if placed is not out:
        out[...] = placed
