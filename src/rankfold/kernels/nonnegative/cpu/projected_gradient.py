"""Projected gradients of many rows. See ``kernels/nonnegative/projected_gradient.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, contracted_part
from rankfold.kernels.nonnegative.cpu._tiles import LANES, compact, load, multiply

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@contracted_part
def _add_squares(b: Array, tile: Array, slope: Array, squares: Float64) -> None:
    for t in range(b.shape[0]):
        for j in range(LANES):
            s = np.float64(slope[t, j] - b[t, j])
            projection = s if tile[t, j] > 0 else min(s, 0.0)
            squares[t, j] += projection * projection


@compile_loop
def _gradient(
    gram: Array, b: Array, w: Array, tile: Array, right: Array, slope: Array, squares: Float64, sums: Float64
) -> None:
    rows, k = w.shape
    for first in range(0, rows, LANES):
        count = min(LANES, rows - first)
        if count < LANES:
            # Lanes without a row have no gradient.
            for t in range(k):
                for j in range(LANES):
                    tile[t, j], right[t, j] = 0, 0
        load(w, first, count, tile)
        load(b, first, count, right)
        multiply(gram, tile, slope)
        _add_squares(right, tile, slope, squares)
    for t in range(k):
        for j in range(LANES):
            sums[t] += squares[t, j]


def gradient_rows(gram: Array, b: Array, w: Array) -> Float64:
    """See the contract; scratch four tiles. Sums of squares of the projected gradient, by component.

    Row ``i`` adds to lane ``i mod 64``, lanes add up at the end.
    """
    k = w.shape[1]
    # Loops that allocate arrays take long to compile.
    tile, right, slope = (np.zeros((k, LANES), w.dtype) for _ in range(3))
    sums = np.zeros(k)
    _gradient(compact(gram, w.dtype), b, w, tile, right, slope, np.zeros((k, LANES)), sums)
    return sums
