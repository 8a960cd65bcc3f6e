"""Rows one after the other, compiled. See ``kernels/graph/fuzzy.py``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels.graph.fuzzy import CLOSE, LARGEST_UNIT, LEAST_UNIT, LEAST_WIDTH, STEPS

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]

ZERO = np.float32(0)


def membership(
    distances: Array, mean_distance: float, *, local_connectivity: float = 1.0, first: int = 0, out: Array
) -> None:
    """See the contract; scratch one row. Membership strengths of the neighbors of each row, as in UMAP."""
    _weigh_rows(distances, float(mean_distance), float(local_connectivity), first, out)


@compile_loop
def _weigh_rows(
    distances: Array, mean_distance: float, local_connectivity: float, first: int, out: Array
) -> None:
    count = distances.shape[1]
    beyond, target = np.empty(count, np.float32), math.log2(count + 1 - first)
    for i in range(len(distances)):
        total = 0.0
        for j in range(count):
            total += distances[i, j]
        unit, total = _unit(total / count), 0.0
        for j in range(count):
            beyond[j] = distances[i, j] / unit
            total += beyond[j]
        rho = _rho(beyond, local_connectivity)
        for j in range(count):
            beyond[j] -= rho
        mean = total / (count + 1 - first) if rho > ZERO else mean_distance / unit
        width = np.float32(max(_width(beyond[first:], target), LEAST_WIDTH * mean))
        for j in range(count):
            out[i, j] = _strength(beyond[j], width)


@part
def _unit(mean: float) -> float:
    """A power of two near a mean, or 1 if the mean is not far from 1."""
    if mean == 0 or LEAST_UNIT <= mean <= LARGEST_UNIT:
        return 1.0
    return math.ldexp(1.0, math.frexp(mean)[1])


@part
def _rho(d: Float32, local_connectivity: float) -> Any:
    """Distance rho up to which neighbors weigh 1, of a row whose neighbors are at the increasing ``d``."""
    count, first = len(d), 0
    while first < count and d[first] <= ZERO:
        first += 1
    if first == count:
        return ZERO
    index = math.floor(local_connectivity)
    between = local_connectivity - index
    rho = d[min(first + index, count) - 1] if index > 0 else ZERO
    if count - first >= local_connectivity and between > CLOSE:
        rho = np.float32(rho + between * (d[first + index] - rho))
    return rho


@part
def _width(beyond: Float32, target: float) -> float:
    """Width (sigma) for which the weights of a row have the sum ``target``; ``beyond`` is d - rho."""
    low, high, width = 0.0, np.inf, 1.0
    for _ in range(STEPS):
        total = 0.0
        for j in range(len(beyond)):
            total += _strength(beyond[j], width)
        if abs(total - target) < CLOSE:
            break
        if total > target:
            high = width
        else:
            low = width
        width = (low + high) / 2 if high < np.inf else 2 * width
    return width


@part
def _strength(beyond: Any, width: Any) -> float:
    return math.exp(-(np.float64(beyond) / np.float64(width))) if beyond > ZERO and width > 0 else 1.0
