"""Rows one after the other, compiled. See ``kernels/layout/rows.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop
from rankfold.kernels.layout.cpu.vertices import (
    HALF,
    LOW,
    ONE,
    STEP,
    ZERO,
    _factor,
    _limit,
    _mix,
    _pulls,
    _square,
)
from rankfold.kernels.layout.forces import Forces
from rankfold.kernels.layout.rows import NewRows

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]


def place_rows(
    positions: Float32, rows: NewRows, *, forces: Forces, rates: Float32, negatives: int, out: Float32
) -> None:
    """See the contract; scratch two vectors of d numbers."""
    _place_rows(positions, *rows, *forces, rates, negatives, out)


@compile_loop
def _place_rows(
    positions: Float32,
    neighbors: Array,
    phases: Array,
    keys: Array,
    start: Float32,
    attraction: Float32,
    repulsion: Float32,
    rates: Float32,
    negatives: int,
    out: Float32,
) -> None:
    count, words = np.uint64(len(positions)), np.uint64((negatives + 1) // 2)
    width = positions.shape[1]
    x, push = np.empty(width, np.float32), np.empty(width, np.float32)
    for place in range(len(keys)):
        for d in range(width):
            x[d] = start[place, d]
        for epoch in range(1, len(rates) + 1):
            rate = rates[epoch - 1]
            own = _mix(keys[place] + STEP * np.uint64(epoch))
            for edge in range(neighbors.shape[1]):
                if not _pulls(np.uint32(epoch), phases[place, edge]):
                    continue
                other = neighbors[place, edge]
                factor = _factor(attraction, _square(x, positions, other))
                for d in range(width):
                    x[d] += rate * _limit(factor * (x[d] - positions[other, d]))
                push[:] = ZERO
                word = np.uint64(0)
                for sample in range(negatives):
                    if sample % 2 == 0:
                        word = _mix(own + STEP * (np.uint64(edge) * words + np.uint64(sample // 2) + ONE))
                    half = word & LOW if sample % 2 else word >> HALF
                    far = np.int64((half * count) >> HALF)
                    factor = _factor(repulsion, _square(x, positions, far))
                    for d in range(width):
                        push[d] += _limit(factor * (x[d] - positions[far, d]))
                for d in range(width):
                    x[d] += rate * push[d]
        for d in range(width):
            out[place, d] = x[d]
