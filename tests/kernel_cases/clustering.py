"""Cases of kernels of the family ``clustering``."""

from __future__ import annotations

from typing import Any

import numpy as np
from kernel_cases.case import (
    ALL,
    EPS,
    Array,
    Body,
    Case,
    MakeCase,
    Outputs,
    matrix,
    working,
)

from rankfold.kernels.clustering.nearest_centers import centers_of


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


CASES: dict[tuple[str, str], tuple[MakeCase, tuple[str, ...]]] = {
    ("clustering.nearest_centers", "assign_rows"): (assign_case, ALL),
    ("clustering.far_rows", "own_distances"): (own_distances_case, ALL),
}
