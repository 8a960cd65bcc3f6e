"""Compiled loops of walks, each run once on a few numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rankfold.kernels.graph.walk import Steps, join_edges, step_rows
from rankfold.methods.spectral.walk.filter import block_width


def warm_walk(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Compile the Numba loops that multiply a graph with blocks of vectors, and that find components."""
    width = block_width(int(request["n_components"]))
    _warm(np.dtype(np.float32), width)  # weights of fuzzy_graph, which may be made of distances in float64
    if dtype != np.float32:
        _warm(np.dtype(np.float64), width)


@functools.cache
def _warm(dtype: np.dtype[Any], width: int) -> None:
    for index in (np.int32, np.int64):
        graph = np.arange(3), np.array([1, 0], index), np.ones(2, dtype)
        join_edges(*graph, 0, parents=np.arange(2))
        for columns in (1, width):
            u = np.ones((2, columns))
            steps = Steps(np.ones(2), np.zeros(2), 0.0)
            step_rows(*graph, u, own=u, before=u, steps=steps, out=np.empty(u.shape))
