"""Edges of a stored graph of affinities, in memory: all of some consecutive vertices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rankfold.kernels.layout.descent import Affinities
from rankfold.methods.fuzzy_graph.stored_rows import StoredRows
from rankfold.methods.knn.graph import NAME
from rankfold.pipeline.storage.result import Result

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

BLOCK = 2**16
"""Edges processed at a time: 41 bytes each."""


def pulls_bytes(rows: int, vertices: int, edges: int) -> int:
    """Bytes of the edges of some vertices, in a graph of ``rows`` rows."""
    return 8 * (vertices + 1) + edges * (4 + (4 if rows < 2**31 else 8))


@dataclass(frozen=True, slots=True)
class StoredAffinities:
    """Path of a stored affinity graph; picklable."""

    graph: Path

    @classmethod
    def of(cls, graph: Result) -> StoredAffinities:
        """Affinity graph of a result."""
        return cls(graph.path / NAME)

    def pointers(self) -> Int64:
        """Number of edges before each vertex, and in all, (rows + 1,)."""
        return StoredRows(self.graph).pointers

    def read(self, first: int, last: int) -> Affinities:
        """Edges of vertices ``first:last``, in memory."""
        stored = StoredRows(self.graph)
        ends = stored.ends(first, last)
        start, stop = int(ends[0]), int(ends[-1])
        weights = np.empty(stop - start, np.float32)
        neighbors = np.empty(stop - start, stored.column_dtype)
        for some in stored.chunks(start, stop):
            own = slice(some.start - start, some.stop - start)
            weights[own], neighbors[own] = stored.weights(some), stored.columns(some)
        return Affinities(ends - start, neighbors, weights)


def entropies(pulls: Affinities) -> Float64:
    """``sum w log w`` over the edges of each vertex, (m,)."""
    count = len(pulls.pointers) - 1
    sums = np.empty(count)
    first = 0
    while first < count:
        last = int(np.searchsorted(pulls.pointers, pulls.pointers[first] + BLOCK, side="right")) - 1
        last = min(count, max(first + 1, last))
        part = pulls.part(first, last)
        weights = part.weights.astype(np.float64)
        logarithms = np.log(np.where(weights > 0, weights, 1))
        own = np.repeat(np.arange(last - first), np.diff(part.pointers))
        sums[first:last] = np.bincount(own, weights * logarithms, last - first)
        first = last
    return sums
