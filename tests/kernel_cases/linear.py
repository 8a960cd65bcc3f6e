"""Cases of kernels of the family ``linear``."""

from __future__ import annotations

from dataclasses import replace
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
    gram_of,
    matrix,
    returns,
    symmetric,
    working,
)

from rankfold.kernels.linear.complete_rows import COUNT_BINS, TOTALS, RowModel, RowSums
from rankfold.kernels.linear.moments import Moments


def measure_case(shape: tuple[int, int], dtype: str) -> Case:
    x, shift, pow2_scale = matrix(shape, dtype), matrix(shape[1:], seed=4), 0.25
    d = np.abs(x.astype(np.float64) - shift) * pow2_scale
    # Any order of adding r numbers is within r eps of the sum of their magnitudes; two orders, twice that.
    # A square is rounded once more before it is added.
    rows = len(x)
    return Case(
        {"x": x, "shift": shift},
        lambda body, a, xp: dict(zip(("sums", "squares"), body(a["x"], a["shift"], pow2_scale), strict=True)),
        {"sums": 2 * rows * EPS * d.sum(axis=0), "squares": 2 * (rows + 1) * EPS * (d * d).sum(axis=0)},
    )


def subtract_case(shape: tuple[int, int], dtype: str) -> Case:
    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        out = apart(xp.full(shape, np.nan, working(dtype)), xp)  # as a part of a wider panel is
        assert body(a["x"], a["shift"], a["scale"], out=out) is None
        return {"out": out}

    # The contract fixes every rounding, so bodies agree to the last bit.
    inputs = {"x": matrix(shape, dtype), "shift": matrix(shape[1:]), "scale": matrix(shape[1:], seed=5)}
    return Case(inputs, run)


def panel_case(shape: tuple[int, int], dtype: str) -> Case:
    (r, s), b = shape, 4
    d, q, z0 = matrix(shape, dtype), matrix((s, b), dtype, seed=6), matrix((s, b), seed=7)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        y, work, z = xp.full((r, b), np.nan, dtype), xp.full((s, b), np.nan, dtype), xp.array(z0)
        assert body(a["d"], a["q"], y=y, z=z, work=work) is None
        return {"y": y, "z": z}

    # Inner products of length s, then r, each within that many eps of the product of magnitudes, in
    # either body. The update of z in float64 rounds once.
    eps = float(np.finfo(dtype).eps)
    size_y = np.abs(d).astype(float) @ np.abs(q)
    size_z = np.abs(d.T).astype(float) @ size_y
    error = {"y": 2 * s * eps * size_y, "z": 2 * (r + s) * eps * size_z + 2 * EPS * (size_z + np.abs(z0))}
    return Case({"d": d, "q": q}, run, error)


def rows_with_gaps(shape: tuple[int, int], dtype: str) -> tuple[Array, RowModel, RowModel]:
    """Rows of which some are whole and one is empty, and two models."""
    x = matrix(shape, dtype)
    x[np.random.default_rng(1).random(shape) < 0.4] = np.nan
    x[0], x[-1] = matrix(shape[1:], dtype), np.nan
    k, models = 3, []
    for seed in (6, 7):
        loadings, root = matrix((shape[1], k), seed=seed) / 10, matrix((k, k), seed=seed + 5) / 50
        model = (
            matrix(shape[1:], seed=seed),
            loadings,
            loadings.T @ loadings,
            root @ root.T,
            np.array([2.0]),
        )
        models.append(RowModel(*model))
    return x, models[0], models[1]


GAPS_ERROR = 1e-11
"""Of sums of some hundred numbers of at most a thousand, and of solutions with conditions of some hundred."""


def fill_rows_case(shape: tuple[int, int], dtype: str) -> Case:
    x, model, _ = rows_with_gaps(shape, dtype)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        found = apart(xp.array(x), xp)
        assert body(found, RowModel(*(a[name] for name in RowModel._fields))) is None
        return {"x": found}

    eps = GAPS_ERROR if dtype == "float64" else 2 * float(np.finfo(dtype).eps) * 100
    return Case(model._asdict(), run, {"x": np.full(shape, eps)})


