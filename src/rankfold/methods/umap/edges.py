"""Edges of a stored graph that pull in a layout: of some vertices in memory, or of all, piece by piece.

Losses of a layout: how well it keeps joined vertices together, and others apart.

Both losses are parts of the cross entropy that a layout lowers. ``phi = 1 / (1 + a d^(2 b))`` is how much two
vertices at a distance d in the layout belong together: the loss of edges is the mean of ``-log(phi)`` over
edges, by weight, and that of pairs the mean of ``-log(1 - phi)`` over pairs of each vertex and a random one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rankfold.kernels.layout.forces import Edges, phases_of
from rankfold.methods.fuzzy_graph.stored_rows import StoredRows
from rankfold.methods.knn.graph import NAME
from rankfold.methods.random_keys import Purpose
from rankfold.pipeline.storage.result import Result

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]


def edges_bytes(rows: int, edges: int) -> int:
    """Bytes in memory of ``edges`` edges of ``rows`` vertices: pointers, other ends and phases."""
    return 8 * (rows + 1) + edges * (4 + (4 if rows < 2**31 else 8))


@dataclass(frozen=True, slots=True)
class PullingEdges:
    """Edges of a stored graph that pull at least once in ``epochs`` epochs.

    These are edges of weight ``largest / epochs`` or more, ``largest`` being the largest weight of the graph.
    """

    graph: Path
    epochs: int
    largest: float

    @classmethod
    def of(cls, graph: Result, epochs: int) -> PullingEdges:
        """Edges that pull in ``epochs`` epochs, of a graph whose facts include its largest weight."""
        return cls(graph.path / NAME, epochs, float(graph.attrs["largest_weight"]))

    def pointers(self) -> npt.NDArray[np.int64]:
        """(rows + 1,) number of stored edges before those of each vertex, and in all, pulling or not."""
        return StoredRows(self.graph).pointers

    def read(self, groups: Sequence[Int64]) -> list[Edges]:
        """Read the edges that pull, of each group of vertices, into memory.

        Parameters
        ----------
        groups : sequence of (g,) int64
            Vertices of each group. Together, the groups are a range of consecutive vertices.

        Returns
        -------
        edges : list of Edges
            For each group the edges of its vertices, in the order of the group. All share their vectors, in
            which edges lie in the order in which groups move, so that a move reads them sequentially.
        """
        order = np.concatenate(groups)
        stored = StoredRows(self.graph)
        first = int(order.min(initial=stored.source.shape[0]))
        order -= first
        before = stored.ends(first, first + len(order))
        blocks = list(stored.chunks(int(before[0]), int(before[-1])))
        kept = np.zeros(len(order) + 1, np.int64)
        for block in blocks:
            places = block.start + np.flatnonzero(self._pulls(stored.weights(block)))
            top, bottom = np.searchsorted(before, (block.start, block.stop - 1), side="right") - 1
            kept[top + 1 : bottom + 2] += np.diff(np.searchsorted(places, before[top : bottom + 2]))
        pointers = np.concatenate([[0], np.cumsum(kept[1:][order])])
        np.cumsum(kept, out=kept)
        # Offset by which the edges of each vertex are moved.
        moved = np.empty(len(order), np.int64)
        moved[order] = pointers[:-1] - kept[order]
        neighbors, phases = np.empty(kept[-1], stored.column_dtype), np.empty(kept[-1], np.uint32)
        done = 0
        for block in blocks:
            weights = stored.weights(block)
            pulls = self._pulls(weights)
            places = np.arange(done, done := done + int(pulls.sum()))
            places += moved[np.searchsorted(kept, places, side="right") - 1]
            neighbors[places] = stored.columns(block)[pulls]
            phases[places] = phases_of(weights[pulls], self.largest)
        edges, ends = Edges(pointers, neighbors, phases), np.cumsum([len(group) for group in groups])
        return [edges.part(end - len(group), end) for end, group in zip(ends, groups, strict=True)]

    def some_at_a_time(self, most: int) -> Iterator[tuple[Array, Array, Array]]:
        """Yield all edges that pull, of up to ``most`` stored ones at a time: vertices, neighbors and phases.

        These are arrays (edges,). Edges are in the order of their vertices. A phase is the weight relative to
        the largest, times 2^32.
        """
        stored = StoredRows(self.graph)
        before = stored.pointers
        for block in stored.chunks():
            weights, others = stored.weights(block), stored.columns(block)
            for start in range(0, len(weights), most):
                piece = slice(start, start + most)
                pulls = self._pulls(weights[piece])
                places = block.start + start + np.flatnonzero(pulls)
                rows = np.searchsorted(before, places, side="right") - 1
                yield rows, others[piece][pulls], phases_of(weights[piece][pulls], self.largest)

    def _pulls(self, weights: Array) -> Array:
        return cast(Array, weights >= self.largest / self.epochs)


Float32 = npt.NDArray[np.float32]

BLOCK = 2**16
"""Number of pairs of vertices processed at a time."""

NEAREST = 1e-3
"""Least squared distance of a pair in ``pair_loss``, which replaces smaller ones, as in the repulsion."""


def edge_loss(positions: Float32, edges: PullingEdges, a: float, b: float) -> tuple[float, int]:
    """Mean of ``-log(phi)`` over edges that pull, by weight (0 if there are none), and the number of these.

    ``positions`` (n, d) are those of all vertices, ``a`` and ``b`` parameters of phi. The edges are read
    once.
    """
    total = weights = 0.0
    count = 0
    for rows, neighbors, phases in edges.some_at_a_time(BLOCK):
        shares = phases.astype(np.float64)
        total += float(shares @ np.log1p(a * squared_distances(positions, rows, neighbors) ** b))
        weights += float(shares.sum())
        count += len(rows)
    return total / weights if weights else 0.0, count


def pair_loss(positions: Float32, a: float, b: float, seed: int) -> float:
    """Mean of ``-log(1 - phi)`` over pairs of each vertex and a random other one.

    ``positions`` (n, d) are those of all vertices, ``a`` and ``b`` parameters of phi, ``seed`` draws the
    pairs.
    """
    count, total = len(positions), 0.0
    key = np.array([seed, Purpose.LAYOUT_PAIRS], np.uint64)
    for block, start in enumerate(range(0, count, BLOCK)):
        rows = np.arange(start, min(count, start + BLOCK))
        bits = np.random.Philox(key=key, counter=[0, 0, 0, block])
        steps = np.random.Generator(bits).integers(1, max(2, count), BLOCK)[: len(rows)]
        power = a * np.maximum(squared_distances(positions, rows, (rows + steps) % count), NEAREST) ** b
        total += float((np.log1p(power) - np.log(power)).sum())
    return total / count


def squared_distances(positions: Float32, rows: Any, others: Any) -> npt.NDArray[np.float64]:
    """(m,) squared distances of vertices ``rows`` (m,) from vertices ``others`` (m,), in float64."""
    difference = positions[rows].astype(np.float64) - positions[others]
    squares: npt.NDArray[np.float64] = (difference * difference).sum(axis=1)
    return squares
