"""Cases of kernels of the family ``sparse``."""

from __future__ import annotations

from typing import Any

import numpy as np
from kernel_cases.case import (
    ALL,
    EPS,
    FLOATS,
    Body,
    Case,
    MakeCase,
    Outputs,
    apart,
    dense,
    matrix,
    nonzeros,
    working,
)


def multiply_sparse_case(shape: tuple[int, int], dtype: str) -> Case:
    (r, s), b = shape, 13
    rows, q = nonzeros(shape, dtype), matrix((s, b), dtype, seed=6)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        y = apart(xp.full((r, b), np.nan, dtype), xp)
        assert body(*a.values(), y=y) is None
        return {"y": y}

    error = 2 * (s + 3) * float(np.finfo(dtype).eps) * (dense(rows, s) @ np.abs(q).astype(float))
    return Case({**rows, "q": q}, run, {"y": error})


def order_columns_case(shape: tuple[int, int], dtype: str) -> Case:
    rows = nonzeros(shape, dtype)
    most = len(rows["data"])

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        order = {"pointers": xp.full(shape[1] + 1, -7), "rows": xp.full(most, -7, np.int32)}
        order["values"] = xp.full(most, -7, dtype)
        assert body(*a.values(), **order) is None
        return order

    return Case(rows, run)


def in_order_case(shape: tuple[int, int], dtype: str) -> Case:
    rows = nonzeros(shape, dtype)
    for start, stop in zip(rows["indptr"][:-1], rows["indptr"][1:], strict=True):
        rows["indices"][start:stop] = 3 * np.arange(stop - start)
    broken = rows["indices"].copy()
    longest = int(np.argmax(np.diff(rows["indptr"])))
    last = rows["indptr"][longest + 1] - 1
    broken[last] = broken[last - 1]

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        found = [body(a["indptr"], indices) for indices in (a["indices"], a["broken"])]
        return {"found": xp.array(found, dtype=np.int64)}

    return Case({"indptr": rows["indptr"], "indices": rows["indices"], "broken": broken}, run)


