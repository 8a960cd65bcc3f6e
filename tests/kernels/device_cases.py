"""Kernels in CUDA C++ at sizes that fill more than one block, with what their references give."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

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
from rankfold.kernels.layout.radii import measure_radii
from rankfold.kernels.layout.rows import NewRows, place_rows, row_keys
from rankfold.kernels.layout.vertices import move_vertices
from rankfold.kernels.linear.center_scale import measure
from rankfold.kernels.linear.count_sketch import add_to_buckets
from rankfold.kernels.neighbors.lists import EMPTY, Metric, distance
from rankfold.kernels.neighbors.meeting import Lists, Rows, meet_rows
from rankfold.kernels.neighbors.ranking import Thresholds, rank_rows
from rankfold.kernels.nonnegative.kl_divergence import quotients
from rankfold.kernels.nonnegative.nnls import descend_rows, solve_rows

Array = npt.NDArray[Any]
Case = tuple[Any, tuple[Array, ...], Callable[..., Array], float]
"""A kernel, its inputs, how it is called with them, and the largest relative error."""


def rows_case(kernel: Any, k: int, dtype: str, rows: int, **how: Any) -> Case:
    rng = np.random.default_rng([k, rows])
    factor = rng.random((k + 9, k)) + 3 * np.eye(k + 9, k)
    gram, b = (factor.T @ factor).astype(dtype), (rng.standard_normal((rows, k)) * 20).astype(dtype)
    w = np.maximum(rng.standard_normal((rows, k)), 0).astype(dtype)

    def call(body: Any, gram: Array, b: Array, w: Array) -> Array:
        w = w.copy()
        body(gram, b, w=w, **({} if kernel is solve_rows else {"sweeps": 2}), **how)
        return w

    return kernel, (gram, b, w), call, 1e-4 if dtype == "float32" else 1e-10


def steps_case(k: int, **how: Any) -> Case:
    """Rows that the device solves without exchanges, as it does where these do not end."""
    kernel, inputs, call, error = rows_case(solve_rows, k, "float64", 4, **how)

    def by_steps(body: Any, *arrays: Array) -> Array:
        if "cupy" not in sys.modules:
            return call(body, *arrays)
        from rankfold.kernels.nonnegative.gpu import nnls

        with mock.patch.object(nnls, "EXCHANGES", 0):
            return call(body, *arrays)

    return kernel, inputs, by_steps, error


def quotients_case(dtype: str) -> Case:
    rng = np.random.default_rng(0)
    x, model = rng.random((5, 700)).astype(dtype), (rng.random((5, 700)) + 0.1).astype(dtype)

    def call(body: Any, x: Array, model: Array) -> Array:
        model, total = model.copy(), x[0, :1].astype(np.float64)
        body(x, model, total=total)
        model[0, :1] = total
        return model

    return quotients, (x, model), call, 1e-6 if dtype == "float32" else 1e-13


def measure_case(dtype: str) -> Case:
    rng = np.random.default_rng(0)
    x, shift = (rng.random((523, 200)) * 200).astype(dtype), rng.random(200) * 100
    return measure, (x, shift), lambda body, x, shift: body(x, shift, 0.5)[1], 1e-13


def buckets_case() -> Case:
    rng = np.random.default_rng(0)
    x, factors = rng.standard_normal((300, 200)), rng.choice([-0.5, 0.5], 300)
    buckets, sums = rng.integers(0, 40, 300), rng.standard_normal((40, 200))

    def call(body: Any, x: Array, buckets: Array, factors: Array, sums: Array) -> Array:
        sums = sums.copy()
        body(x, buckets, factors, sums=sums)
        return sums

    return add_to_buckets, (x, buckets, factors, sums), call, 1e-14


def meet_case(metric: Metric, dtype: str, columns: int, *, full: bool, precise: bool = False) -> Case:
    """Two blocks of several tiles; lists are empty, or each block has met itself."""
    rng = np.random.default_rng(columns)
    x, y = ((rng.standard_normal((n, columns)) * 30 + 100).astype(dtype) for n in (150, 290))
    x[40], x[41] = x[7], y[3]

    def call(body: Any, x: Array, y: Array) -> Array:
        sides = []
        for first, raw in ((0, x), (1000, y)):
            squares = (raw.astype(np.float64) ** 2).sum(axis=1)
            cosine = metric == Metric.COSINE
            scale = 1 / np.sqrt(squares) if cosine else np.ones_like(squares)
            norms = np.ones_like(squares) if cosine else squares
            copy = raw.astype(np.float32) if isinstance(raw, np.ndarray) else None
            sides.append(Rows(first, raw, copy, norms, scale))
        zeros = [np.zeros_like(each.norms, shape=(len(each), 3)) for each in sides]
        one, two = (Lists(z + np.inf, z.astype(int) + EMPTY, z[0, :1].astype(int)) for z in zeros)
        how: dict[str, Any] = {"shift": None, "precise": precise, "room": None, "metric": int(metric)}
        for side, lists in zip(sides, (one, two), strict=True):
            if full:
                body(side, side, lists_i=lists, lists_j=None, same=True, **how)
        body(*sides, lists_i=one, lists_j=two, same=False, **how)
        pairs = one.keys, one.ids, two.keys, two.ids
        return np.concatenate([np.sort(each, axis=1).astype(np.float64) for each in pairs])

    return meet_rows, (x, y), call, 0.0


def rank_case(metric: Metric, dtype: str, k: int, *, precise: bool) -> Case:
    """Some rows among others, of which some are equal to thresholds and come before or after by their ids."""
    rng = np.random.default_rng(k)
    y = (rng.standard_normal((290, 21)) * 30 + 100).astype(dtype)
    y[100:140] = y[:40]
    x, squares = y[:9].copy(), (y.astype(np.float64) ** 2).sum(axis=1)
    cosine = metric == Metric.COSINE
    scale = 1 / np.sqrt(squares) if cosine else np.ones(290)
    others = list(zip(y, scale, strict=True))
    keys = np.array([[distance(a, b, s, t, metric=metric) for b, t in others] for a, s in others[:9]])
    repeats = -(-k // 290)
    keys = np.tile(keys, repeats)[:, :k]
    ids = np.tile(np.arange(290) + 1000, (9, repeats))[:, :k] - rng.integers(0, 2, k)
    order = np.lexsort((ids, keys), axis=1)
    keys, ids = np.take_along_axis(keys, order, 1), np.take_along_axis(ids, order, 1)

    def call(body: Any, x: Array, y: Array, scale: Array, squares: Array, keys: Array, ids: Array) -> Array:
        sides = []
        for first, raw in ((0, x), (1000, y)):
            weights, norms = scale[: len(raw)], squares[: len(raw)]
            copy = raw.astype(np.float64) * (weights[:, None] if cosine else 1)
            norms = np.ones_like(norms) if cosine else norms
            sides.append(Rows(first, raw, copy.astype(np.float32), norms, weights))
        counts, measured = ids * 0, ids[0, :1] * 0
        own = 999 + np.cumsum(counts[:, 0] + 1)
        how: dict[str, Any] = {"metric": int(metric), "precise": precise, "shift": None}
        how["room"] = lambda name, shape, kind: np.empty(shape, kind)
        body(*sides, thresholds=Thresholds(keys, ids, own), counts=counts, measured=measured, **how)
        return counts

    return rank_rows, (x, y, scale, squares, keys, ids), call, 0.0


def layout_case(kernel: Any, columns: int, *, dense: bool = False) -> Case:
    """Vertices of more than one block, some of them without edges; all inputs are those of each kernel."""
    rng = np.random.default_rng(columns)
    rows, k = 140, 4
    positions = rng.standard_normal((rows, columns)).astype(np.float32)
    pointers = np.concatenate([[0], np.cumsum(rng.integers(0, 9, rows))])
    ends = rng.integers(0, rows, pointers[-1])
    phases = phases_of(rng.random(max(len(ends), rows * k)).astype(np.float32), 1.0)
    pushes = rng.standard_normal((rows, 2)).astype(np.float32)
    lists = rng.integers(0, rows, (rows, k))
    rates = np.array([0.3, 0.2, 0.1], np.float32)
    inputs = positions, pointers, ends, phases, pushes, closeness_of(1.6, 0.9), lists, row_keys(lists, 7)

    def call(body: Any, *arrays: Array) -> Array:
        places, pointers, ends, phases, pushes, closeness, lists, keys, order, rates, *tables = arrays
        edges, out = Edges(pointers, ends, phases), places * 0
        if kernel is measure_radii:
            out = pushes * 0
            body(places, places, edges, closeness=closeness, out=out)
        elif kernel is place_rows:
            turns = phases[: rows * k].reshape(rows, k)
            new = NewRows(lists, turns, keys, places)
            body(places, new, forces=Forces(*tables), rates=rates, negatives=3, out=out)
        else:
            density = Density(closeness, 0.9, pushes) if dense else None
            now = Epoch(5, epoch_key(3, 4, 5), 0.7, 5)
            how: dict[str, Any] = {"forces": Forces(*tables), "epoch": now, "density": density}
            body(places, order, edges, out=out, **how)
        return out

    return kernel, (*inputs, rng.permutation(rows), rates, *forces_of(1.6, 0.9, 1.0)), call, 0.0


CASES: dict[str, Callable[[], Case]] = {
    "descend_rows 30 float32": lambda: rows_case(descend_rows, 30, "float32", 520),
    "descend_rows 64 float32": lambda: rows_case(descend_rows, 64, "float32", 260),
    "descend_rows 128 float32": lambda: rows_case(descend_rows, 128, "float32", 5),
    "descend_rows 30 float64": lambda: rows_case(descend_rows, 30, "float64", 260),
    "descend_rows 61 float64": lambda: rows_case(descend_rows, 61, "float64", 9),
    "descend_rows 130 float64": lambda: rows_case(descend_rows, 130, "float64", 3),
    "solve_rows 7": lambda: rows_case(solve_rows, 7, "float64", 30),
    "solve_rows 40": lambda: rows_case(solve_rows, 40, "float64", 4),
    "solve_rows 40 below a bound": lambda: rows_case(solve_rows, 40, "float64", 4, upper=0.5),
    "solve_rows 40 on a simplex": lambda: rows_case(solve_rows, 40, "float64", 4, simplex=True),
    "solve_rows 40 by steps": lambda: steps_case(40),
    "solve_rows 40 below a bound by steps": lambda: steps_case(40, upper=0.5),
    "solve_rows 40 on a simplex by steps": lambda: steps_case(40, simplex=True),
    "solve_rows 160": lambda: rows_case(solve_rows, 160, "float64", 2),
    "quotients float32": lambda: quotients_case("float32"),
    "quotients float64": lambda: quotients_case("float64"),
    "measure float32": lambda: measure_case("float32"),
    "measure uint8": lambda: measure_case("uint8"),
    "add_to_buckets": buckets_case,
    "meet_rows": lambda: meet_case(Metric.EUCLIDEAN, "float32", 100, full=True),
    "meet_rows of wide rows": lambda: meet_case(Metric.SQEUCLIDEAN, "float64", 400, full=False),
    "meet_rows of bytes": lambda: meet_case(Metric.COSINE, "uint8", 21, full=False),
    "meet_rows in float64": lambda: meet_case(Metric.EUCLIDEAN, "float64", 21, full=True, precise=True),
    "rank_rows": lambda: rank_case(Metric.EUCLIDEAN, "float32", 40, precise=False),
    "rank_rows of bytes": lambda: rank_case(Metric.COSINE, "uint8", 5, precise=True),
    "move_vertices": lambda: layout_case(move_vertices, 2),
    "move_vertices by density": lambda: layout_case(move_vertices, 3, dense=True),
    "move_vertices in space": lambda: layout_case(move_vertices, 5, dense=True),
    "place_rows": lambda: layout_case(place_rows, 2),
    "place_rows in space": lambda: layout_case(place_rows, 5),
    "measure_radii": lambda: layout_case(measure_radii, 2),
    "rank_rows by many thresholds": lambda: rank_case(Metric.SQEUCLIDEAN, "float64", 1100, precise=False),
}


def reference(name: str) -> Array:
    """What a case comes to on the host."""
    kernel, inputs, call, _ = CASES[name]()
    return call(kernel.reference, *inputs)


def on_device(name: str) -> Array:
    """What a case comes to on a device."""
    import cupy

    kernel, inputs, call, _ = CASES[name]()
    result: Array = cupy.asnumpy(call(kernel, *(cupy.asarray(each) for each in inputs)))
    return result


def agrees(name: str, found: Array) -> bool:
    """Whether a result is that of the reference, within the error of the case."""
    expected = reference(name)
    return bool(np.abs(found - expected).max() <= CASES[name]()[3] * np.abs(expected).max())
