"""Vertices moved on a device, a thread for each. See ``kernels/layout/vertices.py`` and vertices.cu."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from rankfold.kernels.gpu.sources import C_TYPES, blocks_of, launch, row_pitch, rows_whole
from rankfold.kernels.layout.forces import Density, Edges, Epoch, Forces
from rankfold.kernels.layout.gpu._vectors import THREADS, known_width, scratch

Array = Any


def move_vertices(
    positions: Array,
    vertices: Array,
    edges: Edges,
    *,
    forces: Forces,
    epoch: Epoch,
    out: Array,
    density: Density | None = None,
) -> None:
    """See the contract. Moves vertices by those of their edges that pull in an epoch.

    Scratch beyond three dimensions: two vectors of d numbers for each vertex.
    """
    if not len(vertices):
        return
    all_, moved = cupy.ascontiguousarray(positions), rows_whole(out)
    width, tables = all_.shape[1], [cupy.ascontiguousarray(table) for table in forces]
    ends = [cupy.ascontiguousarray(each) for each in (vertices, *edges)]
    nothing = np.uint64(0)
    spread = (nothing, nothing, np.float32(0))
    if density is not None:
        pair = (cupy.ascontiguousarray(each) for each in (density.closeness, density.pushes))
        spread = (*pair, np.float32(density.slope))
    launch(
        __package__,
        "vertices",
        f"move_vertices<{C_TYPES[np.dtype(ends[2].dtype)]}, {known_width(width)}>",
        (blocks_of(len(vertices), THREADS),),
        THREADS,
        (
            *(all_, np.int64(len(all_)), np.int32(width)),
            *(ends[0], np.int64(len(vertices)), *ends[1:], *tables, *spread),
            *(
                np.uint32(epoch.number),
                np.uint64(epoch.key),
                np.float32(epoch.rate),
                np.int32(epoch.negatives),
            ),
            *(scratch(len(vertices), width), moved, row_pitch(moved)),
        ),
    )
    if moved is not out:
        out[...] = moved
