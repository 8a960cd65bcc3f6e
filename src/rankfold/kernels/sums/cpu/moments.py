"""Moments of nodes. See ``kernels/sums/moments.py``.

A node has a larger number than its parent: from the last node to the first, halves come before parents.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels._dispatch import plain
from rankfold.kernels.sums.moments import (
    FIRST,
    MAGNITUDE,
    PAIRS,
    RADIUS,
    SECOND,
    THIRD,
    TRIPLES,
    WEIGHT,
)
from rankfold.kernels.sums.tree import SKIP, START, STOP, SumTree

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

PAIR = np.array([[PAIRS.index((min(a, b), max(a, b))) for b in range(3)] for a in range(3)])
"""(3, 3) position of the second moment of two columns in ``PAIRS``."""

PAIR_LIST = np.array(PAIRS)
TRIPLE_LIST = np.array(TRIPLES)


def node_moments(tree: SumTree, weights: Float64, *, moments: Float64) -> None:
    """See the contract. Moments of the sources of each node of a tree."""
    result = np.ascontiguousarray(moments)
    _moments(plain(tree.points), plain(tree.nodes), plain(tree.boxes), plain(weights), result)
    if result is not moments:
        moments[...] = result


@compile_loop
def _moments(points: Float64, nodes: Int64, boxes: Float64, weights: Float64, moments: Float64) -> None:
    moments[:] = 0.0
    for node in range(len(nodes) - 1, -1, -1):
        row = moments[node]
        if nodes[node, SKIP] == node + 1:
            _of_leaf(points, boxes, weights, node, nodes[node, START], nodes[node, STOP], row)
        else:
            left = node + 1
            right = nodes[left, SKIP]
            _place(boxes, node, moments[left], moments[right], row)
            _shift(moments[left], row)
            _shift(moments[right], row)


@part
def _of_leaf(
    points: Float64, boxes: Float64, weights: Float64, node: int, first: int, last: int, row: Float64
) -> None:
    d = points.shape[1]
    for p in range(first, last):
        row[WEIGHT] += weights[p]
        row[MAGNITUDE] += abs(weights[p])
        for c in range(d):
            row[c] += abs(weights[p]) * points[p, c]
    for c in range(d):
        row[c] = row[c] / row[MAGNITUDE] if row[MAGNITUDE] else 0.5 * (boxes[node, 0, c] + boxes[node, 1, c])
    _measure(boxes, node, row)
    for p in range(first, last):
        x = points[p, 0] - row[0]
        y = points[p, 1] - row[1] if d > 1 else 0.0
        z = points[p, 2] - row[2] if d > 2 else 0.0
        _add_powers(row, weights[p], x, y, z)


@part
def _add_powers(row: Float64, w: float, x: float, y: float, z: float) -> None:
    """Add to a node's row of moments those of a point of weight ``w`` at (x, y, z) from the center."""
    row[FIRST] += w * x
    row[FIRST + 1] += w * y
    row[FIRST + 2] += w * z
    xx, xy, xz, yy, yz, zz = w * x * x, w * x * y, w * x * z, w * y * y, w * y * z, w * z * z
    row[SECOND] += xx
    row[SECOND + 1] += xy
    row[SECOND + 2] += xz
    row[SECOND + 3] += yy
    row[SECOND + 4] += yz
    row[SECOND + 5] += zz
    row[THIRD] += xx * x
    row[THIRD + 1] += xx * y
    row[THIRD + 2] += xx * z
    row[THIRD + 3] += xy * y
    row[THIRD + 4] += xy * z
    row[THIRD + 5] += xz * z
    row[THIRD + 6] += yy * y
    row[THIRD + 7] += yy * z
    row[THIRD + 8] += yz * z
    row[THIRD + 9] += zz * z


@part
def _place(boxes: Float64, node: int, left: Float64, right: Float64, row: Float64) -> None:
    """Write center, radius and weights of a node into ``row``, from the rows of moments of its halves."""
    row[WEIGHT] = left[WEIGHT] + right[WEIGHT]
    row[MAGNITUDE] = left[MAGNITUDE] + right[MAGNITUDE]
    for c in range(boxes.shape[2]):
        if row[MAGNITUDE]:
            row[c] = (left[MAGNITUDE] * left[c] + right[MAGNITUDE] * right[c]) / row[MAGNITUDE]
        else:
            row[c] = 0.5 * (boxes[node, 0, c] + boxes[node, 1, c])
    _measure(boxes, node, row)


@part
def _measure(boxes: Float64, node: int, row: Float64) -> None:
    """Clip the center in ``row`` to the box of its node, and write the square of the radius.

    The center of equal points is then one of them, to the last bit.
    """
    for c in range(boxes.shape[2]):
        low, high = boxes[node, 0, c], boxes[node, 1, c]
        row[c] = min(max(row[c], low), high)
        gap = max(row[c] - low, high - row[c])
        row[RADIUS] += gap * gap


@part
def _shift(half: Float64, row: Float64) -> None:
    """Add to a node's row of moments those of one of its halves, shifted to the center of ``row``.

    t, u and v are differences of the two centers.
    """
    for p in range(10):
        a, b, c = TRIPLE_LIST[p, 0], TRIPLE_LIST[p, 1], TRIPLE_LIST[p, 2]
        t, u, v = half[a] - row[a], half[b] - row[b], half[c] - row[c]
        row[THIRD + p] += (
            half[THIRD + p]
            + t * half[SECOND + PAIR[b, c]]
            + u * half[SECOND + PAIR[a, c]]
            + v * half[SECOND + PAIR[a, b]]
            + t * u * half[FIRST + c]
            + t * v * half[FIRST + b]
            + u * v * half[FIRST + a]
            + t * u * v * half[WEIGHT]
        )
    for p in range(6):
        a, b = PAIR_LIST[p, 0], PAIR_LIST[p, 1]
        t, u = half[a] - row[a], half[b] - row[b]
        moment = half[SECOND + p] + t * half[FIRST + b] + u * half[FIRST + a] + t * u * half[WEIGHT]
        row[SECOND + p] += moment
    for a in range(3):
        row[FIRST + a] += half[FIRST + a] + (half[a] - row[a]) * half[WEIGHT]