def fit_rows_case(shape: tuple[int, int], dtype: str) -> Case:
    x, model, before = rows_with_gaps(shape, dtype)
    (r, n), k, exact = shape, 3, shape[1] > 6
    q = (k + 1) * (k + 2) // 2
    shapes = ((n if exact else 0, q), (q,), (q,), (n, k + 1), (3, n), (TOTALS,), (4, COUNT_BINS))

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        sums = RowSums(*(xp.ones(each) for each in shapes))
        d, z = xp.full(shape, np.nan, dtype), xp.full((r, k + 1), np.nan, dtype)
        old = RowModel(*(xp.asarray(each) for each in before))
        new = RowModel(*(a[name] for name in RowModel._fields))
        assert body(a["x"], 5, 2**63 + 11, 4, new, old, d=d, z=z, sums=sums) is None
        return {"d": d, "z": z, **sums._asdict()}

    single = 100 * float(np.finfo(dtype).eps)
    sizes = {"d": single, "z": single, "totals": 1e4 * GAPS_ERROR}
    names = dict(zip(RowSums._fields, shapes, strict=True)) | {"d": shape, "z": (r, k + 1)}
    error = {name: np.full(each, sizes.get(name, 100 * GAPS_ERROR)) for name, each in names.items()}
    return Case({"x": x, **model._asdict()}, run, error)


def product_case(shape: tuple[int, int], dtype: str) -> Case:
    (r, s), b = shape, 4
    x, c = matrix(shape, dtype), matrix((s, b), dtype, seed=6)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        out = xp.full((r, b), np.nan, dtype)
        assert body(a["x"], a["c"], out=out) is None
        return {"out": out}

    size = np.abs(x).astype(float) @ np.abs(c)
    return Case({"x": x, "c": c}, run, {"out": 2 * s * float(np.finfo(dtype).eps) * size})


def add_gram_case(shape: tuple[int, int], dtype: str) -> Case:
    y, total = matrix(shape, dtype), matrix((shape[1],) * 2, seed=7)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        found = xp.array(total)
        assert body(a["y"], total=found) is None
        return {"total": found}

    size = np.abs(y.T).astype(float) @ np.abs(y)
    error = 2 * shape[0] * float(np.finfo(dtype).eps) * size + 2 * EPS * (size + np.abs(total))
    return Case({"y": y}, run, {"total": error})


def add_squares_case(shape: tuple[int, int], dtype: str) -> Case:
    x = matrix(shape, dtype)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        found = xp.array([0.5])
        assert body(a["x"], total=found) is None
        return {"total": found}

    return Case({"x": x}, run, {"total": 2 * (x.size + 1) * EPS * (0.5 + np.square(x, dtype=float).sum())})


def add_product_case(shape: tuple[int, int], dtype: str) -> Case:
    (r, s), b = shape, 4
    x, y, total = matrix(shape, dtype), matrix((r, b), dtype, seed=6), matrix((s, b), seed=7)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        found, work = xp.array(total), xp.full((s, b), np.nan, dtype)
        assert body(a["x"], a["y"], total=found, work=work) is None
        return {"total": found}

    size = np.abs(x.T).astype(float) @ np.abs(y)
    error = 2 * r * float(np.finfo(dtype).eps) * size + 2 * EPS * (size + np.abs(total))
    return Case({"x": x, "y": y}, run, {"total": error})


def weigh_case(shape: tuple[int, int], dtype: str) -> Case:
    x, weights = matrix(shape), matrix((shape[1],), seed=6)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        out = xp.full(shape, np.nan, dtype)
        assert body(a["x"], a["weights"], out=out) is None
        return {"out": out}

    return Case(
        {"x": x, "weights": weights}, run, {"out": 2 * float(np.finfo(dtype).eps) * np.abs(x * weights)}
    )


