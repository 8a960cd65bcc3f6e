"""A tree of points for sums. See ``kernels/sums/tree.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels.neighbors.cpu._tree import split
from rankfold.kernels.sums.tree import LEAF, SKIP, START, STOP

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

DEPTH = 4096
"""Bound on halvings for each column of points, for the size of the stack: a side of float64 numbers can be
cut at its middle some 2100 times."""


def grow_tree(points: Float64, ids: Int64, *, nodes: Int64, boxes: Float64) -> int:
    """See the contract; a stack of a few thousand nodes. Arranges points in a tree, and writes its nodes."""
    arrays = points, ids, nodes, boxes
    copies: Any = [np.ascontiguousarray(a) for a in arrays]
    stack = np.empty((2 * DEPTH * points.shape[1], 3), np.int64)
    rest: Any = (len(nodes), stack)
    count = int(_grow(*copies, *rest))
    for a, copy in zip(arrays, copies, strict=True):
        if copy is not a:
            a[...] = copy
    return count


@compile_loop
def _grow(points: Float64, ids: Int64, nodes: Int64, boxes: Float64, most: int, stack: Int64) -> int:
    count, depth = 0, 1
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, len(points), most
    while depth:
        depth -= 1
        first, last, room = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        nodes[count, START], nodes[count, STOP] = first, last
        axis = _bound(points, first, last, boxes[count])
        if last - first > LEAF and boxes[count, 1, axis] > boxes[count, 0, axis]:
            cut = _halve(points, ids, first, last, axis, boxes[count], room)
            spare = room - 1 - _fewest(cut - first) - _fewest(last - cut)
            share = spare * (cut - first) // (last - first)
            stack[depth, 0], stack[depth, 1] = cut, last
            stack[depth, 2] = _fewest(last - cut) + spare - share
            stack[depth + 1, 0], stack[depth + 1, 1] = first, cut
            stack[depth + 1, 2] = _fewest(cut - first) + share
            depth += 2
        count += 1
    _write_skips(nodes, count)
    return count


@part
def _fewest(points: int) -> int:
    return 1 if points <= LEAF else 2 * ((points + 7) // 8) - 1


@part
def _bound(points: Float64, first: int, last: int, box: Float64) -> int:
    """Write the (2, d) bounding box of points ``first:last``; returns the axis of its longest side."""
    axis = 0
    for c in range(points.shape[1]):
        low = high = points[first, c]
        for p in range(first, last):
            low, high = min(low, points[p, c]), max(high, points[p, c])
        box[0, c], box[1, c] = low, high
        if high - low > box[1, axis] - box[0, axis]:
            axis = c
    return axis


@part
def _halve(points: Float64, ids: Int64, first: int, last: int, axis: int, box: Float64, room: int) -> int:
    """Cut points ``first:last`` at the middle of their box along ``axis``, moving points and ids in place.

    Where the halves would need more than ``room`` nodes, they are cut at the median. Returns the position of
    the first point of the upper half.
    """
    low, high = box[0, axis], box[1, axis]
    middle = low + 0.5 * (high - low)
    if middle >= high:
        middle = low
    up, down = first, last - 1
    while up <= down:
        while up <= down and points[up, axis] <= middle:
            up += 1
        while up <= down and points[down, axis] > middle:
            down -= 1
        if up < down:
            for c in range(points.shape[1]):
                points[up, c], points[down, c] = points[down, c], points[up, c]
            ids[up], ids[down] = ids[down], ids[up]
            up += 1
            down -= 1
    if room - 1 - _fewest(up - first) - _fewest(last - up) >= 0:
        return up
    cut = first + (last - first) // 2
    split(points, ids, first, last, cut, axis)
    return cut


@part
def _write_skips(nodes: Int64, count: int) -> None:
    """Write ``SKIP`` of each node, the first node after those below it; from the last node on."""
    for node in range(count - 1, -1, -1):
        after = node + 1
        while after < count and nodes[after, START] < nodes[node, STOP]:
            after = nodes[after, SKIP]
        nodes[node, SKIP] = after
