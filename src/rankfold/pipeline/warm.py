"""Compile and load what a run uses, so that the baseline of memory holds it and no sweep pays for it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankfold.kernels.condition import measure, subtract
from rankfold.kernels.count_sketch import add_to_buckets
from rankfold.kernels.divergence import quotients
from rankfold.kernels.multiplicative import multiply_rows
from rankfold.kernels.nonnegative import descend_rows, solve_rows
from rankfold.kernels.qr import panel_r
from rankfold.kernels.ranks import count_measured, count_nearer, measure_listed
from rankfold.kernels.small import leading_eigenpairs
from rankfold.kernels.splitting import split_rows
from rankfold.kernels.stationarity import gradient_rows
from rankfold.pipeline.folds.block_rows import KEPT
from rankfold.pipeline.folds.panels import numbers
from rankfold.pipeline.view import aligned_empty, working_dtype


@dataclass(frozen=True, slots=True)
class Kernels:
    """Which compiled kernels a run uses."""

    dtype: np.dtype[Any]
    """Of the matrix."""

    kind: str

    def warm(self) -> None:
        """Run each once on a few numbers, as (rows, columns) and as a part of a panel."""
        warm_kernels(self.dtype)
        if self.kind in ("nmf", "transform"):
            warm_rows()
        if self.kind in ("trustworthiness", "continuity"):
            warm_ranks(self.dtype)


@functools.cache
def warm_kernels(dtype: np.dtype[Any]) -> None:
    """What reductions of any kind use."""
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
    leading_eigenpairs(np.eye(4), 1)
    panel_r(np.ones((8, 4)))


@functools.cache
def warm_rows() -> None:
    """What nonnegative factors use besides."""
    for dtype in (np.dtype(np.float64), np.dtype(np.float32)):
        gram, b, w, one = (
            np.eye(4, dtype=dtype),
            np.ones((4, 4), dtype),
            np.ones((4, 4), dtype),
            np.ones(4, dtype),
        )
        descend_rows(gram, b, w=w, sweeps=1)
        multiply_rows(gram, b, w=w, linear=one, floor=0.0, sweeps=1)
        split_rows(gram, b, w=w, sweeps=1, upper=np.inf, simplex=False)
        gradient_rows(gram, b, w)
        for width in (4, 8):
            quotients(np.ones((4, width), dtype)[:, :4], np.ones((4, width), dtype)[:, :4])
    solve_rows(np.eye(4), np.ones((4, 4)), w=np.ones((4, 4)))


@functools.cache
def warm_ranks(dtype: np.dtype[Any]) -> None:
    """What counting nearer rows uses besides."""
    kept = np.dtype(np.uint8) if dtype == np.bool_ else dtype if dtype in KEPT else working_dtype(dtype)
    x, one, at = np.zeros((4, 4), kept), np.ones(4), np.arange(4)
    thresholds: dict[str, Any] = {
        "own": at,
        "first": 0,
        "keys": np.ones((4, 2)),
        "ids": np.zeros((4, 2), np.int64),
    }
    counts = np.zeros((4, 2), np.int64)
    for kind in (np.float32, np.float64):
        bound = (np.ones(4, kind), np.ones(4, kind))
        tile = np.zeros((4, 4), kind)
        count_nearer(tile, bound, bound, x, x, one, one, metric=0, counts=counts, **thresholds)
    count_measured(np.zeros((4, 4)), np.zeros((4, 4)), metric=0, counts=counts, **thresholds)
    for by_lanes in (True, False):
        measure_listed(x, x, one, one, metric=0, by_lanes=by_lanes, rows=at, others=at)
