"""Compile the loops of partitions: lists and visits, and the steps of k-means that make centers."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankfold.kernels.neighbors.lists import merge_rows
from rankfold.kernels.partitions.visits import choose_visits
from rankfold.methods.kmeans.warm import warm_clusters
from rankfold.methods.knn.row_blocks import row_dtype


def warm_partitions(dtype: np.dtype[Any], shape: tuple[int, int]) -> None:
    """Compile the loops for a matrix of a type, in the types in which its rows and its sample are held."""
    held = row_dtype(dtype)
    working = np.dtype(np.float64 if held == np.float64 else np.float32)
    warm_clusters(working, {"init": "custom"}, shape)
    keys, ids = np.full((4, 2), np.inf), np.full((4, 2), 3)
    merge_rows(keys, ids, np.arange(4), other_keys=keys, other_ids=ids)
    choose_visits(ids, np.zeros((4, 2), np.int32), 0, out=np.empty((4, 2), np.int32))
