"""Compile the loops of searches for neighbors, by running each once on a few numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rankfold.kernels.neighbors.lists import (
    EMPTY,
    Metric,
    exhaust_rows,
    measure_pairs,
    merge_lists,
    refine_rows,
    scan_pairs,
    sort_lists,
)
from rankfold.kernels.neighbors.meeting import Lists, limit_pairs, square_norms
from rankfold.kernels.neighbors.sparse_meeting import SparseRows, meet_sparse_rows, square_rows
from rankfold.methods.bits.warm import warm_sets
from rankfold.methods.knn.pair_fold import has_bounds
from rankfold.methods.knn.request import METRICS, SET_METRICS
from rankfold.methods.knn.row_blocks import row_dtype
from rankfold.methods.knn.sparse_rows import column_dtype
from rankfold.methods.partitions.warm import warm_partitions
from rankfold.methods.tree.warm import warm_nearest

DTYPES = (np.dtype(np.float64), np.dtype(np.float32))

METRIC = {"squares": Metric.EUCLIDEAN, "inner": Metric.INNER_PRODUCT}
"""For each way to bound distances by products, see ``way_of``, a metric by which its loops are compiled."""


def way_of(metric: str, columns: int) -> str:
    """Name the way in which distances of rows are found.

    Returns
    -------
    str
        ``"squares"`` or ``"inner"``: products of rows bound squared distances or inner products; ``"pairs"``:
        every pair is measured; ``"function"``: a function of the caller, or distances that are given.
    """
    if metric in SET_METRICS:
        return "pairs"
    if metric not in METRICS:  # or distances that are given
        return "function"
    if not has_bounds(METRICS[metric], columns):
        return "pairs"
    return "inner" if METRICS[metric] == Metric.INNER_PRODUCT else "squares"


def warm_neighbors(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Compile the loops of a search, by running each once.

    ``request`` may also have ``sparse`` (True for sparse rows), ``tree``, ``partitions``, ``sets``
    (``"bits"`` or ``"sets"``), ``pairs`` (False if only a tree is searched), and ``others``, the type of the
    rows that those of the matrix are compared with.
    """
    if request.get("tree"):
        warm_nearest(periodic=request.get("box") is not None)
    if not request.get("pairs", True):
        return
    if request.get("sets"):
        warm_sets(request["sets"], column_dtype(shape[1]))
        return
    if request.get("partitions"):
        warm_partitions(dtype, shape)
    way = way_of(request["metric"], shape[1])
    if request.get("sparse"):
        _warm_sparse(dtype, way, column_dtype(shape[1]))
    else:
        _warm_lists(dtype, way, request.get("others", dtype))


@functools.cache
def _warm_lists(dtype: np.dtype[Any], way: str, others: np.dtype[Any]) -> None:
    keys, ids = np.full((4, 2), np.inf), np.full((4, 2), -1)
    if way in METRIC:
        _warm_bounds((row_dtype(dtype), row_dtype(others)), METRIC[way], keys, ids)
    elif way == "pairs":
        wide, pair = np.zeros((4, 4)), {"keys_i": keys, "ids_i": ids, "keys_j": keys, "ids_j": ids}
        measure_pairs(wide, wide, metric=0, **pair, first_i=0, first_j=0, diagonal=1)
    merge_lists(keys, ids, other_keys=keys, other_ids=ids)
    sort_lists(keys, ids)


def _warm_bounds(
    dtypes: tuple[np.dtype[Any], np.dtype[Any]],
    metric: int,
    keys: np.ndarray[Any, Any],
    ids: np.ndarray[Any, Any],
) -> None:
    (x, y), one = (np.zeros((4, 4), each) for each in dtypes), np.ones(4)
    measuring: dict[str, Any] = {"metric": metric, "first": 0, "keys": keys, "ids": ids}
    # Products are in float64 as well, where those of float32 leave too much open.
    for kind in DTYPES:
        near, tile = np.ones(4, kind), np.zeros((4, 4), kind)
        bounds, places = np.full((4, 3), np.inf, kind), np.full((4, 3), -1, np.int32)
        lists = {"bounds_i": bounds, "places_i": places, "bounds_j": bounds, "places_j": places}
        limit_pairs(tile, near, near, bounds_i=bounds, bounds_j=bounds, diagonal=1)
        scan_pairs(tile, near, near, **lists, first_i=0, first_j=0, diagonal=1)
    for each in (x, y):
        square_norms(each, out=np.empty(4))
    refine_rows(x, y, one, one, bounds=bounds, places=places, **measuring)
    exhaust_rows(np.zeros((4, 4)), one, one, x, y, one, one, own=np.arange(4), **measuring)


@functools.cache
def _warm_sparse(dtype: np.dtype[Any], way: str, index: np.dtype[Any]) -> None:
    # More equal rows than a shortlist holds: none can be certain, and all of them are compared in float64.
    rows, k = 16, 1
    arrays = 2 * np.arange(rows + 1), np.array([0, 1] * rows, index), np.ones(2 * rows, row_dtype(dtype))
    x = SparseRows(0, 2, *arrays, np.zeros(rows), np.ones(rows), np.zeros((rows, 2)))
    square_rows(*arrays, x.scale, squares=x.squares)
    for precise in (False, True):
        one, two = (
            Lists(np.full((rows, k), np.inf), np.full((rows, k), EMPTY), np.zeros(1, np.int64)) for _ in "xy"
        )
        asked: dict[str, Any] = {"common": np.zeros(0, np.int64), "metric": METRIC[way], "same": False}
        asked |= {"lists_i": one, "lists_j": two, "precise": precise}
        meet_sparse_rows(x, x, room=lambda name, shape, kind: np.empty(shape, kind), **asked)
    keys, ids = np.full((4, 2), np.inf), np.full((4, 2), -1)
    merge_lists(keys, ids, other_keys=keys, other_ids=ids)
    sort_lists(keys, ids)
