"""Every body of every kernel gives what its reference gives, on every device, type and memory layout.

A kernel that is added without a case here fails ``test_every_kernel_has_a_case``.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import rankfold.kernels
from rankfold.kernels._dispatch import device_of, implementation
from rankfold.kernels.bits.bit_meeting import BitRows
from rankfold.kernels.bits.set_keys import SetMetric
from rankfold.kernels.clustering.nearest_centers import centers_of
from rankfold.kernels.graph.fuzzy import CLOSE
from rankfold.kernels.graph.paths import Graph
from rankfold.kernels.graph.walk import Steps, components_of
from rankfold.kernels.layout.forces import Edges, Epoch, epoch_key, forces_of, phases_of
from rankfold.kernels.layout.rows import NewRows, row_keys
from rankfold.kernels.linear.complete_rows import RowModel, RowSums
from rankfold.kernels.linear.moments import Moments
from rankfold.kernels.neighbors import lists as neighbors
from rankfold.kernels.neighbors.meeting import Lists, Rows
from rankfold.kernels.neighbors.ranking import Thresholds
from rankfold.kernels.neighbors.sparse_meeting import SparseRows, square_rows
from rankfold.kernels.neighbors.tree import MEASURES, Tree, arrange_points

Array = npt.NDArray[Any]
Outputs = dict[str, Any]
Body = Callable[..., Any]

FOLDER = Path(rankfold.kernels.__file__).parent
CONTRACTS = {"kernel", "light_kernel"}


def functions(path: Path) -> dict[str, ast.FunctionDef]:
    if not path.exists():
        return {}
    tree = ast.parse(path.read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def tuned_file(module: str, device: str) -> Path:
    family, _, stem = module.partition(".")
    return FOLDER / family / device / f"{stem}.py"


def contracts(path: Path) -> list[str]:
    return [
        name
        for name, node in functions(path).items()
        if any(isinstance(d, ast.Name) and d.id in CONTRACTS for d in node.decorator_list)
    ]


MODULES = sorted(f"{p.parent.name}.{p.stem}" for p in FOLDER.glob("*/*.py") if p.stem != "__init__")
KERNELS = [(m, name) for m in MODULES for name in contracts(FOLDER / f"{m.replace('.', '/')}.py")]
TUNED = [
    (module, name, device)
    for module, name in KERNELS
    for device in ("cpu", "gpu")
    if name in functions(tuned_file(module, device))
]
EPS = float(np.finfo(np.float64).eps)
SHAPES = [(1, 1), (1, 7), (9, 1), (8, 5), (13, 6), (67, 33)]
FLOATS = ("float32", "float64")
ALL = ("float32", "float64", "uint8")


def contract(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"rankfold.kernels.{module}"), name)


# Layouts -------------------------------------------------------------------------------------------


def apart(x: Any, xp: Any) -> Any:
    wide = xp.zeros((*x.shape[:-1], x.shape[-1] + 3), x.dtype)
    wide[..., 2 : 2 + x.shape[-1]] = x
    return wide[..., 2 : 2 + x.shape[-1]]


def every_second(x: Any, xp: Any) -> Any:
    wide = xp.zeros(tuple(2 * n for n in x.shape), x.dtype)
    view = wide[tuple(slice(None, None, 2) for _ in x.shape)]
    view[...] = x
    return view


def read_only(x: Any, xp: Any) -> Any:
    x = xp.ascontiguousarray(x)
    x.flags.writeable = False
    return x


LAYOUTS: dict[str, Callable[[Any, Any], Any]] = {
    "C order": lambda x, xp: xp.ascontiguousarray(x),
    "Fortran order": lambda x, xp: xp.asfortranarray(x),
    "rows apart": apart,
    "every second row and column": every_second,
    "backwards": lambda x, xp: xp.ascontiguousarray(x[::-1])[::-1],
    "read only": read_only,
}


# Cases ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One call of a kernel."""

    inputs: dict[str, Array]
    """Documented as left untouched; handed over in every layout."""

    run: Callable[[Body, dict[str, Any], Any], Outputs]
    """Calls a body with inputs on the device of a library, and gathers what it returned or wrote."""

    error: dict[str, Any] = field(default_factory=dict)
    """Largest difference between two right bodies, by output; exactly equal where there is none."""


def matrix(shape: tuple[int, ...], dtype: str = "float64", seed: int = 3) -> Array:
    rng = np.random.default_rng([*shape, seed])
    if dtype == "uint8":
        return rng.integers(0, 256, shape).astype(np.uint8)
    return (10 * rng.standard_normal(shape) + 3).astype(dtype)


