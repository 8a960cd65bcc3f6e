"""Tiles, (k, 64) arrays whose columns are 64 rows of a matrix: helpers of bodies that work row by row.

A sum over coordinates is then a sum of vectors, and a lane adds in the same order wherever its row is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import contracted_part, part

Array = npt.NDArray[Any]

LANES = 64


def compact(matrix: Array, dtype: np.dtype[Any]) -> Array:
    """Copy of a small matrix or vector in the one layout that tiles are compiled for."""
    return np.array(matrix, dtype, order="C")


@part
def load(rows: Array, first: int, count: int, tile: Array) -> None:
    for j in range(count):
        for t in range(rows.shape[1]):
            tile[t, j] = rows[first + j, t]


@part
def store(tile: Array, first: int, count: int, rows: Array) -> None:
    for j in range(count):
        for t in range(rows.shape[1]):
            rows[first + j, t] = tile[t, j]


@contracted_part
def multiply(matrix: Array, tile: Array, out: Array) -> None:
    """Write ``matrix @ tile`` into ``out``: a (k, k) matrix times a (k, 64) tile."""
    # Four coordinates at a time load and store the sums once instead of four times.
    k = matrix.shape[0]
    for t in range(k):
        for j in range(LANES):
            out[t, j] = 0
        r = 0
        while r + 4 <= k:
            g0, g1, g2, g3 = matrix[t, r], matrix[t, r + 1], matrix[t, r + 2], matrix[t, r + 3]
            for j in range(LANES):
                out[t, j] += g0 * tile[r, j] + g1 * tile[r + 1, j] + g2 * tile[r + 2, j] + g3 * tile[r + 3, j]
            r += 4
        while r < k:
            g0 = matrix[t, r]
            for j in range(LANES):
                out[t, j] += g0 * tile[r, j]
            r += 1
