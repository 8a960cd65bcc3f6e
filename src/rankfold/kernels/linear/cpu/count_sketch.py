"""Sums of signed rows in one read of the data. See ``kernels/linear/count_sketch.py``.

Serial loops that release the GIL: parallelism comes from the threads that call them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop
from rankfold.kernels._dispatch import plain, wide

Array = npt.NDArray[Any]


@compile_loop
def _by_rows(d: Array, buckets: npt.NDArray[np.int64], factors: Array, sums: Array) -> None:
    for i in range(len(buckets)):
        row, into, factor = d[i], sums[buckets[i]], factors[i]
        for j in range(sums.shape[1]):
            into[j] += factor * row[j]


@compile_loop
def _by_columns(
    transpose: Array, buckets: npt.NDArray[np.int64], factors: Array, sums: Array, bucket_sums: Array
) -> None:
    # Columns are contiguous: their rows are added up in numbers that stay in first-level cache.
    for j in range(sums.shape[1]):
        for c in range(len(bucket_sums)):
            bucket_sums[c] = 0
        for i in range(len(buckets)):
            bucket_sums[buckets[i]] += factors[i] * transpose[j, i]
        for c in range(len(bucket_sums)):
            sums[c, j] += bucket_sums[c]


def add_to_buckets(d: Array, buckets: npt.NDArray[np.int64], factors: Array, *, sums: Array) -> None:
    """See the contract. ``sums[buckets[i]] += factors[i] * d[i]`` for every row."""
    into = np.ascontiguousarray(sums)
    if abs(d.strides[0]) < abs(d.strides[1]):
        _by_columns(wide(d.T), plain(buckets), plain(factors), into, np.empty(len(into), into.dtype))
    else:
        _by_rows(wide(d), plain(buckets), plain(factors), into)
    if into is not sums:
        sums[...] = into