def kept_case(shape: tuple[int, int], dtype: str, *, finds: bool) -> Case:
    rows = nonzeros(shape, dtype)
    r, n = shape
    lines = np.random.default_rng(4).permutation(r)[: max(1, 2 * r // 3)]
    new_places = np.where(np.arange(n) % 3 == 1, -1, np.arange(n))[::-1].copy()
    given = {"indices": rows["indices"], "indptr": rows["indptr"], "lines": lines, "new_places": new_places}
    counts = [
        int((new_places[rows["indices"][rows["indptr"][i] : rows["indptr"][i + 1]]] >= 0).sum())
        for i in lines
    ]
    ends = np.cumsum(counts)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        if not finds:
            found = apart(xp.array(np.zeros(len(lines), np.int64)), xp)
            assert body(*a.values(), counts=found) is None
            return {"counts": found}
        outputs = {}
        for less in (0, 1):  # 1: a range holds fewer than there are
            pointers = xp.array(np.stack([ends - counts, np.maximum(ends - less, ends - counts)], axis=1))
            positions = apart(xp.array(np.full(int(ends[-1]), -1)), xp)
            right = body(*a.values(), pointers=pointers, positions=positions)
            assert right == (less == 0 or not any(counts))
            outputs[f"positions {less}"] = positions
        return outputs

    return Case(given, run)


def add_columns_case(shape: tuple[int, int], dtype: str) -> Case:
    (r, s), b = shape, 13
    by_columns, y, z0 = nonzeros((s, r), dtype), matrix((r, b), dtype, seed=6), matrix((s, b), seed=7)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        z = apart(xp.array(z0), xp)
        assert body(*a.values(), z=z) is None
        return {"z": z}

    size = dense(by_columns, r) @ np.abs(y).astype(float)
    error = 2 * (r + 3) * float(np.finfo(dtype).eps) * size + 2 * EPS * (size + np.abs(z0))
    return Case({**by_columns, "y": y}, run, {"z": error})


def scatter_case(shape: tuple[int, int], dtype: str) -> Case:
    (r, s), b = shape, 13
    rows, y, z0 = nonzeros(shape, dtype), matrix((r, b), dtype, seed=6), matrix((s, b), seed=7)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        z = apart(xp.array(z0), xp)
        assert body(*a.values(), z=z) is None
        return {"z": z}

    size = dense(rows, s).T @ np.abs(y).astype(float) + np.abs(z0)
    return Case({**rows, "y": y}, run, {"z": 4 * (2 * r + 3) * EPS * size})


def sparse_gram_case(shape: tuple[int, int], dtype: str) -> Case:
    rows, scatter0 = nonzeros(shape, dtype), matrix((shape[1],) * 2, seed=7)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        scatter = apart(xp.array(scatter0), xp)
        assert body(*a.values(), scatter=scatter) is None
        return {"scatter": scatter}

    size = dense(rows, shape[1])
    count = shape[0] * (shape[1] + 3) + 1
    return Case(rows, run, {"scatter": 2 * count * EPS * np.triu(size.T @ size + np.abs(scatter0))})


def sparse_moments_case(shape: tuple[int, int], dtype: str) -> Case:
    rows, shift = nonzeros(shape, dtype), matrix((1, shape[0]), seed=6)[0]
    start = {name: matrix((1, shape[0]), seed=7)[0] for name in ("sums", "squares")}

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        into = {name: xp.array(values) for name, values in start.items()}
        assert body(a["indptr"], a["data"], a["shift"], 0.5, **into) is None
        return into

    size = 4 * (shape[1] + 3) * EPS * (1 + np.abs(rows["data"]).max(initial=0) + np.abs(shift)) ** 2
    return Case({**rows, "shift": shift}, run, {"sums": size, "squares": size})


def sampled_case(shape: tuple[int, int], dtype: str) -> Case:
    (r, s), k = shape, 13
    rows, left, right = nonzeros(shape, dtype), matrix((r, k), dtype, seed=6), matrix((s, k), dtype, seed=7)
    places = {name: rows[name] for name in ("indptr", "indices")}

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        out = apart(xp.full(len(rows["indices"]), -7, dtype), xp)
        assert body(*a.values(), out=out) is None
        return {"out": out}

    size = np.abs(left).max(initial=0).astype(float) * np.abs(right).max(initial=0)
    error = np.full(len(rows["indices"]), 2 * k * k * float(np.finfo(dtype).eps) * size)
    return Case({**places, "left": left, "right": right}, run, {"out": error})


def sparse_buckets_case(shape: tuple[int, int], dtype: str) -> Case:
    rows, buckets = nonzeros(shape, dtype), np.arange(shape[0]) * 7 % 3
    factors, start = (1.0 - 2.0 * (buckets % 2)).astype(dtype), matrix((3, shape[1]), dtype, seed=7)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        sums = apart(xp.array(start), xp)
        assert body(*a.values(), sums=sums) is None
        return {"sums": sums}

    error = 2 * (shape[0] + 3) * float(np.finfo(dtype).eps) * (1 + np.abs(rows["data"]).sum())
    return Case({**rows, "buckets": buckets, "factors": factors}, run, {"sums": np.full(start.shape, error)})


def part_columns_case(shape: tuple[int, int], dtype: str) -> Case:
    (r, s), rows = shape, nonzeros(shape, dtype)
    places, most = np.arange(s, dtype=np.int32) // 2, len(rows["data"])
    places[::2] = -1
    h, working_type = s // 2, working(dtype)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        parted = {"block": apart(xp.full((r, h), np.nan, working_type), xp), "pointers": xp.full(r + 1, -7)}
        parted |= {"columns": xp.full(most, -7), "values": xp.full(most, -7, working_type)}
        assert body(*a.values(), **parted) is None
        return parted

    return Case({**rows, "scale": matrix((r,), seed=6), "places": places}, run)


def row_products_case(shape: tuple[int, int], dtype: str) -> Case:
    (r, s), rows = shape, nonzeros(shape, dtype)
    count, first = r + 5, 2
    lists = nonzeros((s, count), dtype)
    for j in range(s):
        lists["indices"][lists["indptr"][j] : lists["indptr"][j + 1]].sort()
    products0 = matrix((r, count - first), dtype, seed=7)
    inputs = {**rows, **dict(zip(("pointers", "rows", "values"), lists.values(), strict=True))}

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        products = apart(xp.array(products0), xp)
        assert body(**a, first=first, products=products) is None
        return {"products": products}

    size = (dense(rows, s) @ dense(lists, count))[:, first:] + np.abs(products0)
    return Case(inputs, run, {"products": 2 * (s * count + 3) * float(np.finfo(dtype).eps) * size})


CASES: dict[tuple[str, str], tuple[MakeCase, tuple[str, ...]]] = {
    ("sparse.products", "multiply_rows"): (multiply_sparse_case, FLOATS),
    ("sparse.products", "are_in_order"): (in_order_case, ("float64",)),
    ("sparse.products", "order_columns"): (order_columns_case, FLOATS),
    ("sparse.kept", "count_kept"): (lambda *case: kept_case(*case, finds=False), ("float64",)),
    ("sparse.kept", "find_kept"): (lambda *case: kept_case(*case, finds=True), ("float64",)),
    ("sparse.products", "add_columns"): (add_columns_case, FLOATS),
    ("sparse.products", "scatter_rows"): (scatter_case, FLOATS),
    ("sparse.gram", "add_gram"): (sparse_gram_case, FLOATS),
    ("sparse.moments", "add_moments"): (sparse_moments_case, FLOATS),
    ("sparse.moments", "add_rows_to_buckets"): (sparse_buckets_case, FLOATS),
    ("sparse.sampled", "sample_product"): (sampled_case, FLOATS),
    ("sparse.row_products", "part_columns"): (part_columns_case, ALL),
    ("sparse.row_products", "add_row_products"): (row_products_case, FLOATS),
}
