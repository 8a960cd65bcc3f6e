"""Products of grains (rows that are multiplied at once) with small matrices, and sums of such products."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel, portable

Array = npt.NDArray[Any]

MIRROR_ROWS = 512
"""Rows copied over the diagonal at once, if only half of a symmetric product is computed: scratch is a few
square matrices of that size."""


def mirror_bytes(k: int) -> int:
    """Scratch bytes of a product of k columns with themselves in float64, on a device."""
    return 4 * 8 * min(k, MIRROR_ROWS) ** 2


@kernel
def product(x: Array, c: Array, *, out: Array) -> None:
    """``out = x @ c`` of (r, n) and (n, k), in their type: 2 r n k flops."""
    np.matmul(x, c, out=out)


@kernel
def add_gram(y: Array, *, total: Array) -> None:
    """``total += y.T @ y`` of (r, k), formed in the type of ``y``: 2 r k^2 flops.

    The rounding error is that of one grain, not of the sum over grains.
    """
    total += y.T @ y


@kernel
def add_product(x: Array, y: Array, *, total: Array, work: Array) -> None:
    """``total += x.T @ y`` of (r, n) and (r, k): 2 r n k flops; ``work`` (n, k) is overwritten.

    The product is rounded to the type of ``work`` before it is added, so its rounding error is that of one
    grain, the rows of ``x``, and not of the sum over grains.
    """
    np.matmul(x.T, y, out=work)
    total += work


@kernel
def add_squares(x: Array, *, total: Array) -> None:
    """``total += (x**2).sum()`` of (r, n), formed in float64 whatever the type: 2 r n flops."""
    total += np.einsum("ij,ij->", x, x, dtype=np.float64)


@portable
@kernel
def weigh(x: Array, weights: Array, *, out: Array) -> None:
    """``out = x * weights`` of (r, k) and (k,), rounded to the type of ``out``."""
    np.multiply(x, weights, out=out, casting="same_kind")
