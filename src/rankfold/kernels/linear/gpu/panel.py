"""The fused pass on a device. See ``kernels/linear/panel.py``: the same products by cuBLAS."""

from __future__ import annotations

from typing import Any

from rankfold.kernels.linear.gpu._gemm import add_transpose_product, multiply

Array = Any


def panel_product(d: Array, q: Array, *, y: Array, z: Array, work: Array, tf32: bool = False) -> None:
    """See the contract. ``y = d @ q`` and ``z += d.T @ y``; in float32 ``z`` is added to every 4096 rows."""
    multiply(d, q, out=y, tf32=tf32)
    add_transpose_product(d, y, total=z, work=work, tf32=tf32)
