"""Vertices one after the other, compiled. See ``kernels/layout/descent.py``: in a plane without loops over
coordinates. Sums over the edges of a vertex may be added up in any order, the same in every call."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop
from rankfold.kernels.layout import descent as constants
from rankfold.kernels.layout.descent import Affinities, Descent, Motion

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

ZERO, ONE = np.float32(0), np.float32(1)
GAIN_STEP, GAIN_SHARE = np.float32(constants.GAIN_STEP), np.float32(constants.GAIN_SHARE)
LEAST_GAIN = np.float32(constants.LEAST_GAIN)
TILE = 512
"""Edges that are processed together."""

TWO, LOG_TWO = np.float32(2), np.float32(math.log(2))
TERMS = np.float32(2 / 3), np.float32(2 / 5), np.float32(2 / 7), np.float32(2 / 9)
MIDDLE = np.int32(np.float32(math.sqrt(0.5)).view(np.int32))
"""Bits of the square root of a half, from which mantissas are counted."""

REORDERED = {"reassoc", "contract", "nsz"}


def descend(
    positions: Float32,
    first: int,
    affinities: Affinities,
    push: Float32,
    *,
    descent: Descent,
    motion: Motion,
    out: Float32,
) -> None:
    """See the contract; scratch 4 KiB. Moves consecutive vertices one step down the gradient."""
    factors = (np.float32(each) for each in descent)
    arguments: tuple[Any, ...] = (positions, first, *affinities, push, *factors, *motion, out)
    _descend(*arguments)


def measure_descent(
    positions: Float32, first: int, affinities: Affinities, push: Float32, *, descent: Descent, out: Float32
) -> None:
    """See the contract; scratch d numbers. Loss and squared length of the gradient of each vertex."""
    now = np.float32(descent.exaggeration), np.float32(descent.inverse)
    _measure(positions, first, *affinities, push, *now, out)


def _plane_of(
    positions: Float32, vertex: int, neighbors: Array, weights: Float32, xs: Float32, ys: Float32
) -> Any:
    """Attraction of a vertex by some edges, in a plane: returns x and y of ``sum w q (y - y_j)``.

    Positions of neighbors are gathered into ``xs`` and ``ys`` first, so that the sums are vectorized.
    """
    for edge in range(len(neighbors)):
        other = neighbors[edge]
        xs[edge], ys[edge] = positions[other, 0], positions[other, 1]
    x, y, pull_x, pull_y = positions[vertex, 0], positions[vertex, 1], ZERO, ZERO
    for edge in range(len(neighbors)):
        dx, dy = x - xs[edge], y - ys[edge]
        q = weights[edge] / (ONE + dx * dx + dy * dy)
        pull_x += q * dx
        pull_y += q * dy
    return pull_x, pull_y


def _pull_of(
    positions: Float32, vertex: int, neighbors: Array, weights: Float32, start: int, stop: int, out: Float32
) -> None:
    """Write the attraction of a vertex by edges ``start:stop`` into ``out``, (d,): ``sum w q (y - y_j)``."""
    out[:] = ZERO
    width = len(out)
    for edge in range(start, stop):
        other = neighbors[edge]
        square = ONE
        for d in range(width):
            difference = positions[vertex, d] - positions[other, d]
            square += difference * difference
        q = weights[edge] / square
        for d in range(width):
            out[d] += q * (positions[vertex, d] - positions[other, d])


_plane = compile_loop(_plane_of, fastmath=REORDERED, called_from_python=False)
_pull = compile_loop(_pull_of, fastmath=REORDERED, called_from_python=False)


@compile_loop
def _descend(
    positions: Float32,
    first: int,
    pointers: Int64,
    neighbors: Array,
    weights: Float32,
    push: Float32,
    exaggeration: Any,
    inverse: Any,
    rate: Any,
    momentum: Any,
    longest: Any,
    velocities: Float32,
    gains: Float32,
    out: Float32,
) -> None:
    width = positions.shape[1]
    pull, xs, ys = np.empty(width, np.float32), np.empty(TILE, np.float32), np.empty(TILE, np.float32)
    for i in range(len(out)):
        vertex = first + i
        if width == 2:
            pull[:] = ZERO
            for start in range(pointers[i], pointers[i + 1], TILE):
                stop = min(start + TILE, pointers[i + 1])
                x, y = _plane(positions, vertex, neighbors[start:stop], weights[start:stop], xs, ys)
                pull[0] += x
                pull[1] += y
        else:
            _pull(positions, vertex, neighbors, weights, pointers[i], pointers[i + 1], pull)
        square = ZERO
        for d in range(width):
            gradient = exaggeration * pull[d] - inverse * push[i, d]
            gain, velocity = gains[i, d], velocities[i, d]
            turned = np.sign(velocity) != np.sign(gradient)
            gain = gain + GAIN_STEP if turned else gain * GAIN_SHARE + LEAST_GAIN
            velocity = momentum * velocity - rate * gain * gradient
            gains[i, d], velocities[i, d] = gain, velocity
            square += velocity * velocity
        length = math.sqrt(square)
        shorter = longest / length if length > longest else ONE
        for d in range(width):
            velocities[i, d] *= shorter
            out[i, d] = positions[vertex, d] + velocities[i, d]


@compile_loop
def _measure(
    positions: Float32,
    first: int,
    pointers: Int64,
    neighbors: Array,
    weights: Float32,
    push: Float32,
    exaggeration: Any,
    inverse: Any,
    out: Float32,
) -> None:
    width = positions.shape[1]
    pull, squares = np.empty(width, np.float32), np.empty(TILE, np.float32)
    for i in range(len(out)):
        vertex = first + i
        _pull(positions, vertex, neighbors, weights, pointers[i], pointers[i + 1], pull)
        loss = 0.0
        for start in range(pointers[i], pointers[i + 1], TILE):
            stop = min(start + TILE, pointers[i + 1])
            loss += _loss(positions, vertex, neighbors[start:stop], weights[start:stop], squares)
        norm = 0.0
        for d in range(width):
            gradient = np.float64(exaggeration * pull[d] - inverse * push[i, d])
            norm += gradient * gradient
        out[i, 0], out[i, 1] = loss, norm


def _loss_of(positions: Float32, vertex: int, neighbors: Array, weights: Float32, squares: Float32) -> Any:
    """``sum w log(1 + d^2)`` over some edges of a vertex, to ``neighbors``; ``squares`` is scratch."""
    for edge in range(len(neighbors)):
        other, square = neighbors[edge], ONE
        for d in range(positions.shape[1]):
            difference = positions[vertex, d] - positions[other, d]
            square += difference * difference
        squares[edge] = square
    # log(m 2^e) = e log 2 + 2 artanh((m - 1) / (m + 1)), with m between the square roots of 1/2 and 2.
    total = ZERO
    for edge in range(len(neighbors)):
        bits = np.float32(squares[edge]).view(np.int32)
        power = np.int32((bits - MIDDLE) >> np.int32(23))
        mantissa = np.int32(bits - (power << np.int32(23))).view(np.float32)
        s = (mantissa - ONE) / (mantissa + ONE)
        t = s * s
        series = s * (TWO + t * (TERMS[0] + t * (TERMS[1] + t * (TERMS[2] + t * TERMS[3]))))
        total += weights[edge] * (np.float32(power) * LOG_TWO + series)
    return total


_loss = compile_loop(_loss_of, fastmath=REORDERED, called_from_python=False)
