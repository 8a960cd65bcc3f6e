"""Products and their sums on a device. See ``kernels/linear/products.py``."""

from __future__ import annotations

from typing import Any

import cupy

from rankfold.kernels.linear.gpu._gemm import add_transpose_product, multiply
from rankfold.kernels.linear.gpu._gemm import gram as product_with_itself

Array = Any


def product(x: Array, c: Array, *, out: Array) -> None:
    """See the contract."""
    multiply(x, c, out=out)


def add_gram(y: Array, *, total: Array) -> None:
    """See the contract; half the flops, scratch two squares."""
    work = cupy.empty(total.shape, y.dtype)
    product_with_itself(y, out=work)
    cupy.add(total, work, out=total)


def add_product(x: Array, y: Array, *, total: Array, work: Array) -> None:
    """See the contract."""
    add_transpose_product(x, y, total=total, work=work)
