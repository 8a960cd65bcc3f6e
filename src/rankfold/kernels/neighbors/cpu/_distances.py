"""Distances of stored rows by the sum that ``kernels/neighbors/lists.py`` fixes, to the last bit.

No multiplication is fused with an addition: the reference rounds both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import part
from rankfold.kernels.neighbors.lists import LANES, Metric

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

EUCLIDEAN = int(Metric.EUCLIDEAN)
COSINE = int(Metric.COSINE)
INNER_PRODUCT = int(Metric.INNER_PRODUCT)

Index = np.uint64
"""Index type of loops that are to be vectorized: a signed index is checked each time for being negative."""

ONE, TWO, THREE = Index(LANES), Index(2 * LANES), Index(3 * LANES)


def inner_product(metric: int) -> bool | None:
    """True for ``INNER_PRODUCT``, else None: two types, for which numba compiles loops with one sum each."""
    return True if metric == INNER_PRODUCT else None


@part
def load(x: Array, scale: float, metric: int, row: Float64) -> None:
    """Copy a row that many others are compared with into ``row``: in float64, and scaled for ``COSINE``."""
    scale = scale if metric == COSINE else 1.0
    for t in range(len(row)):
        row[t] = np.float64(x[t]) * scale


@part
def distance(
    row: Float64, scale_x: float, y: Array, j: int, scale_y: float, metric: int, inner: Any, sums: Float64
) -> float:
    """Key (distance) of ``row``, copied by ``load``, and row ``j`` of ``y``.

    ``inner`` is the result of ``inner_product``; ``sums``, (LANES,), is scratch.
    """
    if inner is not None:
        _add_products(row, y, Index(j), sums)
        return -_total(sums)
    if metric == COSINE and (scale_x == 0 or scale_y == 0):
        return 1.0
    # A product with 1 is exact: one loop serves all three.
    _add_squares(row, y, Index(j), scale_y if metric == COSINE else 1.0, sums)
    square = _total(sums)
    if metric == COSINE:
        return square / 2
    return np.sqrt(square) if metric == EUCLIDEAN else square


@part
def _add_squares(row: Float64, y: Array, j: Index, scale: float, sums: Float64) -> None:
    # Lanes innermost, so that they are vectors; four elements a lane at a time load and store it once.
    d = len(row)
    fours, whole = d - d % (4 * LANES), d - d % LANES
    sums[:] = 0
    for s in range(Index(0), Index(fours), Index(4 * LANES)):
        s1, s2, s3 = s + ONE, s + TWO, s + THREE
        for t in range(Index(LANES)):
            a = row[s + t] - np.float64(y[j, s + t]) * scale
            b = row[s1 + t] - np.float64(y[j, s1 + t]) * scale
            c = row[s2 + t] - np.float64(y[j, s2 + t]) * scale
            e = row[s3 + t] - np.float64(y[j, s3 + t]) * scale
            sums[t] = sums[t] + a * a + b * b + c * c + e * e
    for s in range(Index(fours), Index(whole), Index(LANES)):
        for t in range(Index(LANES)):
            a = row[s + t] - np.float64(y[j, s + t]) * scale
            sums[t] += a * a
    for t in range(Index(d - whole)):
        a = row[Index(whole) + t] - np.float64(y[j, Index(whole) + t]) * scale
        sums[t] += a * a


@part
def _add_products(row: Float64, y: Array, j: Index, sums: Float64) -> None:
    d = len(row)
    fours, whole = d - d % (4 * LANES), d - d % LANES
    sums[:] = 0
    for s in range(Index(0), Index(fours), Index(4 * LANES)):
        s1, s2, s3 = s + ONE, s + TWO, s + THREE
        for t in range(Index(LANES)):
            a, b = row[s + t] * np.float64(y[j, s + t]), row[s1 + t] * np.float64(y[j, s1 + t])
            c, e = row[s2 + t] * np.float64(y[j, s2 + t]), row[s3 + t] * np.float64(y[j, s3 + t])
            sums[t] = sums[t] + a + b + c + e
    for s in range(Index(fours), Index(whole), Index(LANES)):
        for t in range(Index(LANES)):
            sums[t] += row[s + t] * np.float64(y[j, s + t])
    for t in range(Index(d - whole)):
        sums[t] += row[Index(whole) + t] * np.float64(y[j, Index(whole) + t])


@part
def _total(sums: Float64) -> float:
    half = LANES // 2
    while half:
        for t in range(half):
            sums[t] += sums[t + half]
        half //= 2
    return sums[0]  # type: ignore[no-any-return]
