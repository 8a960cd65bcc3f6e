"""Weighted nonnegative least squares for many rows. See ``kernels/nonnegative/weighted_rows.py``.

The half of a row's Gram matrix is expanded to a whole one in first-level cache, and a step adds one of its
rows to all slopes: sums of vectors, none of which waits for the one before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, contracted_part, part

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@compile_loop
def _multiply_pairs(x: Array, out: Array) -> None:
    for row in range(x.shape[0]):
        place = 0
        for i in range(x.shape[1]):
            for j in range(i + 1):
                out[row, place + j] = x[row, i] * x[row, j]
            place += i + 1


@part
def _spread(half: Array, gram: Array) -> None:
    place = 0
    for i in range(gram.shape[0]):
        for j in range(i + 1):
            gram[i, j] = half[place + j]
            gram[j, i] = half[place + j]
        place += i + 1


@contracted_part
def _add(step: float, line: Array, slope: Array) -> None:
    for j in range(slope.shape[0]):
        slope[j] += step * line[j]


@part
def _first_slope(gram: Array, b: Array, w: Array, slope: Array) -> None:
    for j in range(b.shape[0]):
        slope[j] = -b[j]
    for t in range(b.shape[0]):
        if w[t] != 0:
            _add(w[t], gram[t], slope)


@compile_loop
def _descend(grams: Array, b: Array, w: Array, sweeps: int, gram: Array, slope: Array, own: Array) -> None:
    zero = own.dtype.type(0)
    for row in range(w.shape[0]):
        _spread(grams[row], gram)
        for t in range(w.shape[1]):
            own[t] = w[row, t]
        _first_slope(gram, b[row], own, slope)
        for _ in range(sweeps):
            for t in range(w.shape[1]):
                new = own[t]
                if gram[t, t] > 0:
                    new = max(own[t] - slope[t] / gram[t, t], zero)
                elif b[row, t] < 0:
                    new = zero
                if new != own[t]:
                    _add(new - own[t], gram[t], slope)
                    own[t] = new
        for t in range(w.shape[1]):
            w[row, t] = own[t]


@compile_loop
def _gradient(grams: Array, b: Array, w: Array, gram: Array, slope: Array, own: Array, sums: Float64) -> None:
    for row in range(w.shape[0]):
        _spread(grams[row], gram)
        for t in range(w.shape[1]):
            own[t] = w[row, t]
        _first_slope(gram, b[row], own, slope)
        for t in range(w.shape[1]):
            s = np.float64(slope[t])
            projection = s if own[t] > 0 else min(s, 0.0)
            sums[t] += projection * projection


def pair_products(x: Array, *, out: Array) -> None:
    """See the contract; no scratch. Products of every two coordinates of each row."""
    _multiply_pairs(x, out)


def descend_weighted_rows(grams: Array, b: Array, *, w: Array, sweeps: int) -> None:
    """See the contract; scratch one Gram matrix. Improves each row by coordinate descent on its own matrix.

    Divides where the reference multiplies by an inverse.
    """
    _descend(grams, b, w, sweeps, *_room(w))


def gradient_weighted_rows(grams: Array, b: Array, w: Array) -> Float64:
    """See the contract; scratch one Gram matrix. Sums of squares of the projected gradient, by component."""
    sums = np.zeros(w.shape[1])
    _gradient(grams, b, w, *_room(w), sums)
    return sums


def _room(w: Array) -> tuple[Array, Array, Array]:
    """Buffers for a Gram matrix (k, k), slopes (k,) and a row (k,), in the type of ``w``.

    Loops that allocate them take long to compile.
    """
    k = w.shape[1]
    return np.zeros((k, k), w.dtype), np.zeros(k, w.dtype), np.zeros(k, w.dtype)
