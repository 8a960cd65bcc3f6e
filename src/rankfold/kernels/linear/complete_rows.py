"""Expected values of missing entries of rows, under a model of low rank.

A row is ``mean + W z + noise`` with z standard normal, W (n, k) known as a mean and one covariance ``spread``
that all of its rows share, and noise of one variance. z and its covariance follow from the entries that a row
has,

    M = sum (w_j w_j' + spread) + noise I,    z = M^-1 sum w_j (x_j - mean_j),    C = noise M^-1,

with sums over their columns j. The missing entries follow from z: ``mean_j + w_j'z``. Sums are formed over
the present or the missing columns, whichever are fewer. A row is computed by itself, in float64 and in one
order: where rows are cut changes no bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

GOLDEN = 0x9E3779B97F4A7C15
"""Step of the counter of random numbers that choose held out entries (Steele, Lea, Flood, Fast splittable
pseudorandom number generators, OOPSLA 2014)."""


TOTALS = 8
"""Length of ``RowSums.totals``."""

COUNT_BINS = 176
"""Number of bins of counts: see ``count_bin``."""

LEAST_PERIOD = 4
"""Least period of a row, the number of columns of which one entry is held out: see ``row_period``."""


class RowModel(NamedTuple):
    """A model of low rank of rows of n entries; all arrays are float64."""

    mean: Float64
    """(n,) mean of each column."""

    loadings: Float64
    """(n, k) loadings W."""

    gram: Float64
    """(k, k) ``W'W``."""

    spread: Float64
    """(k, k) covariance of a row of W."""

    noise: Float64
    """(1,) variance of the noise, above 0."""


class RowSums(NamedTuple):
    """Sums over rows, all in float64.

    T of a row is the outer product of (z, 1) with itself, (k + 1, k + 1), plus C in its z z' part; its upper
    triangle has q = (k + 1)(k + 2) / 2 entries. Entries that are held out count as missing in ``squares``,
    ``shared``, ``products`` and the last total. Products, and squares in the last two fields, are of entries
    less their mean.
    """

    squares: Float64
    """(n, q) for each column the sum of the triangles of T over rows that have the column and are not in
    ``shared``, less the sum over rows that miss it and are in ``shared``. Plus ``shared`` it is the sum over
    all rows that have the column. (0, q) if not computed."""

    shared: Float64
    """(q,) sum of the triangles of T over the rows with at least half of their entries, or over all rows if
    ``squares`` are not computed."""

    moments: Float64
    """(q,) sum of the triangles of T over all rows."""

    products: Float64
    """(n, k + 1) for each column the sum of expected products of its missing entries with (z, 1), if
    ``squares`` are not computed."""

    columns: Float64
    """(3, n) for each column: number of missing entries, number of held out entries, and the sum of the held
    out entries less the mean of the column."""

    totals: Float64
    """(TOTALS,) in order: sum of squares of fitted entries; number of held out entries, sums of squares of
    their errors and of themselves; sums of squares of the changes of missing entries from the model before,
    and of the completed rows; number of rows without any entry; sum of expected squares of missing entries,
    if ``squares`` are not computed."""

    by_count: Float64
    """(4, COUNT_BINS) number of missing entries, by bins of the count of present ones in their row; then
    number of held out entries, and sums of squares of their errors and of themselves, by bins of the count of
    entries that are left in their row."""


@kernel
def fill_rows(x: Array, model: RowModel) -> None:
    """Replace NaN by the values that a model expects.

    Parameters
    ----------
    x : (r, n) float32 or float64, changed where it is NaN
        A row with an infinite entry is left as it is.
    model : RowModel

    Notes
    -----
    Complete rows cost one read. Others cost 2 n k flops, 2 k^2 for each entry that is present or missing,
    whichever are fewer, and k^3 / 3. Scratch is one row and a few (k, k).

    References
    ----------
    Tipping, Bishop, Probabilistic principal component analysis, J. R. Statist. Soc. B 61(3), 1999; with
    missing values as Ilin, Raiko, Practical approaches to principal component analysis in the presence of
    missing values, JMLR 11, 2010, equations of VBPCA, but for ``spread``, which is one for all columns.
    """
    for row in x:
        missing = np.isnan(row)
        if not missing.any() or np.isinf(row).any():
            continue
        d = np.where(missing, 0.0, row.astype(np.float64) - model.mean)
        z, _ = _coordinates(d, ~missing, model)
        row[missing] = (model.mean + model.loadings @ z)[missing]


@kernel
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
    """Add the statistics of rows under a model to ``sums``, and write ``d`` and ``z``.

    Products of present entries with z are left to the caller: these are ``d'z``.

    In each run of ``period`` columns of a row one entry is held out: it counts as missing, and the error of
    the model is measured by it. In rows that miss more entries than they have, runs are shorter, see
    ``row_period``: such rows are hardest to complete, and have few entries to measure errors by.

    Parameters
    ----------
    x : (r, n) real or integer
        NaN for missing entries. Inf makes totals that are not finite.
    first : int
        Index of the first row in the matrix.
    key, period : int
        Key and period of held out entries: in row i and run c that is column ``c p + hash(key, i, c) % p``,
        if there is such a one, with p the period of the row.
    model, before : RowModel
        The model, and another one: missing entries as both expect them are compared.
    d : (r, n) float32 or float64, written
        ``x - mean``, 0 where an entry is missing or held out.
    z : (r, k + 1) of the type of ``d``, written
        Coordinates of the rows, and 1.
    sums : RowSums
        Added to.

    Notes
    -----
    Work and references are those of ``fill_rows``, twice for the two models; and k^2 more for each entry
    that is present or missing, whichever are fewer.
    """
    for i, row in enumerate(x):
        missing = np.isnan(row)
        held = ~missing & held_out(first + i, key, period, missing)
        d[i], z[i] = _add_row(row.astype(np.float64), held, model, before, sums)


