"""Compiled loops of an index: those that find nearest centers, and of the steps of k-means that make them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankfold.methods.knn.warm import warm_neighbors


def warm_index(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Loops over rows of a matrix of some type."""
    warm_neighbors(dtype, {**request, "partitions": True}, shape)
