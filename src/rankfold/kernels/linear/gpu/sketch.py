"""Sketches of a grain on a device. See ``kernels/linear/sketch.py``."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankfold.kernels.linear.gpu._gemm import add_transpose_product, multiply

Array = Any


def sketch_product(
    d: Array, right: Array, down: Array, across: Array, *, y: Array, z: Array, core: Array, work: Array
) -> None:
    """See the contract. ``y = d @ right``, ``z += d.T @ down`` and ``core += across.T @ y``."""
    multiply(d, right, out=y)
    add_transpose_product(d, down, total=z, work=work)
    multiply(across.T, y.astype(np.float64, copy=False), out=core, add=True)
