"""Compile the loops that count nearer rows, by running each once on a few numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rankfold.kernels.neighbors.lists import Metric, sort_lists
from rankfold.kernels.neighbors.meeting import square_norms
from rankfold.kernels.neighbors.ranks import count_every_pair, count_nearer, measure_keys
from rankfold.methods.knn.row_blocks import row_dtype
from rankfold.methods.knn.warm import DTYPES, METRIC, way_of


def warm_quality(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Compile the Numba loops that rank rows by the metric of a request."""
    _warm_ranks(dtype, way_of(request["metric"], shape[1]))


@functools.cache
def _warm_ranks(dtype: np.dtype[Any], way: str) -> None:
    x, one, at = np.zeros((4, 4), row_dtype(dtype)), np.ones(4), np.arange(4)
    thresholds: dict[str, Any] = {
        "own": at,
        "first": 0,
        "keys": np.ones((4, 2)),
        "ids": np.zeros((4, 2), np.int64),
    }
    counts = np.zeros((4, 2), np.int64)
    metric = METRIC.get(way, Metric.EUCLIDEAN)
    if way in METRIC:
        square_norms(x, out=np.empty(4))
        for kind in DTYPES:
            bound = (np.ones(4, kind), np.ones(4, kind))
            tile = np.zeros((4, 4), kind)
            count_nearer(tile, bound, bound, x, x, one, one, metric=metric, counts=counts, **thresholds)
    else:
        count_every_pair(np.zeros((4, 4)), np.zeros((4, 4)), metric=0, counts=counts, **thresholds)
    measure_keys(x, x, one, one, metric=metric, by_lanes=way in METRIC, rows=at, others=at)
    sort_lists(np.zeros((4, 2)), np.zeros((4, 2), np.int64))
