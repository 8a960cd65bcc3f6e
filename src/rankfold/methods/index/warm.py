"""Compile the loops of an index: those of finding nearest centers, and of the steps of k-means."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankfold.methods.knn.warm import warm_neighbors


def warm_index(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Compile the loops that build an index of a matrix of this type and shape."""
    warm_neighbors(dtype, {**request, "partitions": True}, shape)
