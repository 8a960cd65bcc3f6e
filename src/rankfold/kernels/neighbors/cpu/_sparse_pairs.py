"""Distances of sparse rows as in ``kernels/neighbors/sparse_meeting.py``, and the lists they go into.

A row that many pairs share is opened: written with its zeros. Of the other row only entries in columns of
both are used. No multiplication is fused with an addition, which would break error-free products.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels.neighbors.cpu._distances import COSINE, EUCLIDEAN, INNER_PRODUCT, _total
from rankfold.kernels.neighbors.cpu._heaps import TOP, sift, take
from rankfold.kernels.neighbors.cpu.lists import RUN, _any_within, _candidates, _half
from rankfold.kernels.neighbors.lists import LANES
from rankfold.kernels.neighbors.sparse_meeting import NEAR, SPLITTER

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Rows = tuple[Any, ...]
"""Sparse rows: pointers, columns, values, reciprocal norms, and squared norms in twice the precision."""

Open = tuple[Any, ...]
"""A row with its zeros, scaled; for each column True if it is not zero; a buffer for positions of entries."""

Index = np.uint64

ONE, LANE = Index(1), Index(LANES - 1)


@part
def _split(a: float) -> tuple[float, float]:
    scaled = SPLITTER * a
    high = scaled - (scaled - a)
    return high, a - high


@part
def _multiply(a: float, b: float) -> tuple[float, float]:
    product = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    return product, a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


@part
def _add(a: float, b: float) -> tuple[float, float]:
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


@compile_loop
def sum_squares(indptr: Int64, indices: Array, data: Array, scale: Float64, squares: Float64) -> bool:
    """Write squared norms into ``squares``, (r, 2); returns True if columns increase: see ``square_rows``."""
    for i in range(len(scale)):
        last, total, rest = np.int64(-1), 0.0, 0.0
        for p in range(indptr[i], indptr[i + 1]):
            column = np.int64(indices[p])
            if column <= last:
                return False
            last, value = column, np.float64(data[p]) * scale[i]
            product, lost = _multiply(value, value)
            total, more = _add(total, product)
            rest += more + lost
        squares[i, 0], squares[i, 1] = total, rest
    return True


@part
def _open(x: Rows, i: int, row: Open, cosine: bool) -> None:
    """Write row ``i`` of ``x``, scaled if ``cosine``, into the buffers ``row``, which hold zeros."""
    scale = x[3][i] if cosine else 1.0
    for p in range(x[0][i], x[0][i + 1]):
        column, value = Index(x[1][p]), np.float64(x[2][p]) * scale
        row[0][column] = value
        row[1][column] = value != 0


@part
def _close(x: Rows, i: int, row: Open) -> None:
    """Zero again what ``_open`` wrote of row ``i`` of ``x`` into the buffers ``row``."""
    for p in range(x[0][i], x[0][i + 1]):
        column = Index(x[1][p])
        row[0][column], row[1][column] = 0.0, False


@part
def _distance(x: Rows, i: int, row: Open, y: Rows, j: int, metric: int, inner: Any, sums: Float64) -> float:
    """Key (distance) of row ``i`` of ``x``, which is open in ``row``, and row ``j`` of ``y``.

    ``inner`` is the result of ``inner_product``; ``sums``, (LANES,), is scratch.
    """
    scale = 1.0
    if metric == COSINE:
        scale = y[3][j]
        if x[3][i] == 0 or scale == 0:
            return 1.0
    if inner is not None:
        return -_lanes(row, y, j, sums)
    product, lost = _dot(row[0], row[1], y[1], y[2], y[0][j], y[0][j + 1], scale, row[2])
    norms, rest = _add(x[4][i, 0], y[4][j, 0])
    square, more = _add(norms, -2 * product)
    square += ((x[4][i, 1] + y[4][j, 1]) - 2 * lost) + (rest + more)
    if square <= NEAR * norms:
        square = _merge(x, i, row, y, j, scale, sums)
    if metric == COSINE:
        return square / 2
    return np.sqrt(square) if metric == EUCLIDEAN else square


@part
def _dot(
    row: Float64,
    flags: Array,
    columns: Array,
    data: Array,
    first: int,
    stop: int,
    scale: float,
    matches: Int64,
) -> tuple[float, float]:
    """Inner product of an open row and entries ``first:stop`` of another, over the columns that both have.

    It is in twice the precision, as a sum of two numbers. ``row`` and ``flags`` are the open row, ``scale``
    is the factor of the other, and ``matches`` is scratch. Arrays are passed one by one, since references to
    those in a tuple are counted at every call.
    """
    total, rest, count = 0.0, 0.0, Index(0)
    # No branch depends on a column: which few are in both rows cannot be predicted.
    for p in range(Index(first), Index(stop)):
        matches[count] = p
        count += Index(flags[Index(columns[p])])
    for t in range(count):
        q = Index(matches[t])
        product, lost = _multiply(row[Index(columns[q])], np.float64(data[q]) * scale)
        total, more = _add(total, product)
        rest += more + lost
    return total, rest


@part
def _lanes(row: Open, y: Rows, j: int, sums: Float64) -> float:
    """Inner product of an open row and row ``j`` of ``y``, added up in the order of dense rows."""
    sums[:] = 0
    for p in range(Index(y[0][j]), Index(y[0][j + 1])):
        column = Index(y[1][p])
        if row[1][column]:
            sums[column & LANE] += row[0][column] * np.float64(y[2][p])
    return _total(sums)


@part
def _merge(x: Rows, i: int, row: Open, y: Rows, j: int, scale: float, sums: Float64) -> float:
    """Sum of squared differences of row ``i`` of ``x``, open in ``row``, and row ``j`` of ``y``.

    It is that of dense rows to the last bit, since a zero adds nothing. ``scale`` is the factor of row j.
    """
    a, a_end, b, b_end = Index(x[0][i]), Index(x[0][i + 1]), Index(y[0][j]), Index(y[0][j + 1])
    sums[:] = 0
    while a < a_end or b < b_end:
        column = Index(x[1][a]) if a < a_end else ~Index(0)
        other = Index(y[1][b]) if b < b_end else ~Index(0)
        apart, least = 0.0, min(column, other)
        if column == least:
            apart = row[0][column]
            a += ONE
        if other == least:
            apart -= np.float64(y[2][b]) * scale
            b += ONE
        sums[least & LANE] += apart * apart
    return _total(sums)


@compile_loop
def refine(
    x: Rows,
    y: Rows,
    metric: int,
    inner: Any,
    first: int,
    bounds: Array,
    places: Int32,
    keys: Float64,
    ids: Int64,
    certain: npt.NDArray[np.bool_],
    row: Open,
    sums: Float64,
    heap: Float64,
    names: Int64,
) -> None:
    """Compute distances of shortlisted candidates, and merge them into ``keys`` and ``ids`` in place.

    ``certain[i]`` becomes True if no pair that the shortlist dropped can belong in list i. ``row``, ``sums``,
    ``heap`` and ``names`` are scratch. For the other arguments see ``refine_rows`` in
    ``kernels/neighbors/lists.py``.
    """
    for i in range(len(keys)):
        count = _candidates(bounds[i], places[i], _half(keys[i, 0], metric), heap, names)
        opened = count > 0
        if opened:
            _open(x, i, row, metric == COSINE)
        while count and -heap[0] <= _half(keys[i, 0], metric):
            place = names[0]
            take(keys[i], ids[i], _distance(x, i, row, y, place, metric, inner, sums), first + place)
            count -= 1
            sift(heap, names, TOP, count, heap[count], names[count])
        if opened:
            _close(x, i, row)
        largest = bounds[i, 0]
        certain[i] = largest == np.inf or largest > _half(keys[i, 0], metric)


@compile_loop
def exhaust(
    products: Float64,
    near_i: Float64,
    near_j: Float64,
    rows: Int64,
    x: Rows,
    start_j: int,
    y: Rows,
    metric: int,
    inner: Any,
    first: int,
    same: bool,
    keys: Float64,
    ids: Int64,
    row: Open,
    sums: Float64,
) -> None:
    """Measure the pairs that products in float64 do not rule out, and merge them into lists.

    Products are those of ``rows`` of ``x`` with the rows of ``y`` from ``start_j`` on; ``first`` is the id of
    the first of ``y``, and ``same`` is True if ``y`` is ``x``.
    """
    for r in range(len(rows)):
        i = rows[r]
        _open(x, i, row, metric == COSINE)
        for start in range(0, len(near_j), RUN):
            at = start_j + start
            if keys[i, 0] == 0 and metric != INNER_PRODUCT and first + at > ids[i, 0]:
                break
            stop, limit = min(start + RUN, len(near_j)), _half(keys[i, 0], metric)
            if not _any_within(products[r], near_i[i], near_j, limit, start, stop):
                continue
            for j in range(start, stop):
                bound, root, place = near_i[i] + near_j[j] - products[r, j], keys[i, 0], start_j + j
                no_gain = root == 0 and metric != INNER_PRODUCT and first + place > ids[i, 0]
                if (same and place == i) or bound > _half(root, metric) or no_gain:
                    continue
                take(keys[i], ids[i], _distance(x, i, row, y, place, metric, inner, sums), first + place)
        _close(x, i, row)
