"""Compile and load what a run uses, so that the baseline of memory holds it and no sweep pays for it."""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

from rankfold.kernels._dispatch import FEW
from rankfold.kernels.linear.center_scale import measure, subtract
from rankfold.kernels.linear.count_sketch import add_to_buckets
from rankfold.kernels.linear.dense import leading_eigenpairs
from rankfold.kernels.linear.qr import panel_r
from rankfold.kernels.neighbors.lists import (
    Metric,
    exhaust_rows,
    measure_pairs,
    merge_lists,
    refine_rows,
    scan_pairs,
    sort_lists,
)
from rankfold.kernels.neighbors.ranks import count_measured, count_nearer, measure_listed
from rankfold.kernels.nonnegative.admm import split_rows
from rankfold.kernels.nonnegative.kl_divergence import quotients
from rankfold.kernels.nonnegative.multiplicative import multiply_rows
from rankfold.kernels.nonnegative.nnls import descend_rows, solve_rows
from rankfold.kernels.nonnegative.projected_gradient import gradient_rows
from rankfold.methods.knn.pair_fold import bounded
from rankfold.methods.knn.request import METRICS
from rankfold.methods.knn.row_blocks import stored_dtype
from rankfold.methods.parts.panels import numbers
from rankfold.methods.svd.solvers.solver import SOLVERS
from rankfold.pipeline.data.view import working_dtype

LOG = logging.getLogger("rankfold")

TELL_SECONDS = 1.0
"""Of compiling, after which it is said: it is done once after an installation."""

TICK_SECONDS = 0.1
"""Between two looks at whether anything is being compiled."""

NEWS = "compiling kernels, once after an installation"

DTYPES = (np.dtype(np.float64), np.dtype(np.float32))

