"""Points in a tree. See ``kernels/neighbors/tree.py``.

All points of a leaf are measured at once, as vectors; nodes wait on a stack, the nearer half on top.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop
from rankfold.kernels._dispatch import plain, wide
from rankfold.kernels.neighbors.cpu._heaps import TOP, sift, sort
from rankfold.kernels.neighbors.cpu._pairs import reach
from rankfold.kernels.neighbors.cpu._tree import (
    STACK,
    from_box,
    key_of,
    measure_leaf,
    out_of_box,
    split,
    wait_for_halves,
)
from rankfold.kernels.neighbors.tree import LEAF, Tree

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Index = np.uint64


def arrange_points(tree: Tree, *, count: int, node: int, first: int, last: int, levels: int) -> None:
    """See the contract; a stack of 64 nodes, and a leaf. Splits the points of a node into halves."""
    stack, leaf = np.empty((STACK, 4), np.int64), np.empty((LEAF, tree.points.shape[1]))
    stack[0] = node, first, last, levels
    _arrange(tree.rows(), tree.ids.reshape(-1), tree.points, tree.boxes, tree.least, count, stack, leaf)


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
    """See the contract; a stack of 64 nodes. Merges the nearest points of each query into its list."""
    inputs = _inputs(tree, queries, own, period, metric)
    _run(_nearest, inputs, (keys, ids), np.empty(STACK), *_scratch())


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
    """See the contract; a stack of 64 nodes. Counts the points within a radius of each query."""
    points = len(tree.ids) * LEAF - int(np.count_nonzero(np.isnan(tree.points[-1, 0])))
    inputs = _inputs(tree, queries, own, period, metric)
    _run(_count, inputs, (counts,), float(radius), points, *_scratch())


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
    """See the contract; a stack of 64 nodes. Lists the points within a radius of each query."""
    inputs = _inputs(tree, queries, own, period, metric)
    _run(_list, inputs, (keys, ids), float(radius), plain(starts), *_scratch())


def _inputs(tree: Tree, queries: Float64, own: Int64, period: Float64 | None, metric: int) -> tuple[Any, ...]:
    """First arguments of every loop of a search; if ``period`` is None, a loop without one is compiled."""
    arrays = (plain(tree.points), plain(tree.ids), plain(tree.boxes), plain(tree.least))
    return *arrays, wide(queries), plain(own), None if period is None else plain(period), int(metric)


def _run(
    loop: Callable[..., None], inputs: Sequence[object], outputs: Sequence[Array], *rest: object
) -> None:
    """Call a loop with outputs in C order; where they are not, with copies that are written back."""
    plain_outputs = [np.ascontiguousarray(a) for a in outputs]
    loop(*inputs, *plain_outputs, *rest)
    for a, copy in zip(outputs, plain_outputs, strict=True):
        if copy is not a:
            a[...] = copy


def _scratch() -> tuple[Any, ...]:
    """Stack of nodes to visit, and a buffer for the sums of a leaf."""
    return np.empty((STACK, 3), np.int64), np.empty(LEAF)


@compile_loop
def _arrange(
    x: Float64,
    ids: Int64,
    points: Float64,
    boxes: Float64,
    least: Int64,
    count: int,
    stack: Int64,
    leaf: Float64,
) -> None:
    columns, depth = x.shape[1], 1
    while depth:
        depth -= 1
        node, first, last, levels = stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3]
        a, b = first * LEAF, min(last * LEAF, count)
        for t in range(columns):
            boxes[node, 0, t] = boxes[node, 1, t] = x[a, t]
        smallest = ids[a]
        for p in range(a, b):
            smallest = min(smallest, ids[p])
            for t in range(columns):
                boxes[node, 0, t] = min(boxes[node, 0, t], x[p, t])
                boxes[node, 1, t] = max(boxes[node, 1, t], x[p, t])
        least[node] = smallest
        if last - first == 1:
            # The rows of a leaf are transposed in place.
            for j in range(LEAF):
                for t in range(columns):
                    leaf[j, t] = x[a + j, t]
            for j in range(LEAF):
                for t in range(columns):
                    points[first, t, j] = leaf[j, t]
        elif levels:
            axis = 0
            for t in range(columns):
                if boxes[node, 1, t] - boxes[node, 0, t] > boxes[node, 1, axis] - boxes[node, 0, axis]:
                    axis = t
            middle = (first + last) // 2
            split(x, ids, a, b, middle * LEAF, axis)
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = node + 1, first, middle
            stack[depth + 1, 0] = node + 2 * (middle - first)
            stack[depth + 1, 1], stack[depth + 1, 2] = middle, last
            stack[depth, 3] = stack[depth + 1, 3] = levels - 1
            depth += 2


@compile_loop
def _nearest(
    points: Float64,
    names: Int64,
    boxes: Float64,
    least: Int64,
    queries: Float64,
    own: Int64,
    period: Any,
    metric: int,
    keys: Float64,
    ids: Int64,
    bounds: Float64,
    stack: Int64,
    sums: Float64,
) -> None:
    k = keys.shape[1]
    for i in range(len(queries)):
        far, depth = reach(keys[i, 0], metric), 1
        stack[0, 0], stack[0, 1], stack[0, 2], bounds[0] = 0, 0, len(points), 0.0
        while depth:
            depth -= 1
            node, a, b, bound = stack[depth, 0], stack[depth, 1], stack[depth, 2], bounds[depth]
            if bound > far:
                continue
            if least[node] > ids[i, 0] and key_of(bound, metric) >= keys[i, 0]:
                continue
            if b - a == 1:
                measure_leaf(points, a, queries, i, metric, period, sums)
                for j in range(LEAF):
                    if sums[j] <= far:
                        key, name = key_of(sums[j], metric), names[a, j]
                        nearer = key < keys[i, 0] or (key == keys[i, 0] and name < ids[i, 0])
                        if nearer and name != own[i]:
                            sift(keys[i], ids[i], TOP, k, key, name)
                            far = reach(keys[i, 0], metric)
                continue
            middle = (a + b) // 2
            left, right = node + 1, node + 2 * (middle - a)
            to_left = from_box(boxes, left, queries, i, metric, period)
            to_right = from_box(boxes, right, queries, i, metric, period)
            left_first = to_left < to_right or (to_left == to_right and least[left] < least[right])
            near, far_off = (depth + 1, depth) if left_first else (depth, depth + 1)
            stack[near, 0], stack[near, 1], stack[near, 2], bounds[near] = left, a, middle, to_left
            stack[far_off, 0], stack[far_off, 1], stack[far_off, 2] = right, middle, b
            bounds[far_off] = to_right
            depth += 2


@compile_loop
def _count(
    points: Float64,
    names: Int64,
    boxes: Float64,
    least: Int64,
    queries: Float64,
    own: Int64,
    period: Any,
    metric: int,
    counts: Int64,
    radius: float,
    count: int,
    stack: Int64,
    sums: Float64,
) -> None:
    far = reach(radius, metric)
    for i in range(len(queries)):
        total, depth = 0, 1
        stack[0, 0], stack[0, 1], stack[0, 2] = 0, 0, len(points)
        while depth:
            depth -= 1
            node, a, b = stack[depth, 0], stack[depth, 1], stack[depth, 2]
            if from_box(boxes, node, queries, i, metric, period) > far:
                continue
            if key_of(out_of_box(boxes, node, queries, i, metric), metric) <= radius:
                total += min(b * LEAF, count) - a * LEAF
            elif b - a == 1:
                measure_leaf(points, a, queries, i, metric, period, sums)
                for j in range(LEAF):
                    if sums[j] <= far:
                        total += key_of(sums[j], metric) <= radius
            else:
                depth = wait_for_halves(stack, depth, node, a, b)
        # A point is within any radius of itself.
        counts[i] = total - (own[i] >= 0)


@compile_loop
def _list(
    points: Float64,
    names: Int64,
    boxes: Float64,
    least: Int64,
    queries: Float64,
    own: Int64,
    period: Any,
    metric: int,
    keys: Float64,
    ids: Int64,
    radius: float,
    starts: Int64,
    stack: Int64,
    sums: Float64,
) -> None:
    far = reach(radius, metric)
    for i in range(len(queries)):
        at, depth = starts[i], 1
        stack[0, 0], stack[0, 1], stack[0, 2] = 0, 0, len(points)
        while depth:
            depth -= 1
            node, a, b = stack[depth, 0], stack[depth, 1], stack[depth, 2]
            if from_box(boxes, node, queries, i, metric, period) > far:
                continue
            if b - a == 1:
                measure_leaf(points, a, queries, i, metric, period, sums)
                for j in range(LEAF):
                    if sums[j] <= far:
                        key = key_of(sums[j], metric)
                        if key <= radius and names[a, j] != own[i]:
                            keys[at], ids[at] = key, names[a, j]
                            at += 1
                continue
            depth = wait_for_halves(stack, depth, node, a, b)
        if at > starts[i]:
            sort(keys[starts[i] : at], ids[starts[i] : at])
