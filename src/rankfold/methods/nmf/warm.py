"""Compiled loops that solve nonnegative rows, each run once on a few numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rankfold.kernels.nonnegative.admm import split_rows
from rankfold.kernels.nonnegative.kl_divergence import quotients
from rankfold.kernels.nonnegative.multiplicative import multiply_rows
from rankfold.kernels.nonnegative.nnls import descend_rows, solve_rows
from rankfold.kernels.nonnegative.projected_gradient import gradient_rows
from rankfold.kernels.nonnegative.weighted_rows import (
    descend_weighted_rows,
    gradient_weighted_rows,
    pair_count,
    pair_products,
)
from rankfold.methods.warm import warm_columns
from rankfold.pipeline.data.view import working_dtype

DTYPES = (np.dtype(np.float64), np.dtype(np.float32))


def warm_factors(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the loops that find factors once, to compile or load them; starts always use descent."""
    if "row_weights" in request:  # rows are scaled as they are read
        dtype = working_dtype(dtype)
    warm_columns(dtype, request, shape, loops=("panels",))
    for solver in ("hals", request["solver"]):
        _SOLVERS[solver]()
    if "weights" in request or "missing" in request:
        _warm_weighted_rows()


def warm_coordinates(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the loops that find coordinates of new rows in given factors once, to compile or load them."""
    warm_columns(dtype, request, shape)
    _warm_pivoting()


def _few(dtype: np.dtype[Any]) -> tuple[np.ndarray[Any, Any], ...]:
    """A Gram matrix, right-hand sides, and rows, each (4, 4)."""
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
def _warm_weighted_rows() -> None:
    for dtype in DTYPES:
        _, b, w = _few(dtype)
        halves = np.empty((4, pair_count(4)), dtype)
        pair_products(w, out=halves)
        descend_weighted_rows(halves, b, w=w, sweeps=1)
        gradient_weighted_rows(halves, b, w)


@functools.cache
def _warm_ratios() -> None:
    for dtype in DTYPES:
        gram, b, w = _few(dtype)
        multiply_rows(gram, b, w=w, linear=np.ones(4, dtype), floor=0.0, sweeps=1)
        for width in (4, 8):
            x, model = (np.ones((4, width), dtype)[:, :4] for _ in range(2))
            quotients(x, model, total=np.zeros(1))


@functools.cache
def _warm_splitting() -> None:
    for dtype in DTYPES:
        gram, b, w = _few(dtype)
        split_rows(gram, b, w=w, sweeps=1, upper=np.inf, simplex=False)


_SOLVERS = {"hals": _warm_descent, "bpp": _warm_pivoting, "mu": _warm_ratios, "admm": _warm_splitting}
