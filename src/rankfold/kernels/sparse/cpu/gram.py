"""Columns with columns, dense ones by BLAS and others by output row. See ``kernels/sparse/gram.py``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas

from rankfold.kernels._compiled import compile_loop, compile_with_contraction
from rankfold.kernels._dispatch import aligned_empty, plain, write_back
from rankfold.kernels.sparse.cpu._order import Index, begin_columns, positions
from rankfold.kernels.sparse.products import add_columns, check_arrays, order_columns
from rankfold.kernels.sparse.slabs import SLAB_BYTES, cut_block

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

FILLS = (0.01, 0.02, 0.04, 0.08, 0.12, 0.2, 0.35)
"""Candidate thresholds: columns whose nonzeros are at least this share of the number of rows are made dense.
All columns, and none, are choices too."""
BLAS_NS, FILL_NS, GATHER_NS, PAIR_NS, SPLIT_NS = 0.05, 2.0, 0.3, 1.8, 15.0
"""Nanoseconds of a product in BLAS, of an entry of a dense column, of a product of a nonzero with such an
entry, of a product of two nonzeros, and of splitting off a nonzero that is not dense: measured on one core,
used only for the choice."""
DENSE_NUMBERS, LEAST_ROWS = 2**22, 512
"""Largest number of entries of dense columns at a time, few enough for scratch; least rows at a time, enough
for BLAS."""
SLAB = SLAB_BYTES // 8


class _Rest(NamedTuple):
    """Rows without the columns that are made dense, in the layout of CSR."""

    indptr: Int64
    indices: Array
    values: Float64


@compile_loop
def _count_pairs(indptr: Int64, indices: Array, classes: npt.NDArray[np.uint8], pairs: Int64) -> None:
    """Add to ``pairs[c]`` the number of pairs of nonzeros of one row, both in columns of classes up to c.

    ``classes`` has the class of each column; a nonzero makes a pair with itself too.
    """
    counts = np.zeros(len(pairs), np.int64)
    for i in range(len(indptr) - 1):
        counts[:] = 0
        for p in range(indptr[i], indptr[i + 1]):
            counts[classes[Index(indices[p])]] += 1
        some = 0
        for c in range(len(pairs)):
            some += counts[c]
            pairs[c] += some * (some + 1) // 2


@compile_loop
def _split(
    indptr: Int64,
    indices: Array,
    data: Array,
    places: Int64,
    dense: Float64,
    rest_indptr: Int64,
    rest_indices: Array,
    rest: Float64,
) -> bool:
    """Split rows into some columns as a dense matrix, and the rest as CSR arrays; both are written.

    Column j goes to column ``places[j]`` of ``dense``, (rows, h), whose entries are added to, or to the rest
    if that is -1. Returns True if columns do not decrease within the rows of the rest.
    """
    ordered, count = True, 0
    rest_indptr[0] = 0
    for i in range(len(indptr) - 1):
        last = np.int64(-1)
        for p in range(indptr[i], indptr[i + 1]):
            j = np.int64(indices[p])
            place = places[Index(j)]
            if place >= 0:
                dense[i, Index(place)] += data[p]
            else:
                rest_indices[count], rest[count] = j, data[p]
                if j < last:
                    ordered = False
                last = j
                count += 1
        rest_indptr[i + 1] = count
    return ordered


@compile_loop
def _order_rows(
    pointers: Int64,
    rows: Int64,
    places: Int64,
    ordered: Float64,
    indptr: Int64,
    indices: Array,
    values: Float64,
) -> None:
    """Write CSR arrays ``indices`` and ``values`` whose rows are sorted by column, from the order by columns.

    By columns, nonzero t is in row ``rows[t]`` with value ``ordered[t]``; ``places[t]`` becomes its position
    in the CSR arrays.
    """
    free = indptr.copy()
    for j in range(len(pointers) - 1):
        for t in range(pointers[j], pointers[j + 1]):
            place = free[rows[t]]
            indices[place], values[place], places[t] = j, ordered[t], place
            free[rows[t]] = place + 1


@compile_with_contraction
def _add_pairs(
    pointers: Int64,
    rows: Int64,
    places: Int64,
    indptr: Int64,
    indices: Array,
    values: Float64,
    scatter: Float64,
) -> None:
    # A row of the result stays in cache while its column is walked; of each row of the panel, in order, only
    # what follows the nonzero is visited.
    for j in range(len(pointers) - 1):
        for t in range(pointers[j], pointers[j + 1]):
            p, stop = places[t], indptr[Index(rows[t]) + Index(1)]
            value = values[Index(p)]
            scatter[j, j] += value * value
            p += 1
            while p < stop and indices[Index(p)] == j:  # the same place again: either order
                scatter[j, j] += 2 * value * values[Index(p)]
                p += 1
            for r in range(Index(p), Index(stop)):
                scatter[Index(j), Index(indices[r])] += value * values[r]


@compile_loop
def _spread(products: Float64, first: Int64, second: Int64, scatter: Float64, square: bool) -> None:
    """Add ``products`` of columns ``first`` with columns ``second`` to their places in ``scatter``.

    If ``square``, both are the same columns, and only the upper triangle of ``products`` is read.
    """
    for a in range(len(first)):
        i = first[a]
        for b in range(a if square else 0, len(second)):
            j = second[b]
            scatter[Index(min(i, j)), Index(max(i, j))] += products[a, b]


def add_gram(indptr: Array, indices: Array, data: Array, *, scatter: Float64) -> None:
    """See the contract. ``scatter += A.T @ A`` on and above the diagonal."""
    check_arrays(indptr, indices, data)
    starts, columns, values = positions(indptr), plain(indices), plain(data)
    pointers = np.empty(len(scatter) + 1, np.int64)
    begin_columns(starts, columns, pointers)
    counts = np.diff(pointers[1:], append=starts[-1] - starts[0])
    dense = _dense_columns(starts, columns, counts)
    into, rows = np.ascontiguousarray(scatter), len(starts) - 1 if len(scatter) else 0
    step = max(LEAST_ROWS, DENSE_NUMBERS // len(dense)) if len(dense) else rows
    for first in range(0, rows, step):
        _add_piece(starts[first : first + step + 1], columns, values, dense, into)
    write_back(into, scatter)


def _dense_columns(indptr: Int64, indices: Array, counts: Int64) -> Int64:
    """Numbers of the columns that are made dense, for the least estimated time.

    ``counts`` has the number of nonzeros of each column.
    """
    rows = len(indptr) - 1
    classes = np.searchsorted(np.array(FILLS) * rows, counts, side="right").astype(np.uint8)
    pairs = np.zeros(len(FILLS) + 1, np.int64)
    _count_pairs(indptr, indices, classes, pairs)
    best, least = -1, _seconds(rows, len(counts), 0, 0)  # all columns, those of class 0 too
    for c in range(len(pairs)):
        sparse = classes <= c
        seconds = _seconds(rows, int((~sparse).sum()), int(counts[sparse].sum()), int(pairs[c]))
        if seconds < least:
            best, least = c, seconds
    return np.flatnonzero(classes > best) if best >= 0 else np.arange(len(counts))


def _seconds(rows: int, dense: int, nonzeros: int, pairs: int) -> float:
    """Estimated seconds of a number ``dense`` of columns by BLAS, and of the others without BLAS.

    The others have ``nonzeros`` nonzeros, with ``pairs`` pairs within rows.
    """
    blas_ns = rows * dense * (BLAS_NS * (dense + 1) / 2 + FILL_NS)
    return 1e-9 * (blas_ns + nonzeros * (GATHER_NS * dense + SPLIT_NS * (nonzeros > 0)) + PAIR_NS * pairs)


def _add_piece(indptr: Int64, indices: Array, data: Array, dense: Int64, scatter: Float64) -> None:
    rows, n, h = len(indptr) - 1, len(scatter), len(dense)
    places = np.full(n, -1, np.int64)
    places[dense] = np.arange(h)
    block = np.zeros((rows, h))
    most = int(indptr[-1] - indptr[0]) if h < n else 0
    rest = _Rest(np.empty(rows + 1, np.int64), np.empty(most, indices.dtype), np.empty(most))
    ordered = _split(indptr, indices, data, places, block, *rest)
    if h == n:
        # The upper triangle in C order is the lower one in Fortran's.
        blas.dsyrk(1.0, block.T, beta=1.0, c=scatter.T, overwrite_c=1, lower=1)
        return
    if h:
        square = blas.dsyrk(1.0, block.T, lower=1).T
        _spread(square, dense, dense, scatter, True)
    _add_rest(rest, ordered, block, dense, scatter)


def _add_rest(rest: _Rest, ordered: bool, block: Float64, dense: Int64, scatter: Float64) -> None:
    """Add to ``scatter`` products of the columns in ``rest`` with each other, and with the dense ones.

    ``block``, (rows, h), has the dense columns, whose numbers are ``dense``; ``ordered`` is the result of
    ``_split``.
    """
    count = int(rest.indptr[-1])
    pointers, rows = np.empty(len(scatter) + 1, np.int64), np.empty(count, np.int64)
    places = np.empty(count, np.int64)
    order_columns(rest.indptr, rest.indices, np.arange(count), pointers=pointers, rows=rows, values=places)
    values = rest.values[places]
    if not ordered:
        _order_rows(pointers, rows, places, values, *rest)
    _add_pairs(pointers, rows, places, *rest, scatter)
    _add_cross(pointers, rows, values, block, dense, scatter)


def _add_cross(
    pointers: Int64, rows: Array, values: Float64, block: Float64, dense: Int64, scatter: Float64
) -> None:
    """Add to ``scatter`` products of dense columns with the others, a slab of dense columns at a time.

    ``pointers``, ``rows`` and ``values`` have the other columns, as ``order_columns`` writes them; ``block``,
    (rows, h), has the dense ones, whose numbers are ``dense``.
    """
    columns = np.flatnonzero(np.diff(pointers))
    # Columns between those with nonzeros are empty: so these pointers are as good as those of a slice.
    some = np.append(pointers[columns], pointers[-1])
    cross, slab = (aligned_empty((1, count, SLAB), np.float64) for count in (len(columns), len(block)))
    for first in range(0, len(dense), SLAB):
        # A copy, since rows of the block are in as many pages as there are rows.
        cut_block(block[:, first : first + SLAB], slabs=slab)
        cross[:] = 0
        add_columns(some, rows, values, slab[0], z=cross[0])
        _spread(cross[0], columns, dense[first : first + SLAB], scatter, False)
