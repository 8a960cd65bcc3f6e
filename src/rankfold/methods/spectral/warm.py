"""Compiled loops of walks, each run once on a few numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rankfold.kernels.graph.walk import Steps, join_edges, step_rows
from rankfold.methods.spectral.filter import block_width


def warm_walk(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Steps of blocks of the width that is asked for, and what finds components."""
    data = np.dtype(dtype if dtype in (np.float32, np.float64) else np.float64)
    _warm(data, block_width(int(request["n_components"])))


@functools.cache
def _warm(dtype: np.dtype[Any], width: int) -> None:
    for index in (np.int32, np.int64):
        graph = np.arange(3), np.array([1, 0], index), np.ones(2, dtype)
        join_edges(*graph, 0, parents=np.arange(2))
        for columns in (1, width):
            u = np.ones((2, columns))
            steps = Steps(np.ones(2), np.zeros(2), 0.0)
            step_rows(*graph, u, own=u, before=u, steps=steps, out=np.empty(u.shape))
