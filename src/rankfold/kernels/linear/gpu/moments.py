"""Moments on a device. See ``kernels/linear/moments.py``."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from rankfold.kernels.linear.center_scale import subtract
from rankfold.kernels.linear.gpu._gemm import gram
from rankfold.kernels.linear.moments import Moments

Array = Any


def add_rows(total: Moments, x: Array, mean: Array, pow2_scale: float, *, out: Array, work: Array) -> None:
    """See the contract; half the flops, scratch two squares. Adds rows to centered moments."""
    rows = len(x)
    subtract(x, mean, cupy.full_like(mean, pow2_scale), out=out[:rows])
    delta = mean * pow2_scale - total.mean
    count = total.count + rows
    out[rows] = delta * np.sqrt(total.count * rows / count)
    gram(out[: rows + 1], out=work)
    total.scatter += work
    total.mean += delta * (rows / count)
    total.count = count
