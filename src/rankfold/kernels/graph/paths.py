"""Shortest paths along the edges of a graph, and which vertices hang together.

The length of a path is the sum of its edges, one after the other from where it begins. Rounded sums do not
fall where one of their terms rises, so the least of them over all paths is what every right algorithm finds,
in any order, to the last bit.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


class Graph(NamedTuple):
    """Edges by the vertex that they begin at; each is there from both of its ends."""

    pointers: Int64
    """(n + 1,) edges before each vertex, and in all."""

    neighbors: Array
    """Other ends; int32, or int64 where there are more vertices."""

    lengths: Array
    """float32 or float64, none negative; their sums are float64."""


@kernel
def lower_distances(graph: Graph, source: int, *, near: Float64) -> None:
    """Lower each number to the length of the shortest path from ``source``, where that is less.

    Parameters
    ----------
    graph : Graph
        C-contiguous arrays.
    source : int
        Vertex that paths begin at.
    near : (n,) float64, C-contiguous, written
        Infinite throughout; or what calls from other vertices have left of that, so that it is the distance
        of the nearest of these.

    Notes
    -----
    A heap of vertices: n log n comparisons and a sum for each edge, 16 bytes of scratch a vertex. Where other
    vertices are nearer a path is not followed any further, since what lies behind is nearer to them as well:
    of l vertices in turn, each of which is farthest from those before, all together take some ln l times what
    one of them takes alone.

    References
    ----------
    Dijkstra, A note on two problems in connexion with graphs, Numerische Mathematik 1, 1959.
    """
    pointers, neighbors, lengths = graph
    if not near[source] > 0:
        return
    near[source] = 0
    heap = [(0.0, source)]
    while heap:
        reach, vertex = heapq.heappop(heap)
        if reach > near[vertex]:
            continue
        for edge in range(int(pointers[vertex]), int(pointers[vertex + 1])):
            other, length = int(neighbors[edge]), reach + float(lengths[edge])
            if length < near[other]:
                near[other] = length
                heapq.heappush(heap, (length, other))


@kernel
def search_breadth_first(pointers: Int64, neighbors: Array, *, order: Array, labels: Array) -> None:
    """Vertices in the order in which they are met, step by step, and the component that each is of.

    Parameters
    ----------
    pointers, neighbors
        See ``Graph``. C-contiguous.
    order : (n,) of the type of ``neighbors``, C-contiguous, written
        Components follow each other; each begins at its first vertex.
    labels : (n,) of the same type, C-contiguous, written
        Of components, from 0 on, in order of their first vertices.

    Notes
    -----
    One look at each edge; no scratch.
    """
    labels[:] = -1
    place = component = 0
    for start in range(len(labels)):
        if labels[start] >= 0:
            continue
        labels[start], order[place] = component, start
        end = place + 1
        while place < end:
            vertex = int(order[place])
            place += 1
            for other in neighbors[int(pointers[vertex]) : int(pointers[vertex + 1])].tolist():
                if labels[other] < 0:
                    labels[other], order[end] = component, other
                    end += 1
        component += 1
