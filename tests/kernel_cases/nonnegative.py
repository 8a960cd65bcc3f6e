"""Cases of kernels of the family ``nonnegative``."""

from __future__ import annotations

from typing import Any

import numpy as np
from kernel_cases.case import (
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
)


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


CASES: dict[tuple[str, str], tuple[MakeCase, tuple[str, ...]]] = {
    ("nonnegative.kl_divergence", "quotients"): (quotients_case, FLOATS),
    ("nonnegative.multiplicative", "multiply_rows"): (multiply_case, FLOATS),
    ("nonnegative.nnls", "descend_rows"): (lambda *case: nonnegative_case(*case, solve=False), FLOATS),
    ("nonnegative.nnls", "solve_rows"): (lambda *case: nonnegative_case(*case, solve=True), ("float64",)),
    ("nonnegative.admm", "split_rows"): (split_case, FLOATS),
    ("nonnegative.projected_gradient", "gradient_rows"): (gradient_case, FLOATS),
    ("nonnegative.weighted_rows", "pair_products"): (pair_products_case, FLOATS),
    ("nonnegative.weighted_rows", "descend_weighted_rows"): (weighted_descent_case, FLOATS),
    ("nonnegative.weighted_rows", "gradient_weighted_rows"): (weighted_gradient_case, FLOATS),
}
