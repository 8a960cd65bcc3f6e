"""Compiled loops of a clustering, each run once on a few numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rankfold.kernels.clustering.far_rows import own_distances
from rankfold.kernels.clustering.nearest_centers import assign_rows, centers_of
from rankfold.methods.parts.panels import numbers
from rankfold.pipeline.data.view import working_dtype


def warm_clusters(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loops that label rows of the matrix and of a sample once, to compile them."""
    working = working_dtype(dtype)
    _warm(numbers(np.zeros(1, dtype)).dtype, working)
    if request["init"] != "custom":
        _warm(working, working)


@functools.cache
def _warm(dtype: np.dtype[Any], working: np.dtype[Any]) -> None:
    """Take two steps on rows of one type with centers of another, to compile both loops.

    The second step runs another loop, since bounds exclude most pairs of row and center.
    """
    x = np.arange(512 * 4).reshape(512, 4).astype(dtype)
    exact = x[::64].astype(np.float64)
    labels, bounds = np.full(512, -1, np.int32), np.empty((512, 5), np.float32)
    room: dict[str, Any] = {"sums": np.zeros(exact.shape), "counts": np.zeros(8), "squares": np.zeros(1)}
    before = None
    for _ in range(2):
        centers = centers_of(exact, np.zeros(4, working), np.arange(8) // 2, before)
        assign_rows(x, centers, labels=labels, bounds=bounds, **room)
        exact, before = exact + 0.25, exact
    own_distances(x, exact, labels, out=np.empty(512))
