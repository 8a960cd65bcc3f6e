"""Edges of a stored graph that pull in a layout: of some vertices in memory, or of all, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rankfold.kernels.layout.forces import Edges, phases_of

Array = npt.NDArray[Any]


def edges_bytes(rows: int, edges: int) -> int:
    """Memory of so many."""
    return 8 * (rows + 1) + edges * (4 + (4 if rows < 2**31 else 8))


@dataclass(frozen=True, slots=True)
class PullingEdges:
    """Edges that pull at least once in so many epochs: those that weigh an ``epochs``-th of the largest."""

    graph: Path
    epochs: int
    largest: float

    @classmethod
    def of(cls, graph: Path, epochs: int) -> PullingEdges:
        """Of a graph whose weights are read once, for the largest."""
        weights = _open(graph)[0]
        blocks = _blocks(0, weights.shape[0], weights.chunks[0])
        return cls(graph, epochs, max((float(weights[block].max()) for block in blocks), default=0.0))

    def pointers(self) -> npt.NDArray[np.int64]:
        """Edges before each vertex, and in all, those that do not pull among them."""
        return np.asarray(_open(self.graph)[2][...]).astype(np.int64, copy=False)

    def read(self, first: int = 0, last: int | None = None) -> Edges:
        """Of vertices ``first`` to ``last``: others seem to have none, and take no memory."""
        data, indices, indptr = _open(self.graph)
        rows = indptr.shape[0] - 1
        last = rows if last is None else last
        before = np.asarray(indptr[first : last + 1]).astype(np.int64)
        count = int(before[-1] - before[0])
        # Pages of zeros that nobody writes to are never there.
        pointers = np.zeros(rows + 1, np.int64)
        neighbors, phases = np.empty(count, indices.dtype), np.empty(count, np.uint32)
        kept = 0
        for block in _blocks(int(before[0]), int(before[-1]), data.chunks[0]):
            weights = np.asarray(data[block])
            pulls = self._pulls(weights)
            ends = np.concatenate([[0], np.cumsum(pulls)])
            top, bottom = np.searchsorted(before, (block.start, block.stop), side="right")
            pointers[first + top : first + bottom] = kept + ends[before[top:bottom] - block.start]
            into = slice(kept, kept + int(ends[-1]))
            neighbors[into] = np.asarray(indices[block])[pulls]
            phases[into] = phases_of(weights[pulls], self.largest)
            kept = into.stop
        return Edges(pointers, neighbors[:kept], phases[:kept])

    def some_at_a_time(self, most: int) -> Iterator[tuple[Array, Array, Array]]:
        """Vertices, their neighbors and phases: a chunk of the graph after the other, in pieces."""
        data, indices, _ = _open(self.graph)
        before = self.pointers()
        for block in _blocks(0, int(before[-1]), data.chunks[0]):
            weights, others = np.asarray(data[block]), np.asarray(indices[block])
            for start in range(0, len(weights), most):
                piece = slice(start, start + most)
                pulls = self._pulls(weights[piece])
                places = block.start + start + np.flatnonzero(pulls)
                rows = np.searchsorted(before, places, side="right") - 1
                yield rows, others[piece][pulls], phases_of(weights[piece][pulls], self.largest)

    def _pulls(self, weights: Array) -> Array:
        return cast(Array, weights >= self.largest / self.epochs)


def _open(graph: Path) -> tuple[Any, Any, Any]:
    """Weights, neighbors, and edges before each vertex."""
    import zarr

    group = zarr.open_group(graph, mode="r")
    return group["data"], group["indices"], group["indptr"]


def _blocks(first: int, last: int, height: int) -> Iterator[slice]:
    """What lies between two places, cut where chunks end."""
    for start in range(first - first % height, last, height):
        yield slice(max(first, start), min(last, start + height))
