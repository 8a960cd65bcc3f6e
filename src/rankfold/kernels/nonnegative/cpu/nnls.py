"""Nonnegative least squares for many rows. See ``kernels/nonnegative/nnls.py``.

Lanes are rows: a tile of 64 is transposed once, so that every sum over coordinates is a sum of vectors, and
stays in first-level cache for all its sweeps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, compile_with_contraction, contracted_part, part
from rankfold.kernels.nonnegative.nnls import EXCHANGES, RETRIES

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

LANES = 64


@contracted_part
def _slopes(gram: Array, b: Array, tile: Array, t: int, slope: Array) -> None:
    # Four coordinates at a time load and store the slopes once instead of four times.
    k = gram.shape[0]
    for j in range(LANES):
        slope[j] = -b[t, j]
    r = 0
    while r + 4 <= k:
        g0, g1, g2, g3 = gram[t, r], gram[t, r + 1], gram[t, r + 2], gram[t, r + 3]
        for j in range(LANES):
            slope[j] += g0 * tile[r, j] + g1 * tile[r + 1, j] + g2 * tile[r + 2, j] + g3 * tile[r + 3, j]
        r += 4
    while r < k:
        g0 = gram[t, r]
        for j in range(LANES):
            slope[j] += g0 * tile[r, j]
        r += 1


@contracted_part
def _descend_tile(gram: Array, b: Array, tile: Array, sweeps: int, slope: Array) -> None:
    for _ in range(sweeps):
        for t in range(gram.shape[0]):
            _slopes(gram, b, tile, t, slope)
            if gram[t, t] > 0:
                inverse = 1 / gram[t, t]
                for j in range(LANES):
                    tile[t, j] = max(tile[t, j] - slope[j] * inverse, gram.dtype.type(0))


@compile_with_contraction
def _descend(gram: Array, b: Array, w: Array, sweeps: int, tile: Array, right: Array, slope: Array) -> None:
    rows, k = w.shape
    for first in range(0, rows, LANES):
        count = min(LANES, rows - first)
        for j in range(count):
            for t in range(k):
                tile[t, j], right[t, j] = w[first + j, t], b[first + j, t]
        _descend_tile(gram, right, tile, sweeps, slope)
        for j in range(count):
            for t in range(k):
                w[first + j, t] = tile[t, j]


@part
def _solve_on(gram: Float64, b: Float64, passive: Array, index: Array, factor: Float64, x: Float64) -> bool:
    """Solve on the passive coordinates by Cholesky; False where they depend."""
    count = 0
    for i in range(b.shape[0]):
        x[i] = 0.0
        if passive[i]:
            index[count] = i
            count += 1
    for i in range(count):
        for j in range(i + 1):
            s = gram[index[i], index[j]]
            for r in range(j):
                s -= factor[i, r] * factor[j, r]
            if i == j:
                if not s > 0:
                    return False
                factor[i, i] = np.sqrt(s)
            else:
                factor[i, j] = s / factor[j, j]
    for i in range(count):
        s = b[index[i]]
        for r in range(i):
            s -= factor[i, r] * x[index[r]]
        x[index[i]] = s / factor[i, i]
    for i in range(count - 1, -1, -1):
        s = x[index[i]]
        for r in range(i + 1, count):
            s -= factor[r, i] * x[index[r]]
        x[index[i]] = s / factor[i, i]
    return True


@part
def _mark_wrong(gram: Float64, b: Float64, passive: Array, x: Float64, wrong: Array) -> int:
    """Which coordinates are infeasible, and how many."""
    k, largest, count = b.shape[0], 0.0, 0
    for i in range(k):
        largest = max(largest, abs(b[i]))
    for i in range(k):
        if passive[i]:
            wrong[i] = x[i] < 0
        else:
            y = -b[i]
            for r in range(k):
                y += gram[i, r] * x[r]
            wrong[i] = y < -1e-12 * largest
        count += wrong[i]
    return count


@part
def _pivot(
    gram: Float64, b: Float64, passive: Array, index: Array, factor: Float64, x: Float64, wrong: Array
) -> bool:
    """Exchange until nothing is infeasible; the solution is then in ``x``."""
    k = b.shape[0]
    retries, fewest = RETRIES, k + 1
    for _ in range(EXCHANGES * k):
        if not _solve_on(gram, b, passive, index, factor, x):
            return False
        count = _mark_wrong(gram, b, passive, x, wrong)
        if count == 0:
            return True
        all_of_them = True
        if count < fewest:
            fewest, retries = count, RETRIES
        elif retries:
            retries -= 1
        else:
            all_of_them = False
        for i in range(k - 1, -1, -1):
            if wrong[i]:
                passive[i] = not passive[i]
                if not all_of_them:
                    break
    return False


@compile_loop
def _solve(gram: Float64, b: Float64, w: Float64, tile: Float64, right: Float64, slope: Float64) -> None:
    rows, k = b.shape
    index, factor, x = np.zeros(k, np.int64), np.zeros((k, k)), np.zeros(k)
    passive, wrong = np.zeros(k, np.bool_), np.zeros(k, np.bool_)
    for row in range(rows):
        for i in range(k):
            passive[i] = w[row, i] > 0
        if _pivot(gram, b[row], passive, index, factor, x, wrong):
            for i in range(k):
                w[row, i] = x[i]
        else:
            _descend(gram, b[row : row + 1], w[row : row + 1], 200, tile, right, slope)


def descend_rows(gram: Array, b: Array, *, w: Array, sweeps: int) -> None:
    """See the contract; scratch three tiles."""
    _descend(gram, b, w, sweeps, *_tiles(w))


def solve_rows(gram: Float64, b: Float64, *, w: Float64) -> None:
    """See the contract; scratch 8 k^2 bytes."""
    ridge_gram = gram + 1e-14 * np.trace(gram) / len(gram) * np.eye(len(gram))
    _solve(ridge_gram, b, w, *_tiles(w))


def _tiles(w: Array) -> tuple[Array, Array, Array]:
    """Rows and right sides of a tile, and a slope: arrays that loops make themselves take long to compile."""
    shape = (w.shape[1], LANES)
    return np.zeros(shape, w.dtype), np.zeros(shape, w.dtype), np.zeros(LANES, w.dtype)
