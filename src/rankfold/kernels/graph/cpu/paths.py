"""Shortest paths and components, compiled. See ``kernels/graph/paths.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels.graph.paths import Graph

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


def lower_distances(graph: Graph, source: int, *, near: Float64) -> None:
    """See the contract. Lowers ``near`` to the lengths of shortest paths from ``source``.

    A vertex is in the heap once, together with its distance: memory is bounded, and a 4-ary heap takes half
    as many steps down as a binary one.
    """
    n, kind = len(near), graph.neighbors.dtype
    _lower(*graph, source, near, np.empty(n), np.empty(n, kind), np.full(n, -1, kind))


@compile_loop
def _lower(
    pointers: Int64,
    neighbors: Array,
    lengths: Array,
    source: int,
    near: Float64,
    keys: Float64,
    heap: Array,
    places: Array,
) -> None:
    if not near[source] > 0.0:
        return
    near[source] = 0.0
    size = 1
    _rise(keys, heap, places, 0, 0.0, source)
    while size > 0:
        reach, vertex = keys[0], heap[0]
        places[vertex] = -1
        size -= 1
        if size > 0:
            _sink(keys, heap, places, size)
        for edge in range(pointers[vertex], pointers[vertex + 1]):
            other = neighbors[edge]
            length = reach + lengths[edge]
            if length < near[other]:
                near[other] = length
                place = places[other]
                if place < 0:
                    place = size
                    size += 1
                _rise(keys, heap, places, place, length, other)


@part
def _rise(keys: Float64, heap: Array, places: Array, place: Any, key: Any, vertex: Any) -> None:
    """Put a vertex at position ``place`` of the heap, and sift it up while it is nearer than its parent.

    ``keys`` and ``heap`` have distance and vertex at each position, ``places`` the position of each vertex.
    """
    while place > 0:
        above = (place - 1) >> 2
        if keys[above] <= key:
            break
        keys[place], heap[place] = keys[above], heap[above]
        places[heap[place]] = place
        place = above
    keys[place], heap[place] = key, vertex
    places[vertex] = place


@part
def _sink(keys: Float64, heap: Array, places: Array, size: Any) -> None:
    """Move the last vertex of the heap to the top, and sift it down while a child is nearer."""
    key, vertex, place = keys[size], heap[size], 0
    while True:
        least = 4 * place + 1
        if least >= size:
            break
        for child in range(least + 1, min(least + 4, size)):
            if keys[child] < keys[least]:
                least = child
        if keys[least] >= key:
            break
        keys[place], heap[place] = keys[least], heap[least]
        places[heap[place]] = place
        place = least
    keys[place], heap[place] = key, vertex
    places[vertex] = place


def search_breadth_first(pointers: Int64, neighbors: Array, *, order: Array, labels: Array) -> None:
    """See the contract. Writes the breadth-first order of the vertices, and the component of each."""
    _search(pointers, neighbors, order, labels)


@compile_loop
def _search(pointers: Int64, neighbors: Array, order: Array, labels: Array) -> None:
    labels[:] = -1
    place = component = end = 0
    for start in range(len(labels)):
        if labels[start] >= 0:
            continue
        labels[start], order[end] = component, start
        end += 1
        while place < end:
            vertex = order[place]
            place += 1
            for edge in range(pointers[vertex], pointers[vertex + 1]):
                other = neighbors[edge]
                if labels[other] < 0:
                    labels[other], order[end] = component, other
                    end += 1
        component += 1
