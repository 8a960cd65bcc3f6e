"""Cases of kernels of the family ``grid``."""

from __future__ import annotations

from typing import Any

import numpy as np
from kernel_cases.case import EPS, Array, Body, Case, MakeCase, Outputs, apart, matrix

from rankfold.kernels.grid.nodes import Lattice

SINGLE = float(np.finfo(np.float32).eps)
LATTICE, NODES = Lattice(-60.0, -63.0, 4.0), (33, 35)


def points_in_lattice(rows: int, dtype: str) -> Array:
    points = np.clip(matrix((rows, 2), dtype), -50, 50)
    points[rows // 2] = points[0]
    points[-1] = -56, 61  # on a node
    return points


def spread_case(shape: tuple[int, int], dtype: str) -> Case:
    positions = points_in_lattice(shape[0], dtype)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        out = apart(xp.ones(NODES, np.float64), xp)
        assert body(a["positions"], LATTICE, 0, out=out) is None
        some = apart(xp.ones((9, NODES[1]), np.float64), xp)
        body(a["positions"], LATTICE, 11, out=some)
        assert (some == out[11:20]).all()
        return {"nodes": out}

    # A part of a point in a node is the product of two cubics, each in the rounding of places of 30 cells.
    return Case({"positions": positions}, run, {"nodes": shape[0] * 200 * EPS})


def potentials_case(shape: tuple[int, int], dtype: str) -> Case:
    positions = points_in_lattice(shape[0], dtype)
    nodes = matrix((*NODES, 3), dtype)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        outputs = {}
        for kinds in (2, 3):
            out = apart(xp.zeros((shape[0], kinds), np.float32), xp)
            assert body(a["positions"], LATTICE, a["nodes"][..., :kinds], out=out) is None
            outputs[f"potentials {kinds}"] = out
        return outputs

    bound = 2 * SINGLE * float(np.abs(nodes).max())  # rounded once, from sums in float64
    inputs = {"positions": positions, "nodes": nodes}
    return Case(inputs, run, {"potentials 2": bound, "potentials 3": bound})


def pairs_case(shape: tuple[int, int], dtype: str) -> Case:
    sources = matrix((min(shape[1], 5), 1030 + shape[0]), dtype)
    targets = np.ascontiguousarray(sources.T[: shape[0]])

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        push = apart(xp.zeros(targets.shape, np.float32), xp)
        near = xp.zeros(len(targets), np.float64)
        assert body(a["targets"], a["sources"], push=push, near=near) is None
        assert (near >= 1 - SINGLE).all()
        return {"push": push, "near": near}

    # Sums of 1024 in float32, none of whose parts is larger than 1: each addition rounds once at most.
    bound = 1024 * SINGLE * 1024 / 8
    return Case({"targets": targets, "sources": sources}, run, {"push": bound, "near": bound})


CASES: dict[tuple[str, str], tuple[MakeCase, tuple[str, ...]]] = {
    ("grid.nodes", "spread_charges"): (spread_case, ("float32",)),
    ("grid.nodes", "potentials_at"): (potentials_case, ("float32",)),
    ("grid.pairs", "push_sums"): (pairs_case, ("float32",)),
}
