"""Nearest neighbors from tiles of products: bounds choose, exact distances decide.

A product of float32 panels gives a lower bound of the distance of each pair. Pairs whose bound is below the
farthest that a row already has become candidates; their distance is measured in float64, always by the same
sum in the same order, and (distance, id) decides. So lists are a function of the rows alone: neither the cut
of panels, nor the order of tiles, nor the rounding of products shows.

A *list* holds the ``k`` nearest so far of a row as a max-heap by (key, id): ``keys`` (r, k) float64 and
``ids`` (r, k) int64, the farthest in column 0; slots still empty hold ``inf`` and ``EMPTY``. The key is the
distance. A *shortlist* is a max-heap of ``c`` bounds of a row, with the position in the panel of each, its
*place*; it starts filled with the largest bound that is of use and place -1, so that a bound must always be
below column 0 to enter.

*Halves* are the unit of bounds: half a squared distance, or the key itself where that is one (``half``).

The trap: a bound that is not below the largest of its shortlist is dropped for good. Only where that
largest one is above the half of the row's final key is it certain that nothing was lost (``refine_rows``).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]

EMPTY = np.iinfo(np.int64).max
"""Id in an empty slot of a list: larger than any row."""

LANES = 16
"""Partial sums of a distance: element ``t`` goes to sum ``t % LANES``, and they are added pairwise."""

SLACK = 1e-15
"""Relative widening of halves: more than the rounding error of squaring a key and halving it."""


class Metric(enum.IntEnum):
    """Distance used as key: for ``COSINE`` 1 less the cosine, for ``INNER_PRODUCT`` the negative product.

    These two are no metrics in the strict sense, only an order.
    """

    EUCLIDEAN = 0
    SQEUCLIDEAN = 1
    COSINE = 2
    INNER_PRODUCT = 3
    MANHATTAN = 4
    CHEBYSHEV = 5
    HAMMING = 6


BY_PRODUCTS = (Metric.EUCLIDEAN, Metric.SQEUCLIDEAN, Metric.COSINE, Metric.INNER_PRODUCT)
"""Metrics whose distances are bounded by inner products: for the others every pair is measured."""


@kernel
def scan_pairs(
    products: Array,
    near_i: Array,
    near_j: Array,
    *,
    bounds_i: Array,
    places_i: Int32,
    bounds_j: Array,
    places_j: Int32,
    first_i: int,
    first_j: int,
    diagonal: int,
) -> None:
    """Insert pairs of a tile into the shortlists of its rows and of its columns, in place.

    Parameters
    ----------
    products : (p, q) float32 or float64
        Inner products of p rows with q others.
    near_i, near_j : (p,) and (q,) of that type
        Terms that turn a product into a lower bound of the distance, in halves:
        ``near_i[i] + near_j[j] - products[i, j]``.
    bounds_i, places_i : (p, c) of that type and int32
        Shortlists of the rows; a place is ``first_j + j``. Written.
    bounds_j, places_j : (q, c') of these types
        Shortlists of the columns; a place is ``first_i + i``. Written. Bounds of -inf accept nothing.
    first_i, first_j : int
        Positions of the first row and of the first column in their panels.
    diagonal : int
        Only pairs with ``j >= i + diagonal``, as ``numpy.triu`` counts; ``-p`` for all.

    Notes
    -----
    One addition, two comparisons and no store a pair, read once from cache; log2 c exchanges for one that is
    taken. A bound that is not a number is never taken: the caller keeps norms in range.
    """
    for i in range(len(products)):
        for j in range(max(0, i + diagonal), products.shape[1]):
            bound = near_i[i] + near_j[j] - products[i, j]
            if bound < bounds_i[i, 0]:
                _replace(bounds_i[i], places_i[i], bound, first_j + j)
            if bound < bounds_j[j, 0]:
                _replace(bounds_j[j], places_j[j], bound, first_i + i)


@kernel
def refine_rows(
    x: Array,
    y: Array,
    scale_x: Float64,
    scale_y: Float64,
    *,
    metric: int,
    first: int,
    bounds: Array,
    places: Int32,
    keys: Float64,
    ids: Int64,
) -> npt.NDArray[np.bool_]:
    """Measure the candidates of shortlists and merge them into lists, in place.

    Parameters
    ----------
    x, y : (r, d) and (s, d) float32, float64 or uint8, of one type
        Rows as they are stored: neither centered nor rounded.
    scale_x, scale_y : (r,) and (s,)
        Reciprocals of norms, 0 for rows of zeros; read under ``COSINE`` alone.
    metric : one of ``BY_PRODUCTS``
    first : int
        Id of the first row of ``y``: a place is an index of ``y``.
    bounds, places : (r, c)
        Shortlists. Left in any order.
    keys, ids : (r, k)
        Lists; a pair that a list has already is not taken twice. Written.

    Returns
    -------
    (r,) bool
        True if it is certain that no pair which the shortlist of a row dropped belongs into its list: the
        largest bound is above the half of the key in column 0, or nothing was dropped.

    Notes
    -----
    At most r c distances of 3 d flops each. Candidates are taken by increasing bound, and measured until
    bounds exceed the half of the farthest in the list.
    """
    certain = np.ones(len(x), np.bool_)
    for i in range(len(x)):
        for slot in np.argsort(bounds[i], kind="stable"):
            place = int(places[i, slot])
            if place >= 0 and bounds[i, slot] <= half(keys[i, 0], metric):
                key = distance(x[i], y[place], scale_x[i], scale_y[place], metric=metric)
                _take(keys[i], ids[i], key, first + place)
        largest = bounds[i, 0]
        certain[i] = largest == np.inf or largest > half(keys[i, 0], metric)
    return certain


@kernel
def exhaust_rows(
    products: Float64,
    near_i: Float64,
    near_j: Float64,
    x: Array,
    y: Array,
    scale_x: Float64,
    scale_y: Float64,
    *,
    metric: int,
    own: Int64,
    first: int,
    keys: Float64,
    ids: Int64,
) -> None:
    """Measure all pairs that their bounds do not rule out, and merge them into lists, in place.

    Parameters
    ----------
    products : (r, s) float64
        Products of rows whose shortlist was too short, with all rows of a panel.
    near_i, near_j : (r,), (s,)
        As for ``scan_pairs``.
    x, y, scale_x, scale_y, metric, first, keys, ids
        As for ``refine_rows``.
    own : (r,) int64
        Ids of the rows themselves, which are never taken; -1 for rows that are not in ``y``.

    Notes
    -----
    Where very many rows are equal, a list that is full of zeros accepts no larger id: such pairs are not
    measured.
    """
    for i in range(len(x)):
        for j in range(len(y)):
            bound, root = near_i[i] + near_j[j] - products[i, j], keys[i, 0]
            no_gain = root == 0 and metric != Metric.INNER_PRODUCT and first + j > ids[i, 0]
            if first + j == own[i] or bound > half(root, metric) or no_gain:
                continue
            key = distance(x[i], y[j], scale_x[i], scale_y[j], metric=metric)
            _take(keys[i], ids[i], key, first + j)


@kernel
def measure_near(
    products: Array,
    near_i: Array,
    near_j: Array,
    z_i: Array,
    z_j: Array,
    x: Array,
    y: Array,
    scale_x: Float64,
    scale_y: Float64,
    *,
    leading: int,
    metric: int,
    keys_i: Float64,
    ids_i: Int64,
    keys_j: Float64,
    ids_j: Int64,
    first_i: int,
    first_j: int,
    diagonal: int,
) -> int:
    """Measure the pairs of a tile that bounds do not rule out, and merge them into both lists, in place.

    Parameters
    ----------
    products : (p, q) float32
        Products of p projected rows with q others, in their first ``leading`` columns: upper bounds of inner
        products, but for the roundings that ``near_i`` and ``near_j`` allow for.
    near_i, near_j : (p,), (q,) float32
        As for ``scan_pairs``.
    z_i, z_j : (p, c), (q, c) float32
        The projected rows. If c is more than ``leading``, all of their columns but that before
        ``leading`` have a product that bounds more closely.
    x, y : (p, d) and (q, d) float32, float64 or uint8, of one type
        Rows as they are stored.
    scale_x, scale_y, metric
        As for ``refine_rows``.
    keys_i, ids_i : (p, k)
        Lists of the rows, which take ids ``first_j + j``; a pair that a list has is not taken twice. Written.
    keys_j, ids_j : (q, k')
        Lists of the columns, which take ids ``first_i + i``. Written. Keys of -inf accept nothing.
    diagonal : int
        As for ``scan_pairs``.

    Returns
    -------
    int
        Number of pairs that were measured.

    Notes
    -----
    One addition and two comparisons a pair, and 3 d flops for one that is measured. Limits fall as pairs are
    taken: how many are measured depends on the order, what the lists hold does not.
    """
    measured = 0
    for i in range(len(x)):
        for j in range(max(0, i + diagonal), len(y)):
            bound = near_i[i] + near_j[j] - products[i, j]
            far = max(half(root, metric) if root > -np.inf else root for root in (keys_i[i, 0], keys_j[j, 0]))
            closer = bound + z_i[i, leading - 1] * z_j[j, leading - 1] - z_i[i, leading:] @ z_j[j, leading:]
            if bound <= far and (z_i.shape[1] == leading or closer <= far):
                key = distance(x[i], y[j], scale_x[i], scale_y[j], metric=metric)
                _take(keys_i[i], ids_i[i], key, first_j + j)
                _take(keys_j[j], ids_j[j], key, first_i + i)
                measured += 1
    return measured


@kernel
def measure_pairs(
    x: Float64,
    y: Float64,
    *,
    metric: int,
    keys_i: Float64,
    ids_i: Int64,
    keys_j: Float64,
    ids_j: Int64,
    first_i: int,
    first_j: int,
    diagonal: int,
) -> None:
    """Measure all pairs of a tile and merge them into the lists of its rows and of its columns, in place.

    Parameters
    ----------
    x, y : (p, d), (q, d) float64
    metric : EUCLIDEAN, SQEUCLIDEAN, MANHATTAN, CHEBYSHEV or HAMMING
    keys_i, ids_i : (p, k)
        Lists of the rows, which take ids ``first_j + j``. Written.
    keys_j, ids_j : (q, k')
        Lists of the columns, which take ids ``first_i + i``. Written. Keys of -inf accept nothing.
    diagonal : int
        As for ``scan_pairs``.

    Notes
    -----
    Work 3 p q d flops, vectors across columns: the sum of a pair runs over its elements in order, and not in
    ``LANES`` parts. Below some 16 elements this is faster than a product and its bounds.
    """
    for i in range(len(x)):
        for j in range(max(0, i + diagonal), len(y)):
            key = in_order(x[i], y[j], metric)
            _take(keys_i[i], ids_i[i], key, first_j + j)
            _take(keys_j[j], ids_j[j], key, first_i + i)


@kernel
def compare_pairs(
    x: Float64,
    y: Float64,
    *,
    function: Callable[[Float64, Float64], float],
    keys_i: Float64,
    ids_i: Int64,
    keys_j: Float64,
    ids_j: Int64,
    first_i: int,
    first_j: int,
    diagonal: int,
) -> None:
    """Evaluate a symmetric function for all pairs of a tile, and merge the pairs into lists, in place.

    Parameters are those of ``measure_pairs``. Numba compiles the function where lists are NumPy arrays.
    Raises ``ValueError`` if it returns NaN.
    """
    for i in range(len(x)):
        for j in range(max(0, i + diagonal), len(y)):
            key = float(function(x[i], y[j]))
            if np.isnan(key):
                raise ValueError(no_number(first_i + i, first_j + j))
            _take(keys_i[i], ids_i[i], key, first_j + j)
            _take(keys_j[j], ids_j[j], key, first_i + i)


@kernel
def merge_lists(keys: Float64, ids: Int64, *, other_keys: Float64, other_ids: Int64) -> None:
    """Merge other lists (r, k') of the same rows into lists (r, k), in place; the others in any order.

    Commutative, associative and idempotent in what the lists hold.
    """
    for i in range(len(keys)):
        for key, name in zip(other_keys[i], other_ids[i], strict=True):
            if name != EMPTY:
                _take(keys[i], ids[i], float(key), int(name))


@kernel
def merge_rows(keys: Float64, ids: Int64, rows: Int64, *, other_keys: Float64, other_ids: Int64) -> None:
    """Merge other lists (q, k') into the lists (r, k) of some rows, in place: each keeps its k nearest.

    List i of the others belongs to row ``rows[i]``, which may occur several times. An id is kept once.
    """
    for i, row in enumerate(rows.tolist()):
        for key, name in zip(other_keys[i], other_ids[i], strict=True):
            if name != EMPTY:
                _take(keys[row], ids[row], float(key), int(name))


@kernel
def sort_lists(keys: Float64, ids: Int64) -> None:
    """Sort each list by (key, id), nearest first, in place. With its columns reversed it is a heap again."""
    order = np.lexsort((ids, keys), axis=1)
    keys[...] = np.take_along_axis(keys, order, axis=1)
    ids[...] = np.take_along_axis(ids, order, axis=1)


def no_number(i: int, j: int) -> str:
    """Message about a metric that gives NaN for two rows."""
    return f"the metric gives NaN for rows {i} and {j} (from 0), which are then neither near nor far"


def half(key: Any, metric: int) -> Any:
    """Largest lower bound, in halves, that a pair of that key can have; for one key or many."""
    if metric == Metric.EUCLIDEAN:
        return key * key / 2 * (1 + SLACK)
    if metric == Metric.SQEUCLIDEAN:
        return key / 2 * (1 + SLACK)
    return key + abs(key) * SLACK


def distance(x: Array, y: Array, scale_x: float, scale_y: float, *, metric: int) -> float:
    """Key (distance) of two rows under one of ``BY_PRODUCTS``, by a fixed sum: the same from either side."""
    a, b = x.astype(np.float64), y.astype(np.float64)
    if metric == Metric.INNER_PRODUCT:
        return -_lanes(a * b)
    if metric == Metric.COSINE:
        if scale_x == 0 or scale_y == 0:
            return 1.0
        apart = a * scale_x - b * scale_y
        return _lanes(apart * apart) / 2
    apart = a - b
    square = _lanes(apart * apart)
    return float(np.sqrt(square)) if metric == Metric.EUCLIDEAN else square


def _lanes(terms: Float64) -> float:
    """Sum of terms in the order that every body follows: ``LANES`` partial sums, added pairwise."""
    sums = np.zeros(LANES)
    for start in range(0, len(terms), LANES):
        part = terms[start : start + LANES]
        sums[: len(part)] += part
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    return float(sums[0])


def in_order(x: Float64, y: Float64, metric: int) -> float:
    """Key (distance) of two rows by a sum in order: for short rows, and metrics not in ``BY_PRODUCTS``."""
    if metric == Metric.HAMMING:
        return int((x != y).sum()) / len(x)
    apart = np.abs(x - y)
    if metric == Metric.CHEBYSHEV:
        return float(apart.max(initial=0.0))
    terms = apart if metric == Metric.MANHATTAN else apart * apart
    total = float(np.cumsum(terms)[-1]) if len(terms) else 0.0
    return float(np.sqrt(total)) if metric == Metric.EUCLIDEAN else total


def _take(keys: Float64, ids: Int64, key: float, name: int) -> None:
    """Insert a pair (key, id) into a list if it is nearer than the farthest there and not in it."""
    if (key, name) < (keys[0], ids[0]) and name not in ids:
        _replace(keys, ids, key, name)


def _replace(values: Array, names: Array, value: float, name: int) -> None:
    """Replace the largest pair of a heap, and sort its pairs with the largest in front, which is a heap."""
    values[0], names[0] = value, name
    order = np.lexsort((names, values))[::-1]
    values[:], names[:] = values[order], names[order]
