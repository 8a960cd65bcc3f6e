"""Cases of kernels of the family ``neighbors``."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from kernel_cases.case import (
    ALL,
    EPS,
    FLOATS,
    Array,
    Body,
    Case,
    MakeCase,
    Outputs,
    apart,
    fill,
    increasing,
    listed,
    matrix,
    near,
    working,
)

from rankfold.kernels.neighbors import lists as neighbors
from rankfold.kernels.neighbors.meeting import Lists, Rows
from rankfold.kernels.neighbors.ranking import Thresholds
from rankfold.kernels.neighbors.sparse_meeting import SparseRows, square_rows
from rankfold.kernels.neighbors.tree import MEASURES, Tree, arrange_points


def scan_case(shape: tuple[int, int], dtype: str) -> Case:
    (p, q), d = shape, 5
    x, y = matrix((p, d), dtype), matrix((q, d), dtype, seed=6)
    near_i, near_j = near(dtype, x, y)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        outputs = {}
        for diagonal, limit in ((-p, np.inf), (1, 200.0), (0, -np.inf)):
            rows, columns = fill(p, 4, 250, -1, dtype, np.int32), fill(q, 3, limit, -1, dtype, np.int32)
            lists = {"bounds_i": rows[0], "places_i": rows[1], "bounds_j": columns[0], "places_j": columns[1]}
            assert body(*a.values(), **lists, first_i=7, first_j=9, diagonal=diagonal) is None
            outputs |= listed(f"{diagonal} rows", *rows) | listed(f"{diagonal} columns", *columns)
        return outputs

    # Every rounding of a bound is fixed, and equal bounds are told apart by their places.
    return Case({"products": x @ y.T, "near_i": near_i, "near_j": near_j}, run)


def limit_case(shape: tuple[int, int], dtype: str) -> Case:
    (p, q), d = shape, 5
    x, y = matrix((p, d), dtype), matrix((q, d), dtype, seed=6)
    near_i, near_j = near(dtype, x, y)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        outputs = {}
        for diagonal, limit in ((-p, np.inf), (1, 2.0), (0, -np.inf)):
            rows, columns = (xp.full((n, c), top, dtype) for n, c, top in ((p, 2, np.inf), (q, 1, limit)))
            assert body(*a.values(), bounds_i=rows, bounds_j=columns, diagonal=diagonal) is None
            for side, limits in (("rows", rows), ("columns", columns)):
                outputs[f"{diagonal} {side}"] = xp.clip(limits, -1e9, 1e9)  # no limit is infinity
        return outputs

    return Case({"products": x @ y.T, "near_i": near_i, "near_j": near_j}, run)


def refine_case(shape: tuple[int, int], dtype: str) -> Case:
    p, d, q, c = shape[0], 3 * shape[1], shape[0] + 2, 5
    x, y = matrix((p, d), dtype), matrix((q, d), dtype, seed=6)
    scale_x, scale_y = (1 / (1 + np.sqrt(2 * n)) for n in near("float64", x, y))
    scale_y[0] = 0
    places = (np.arange(p)[:, None] + 2 * np.arange(c)) % (q + 1) - 1
    inputs = {"x": x, "y": y, "scale_x": scale_x, "scale_y": scale_y, "places": places.astype(np.int32)}
    for metric in neighbors.BY_PRODUCTS:
        bounds = np.full((p, c), np.inf, working(dtype))
        for i, slot in np.argwhere(places >= 0):
            j = places[i, slot]
            key = neighbors.distance(x[i], y[j], scale_x[i], scale_y[j], metric=metric)
            bounds[i, slot] = neighbors.half(key, metric) - 0.1 * abs(key)
        inputs[f"bounds {metric.name}"] = bounds[:, ::-1].copy()
    inputs["places"] = inputs["places"][:, ::-1].copy()

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        outputs = {}
        for metric in neighbors.BY_PRODUCTS:
            keys, ids = fill(p, 2, np.inf, neighbors.EMPTY)
            rows = (a[name] for name in ("x", "y", "scale_x", "scale_y"))
            lists = {"bounds": a[f"bounds {metric.name}"], "places": a["places"], "keys": keys, "ids": ids}
            outputs[f"{metric.name} certain"] = body(*rows, metric=metric, first=2**40, **lists)
            outputs |= listed(metric.name, keys, ids)
        return outputs

    return Case(inputs, run)


def exhaust_case(shape: tuple[int, int], dtype: str) -> Case:
    p, d, q = shape[0], 2 * shape[1], shape[0] + 2
    y = matrix((q, d), dtype)
    x, own = y[:p].copy(), 2**40 + np.arange(p)
    near_i, near_j = near("float64", x, y)
    scale_x, scale_y = 1 / (1 + np.sqrt(2 * near_i)), 1 / (1 + np.sqrt(2 * near_j))
    products = x.astype(float) @ y.astype(float).T + 1
    inputs = {"products": products, "near_i": near_i, "near_j": near_j}
    inputs |= {"x": x, "y": y, "scale_x": scale_x, "scale_y": scale_y, "own": own}

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        outputs, rows = {}, [a[name] for name in inputs if name != "own"]
        # Bounds of the others are no bounds of their keys: what they rule out is the same all the same.
        for metric in neighbors.BY_PRODUCTS:
            keys, ids = fill(p, 3, np.inf, neighbors.EMPTY)
            assert body(*rows, metric=metric, own=a["own"], first=2**40, keys=keys, ids=ids) is None
            outputs |= listed(metric.name, keys, ids)
        return outputs

    return Case(inputs, run)


def near_case(shape: tuple[int, int], dtype: str) -> Case:
    """Bounds by the products of some columns and the length of the rest, as of projected rows."""
    p, d, q = shape[0], 2 * shape[1], shape[0] + 2
    y = matrix((q, d), dtype)
    x = y[:p].copy()
    x[p // 2 :] = matrix((p, d), dtype, seed=9)[p // 2 :]
    near_i, near_j = near("float32", x, y)
    scales = [1 / np.sqrt(np.maximum(2 * each.astype(float), 1e-3)) for each in (near_i, near_j)]
    scales[0][0] = 0

    def short(rows: Array, scale: Array, count: int, more: int) -> Array:
        wide = rows.astype(float) * scale[:, None]
        rests = [np.linalg.norm(wide[:, first:], axis=1)[:, None] for first in (count, more)]
        leading = [wide[:, :count], rests[0]]
        return np.hstack(leading if more == count else [*leading, wide[:, count:more], rests[1]])

    inputs = {"x": x, "y": y, "scale_x": scales[0], "scale_y": scales[1]}

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        outputs = {}
        for metric, diagonal in itertools.product(neighbors.BY_PRODUCTS, (-p, 1)):
            count, more = (d // 2, d // 2) if diagonal == 1 else (d // 4, d // 2)
            is_cosine = metric == neighbors.Metric.COSINE
            factors = scales if is_cosine else [np.ones(p), np.ones(q)]
            z = [short(each, factor, count, more) for each, factor in zip((x, y), factors, strict=True)]
            leading = [each[:, : count + 1] for each in z]
            terms = [(each**2).sum(axis=1) / 2 * (1 - 1e-5) for each in leading]
            if metric == neighbors.Metric.INNER_PRODUCT:
                terms = [-1e-5 * each for each in terms]
            tile = [each.astype(np.float32) for each in (leading[0] @ leading[1].T, *terms, *z)]
            rows, columns = fill(p, 3, np.inf, neighbors.EMPTY), fill(q, 2, np.inf, neighbors.EMPTY)
            columns[0][::3] = -np.inf
            lists = {"keys_i": rows[0], "ids_i": rows[1], "keys_j": columns[0], "ids_j": columns[1]}
            where = {"first_i": 2**40, "first_j": 2**33, "diagonal": diagonal}
            assert body(*tile, *a.values(), leading=count + 1, metric=metric, **lists, **where) >= 0
            outputs |= listed(f"{metric.name} {diagonal} rows", *rows)
            outputs |= listed(f"{metric.name} {diagonal} columns", *columns)
        return outputs

    return Case(inputs, run)


def city(a: Array, b: Array) -> float:
    total = 0.0
    for t in range(len(a)):
        total += abs(a[t] - b[t])
    return total


def pairs_case(shape: tuple[int, int], dtype: str, what: dict[str, dict[str, Any]]) -> Case:
    p, d, q = shape[0], shape[1], shape[0] + 2

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        outputs = {}
        for name, diagonal in itertools.product(what, (-p, 1)):
            rows, columns = fill(p, 3, np.inf, neighbors.EMPTY), fill(q, 2, np.inf, neighbors.EMPTY)
            columns[0][::3] = -np.inf
            lists = {"keys_i": rows[0], "ids_i": rows[1], "keys_j": columns[0], "ids_j": columns[1]}
            where = {"first_i": 2**40, "first_j": 2**33, "diagonal": diagonal}
            assert body(a["x"], a["y"], **what[name], **lists, **where) is None
            outputs |= listed(f"{name} {diagonal} rows", *rows) | listed(
                f"{name} {diagonal} columns", *columns
            )
        return outputs

    return Case({"x": matrix((p, d)), "y": matrix((q, d), seed=6)}, run)


def meet_case(shape: tuple[int, int], dtype: str) -> Case:
    n, d = shape
    x, y = matrix((n, d), dtype), matrix((n + 3, d), dtype, seed=5)

    def block(raw: Any, xp: Any) -> Rows:
        wide = raw.astype(np.float64)
        copy = np.array(raw, np.float32) if xp is np else None
        return Rows(0, raw, copy, (wide * wide).sum(axis=1), xp.ones(len(raw)))

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        one, two = block(a["x"], xp), block(a["y"], xp)
        outputs = {}
        for same in (False, True):
            for metric in (neighbors.Metric.EUCLIDEAN, neighbors.Metric.INNER_PRODUCT):
                found = [
                    Lists(xp.full((n, 2), np.inf), xp.full((n, 2), neighbors.EMPTY), xp.zeros(1, np.int64))
                    for n in (len(one), len(two))
                ]
                how: dict[str, Any] = {"shift": None, "room": lambda name, size, kind: np.empty(size, kind)}
                how |= {"lists_i": found[0], "lists_j": None if same else found[1], "precise": False}
                body(one, one if same else two, metric=int(metric), same=same, **how)
                for side, each in zip("ij", found, strict=True):
                    for name, array in (("keys", each.keys), ("ids", each.ids)):
                        host = array.get() if hasattr(array, "get") else array
                        outputs[f"{name} {side} {metric} {same}"] = np.sort(np.nan_to_num(host), axis=1)
        return outputs

    return Case({"x": x, "y": y}, run)


def merge_lists_case(shape: tuple[int, int], dtype: str) -> Case:
    rows, k = shape
    ids = (np.arange(rows)[:, None] + 3 * np.arange(k + 2)) % (k + 5)
    ids[::2, 1:] = neighbors.EMPTY

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        held = fill(rows, k, np.inf, neighbors.EMPTY)
        for shift in (0, 2, 0):
            names = np.where(a["ids"] == neighbors.EMPTY, a["ids"], a["ids"] + shift)
            assert body(*held, other_keys=a["keys"] + shift // 2, other_ids=names) is None
        assert body(*held, other_keys=a["keys"], other_ids=a["ids"]) is None
        return listed("lists", *held)

    return Case({"keys": np.where(ids == neighbors.EMPTY, np.inf, ids // 2), "ids": ids}, run)


def merge_rows_case(shape: tuple[int, int], dtype: str) -> Case:
    rows, k = shape
    lists = merge_lists_case((3 * rows, k), dtype).inputs

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        held = fill(rows, k, np.inf, neighbors.EMPTY)
        assert body(*held, a["rows"], other_keys=a["keys"], other_ids=a["ids"]) is None
        return listed("lists", *held)

    return Case({**lists, "rows": np.arange(3 * rows) * 2 // 3 % rows}, run)


def square_norms_case(shape: tuple[int, int], dtype: str) -> Case:
    x = matrix(shape, dtype)
    exact = np.linalg.norm(x.astype(np.float64), axis=1) ** 2

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        out = xp.empty(len(x))
        assert body(a["x"], out=out) is None
        return {"squares": out}

    return Case({"x": x}, run, {"squares": 2 * shape[1] * EPS * exact})


def sort_case(shape: tuple[int, int], dtype: str) -> Case:
    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        keys, ids = fill(*shape, np.inf, neighbors.EMPTY)
        keys[...], ids[...] = np.round(matrix(shape) / 9), np.abs(matrix(shape, seed=6)).astype(int)
        assert body(keys, ids) is None
        return {"keys": keys, "ids": ids}

    return Case({}, run)


def thresholds(keys: Array, own: Array, first: int) -> tuple[Array, Array]:
    """Keys of every third column, half of them with ids that come later: sorted, with some that are equal."""
    ids = first + np.arange(keys.shape[1]) + np.zeros(len(keys), int)[:, None]
    ids, keys = np.hstack([ids[:, ::3], ids[:, ::6] + 3]), np.hstack([keys[:, ::3], keys[:, ::6]])
    order = np.lexsort((ids, keys), axis=1)
    return np.take_along_axis(keys, order, 1), np.take_along_axis(ids, order, 1)


def count_nearer_case(shape: tuple[int, int], dtype: str) -> Case:
    p, d, q, first = shape[0], 2 * shape[1], shape[0] + 2, 2**40
    y = matrix((q, d), dtype)
    y[q // 2] = y[0]
    x, own = y[:p].copy(), first + np.arange(p)
    kind = working(dtype)
    norms = [np.square(z.astype(float)).sum(axis=1) for z in (x, y)]
    scale_x, scale_y = (1 / np.sqrt(1 + n) for n in norms)
    inputs = {"products": (x.astype(float) @ y.astype(float).T).astype(kind), "x": x, "y": y, "own": own}
    inputs |= {"scale_x": scale_x, "scale_y": scale_y}
    for side, wider in (("near", 0.99), ("far", 1.01)):
        inputs |= {f"{side}_{a}": (wider * n / 2).astype(kind) for a, n in zip("ij", norms, strict=True)}
    for metric in neighbors.BY_PRODUCTS:
        keys = [
            [neighbors.distance(a, b, s, t, metric=metric) for b, t in zip(y, scale_y, strict=True)]
            for a, s in zip(x, scale_x, strict=True)
        ]
        inputs[f"{metric.name} keys"], inputs[f"{metric.name} ids"] = thresholds(np.array(keys), own, first)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        outputs, rows = {}, [a[name] for name in ("x", "y", "scale_x", "scale_y")]
        bounds = a["products"], (a["near_i"], a["near_j"]), (a["far_i"], a["far_j"])
        # Bounds of the others are no bounds of their keys: what they settle is the same all the same.
        for metric in neighbors.BY_PRODUCTS:
            keys, ids = a[f"{metric.name} keys"], a[f"{metric.name} ids"]
            counts = np.arange(keys.size).reshape(keys.shape)
            limits = {"keys": keys, "ids": ids, "counts": counts}
            measured = body(*bounds, *rows, metric=metric, own=a["own"], first=first, **limits)
            outputs |= {f"{metric.name} counts": counts, f"{metric.name} measured": measured}
        return outputs

    return Case(inputs, run)


def rank_case(shape: tuple[int, int], dtype: str) -> Case:
    p, d, q, first = shape[0], 2 * shape[1], shape[0] + 5, 2**40
    y = matrix((q, d), dtype)
    y[q // 2] = y[0]
    x, own = y[:p].copy(), first + np.arange(p)
    inputs: dict[str, Any] = {"x": x, "y": y, "own": own}
    for metric in (neighbors.Metric.EUCLIDEAN, neighbors.Metric.INNER_PRODUCT):
        keys = [[neighbors.distance(a, b, 1.0, 1.0, metric=metric) for b in y] for a in x]
        inputs[f"{metric.name} keys"], inputs[f"{metric.name} ids"] = thresholds(np.array(keys), own, first)

    def block(raw: Any, start: int, xp: Any) -> Rows:
        wide = raw.astype(np.float64)
        return Rows(start, raw, raw.astype(np.float32), (wide * wide).sum(axis=1), xp.ones(len(raw)))

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        one, two, outputs = block(a["x"], 0, xp), block(a["y"], first, xp), {}
        how: dict[str, Any] = {"shift": None, "room": lambda name, size, kind: np.empty(size, kind)}
        for metric, precise in ((neighbors.Metric.EUCLIDEAN, False), (neighbors.Metric.INNER_PRODUCT, True)):
            keys, ids = a[f"{metric.name} keys"], a[f"{metric.name} ids"]
            counts, measured = xp.ones(keys.shape, np.int64), xp.zeros(1, np.int64)
            how |= {"counts": counts, "measured": measured, "precise": precise}
            limits = Thresholds(keys, ids, a["own"])
            assert body(one, two, metric=int(metric), thresholds=limits, **how) is None
            outputs[f"{metric.name} {precise}"] = counts
        return outputs

    return Case(inputs, run)


def count_measured_case(shape: tuple[int, int], dtype: str) -> Case:
    p, d, q, first = shape[0], shape[1], shape[0] + 2, 2**40
    y = np.round(matrix((q, d)))
    x, own = y[:p].copy(), first + np.arange(p)
    inputs = {"x": x, "y": y, "own": own}
    for name, metric in RANKED.items():
        keys = np.array([[neighbors.in_order(a, b, metric["metric"]) for b in y] for a in x])
        inputs[f"{name} keys"], inputs[f"{name} ids"] = thresholds(keys, own, first)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        outputs = {}
        for name, metric in RANKED.items():
            keys, ids = a[f"{name} keys"], a[f"{name} ids"]
            counts = np.arange(keys.size).reshape(keys.shape)
            limits = {"keys": keys, "ids": ids, "counts": counts}
            assert body(a["x"], a["y"], **metric, own=a["own"], first=first, **limits) is None
            outputs[name] = counts
        return outputs

    return Case(inputs, run)


def listed_pairs_case(shape: tuple[int, int], dtype: str) -> Case:
    x, y = matrix(shape, dtype), matrix((shape[0] + 2, shape[1]), dtype, seed=6)
    scale_x, scale_y = (1 / np.sqrt(1 + np.square(z.astype(float)).sum(axis=1)) for z in (x, y))
    rows, others = np.arange(9) % len(x), np.arange(9) * 5 % len(y)
    inputs = {"x": x, "y": y, "scale_x": scale_x, "scale_y": scale_y, "rows": rows, "others": others}

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        values, pairs = list(a.values())[:4], {"rows": a["rows"], "others": a["others"]}
        by_lanes = {m.name: body(*values, metric=m, by_lanes=True, **pairs) for m in neighbors.BY_PRODUCTS}
        in_order = {f"{m} in order": body(*values, **RANKED[m], by_lanes=False, **pairs) for m in RANKED}
        return by_lanes | in_order

    return Case(inputs, run)


def squares_case(shape: tuple[int, int], dtype: str) -> Case:
    rows = increasing(shape, dtype, 3)
    backwards = {"indptr": np.array([1, 3]), "indices": np.array([9, 4, 4, 9]), "data": np.ones(4, dtype)}

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        squares = apart(xp.full((shape[0], 2), np.nan), xp)
        assert body(*a.values(), squares=squares)
        assert not body(*backwards.values(), xp.ones(1), squares=xp.empty((1, 2)))
        return {"squares": squares}

    return Case({**rows, "scale": matrix((shape[0],), seed=6)}, run)


def meet_sparse_case(shape: tuple[int, int], dtype: str) -> Case:
    n, d = shape
    inputs = {
        f"{name} {side}": a
        for side in "xy"
        for name, a in increasing((n + 3 * (side == "y"), d), dtype, ord(side)).items()
    }

    def block(a: dict[str, Any], side: str, metric: int) -> SparseRows:
        arrays = [a[f"{name} {side}"] for name in ("indptr", "indices", "data")]
        squares, scale = np.empty((len(arrays[0]) - 1, 2)), np.ones(len(arrays[0]) - 1)
        assert square_rows(*arrays, scale, squares=squares)
        norms = squares[:, 0].copy()
        if metric == neighbors.Metric.COSINE:
            scale = np.divide(1, np.sqrt(norms), out=np.zeros_like(norms), where=norms > 0)
            assert square_rows(*arrays, scale, squares=squares)
            norms[:] = 1
        return SparseRows(7, d, *arrays, norms, scale, squares)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        outputs = {}
        for metric, same in itertools.product(neighbors.BY_PRODUCTS, (False, True)):
            precise = same == (metric == neighbors.Metric.EUCLIDEAN)
            one, two = block(a, "x", metric), block(a, "x" if same else "y", metric)
            found = [
                Lists(
                    np.full((len(side), 2), np.inf),
                    np.full((len(side), 2), neighbors.EMPTY),
                    np.zeros(1, np.int64),
                )
                for side in (one, two)
            ]
            how: dict[str, Any] = {
                "common": np.arange(0, d, 3),
                "room": lambda name, size, kind: np.empty(size, kind),
            }
            how |= {"lists_i": found[0], "lists_j": None if same else found[1], "precise": precise}
            body(one, two, metric=int(metric), same=same, **how)
            for side, each in zip("ij", found, strict=True):
                neighbors.sort_lists(each.keys, each.ids)
                outputs[f"keys {side} {metric} {same}"] = np.nan_to_num(each.keys)
                outputs[f"ids {side} {metric} {same}"] = each.ids
        return outputs

    return Case(inputs, run)


def unarranged(x: Array) -> Tree:
    tree = Tree.empty(*x.shape)
    tree.rows()[: len(x)], tree.ids.reshape(-1)[: len(x)] = x, np.arange(len(x))
    return tree


def arrange_case(shape: tuple[int, int], dtype: str) -> Case:
    x = np.round(matrix((5 * shape[0], shape[1])) / 8)  # many are equal

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        tree = unarranged(a["x"])
        where = {"count": len(x), "node": 0, "first": 0, "last": len(tree.ids)}
        assert body(tree, **where, levels=-1) is None
        order = np.argsort(tree.ids, axis=1)
        points = np.take_along_axis(tree.points, order[:, None], axis=2)
        ids = np.take_along_axis(tree.ids, order, axis=1)
        some = ids != neighbors.EMPTY
        np.testing.assert_array_equal(points.transpose(0, 2, 1)[some], x[ids[some]])
        return {"ids": ids[some], "boxes": tree.boxes, "least": tree.least}

    return Case({"x": x}, run)


def tree_case(shape: tuple[int, int], dtype: str, name: str) -> Case:
    """Points some of which are equal, in a box that repeats itself, and not."""
    x, radius = np.abs(np.round(matrix((5 * shape[0], shape[1])) / 8, 1)), float(shape[1])
    tree = unarranged(x)
    where = {"count": len(x), "node": 0, "first": 0, "last": len(tree.ids)}
    arrange_points.reference(tree, **where, levels=-1)  # type: ignore[attr-defined]
    queries, own = x[:: 1 + len(x) // 9].copy(), np.arange(0, len(x), 1 + len(x) // 9)
    own[::3] = -1
    period = np.full(shape[1], x.max() + 0.5)
    period[::2] = np.inf

    def search(body: Body, a: dict[str, Any], **more: Any) -> Outputs:
        q = len(queries)
        if name == "nearest_in_tree":
            keys, ids = fill(q, 4, np.inf, neighbors.EMPTY)
            assert body(tree, a["queries"], a["own"], **more, keys=keys, ids=ids) is None
            neighbors.sort_lists(keys, ids)
            return {"keys": np.minimum(keys, 1e9), "ids": np.minimum(ids, len(x))}
        counts = np.zeros(2 * q, np.int64)[::2]
        if name == "count_within":
            assert body(tree, a["queries"], a["own"], **more, radius=radius, counts=counts) is None
            return {"counts": counts}
        keys, ids, starts = np.zeros(q * len(x)), np.zeros(q * len(x), np.int64), len(x) * np.arange(q)
        more |= {"radius": radius, "starts": starts, "keys": keys, "ids": ids}
        assert body(tree, a["queries"], a["own"], **more) is None
        return {"keys": keys, "ids": ids}

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        outputs = {}
        for metric, repeats in itertools.product(MEASURES, (False, True)):
            found = search(body, a, metric=int(metric), period=a["period"] if repeats else None)
            outputs |= {f"{key} {metric.name} {repeats}": value for key, value in found.items()}
        return outputs

    return Case({"queries": queries, "own": own, "period": period}, run)


PAIRS = {
    m.name: {"metric": m}
    for m in neighbors.Metric
    if m not in (neighbors.Metric.COSINE, neighbors.Metric.INNER_PRODUCT)
}
RANKED = {name: what for name, what in PAIRS.items() if what["metric"] != neighbors.Metric.HAMMING}
"""Metrics that rows are ranked by."""


CASES: dict[tuple[str, str], tuple[MakeCase, tuple[str, ...]]] = {
    ("neighbors.lists", "scan_pairs"): (scan_case, FLOATS),
    ("neighbors.lists", "refine_rows"): (refine_case, ALL),
    ("neighbors.lists", "exhaust_rows"): (exhaust_case, ALL),
    ("neighbors.lists", "measure_near"): (near_case, ALL),
    ("neighbors.meeting", "meet_rows"): (meet_case, ALL),
    ("neighbors.meeting", "limit_pairs"): (limit_case, FLOATS),
    ("neighbors.lists", "measure_pairs"): (lambda *case: pairs_case(*case, PAIRS), ("float64",)),
    ("neighbors.lists", "compare_pairs"): (
        lambda *case: pairs_case(*case, {"city": {"function": city}}),
        ("float64",),
    ),
    ("neighbors.lists", "merge_lists"): (merge_lists_case, ("float64",)),
    ("neighbors.lists", "merge_rows"): (merge_rows_case, ("float64",)),
    ("neighbors.meeting", "square_norms"): (square_norms_case, ALL),
    ("neighbors.lists", "sort_lists"): (sort_case, ("float64",)),
    ("neighbors.sparse_meeting", "square_rows"): (squares_case, ALL),
    ("neighbors.sparse_meeting", "meet_sparse_rows"): (meet_sparse_case, ALL),
    ("neighbors.tree", "arrange_points"): (arrange_case, ("float64",)),
    ("neighbors.tree", "nearest_in_tree"): (lambda *case: tree_case(*case, "nearest_in_tree"), ("float64",)),
    ("neighbors.tree", "count_within"): (lambda *case: tree_case(*case, "count_within"), ("float64",)),
    ("neighbors.tree", "list_within"): (lambda *case: tree_case(*case, "list_within"), ("float64",)),
    ("neighbors.ranks", "count_nearer"): (count_nearer_case, ALL),
    ("neighbors.ranking", "rank_rows"): (rank_case, ALL),
    ("neighbors.ranks", "count_every_pair"): (count_measured_case, ("float64",)),
    ("neighbors.ranks", "measure_keys"): (listed_pairs_case, ALL),
}