def sketch_case(shape: tuple[int, int], dtype: str) -> Case:
    (r, s), a, b, c = shape, 3, 4, 5
    d, right, down = matrix(shape, dtype), matrix((s, a), dtype, seed=6), matrix((r, b), dtype, seed=7)
    across, z0, core0 = matrix((r, c), seed=8), matrix((s, b), seed=9), matrix((c, a), seed=10)

    def run(body: Body, inputs: dict[str, Any], xp: Any) -> Outputs:
        y, work = xp.full((r, a), np.nan, dtype), xp.full((s, b), np.nan, dtype)
        z, core = xp.array(z0), xp.array(core0)
        names = ("d", "right", "down", "across")
        assert body(*(inputs[name] for name in names), y=y, z=z, core=core, work=work) is None
        return {"y": y, "z": z, "core": core}

    # As for the fused pass: inner products of length s, or r, each in either body.
    eps = float(np.finfo(dtype).eps)
    size_y = np.abs(d).astype(float) @ np.abs(right)
    size_z, size_core = np.abs(d.T).astype(float) @ np.abs(down), np.abs(across.T) @ size_y
    error = {
        "y": 2 * s * eps * size_y,
        "z": 2 * r * eps * size_z + 2 * EPS * (size_z + np.abs(z0)),
        "core": (2 * s * eps + 2 * (r + 1) * EPS) * size_core + 2 * EPS * np.abs(core0),
    }
    return Case({"d": d, "right": right, "down": down, "across": across}, run, error)


def buckets_case(shape: tuple[int, int], dtype: str) -> Case:
    r, c = shape[0], 3
    d, sums0 = matrix(shape, dtype), matrix((c, shape[1]), dtype, seed=6)
    buckets = np.arange(r) * 7 % c
    factors = (2.0 * (np.arange(r) % 2) - 1).astype(dtype) / 4

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        sums = xp.array(sums0)
        assert body(a["d"], a["buckets"], a["factors"], sums=sums) is None
        return {"sums": sums}

    # At most r numbers are added to each, in either order.
    size = np.abs(sums0).astype(float)
    np.add.at(size, buckets, np.abs(factors)[:, None] * np.abs(d))
    error = {"sums": 2 * (r + 1) * float(np.finfo(dtype).eps) * size}
    return Case({"d": d, "buckets": buckets, "factors": factors}, run, error)


def drawn_case(shape: tuple[int, int], dtype: str) -> Case:
    return Case({}, lambda body, a, xp: dict(zip(("buckets", "signs"), body(*shape, 3, 50), strict=True)))


def add_rows_case(shape: tuple[int, int], dtype: str) -> Case:
    x = matrix(shape, dtype)
    mean = x.mean(axis=0, dtype=np.float64)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        r, d = shape
        out, work = xp.full((r + 1, d), np.nan, working(dtype)), xp.full((d, d), np.nan, working(dtype))
        total = Moments(5, xp.full(d, 2.0), xp.eye(d))
        assert body(total, a["x"], a["mean"], 0.5, out=out, work=work) is None
        return {"count": total.count, "mean": total.mean, "scatter": total.scatter}

    # Sums of r + 1 products and of what was there, in two orders. The last row is what the mean moves by.
    last = np.abs(mean * 0.5 - 2.0) * np.sqrt(5 * len(x) / (5 + len(x)))
    rows = np.vstack([np.abs(x - mean) * 0.5, last])
    error = 2 * (len(rows) + 1) * float(np.finfo(working(dtype)).eps) * (rows.T @ rows + np.eye(len(mean)))
    return Case({"x": x, "mean": mean}, run, error_of_device={"scatter": error})


def merge_moments_case(shape: tuple[int, int], dtype: str) -> Case:
    rows, d = shape
    inputs = {"mean": matrix((d,)), "scatter": symmetric(d)}

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        total = Moments(5, xp.full(d, 2.0), xp.eye(d))
        assert body(total, Moments(rows, a["mean"], a["scatter"])) is None
        return {"count": total.count, "mean": total.mean, "scatter": total.scatter}

    return Case(inputs, run)


def panel_r_case(shape: tuple[int, int], dtype: str) -> Case:
    y = matrix(shape)
    return replace(returns("r", y=y), error_of_device={"r": r_error(y)})


