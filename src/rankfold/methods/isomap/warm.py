"""Compile the loops that follow paths, by running each once on a few vertices."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rankfold.kernels.graph.paths import Graph, lower_distances, search_breadth_first
from rankfold.methods.isomap.graph import index_type


def warm_paths(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Compile the Numba loops that find components and follow paths, and load the eigensolver."""
    _warm(np.dtype(request["dtype"]), index_type(shape[0]))


@functools.cache
def _warm(dtype: np.dtype[Any], index: np.dtype[Any]) -> None:
    import scipy.linalg

    graph = Graph(np.arange(3), np.array([1, 0], index), np.ones(2, dtype))
    lower_distances(graph, 0, near=np.full(2, np.inf))
    search_breadth_first(*graph[:2], order=np.empty(2, index), labels=np.empty(2, index))
    scipy.linalg.eigvalsh(np.eye(2))
