"""Rows added to buckets on a device. See ``kernels/linear/count_sketch.py``."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from rankfold.kernels.gpu.sources import C_TYPES, blocks_of, launch, row_pitch

Array = Any
PACKAGE = __package__
THREADS = 128
SHARES = 16
"""Largest number of blocks of threads that the buckets are divided among."""


def add_to_buckets(d: Array, buckets: Array, factors: Array, *, sums: Array) -> None:
    """See the contract. ``sums[buckets[i]] += factors[i] * d[i]`` for every row.

    Rows are added in order, where ``cupy.add.at`` would add them in any order.
    """
    (rows, columns), steps = d.shape, (np.int64(each // d.itemsize) for each in d.strides)
    vectors = cupy.ascontiguousarray(buckets), cupy.ascontiguousarray(factors)
    launch(
        PACKAGE,
        "count_sketch",
        f"add_to_buckets<{C_TYPES[d.dtype]}>",
        (blocks_of(columns, THREADS), min(SHARES, len(sums))),
        THREADS,
        (d, *steps, np.int64(rows), np.int64(columns), *vectors, sums, row_pitch(sums)),
    )
