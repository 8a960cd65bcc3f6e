"""Compiled loops of partitions: those of pairs, and of the steps of k-means that make centers."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankfold.methods.kmeans.warm import warm_clusters
from rankfold.methods.knn.row_blocks import row_dtype


def warm_partitions(dtype: np.dtype[Any], shape: tuple[int, int]) -> None:
    """Loops over rows of a matrix of some type, as the sample of it is held."""
    held = row_dtype(dtype)
    working = np.dtype(np.float64 if held == np.float64 else np.float32)
    warm_clusters(working, {"init": "custom"}, shape)