def working(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def symmetric(p: int) -> Array:
    a = matrix((p, p))
    return a + a.T


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
    shapes = ((n if exact else 0, q), (q,), (q,), (n, k + 1), (3, n), (8,))

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

    return Case({"x": x, "mean": mean}, run)


def merge_moments_case(shape: tuple[int, int], dtype: str) -> Case:
    rows, d = shape
    inputs = {"mean": matrix((d,)), "scatter": symmetric(d)}

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        total = Moments(5, xp.full(d, 2.0), xp.eye(d))
        assert body(total, Moments(rows, a["mean"], a["scatter"])) is None
        return {"count": total.count, "mean": total.mean, "scatter": total.scatter}

    return Case(inputs, run)


def orthonormalize_case(shape: tuple[int, int], dtype: str) -> Case:
    n, b = max(shape) + 1, min(shape)
    basis = np.linalg.qr(matrix((n, n)))[0]
    w, block = matrix((n, max(1, b // 2)), seed=8), basis[:, : n - max(1, b // 2)]
    return Case({"w": w}, lambda body, a, xp: {"q": body(a["w"], lambda: [block])})


def gaussian_case(shape: tuple[int, int], dtype: str) -> Case:
    return Case({}, lambda body, a, xp: {"rows": body(7, 1, (1000, 1000 + shape[0]), shape[1])})


def gram_of(n: int) -> Array:
    a = symmetric(n)
    return np.eye(n) + a / (2 * np.abs(a).sum())  # type: ignore[no-any-return]


def eigenpairs_case(shape: tuple[int, int], dtype: str) -> Case:
    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        # The matrix is overwritten, by contract, and in C order: it is no input to be laid out.
        values, vectors = body(xp.array(symmetric(shape[1])), 1)
        return {"values": values, "vectors": vectors}

    return Case({}, run)


def returns(*names: str, **inputs: Array) -> Case:
    """Case of a kernel that takes these inputs alone; LAPACK gets the same copy from every layout."""
    keys = list(inputs)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        result = body(*(a[key] for key in keys))
        return dict(zip(names, result if len(names) > 1 else (result,), strict=True))

    return Case(inputs, run)


def triplets_case(shape: tuple[int, int], dtype: str) -> Case:
    case = returns("u", "s", "v", a=matrix(shape))
    return Case(case.inputs, lambda body, a, xp: case.run(lambda x: body(x, min(shape)), a, xp))


def nonnegative_case(shape: tuple[int, int], dtype: str, solve: bool) -> Case:
    r, k = shape
    gram, b, w0 = gram_of(k).astype(dtype), matrix((r, k), dtype), np.abs(matrix((r, k), dtype, seed=8))

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        w = xp.array(w0)
        assert body(a["gram"], a["b"], w=w, **({} if solve else {"sweeps": 2})) is None
        return {"w": w}

    # The Gram matrix is so near the identity that what is wrong in one coordinate is halved in all others:
    # each of k coordinates takes inner products of length k, once a sweep.
    eps = float(np.finfo(dtype).eps)
    size = float(np.abs(b).max() + np.abs(w0).max()) * np.abs(gram).sum(axis=0).max()
    one = 8 * (k + 2) * eps * size
    return Case({"gram": gram, "b": b}, run, {"w": one})


def quotients_case(shape: tuple[int, int], dtype: str) -> Case:
    x, model = np.maximum(matrix(shape, dtype), 0), np.abs(matrix(shape, dtype, seed=6)) + 1

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        product = apart(xp.array(model), xp)
        total = xp.full(1, 2.0)
        assert body(a["x"], product, total=total) is None
        return {"divergence": total, "product": product}

    # Quotients are rounded once. A logarithm is within two roundings, of a quotient within half of one.
    size = np.abs(x * np.log(np.maximum(x / model, 0.1)).astype(float)) + x + model
    return Case({"x": x}, run, {"divergence": 2 * (8 + sum(shape)) * EPS * size.sum(dtype=float)})


def multiply_case(shape: tuple[int, int], dtype: str) -> Case:
    r, k = shape
    gram, b = np.abs(gram_of(k)).astype(dtype), np.abs(matrix((r, k), dtype))
    w0, linear = np.abs(matrix((r, k), dtype, seed=8)), np.linspace(0, 1, k).astype(dtype)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        w = xp.array(w0)
        assert body(a["gram"], a["b"], w=w, linear=a["linear"], floor=0.5, sweeps=2) is None
        return {"w": w}

    # Sums of k numbers that are not negative: k + 4 roundings a sweep, and twice those of the sweep before.
    # Diagonals are above 1/2, so that no quotient is above 2 b.
    error = 6 * (k + 4) * float(np.finfo(dtype).eps) * (2 * float(b.max()) + 0.5)
    return Case({"gram": gram, "b": b, "linear": linear}, run, {"w": error})


def split_case(shape: tuple[int, int], dtype: str) -> Case:
    r, k = shape
    gram, b, w0 = gram_of(k).astype(dtype), matrix((r, k), dtype), matrix((r, k), dtype, seed=8)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        box, simplex = xp.array(w0), xp.array(w0)
        assert body(a["gram"], a["b"], w=box, sweeps=3, upper=7.0, simplex=False) is None
        assert body(a["gram"], a["b"], w=simplex, sweeps=3, upper=7.0, simplex=True) is None
        return {"box": box, "simplex": simplex}

    # The Gram matrix is near the identity, the penalty near 1, the inverse near 1/2: no step makes numbers,
    # or what is wrong with them, more than twice as large. Three sweeps of two sums of k numbers each.
    size = float(np.abs(b).max() + np.abs(w0).max())
    error = 2**3 * 2 * (k + 4) * float(np.finfo(dtype).eps) * size
    return Case({"gram": gram, "b": b}, run, {"box": error, "simplex": error})


def gradient_case(shape: tuple[int, int], dtype: str) -> Case:
    r, k = shape
    gram, b, w = gram_of(k).astype(dtype), matrix((r, k), dtype), np.maximum(matrix((r, k), dtype, seed=8), 0)
    # Slopes are k + 1 roundings off in either body; their squares twice that, relative to the parts.
    size = np.abs(w).astype(float) @ np.abs(gram) + np.abs(b)
    error = 4 * (k + 2) * float(np.finfo(dtype).eps) * (size * size).sum(axis=0) + 2 * r * EPS * (
        size**2
    ).sum(axis=0)
    case = returns("squares", gram=gram, b=b, w=w)
    return Case(case.inputs, case.run, {"squares": error})


def halves(shape: tuple[int, int], dtype: str) -> Array:
    """Half of a Gram matrix for each row, each of another size; that of the last is zero."""
    r, k = shape
    sizes = np.linspace(0.5, 1.5, r)
    sizes[-1] = 0
    return (sizes[:, None] * gram_of(k)[np.tril_indices(k)]).astype(dtype)


def pair_products_case(shape: tuple[int, int], dtype: str) -> Case:
    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        out = xp.empty((len(a["x"]), shape[1] * (shape[1] + 1) // 2), dtype)
        assert body(a["x"], out=out) is None
        return {"products": out}

    return Case({"x": matrix(shape, dtype)}, run)


def weighted_descent_case(shape: tuple[int, int], dtype: str) -> Case:
    r, k = shape
    grams, b, w0 = halves(shape, dtype), matrix((r, k), dtype), np.abs(matrix((r, k), dtype, seed=8))

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        w = xp.array(w0)
        assert body(a["grams"], a["b"], w=w, sweeps=2) is None
        return {"w": w}

    # As of rows with one Gram matrix; a slope is k sums that each of 2 k steps adds to, over at least 1/2.
    size = float(np.abs(b).max() + np.abs(w0).max()) * np.abs(gram_of(k)).sum(axis=0).max()
    return Case({"grams": grams, "b": b}, run, {"w": 16 * (3 * k + 2) * float(np.finfo(dtype).eps) * size})


def weighted_gradient_case(shape: tuple[int, int], dtype: str) -> Case:
    r, k = shape
    grams, b, w = halves(shape, dtype), matrix((r, k), dtype), np.maximum(matrix((r, k), dtype, seed=8), 0)
    case, other = returns("squares", grams=grams, b=b, w=w), gradient_case(shape, dtype)
    # Gram matrices are up to 3/2 of the one there, so that squares are up to 9/4 of those.
    return Case(case.inputs, case.run, {"squares": 9 / 4 * other.error["squares"]})


def mixing_case(shape: tuple[int, int], dtype: str) -> Case:
    words = matrix(shape).reshape(-1).view(np.uint64)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        lanes = xp.arange(64, dtype=np.uint64)
        body(a["words"], lanes=lanes)
        return {"lanes": lanes}

    return Case({"words": words}, run)


def fill(
    rows: int, k: int, key: float, name: int, dtype: Any = np.float64, of: Any = np.int64
) -> list[Array]:
    """Lists or shortlists where nothing is yet, as a part of wider arrays is."""
    return [apart(np.full((rows, k), key, dtype), np), apart(np.full((rows, k), name, of), np)]


def listed(name: str, keys: Array, ids: Array) -> Outputs:
    """What lists hold, in order and without infinities, and what they have in front."""
    order = np.lexsort((ids, keys), axis=-1)
    held = np.take_along_axis(keys, order, -1), np.take_along_axis(ids, order, -1)
    finite = np.isfinite(held[0])
    empty = np.where(finite, 0, held[1] == neighbors.EMPTY) if ids.dtype == np.int64 else held[1] == -1
    return {
        f"{name} keys": np.where(finite, held[0], 0),
        f"{name} ids": np.where(finite, held[1], -1),
        f"{name} empty": empty,
        f"{name} front": np.array_equal(keys[:, 0], held[0][:, -1]),
    }


def near(dtype: str, *of: Array) -> list[Array]:
    return [(np.square(x.astype(float)).sum(axis=1) / 2).astype(dtype) for x in of]


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


def membership_case(shape: tuple[int, int], dtype: str) -> Case:
    distances = np.sort(np.abs(matrix(shape, dtype)), axis=1)
    distances[::3, : shape[1] // 2] = 0  # in one place with others
    distances[::7] = 0

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        outputs = {}
        for connectivity, first in ((1.0, 0), (0.5, 0), (2.5, 1)):
            weights = apart(xp.zeros(shape, np.float64), xp)
            how: dict[str, Any] = {"local_connectivity": min(connectivity, shape[1]), "first": first}
            assert body(a["distances"], float(np.mean(distances)), **how, out=weights) is None
            assert (weights >= 0).all() and (weights <= 1).all()
            outputs[f"weights {connectivity}"] = weights
        return outputs

    # Sums of weights are as near to their target as either body stops at, and no weight differs by more than
    # sums do; widths are rounded to float32.
    bound = 2 * CLOSE + 4 * float(np.finfo(np.float32).eps)
    return Case({"distances": distances}, run, {f"weights {each}": bound for each in (1.0, 0.5, 2.5)})


def edges_from_both_ends(n: int, dtype: str) -> dict[str, Array]:
    """A graph of some components, with edges of no length, and some that are there twice."""
    rng = np.random.default_rng(n)
    starts, ends = rng.integers(0, n, (2, 2 * n))
    ends = np.where(starts % 3 == ends % 3, ends, starts)
    lengths = np.abs(matrix((2 * n, 1), dtype))[:, 0]
    lengths[::5] = 0
    both = np.concatenate([starts, ends]), np.concatenate([ends, starts]), np.concatenate([lengths, lengths])
    order = np.argsort(both[0], kind="stable")
    pointers = np.searchsorted(both[0][order], np.arange(n + 1))
    return {"pointers": pointers, "neighbors": both[1][order].astype(np.int32), "lengths": both[2][order]}


def paths_case(shape: tuple[int, int], dtype: str) -> Case:
    edges = edges_from_both_ends(shape[0] * shape[1], dtype)
    vertices = range(0, len(edges["pointers"]) - 1, shape[1])

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        graph, outputs = Graph(*(np.ascontiguousarray(a[name]) for name in edges)), {}
        nearest = np.full(len(graph.pointers) - 1, np.inf)
        for source in vertices:
            near = np.full(len(nearest), np.inf)
            assert body(graph, source, near=near) is None
            assert body(graph, source, near=nearest) is None
            outputs[f"from {source}"] = near
        # Paths that end where another vertex is nearer lose nothing, to the last bit.
        np.testing.assert_array_equal(nearest, np.min(list(outputs.values()), axis=0))
        return {name: np.where(np.isfinite(near), near, -1) for name, near in outputs.items()}

    return Case(edges, run)


def components_case(shape: tuple[int, int], dtype: str) -> Case:
    edges = edges_from_both_ends(shape[0] * shape[1], "float64")
    del edges["lengths"]
    edges["neighbors"] = edges["neighbors"].astype(dtype)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        pointers, ends = np.ascontiguousarray(a["pointers"]), np.ascontiguousarray(a["neighbors"])
        order, labels = np.empty((2, len(pointers) - 1), ends.dtype)
        assert body(pointers, ends, order=order, labels=labels) is None
        return {"order": order, "labels": labels}

    return Case(edges, run)


def layout_case(shape: tuple[int, int], dtype: str) -> Case:
    n, d = shape[0] + 3, min(shape[1], 5)
    positions = matrix((n, d), "float32") / 3
    positions[n // 2] = positions[0]  # two in one place
    positions[1] += 1e9  # beyond all tables
    rng = np.random.default_rng(shape)
    pointers = np.concatenate([[0], np.cumsum(rng.integers(0, 5, shape[0]))])
    ends = rng.integers(0, n, pointers[-1])
    phases = phases_of(rng.random(len(ends)).astype(np.float32), 0.9)
    inputs = {"positions": positions, "vertices": rng.permutation(n)[: shape[0]], "pointers": pointers}
    inputs |= {"neighbors": ends.astype(dtype), "phases": phases}

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        outputs = {}
        for epoch, negatives in ((1, 5), (7, 2), (8, 0)):
            out = apart(xp.zeros((shape[0], d), np.float32), xp)
            edges = Edges(a["pointers"], a["neighbors"], a["phases"])
            now = Epoch(epoch, epoch_key(3, 4, epoch), 0.7, negatives)
            how: dict[str, Any] = {"forces": forces_of(1.6, 0.9, 1.0), "epoch": now, "out": out}
            assert body(a["positions"], a["vertices"], edges, **how) is None
            assert np.isfinite(out).all()
            outputs[f"epoch {epoch}"] = out
        return outputs

    return Case(inputs, run)


def place_case(shape: tuple[int, int], dtype: str) -> Case:
    m, n, d, k = shape[0], shape[0] + 3, min(shape[1], 5), 4
    positions = matrix((n, d), "float32") / 3
    positions[1] += 1e9  # beyond all tables
    rng = np.random.default_rng(shape)
    neighbors = rng.integers(0, n, (m, k))
    phases = phases_of(rng.random((m, k)).astype(np.float32), 1.0)
    phases[::3, 1] = 0
    start = positions[neighbors[:, 0]].copy()
    inputs = {"positions": positions, "neighbors": neighbors, "phases": phases, "start": start}

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        outputs = {}
        rates = np.linspace(0.3, 0.1, 4, dtype=np.float32)
        for negatives in (5, 2, 0):
            out = apart(xp.zeros((m, d), np.float32), xp)
            rows = NewRows(a["neighbors"], a["phases"], row_keys(neighbors, 7), a["start"])
            how: dict[str, Any] = {"forces": forces_of(1.6, 0.9, 1.0), "rates": rates, "out": out}
            assert body(a["positions"], rows, negatives=negatives, **how) is None
            assert np.isfinite(out).all()
            outputs[f"negatives {negatives}"] = out
        return outputs

    return Case(inputs, run)


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


def visits_case(shape: tuple[int, int], dtype: str) -> Case:
    p, k = shape
    rng = np.random.default_rng(p)
    partitions = rng.integers(0, 6, (p, 3)).astype(np.int32)
    partitions[rng.random((p, 3)) < 0.3] = -1  # none
    ids = rng.integers(0, p, (p, k))
    ids[rng.random((p, k)) < 0.2] = neighbors.EMPTY

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        visits = {f"{count} of {own}": xp.zeros((p, count), np.int32) for own, count in ((0, 2), (5, 4))}
        for (name, out), own in zip(visits.items(), (0, 5), strict=True):
            assert body(a["ids"], a["partitions"], own, out=out) is None, name
        return visits

    return Case({"ids": ids, "partitions": partitions}, run)


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


def nonzeros(shape: tuple[int, int], dtype: str) -> dict[str, Array]:
    """Sparse rows in the midst of longer arrays: some are empty, some have a column twice, in no order."""
    r, s = shape
    rng = np.random.default_rng([*shape, 11])
    counts = np.where(np.arange(r) % 3 == 1, 0, np.arange(r) % (s + 3))
    indptr = 2 + np.concatenate([[0], np.cumsum(counts)])
    indices = rng.integers(0, s, indptr[-1] + 4)
    indices[[0, 1, -1]] = 10 * s, -1, 2**40
    return {"indptr": indptr, "indices": indices, "data": matrix(indices.shape, dtype)}


def dense(a: dict[str, Array], s: int) -> Array:
    """The same rows, absolutely: duplicates add up."""
    x = np.zeros((len(a["indptr"]) - 1, s))
    part = slice(a["indptr"][0], a["indptr"][-1])
    rows = np.repeat(np.arange(len(x)), np.diff(a["indptr"]))
    np.add.at(x, (rows, a["indices"][part]), np.abs(a["data"][part]).astype(float))
    return x


def multiply_sparse_case(shape: tuple[int, int], dtype: str) -> Case:
    (r, s), b = shape, 13
    rows, q = nonzeros(shape, dtype), matrix((s, b), dtype, seed=6)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        y = apart(xp.full((r, b), np.nan, dtype), xp)
        assert body(*a.values(), y=y) is None
        return {"y": y}

    error = 2 * (s + 3) * float(np.finfo(dtype).eps) * (dense(rows, s) @ np.abs(q).astype(float))
    return Case({**rows, "q": q}, run, {"y": error})


def step_case(shape: tuple[int, int], dtype: str) -> Case:
    (r, s), b = shape, 13
    rows, u = nonzeros(shape, dtype), matrix((s, b), seed=6)
    own, before = matrix((r, b), seed=7), matrix((r, b), seed=8)
    walk, stay = matrix((r,), seed=9), matrix((r,), seed=10)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        out = apart(xp.full((r, b), np.nan), xp)
        graph = a["indptr"], a["indices"], a["data"], a["u"]
        beside = {"own": a["own"], "before": a["before"], "steps": Steps(a["walk"], a["stay"], -1.0)}
        assert body(*graph, **beside, out=out) is None
        return {"out": out}

    sums = np.abs(walk)[:, None] * (dense(rows, s) @ np.abs(u)) + np.abs(stay)[:, None] * np.abs(own)
    error = {"out": 2 * (s + 6) * EPS * (sums + np.abs(before))}
    return Case({**rows, "u": u, "own": own, "before": before, "walk": walk, "stay": stay}, run, error)


def join_case(shape: tuple[int, int], dtype: str) -> Case:
    n = shape[0] + 5
    rng = np.random.default_rng(shape)
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 3, shape[0]))])
    ends = rng.integers(0, n, indptr[-1]).astype(np.int32)
    data = (rng.random(indptr[-1]) > 0.3).astype(dtype)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        parents = np.arange(n)
        assert body(*a.values(), 2, parents=parents) is None
        return {"components": components_of(parents)}

    return Case({"indptr": indptr, "indices": ends, "data": data}, run)


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


def increasing(shape: tuple[int, int], dtype: str, seed: int) -> dict[str, Array]:
    """Sparse rows with columns that increase; whole numbers, among them zeros, and equal rows."""
    rng = np.random.default_rng([*shape, seed])
    x = rng.integers(0, 4, shape) * (rng.random(shape) < 0.4)
    x[: len(x) // 3] = x[0]
    stored = (x != 0) | (rng.random(shape) < 0.1)
    indptr = np.concatenate([[0], np.cumsum(stored.sum(axis=1))])
    return {
        "indptr": indptr,
        "indices": np.nonzero(stored)[1].astype(np.int32),
        "data": x[stored].astype(dtype),
    }


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


def met_as_sets(body: Body, one: Any, two: Any, **how: Any) -> Outputs:
    """Lists of two blocks, or of one among itself, by both metrics; some of a second block take nothing."""
    outputs = {}
    for metric, same, takes in itertools.product(SetMetric, (False, True), (False, True)):
        sides = one, one if same else two
        found = [Lists(*fill(len(side), 3, np.inf, neighbors.EMPTY), np.zeros(1, np.int64)) for side in sides]
        for _ in range(2):  # a pair that meets again changes nothing
            lists_j = None if same or not takes else found[1]
            body(*sides, lists_i=found[0], lists_j=lists_j, metric=int(metric), same=same, **how)
        for side, each in zip("ij", found, strict=True):
            outputs |= listed(f"{side} {metric.name} {same} {takes}", each.keys, each.ids)
    return outputs


def meet_bits_case(shape: tuple[int, int], dtype: str) -> Case:
    inputs = {}
    for side, rows in (("x", shape[0]), ("y", 3 * shape[0] + 150)):  # more than a run of columns
        rng = np.random.default_rng([*shape, ord(side)])
        bits = rng.random((rows, 11 * shape[1])) < rng.random((rows, 1)) ** 2
        bits[: rows // 3] = bits[0]
        packed = np.zeros((rows, 8 * -(-bits.shape[1] // 64)), np.uint8)
        packed[:, : -(-bits.shape[1] // 8)] = np.packbits(bits, axis=1)
        inputs |= {f"words {side}": packed.view(np.uint64), f"sizes {side}": bits.sum(axis=1)}

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        x, y = (
            BitRows(first, 11 * shape[1], a[f"words {side}"], a[f"sizes {side}"])
            for side, first in (("x", 1000), ("y", 5))
        )
        return met_as_sets(body, x, y)

    return Case(inputs, run)


def meet_sets_case(shape: tuple[int, int], dtype: str) -> Case:
    n, d = shape
    inputs = {
        f"{name} {side}": a
        for side, rows in (("x", n), ("y", n + 150))
        for name, a in increasing((rows, d), "uint8", ord(side)).items()
        if name != "data"
    }

    def block(a: dict[str, Any], side: str) -> SparseRows:
        indptr, indices = (a[f"{name} {side}"] for name in ("indptr", "indices"))
        each = np.ones(len(indptr) - 1)
        return SparseRows(7, d, indptr, indices, np.ones(len(indices), np.uint8), each, each, each[:, None])

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        room = {"room": lambda name, size, kind: np.empty(size, kind)}
        return met_as_sets(body, block(a, "x"), block(a, "y"), common=np.arange(0, d, 3), **room)

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


def centers_in_groups(shape: tuple[int, int], dtype: str) -> tuple[Array, Array, Array]:
    """Rows of few values, centers among which some are equal and some are rows, and groups of these."""
    x = np.round(matrix(shape, dtype) / 8).astype(dtype)
    exact = np.concatenate([x[::3].astype(float), x[:1].astype(float), matrix((4, shape[1]), seed=6) / 8])
    return x, exact, np.arange(len(exact)) % max(1, len(exact) // 2)


def assign_case(shape: tuple[int, int], dtype: str) -> Case:
    x, exact, groups = centers_in_groups(shape, dtype)
    shift, (k, n) = matrix(shape[1:], working(dtype), seed=7) / 8, exact.shape
    weights = np.arange(1.0, len(x) + 1)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        labels, bounds = np.full(len(x), -1, np.int32), np.empty((len(x), 2 + groups.max()), np.float32)
        into = {"sums": np.zeros((k, n)), "counts": np.zeros(k), "squares": np.zeros(1)}
        outputs, before = {}, None
        for step, centers in enumerate((a["exact"], a["exact"] + 1 / 64, a["exact"][::-1].copy())):
            packed = centers_of(centers, shift, groups, before)
            how: dict[str, Any] = {"weights": a["weights"], "whole": step == 0}
            moved = body(a["x"], packed, labels=labels, bounds=bounds, **into, **how)
            before, outputs[f"moved {step}"], outputs[f"labels {step}"] = centers, moved, labels.copy()
        return {**outputs, **into}

    # Labels are exact, and so is every addition but those of squares, which may be in any order.
    d = (x.astype(float) - shift) ** 2
    return Case(
        {"x": x, "exact": exact, "weights": weights},
        run,
        {"squares": 2 * (d.size + 2) * EPS * (weights @ d.sum(axis=1))},
    )


def own_distances_case(shape: tuple[int, int], dtype: str) -> Case:
    x, exact, _ = centers_in_groups(shape, dtype)
    labels = (np.arange(len(x)) % len(exact)).astype(np.int32)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        out = np.full(len(x), np.nan)
        assert body(a["x"], a["exact"], labels, out=out) is None
        return {"out": out}

    return Case({"x": x, "exact": exact}, run)


CASES: dict[tuple[str, str], tuple[Callable[[tuple[int, int], str], Case], tuple[str, ...]]] = {
    ("clustering.nearest_centers", "assign_rows"): (assign_case, ALL),
    ("clustering.far_rows", "own_distances"): (own_distances_case, ALL),
    ("linear.center_scale", "measure"): (measure_case, ALL),
    ("linear.center_scale", "subtract"): (subtract_case, ALL),
    ("linear.count_sketch", "draw_buckets"): (drawn_case, ("float64",)),
    ("linear.count_sketch", "add_to_buckets"): (buckets_case, FLOATS),
    ("nonnegative.kl_divergence", "quotients"): (quotients_case, FLOATS),
    ("hashing.digest", "mix_words"): (mixing_case, ("float64",)),
    ("linear.moments", "add_rows"): (add_rows_case, ALL),
    ("linear.moments", "merge_moments"): (merge_moments_case, ("float64",)),
    ("nonnegative.multiplicative", "multiply_rows"): (multiply_case, FLOATS),
    ("neighbors.lists", "scan_pairs"): (scan_case, FLOATS),
    ("neighbors.lists", "refine_rows"): (refine_case, ALL),
    ("neighbors.lists", "exhaust_rows"): (exhaust_case, ALL),
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
    ("layout.vertices", "move_vertices"): (layout_case, ("int32", "int64")),
    ("layout.rows", "place_rows"): (place_case, ("float32",)),
    ("graph.fuzzy", "membership"): (membership_case, FLOATS),
    ("graph.paths", "lower_distances"): (paths_case, FLOATS),
    ("graph.paths", "search_breadth_first"): (components_case, ("int32", "int64")),
    ("graph.walk", "step_rows"): (step_case, FLOATS),
    ("graph.walk", "join_edges"): (join_case, FLOATS),
    ("nonnegative.nnls", "descend_rows"): (lambda *case: nonnegative_case(*case, solve=False), FLOATS),
    ("nonnegative.nnls", "solve_rows"): (lambda *case: nonnegative_case(*case, solve=True), ("float64",)),
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
    ("neighbors.sparse_meeting", "square_rows"): (squares_case, ALL),
    ("neighbors.sparse_meeting", "meet_sparse_rows"): (meet_sparse_case, ALL),
    ("bits.bit_meeting", "meet_bits"): (meet_bits_case, ("float64",)),
    ("bits.set_meeting", "meet_sets"): (meet_sets_case, ("float64",)),
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
    ("linear.qr", "panel_r"): (lambda shape, dtype: returns("r", y=matrix(shape)), ("float64",)),
    ("linear.qr", "merge_r"): (
        lambda shape, dtype: returns("r", a=np.triu(matrix((shape[1],) * 2)), b=np.eye(shape[1])),
        ("float64",),
    ),
    ("linear.qr", "r_of_gram"): (
        lambda shape, dtype: returns("r", product=gram_of(shape[1])),
        ("float64",),
    ),
    ("neighbors.tree", "arrange_points"): (arrange_case, ("float64",)),
    ("neighbors.tree", "nearest_in_tree"): (lambda *case: tree_case(*case, "nearest_in_tree"), ("float64",)),
    ("neighbors.tree", "count_within"): (lambda *case: tree_case(*case, "count_within"), ("float64",)),
    ("neighbors.tree", "list_within"): (lambda *case: tree_case(*case, "list_within"), ("float64",)),
    ("partitions.visits", "choose_visits"): (visits_case, ("float64",)),
    ("neighbors.ranks", "count_nearer"): (count_nearer_case, ALL),
    ("neighbors.ranking", "rank_rows"): (rank_case, ALL),
    ("neighbors.ranks", "count_every_pair"): (count_measured_case, ("float64",)),
    ("neighbors.ranks", "measure_keys"): (listed_pairs_case, ALL),
    ("linear.sketch", "sketch_product"): (sketch_case, FLOATS),
    ("linear.dense", "leading_eigenpairs"): (eigenpairs_case, ("float64",)),
    ("linear.dense", "leading_singular_triplets"): (triplets_case, ("float64",)),
    ("linear.dense", "fix_signs"): (lambda shape, dtype: returns("signs", v=matrix(shape)), ("float64",)),
    ("nonnegative.admm", "split_rows"): (split_case, FLOATS),
    ("nonnegative.projected_gradient", "gradient_rows"): (gradient_case, FLOATS),
    ("nonnegative.weighted_rows", "pair_products"): (pair_products_case, FLOATS),
    ("nonnegative.weighted_rows", "descend_weighted_rows"): (weighted_descent_case, FLOATS),
    ("nonnegative.weighted_rows", "gradient_weighted_rows"): (weighted_gradient_case, FLOATS),
}


# Conformance ---------------------------------------------------------------------------------------


def bodies() -> Iterator[Any]:
    """Every body that can be called, with every type it takes: the reference and each tuned one."""
    for module, name in KERNELS:
        devices = [d for m, n, d in TUNED if (m, n) == (module, name)]
        if "gpu" not in devices and is_portable(module, name):
            devices.append("gpu")
        for device in ("reference", *devices):
            marks = [pytest.mark.gpu] if device == "gpu" else []
            for dtype in CASES[module, name][1] if (module, name) in CASES else ():
                yield pytest.param(
                    module, name, device, dtype, marks=marks, id=f"{module}.{name}-{device}-{dtype}"
                )


def is_portable(module: str, name: str) -> bool:
    """Whether the reference body takes arrays of any device."""
    return getattr(contract(module, name), "portable", False)


def assert_conforms(case: Case, expected: Outputs, body: Body, layout: str, xp: Any) -> None:
    inputs = {name: LAYOUTS[layout](xp.asarray(a), xp) for name, a in case.inputs.items()}
    found = case.run(body, inputs, xp)
    for name, value in expected.items():
        host = found[name].get() if hasattr(found[name], "get") else found[name]
        assert np.shape(host) == np.shape(value), f"shape of {name}, {layout}"
        worst = np.abs(np.asarray(host, np.float64) - value) - case.error.get(name, 0.0)
        assert (worst <= 0).all(), f"{name}, {layout}: beyond the bound by {worst.max()}"
    for name, before in case.inputs.items():
        after = inputs[name].get() if hasattr(inputs[name], "get") else inputs[name]
        np.testing.assert_array_equal(after, before, err_msg=f"{name} is left untouched, {layout}")


@pytest.mark.parametrize(("module", "name", "device", "dtype"), list(bodies()))
def test_every_body_gives_what_its_reference_gives(module: str, name: str, device: str, dtype: str) -> None:
    kernel = contract(module, name)
    xp = importlib.import_module("cupy") if device == "gpu" else np
    body = kernel.reference if device == "reference" else kernel
    tuned = implementation(f"rankfold.kernels.{module}", name, device) is not None
    assert device == "reference" or tuned or is_portable(module, name)
    for shape in SHAPES:
        case = CASES[module, name][0](shape, dtype)
        expected = case.run(kernel.reference, case.inputs, np)
        for layout in LAYOUTS:
            if not (device == "gpu" and layout == "read only"):  # device arrays cannot be made read-only
                assert_conforms(case, expected, body, layout, xp)


def test_every_kernel_has_a_case() -> None:
    assert set(CASES) == set(KERNELS)


# Files ---------------------------------------------------------------------------------------------


def argument_names(node: ast.FunctionDef) -> list[list[str]]:
    arguments = node.args
    return [[a.arg for a in kind] for kind in (arguments.posonlyargs, arguments.args, arguments.kwonlyargs)]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_every_tuned_body_has_a_contract(device: str) -> None:
    found = {
        (f"{path.parents[1].name}.{path.stem}", name, device)
        for path in FOLDER.glob(f"*/{device}/*.py")
        if not path.stem.startswith("_")
        for name in functions(path)
        if not name.startswith("_")
    }
    assert found == {each for each in TUNED if each[2] == device}


def test_a_body_is_not_loaded_to_find_out_that_there_is_none() -> None:
    code = (
        "import sys\nfrom rankfold.kernels._dispatch import implementation\n"
        "assert implementation('rankfold.kernels.linear.count_sketch', 'draw_buckets', 'cpu') is None\n"
        "assert implementation('rankfold.kernels.linear.qr', 'panel_r', 'gpu') is None\n"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(("module", "name", "device"), TUNED)
def test_a_tuned_body_has_the_arguments_of_its_contract(module: str, name: str, device: str) -> None:
    tuned = functions(tuned_file(module, device))[name]
    reference = functions(FOLDER / f"{module.replace('.', '/')}.py")[name]
    assert argument_names(tuned) == argument_names(reference)
    assert (ast.get_docstring(tuned) or "").startswith("See the contract")


@pytest.mark.parametrize(("module", "name"), KERNELS)
def test_a_kernel_pickles_as_its_name(module: str, name: str) -> None:
    kernel = contract(module, name)
    message = pickle.dumps(kernel)
    assert pickle.loads(message) is kernel
    assert len(message) < 100


# Devices -------------------------------------------------------------------------------------------


class DeviceArray:
    """What CuPy's arrays look like to the dispatcher: a class whose module is CuPy's."""

    __module__ = "cupy._core.core"


HOST, OTHER = np.ones((2, 2)), DeviceArray()
MIXED: dict[str, Callable[[], Any]] = {
    "measure": lambda: contract("linear.center_scale", "measure")(HOST, OTHER, 1.0),
    "subtract": lambda: contract("linear.center_scale", "subtract")(HOST, HOST[0], HOST[0], out=OTHER),
    "add_to_buckets": lambda: contract("linear.count_sketch", "add_to_buckets")(
        OTHER, HOST[0], HOST[0], sums=HOST
    ),
    "add_rows": lambda: contract("linear.moments", "add_rows")(
        None, OTHER, HOST[0], 1.0, out=HOST, work=HOST
    ),
    "panel_product": lambda: contract("linear.panel", "panel_product")(
        OTHER, HOST, y=HOST, z=HOST, work=HOST
    ),
    "merge_r": lambda: contract("linear.qr", "merge_r")(HOST, OTHER),
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_devices_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match="host and device are mixed in one kernel call"):
        MIXED[name]()


def test_arrays_decide_the_device() -> None:
    assert device_of(HOST, 3, None, "name") == "cpu"
    assert device_of(3, OTHER) == "gpu"
    assert device_of(1.0, (1, 2)) == "cpu"


def test_a_numpy_number_is_no_host_array() -> None:
    assert device_of(OTHER, np.float64(0.5), np.int64(3)) == "gpu"
