"""Inner products of rows on a device, added up over pieces of columns as ``bounds.py`` assumes."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from rankfold.kernels.linear.gpu._gemm import multiply
from rankfold.kernels.neighbors.bounds import TERMS, pieces

Array = Any


def inner_products(x: Array, y: Array, dtype: np.dtype[Any]) -> Array:
    """(p, q) inner products of rows (p, d) with rows (q, d), in float32 or float64."""
    out = cupy.empty((len(x), len(y)), dtype)
    for number, (start, stop) in enumerate(pieces(x.shape[1], TERMS)):
        multiply(x[:, start:stop], y[:, start:stop].T, out=out, add=number > 0)
    return out