def _add_row(
    row: Float64, held: Array, model: RowModel, before: RowModel, sums: RowSums
) -> tuple[Float64, Float64]:
    """Add the statistics of a row to ``sums``; returns its row of ``d`` and of ``z``, as for ``fit_rows``.

    ``held`` is True for its entries that are held out.
    """
    missing, wide = np.isnan(row), row - model.mean
    there = ~(missing | held)
    fitted = np.where(there, wide, 0.0)
    z, covariance = _coordinates(fitted, there, model)
    triangle, expected = _triangle(z, covariance), model.loadings @ z
    sums.moments[:] += triangle
    exact, few = len(sums.squares) > 0, 2 * int(there.sum()) < len(row)
    if exact and few:
        sums.squares[there] += triangle
    else:
        sums.shared[:] += triangle
    if exact and not few:
        sums.squares[~there] -= triangle
    if not exact:
        spans = model.loadings[~there] @ covariance
        p = expected[~there]
        sums.products[~there] += np.column_stack([np.outer(p, z) + spans, p])
        sums.totals[7] += (p**2 + np.einsum("ij,ij->i", spans, model.loadings[~there]) + model.noise).sum()
    sums.columns[:2] += missing, held
    sums.columns[2][held] += wide[held]
    change = (model.mean + expected - _expected(row, there, before))[missing]
    squares = (np.where(missing, expected, wide) ** 2).sum()
    errors = (wide - expected)[held]
    each = [fitted, held, errors, wide[held], change]
    sums.totals[:5] += [float((np.square(part, dtype=np.float64)).sum()) for part in each]
    sums.totals[5:7] += squares, missing.all()
    sums.by_count[0, count_bin(int((~missing).sum()))] += missing.sum()
    left = count_bin(int(there.sum()))
    sums.by_count[1:, left] += held.sum(), (errors**2).sum(), (wide[held] ** 2).sum()
    return fitted, np.append(z, 1.0)


def row_period(there: int, columns: int, period: int) -> int:
    """Period of held out entries of a row that has ``there`` of its ``columns`` entries.

    It is shorter than ``period`` if more are missing than present, in that proportion.

    >>> row_period(80, 100, 100), row_period(20, 100, 100), row_period(1, 100, 100)
    (100, 25, 4)
    """
    missing = columns - there
    if missing <= there:
        return period
    return min(period, max(LEAST_PERIOD, period * there // missing))


def count_bin(count: int) -> int:
    """Bin of a count: one bin for each up to 15, then four bins for each doubling.

    >>> [count_bin(count) for count in (0, 15, 16, 19, 20, 31, 32)]
    [0, 15, 16, 16, 17, 19, 20]
    """
    doublings = 0
    while count >> doublings > 31:
        doublings += 1
    return count if count < 16 else 4 * doublings + (count >> (doublings + 2)) + 12


def held_out(row: int, key: int, period: int, missing: Array) -> npt.NDArray[np.bool_]:
    """(n,) True for the columns whose entries a row holds out, and for some whose entries are missing.

    ``row`` is its index in the matrix, ``missing`` (n,) is True where it has no entry; see ``fit_rows`` for
    ``key`` and ``period``.
    """
    columns = len(missing)
    own = row_period(columns - int(missing.sum()), columns, period)
    runs = -(-columns // own)
    with np.errstate(over="ignore"):
        counter = np.uint64(row) * np.uint64(runs) + np.arange(runs, dtype=np.uint64)
        h = np.uint64(key) + counter * np.uint64(GOLDEN)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        h ^= h >> np.uint64(31)
    places = np.arange(runs) * own + (h % np.uint64(own)).astype(np.int64)
    held = np.zeros(columns, np.bool_)
    held[places[places < columns]] = True
    return held


def _coordinates(d: Float64, there: Array, model: RowModel) -> tuple[Float64, Float64]:
    """Coordinates z (k,) of a row, and their covariance C (k, k); ``d`` is 0 where ``there`` is False."""
    count, k = int(there.sum()), model.loadings.shape[1]
    seen = model.loadings[there]
    unseen = model.loadings[~there]
    m = seen.T @ seen if 2 * count < len(d) else model.gram - unseen.T @ unseen
    m = m + count * model.spread + model.noise[0] * np.eye(k)
    z = np.linalg.solve(m, model.loadings.T @ d)
    return z, model.noise[0] * np.linalg.inv(m)


def _expected(row: Float64, there: Array, model: RowModel) -> Float64:
    d = np.where(there, row - model.mean, 0.0)
    return np.asarray(model.mean + model.loadings @ _coordinates(d, there, model)[0])


def _triangle(z: Float64, covariance: Float64) -> Float64:
    k = len(z)
    full = np.outer(np.append(z, 1.0), np.append(z, 1.0))
    full[:k, :k] += covariance
    return np.asarray(full[np.triu_indices(k + 1)])
