"""Products and their sums on a device. See ``kernels/linear/products.py``."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from rankfold.kernels.linear.gpu._gemm import add_transpose_product, multiply
from rankfold.kernels.linear.gpu._gemm import gram as product_with_itself
from rankfold.kernels.linear.gpu.center_scale import measure

Array = Any


def product(x: Array, c: Array, *, out: Array) -> None:
    """See the contract. ``out = x @ c``."""
    multiply(x, c, out=out)


def add_gram(y: Array, *, total: Array) -> None:
    """See the contract; half the flops, scratch two squares. ``total += y.T @ y``."""
    work = cupy.empty(total.shape, y.dtype)
    product_with_itself(y, out=work)
    cupy.add(total, work, out=total)


def add_squares(x: Array, *, total: Array) -> None:
    """See the contract. ``total += (x**2).sum()``; scratch as ``measure``.

    ``cupy.einsum`` would copy both operands into float64.
    """
    _, squares = measure(x, cupy.zeros(x.shape[1], np.float64), 1.0)
    cupy.add(total, squares.sum(), out=total)


def add_product(x: Array, y: Array, *, total: Array, work: Array) -> None:
    """See the contract. ``total += x.T @ y``."""
    add_transpose_product(x, y, total=total, work=work)
