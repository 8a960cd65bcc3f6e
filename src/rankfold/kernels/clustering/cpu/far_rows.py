"""Distances of rows from their own centers. See ``kernels/clustering/far_rows.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop
from rankfold.kernels.neighbors.cpu._distances import distance, load
from rankfold.kernels.neighbors.lists import LANES, Metric

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

SQUARED = int(Metric.SQEUCLIDEAN)


@compile_loop
def _own_distances(
    x: Array, centers: Float64, labels: Array, row: Float64, lanes: Float64, out: Float64
) -> None:
    for i in range(x.shape[0]):
        load(x[i], 1.0, SQUARED, row)
        out[i] = distance(row, 1.0, centers, labels[i], 1.0, SQUARED, None, lanes)


def own_distances(x: Array, centers: Float64, labels: npt.NDArray[np.int32], *, out: Float64) -> None:
    """See the contract. Squared distance of each row from its own center."""
    x = np.ascontiguousarray(x)
    _own_distances(x, np.ascontiguousarray(centers), labels, np.empty(x.shape[1]), np.empty(LANES), out)
