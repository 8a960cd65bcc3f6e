"""Vertices one after the other, compiled. See ``kernels/layout/vertices.py``: in a plane without loops over
coordinates, which take half of the time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels.layout import forces as tables
from rankfold.kernels.layout.forces import Density, Edges, Epoch, Forces

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]
UInt32 = npt.NDArray[np.uint32]

ZERO, UNIT, HALF_OF = np.float32(0), np.float32(1), np.float32(0.5)
FARTHEST, TURN = np.float32(tables.FARTHEST), np.float32(0.5**32)
FIRST, LAST, SHIFT = np.int32(tables.FIRST), np.int32(tables.LAST), np.int32(tables.SHIFT)
NONE, BETWEEN, WIDTH = np.int32(0), np.int32(2**tables.SHIFT - 1), np.float32(0.5**tables.SHIFT)

STEP, ONE, HALF, LOW = np.uint64(tables.STEP), np.uint64(1), np.uint64(32), np.uint64(0xFFFFFFFF)
NO_PUSHES = np.empty((0, 2), np.float32)
FACTORS = np.uint64(tables.FIRST_FACTOR), np.uint64(tables.SECOND_FACTOR)
SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)


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
    """See the contract. Moves vertices by those of their edges that pull in an epoch.

    Scratch: two vectors of d numbers, if d is not 2 or there is a density.
    """
    now = np.uint32(epoch.number), np.uint64(epoch.key), np.float32(epoch.rate)
    arguments = positions, vertices, *edges, *forces, *now, epoch.negatives, out
    if positions.shape[1] == 2 and density is None:
        _move_in_plane(*arguments)
    elif density is None:
        _move_in_space(*arguments, forces.attraction, ZERO, NO_PUSHES)
    else:
        _move_in_space(*arguments, density.closeness, np.float32(density.slope), density.pushes)


@compile_loop
def _move_in_plane(
    positions: Float32,
    vertices: Int64,
    pointers: Int64,
    neighbors: Array,
    phases: UInt32,
    attraction: Float32,
    repulsion: Float32,
    epoch: Any,
    key: Any,
    rate: Any,
    negatives: int,
    out: Float32,
) -> None:
    count, words = np.uint64(len(positions)), np.uint64((negatives + 1) // 2)
    for place in range(len(vertices)):
        vertex = vertices[place]
        x, y = positions[vertex, 0], positions[vertex, 1]
        own, first, last = _mix(key + STEP * np.uint64(vertex + 1)), pointers[place], pointers[place + 1]
        edge = _drawn(own, first, last)
        for _step in range(first, last):
            edge = edge + 1 if edge + 1 < last else first
            if not _pulls(epoch, phases[edge]):
                continue
            other = neighbors[edge]
            for _ in range(2):
                dx, dy = x - positions[other, 0], y - positions[other, 1]
                factor = _factor(attraction, dx * dx + dy * dy)
                x += rate * _limit(factor * dx)
                y += rate * _limit(factor * dy)
            push_x, push_y, word = ZERO, ZERO, np.uint64(0)
            for sample in range(negatives):
                if sample % 2 == 0:
                    number = np.uint64(edge - first) * words + np.uint64(sample // 2) + ONE
                    word = _mix(own + STEP * number)
                half = word & LOW if sample % 2 else word >> HALF
                far = np.int64((half * count) >> HALF)
                dx, dy = x - positions[far, 0], y - positions[far, 1]
                factor = _factor(repulsion, dx * dx + dy * dy)
                push_x += _limit(factor * dx)
                push_y += _limit(factor * dy)
            x += rate * push_x
            y += rate * push_y
        out[place, 0], out[place, 1] = x, y


@compile_loop
def _move_in_space(
    positions: Float32,
    vertices: Int64,
    pointers: Int64,
    neighbors: Array,
    phases: UInt32,
    attraction: Float32,
    repulsion: Float32,
    epoch: Any,
    key: Any,
    rate: Any,
    negatives: int,
    out: Float32,
    closeness: Float32,
    slope: Any,
    pushes: Float32,
) -> None:
    is_spread = len(pushes) > 0
    width, words = positions.shape[1], np.uint64((negatives + 1) // 2)
    x, push = np.empty(width, np.float32), np.empty(width, np.float32)
    for place in range(len(vertices)):
        vertex = vertices[place]
        for d in range(width):
            x[d] = positions[vertex, d]
        own, first, last = _mix(key + STEP * np.uint64(vertex + 1)), pointers[place], pointers[place + 1]
        edge = _drawn(own, first, last)
        for _step in range(first, last):
            edge = edge + 1 if edge + 1 < last else first
            if not _pulls(epoch, phases[edge]):
                continue
            other = neighbors[edge]
            for _ in range(2):
                square, spread = _square(x, positions, other), ZERO
                factor = _factor(attraction, square)
                if is_spread:
                    spread = _spread(square, factor, closeness, slope, pushes, vertex, other, phases[edge])
                for d in range(width):
                    difference = x[d] - positions[other, d]
                    force = _limit(factor * difference)
                    if is_spread:
                        force += _limit(spread * difference)
                    x[d] += rate * force
            counter = own + STEP * (np.uint64(edge - first) * words + ONE)
            _repel(x, push, positions, repulsion, counter, negatives, rate)
        for d in range(width):
            out[place, d] = x[d]


@part
def _drawn(own: Any, first: Any, last: Any) -> Any:
    """Position before that of the edge that acts first on a vertex in an epoch.

    That edge is drawn among edges ``first:last`` by the random bits ``own``.
    """
    return first - 1 + np.int64(((own >> HALF) * np.uint64(last - first)) >> HALF)


@part
def _repel(
    x: Float32, push: Float32, positions: Float32, repulsion: Float32, counter: Any, negatives: int, rate: Any
) -> None:
    """Move ``x``, in place, away from random vertices, by the sum of their forces at ``x`` times ``rate``.

    ``counter`` is that of the first random number; ``push`` is scratch.
    """
    push[:] = ZERO
    word, count = np.uint64(0), np.uint64(len(positions))
    for sample in range(negatives):
        if sample % 2 == 0:
            word = _mix(counter + STEP * np.uint64(sample // 2))
        half = word & LOW if sample % 2 else word >> HALF
        far = np.int64((half * count) >> HALF)
        factor = _factor(repulsion, _square(x, positions, far))
        for d in range(len(x)):
            push[d] += _limit(factor * (x[d] - positions[far, d]))
    for d in range(len(x)):
        x[d] += rate * push[d]


@part
def _square(x: Float32, positions: Float32, other: Any) -> Any:
    """Squared distance of a position ``x`` from vertex ``other``."""
    square = ZERO
    for d in range(len(x)):
        difference = x[d] - positions[other, d]
        square += difference * difference
    return square


@part
def _factor(table: Float32, square: Any) -> Any:
    """Factor of a force, interpolated in its table at a squared distance; 0 at distance 0."""
    if not square > ZERO:
        return ZERO
    place = min(max(np.float32(square).view(np.int32) - FIRST, NONE), LAST)
    step = place >> SHIFT
    value = table[step]
    return value + np.float32(place & BETWEEN) * WIDTH * (table[step + 1] - value)


@part
def _spread(
    square: Any,
    attraction: Any,
    closeness: Float32,
    slope: Any,
    pushes: Float32,
    vertex: Any,
    other: Any,
    phase: Any,
) -> Any:
    """Factor of the additional force along an edge that preserves densities: see ``Density.pushes``.

    ``square`` is the squared length of the edge, ``attraction`` the factor of its attraction.
    """
    if not square > ZERO:
        return ZERO
    close, steep = _factor(closeness, square), HALF_OF * attraction
    by_closeness = (UNIT - slope * (UNIT - close)) * (pushes[vertex, 0] + pushes[other, 0])
    by_steepness = steep * (pushes[vertex, 1] + pushes[other, 1])
    return close * (by_closeness - by_steepness) / (np.float32(phase) * TURN)


@part
def _limit(force: Any) -> Any:
    return min(max(force, -FARTHEST), FARTHEST)


@part
def _pulls(epoch: Any, phase: Any) -> Any:
    """True if an edge of that phase pulls in an epoch: a turn is full, see ``phases_of``."""
    return np.uint32(epoch * phase) < phase


@part
def _mix(word: Any) -> Any:
    """``mix`` of ``kernels/layout/forces.py``, compiled."""
    word = (word ^ (word >> SHIFTS[0])) * FACTORS[0]
    word = (word ^ (word >> SHIFTS[1])) * FACTORS[1]
    return word ^ (word >> SHIFTS[2])
