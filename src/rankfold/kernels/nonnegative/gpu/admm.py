"""Least squares under constraints on a device. See ``kernels/nonnegative/admm.py``."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from rankfold.kernels.linear.gpu._gemm import multiply
from rankfold.kernels.nonnegative.admm import project

Array = Any


def split_rows(gram: Array, b: Array, *, w: Array, sweeps: int, upper: float, simplex: bool) -> None:
    """See the contract. Improves rows by ADMM: a product and a projection of all rows a sweep.

    Scratch 6 r k numbers.
    """
    k = len(gram)
    wide = gram.astype(np.float64)
    penalty = cupy.trace(wide) / k
    # No number is read by the host: without curvature the result is ``flat``, and the split is discarded.
    curved = penalty > 0
    penalty = cupy.where(curved, penalty, 1.0)
    inverse = cupy.linalg.inv(wide + penalty * cupy.eye(k)).astype(w.dtype)
    penalty = penalty.astype(w.dtype)
    flat = project(w, upper, simplex)
    dual, solution = (w @ gram - b) / penalty, w.copy()
    for sweep in range(sweeps):
        if sweep:
            multiply(b + penalty * (w + dual), inverse, out=solution)
        w[...] = project(solution - dual, upper, simplex)
        dual += w - solution
    w[...] = cupy.where(curved, w, flat)
