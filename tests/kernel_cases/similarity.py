"""Cases of kernels of the family ``similarity``."""

from __future__ import annotations

from typing import Any

import numpy as np
from kernel_cases.case import EPS, Body, Case, MakeCase, Outputs, apart, matrix

from rankfold.kernels.similarity.functions import Kind, Similarity, rows_of

GAMMA = 1e-3


def product_of_ends(x: Any, y: Any) -> Any:
    return x[0] * y[-1]


KINDS = (
    Similarity(Kind.RBF, GAMMA),
    Similarity(Kind.RBF, 1e9),
    Similarity(Kind.LAPLACIAN, GAMMA),
    Similarity(Kind.POLYNOMIAL, GAMMA, 3.0, 1.0),
    Similarity(Kind.SIGMOID, GAMMA, coef0=0.5),
    Similarity(Kind.COSINE),
    Similarity(Kind.LINEAR),
    Similarity(Kind.FUNCTION, function=product_of_ends),
)


def evaluate_case(shape: tuple[int, int], dtype: str) -> Case:
    x, y = matrix(shape, dtype), matrix((shape[0] + 2, shape[1]), dtype, seed=4)
    y[:2] = x[0]
    y[1] += np.float32(1e-3)  # near, and far from zero
    inputs = {"x": x, "y": y}

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        outputs = {}
        for number, similarity in enumerate(KINDS):
            rows = (rows_of(each, similarity, np.ones(shape[1])) for each in (a["x"], a["y"]))
            out = apart(xp.zeros((len(x), len(y))), xp)
            assert body(*rows, similarity=similarity, out=out) is None
            outputs[f"{number} {Kind(similarity.kind).name}"] = out
        return outputs

    # Two products of d terms, each by d roundings; polynomials multiply that by their slope.
    sizes = np.square(x.astype(float)).sum() + np.square(y.astype(float)).sum()
    products = 2 * (shape[1] + 4) * EPS * sizes
    slope = 3 * GAMMA * (GAMMA * sizes + 1) ** 2
    errors = {
        Kind.RBF: GAMMA * products + 8 * EPS,
        Kind.LAPLACIAN: 8 * (shape[1] + 4) * EPS,
        Kind.POLYNOMIAL: slope * products + 8 * EPS * (GAMMA * sizes + 1) ** 3,
        Kind.SIGMOID: GAMMA * products + 8 * EPS,
        Kind.COSINE: 2 * (shape[1] + 4) * EPS,
        Kind.LINEAR: products,
        Kind.FUNCTION: 0.0,
    }
    return Case(
        inputs,
        run,
        {f"{n} {Kind(each.kind).name}": errors[Kind(each.kind)] for n, each in enumerate(KINDS)},
    )


CASES: dict[tuple[str, str], tuple[MakeCase, tuple[str, ...]]] = {
    ("similarity.tiles", "evaluate"): (evaluate_case, ("float32", "float64")),
}
