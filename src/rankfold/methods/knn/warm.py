"""Compiled loops that search for neighbors, each run once on a few numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rankfold.kernels.neighbors.lists import (
    Metric,
    exhaust_rows,
    measure_pairs,
    merge_lists,
    refine_rows,
    scan_pairs,
    sort_lists,
)
from rankfold.methods.knn.pair_fold import has_bounds
from rankfold.methods.knn.request import METRICS
from rankfold.methods.knn.row_blocks import row_dtype

DTYPES = (np.dtype(np.float64), np.dtype(np.float32))

METRIC = {"squares": Metric.EUCLIDEAN, "inner": Metric.INNER_PRODUCT}
"""A metric for each way of bounding distances by products."""


def way_of(metric: str, columns: int) -> str:
    """How distances of rows are found.

    Returns
    -------
    str
        By bounds from ``"squares"`` or ``"inner"`` products, by ``"pairs"``, or by a ``"function"`` of the
        caller.
    """
    if metric not in METRICS:
        return "function"
    if not has_bounds(METRICS[metric], columns):
        return "pairs"
    return "inner" if METRICS[metric] == Metric.INNER_PRODUCT else "squares"


def warm_neighbors(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Loops that a search takes."""
    _warm_lists(dtype, way_of(request["metric"], shape[1]))


@functools.cache
def _warm_lists(dtype: np.dtype[Any], way: str) -> None:
    keys, ids = np.full((4, 2), np.inf), np.full((4, 2), -1)
    if way in METRIC:
        _warm_bounds(row_dtype(dtype), METRIC[way], keys, ids)
    elif way == "pairs":
        wide, pair = np.zeros((4, 4)), {"keys_i": keys, "ids_i": ids, "keys_j": keys, "ids_j": ids}
        measure_pairs(wide, wide, metric=0, **pair, first_i=0, first_j=0, diagonal=1)
    merge_lists(keys, ids, other_keys=keys, other_ids=ids)
    sort_lists(keys, ids)


def _warm_bounds(
    dtype: np.dtype[Any], metric: int, keys: np.ndarray[Any, Any], ids: np.ndarray[Any, Any]
) -> None:
    x, one = np.zeros((4, 4), dtype), np.ones(4)
    measuring: dict[str, Any] = {"metric": metric, "first": 0, "keys": keys, "ids": ids}
    # Products are in float64 as well, where those of float32 leave too much open.
    for kind in DTYPES:
        near, tile = np.ones(4, kind), np.zeros((4, 4), kind)
        bounds, places = np.full((4, 3), np.inf, kind), np.full((4, 3), -1, np.int32)
        lists = {"bounds_i": bounds, "places_i": places, "bounds_j": bounds, "places_j": places}
        scan_pairs(tile, near, near, **lists, first_i=0, first_j=0, diagonal=1)
    refine_rows(x, x, one, one, bounds=bounds, places=places, **measuring)
    exhaust_rows(np.zeros((4, 4)), one, one, x, x, one, one, own=np.arange(4), **measuring)
