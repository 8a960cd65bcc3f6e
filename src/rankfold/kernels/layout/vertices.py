"""Vertices of a graph that their own edges move: towards neighbors, and away from random vertices.

A vertex reads positions and writes its own new one beside them, so that any of them may move at once, in any
order and split, to the same bytes. Random numbers are a function of epoch, vertex, edge and sample alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.layout.forces import FARTHEST, FIRST, LAST, MASK, SHIFT, STEP, Forces, mix

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]
UInt32 = npt.NDArray[np.uint32]


@kernel
def move_vertices(
    positions: Float32,
    vertices: Int64,
    pointers: Int64,
    neighbors: Array,
    phases: UInt32,
    *,
    forces: Forces,
    epoch: int,
    key: int,
    rate: float,
    negatives: int,
    out: Float32,
) -> None:
    """New positions of some vertices after the edges of an epoch that begin at them.

    An edge that pulls in this epoch moves its vertex twice towards the other end, once for either direction
    of the edge; then the vertex moves away from ``negatives`` vertices of all, as their forces are where it
    stands. Other vertices stay where ``positions`` has them.

    Parameters
    ----------
    positions : (n, d) float32, n < 2**32
        Of all vertices.
    vertices : (m,) int64
        Those that move.
    pointers : (n + 1,) int64
        Edges before each vertex.
    neighbors : (edges,) int32 or int64
        Other ends.
    phases : (edges,) uint32
        See ``phases_of``.
    forces : Forces
        See ``forces_of``.
    epoch : int, >= 1
        Number of the epoch.
    key : int
        Of its random numbers: see ``epoch_key``.
    rate : float
        What forces are multiplied with.
    negatives : int, >= 0
        Random vertices for each edge that pulls.
    out : (m, d) float32, written
        New positions; no part of ``positions``.

    Notes
    -----
    Some 20 (2 + negatives) d operations for each edge that pulls; no scratch. Numbers are float32, and every
    body makes the same of them, to the last bit.

    References
    ----------
    McInnes, Healy, Melville, UMAP, arXiv:1802.03426, algorithm 5. Unlike there a vertex moves by its own
    edges alone; since the graph is symmetric it is pulled as often.
    """
    for place, vertex in enumerate(vertices.tolist()):
        out[place] = _move(
            positions, vertex, pointers, neighbors, phases, forces, epoch, key, np.float32(rate), negatives
        )


def _move(
    positions: Float32,
    vertex: int,
    pointers: Int64,
    neighbors: Array,
    phases: UInt32,
    forces: Forces,
    epoch: int,
    key: int,
    rate: np.float32,
    negatives: int,
) -> Float32:
    x, count = positions[vertex].copy(), len(positions)
    own = mix((key + STEP * (vertex + 1)) & MASK)
    words = (negatives + 1) // 2
    first = int(pointers[vertex])
    for edge in range(first, int(pointers[vertex + 1])):
        phase = int(phases[edge])
        if (epoch * phase) % 2**32 >= phase:
            continue
        for _ in range(2):
            x = x + rate * _force(forces.attraction, x - positions[neighbors[edge]])
        push = np.zeros_like(x)
        for sample in range(negatives):
            word = mix((own + STEP * ((edge - first) * words + sample // 2 + 1)) & MASK)
            half = word & 0xFFFFFFFF if sample % 2 else word >> 32
            push = push + _force(forces.repulsion, x - positions[(half * count) >> 32])
        x = x + rate * push
    moved: Float32 = x
    return moved


def _force(table: Float32, difference: Float32) -> Float32:
    """What a difference of positions comes to: none where there is none."""
    square = np.float32(0)
    for each in difference:
        square += each * each
    if not square > 0:
        return np.zeros_like(difference)
    place = min(max(int(square.view(np.int32)) - FIRST, 0), LAST)
    step, between = place >> SHIFT, np.float32(place & (2**SHIFT - 1)) * np.float32(0.5**SHIFT)
    factor = table[step] + between * (table[step + 1] - table[step])
    force: Float32 = np.clip(factor * difference, np.float32(-FARTHEST), np.float32(FARTHEST))
    return force
