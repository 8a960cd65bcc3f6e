"""Shortest paths along the edges of a graph, and its connected components.

The length of a path is the sum of its edges, one after the other from where it begins. A rounded sum never
falls if one of its terms rises, so every correct algorithm finds the same least sum over all paths, in any
order, to the last bit.
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
    """Edges by the vertex that they begin at (CSR); each is stored from both of its ends."""

    pointers: Int64
    """(n + 1,) position of the first edge of each vertex in the next two; last the number of edges."""

    neighbors: Array
    """Other ends of edges; int32, or int64 where there are more vertices."""

    lengths: Array
    """Lengths of edges, float32 or float64, none negative; their sums are float64."""


@kernel
def lower_distances(graph: Graph, source: int, *, near: Float64) -> None:
    """Lower each entry of ``near`` to the length of the shortest path from ``source``, where that is less.

    Parameters
    ----------
    graph : Graph
        C-contiguous arrays.
    source : int
        Vertex that paths begin at.
    near : (n,) float64, C-contiguous, written
        Infinite throughout, or as calls from other vertices left it: the distance from the nearest of these.

    Notes
    -----
    A heap of vertices: n log n comparisons and a sum for each edge, 16 bytes of scratch a vertex. A path is
    followed no further where an earlier source is nearer, since all beyond is nearer to that source as well:
    l sources in turn, each the farthest from those before, together take some ln l times as long as one of
    them alone.

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
    """Breadth-first order of the vertices, and the component of each.

    Parameters
    ----------
    pointers, neighbors
        See ``Graph``. C-contiguous.
    order : (n,) of the type of ``neighbors``, C-contiguous, written
        Vertices in this order, component by component; each component begins at its vertex of least number.
    labels : (n,) of the same type, C-contiguous, written
        Component of each vertex, numbered from 0 on in order of first vertices.

    Notes
    -----
    Each edge is read once; no scratch.
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
