"""Nonnegative least squares for many rows. See ``kernels/nonnegative/nnls.py``.

Lanes are rows: a tile of 64 is transposed once, so that every sum over coordinates is a sum of vectors, and
stays in first-level cache for all its sweeps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, compile_with_contraction, contracted_part, part
from rankfold.kernels.nonnegative.nnls import EXCHANGES, RETRIES, RIDGE, STEPS, ridge_of

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

LANES = 64


@contracted_part
def _slopes(gram: Array, b: Array, tile: Array, t: int, slope: Array) -> None:
    # Four coordinates at a time load and store the slopes once instead of four times.
    k = gram.shape[0]
    for j in range(LANES):
        slope[j] = -b[t, j]
    r = 0
    while r + 4 <= k:
        g0, g1, g2, g3 = gram[t, r], gram[t, r + 1], gram[t, r + 2], gram[t, r + 3]
        for j in range(LANES):
            slope[j] += g0 * tile[r, j] + g1 * tile[r + 1, j] + g2 * tile[r + 2, j] + g3 * tile[r + 3, j]
        r += 4
    while r < k:
        g0 = gram[t, r]
        for j in range(LANES):
            slope[j] += g0 * tile[r, j]
        r += 1


@contracted_part
def _descend_tile(gram: Array, b: Array, tile: Array, sweeps: int, slope: Array) -> None:
    for _ in range(sweeps):
        for t in range(gram.shape[0]):
            _slopes(gram, b, tile, t, slope)
            if gram[t, t] > 0:
                inverse = 1 / gram[t, t]
                for j in range(LANES):
                    tile[t, j] = max(tile[t, j] - slope[j] * inverse, gram.dtype.type(0))


@compile_with_contraction
def _descend(gram: Array, b: Array, w: Array, sweeps: int, tile: Array, right: Array, slope: Array) -> None:
    rows, k = w.shape
    for first in range(0, rows, LANES):
        count = min(LANES, rows - first)
        for j in range(count):
            for t in range(k):
                tile[t, j], right[t, j] = w[first + j, t], b[first + j, t]
        _descend_tile(gram, right, tile, sweeps, slope)
        for j in range(count):
            for t in range(k):
                w[first + j, t] = tile[t, j]


LOW, FREE, TOP = 0, 1, 2
"""States of a coordinate: held at zero, free between its bounds, held at the upper bound."""


@part
def _solve_factor(factor: Float64, index: Array, count: int, x: Float64) -> None:
    """Solve ``L L' y = x`` for the ``count`` coordinates in ``index``; y overwrites their place in ``x``."""
    for i in range(count):
        s = x[index[i]]
        for r in range(i):
            s -= factor[i, r] * x[index[r]]
        x[index[i]] = s / factor[i, i]
    for i in range(count - 1, -1, -1):
        s = x[index[i]]
        for r in range(i + 1, count):
            s -= factor[r, i] * x[index[r]]
        x[index[i]] = s / factor[i, i]


@part
def _factor_free(gram: Float64, state: Array, index: Array, factor: Float64) -> int:
    """Write the Cholesky factor of the Gram matrix of free coordinates into ``factor``, and list them.

    The first entries of ``index`` are the free coordinates. Returns their number, or -1 if a pivot is not
    positive.
    """
    count = 0
    for i in range(state.shape[0]):
        if state[i] == FREE:
            index[count] = i
            count += 1
    for i in range(count):
        for j in range(i + 1):
            s = gram[index[i], index[j]]
            for r in range(j):
                s -= factor[i, r] * factor[j, r]
            if i == j:
                # Rounding leaves a coordinate that depends on others less than the ridge, or less than 0.
                s = max(s, RIDGE * gram[index[i], index[i]])
                if not s > 0:
                    return -1
                factor[i, i] = np.sqrt(s)
            else:
                factor[i, j] = s / factor[j, j]
    return count


@part
def _right_side(gram: Float64, b: Float64, state: Array, upper: float, x: Float64) -> None:
    """Write into ``x`` the right sides of free coordinates, and the bounds at which the others are held.

    A right side is ``b`` less the products of ``gram`` with coordinates at ``upper``.
    """
    k = b.shape[0]
    for i in range(k):
        x[i] = b[i] if state[i] == FREE else upper if state[i] == TOP else 0.0
    for r in range(k if upper < np.inf else 0):
        if state[r] == TOP:
            for i in range(k):
                if state[i] == FREE:
                    x[i] -= gram[i, r] * upper


