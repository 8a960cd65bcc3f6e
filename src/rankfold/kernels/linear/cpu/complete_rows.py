"""Rows with missing entries, in one read of each. See ``kernels/linear/complete_rows.py``.

Serial loops that release the GIL: parallelism comes from the threads that call them. All sums over columns
are of vectors with a lane for each component, so that they are vectorized and their order is fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_with_contraction, contracted_part
from rankfold.kernels._dispatch import plain, wide, writable, write_back
from rankfold.kernels.linear.complete_rows import GOLDEN, LEAST_PERIOD, RowModel, RowSums

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@contracted_part
def _add_triangles(four: Float64, sign: float, m: Float64) -> None:
    """Add outer products of four rows of loadings, (4, k), times ``sign``, to the lower half of ``m``."""
    w0, w1, w2, w3 = four[0], four[1], four[2], four[3]
    for a in range(len(w0)):
        f0, f1, f2, f3 = sign * w0[a], sign * w1[a], sign * w2[a], sign * w3[a]
        for b in range(a + 1):
            m[a, b] += (f0 * w0[b] + f1 * w1[b]) + (f2 * w2[b] + f3 * w3[b])


@contracted_part
def _normal_matrix(
    gaps: Array, count: int, loadings: Float64, gram: Float64, spread: Float64, noise: float, m: Float64
) -> None:
    """Write the lower half of the matrix M (k, k) of a row into ``m``.

    ``gaps`` is 0 where an entry counts as present, ``count`` is the number of these entries.
    """
    n, k = loadings.shape
    few = 2 * count < n
    sign = 1.0 if few else -1.0
    for a in range(k):
        for b in range(a + 1):
            m[a, b] = count * spread[a, b] + (0.0 if few else gram[a, b])
        m[a, a] += noise
    # Four at a time load and store the matrix once instead of four times.
    four, filled = np.zeros((4, k)), 0
    for j in range(n):
        if (gaps[j] == 0) == few:
            four[filled] = loadings[j]
            filled += 1
            if filled == 4:
                _add_triangles(four, sign, m)
                filled = 0
    if filled:
        four[filled:] = 0.0
        _add_triangles(four, sign, m)


@contracted_part
def _factorize(m: Float64) -> None:
    """Replace the lower half of ``m`` by its Cholesky factor, whose diagonal is stored as reciprocals."""
    for a in range(m.shape[0]):
        for b in range(a):
            s = m[a, b]
            for c in range(b):
                s -= m[a, c] * m[b, c]
            m[a, b] = s * m[b, b]
        s = m[a, a]
        for c in range(a):
            s -= m[a, c] * m[a, c]
        m[a, a] = 1.0 / np.sqrt(s)


@contracted_part
def _solve(m: Float64, z: Float64) -> None:
    k = len(z)
    for a in range(k):
        s = z[a]
        for c in range(a):
            s -= m[a, c] * z[c]
        z[a] = s * m[a, a]
    for a in range(k - 1, -1, -1):
        s = z[a] * m[a, a]
        z[a] = s
        for c in range(a):
            z[c] -= m[a, c] * s


@contracted_part
def _invert(m: Float64, lower: Float64, inverse: Float64) -> None:
    """Write the inverse of M into ``inverse``, from its Cholesky factor ``m``, as ``_factorize`` leaves it.

    ``lower`` becomes the inverse of that factor.
    """
    k = m.shape[0]
    for a in range(k):
        for b in range(k):
            lower[a, b] = 0.0
            inverse[a, b] = 0.0
    for a in range(k):
        for c in range(a):
            f = m[a, c]
            for b in range(c + 1):
                lower[a, b] -= f * lower[c, b]
        for b in range(a):
            lower[a, b] *= m[a, a]
        lower[a, a] = m[a, a]
    for c in range(k):
        for a in range(c + 1):
            f = lower[c, a]
            for b in range(c + 1):
                inverse[a, b] += f * lower[c, b]


@contracted_part
def _project(row: Array, gaps: Array, mean: Float64, loadings: Float64, z: Float64) -> None:
    """Write into ``z`` the sum of loadings of present entries (``gaps`` is 0), times these less the mean."""
    n, k = loadings.shape
    for a in range(k):
        z[a] = 0.0
    whole = n - n % 4
    for j in range(0, whole, 4):
        d0 = 0.0 if gaps[j] else np.float64(row[j]) - mean[j]
        d1 = 0.0 if gaps[j + 1] else np.float64(row[j + 1]) - mean[j + 1]
        d2 = 0.0 if gaps[j + 2] else np.float64(row[j + 2]) - mean[j + 2]
        d3 = 0.0 if gaps[j + 3] else np.float64(row[j + 3]) - mean[j + 3]
        w0, w1, w2, w3 = loadings[j], loadings[j + 1], loadings[j + 2], loadings[j + 3]
        for a in range(k):
            z[a] += (d0 * w0[a] + d1 * w1[a]) + (d2 * w2[a] + d3 * w3[a])
    for j in range(whole, n):
        if gaps[j] == 0:
            d0 = np.float64(row[j]) - mean[j]
            for a in range(k):
                z[a] += d0 * loadings[j, a]


@contracted_part
def _dot(w: Float64, z: Float64) -> float:
    # Four sums at once, since each waits for itself.
    k = len(w)
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    a = 0
    while a + 4 <= k:
        s0 += w[a] * z[a]
        s1 += w[a + 1] * z[a + 1]
        s2 += w[a + 2] * z[a + 2]
        s3 += w[a + 3] * z[a + 3]
        a += 4
    while a < k:
        s0 += w[a] * z[a]
        a += 1
    return (s0 + s1) + (s2 + s3)


@contracted_part
def _coordinates(row: Array, gaps: Array, count: int, model: RowModel, m: Float64, z: Float64) -> None:
    """Write the coordinates z (k,) of a row; ``m`` becomes the Cholesky factor of M.

    ``gaps`` is 0 where an entry counts as present, ``count`` is the number of these entries.
    """
    _project(row, gaps, model.mean, model.loadings, z)
    _normal_matrix(gaps, count, model.loadings, model.gram, model.spread, model.noise[0], m)
    _factorize(m)
    _solve(m, z)


@compile_with_contraction
def _fill(x: Array, model: RowModel) -> None:
    n, k = model.loadings.shape
    gaps, m, z = np.empty(n, np.uint8), np.empty((k, k)), np.empty(k)
    for i in range(x.shape[0]):
        row, count, finite = x[i], 0, True
        for j in range(n):
            gaps[j] = np.isnan(row[j])
            count += gaps[j] == 0
            finite = finite and not np.isinf(row[j])
        if count == n or not finite:
            continue
        _coordinates(row, gaps, count, model, m, z)
        for j in range(n):
            if gaps[j]:
                row[j] = model.mean[j] + _dot(model.loadings[j], z)


@contracted_part
def _row_period(there: int, columns: int, period: int) -> int:
    missing = columns - there
    if missing <= there:
        return period
    return min(period, max(LEAST_PERIOD, period * there // missing))


@contracted_part
def _mark_held_out(row: int, key: np.uint64, period: int, gaps: Array) -> int:
    """Set ``gaps`` from 0 to 2 where an entry is held out; returns the number of these entries.

    ``row`` is the index of the row in the matrix, ``period`` is that of the row: see ``row_period``.
    """
    n = len(gaps)
    runs, held = -(-n // period), 0
    for c in range(runs):
        h = key + (np.uint64(row) * np.uint64(runs) + np.uint64(c)) * np.uint64(GOLDEN)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        h = h ^ (h >> np.uint64(31))
        j = c * period + np.int64(h % np.uint64(period))
        if j < n and gaps[j] == 0:
            gaps[j] = 2
            held += 1
    return held


@contracted_part
def _fill_triangle(z: Float64, covariance: Float64, noise: float, triangle: Float64) -> None:
    k, t = len(z), 0
    for a in range(k):
        for b in range(a, k):
            triangle[t] = z[a] * z[b] + noise * covariance[a, b]
            t += 1
        triangle[t] = z[a]
        t += 1
    triangle[t] = 1.0


@contracted_part
def _measure(
    row: Array, gaps: Array, mean: Float64, loadings: Float64, z: Float64, old: Float64, columns: Array
) -> tuple[float, float, float, float, float, float]:
    """Return the first six of ``RowSums.totals`` for one row, and add to ``columns``, ``RowSums.columns``.

    ``gaps`` is 0 for present, 1 for missing and 2 for held out entries; ``old`` has the values that the model
    before expects of missing ones.
    """
    fitted, errors, sizes, changes, squares, held = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(len(mean)):
        if gaps[j] == 0:
            v = np.float64(row[j]) - mean[j]
            fitted += v * v
            continue
        p = _dot(loadings[j], z)
        if gaps[j] == 1:
            change = mean[j] + p - old[j]
            changes += change * change
            squares += p * p
            columns[0, j] += 1.0
        else:
            v = np.float64(row[j]) - mean[j]
            errors += (v - p) * (v - p)
            sizes += v * v
            held += 1.0
            columns[1, j] += 1.0
            columns[2, j] += v
    return fitted, held, errors, sizes, changes, fitted + sizes + squares


@contracted_part
def _predict(gaps: Array, mean: Float64, loadings: Float64, z: Float64, old: Float64) -> None:
    for j in range(len(mean)):
        if gaps[j] == 1:
            old[j] = mean[j] + _dot(loadings[j], z)


@contracted_part
def _add_squares(gaps: Array, count: int, triangle: Float64, squares: Float64, shared: Float64) -> None:
    """Add ``triangle``, T of a row, to ``squares`` of the columns it has, if these are less than half of all.

    Otherwise subtract it from ``squares`` of the other columns, and add it to ``shared``.
    """
    n, q = squares.shape
    few = 2 * count < n
    sign = 1.0 if few else -1.0
    for j in range(n):
        if (gaps[j] == 0) == few:
            for t in range(q):
                squares[j, t] += sign * triangle[t]
    if not few:
        for t in range(q):
            shared[t] += triangle[t]


@contracted_part
def _add_expected(
    gaps: Array, loadings: Float64, z: Float64, covariance: Float64, noise: float, products: Float64
) -> float:
    """Add expected products of missing or held out entries with (z, 1) to ``products``, (n, k + 1).

    Returns the sum of the expected squares of these entries.
    """
    n, k = loadings.shape
    total, span = 0.0, np.empty(k)
    for j in range(n):
        if gaps[j] == 0:
            continue
        w = loadings[j]
        p = _dot(w, z)
        for a in range(k):
            span[a] = p * z[a]
        for c in range(k):
            f = noise * w[c]
            for a in range(k):
                span[a] += f * covariance[c, a]
        for a in range(k):
            products[j, a] += span[a]
        products[j, k] += p
        total += noise + _dot(span, w)
    return total


@contracted_part
def _count_bin(count: int) -> int:
    doublings = 0
    while count >> doublings > 31:
        doublings += 1
    return count if count < 16 else 4 * doublings + (count >> (doublings + 2)) + 12


@contracted_part
def _add_totals(parts: tuple[float, ...], missing: int, there: int, left: int, sums: RowSums) -> None:
    for t in range(len(parts)):
        sums.totals[t] += parts[t]
    sums.totals[6] += 1.0 if there == 0 else 0.0
    sums.by_count[0, _count_bin(there)] += missing
    for t in range(1, 4):
        sums.by_count[t, _count_bin(left)] += parts[t]


@contracted_part
def _write(row: Array, gaps: Array, mean: Float64, z: Float64, d: Array, coordinates: Array) -> None:
    for j in range(len(mean)):
        d[j] = 0.0 if gaps[j] else np.float64(row[j]) - mean[j]
    for a in range(len(z)):
        coordinates[a] = z[a]
    coordinates[len(z)] = 1.0


@compile_with_contraction
def _fit(
    x: Array,
    first: int,
    key: np.uint64,
    period: int,
    model: RowModel,
    before: RowModel,
    d: Array,
    coordinates: Array,
    sums: RowSums,
) -> None:
    n, k = model.loadings.shape
    mean, loadings, noise = model.mean, model.loadings, model.noise[0]
    gaps, m, z, old = np.empty(n, np.uint8), np.empty((k, k)), np.empty(k), np.empty(n)
    lower, inverse, triangle = np.empty((k, k)), np.empty((k, k)), np.empty(len(sums.moments))
    z0, m0 = np.empty(before.gram.shape[0]), np.empty(before.gram.shape)
    for i in range(x.shape[0]):
        row, there = x[i], 0
        for j in range(n):
            gaps[j] = np.isnan(np.float64(row[j]))
            there += gaps[j] == 0
        count = there - _mark_held_out(first + i, key, _row_period(there, n, period), gaps)
        _coordinates(row, gaps, count, model, m, z)
        _invert(m, lower, inverse)
        _fill_triangle(z, inverse, noise, triangle)
        if there < n:
            _coordinates(row, gaps, count, before, m0, z0)
            _predict(gaps, before.mean, before.loadings, z0, old)
        parts = _measure(row, gaps, mean, loadings, z, old, sums.columns)
        _add_totals(parts, n - there, there, count, sums)
        for t in range(len(triangle)):
            sums.moments[t] += triangle[t]
        if len(sums.squares) > 0:
            _add_squares(gaps, count, triangle, sums.squares, sums.shared)
        else:
            for t in range(len(triangle)):
                sums.shared[t] += triangle[t]
            sums.totals[7] += _add_expected(gaps, loadings, z, inverse, noise, sums.products)
        _write(row, gaps, mean, z, d[i], coordinates[i])


def fill_rows(x: Array, model: RowModel) -> None:
    """See the contract. Replaces NaN by the values that a model expects."""
    into = writable(x)
    _fill(into, RowModel(*(plain(each) for each in model)))
    write_back(into, x)


def fit_rows(
    x: Array,
    first: int,
    key: int,
    period: int,
    model: RowModel,
    before: RowModel,
    *,
    d: Array,
    z: Array,
    sums: RowSums,
) -> None:
    """See the contract. Adds statistics of rows under a model to ``sums``."""
    into_d, into_z = writable(d), writable(z)
    new, old = (RowModel(*(plain(each) for each in both)) for both in (model, before))
    _fit(wide(x), first, np.uint64(key), period, new, old, into_d, into_z, sums)
    write_back(into_d, d)
    write_back(into_z, z)
