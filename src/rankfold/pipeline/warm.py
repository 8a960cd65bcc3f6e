"""Compile and load what a run uses, so that the baseline of memory holds it and no sweep pays for it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rankfold.kernels.condition import measure, subtract
from rankfold.kernels.count_sketch import add_to_buckets
from rankfold.kernels.nonnegative import descend_rows
from rankfold.kernels.qr import panel_r
from rankfold.kernels.small import leading_eigenpairs
from rankfold.pipeline.folds.panels import numbers
from rankfold.pipeline.view import aligned_empty, working_dtype


@functools.cache
def warm_kernels(dtype: np.dtype[Any]) -> None:
    """Run every compiled kernel once on a few numbers, as (rows, columns) and as a part of a panel."""
    import zarr  # noqa: F401

    working = working_dtype(dtype)
    vector = np.ones(4)
    for width in (4, 8):
        x = numbers(np.zeros((4, width), dtype)[:, :4])
        out = aligned_empty((4, width), working)[:, :4]
        measure(x, vector, 1.0)
        subtract(x, vector, vector, out=out)
        subtract(out, vector, vector, out=out)
        for d in (out, out.T):
            add_to_buckets(d, np.arange(4), vector.astype(working), sums=np.zeros((4, 4), working))
        for kind in (np.float64, working):
            descend_rows(np.eye(4, dtype=kind), np.ones((4, 4), kind), w=np.ones((4, 4), kind), sweeps=1)
    leading_eigenpairs(np.eye(4), 1)
    panel_r(np.ones((8, 4)))
