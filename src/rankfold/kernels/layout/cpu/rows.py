"""Rows one after the other, compiled. See ``kernels/layout/rows.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop
from rankfold.kernels.layout.cpu.vertices import ONE, STEP, _factor, _limit, _mix, _pulls, _repel, _square
from rankfold.kernels.layout.forces import Forces
from rankfold.kernels.layout.rows import NewRows

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]


def place_rows(
    positions: Float32, rows: NewRows, *, forces: Forces, rates: Float32, negatives: int, out: Float32
) -> None:
    """See the contract; scratch two vectors of d numbers. Places new rows among vertices that stay."""
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
    width, words = positions.shape[1], np.uint64((negatives + 1) // 2)
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
                counter = own + STEP * (np.uint64(edge) * words + ONE)
                _repel(x, push, positions, repulsion, counter, negatives, rate)
        for d in range(width):
            out[place, d] = x[d]
