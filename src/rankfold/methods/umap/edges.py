"""The edges of a stored graph that pull in a layout, in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rankfold.kernels.layout.forces import Edges, phases_of

Array = npt.NDArray[Any]


def edges_bytes(rows: int, edges: int) -> int:
    """Memory of so many."""
    return 8 * (rows + 1) + edges * (4 + (4 if rows < 2**31 else 8))


def read_edges(graph: Path, epochs: int) -> Edges:
    """All that pull at least once in so many epochs: those that weigh an ``epochs``-th of the largest."""
    import zarr

    group = zarr.open_group(graph, mode="r")
    data, indices, indptr = (cast("zarr.Array[Any]", group[name]) for name in ("data", "indices", "indptr"))
    before = np.asarray(indptr[...]).astype(np.int64)
    count, height = int(before[-1]), data.chunks[0]
    blocks = [slice(start, min(count, start + height)) for start in range(0, count, height)]
    largest = max((float(np.asarray(data[block]).max()) for block in blocks), default=0.0)
    pointers = np.zeros_like(before)
    neighbors, phases = np.empty(count, indices.dtype), np.empty(count, np.uint32)
    kept = 0
    for block in blocks:
        weights = np.asarray(data[block])
        pulls = weights >= largest / epochs
        ends = np.concatenate([[0], np.cumsum(pulls)])
        first, last = np.searchsorted(before, (block.start, block.stop), side="right")
        pointers[first:last] = kept + ends[before[first:last] - block.start]
        into = slice(kept, kept + int(ends[-1]))
        neighbors[into] = np.asarray(indices[block])[pulls]
        phases[into] = phases_of(weights[pulls], largest)
        kept = into.stop
    return Edges(pointers, neighbors[:kept], phases[:kept])
