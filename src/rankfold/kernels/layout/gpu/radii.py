"""Radii measured on a device, a thread for each vertex. See ``kernels/layout/radii.py`` and radii.cu."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from rankfold.kernels.gpu.sources import C_TYPES, blocks_of, launch, row_pitch, rows_whole
from rankfold.kernels.layout.forces import Edges
from rankfold.kernels.layout.gpu._vectors import THREADS

Array = Any


def measure_radii(positions: Array, own: Array, edges: Edges, *, closeness: Array, out: Array) -> None:
    """See the contract. Mean squared edge lengths of vertices, and sums of closeness."""
    if not len(own):
        return
    measured = rows_whole(out)
    arrays = (positions, own, edges.pointers, edges.neighbors, closeness)
    all_, here, pointers, ends, table = map(cupy.ascontiguousarray, arrays)
    launch(
        __package__,
        "radii",
        f"measure_radii<{C_TYPES[np.dtype(ends.dtype)]}>",
        (blocks_of(len(here), THREADS),),
        THREADS,
        (
            *(all_, np.int32(all_.shape[1]), here, np.int64(len(here)), pointers, ends, table),
            *(measured, row_pitch(measured)),
        ),
    )
    if measured is not out:
        out[...] = measured
