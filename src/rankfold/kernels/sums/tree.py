"""A tree of points for sums: arrays of nodes in the order of a walk, without pointers to halves.

A node is a run of points. Its box, the smallest that holds them, is halved in the middle of its longest side:
points far from the others are alone after a few steps, and the rest has a small box again. (The tree for
neighbor searches cuts at the median. With tails, as those of a star cluster, all of its boxes then reach into
them, and hardly a node is far from anything: measured, five times as many pairs.) The nodes after a node are
those below it, up to ``skip``: a walk that does not enter a node continues there, and needs no stack.

A node of at most ``LEAF`` points is a leaf, and so is one whose points are all equal, however many.

The trap: points at distances that grow tenfold would each have a node of their own. Every node has a share of
the number of nodes that is allowed; where the halves would take more it is cut at the median.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

LEAF = 16
"""Largest number of points of a leaf, unless they are equal."""

START, STOP, SKIP = 0, 1, 2
"""Columns of nodes: first point, one past the last, the node after those below."""


class SumTree(NamedTuple):
    """Points in the order of their tree: a tuple, so that a kernel sees its arrays."""

    points: Float64
    """(n, d) coordinates."""

    ids: Int64
    """(n,) original row of each point."""

    nodes: Int64
    """(k, 3) nodes, with columns ``START``, ``STOP`` and ``SKIP``."""

    boxes: Float64
    """(k, 2, d) smallest and largest coordinates of each node."""

    @classmethod
    def of(cls, points: Float64, ids: Int64) -> SumTree:
        """Build the tree of some points; orders ``points`` and ``ids`` in place."""
        most = most_nodes(len(points))
        nodes, boxes = np.empty((most, 3), np.int64), np.empty((most, 2, points.shape[1]))
        count = grow_tree(points, ids, nodes=nodes, boxes=boxes)
        return cls(points, ids, nodes[:count], boxes[:count])


@kernel
def grow_tree(points: Float64, ids: Int64, *, nodes: Int64, boxes: Float64) -> int:
    """Put points into the order of their tree, in place, and write its nodes; returns their number.

    Parameters
    ----------
    points : (n, d), n >= 1
        Finite.
    ids : (n,)
        Ids of the points, which decide ties; moved with them.
    nodes : (most_nodes(n), 3)
        Written as far as needed.
    boxes : (most_nodes(n), 2, d)
        Written as far as needed.

    Notes
    -----
    Some ``n log2 n`` moves of ``d + 1`` numbers, and a stack. Which points a leaf has follows from the points
    and their ids; their order in a leaf may differ between bodies.
    """
    count, waiting = 0, [(0, len(points), most_nodes(len(points)))]
    while waiting:
        first, last, room = waiting.pop()
        x = points[first:last]
        nodes[count, :2] = first, last
        boxes[count, 0], boxes[count, 1] = x.min(axis=0), x.max(axis=0)
        sides = boxes[count, 1] - boxes[count, 0]
        if last - first > LEAF and sides.max() > 0:
            axis = int(sides.argmax())
            low, high = boxes[count, :, axis]
            middle = low + 0.5 * (high - low)
            middle = low if middle >= high else middle
            left = int((x[:, axis] <= middle).sum())
            spare = room - 1 - fewest_nodes(left) - fewest_nodes(last - first - left)
            if spare >= 0:
                order = np.argsort(x[:, axis] > middle, kind="stable")
            else:
                left, order = (last - first) // 2, np.lexsort((ids[first:last], x[:, axis]))
                spare = room - 1 - fewest_nodes(left) - fewest_nodes(last - first - left)
            points[first:last], ids[first:last] = x[order], ids[first:last][order]
            share = spare * left // (last - first)
            cut = first + left
            waiting.append((cut, last, fewest_nodes(last - cut) + spare - share))
            waiting.append((first, cut, fewest_nodes(left) + share))
        count += 1
    _write_skips(nodes[:count])
    return count


def _write_skips(nodes: Int64) -> None:
    """Write ``SKIP`` of each node, the first node after those below it: all that begin before it ends."""
    for node in range(len(nodes) - 1, -1, -1):
        after = node + 1
        while after < len(nodes) and nodes[after, START] < nodes[node, STOP]:
            after = int(nodes[after, SKIP])
        nodes[node, SKIP] = after


def fewest_nodes(points: int) -> int:
    """Number of nodes of a tree of ``points`` points with leaves of 8, or of one leaf of at most ``LEAF``."""
    return 1 if points <= LEAF else 2 * (-(-points // 8)) - 1


def most_nodes(points: int) -> int:
    """Largest number of nodes of a tree of ``points`` points: twice ``fewest_nodes``."""
    return 2 * fewest_nodes(points)


def tree_bytes(points: int, columns: int) -> int:
    """Upper bound on the bytes of a tree of ``points`` points of ``columns`` columns."""
    return points * 8 * (columns + 1) + most_nodes(points) * 8 * (3 + 2 * columns)
