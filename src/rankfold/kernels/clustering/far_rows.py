"""Squared distances of rows from the centers that they belong to, measured in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.neighbors.lists import Metric, distance

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@kernel
def own_distances(x: Array, centers: Float64, labels: npt.NDArray[np.int32], *, out: Float64) -> None:
    """Squared distance of each row from its own center, summed as ``kernels/neighbors/lists.py`` does.

    Parameters
    ----------
    x : (r, n) real
    centers : (k, n) float64, C-contiguous
    labels : (r,) int32, 0 .. k - 1, C-contiguous
    out : (r,) float64, C-contiguous; written

    Notes
    -----
    Work 3 r n flops in float64.
    """
    wide = x.astype(np.float64)
    for i, row in enumerate(wide):
        out[i] = distance(row, centers[labels[i]], 1.0, 1.0, metric=Metric.SQEUCLIDEAN)
