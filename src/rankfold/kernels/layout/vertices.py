"""Move vertices of a graph by their own edges: towards neighbors, and away from random vertices.

A vertex reads positions and writes its new one to another array, so that any of them may move at once, in any
order and split, with the same bytes. Random numbers are a function of epoch, vertex, edge and sample alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.layout.forces import (
    FARTHEST,
    FIRST,
    LAST,
    MASK,
    SHIFT,
    STEP,
    Density,
    Edges,
    Epoch,
    Forces,
    mix,
)

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]


@kernel
def move_vertices(
    positions: Float32,
    vertices: Int64,
    edges: Edges,
    *,
    forces: Forces,
    epoch: Epoch,
    out: Float32,
    density: Density | None = None,
) -> None:
    """Compute new positions of some vertices, moved by the edges of an epoch that begin at them.

    An edge that pulls in this epoch moves its vertex twice towards the other end, once for either direction
    of the edge; then random vertices push it away, by their forces at its position. Neighbors and random
    vertices stay. The edges of a vertex act in their order, beginning with one that is drawn in each epoch:
    the last edge decides most, and if it were always the same, vertices would line up behind it.

    Parameters
    ----------
    positions : (n, d) float32, n < 2**32
        Positions of all vertices.
    vertices : (m,) int64
        Vertices that move.
    edges, forces, epoch, density
        See ``forces.py``; edges of these vertices, in their order: those of each vertex are contiguous.
    out : (m, d) float32, written
        New positions; no part of ``positions``.

    Notes
    -----
    Some 20 (2 + negatives) d operations for each edge that pulls; no scratch. Numbers are float32, and every
    body computes the same, to the last bit.

    References
    ----------
    McInnes, Healy, Melville, UMAP, arXiv:1802.03426, algorithm 5. Unlike there a vertex moves by its own
    edges alone; since the graph is symmetric it is pulled as often.
    """
    rate, words = np.float32(epoch.rate), (epoch.negatives + 1) // 2
    for place, vertex in enumerate(vertices.tolist()):
        x, first = positions[vertex].copy(), int(edges.pointers[place])
        own, degree = mix((epoch.key + STEP * (vertex + 1)) & MASK), int(edges.pointers[place + 1]) - first
        drawn = ((own >> 32) * degree) >> 32
        for step in range(degree):
            edge = first + (drawn + step) % degree
            other, phase = int(edges.neighbors[edge]), int(edges.phases[edge])
            if not _pulls(epoch.number, phase):
                continue
            for _ in range(2):
                x += rate * _pull(forces.attraction, density, (vertex, other), phase, x - positions[other])
            counter = (own + STEP * ((edge - first) * words + 1)) & MASK
            x += rate * _push(positions, x, forces.repulsion, counter, epoch.negatives)
        out[place] = x


def _pulls(epoch: int, phase: int) -> bool:
    """True if an edge of that phase pulls in an epoch: a turn is full, see ``phases_of``."""
    return (epoch * phase) % 2**32 < phase


def _push(positions: Float32, x: Float32, repulsion: Float32, counter: int, negatives: int) -> Float32:
    """Sum (d,) of the forces at ``x`` from random vertices; each random number of 64 bits draws two of them.

    ``counter`` is that of the first random number.
    """
    push = np.zeros_like(x)
    for sample in range(negatives):
        word = mix((counter + STEP * (sample // 2)) & MASK)
        half = word & 0xFFFFFFFF if sample % 2 else word >> 32
        push += _force(repulsion, x - positions[(half * len(positions)) >> 32])
    return push


def _force(table: Float32, difference: Float32) -> Float32:
    """(d,) force of a table at a ``difference`` of positions, limited; zero for a difference of zero."""
    square = _square(difference)
    return _limit(_value(table, square) * difference) if square > 0 else np.zeros_like(difference)


def _pull(
    attraction: Float32, density: Density | None, edge: tuple[int, int], phase: int, difference: Float32
) -> Float32:
    """(d,) attraction along an edge, a pair of vertices whose positions have a ``difference``.

    The force by density is added if ``density`` is given; ``phase`` is that of the edge.
    """
    force, square = _force(attraction, difference), _square(difference)
    if density is None or not square > 0:
        return force
    ends, one, half = density.pushes[edge[0]] + density.pushes[edge[1]], np.float32(1), np.float32(0.5)
    close, steep = _value(density.closeness, square), half * _value(attraction, square)
    by_closeness = (one - np.float32(density.slope) * (one - close)) * ends[0]
    share = np.float32(phase) * np.float32(0.5**32)
    return force + _limit(close * (by_closeness - steep * ends[1]) / share * difference)


def _square(difference: Float32) -> np.float32:
    square = np.float32(0)
    for each in difference:
        square += each * each
    return square


def _value(table: Float32, square: np.float32) -> np.float32:
    """Interpolated value of a table at a squared distance above 0."""
    place = min(max(int(square.view(np.int32)) - FIRST, 0), LAST)
    step, between = place >> SHIFT, np.float32(place & (2**SHIFT - 1)) * np.float32(0.5**SHIFT)
    value: np.float32 = table[step] + between * (table[step + 1] - table[step])
    return value


def _limit(force: Float32) -> Float32:
    limited: Float32 = np.clip(force, np.float32(-FARTHEST), np.float32(FARTHEST))
    return limited