@part
def _onto_sum(factor: Float64, index: Array, count: int, x: Float64, ones: Float64) -> float:
    """Bring the sum of free coordinates in ``x`` to one; returns the Lagrange multiplier of that constraint.

    ``index`` lists the ``count`` free coordinates, ``factor`` is their Cholesky factor, ``ones`` is scratch.
    """
    total, slope = 0.0, 0.0
    for i in range(count):
        ones[index[i]] = 1.0
    _solve_factor(factor, index, count, ones)
    for i in range(count):
        total += x[index[i]]
        slope += ones[index[i]]
    multiplier = (total - 1) / slope
    for i in range(count):
        x[index[i]] -= multiplier * ones[index[i]]
    return multiplier


@part
def _vertex(gram: Float64, b: Float64) -> int:
    """Coordinate that is 1 at the vertex of the simplex with the lowest objective; all others are 0 there."""
    best, least = 0, np.inf
    for i in range(b.shape[0]):
        if gram[i, i] / 2 - b[i] < least:
            best, least = i, gram[i, i] / 2 - b[i]
    return best


@part
def _free_one(gram: Float64, b: Float64, state: Array) -> None:
    """Mark the coordinate of the best vertex of the simplex as free in ``state``, if none is free."""
    for i in range(b.shape[0]):
        if state[i] == FREE:
            return
    state[_vertex(gram, b)] = FREE


@part
def _solve_free(
    gram: Float64,
    b: Float64,
    state: Array,
    index: Array,
    factor: Float64,
    x: Float64,
    ones: Float64,
    upper: float,
    simplex: bool,
) -> tuple[bool, float]:
    """Write into ``x`` free coordinates with slope zero, and the others at their bounds.

    Returns True on success, and the multiplier of the constraint on the sum, 0 without ``simplex``.
    ``index``, ``factor`` and ``ones`` are scratch.
    """
    count = _factor_free(gram, state, index, factor)
    if count < 0:
        return False, 0.0
    _right_side(gram, b, state, upper, x)
    _solve_factor(factor, index, count, x)
    return True, _onto_sum(factor, index, count, x, ones) if simplex else 0.0


@part
def _slope(gram: Float64, b: Float64, x: Float64, multiplier: float, i: int) -> float:
    y: float = multiplier - b[i]
    for r in range(b.shape[0]):
        y += gram[i, r] * x[r]
    return y


@part
def _mark_wrong(
    gram: Float64,
    b: Float64,
    state: Array,
    x: Float64,
    zero: Float64,
    upper: float,
    multiplier: float,
    wrong: Array,
) -> int:
    """Mark the infeasible coordinates in ``wrong``; returns their number.

    These are free ones outside their bounds, and those at a bound whose slope points into the interior by
    more than ``zero``, (k,).
    """
    count = 0
    for i in range(b.shape[0]):
        if state[i] == FREE:
            wrong[i] = x[i] < 0 or x[i] > upper
        else:
            y = _slope(gram, b, x, multiplier, i)
            wrong[i] = y < -zero[i] if state[i] == LOW else y > zero[i]
        count += wrong[i]
    return count


@part
def _exchange(
    gram: Float64,
    b: Float64,
    state: Array,
    index: Array,
    factor: Float64,
    x: Float64,
    ones: Float64,
    zero: Float64,
    wrong: Array,
    upper: float,
    simplex: bool,
    exchanges: int,
) -> bool:
    """Exchange coordinates between free and bound, from ``state`` on, until none is infeasible.

    Returns True if ``exchanges`` rounds are enough; the solution of the row is then in ``x``. ``zero`` has
    the magnitudes up to which slopes count as zero; ``index``, ``factor``, ``ones``, ``wrong`` are scratch.
    """
    k = b.shape[0]
    retries, fewest = RETRIES, k + 1
    for _ in range(exchanges):
        if simplex:
            _free_one(gram, b, state)
        solved, multiplier = _solve_free(gram, b, state, index, factor, x, ones, upper, simplex)
        if not solved:
            return False
        count = _mark_wrong(gram, b, state, x, zero, upper, multiplier, wrong)
        if count == 0:
            return True
        all_of_them = True
        if count < fewest:
            fewest, retries = count, RETRIES
        elif retries:
            retries -= 1
        else:
            all_of_them = False
        for i in range(k - 1, -1, -1):
            if wrong[i]:
                state[i] = FREE if state[i] != FREE else TOP if x[i] > upper else LOW
                if not all_of_them:
                    break
    return False


@part
def _find_states(w: Float64, upper: float, state: Array) -> None:
    for i in range(w.shape[0]):
        state[i] = LOW if not w[i] > 0 else TOP if w[i] >= upper else FREE


