"""Sums over a tree. See ``kernels/sums/tree_sums.py``.

A group adds a source or a node to all of its targets at once, as vectors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels._dispatch import plain
from rankfold.kernels.sums.cpu._laws import EXPONENTIAL, GAUSSIAN
from rankfold.kernels.sums.cpu._nodes import add_node
from rankfold.kernels.sums.cpu._sources import BLOCK, SIZE, add_source, begin, settle
from rankfold.kernels.sums.cpu.pairs import _load, _store
from rankfold.kernels.sums.laws import EXPONENTS, Law, at_zero
from rankfold.kernels.sums.moments import RADIUS, WEIGHT
from rankfold.kernels.sums.pairs import GROUP
from rankfold.kernels.sums.tree import SKIP, START, STOP
from rankfold.kernels.sums.tree_sums import (
    EXPENSIVE,
    FARTHEST,
    NEAREST,
    NODE_COST,
    NODES_SUMMED,
    PAIRS_SUMMED,
    Groups,
    Sources,
    Way,
    weight_limit,
)

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


def sum_in_tree(sources: Sources, groups: Groups, way: Way, *, counts: Int64, out: Float64) -> None:
    """See the contract; scratch a group, and runs of its targets. Sums over a tree at each target."""
    results: list[Any] = [np.ascontiguousarray(a) for a in (counts, out)]
    exponent, columns = EXPONENTS.get(Law(way.law), 0.0), groups.targets.shape[1]
    how = int(way.law), float(way.scale), float(exponent), float(way.opening), int(way.order)
    more = at_zero(way.law, way.scale), weight_limit(sources, way)
    scratch = np.empty(SIZE), np.empty((GROUP, 2), np.int64), np.empty((2, columns))
    _sum(tuple(map(plain, sources)), tuple(map(plain, groups)), how, more, scratch, *results)
    for a, result in zip((counts, out), results, strict=True):
        if result is not a:
            a[...] = result


@compile_loop
def _sum(tree: Any, groups: Any, how: Any, more: Any, scratch: Any, counts: Int64, out: Float64) -> None:
    targets, own, shifts, _, edges = groups
    group, runs, box = scratch
    for g in range(len(edges) - 1):
        counts[g, PAIRS_SUMMED] = counts[g, NODES_SUMMED] = 0
        runs[0, 0], runs[0, 1] = edges[g], edges[g + 1]
        waiting = 1
        while waiting:
            waiting -= 1
            first, last = runs[waiting, 0], runs[waiting, 1]
            if _is_better_halved(tree, groups, how, more[1], first, last, box):
                middle = (first + last) // 2
                runs[waiting, 0], runs[waiting, 1] = middle, last
                runs[waiting + 1, 0], runs[waiting + 1, 1] = first, middle
                waiting += 2
                continue
            _load(group, targets, shifts, first, last)
            begin(group)
            least = _surround(groups, first, last, box) + more[1]
            near, far = _walk(tree, how, box, least, group)
            _store(group, own, first, last, more[0], False, out)
            counts[g, PAIRS_SUMMED] += near * (last - first)
            counts[g, NODES_SUMMED] += far * (last - first)


@part
def _is_better_halved(
    tree: Any, groups: Any, how: Any, limit: float, first: int, last: int, box: Float64
) -> bool:
    """True if targets ``first:last`` would cost less one by one than together, judged by the middle one.

    ``limit`` is ``weight_limit``; ``box``, (2, d), is scratch.
    """
    if last - first < 2:
        return False
    whole = _cost(tree, how, box, _surround(groups, first, last, box) + limit)
    if whole <= EXPENSIVE:
        return False
    middle = (first + last) // 2
    alone = _cost(tree, how, box, _surround(groups, middle, middle + 1, box) + limit)
    return bool(alone * (last - first) < whole)


@part
def _walk(tree: Any, how: Any, box: Float64, least: float, group: Float64) -> tuple[int, int]:
    """Add all sources of a tree to the sums of a group of targets, whose bounding box is ``box``, in place.

    Sources for which the logarithm of the law is below ``least`` are left out, if the law decays. Returns the
    number of sources that were added one by one, and of nodes that were added by their moments.
    """
    points, nodes, boxes, weights, moments = tree
    law, scale, exponent, opening, order = how
    near, far, met, node = 0, 0, 0, 0
    while node < len(nodes):
        row, after = moments[node], nodes[node, SKIP]
        if law >= GAUSSIAN and _is_left_out(boxes, node, box, law, scale, least):
            node = after
        elif row[RADIUS] == 0.0:
            add_source(group, row[0], row[1], row[2], row[WEIGHT], law, scale, False)
            near, met, node = near + 1, met + 1, after
        elif _is_far(row, box, law, scale, opening):
            add_node(group, row, law, scale, exponent, order)
            far, met, node = far + 1, met + 1, after
        else:
            node += 1
            if after == node:
                size = nodes[node - 1, STOP] - nodes[node - 1, START]
                _add_leaf(group, points, weights, nodes[node - 1, START], size, law, scale)
                near, met = near + size, met + size
        if met >= BLOCK:
            settle(group, 5)
            met = 0
    settle(group, 5)
    return near, far


@part
def _cost(tree: Any, how: Any, box: Float64, least: float) -> int:
    """Cost of the sums of a group: the sources it would add, plus its far nodes times ``NODE_COST``.

    ``box`` and ``least`` are those of ``_walk``.
    """
    _, nodes, boxes, _, moments = tree
    law, scale, _, opening, _ = how
    cost, node = 0, 0
    while node < len(nodes):
        row, after = moments[node], nodes[node, SKIP]
        if law >= GAUSSIAN and _is_left_out(boxes, node, box, law, scale, least):
            node = after
        elif row[RADIUS] == 0.0:
            cost, node = cost + 1, after
        elif _is_far(row, box, law, scale, opening):
            cost, node = cost + NODE_COST, after
        else:
            node += 1
            if after == node:
                cost += nodes[node - 1, STOP] - nodes[node - 1, START]
    return cost


@part
def _surround(groups: Any, first: int, last: int, box: Float64) -> float:
    """Write the bounding box of targets ``first:last``; returns the least of their ``Groups.floors``."""
    targets, floors = groups[0], groups[3]
    for c in range(targets.shape[1]):
        box[0, c] = box[1, c] = targets[first, c]
    least = floors[first]
    for t in range(first, last):
        least = min(least, floors[t])
        for c in range(targets.shape[1]):
            box[0, c] = min(box[0, c], targets[t, c])
            box[1, c] = max(box[1, c], targets[t, c])
    return float(least)


@part
def _is_left_out(boxes: Float64, node: int, box: Float64, law: int, scale: float, least: float) -> bool:
    s = 0.0
    for c in range(box.shape[1]):
        gap = max(max(boxes[node, 0, c] - box[1, c], box[0, c] - boxes[node, 1, c]), 0.0)
        s += gap * gap
    if law == GAUSSIAN:
        return -s * scale < least
    if law == EXPONENTIAL:
        return -math.sqrt(s) * scale < least
    return bool(s > scale * scale)


@part
def _is_far(row: Float64, box: Float64, law: int, scale: float, opening: float) -> bool:
    s = 0.0
    for c in range(box.shape[1]):
        gap = max(max(box[0, c] - row[c], row[c] - box[1, c]), 0.0)
        s += gap * gap
    if law > GAUSSIAN or opening == 0.0 or s == 0.0:
        return False
    if law == GAUSSIAN:
        return bool(2.0 * scale * row[RADIUS] * max(1.0, 2.0 * scale * s) <= opening * opening)
    return bool(NEAREST < s + scale < FARTHEST and row[RADIUS] <= opening * opening * (s + scale))


@part
def _add_leaf(
    group: Float64, points: Float64, weights: Float64, first: int, size: int, law: int, scale: float
) -> None:
    d = points.shape[1]
    for p in range(first, first + size):
        y = points[p, 1] if d > 1 else 0.0
        z = points[p, 2] if d > 2 else 0.0
        add_source(group, points[p, 0], y, z, weights[p], law, scale, False)
