"""The fused pass on a device. See ``kernels/linear/panel.py``: the same operations through cuBLAS."""

from __future__ import annotations

from typing import Any

import cupy

Array = Any


def panel_product(d: Array, q: Array, *, y: Array, z: Array, work: Array) -> None:
    """See the contract; the accumulation in float64 is one elementwise kernel."""
    cupy.matmul(d, q, out=y)
    cupy.matmul(d.T, y, out=work)
    cupy.add(z, work, out=z)
