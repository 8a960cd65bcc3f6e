"""A tree of points of few dimensions, to find those nearest to others, or within a radius.

The tree is a balanced k-d tree without pointers. Points are stored leaf after leaf, ``LEAF`` to a leaf and
the last filled up with NaN. A node is a run of leaves ``a:b``. Its halves are ``a:m`` and ``m:b`` with
``m = (a + b) // 2``, cut across the longest side of the box of its points by (coordinate, id). Nodes are
numbered in preorder: those below a node of ``n`` leaves take ``2 n - 2`` numbers, so that its halves are
``node + 1`` and ``node + 2 (m - a)``.

Distances are those of ``lists.in_order``, with (distance, id) for ties. The bound of a box is the same sum of
the gaps between a point and the box. Rounding keeps order, so that in the same order of steps no bound is
above the distance of a point in the box, to the last bit: what a search leaves out is certain.

The trap: where very many points are equal, bounds rule nothing out. A node also keeps the smallest id below
it, and a list that is full at the same distance accepts no larger ids.

References
----------
Friedman, Bentley, Finkel, An algorithm for finding best matches in logarithmic expected time, ACM TOMS 3(3),
1977: cuts at the median across the widest side, leaves of several points. Here boxes are those of the
points, not of the cuts, the nearer half comes first, and ids settle ties.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.neighbors.lists import EMPTY, Metric, _take

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

LEAF = 16
"""Points of a leaf: two or four vectors, which are measured together."""

MEASURES = (Metric.EUCLIDEAN, Metric.SQEUCLIDEAN, Metric.MANHATTAN, Metric.CHEBYSHEV)
"""Metrics of a tree: the bound of a box is the same sum as a distance."""


class Tree(NamedTuple):
    """Arranged points: a tuple, so that a kernel sees its arrays."""

    points: Float64
    """(leaves, d, LEAF) coordinates, NaN where there is no point."""

    ids: Int64
    """(leaves, LEAF) ids of points, ``EMPTY`` where there is none."""

    boxes: Float64
    """(2 leaves - 1, 2, d): smallest and largest coordinates below each node."""

    least: Int64
    """(2 leaves - 1,) smallest id below each node."""

    @classmethod
    def empty(cls, points: int, columns: int) -> Tree:
        """Allocate a tree for ``points`` points of ``columns`` columns, to be written and arranged."""
        leaves = leaf_count(points)
        return cls(
            np.full((leaves, columns, LEAF), np.nan),
            np.full((leaves, LEAF), EMPTY),
            np.zeros((2 * leaves - 1, 2, columns)),
            np.full(2 * leaves - 1, EMPTY),
        )

    def rows(self) -> Float64:
        """(leaves * LEAF, d) points row by row, in the same memory, before they are arranged."""
        return self.points.reshape(-1, self.points.shape[1])


def leaf_count(points: int) -> int:
    """Number of leaves of a tree of ``points`` points."""
    return -(-points // LEAF)


def tree_bytes(points: int, columns: int) -> int:
    """Bytes of a tree of ``points`` points of ``columns`` columns."""
    leaves = leaf_count(points)
    return leaves * LEAF * (columns + 1) * 8 + (2 * leaves - 1) * (2 * columns + 1) * 8


@kernel
def arrange_points(tree: Tree, *, count: int, node: int, first: int, last: int, levels: int) -> None:
    """Arrange the points of a node: split them into halves, these into theirs, and so on, in place.

    Parameters
    ----------
    tree : Tree
        Points row by row in ``tree.rows()``, and their ids; those in the leaves of the node are its own.
        Boxes and smallest ids of the node and of those below are written. A leaf that is reached is
        transposed to the layout of ``Tree``.
    count : int
        Points of the whole tree.
    node, first, last : int
        Number of the node, and its leaves.
    levels : int
        Most levels to split. Nodes that are left below these are to be arranged by further calls.

    Notes
    -----
    About ``3 m log2(leaves)`` moves of ``d + 1`` numbers for m points; no scratch but for a stack. Which
    points a leaf has follows from the points; their order in a leaf may differ between bodies.
    """
    a, b = first * LEAF, min(last * LEAF, count)
    x, ids = tree.rows(), tree.ids.reshape(-1)
    tree.boxes[node, 0], tree.boxes[node, 1] = x[a:b].min(axis=0), x[a:b].max(axis=0)
    tree.least[node] = ids[a:b].min()
    if last - first == 1:
        tree.points[first] = x[a : a + LEAF].T.copy()
        return
    if not levels:
        return
    axis = int((tree.boxes[node, 1] - tree.boxes[node, 0]).argmax())
    order = a + np.lexsort((ids[a:b], x[a:b, axis]))
    x[a:b], ids[a:b] = x[order], ids[order]
    middle = (first + last) // 2
    for child, start, stop in ((node + 1, first, middle), (node + 2 * (middle - first), middle, last)):
        arrange_points.reference(  # type: ignore[attr-defined]
            tree, count=count, node=child, first=start, last=stop, levels=levels - 1
        )


@kernel
def nearest_in_tree(
    tree: Tree,
    queries: Float64,
    own: Int64,
    period: Float64 | None,
    *,
    metric: int,
    keys: Float64,
    ids: Int64,
) -> None:
    """Merge the points of a tree that are nearest to each query into its list, in place.

    Parameters
    ----------
    tree : Tree
        Arranged.
    queries : (q, d)
        Best in an order in which successive queries are near: what one has read is in cache for the next.
    own : (q,)
        Ids of the queries themselves, which they do not find; -1 for none.
    period : (d,) or None
        Lengths of a periodic box, inf for columns without a period. Differences are then those to the nearest
        image, ``min(a, period - a)`` of points within the box, from 0 to its length.
    metric : one of ``MEASURES``
    keys, ids : (q, k)
        Lists as in ``lists``, which hold none of the points of the tree. Written.

    Notes
    -----
    For points that fill d dimensions about ``(1 + (16 k / LEAF)^(1/d))^d`` leaves a query, and as many nodes.
    """
    for i in range(len(queries)):
        for key, name in zip(*_all_keys(tree, queries[i], metric, period), strict=True):
            if name != own[i]:
                _take(keys[i], ids[i], float(key), int(name))


@kernel
def count_within(
    tree: Tree,
    queries: Float64,
    own: Int64,
    period: Float64 | None,
    *,
    metric: int,
    radius: float,
    counts: Int64,
) -> None:
    """Count the points of a tree within a radius of each query, without the query itself.

    Parameters
    ----------
    tree, queries, own, period, metric
        As for ``nearest_in_tree``.
    radius : float, >= 0
        Largest key that counts.
    counts : (q,)
        Written.

    Notes
    -----
    Nodes that are within the radius as a whole are counted without a visit to their points.
    """
    for i in range(len(queries)):
        keys, names = _all_keys(tree, queries[i], metric, period)
        counts[i] = np.count_nonzero((keys <= radius) & (names != own[i]))


@kernel
def list_within(
    tree: Tree,
    queries: Float64,
    own: Int64,
    period: Float64 | None,
    *,
    metric: int,
    radius: float,
    starts: Int64,
    keys: Float64,
    ids: Int64,
) -> None:
    """List the points of a tree within a radius of each query, nearest first, then by id.

    Parameters
    ----------
    tree, queries, own, period, metric, radius
        As for ``count_within``.
    starts : (q,)
        Position in ``keys`` and ``ids`` where the list of each query begins; it has as many points as
        ``count_within`` counts.
    keys, ids : (n,)
        Written.
    """
    for i in range(len(queries)):
        every, names = _all_keys(tree, queries[i], metric, period)
        near = np.flatnonzero((every <= radius) & (names != own[i]))
        near = near[np.lexsort((names[near], every[near]))]
        room = slice(starts[i], starts[i] + len(near))
        keys[room], ids[room] = every[near], names[near]


def _all_keys(tree: Tree, query: Float64, metric: int, period: Float64 | None) -> tuple[Float64, Int64]:
    """Key and id of each point of a tree, for a query."""
    ids = tree.ids.reshape(-1)
    some = ids != EMPTY
    x = tree.points.transpose(0, 2, 1).reshape(len(ids), -1)[some]
    apart = np.abs(x - query)
    if period is not None:
        apart = np.minimum(apart, period - apart)
    if metric == Metric.CHEBYSHEV:
        return apart.max(axis=1), ids[some]
    terms = apart if metric == Metric.MANHATTAN else apart * apart
    total = terms.cumsum(axis=1)[:, -1]
    return (np.sqrt(total) if metric == Metric.EUCLIDEAN else total), ids[some]
