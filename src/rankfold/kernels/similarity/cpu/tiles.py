"""Similarities by loops that transform a row of products in cache. See ``kernels/similarity/tiles.py``.

The exponential is in the loop, in steps that compilers vectorize: a power of two times a polynomial. It is
within two units in the last place, as that of NumPy, and the same wherever the loop is.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, compile_with_contraction, contracted_part
from rankfold.kernels._dispatch import plain
from rankfold.kernels.similarity.functions import Kind, Rows, Similarity, of_products
from rankfold.kernels.similarity.tiles import NEAR, needs_differences
from rankfold.kernels.similarity.tiles import evaluate as contract

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

LEAST = -708.0
"""Arguments below this have an exponential of 0: it would not be a normal number."""

PER_LOG = 1.4426950408889634
"""log2(e)."""

LOG_HIGH, LOG_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""Natural logarithm of two, split into its first bits and the rest."""

MAGIC = 6755399441055744.0
"""1.5 times 2^52: the last bits of its sum with a number are that number, rounded to an integer."""

_COMPILABLE = (types.FunctionType, numba.core.dispatcher.Dispatcher)


@contracted_part
def _exponentials(row: Float64, powers: Float64, bits: Int64) -> None:
    """exp of numbers that are negative, zero or NaN, in place.

    ``powers`` is scratch of a row, ``bits`` its view as integers.
    """
    for j in range(len(row)):
        # Not by max, which may give either of a number and NaN.
        z = LEAST if row[j] < LEAST else row[j]
        shifted = z * PER_LOG + MAGIC
        powers[j] = shifted
        count = shifted - MAGIC
        r = z - count * LOG_HIGH
        r = r - count * LOG_LOW
        p = 1 / 6227020800.0
        p = p * r + 1 / 479001600.0
        p = p * r + 1 / 39916800.0
        p = p * r + 1 / 3628800.0
        p = p * r + 1 / 362880.0
        p = p * r + 1 / 40320.0
        p = p * r + 1 / 5040.0
        p = p * r + 1 / 720.0
        p = p * r + 1 / 120.0
        p = p * r + 1 / 24.0
        p = p * r + 1 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        p = p * r + 1.0
        row[j] = 0.0 if row[j] < LEAST else p
    for j in range(len(row)):
        bits[j] = (bits[j] + 1023) << 52
    for j in range(len(row)):
        row[j] *= powers[j]


@compile_with_contraction
def _rbf(
    x: Float64,
    y: Float64,
    squares_x: Float64,
    squares_y: Float64,
    gamma: float,
    near: float,
    k: Float64,
    powers: Float64,
    bits: Int64,
) -> None:
    """Turn products ``k = x @ y.T`` into similarities ``exp(-gamma |x - y|^2)``, in place.

    Squared distances below ``near`` times the sum of both squared norms are summed from differences.
    ``powers`` and ``bits`` are scratch of one row, as for ``_exponentials``.
    """
    for i in range(len(k)):
        row, own = k[i], squares_x[i]
        for j in range(len(row)):
            square = own + squares_y[j] - 2 * row[j]
            row[j] = 0.0 if square < 0.0 else square
        if near > 0:
            for j in range(len(row)):
                if row[j] < near * (own + squares_y[j]):
                    total = 0.0
                    for c in range(x.shape[1]):
                        apart = x[i, c] - y[j, c]
                        total += apart * apart
                    row[j] = total
        for j in range(len(row)):
            row[j] *= -gamma
        _exponentials(row, powers, bits)


@compile_with_contraction
def _laplacian(x: Float64, columns: Float64, gamma: float, k: Float64, powers: Float64, bits: Int64) -> None:
    """Write into ``k`` similarities of (m, d) rows with others, given transposed: (d, p) ``columns``."""
    for i in range(len(k)):
        row = k[i]
        for j in range(len(row)):
            row[j] = 0.0
        for c in range(len(columns)):
            value = x[i, c]
            for j in range(len(row)):
                row[j] += abs(value - columns[c, j])
        for j in range(len(row)):
            row[j] *= -gamma
        _exponentials(row, powers, bits)


@compile_loop
def _each(function: Callable[..., float], x: Float64, y: Float64, k: Float64) -> None:
    """Write a caller's own function of all pairs of rows: ``k[i, j] = function(x[i], y[j])``."""
    for i in range(len(x)):
        for j in range(len(y)):
            k[i, j] = function(x[i], y[j])


@functools.lru_cache(maxsize=16)
def _compiled(function: Any) -> Any:
    """Function compiled by numba together with its loop, or None where numba cannot compile it."""
    loop = function if numba.extending.is_jitted(function) else numba.njit(nogil=True)(function)
    none = np.empty((0, 1))
    try:
        _each(loop, none, none, none)
    except (numba.core.errors.NumbaError, numba.core.errors.UnsupportedBytecodeError):
        return None
    return loop


def evaluate(x: Rows, y: Rows, *, similarity: Similarity, out: Float64) -> None:
    """See the contract. Similarities of all pairs of two tiles of rows.

    A function that numba cannot compile is called from Python.
    """
    kind, k = similarity.kind, np.ascontiguousarray(out)
    powers = np.empty(k.shape[1])
    room = powers, powers.view(np.int64)
    if kind == Kind.FUNCTION:
        loop = _compiled(similarity.function) if isinstance(similarity.function, _COMPILABLE) else None
        if loop is None:
            contract.reference(x, y, similarity=similarity, out=out)  # type: ignore[attr-defined]
            return
        # Writable, since a function may have been compiled for that.
        ours, others = (np.require(rows.values, requirements=["C", "W"]) for rows in (x, y))
        _each(loop, ours, others, k)
    elif kind == Kind.LAPLACIAN:
        columns = np.ascontiguousarray(y.values.T)
        _laplacian(plain(x.values), columns, float(similarity.gamma), k, *room)
    else:
        np.matmul(x.values, y.values.T, out=k)
    if kind == Kind.RBF:
        near = NEAR if needs_differences(x, y, similarity) else 0.0
        values, squares = (plain(x.values), plain(y.values)), (plain(x.squares), plain(y.squares))
        _rbf(*values, *squares, float(similarity.gamma), near, k, *room)
    elif kind in (Kind.POLYNOMIAL, Kind.SIGMOID):
        of_products(k, similarity)
    if k is not out:
        out[...] = k
