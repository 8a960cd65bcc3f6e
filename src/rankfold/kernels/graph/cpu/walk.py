"""Steps by sums in registers, and components by their roots. See ``kernels/graph/walk.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels._dispatch import plain, wide, writable, write_back
from rankfold.kernels.graph.walk import Steps
from rankfold.kernels.sparse.cpu._gather import Lanes, parts, store_sum
from rankfold.kernels.sparse.cpu._order import positions

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@compile_loop
def _step_rows(
    indptr: Int64,
    indices: Array,
    data: Array,
    u: Float64,
    own: Float64,
    before: Float64,
    walk: Float64,
    stay: Float64,
    back: float,
    out: Float64,
    column: int,
    lanes: Lanes,
) -> None:
    end, last = indptr[len(indptr) - 1], column + 2 ** len(lanes)
    for i in range(len(indptr) - 1):
        store_sum(lanes, indices, data, indptr[i], indptr[i + 1], end, u, out, i, column)  # type: ignore[call-arg]
        for j in range(column, last):
            out[i, j] = walk[i] * out[i, j] + stay[i] * own[i, j] + back * before[i, j]


def step_rows(
    indptr: Array,
    indices: Array,
    data: Array,
    u: Float64,
    *,
    own: Float64,
    before: Float64,
    steps: Steps,
    out: Float64,
) -> None:
    """See the contract. One step of a random walk for a range of rows of a graph."""
    starts, columns, values = positions(indptr), plain(indices), plain(data)
    vectors, now, then, into = wide(u), plain(own), plain(before), writable(out)
    walk, stay = plain(steps.walk), plain(steps.stay)
    for column, lanes in parts(out.shape[1], out.dtype):
        _step_rows(
            starts, columns, values, vectors, now, then, walk, stay, float(steps.back), into, column, lanes
        )
    write_back(into, out)


def join_edges(indptr: Array, indices: Array, data: Array, first: int, *, parents: Int64) -> None:
    """See the contract. Joins the components of the two ends of each edge."""
    _join_edges(positions(indptr), plain(indices), plain(data), int(first), parents)


@compile_loop
def _join_edges(indptr: Int64, indices: Array, data: Array, first: int, parents: Int64) -> None:
    for i in range(len(indptr) - 1):
        a = _least(parents, first + i)
        for p in range(indptr[i], indptr[i + 1]):
            if data[p] > 0:
                b = _least(parents, indices[p])
                if a < b:
                    parents[b] = a
                elif b < a:
                    parents[a] = b
                    a = b


@part
def _least(parents: Int64, vertex: int) -> Any:
    while parents[vertex] != vertex:
        parents[vertex] = parents[parents[vertex]]
        vertex = parents[vertex]
    return vertex
