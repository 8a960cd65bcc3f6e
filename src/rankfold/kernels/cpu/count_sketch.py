"""Sums of signed rows in one read of the data. See ``kernels/count_sketch.py``.

Serial loops that release the GIL: parallelism comes from the threads that call them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.cpu._compiled import compiled

Array = npt.NDArray[Any]


@compiled
def _by_rows(d: Array, buckets: npt.NDArray[np.int64], factors: Array, sums: Array) -> None:
    for i in range(d.shape[0]):
        row, into, factor = d[i], sums[buckets[i]], factors[i]
        for j in range(d.shape[1]):
            into[j] += factor * row[j]


@compiled
def _by_columns(d: Array, buckets: npt.NDArray[np.int64], factors: Array, sums: Array) -> None:
    # Columns lie whole: their rows are gathered in numbers that stay in first-level cache.
    held = np.zeros(sums.shape[0], sums.dtype)
    for j in range(d.shape[1]):
        held[:] = 0
        for i in range(d.shape[0]):
            held[buckets[i]] += factors[i] * d[i, j]
        for c in range(sums.shape[0]):
            sums[c, j] += held[c]


def add_to_buckets(d: Array, buckets: npt.NDArray[np.int64], factors: Array, *, sums: Array) -> None:
    """See the contract."""
    add = _by_columns if abs(d.strides[0]) < abs(d.strides[1]) else _by_rows
    add(d, buckets, factors, sums)