PAIRS = ("knn", "trustworthiness", "continuity")
"""Kinds of requests in which rows meet rows, and columns are left as they are."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """Which compiled kernels a run uses."""

    dtype: np.dtype[Any]
    """Of the matrix."""

    columns: tuple[str, ...] = ()
    """How panels are brought into the working type, "panels", and into "double" precision, and rows added up
    in "buckets"."""

    rows: tuple[str, ...] = ()
    """Solvers of nonnegative rows."""

    lists: str | None = None
    """How neighbors are searched for: by bounds, then "squares" or "inner" products; by "pairs"; by a
    "function" of the caller."""

    ranks: str | None = None
    """How nearer rows are counted: by "squares", "inner" products or "pairs"."""

    @classmethod
    def of(cls, dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> Self:
        """Those that answer a request of a matrix."""
        kind, rows = request["kind"], tuple[str, ...]()
        if kind == "nmf":
            rows = ("hals", request["solver"])  # starts are by descent, whatever comes after
        elif kind == "transform" and request["of"] == "nmf":
            rows = ("bpp", "admm")
        pairs = _way(request["metric"], shape[1]) if kind in PAIRS else None
        lists, ranks = (pairs, None) if kind == "knn" else (None, pairs)
        return cls(dtype, _columns(request, shape), rows, lists, ranks)

    def warm(self) -> None:
        """Run each once on a few numbers, and say so where that takes time."""
        _warm(self)


def _way(metric: str, columns: int) -> str:
    if metric not in METRICS:
        return "function"
    if not bounded(METRICS[metric], columns):
        return "pairs"
    return "inner" if METRICS[metric] == Metric.INNER_PRODUCT else "squares"


def _columns(request: dict[str, Any], shape: tuple[int, int]) -> tuple[str, ...]:
    """What is done to columns by compiled loops; nothing in a matrix of few numbers."""
    kind, method = request["kind"], request.get("method", "auto")
    if kind in PAIRS or shape[0] * shape[1] <= FEW:
        return ()
    if kind == "nmf":
        return ("panels",)
    if kind not in ("svd", "pca"):
        return ("panels", "double")
    solvers = ("gram", "krylov") if method == "auto" else (method,)
    used = {name for solver in solvers for name in SOLVERS[solver].loops}
    return tuple(name for name in COLUMNS if name in used)


@functools.cache
def _warm(kernels: Kernels) -> None:
    with _Announcement():
        _warm_libraries()
        for name in kernels.columns:
            COLUMNS[name](kernels.dtype)
        for name in kernels.rows:
            ROWS[name]()
        if kernels.lists is not None:
            warm_lists(kernels.dtype, kernels.lists)
        if kernels.ranks is not None:
            warm_ranks(kernels.dtype, kernels.ranks)


class _Announcement:
    """Says that kernels are compiled once that has taken a while: in a log, or to whoever sits before it."""

    def __enter__(self) -> threading.Thread:
        self._end, self._before = threading.Event(), _compilations()
        watch = threading.Thread(target=self._watch, daemon=True)
        watch.start()
        return watch

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()

    def _watch(self) -> None:
        while _compilations() == self._before:
            if self._end.wait(TICK_SECONDS):
                return
        if not self._end.wait(TELL_SECONDS):
            announce(NEWS)


def _compilations() -> int:
    """Loops that were compiled so far. Where numba is not loaded, it is not loaded to ask."""
    loops = sys.modules.get("rankfold.kernels._compiled")
    return len(getattr(loops, "SIGNATURES", ()))


def announce(news: str) -> None:
    """Say in a line what a call waits for: in the log, else on a terminal or in a notebook, else nowhere."""
    if LOG.isEnabledFor(logging.INFO) and LOG.hasHandlers():
        LOG.info(news)
    elif sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        print(f"rankfold: {news}", file=sys.stderr, flush=True)


# Columns ------------------------------------------------------------------------------------------


@functools.cache
def _warm_libraries() -> None:
    import zarr  # noqa: F401

    leading_eigenpairs(np.eye(4), 1)
    panel_r(np.ones((8, 4)))


def _many(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Rows of more numbers than the reference bodies of light kernels take."""
    return np.zeros((FEW // 64 + 1, 64), dtype)


@functools.cache
def _warm_panels(dtype: np.dtype[Any]) -> None:
    x, working, vector = numbers(_many(dtype)), working_dtype(dtype), np.ones(64)
    measure(x, vector, 1.0)
    measure(_many(working), vector, 1.0)
    subtract(x, vector, vector, out=_many(working))


@functools.cache
def _warm_double(dtype: np.dtype[Any]) -> None:
    vector = np.ones(64)
    subtract(numbers(_many(dtype)), vector, vector, out=_many(np.dtype(np.float64)))


@functools.cache
def _warm_buckets(dtype: np.dtype[Any]) -> None:
    d = _many(working_dtype(dtype))
    for rows in (d, np.asfortranarray(d)):
        factors, sums = np.ones(len(rows), rows.dtype), np.zeros((1, 64), rows.dtype)
        add_to_buckets(rows, np.zeros(len(rows), np.int64), factors, sums=sums)


COLUMNS: dict[str, Callable[[np.dtype[Any]], None]] = {
    "panels": _warm_panels,
    "double": _warm_double,
    "buckets": _warm_buckets,
}


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

METRIC = {"squares": Metric.EUCLIDEAN, "inner": Metric.INNER_PRODUCT}
"""One for each way of bounded metrics."""


@functools.cache
def warm_lists(dtype: np.dtype[Any], way: str) -> None:
    """What searching for neighbors in rows of a type uses besides; see ``Kernels.lists``."""
    keys, ids = np.full((4, 2), np.inf), np.full((4, 2), -1)
    if way in METRIC:
        _warm_bounds(stored_dtype(dtype), METRIC[way], keys, ids)
    elif way == "pairs":
        wide, pair = np.zeros((4, 4)), {"keys_i": keys, "ids_i": ids, "keys_j": keys, "ids_j": ids}
        measure_pairs(wide, wide, metric=0, **pair, first_i=0, first_j=0, diagonal=1)
    merge_lists(keys, ids, other_keys=keys, other_ids=ids)
    sort_lists(keys, ids)


def _warm_bounds(
    dtype: np.dtype[Any], metric: int, keys: np.ndarray[Any, Any], ids: np.ndarray[Any, Any]
) -> None:
    x, one = np.zeros((4, 4), dtype), np.ones(4)
    measuring: dict[str, Any] = {"metric": metric, "first": 0, "keys": keys, "ids": ids}
    # Products are in float64 as well, where those of float32 leave too much open.
    for kind in DTYPES:
        near, tile = np.ones(4, kind), np.zeros((4, 4), kind)
        bounds, places = np.full((4, 3), np.inf, kind), np.full((4, 3), -1, np.int32)
        lists = {"bounds_i": bounds, "places_i": places, "bounds_j": bounds, "places_j": places}
        scan_pairs(tile, near, near, **lists, first_i=0, first_j=0, diagonal=1)
    refine_rows(x, x, one, one, bounds=bounds, places=places, **measuring)
    exhaust_rows(np.zeros((4, 4)), one, one, x, x, one, one, own=np.arange(4), **measuring)


@functools.cache
def warm_ranks(dtype: np.dtype[Any], way: str) -> None:
    """What counting nearer rows of a type uses besides; see ``Kernels.ranks``."""
    x, one, at = np.zeros((4, 4), stored_dtype(dtype)), np.ones(4), np.arange(4)
    thresholds: dict[str, Any] = {
        "own": at,
        "first": 0,
        "keys": np.ones((4, 2)),
        "ids": np.zeros((4, 2), np.int64),
    }
    counts = np.zeros((4, 2), np.int64)
    metric = METRIC.get(way, Metric.EUCLIDEAN)
    if way in METRIC:
        for kind in DTYPES:
            bound = (np.ones(4, kind), np.ones(4, kind))
            tile = np.zeros((4, 4), kind)
            count_nearer(tile, bound, bound, x, x, one, one, metric=metric, counts=counts, **thresholds)
    else:
        count_measured(np.zeros((4, 4)), np.zeros((4, 4)), metric=0, counts=counts, **thresholds)
    measure_listed(x, x, one, one, metric=metric, by_lanes=way in METRIC, rows=at, others=at)
    sort_lists(np.zeros((4, 2)), np.zeros((4, 2), np.int64))
