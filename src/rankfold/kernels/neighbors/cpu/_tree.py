"""Parts of loops over trees: cuts, distances of leaves, bounds of boxes. See ``kernels/neighbors/tree.py``.

A bound is computed in the same steps as its distance. Nothing is fused or reordered in either.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import part
from rankfold.kernels.neighbors.cpu._pairs import CHEBYSHEV, EUCLIDEAN, MANHATTAN
from rankfold.kernels.neighbors.tree import LEAF

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Index = np.uint64

STACK = 64
"""Largest number of nodes on the stack of a search: one for each level, and one more."""


@part
def key_of(total: float, metric: int) -> float:
    """Distance from a sum over coordinates: its root for the Euclidean metric, else the sum itself."""
    return np.sqrt(total) if metric == EUCLIDEAN else total


@part
def measure_leaf(
    points: Float64, leaf: int, queries: Float64, i: int, metric: int, period: Any, sums: Float64
) -> None:
    """Write sums over coordinates (see ``key_of``) of query ``i`` with all points of a leaf into ``sums``.

    ``leaf`` is its index in ``points``, ``period`` is (d,) or None: see ``nearest_in_tree``.
    """
    sums[:] = 0
    for t in range(points.shape[1]):
        q = queries[i, t]
        if metric == CHEBYSHEV:
            for j in range(Index(LEAF)):
                a = abs(points[leaf, t, j] - q)
                if period is not None:
                    a = min(a, period[t] - a)
                # The sum is on the left of the comparison, so that NaN stays.
                sums[j] = sums[j] if sums[j] > a else a
        elif metric == MANHATTAN:
            for j in range(Index(LEAF)):
                a = abs(points[leaf, t, j] - q)
                if period is not None:
                    a = min(a, period[t] - a)
                sums[j] += a
        else:
            for j in range(Index(LEAF)):
                a = abs(points[leaf, t, j] - q)
                if period is not None:
                    a = min(a, period[t] - a)
                sums[j] += a * a


@part
def from_box(boxes: Float64, node: int, queries: Float64, i: int, metric: int, period: Any) -> float:
    """Lower bound of the sums of query ``i`` with the points of a box: the sum of the gaps between both."""
    total = 0.0
    for t in range(boxes.shape[2]):
        q, low, high = queries[i, t], boxes[node, 0, t], boxes[node, 1, t]
        gap = max(max(low - q, q - high), 0.0)
        if period is not None:
            gap = min(gap, max(period[t] - max(abs(low - q), abs(high - q)), 0.0))
        if metric == CHEBYSHEV:
            total = max(total, gap)
        else:
            total += gap if metric == MANHATTAN else gap * gap
    return total


@part
def out_of_box(boxes: Float64, node: int, queries: Float64, i: int, metric: int) -> float:
    """Upper bound of the sums of query ``i`` with the points of a box: the sum to its farthest corner."""
    total = 0.0
    for t in range(boxes.shape[2]):
        gap = max(abs(boxes[node, 0, t] - queries[i, t]), abs(boxes[node, 1, t] - queries[i, t]))
        if metric == CHEBYSHEV:
            total = max(total, gap)
        else:
            total += gap if metric == MANHATTAN else gap * gap
    return total


@part
def split(x: Float64, ids: Int64, first: int, last: int, middle: int, axis: int) -> None:
    """Move rows ``first:last`` so that those before ``middle`` are the smallest by (coordinate, id)."""
    low, high = first, last - 1
    state = Index(low) ^ Index(high << 20)
    while low < high:
        # The median of three random rows: no order of rows makes it a bad pivot for long.
        state = state * Index(6364136223846793005) + Index(1442695040888963407)
        span = Index(high - low + 1)
        p = low + np.int64((state >> Index(33)) % span)
        state = state * Index(6364136223846793005) + Index(1442695040888963407)
        q = low + np.int64((state >> Index(33)) % span)
        state = state * Index(6364136223846793005) + Index(1442695040888963407)
        r = low + np.int64((state >> Index(33)) % span)
        if _before(x[q, axis], ids[q], x[p, axis], ids[p]):
            p, q = q, p
        if _before(x[r, axis], ids[r], x[q, axis], ids[q]):
            q = p if _before(x[r, axis], ids[r], x[p, axis], ids[p]) else r
        value, name = x[q, axis], ids[q]
        up, down = low, high
        while up <= down:
            while _before(x[up, axis], ids[up], value, name):
                up += 1
            while _before(value, name, x[down, axis], ids[down]):
                down -= 1
            if up <= down:
                for t in range(x.shape[1]):
                    x[up, t], x[down, t] = x[down, t], x[up, t]
                ids[up], ids[down] = ids[down], ids[up]
                up += 1
                down -= 1
        if middle <= down:
            high = down
        elif middle >= up:
            low = up
        else:
            return


@part
def _before(a: float, m: int, b: float, n: int) -> bool:
    return a < b or (a == b and m < n)


@part
def wait_for_halves(stack: Int64, depth: int, node: int, first: int, last: int) -> int:
    """Push both halves of a node on a stack, the left one on top; returns the new depth."""
    middle = (first + last) // 2
    stack[depth, 0], stack[depth, 1], stack[depth, 2] = node + 2 * (middle - first), middle, last
    stack[depth + 1, 0], stack[depth + 1, 1], stack[depth + 1, 2] = node + 1, first, middle
    return depth + 2
