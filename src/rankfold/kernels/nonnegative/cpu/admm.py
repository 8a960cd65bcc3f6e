"""Alternating directions for many rows. See ``kernels/nonnegative/admm.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, contracted_part
from rankfold.kernels.nonnegative.admm import penalty_and_inverse
from rankfold.kernels.nonnegative.cpu._tiles import LANES, compact, load, multiply, store

Array = npt.NDArray[Any]


@contracted_part
def _onto_box(free: Array, upper: float, tile: Array) -> None:
    for t in range(free.shape[0]):
        for j in range(LANES):
            tile[t, j] = min(max(free[t, j], free.dtype.type(0)), upper)


@contracted_part
def _raise_thresholds(free: Array, top: Array, threshold: Array, excess: Array, count: Array) -> bool:
    """Raise the threshold of each of 64 rows to (sum of its coordinates above it - 1) / their number.

    ``free`` is (k, 64), a row a column; its coordinates are taken less ``top``, the largest of each row.
    ``excess`` and ``count``, (64,), are scratch. Returns True if any threshold was raised.
    """
    k, zero, one = free.shape[0], free.dtype.type(0), free.dtype.type(1)
    for j in range(LANES):
        excess[j], count[j] = -one, zero
    for t in range(k):
        for j in range(LANES):
            v = free[t, j] - top[j]
            above = v > threshold[j]
            excess[j] += v if above else zero
            count[j] += one if above else zero
    rises = 0
    for j in range(LANES):
        mean = excess[j] / count[j]
        rises += mean > threshold[j]
        threshold[j] = max(threshold[j], mean)
    return rises > 0


@contracted_part
def _onto_simplex(free: Array, lanes: Array, tile: Array) -> None:
    # Michelot's variable fixing. A threshold only rises, and stays once its lane is done: rounds that other
    # lanes need do not change it. The largest coordinate keeps at most 1, so thresholds start 1 below it.
    k, zero = free.shape[0], free.dtype.type(0)
    top, threshold, excess, count = lanes[0], lanes[1], lanes[2], lanes[3]
    for j in range(LANES):
        top[j], threshold[j] = free[0, j], -1
    for t in range(1, k):
        for j in range(LANES):
            top[j] = max(top[j], free[t, j])
    while _raise_thresholds(free, top, threshold, excess, count):
        pass
    for t in range(k):
        for j in range(LANES):
            tile[t, j] = max(free[t, j] - top[j] - threshold[j], zero)


@contracted_part
def _first_step(slope: Array, b: Array, tile: Array, penalty: float, free: Array) -> None:
    for t in range(b.shape[0]):
        for j in range(LANES):
            free[t, j] = tile[t, j] - (slope[t, j] - b[t, j]) / penalty


@contracted_part
def _right_side(b: Array, tile: Array, free: Array, penalty: float, right: Array) -> None:
    # The dual variable is tile - free: what the projection changed.
    for t in range(b.shape[0]):
        for j in range(LANES):
            right[t, j] = b[t, j] + penalty * (tile[t, j] + (tile[t, j] - free[t, j]))


@contracted_part
def _without_dual(solution: Array, tile: Array, free: Array) -> None:
    for t in range(free.shape[0]):
        for j in range(LANES):
            free[t, j] = solution[t, j] - (tile[t, j] - free[t, j])


@compile_loop
def _split(
    gram: Array, inverse: Array, b: Array, w: Array, penalty: float, sweeps: int, upper: float, simplex: bool
) -> None:
    rows, k = w.shape
    tile, b_tile, free = (
        np.zeros((k, LANES), w.dtype),
        np.zeros((k, LANES), w.dtype),
        np.zeros((k, LANES), w.dtype),
    )
    right, solution = np.zeros((k, LANES), w.dtype), np.zeros((k, LANES), w.dtype)
    lanes = np.zeros((4, LANES), w.dtype)
    for first in range(0, rows, LANES):
        count = min(LANES, rows - first)
        load(w, first, count, tile)
        load(b, first, count, b_tile)
        for sweep in range(sweeps):
            if not penalty > 0:
                free[:] = tile
            elif sweep == 0:
                multiply(gram, tile, solution)
                _first_step(solution, b_tile, tile, penalty, free)
            else:
                _right_side(b_tile, tile, free, penalty, right)
                multiply(inverse, right, solution)
                _without_dual(solution, tile, free)
            if simplex:
                _onto_simplex(free, lanes, tile)
            else:
                _onto_box(free, upper, tile)
        store(tile, first, count, w)


def split_rows(gram: Array, b: Array, *, w: Array, sweeps: int, upper: float, simplex: bool) -> None:
    """See the contract; scratch five tiles. Improves rows by ADMM, with projections that do not sort."""
    penalty, inverse = penalty_and_inverse(gram, w.dtype)
    if not penalty > 0:
        sweeps = 1
    limit = w.dtype.type(upper)
    _split(compact(gram, w.dtype), compact(inverse, w.dtype), b, w, penalty, sweeps, limit, simplex)
