"""Rows one after the other, compiled. See ``kernels/layout/settling.py``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels.grid.cpu.nodes import _take
from rankfold.kernels.grid.cpu.pairs import _push_in_space
from rankfold.kernels.grid.nodes import Lattice
from rankfold.kernels.layout.descent import GAIN_SHARE, GAIN_STEP, LEAST_GAIN
from rankfold.kernels.layout.settling import NewPoints, PlacementOptions

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]


def settle_by_nodes(
    positions: Float32,
    rows: NewPoints,
    lattice: Lattice,
    nodes: Float32,
    *,
    options: PlacementOptions,
    out: Float32,
) -> None:
    """See the contract. Gradient descent of new rows in a plane, with repulsion interpolated from nodes."""
    low = np.array([lattice.low_x, lattice.low_y]) + lattice.spacing
    high = low + lattice.spacing * (np.array(nodes.shape[:2]) - 3.5)
    limits = low.astype(np.float32), high.astype(np.float32)
    place = lattice.low_x, lattice.low_y, 1 / lattice.spacing
    arguments: tuple[Any, ...] = (positions, *rows, *limits, *place, nodes, *options, out)
    _settle_by_nodes(*arguments)


def settle_by_pairs(
    positions: Float32, rows: NewPoints, sources: Float32, *, options: PlacementOptions, out: Float32
) -> None:
    """See the contract. Gradient descent of new rows, with repulsion summed over all vertices."""
    arguments: tuple[Any, ...] = (positions, *rows, sources, *options, out)
    _settle_by_pairs(*arguments)


@compile_loop
def _settle_by_nodes(
    positions: Float32,
    neighbors: Array,
    weights: Float32,
    start: Float32,
    low: Float32,
    high: Float32,
    low_x: float,
    low_y: float,
    inverse: float,
    nodes: Float32,
    steps: int,
    rate: float,
    momentum: float,
    exaggeration: float,
    longest: float,
    out: Float32,
) -> None:
    y, potentials = np.empty((1, 2), np.float32), np.empty((1, 3), np.float32)
    velocity, gains, gradient = np.empty(2, np.float32), np.empty(2), np.empty(2)
    for i in range(len(out)):
        velocity[:], gains[:] = 0, 1
        for d in range(2):
            y[0, d] = min(max(start[i, d], low[d]), high[d])
        for _ in range(steps):
            _take(y, low_x, low_y, inverse, nodes, potentials)
            _pull(positions, neighbors[i], weights[i], y[0], gradient)
            near = max(np.float64(potentials[0, 2]), 1e-30)
            for d in range(2):
                gradient[d] = exaggeration * gradient[d] - potentials[0, d] / near
            _step(gradient, velocity, gains, y[0], rate, momentum, longest)
            for d in range(2):
                y[0, d] = min(max(y[0, d], low[d]), high[d])
        for d in range(2):
            out[i, d] = y[0, d]


@compile_loop
def _settle_by_pairs(
    positions: Float32,
    neighbors: Array,
    weights: Float32,
    start: Float32,
    sources: Float32,
    steps: int,
    rate: float,
    momentum: float,
    exaggeration: float,
    longest: float,
    out: Float32,
) -> None:
    width = len(sources)
    y, push, near = np.empty((1, width), np.float32), np.empty((1, width), np.float32), np.empty(1)
    velocity, gains, gradient = np.empty(width, np.float32), np.empty(width), np.empty(width)
    for i in range(len(out)):
        velocity[:], gains[:] = 0, 1
        for d in range(width):
            y[0, d] = start[i, d]
        for _ in range(steps):
            _push_in_space(y, sources, push, near)
            _pull(positions, neighbors[i], weights[i], y[0], gradient)
            for d in range(width):
                gradient[d] = exaggeration * gradient[d] - push[0, d] / max(near[0], 1e-30)
            _step(gradient, velocity, gains, y[0], rate, momentum, longest)
        for d in range(width):
            out[i, d] = y[0, d]


@part
def _pull(positions: Float32, neighbors: Array, weights: Float32, y: Float32, out: Float64) -> None:
    """Write the attraction of a row at ``y`` by its neighbors into ``out``, (d,): ``sum w q (y - y_j)``."""
    out[:] = 0
    for j in range(len(neighbors)):
        other, square = neighbors[j], 1.0
        for d in range(len(y)):
            difference = np.float64(y[d] - positions[other, d])
            square += difference * difference
        q = weights[j] / square
        for d in range(len(y)):
            out[d] += q * np.float64(y[d] - positions[other, d])


@part
def _step(
    gradient: Float64,
    velocity: Float32,
    gains: Float64,
    y: Float32,
    rate: float,
    momentum: float,
    longest: float,
) -> None:
    """Move a row, at ``y``, one step down its gradient; ``y``, ``velocity`` and ``gains`` change in place."""
    length = 0.0
    for d in range(len(y)):
        length += gradient[d] * gradient[d]
    length = math.sqrt(length)
    shorter = longest / length if length > longest else 1.0
    for d in range(len(y)):
        slope = shorter * gradient[d]
        turned = np.sign(velocity[d]) != np.sign(slope)
        gains[d] = gains[d] + GAIN_STEP if turned else gains[d] * GAIN_SHARE + LEAST_GAIN
        velocity[d] = momentum * velocity[d] - rate * gains[d] * slope
        y[d] += velocity[d]