def merge_r_case(shape: tuple[int, int], dtype: str) -> Case:
    a, b = np.triu(matrix((shape[1],) * 2)), np.eye(shape[1])
    return replace(returns("r", a=a, b=b), error_of_device={"r": r_error(np.vstack([a, b]))})


def r_error(y: Array) -> Array:
    """Of two R factors by reflections, each of a matrix within r b eps of ``y``, by Frobenius norm.

    R moves by at most the square root of 2 times that and times the condition of the columns that it is made
    of: Higham, Accuracy and Stability of Numerical Algorithms, second edition, theorem 19.4 and section 19.9.
    Below its diagonal is zero.
    """
    most = min(y.shape)
    share = np.sqrt(2) * y.size * EPS * np.linalg.cond(y[:, :most])
    return 2 * share * float(np.linalg.norm(y)) * np.triu(np.ones((y.shape[1],) * 2))


def orthonormalize_case(shape: tuple[int, int], dtype: str) -> Case:
    n, b = max(shape) + 1, min(shape)
    basis = np.linalg.qr(matrix((n, n)))[0]
    w, block = matrix((n, max(1, b // 2)), seed=8), basis[:, : n - max(1, b // 2)]
    return Case({"w": w}, lambda body, a, xp: {"q": body(a["w"], lambda: [block])})


def gaussian_case(shape: tuple[int, int], dtype: str) -> Case:
    return Case({}, lambda body, a, xp: {"rows": body(7, 1, (1000, 1000 + shape[0]), shape[1])})


def eigenpairs_case(shape: tuple[int, int], dtype: str) -> Case:
    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        # The matrix is overwritten, by contract, and in C order: it is no input to be laid out.
        values, vectors = body(xp.array(symmetric(shape[1])), 1)
        return {"values": values, "vectors": vectors}

    return Case({}, run)


def triplets_case(shape: tuple[int, int], dtype: str) -> Case:
    case = returns("u", "s", "v", a=matrix(shape))
    return Case(case.inputs, lambda body, a, xp: case.run(lambda x: body(x, min(shape)), a, xp))


CASES: dict[tuple[str, str], tuple[MakeCase, tuple[str, ...]]] = {
    ("linear.center_scale", "measure"): (measure_case, ALL),
    ("linear.center_scale", "subtract"): (subtract_case, ALL),
    ("linear.count_sketch", "draw_buckets"): (drawn_case, ("float64",)),
    ("linear.count_sketch", "add_to_buckets"): (buckets_case, FLOATS),
    ("linear.moments", "add_rows"): (add_rows_case, ALL),
    ("linear.moments", "merge_moments"): (merge_moments_case, ("float64",)),
    ("linear.gaussian", "gaussian_rows"): (gaussian_case, ("float64",)),
    ("linear.orthonormal", "orthonormalize"): (orthonormalize_case, ("float64",)),
    ("linear.panel", "panel_product"): (panel_case, FLOATS),
    ("linear.complete_rows", "fill_rows"): (fill_rows_case, FLOATS),
    ("linear.complete_rows", "fit_rows"): (fit_rows_case, FLOATS),
    ("linear.products", "product"): (product_case, FLOATS),
    ("linear.products", "add_gram"): (add_gram_case, FLOATS),
    ("linear.products", "add_squares"): (add_squares_case, FLOATS),
    ("linear.products", "add_product"): (add_product_case, FLOATS),
    ("linear.products", "weigh"): (weigh_case, FLOATS),
    ("linear.qr", "panel_r"): (panel_r_case, ("float64",)),
    ("linear.qr", "merge_r"): (merge_r_case, ("float64",)),
    ("linear.qr", "r_of_gram"): (
        lambda shape, dtype: returns("r", product=gram_of(shape[1])),
        ("float64",),
    ),
    ("linear.sketch", "sketch_product"): (sketch_case, FLOATS),
    ("linear.dense", "leading_eigenpairs"): (eigenpairs_case, ("float64",)),
    ("linear.dense", "leading_singular_triplets"): (triplets_case, ("float64",)),
    ("linear.dense", "fix_signs"): (lambda shape, dtype: returns("signs", v=matrix(shape)), ("float64",)),
}
