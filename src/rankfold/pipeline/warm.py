"""Compile and load what a run uses, so that the baseline of memory holds it and no sweep pays for it."""

from __future__ import annotations

import functools
import logging
import threading
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rankfold.kernels.condition import measure, subtract
from rankfold.kernels.count_sketch import add_to_buckets
from rankfold.kernels.divergence import quotients
from rankfold.kernels.multiplicative import multiply_rows
from rankfold.kernels.neighbours import (
    exhaust_rows,
    measure_pairs,
    merge_lists,
    refine_rows,
    scan_pairs,
    sort_lists,
)
from rankfold.kernels.nonnegative import descend_rows, solve_rows
from rankfold.kernels.qr import panel_r
from rankfold.kernels.ranks import count_measured, count_nearer, measure_listed
from rankfold.kernels.small import leading_eigenpairs
from rankfold.kernels.splitting import split_rows
from rankfold.kernels.stationarity import gradient_rows
from rankfold.pipeline.folds.block_rows import stored_dtype
from rankfold.pipeline.folds.panels import numbers
from rankfold.pipeline.view import aligned_empty, working_dtype

LOG = logging.getLogger("rankfold")

TELL_SECONDS = 2.0
"""Of compiling, after which it is said: it is done once after an installation."""

DTYPES = (np.dtype(np.float64), np.dtype(np.float32))


@dataclass(frozen=True, slots=True)
class Kernels:
    """Which compiled kernels a run uses."""

    dtype: np.dtype[Any]
    """Of the matrix."""

    rows: tuple[str, ...] = ()
    """Solvers of nonnegative rows."""

    lists: bool = False
    """Whether neighbours are searched for."""

    ranks: bool = False
    """Whether nearer rows are counted."""

    @classmethod
    def of(cls, dtype: np.dtype[Any], request: dict[str, Any]) -> Self:
        """Those that answer a request."""
        kind, rows = request["kind"], tuple[str, ...]()
        if kind == "nmf":
            rows = ("hals", request["solver"])  # starts are by descent, whatever comes after
        elif kind == "transform" and request["of"] == "nmf":
            rows = ("bpp", "admm")
        return cls(dtype, rows, lists=kind == "knn", ranks=kind in ("trustworthiness", "continuity"))

    def warm(self) -> None:
        """Run each once on a few numbers, as (rows, columns) and as a part of a panel."""
        news = threading.Timer(TELL_SECONDS, LOG.info, ("compiling kernels, once after an installation",))
        news.daemon = True
        news.start()
        try:
            warm_kernels(self.dtype)
            for solver in self.rows:
                ROWS[solver]()
            if self.lists:
                warm_lists(self.dtype)
            if self.ranks:
                warm_ranks(self.dtype)
        finally:
            news.cancel()


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
        for precise in (aligned_empty((4, width), np.dtype(np.float64))[:, :4], out):
            subtract(x, vector, vector, out=precise)
        subtract(out, vector, vector, out=out)
        for d in (out, out.T):
            add_to_buckets(d, np.arange(4), vector.astype(working), sums=np.zeros((4, 4), working))
    leading_eigenpairs(np.eye(4), 1)
    panel_r(np.ones((8, 4)))


# Nonnegative rows ----------------------------------------------------------------------------------


def _few(dtype: np.dtype[Any]) -> tuple[np.ndarray[Any, Any], ...]:
    """A Gram matrix, right sides, and rows."""
    return np.eye(4, dtype=dtype), np.ones((4, 4), dtype), np.ones((4, 4), dtype)


@functools.cache
def _warm_descent() -> None:
    for dtype in DTYPES:
        gram, b, w = _few(dtype)
        descend_rows(gram, b, w=w, sweeps=1)
        gradient_rows(gram, b, w)


@functools.cache
def _warm_pivoting() -> None:
    gram, b, w = _few(np.dtype(np.float64))
    solve_rows(gram, b, w=w)


@functools.cache
def _warm_ratios() -> None:
    for dtype in DTYPES:
        gram, b, w = _few(dtype)
        multiply_rows(gram, b, w=w, linear=np.ones(4, dtype), floor=0.0, sweeps=1)
        for width in (4, 8):
            quotients(np.ones((4, width), dtype)[:, :4], np.ones((4, width), dtype)[:, :4])


@functools.cache
def _warm_splitting() -> None:
    for dtype in DTYPES:
        gram, b, w = _few(dtype)
        split_rows(gram, b, w=w, sweeps=1, upper=np.inf, simplex=False)


ROWS = {"hals": _warm_descent, "bpp": _warm_pivoting, "mu": _warm_ratios, "admm": _warm_splitting}

# Rows beside rows ----------------------------------------------------------------------------------


@functools.cache
def warm_lists(dtype: np.dtype[Any]) -> None:
    """What searching for neighbours uses besides."""
    x, one = np.zeros((4, 4), stored_dtype(dtype)), np.ones(4)
    keys, ids = np.full((4, 2), np.inf), np.full((4, 2), -1)
    for kind in DTYPES:
        near, tile = np.ones(4, kind), np.zeros((4, 4), kind)
        bounds, places = np.full((4, 3), np.inf, kind), np.full((4, 3), -1, np.int32)
        lists = {"bounds_i": bounds, "places_i": places, "bounds_j": bounds, "places_j": places}
        scan_pairs(tile, near, near, **lists, first_i=0, first_j=0, diagonal=1)
        refine_rows(x, x, one, one, metric=0, first=0, bounds=bounds, places=places, keys=keys, ids=ids)
    own = np.arange(4)
    exhaust_rows(np.zeros((4, 4)), one, one, x, x, one, one, metric=0, own=own, first=0, keys=keys, ids=ids)
    wide, pair = np.zeros((4, 4)), {"keys_i": keys, "ids_i": ids, "keys_j": keys, "ids_j": ids}
    measure_pairs(wide, wide, metric=0, **pair, first_i=0, first_j=0, diagonal=1)
    merge_lists(keys, ids, other_keys=keys, other_ids=ids)
    sort_lists(keys, ids)


@functools.cache
def warm_ranks(dtype: np.dtype[Any]) -> None:
    """What counting nearer rows uses besides."""
    x, one, at = np.zeros((4, 4), stored_dtype(dtype)), np.ones(4), np.arange(4)
    thresholds: dict[str, Any] = {
        "own": at,
        "first": 0,
        "keys": np.ones((4, 2)),
        "ids": np.zeros((4, 2), np.int64),
    }
    counts = np.zeros((4, 2), np.int64)
    for kind in DTYPES:
        bound = (np.ones(4, kind), np.ones(4, kind))
        tile = np.zeros((4, 4), kind)
        count_nearer(tile, bound, bound, x, x, one, one, metric=0, counts=counts, **thresholds)
    count_measured(np.zeros((4, 4)), np.zeros((4, 4)), metric=0, counts=counts, **thresholds)
    for by_lanes in (True, False):
        measure_listed(x, x, one, one, metric=0, by_lanes=by_lanes, rows=at, others=at)