@part
def _make_feasible(gram: Float64, b: Float64, w: Float64, upper: float, simplex: bool) -> None:
    total, best = 0.0, _vertex(gram, b)
    for i in range(w.shape[0]):
        w[i] = min(w[i], upper)
        total += w[i]
    if simplex:
        for i in range(w.shape[0]):
            w[i] = w[i] / total if total > 0 else 1.0 if i == best else 0.0


@part
def _first_bound(state: Array, w: Float64, x: Float64, upper: float) -> tuple[int, float]:
    """Free coordinate that is first to reach a bound on the way from ``w`` to ``x``, or -1 if none does.

    Also returns the fraction of the way at which it does, 1 if none.
    """
    first, length = -1, 1.0
    for i in range(w.shape[0]):
        if state[i] == FREE:
            own = (
                w[i] / (w[i] - x[i]) if x[i] < 0 else (upper - w[i]) / (x[i] - w[i]) if x[i] > upper else 1.0
            )
            if own < length:
                first, length = i, own
    return first, length


@part
def _step(
    gram: Float64,
    b: Float64,
    w: Float64,
    state: Array,
    index: Array,
    factor: Float64,
    x: Float64,
    ones: Float64,
    zero: Float64,
    upper: float,
    simplex: bool,
) -> None:
    """Solve a row ``w``, in place, by an active-set method that changes one coordinate at a time.

    ``zero`` has the magnitudes up to which slopes count as zero; ``state``, ``index``, ``factor``, ``x`` and
    ``ones`` are scratch.
    """
    k = b.shape[0]
    _make_feasible(gram, b, w, upper, simplex)
    _find_states(w, upper, state)
    for _ in range(STEPS * k):
        solved, multiplier = _solve_free(gram, b, state, index, factor, x, ones, upper, simplex)
        if not solved:
            return
        first, length = _first_bound(state, w, x, upper)
        if first >= 0:
            for i in range(k):
                if state[i] == FREE:
                    w[i] += length * (x[i] - w[i])
            state[first] = TOP if x[first] > upper else LOW
            w[first] = upper if x[first] > upper else 0.0
            continue
        worst = 0.0
        for i in range(k):
            w[i] = x[i]
            if state[i] != FREE:
                y = _slope(gram, b, x, multiplier, i)
                over = (y if state[i] == TOP else -y) - zero[i]
                if over > worst:
                    first, worst = i, over
        if first < 0:
            return
        state[first] = FREE


@compile_loop
def _solve(
    gram: Float64, b: Float64, w: Float64, sizes: Float64, upper: float, simplex: bool, exchanges: int
) -> None:
    rows, k = b.shape
    index, factor = np.zeros(k, np.int64), np.zeros((k, k))
    x, ones, zero = np.zeros(k), np.zeros(k), np.zeros(k)
    state, wrong = np.zeros(k, np.int8), np.zeros(k, np.bool_)
    least, inverse = sizes.min() if simplex else 0.0, np.zeros(k)
    for i in range(k):
        inverse[i] = 1 / sizes[i] if sizes[i] > 0 else 0.0
    for row in range(rows):
        largest = least
        for i in range(k):
            largest = max(largest, abs(b[row, i]) * inverse[i])
        for i in range(k):
            zero[i] = 1e-12 * largest * sizes[i]
        right, own = b[row], w[row]
        _find_states(own, upper, state)
        if _exchange(gram, right, state, index, factor, x, ones, zero, wrong, upper, simplex, exchanges):
            for i in range(k):
                own[i] = x[i]
        else:
            _step(gram, right, own, state, index, factor, x, ones, zero, upper, simplex)


def descend_rows(gram: Array, b: Array, *, w: Array, sweeps: int) -> None:
    """See the contract; scratch three tiles. Improves rows by coordinate descent (HALS)."""
    _descend(gram, b, w, sweeps, *_tiles(w))


def solve_rows(
    gram: Float64, b: Float64, *, w: Float64, upper: float = np.inf, simplex: bool = False
) -> None:
    """See the contract; scratch 8 k^2 bytes. Solves rows by block principal pivoting."""
    ridge_gram = gram + np.diag(ridge_of(gram))
    _solve(ridge_gram, b, w, np.sqrt(np.diag(ridge_gram)), float(upper), bool(simplex), EXCHANGES * len(gram))


def _tiles(w: Array) -> tuple[Array, Array, Array]:
    """Buffers for a tile and its right sides, (k, 64) each, and for a slope, (64,), in the type of ``w``.

    Loops that allocate them take long to compile.
    """
    shape = (w.shape[1], LANES)
    return np.zeros(shape, w.dtype), np.zeros(shape, w.dtype), np.zeros(LANES, w.dtype)
