"""The nearest source. See ``kernels/sums/nearest.py``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels._dispatch import plain
from rankfold.kernels.sums.tree import SKIP, START, STOP, SumTree

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


def nearest_sources(tree: SumTree, targets: Float64, own: Int64, *, squares: Float64, places: Int64) -> None:
    """See the contract. Squared distance and position of the nearest source of each target."""
    inputs = [plain(a) for a in (tree.points, tree.nodes, tree.boxes, targets, own)]
    results = [np.ascontiguousarray(a) for a in (squares, places)]
    _search(*inputs, *results)
    for a, result in zip((squares, places), results, strict=True):
        if result is not a:
            a[...] = result


@compile_loop
def _search(
    points: Float64,
    nodes: Int64,
    boxes: Float64,
    targets: Float64,
    own: Int64,
    squares: Float64,
    places: Int64,
) -> None:
    last = -1
    for i in range(len(targets)):
        best, place = np.inf, -1
        if last >= 0 and last != own[i]:
            best, place = _square(points, last, targets, i), last
        node = 0
        while node < len(nodes):
            if _from_box(boxes, node, targets, i) > best:
                node = nodes[node, SKIP]
                continue
            node += 1
            if nodes[node - 1, SKIP] == node:
                first, stop = nodes[node - 1, START], nodes[node - 1, STOP]
                # Points of a box without extent are equal: two are enough, as one may be the target itself.
                if stop - first > 2 and _is_place(boxes, node - 1):
                    stop = first + 2
                for p in range(first, stop):
                    if p != own[i]:
                        s = _square(points, p, targets, i)
                        if s < best or (s == best and p < place):
                            best, place = s, p
        if best == np.inf:
            place = -1
        squares[i], places[i] = best, place
        last = place


@part
def _is_place(boxes: Float64, node: int) -> bool:
    extent = 0.0
    for c in range(boxes.shape[2]):
        extent = max(extent, boxes[node, 1, c] - boxes[node, 0, c])
    return extent == 0.0


@part
def _square(points: Float64, p: int, targets: Float64, i: int) -> float:
    total = 0.0
    for c in range(points.shape[1]):
        a = targets[i, c] - points[p, c]
        total += a * a
    return total


@part
def _from_box(boxes: Float64, node: int, targets: Float64, i: int) -> float:
    total = 0.0
    for c in range(boxes.shape[2]):
        gap = max(max(boxes[node, 0, c] - targets[i, c], targets[i, c] - boxes[node, 1, c]), 0.0)
        total += gap * gap
    return total
