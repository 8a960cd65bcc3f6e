"""Points one after the other, compiled. See ``kernels/grid/nodes.py``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_with_contraction, contracted_part
from rankfold.kernels.grid.nodes import Lattice

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

SIXTH = 1 / 6


def spread_charges(positions: Float32, lattice: Lattice, first: int, *, out: Float64) -> None:
    """See the contract. Spreads the charges of points to nodes of a grid."""
    _spread(positions, lattice.low_x, lattice.low_y, 1 / lattice.spacing, first, out)


def potentials_at(positions: Float32, lattice: Lattice, nodes: Float32, *, out: Float32) -> None:
    """See the contract. Interpolates potentials at points; those of two kinds are computed together."""
    loop = _take_two if nodes.shape[2] == 2 else _take
    loop(positions, lattice.low_x, lattice.low_y, 1 / lattice.spacing, nodes, out)


@compile_with_contraction
def _spread(positions: Float32, low_x: float, low_y: float, inverse: float, first: int, out: Float64) -> None:
    rows = len(out)
    for i in range(len(positions)):
        place = (np.float64(positions[i, 0]) - low_x) * inverse
        row = math.floor(place)
        top = np.int64(row) - 1 - first
        if top <= -4 or top >= rows:
            continue
        a = _splines(place - row)
        place = (np.float64(positions[i, 1]) - low_y) * inverse
        column = math.floor(place)
        b0, b1, b2, b3 = _splines(place - column)
        start = np.int64(column) - 1
        for step in range(4):
            at = top + step
            if 0 <= at < rows:
                share = a[step]
                out[at, start] += share * b0
                out[at, start + 1] += share * b1
                out[at, start + 2] += share * b2
                out[at, start + 3] += share * b3


@compile_with_contraction
def _take_two(
    positions: Float32, low_x: float, low_y: float, inverse: float, nodes: Float32, out: Float32
) -> None:
    for i in range(len(positions)):
        place = (np.float64(positions[i, 0]) - low_x) * inverse
        row = math.floor(place)
        a = _splines(place - row)
        place = (np.float64(positions[i, 1]) - low_y) * inverse
        column = math.floor(place)
        b0, b1, b2, b3 = _splines(place - column)
        top, start = np.int64(row) - 1, np.int64(column) - 1
        one = two = 0.0
        for step in range(4):
            line = nodes[top + step]
            share = a[step]
            one += share * (
                b0 * line[start, 0]
                + b1 * line[start + 1, 0]
                + b2 * line[start + 2, 0]
                + b3 * line[start + 3, 0]
            )
            two += share * (
                b0 * line[start, 1]
                + b1 * line[start + 1, 1]
                + b2 * line[start + 2, 1]
                + b3 * line[start + 3, 1]
            )
        out[i, 0], out[i, 1] = one, two


@compile_with_contraction
def _take(
    positions: Float32, low_x: float, low_y: float, inverse: float, nodes: Float32, out: Float32
) -> None:
    for i in range(len(positions)):
        place = (np.float64(positions[i, 0]) - low_x) * inverse
        row = math.floor(place)
        a = _splines(place - row)
        place = (np.float64(positions[i, 1]) - low_y) * inverse
        column = math.floor(place)
        b = _splines(place - column)
        top, start = np.int64(row) - 1, np.int64(column) - 1
        for kind in range(nodes.shape[2]):
            total = 0.0
            for step in range(4):
                for side in range(4):
                    total += a[step] * b[side] * nodes[top + step, start + side, kind]
            out[i, kind] = total


@contracted_part
def _splines(t: float) -> Any:
    """Four cubic B-splines at a fraction t of a cell, as in ``kernels/grid/nodes.py``."""
    u = 1 - t
    return (
        SIXTH * u * u * u,
        SIXTH * ((3 * t - 6) * t * t + 4),
        SIXTH * ((3 * u - 6) * u * u + 4),
        SIXTH * t * t * t,
    )
