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


CASES: dict[tuple[str, str], tuple[MakeCase, tuple[str, ...]]] = {
    ("layout.vertices", "move_vertices"): (layout_case, ("int32", "int64")),
    ("layout.radii", "measure_radii"): (radii_case, ("int32", "int64")),
    ("layout.rows", "place_rows"): (place_case, ("float32",)),
}
