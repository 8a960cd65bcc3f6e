"""Edges of a stored graph of affinities, in memory: all of some consecutive vertices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.layout.descent import Pulls
from rankfold.methods.knn.graph import NAME
from rankfold.pipeline.storage.result import Result

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

BLOCK = 2**20
"""Edges that are looked at together."""


def pulls_bytes(rows: int, vertices: int, edges: int) -> int:
    """Memory of so many edges of some vertices."""
    return 8 * (vertices + 1) + edges * (4 + (4 if rows < 2**31 else 8))


@dataclass(frozen=True, slots=True)
class StoredPulls:
    """Where they are. Pickles."""

    graph: Path

    @classmethod
    def of(cls, graph: Result) -> StoredPulls:
        """Of a result."""
        return cls(graph.path / NAME)

    def pointers(self) -> Int64:
        """Edges before each vertex, and in all."""
        return np.asarray(self._array("indptr")[...]).astype(np.int64, copy=False)

    def read(self, first: int, last: int) -> Pulls:
        """Edges of the vertices from one to another."""
        ends = np.asarray(self._array("indptr")[first : last + 1]).astype(np.int64)
        data, indices = self._array("data"), self._array("indices")
        weights = np.empty(ends[-1] - ends[0], np.float32)
        neighbors = np.empty(len(weights), indices.dtype)
        start, height = int(ends[0]), data.chunks[0]
        for top in range(start - start % height, int(ends[-1]), height):
            some = slice(max(start, top), min(int(ends[-1]), top + height))
            own = slice(some.start - start, some.stop - start)
            weights[own], neighbors[own] = data[some], indices[some]
        return Pulls(ends - start, neighbors, weights)

    def _array(self, name: str) -> Any:
        import zarr

        return zarr.open_group(self.graph, mode="r")[name]


def entropies(pulls: Pulls) -> Float64:
    """``sum w log w`` of each vertex."""
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
