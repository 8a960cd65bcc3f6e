"""Multiplicative updates of many rows. See ``kernels/nonnegative/multiplicative.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, contracted_part
from rankfold.kernels.nonnegative.cpu._tiles import LANES, compact, load, multiply, store

Array = npt.NDArray[Any]


@contracted_part
def _multiply_tile(
    gram: Array, b: Array, tile: Array, shift: Array, floor: float, sweeps: int, below: Array
) -> None:
    for _ in range(sweeps):
        multiply(gram, tile, below)
        for t in range(gram.shape[0]):
            price = shift[t]
            for j in range(LANES):
                tile[t, j] = max(tile[t, j] * b[t, j] / (below[t, j] + price), floor)


@compile_loop
def _multiply(gram: Array, b: Array, w: Array, shift: Array, floor: float, sweeps: int) -> None:
    rows, k = w.shape
    tile, right = np.zeros((k, LANES), w.dtype), np.zeros((k, LANES), w.dtype)
    below = np.zeros((k, LANES), w.dtype)
    for first in range(0, rows, LANES):
        count = min(LANES, rows - first)
        load(w, first, count, tile)
        load(b, first, count, right)
        _multiply_tile(gram, right, tile, shift, floor, sweeps, below)
        store(tile, first, count, w)


def multiply_rows(gram: Array, b: Array, *, w: Array, linear: Array, floor: float, sweeps: int) -> None:
    """See the contract; scratch three tiles. Improves rows by multiplicative updates."""
    shift = compact(linear, w.dtype) + np.finfo(w.dtype).tiny
    _multiply(compact(gram, w.dtype), b, w, shift, w.dtype.type(floor), sweeps)
