"""Cases of kernels of the family ``layout``."""

from __future__ import annotations

from typing import Any

import numpy as np
from kernel_cases.case import (
    Body,
    Case,
    MakeCase,
    Outputs,
    apart,
    matrix,
)

from rankfold.kernels.grid.nodes import Lattice
from rankfold.kernels.layout.descent import Affinities, Descent, Motion
from rankfold.kernels.layout.forces import (
    Density,
    Edges,
    Epoch,
    Forces,
    closeness_of,
    epoch_key,
    forces_of,
    phases_of,
)
from rankfold.kernels.layout.rows import NewRows, row_keys
from rankfold.kernels.layout.settling import NewPoints, PlacementOptions


def tables(xp: Any) -> Forces:
    """Forces of a curve, where they are computed with."""
    return Forces(*map(xp.asarray, forces_of(1.6, 0.9, 1.0)))


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
    inputs |= {"pushes": 3 * matrix((n, 2), "float32"), "closeness": closeness_of(1.6, 0.9)}

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        outputs = {}
        for epoch, negatives, is_spread in ((1, 5, 0), (7, 2, 0), (8, 0, 0), (7, 3, 1), (8, 4, 1)):
            out = apart(xp.zeros((shape[0], d), np.float32), xp)
            edges = Edges(a["pointers"], a["neighbors"], a["phases"])
            now = Epoch(epoch, epoch_key(3, 4, epoch), 0.7, negatives)
            how: dict[str, Any] = {"forces": tables(xp), "epoch": now, "out": out}
            if is_spread:
                how["density"] = Density(a["closeness"], 0.9, a["pushes"])
            assert body(a["positions"], a["vertices"], edges, **how) is None
            assert xp.isfinite(out).all()
            outputs[f"epoch {epoch}{' by density' * is_spread}"] = out
        return outputs

    return Case(inputs, run)


