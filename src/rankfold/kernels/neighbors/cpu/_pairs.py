"""Loops that measure every pair of a tile. See ``kernels/neighbors/lists.py``.

Lanes are columns, 64 of them transposed once: the sum of each runs over its elements in order.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels.neighbors.cpu._heaps import take
from rankfold.kernels.neighbors.lists import Metric

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Index = np.uint64

EUCLIDEAN = int(Metric.EUCLIDEAN)
MANHATTAN = int(Metric.MANHATTAN)
CHEBYSHEV = int(Metric.CHEBYSHEV)
HAMMING = int(Metric.HAMMING)

RUN = 64
"""Columns (rows of the other side) that are measured at a time."""

WIDER = 1 + 2e-15
"""Factor that widens a squared key by more than rounding takes from the square and from its root."""

TINY = 1e-300
"""Term that widens a squared key by more than underflow takes from the square."""


@compile_loop
def measure(
    x: Float64,
    y: Float64,
    metric: int,
    keys_i: Float64,
    ids_i: Int64,
    keys_j: Float64,
    ids_j: Int64,
    first_i: int,
    first_j: int,
    diagonal: int,
    sums: Float64,
    near_columns: Int64,
    far_i: Float64,
    far_j: Float64,
    tile: Float64,
) -> None:
    p, q = len(keys_i), len(keys_j)
    for i in range(p):
        far_i[i] = reach(keys_i[i, 0], metric)
    for start in range(0, q, RUN):
        columns = min(RUN, q - start)
        _load(y, start, columns, tile)
        for j in range(RUN):
            far_j[j] = reach(keys_j[start + j, 0], metric) if j < columns else -np.inf
        for i in range(p):
            least = max(0, i + diagonal - start)
            if least >= columns:
                break
            _measure_run(x[i], tile, metric, sums)
            if not _any_near(sums, far_i[i], far_j):
                continue
            for t in range(_list_near(sums, far_i[i], far_j, near_columns)):
                j = near_columns[t]
                if least <= j < columns:
                    key = np.sqrt(sums[j]) if metric == EUCLIDEAN else sums[j]
                    take(keys_i[i], ids_i[i], key, first_j + start + j)
                    take(keys_j[start + j], ids_j[start + j], key, first_i + i)
                    far_j[j] = reach(keys_j[start + j, 0], metric)
            far_i[i] = reach(keys_i[i, 0], metric)


@numba.njit(nogil=True, error_model="numpy")
def compare(
    function: Any,
    x: Float64,
    y: Float64,
    keys_i: Float64,
    ids_i: Int64,
    keys_j: Float64,
    ids_j: Int64,
    first_i: int,
    first_j: int,
    diagonal: int,
    nowhere: Int64,
) -> None:
    for i in range(len(x)):
        for j in range(max(0, i + diagonal), len(y)):
            key = float(function(x[i], y[j]))
            if np.isnan(key):
                nowhere[0], nowhere[1] = first_i + i, first_j + j
                return
            take(keys_i[i], ids_i[i], key, first_j + j)
            take(keys_j[j], ids_j[j], key, first_i + i)


@part
def reach(root: float, metric: int) -> float:
    """Upper bound of the sums (squared if Euclidean) of pairs that may come before key ``root`` in a list."""
    if metric != EUCLIDEAN or root < 0:
        return root
    return root * root * WIDER + TINY


@part
def _load(y: Float64, start: int, columns: int, tile: Float64) -> None:
    # Lanes beyond the last column are NaN, which is nearer than nothing.
    tile[:] = np.nan
    for j in range(columns):
        for t in range(len(tile)):
            tile[t, j] = y[start + j, t]


@part
def _measure_run(row: Float64, tile: Float64, metric: int, sums: Float64) -> None:
    d, t = len(tile), 0
    sums[:] = 0
    if metric == CHEBYSHEV:
        for t in range(d):
            for j in range(Index(RUN)):
                apart = abs(row[t] - tile[t, j])
                sums[j] = sums[j] if sums[j] > apart else apart
        return
    if metric == MANHATTAN:
        for t in range(d):
            for j in range(Index(RUN)):
                sums[j] += abs(row[t] - tile[t, j])
        return
    if metric == HAMMING:
        for t in range(d):
            for j in range(Index(RUN)):
                sums[j] += 1.0 if row[t] != tile[t, j] else 0.0
        for j in range(Index(RUN)):
            sums[j] /= d
        return
    # Two elements at a time load and store the sums once instead of twice.
    for t in range(0, d - 1, 2):
        for j in range(Index(RUN)):
            a, b = row[t] - tile[t, j], row[t + 1] - tile[t + 1, j]
            sums[j] = sums[j] + a * a + b * b
    if d % 2:
        for j in range(Index(RUN)):
            a = row[d - 1] - tile[d - 1, j]
            sums[j] += a * a


@part
def _any_near(sums: Float64, far: float, far_j: Float64) -> bool:
    near = False
    for j in range(Index(RUN)):
        near |= (sums[j] <= far) | (sums[j] <= far_j[j])
    return near


@part
def _list_near(sums: Float64, far: float, far_j: Float64, near_columns: Int64) -> int:
    count = Index(0)
    for j in range(Index(RUN)):
        near_columns[count] = j
        count += Index((sums[j] <= far) | (sums[j] <= far_j[j]))
    return count  # type: ignore[return-value]
