"""Rows one after the other, compiled. See ``kernels/graph/perplexity.py``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels.graph.perplexity import CLOSE, STEPS

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


def affinities(distances: Array, perplexities: Float64, *, out: Array) -> None:
    """See the contract; scratch three rows. Weights of the neighbors of each row, as in t-SNE."""
    _weigh_rows(distances, np.log(perplexities), out)


@compile_loop
def _weigh_rows(distances: Array, targets: Float64, out: Array) -> None:
    count = distances.shape[1]
    squares, weights, total = np.empty(count), np.empty(count), np.empty(count)
    for i in range(len(distances)):
        least = np.inf
        for j in range(count):
            distance = np.float64(distances[i, j])
            squares[j] = distance * distance
            least = min(least, squares[j])
        ties, mean = 0, 0.0
        for j in range(count):
            squares[j] -= least
            mean += squares[j]
            ties += squares[j] == 0
            total[j] = 0
        mean /= max(1, count - ties)
        for j in range(count if mean > 0 else 0):
            squares[j] /= mean
        for target in targets:
            if mean == 0 or math.log(ties) >= target:
                for j in range(count):
                    total[j] += 1 / ties if squares[j] == 0 else 0.0
                continue
            beta = _precision(squares, weights, target)
            whole = 0.0
            for j in range(count):
                weights[j] = math.exp(-beta * squares[j])
                whole += weights[j]
            for j in range(count):
                total[j] += weights[j] / whole
        for j in range(count):
            out[i, j] = total[j] / len(targets)


@part
def _precision(squares: Float64, weights: Float64, target: float) -> float:
    """Precision beta at which the weights ``exp(-beta squares)`` of a row have the entropy ``target``.

    The mean of the squares is 1; ``weights`` is scratch.
    """
    low, high, beta = 0.0, np.inf, 1.0
    for _ in range(STEPS):
        for j in range(len(squares)):
            weights[j] = math.exp(-beta * squares[j])
        total = first = second = 0.0
        for j in range(len(squares)):
            weighed = weights[j] * squares[j]
            total += weights[j]
            first += weighed
            second += weighed * squares[j]
        first, second = first / total, second / total
        excess = math.log(total) + beta * first - target
        if abs(excess) < CLOSE:
            break
        if excess > 0:
            low = beta
        else:
            high = beta
        step = beta + excess / (beta * (second - first * first))
        if low < step < high and step < 4 * beta:
            beta = step
        else:
            beta = (low + high) / 2 if high < np.inf else 2 * beta
    return beta
