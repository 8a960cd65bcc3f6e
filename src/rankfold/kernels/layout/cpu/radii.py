"""Vertices one after the other, compiled. See ``kernels/layout/radii.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop
from rankfold.kernels.layout.cpu.vertices import ZERO, _factor, _square
from rankfold.kernels.layout.forces import Edges

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

CLOSEST = np.float32(1)


def measure_radii(
    positions: Float32, own: Float32, edges: Edges, *, closeness: Float32, out: Float32
) -> None:
    """See the contract. Mean squared edge lengths of vertices, and sums of closeness."""
    _measure_radii(positions, own, edges.pointers, edges.neighbors, closeness, out)


@compile_loop
def _measure_radii(
    positions: Float32, own: Float32, pointers: Int64, neighbors: Any, closeness: Float32, out: Float32
) -> None:
    for place in range(len(own)):
        squares, close = np.float64(0), np.float64(0)
        for edge in range(pointers[place], pointers[place + 1]):
            square = _square(own[place], positions, neighbors[edge])
            value = _factor(closeness, square) if square > ZERO else CLOSEST
            squares += np.float64(value * square)
            close += np.float64(value)
        out[place, 0] = squares / close if close > 0 else 0.0
        out[place, 1] = close
