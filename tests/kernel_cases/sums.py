"""Cases of kernels of the family ``sums``."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from kernel_cases.case import EPS, Array, Body, Case, MakeCase, Outputs, matrix

from rankfold.kernels.sums.laws import SMOOTH, Law
from rankfold.kernels.sums.moments import MOMENTS
from rankfold.kernels.sums.pairs import sum_pairs as pairs_kernel
from rankfold.kernels.sums.tree import SumTree, grow_tree, most_nodes
from rankfold.kernels.sums.tree_sums import ORDERS, Groups, Sources, Way

SCALES = {
    Law.INVERSE: 0.0,
    Law.CAUCHY: 3.0,
    Law.SQUARED_CAUCHY: 3.0,
    Law.GAUSSIAN: 0.02,
    Law.EXPONENTIAL: 0.2,
}


def points(shape: tuple[int, int], columns: int, seed: int = 3) -> Array:
    """Whole numbers among others, so that some points are equal."""
    x = matrix((7 * shape[0] + 40, columns), seed=seed)
    x[::3] = np.round(x[::3] / 8)
    return x


def tree_of(x: Array) -> SumTree:
    """As the reference body makes it."""
    copy, ids = x.copy(), np.arange(len(x))
    nodes, boxes = np.empty((most_nodes(len(x)), 3), np.int64), np.empty((most_nodes(len(x)), 2, x.shape[1]))
    count = grow_tree.reference(copy, ids, nodes=nodes, boxes=boxes)  # type: ignore[attr-defined]
    return SumTree(copy, ids, nodes[:count], boxes[:count])


def grow_case(shape: tuple[int, int], dtype: str) -> Case:
    x = points(shape, 1 + shape[1] % 3)
    x[:20] = 10.0 ** np.arange(20)[:, None]  # distances that grow tenfold

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        copy, ids, most = a["x"].copy(), np.arange(len(x)), most_nodes(len(x))
        nodes, boxes = np.zeros((most, 3), np.int64), np.zeros((most, 2, x.shape[1]))
        count = body(copy, ids, nodes=nodes, boxes=boxes)
        np.testing.assert_array_equal(copy, x[ids])
        leaves = nodes[:count][nodes[:count, 2] == np.arange(1, count + 1)]
        order = np.concatenate([np.sort(ids[start:stop]) for start, stop, _ in leaves])
        return {"order": order, "nodes": nodes[:count], "boxes": boxes[:count]}

    return Case({"x": x}, run)


def moments_case(shape: tuple[int, int], dtype: str) -> Case:
    tree = tree_of(points(shape, 1 + shape[1] % 3))
    weights = matrix((len(tree.points), 1), seed=8)[:, 0]
    weights[:9] = 0.0

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        moments = np.full((len(tree.nodes), MOMENTS), np.nan)
        assert body(tree, a["weights"], moments=moments) is None
        return {"moments": moments}

    # A moment of third order is a sum of products of four factors, twice: about centers that differ.
    largest = float((np.abs(weights).sum() + 1) * np.ptp(tree.points) ** 3)
    return Case({"weights": weights}, run, {"moments": 100 * EPS * largest})


def sum_case(shape: tuple[int, int], dtype: str, name: str) -> Case:
    """Targets among the sources and others, in groups of several lengths."""
    columns = 1 + shape[1] % (5 if name == "sum_pairs" else 3)
    x = points(shape, columns)
    tree = tree_of(x)
    weights, m = matrix((len(x), 1), seed=8)[:, 0], 40
    targets = np.concatenate([tree.points[:30], points((1, 1), columns, seed=9)[: m - 30]])
    own = np.concatenate([weights[:30], np.zeros(m - 30)])
    shifts, edges = np.linspace(-1.0, 2.0, m), np.array([0, 1, 1 + 7, m - 5, m])
    sources = Sources.of(tree, weights) if columns <= 3 else None
    errors: dict[str, float] = {}
    outputs: Outputs = {}
    for law, flag in itertools.product(Law, (False, True)):
        size, out = 1 + columns if law in SMOOTH else 1, np.zeros((m, 2 if law in SMOOTH else 1))
        how: dict[str, Any] = {"law": int(law), "scale": SCALES.get(law, 4.0)}
        pairs_kernel.reference(  # type: ignore[attr-defined]
            tree.points, weights, targets, own, shifts, **how, magnitudes=True, out=out
        )
        outputs[f"{law.name} {flag}"] = size, how, flag
        # Of all terms, whose distances, law and products are right to some ulp each; expansions have ten.
        errors[f"{law.name} {flag}"] = 1000 * EPS * float(out.max())

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        results: Outputs = {}
        for key, (size, how, flag) in outputs.items():
            out = np.zeros((m, size))
            if name == "sum_pairs":
                out = out[:, : 1 + min(size - 1, 1)].copy() if flag else out
                args = tree.points, a["weights"], a["targets"], a["own"], a["shifts"]
                assert body(*args, **how, magnitudes=flag, out=out) is None
            else:
                way = Way(how["law"], how["scale"], 0.8 * flag, ORDERS[flag], 1e-3)
                counts, floors = np.zeros((len(edges) - 1, 2), np.int64), np.full(m, -9.0)
                groups = Groups(a["targets"], a["own"], a["shifts"], floors, edges)
                assert sources is not None
                assert body(sources, groups, way, counts=counts, out=out) is None
                results[f"{key} counts"] = counts
            results[key] = out
        return results

    return Case({"weights": weights, "targets": targets, "own": own, "shifts": shifts}, run, errors)


def nearest_case(shape: tuple[int, int], dtype: str) -> Case:
    tree = tree_of(points(shape, 1 + shape[1] % 3))
    targets, own = tree.points[::5].copy(), np.arange(0, len(tree.points), 5)
    targets[1::2] += 0.25
    own[1::2] = -1

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        squares, places = np.zeros(len(targets)), np.zeros(len(targets), np.int64)
        assert body(tree, a["targets"], a["own"], squares=squares, places=places) is None
        return {"squares": squares, "places": places}

    return Case({"targets": targets, "own": own}, run)


CASES: dict[tuple[str, str], tuple[MakeCase, tuple[str, ...]]] = {
    ("sums.tree", "grow_tree"): (grow_case, ("float64",)),
    ("sums.moments", "node_moments"): (moments_case, ("float64",)),
    ("sums.pairs", "sum_pairs"): (lambda *case: sum_case(*case, "sum_pairs"), ("float64",)),
    ("sums.tree_sums", "sum_in_tree"): (lambda *case: sum_case(*case, "sum_in_tree"), ("float64",)),
    ("sums.nearest", "nearest_sources"): (nearest_case, ("float64",)),
}