def radii_case(shape: tuple[int, int], dtype: str) -> Case:
    n, d = shape[0] + 3, min(shape[1], 5)
    positions = matrix((n, d), "float32") / 3
    positions[n // 2] = positions[0]  # two in one place
    positions[1] += 1e9  # beyond all tables
    rng = np.random.default_rng(shape)
    pointers = np.concatenate([[0], np.cumsum(rng.integers(0, 5, shape[0]))])
    ends = rng.integers(0, n, pointers[-1])
    inputs = {"positions": positions, "own": positions[: shape[0]].copy(), "pointers": pointers}
    inputs |= {"neighbors": ends.astype(dtype), "closeness": closeness_of(1.6, 0.9)}

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        out = apart(xp.zeros((shape[0], 2), np.float32), xp)
        edges = Edges(a["pointers"], a["neighbors"], xp.zeros(len(ends), np.uint32))
        assert body(a["positions"], a["own"], edges, closeness=a["closeness"], out=out) is None
        assert xp.isfinite(out).all() and (out >= 0).all()
        return {"radii": out}

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
        rates = xp.asarray(np.linspace(0.3, 0.1, 4, dtype=np.float32))
        keys = xp.asarray(row_keys(neighbors, 7))
        for negatives in (5, 2, 0):
            out = apart(xp.zeros((m, d), np.float32), xp)
            rows = NewRows(a["neighbors"], a["phases"], keys, a["start"])
            how: dict[str, Any] = {"forces": tables(xp), "rates": rates, "out": out}
            assert body(a["positions"], rows, negatives=negatives, **how) is None
            assert xp.isfinite(out).all()
            outputs[f"negatives {negatives}"] = out
        return outputs

    return Case(inputs, run)


def descent_case(shape: tuple[int, int], dtype: str, *, measure: bool = False) -> Case:
    n, d = shape[0] + 3, min(shape[1], 5)
    positions = matrix((n, d), "float32") / 3
    positions[n // 2] = positions[0]  # two in one place
    rng = np.random.default_rng(shape)
    pointers = np.concatenate([[0], np.cumsum(rng.integers(0, 5, shape[0]))])
    pointers[-1] += 600 * (shape[0] > 8)  # more than are taken together
    ends = rng.integers(0, n, pointers[-1])
    push = matrix((shape[0], d), "float32", 4)
    inputs = {"positions": positions, "pointers": pointers, "neighbors": ends.astype(dtype)}
    inputs |= {"weights": rng.random(len(ends)).astype(np.float32), "push": push}
    inputs |= {"velocities": matrix((shape[0], d), "float32", 5) / 99, "gains": np.abs(push) / 9}
    now = Descent(12.0, 0.1, 0.01, 0.8, 0.3)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        pulls = Affinities(a["pointers"], a["neighbors"], a["weights"])
        if measure:
            out = apart(xp.zeros((shape[0], 2), np.float32), xp)
            assert body(a["positions"], 2, pulls, a["push"], descent=now, out=out) is None
            return {"losses": out}
        out = apart(xp.zeros((shape[0], d), np.float32), xp)
        motion = Motion(apart(a["velocities"], xp), apart(a["gains"], xp))
        how: dict[str, Any] = {"descent": now, "motion": motion, "out": out}
        assert body(a["positions"], 2, pulls, a["push"], **how) is None
        assert (np.linalg.norm(motion.velocities, axis=1) < 0.3 + 1e-6).all()
        return {"positions": out, "velocities": motion.velocities, "gains": motion.gains}

    # Sums of up to 604 edges in float32, in any order, where each part is at most half of its weight; a loss
    # is at most 8 an edge, a gradient some thousand.
    error = 604 * 604 / 4 * 12 * float(np.finfo(np.float32).eps)
    if measure:
        return Case(inputs, run, {"losses": 2 * 2000 * error + 604 * 8 * 1e-6})
    return Case(inputs, run, {"positions": error, "velocities": error, "gains": 1e-6})


def measure_case(shape: tuple[int, int], dtype: str) -> Case:
    return descent_case(shape, dtype, measure=True)


def settle_case(shape: tuple[int, int], dtype: str, *, by_nodes: bool) -> Case:
    m, n, d, k = shape[0], shape[0] + 3, 2 if by_nodes else min(shape[1], 5), 4
    positions = np.clip(matrix((n, d), "float32"), -20, 20)
    rng = np.random.default_rng(shape)
    neighbors, weights = rng.integers(0, n, (m, k)), rng.random((m, k)).astype(np.float32)
    weights /= weights.sum(axis=1, keepdims=True)
    start = positions[neighbors[:, 0]].copy()
    inputs = {"positions": positions, "neighbors": neighbors, "weights": weights, "start": start}
    inputs |= {
        "sources": np.ascontiguousarray(positions.T),
        "nodes": np.abs(matrix((33, 35, 3), "float32")) + 1,
    }

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        outputs = {}
        for steps in (0, 3):
            out = apart(xp.zeros((m, d), np.float32), xp)
            rows = NewPoints(a["neighbors"], a["weights"], a["start"])
            field = (Lattice(-60.0, -63.0, 4.0), a["nodes"]) if by_nodes else (a["sources"],)
            options = PlacementOptions(steps, 0.1, 0.8, 1.5, 0.25)
            assert body(a["positions"], rows, *field, options=options, out=out) is None
            outputs[f"steps {steps}"] = out
        return outputs

    # Three short steps of numbers up to 60 in float32, whose gradients agree to the rounding of their sums. A
    # coordinate that turns back or not by rounding makes a difference of as much as its slope is.
    return Case(inputs, run, {"steps 0": 0, "steps 3": 1e-4})


def settle_by_nodes_case(shape: tuple[int, int], dtype: str) -> Case:
    return settle_case(shape, dtype, by_nodes=True)


def settle_by_pairs_case(shape: tuple[int, int], dtype: str) -> Case:
    return settle_case(shape, dtype, by_nodes=False)


CASES: dict[tuple[str, str], tuple[MakeCase, tuple[str, ...]]] = {
    ("layout.vertices", "move_vertices"): (layout_case, ("int32", "int64")),
    ("layout.radii", "measure_radii"): (radii_case, ("int32", "int64")),
    ("layout.descent", "descend"): (descent_case, ("int32", "int64")),
    ("layout.descent", "measure_descent"): (measure_case, ("int32", "int64")),
    ("layout.settling", "settle_by_nodes"): (settle_by_nodes_case, ("float32",)),
    ("layout.settling", "settle_by_pairs"): (settle_by_pairs_case, ("float32",)),
    ("layout.rows", "place_rows"): (place_case, ("float32",)),
}
