"""Cases of kernels of the family ``graph``."""

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
    dense,
    matrix,
    nonzeros,
)

from rankfold.kernels.graph.fuzzy import CLOSE
from rankfold.kernels.graph.paths import Graph
from rankfold.kernels.graph.perplexity import CLOSE as ENTROPY_CLOSE
from rankfold.kernels.graph.walk import Steps, components_of


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


def affinities_case(shape: tuple[int, int], dtype: str) -> Case:
    distances = np.abs(matrix(shape, dtype))
    distances[::3, : shape[1] // 2] = 0  # in one place with others
    distances[::7] = 5

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        outputs = {}
        for some in ((0.5,), (1.0,), (0.3, 0.7)):
            perplexities = np.maximum(1.0, np.array(some) * shape[1])
            weights = apart(xp.zeros(shape, np.float64), xp)
            assert body(a["distances"], perplexities, out=weights) is None
            np.testing.assert_allclose(weights.sum(axis=1), 1, atol=shape[1] * EPS)
            outputs[f"weights {some}"] = weights
        return outputs

    # Entropies are as near to their target as either body stops at; at a perplexity of all neighbors, or of
    # one, they are flat, and weights are off by the square root of that.
    bound = 4 * ENTROPY_CLOSE**0.5
    return Case(
        {"distances": distances}, run, {f"weights {each}": bound for each in ((0.5,), (1.0,), (0.3, 0.7))}
    )


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


CASES: dict[tuple[str, str], tuple[MakeCase, tuple[str, ...]]] = {
    ("graph.perplexity", "affinities"): (affinities_case, FLOATS),
    ("graph.fuzzy", "membership"): (membership_case, FLOATS),
    ("graph.paths", "lower_distances"): (paths_case, FLOATS),
    ("graph.paths", "search_breadth_first"): (components_case, ("int32", "int64")),
    ("graph.walk", "step_rows"): (step_case, FLOATS),
    ("graph.walk", "join_edges"): (join_case, FLOATS),
}
