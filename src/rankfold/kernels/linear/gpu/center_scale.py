"""Centering and scaling on a device. See ``kernels/linear/center_scale.py``."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from rankfold.kernels.gpu.sources import C_TYPES, blocks_of, launch, row_pitch, rows_whole

Array = Any
PACKAGE = __package__
THREADS = 128
RUN_ROWS = 256
"""Rows that a thread adds up; sums of runs are added up in order."""

GRID_Y = 65535
"""Largest number of blocks of a launch along its second axis."""


def measure(x: Array, shift: Array, pow2_scale: float) -> tuple[Array, Array]:
    """See the contract. Column sums and sums of squares, shifted and scaled; rows are added up by runs.

    Scratch 16 c bytes a run.
    """
    x, (rows, columns) = rows_whole(x), x.shape
    run_rows = max(RUN_ROWS, blocks_of(rows, GRID_Y))
    runs = max(blocks_of(rows, run_rows), 1)
    sums = cupy.empty((2, runs, columns), np.float64)
    launch(
        PACKAGE,
        "center_scale",
        f"measure<{C_TYPES[x.dtype]}>",
        (blocks_of(columns, THREADS), runs),
        THREADS,
        (
            *(x, row_pitch(x), np.int64(1), np.int64(rows), np.int64(columns)),
            *(cupy.ascontiguousarray(shift), np.float64(pow2_scale), np.int32(run_rows), sums[0], sums[1]),
        ),
    )
    return sums[0].sum(axis=0), sums[1].sum(axis=0)


ROWS_AT_ONCE = 4096


def subtract(x: Array, shift: Array, scale: Array, *, out: Array) -> None:
    """See the contract. Writes ``(x - shift) * scale`` into ``out``."""
    x, whole, (rows, columns) = rows_whole(x), rows_whole(out), x.shape
    launch(
        PACKAGE,
        "center_scale",
        f"subtract<{C_TYPES[x.dtype]}, {C_TYPES[whole.dtype]}>",
        (blocks_of(columns, THREADS), min(rows, ROWS_AT_ONCE)),
        THREADS,
        (
            *(x, row_pitch(x), np.int64(rows), np.int64(columns)),
            *(cupy.ascontiguousarray(shift), cupy.ascontiguousarray(scale), whole, row_pitch(whole)),
        ),
    )
    if whole is not out:
        out[...] = whole
