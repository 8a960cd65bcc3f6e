"""Quotients and divergence on a device. See ``kernels/nonnegative/kl_divergence.py``."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from rankfold.kernels.gpu.sources import C_TYPES, launch, row_pitch, rows_whole

Array = Any
PACKAGE = __package__
THREADS = 256


def quotients(x: Array, product: Array, *, total: Array) -> None:
    """See the contract. Divides data by their model, and adds the divergence to ``total``.

    The terms of a row are added up in another order. Scratch 8 r bytes.
    """
    if not len(x):
        return
    x, whole, (rows, columns) = rows_whole(x), rows_whole(product), x.shape
    sums, limits = cupy.empty(rows, np.float64), np.finfo(product.dtype)
    launch(
        PACKAGE,
        "kl_divergence",
        f"quotients<{C_TYPES[product.dtype]}, {THREADS}>",
        (rows,),
        THREADS,
        (
            *(x, row_pitch(x), whole, row_pitch(whole), np.int64(columns)),
            *(np.float64(limits.tiny), np.float64(limits.max), sums),
        ),
    )
    if whole is not product:
        product[...] = whole
    cupy.add(total, sums.sum(), out=total)
