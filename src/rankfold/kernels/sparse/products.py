"""Both products of a sparse matrix with a block: by rows, and by the columns of a panel of rows.

``multiply_rows`` gathers rows of Q, ``add_columns`` gathers rows of Y, so that every row of a result is one
sum that is made in one place, in an order that its own nonzeros fix. Ranges of rows, or of columns, may
then be handed to any number of threads without changing bits. ``scatter_rows`` has neither property, and
needs no other order of the nonzeros: it is for one thread that has a panel and a Z of its own.

The trap is ``indptr``: its numbers are positions in ``indices`` and ``data`` as these are passed. A range of
rows is a slice of ``indptr`` together with the whole of the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

PIECE = 512
"""Nonzeros of a column that are summed in the type of Y before they join the sum in float64."""

NARROW = 32
"""Largest number of columns of a block for which ``scatter_rows`` is faster than ``order_columns`` and
``add_columns``."""


@kernel
def multiply_rows(indptr: Array, indices: Array, data: Array, q: Array, *, y: Array) -> None:
    """``y = A @ q`` for a range of sparse rows.

    Parameters
    ----------
    indptr : (r + 1,) int32 or int64
        Row ``i`` has the nonzeros ``indptr[i] .. indptr[i + 1] - 1``: absolute positions in the next two,
        which may have more on either side.
    indices : int32 or int64
        Columns, in any order and perhaps repeated. Not checked here, and a wrong one reads elsewhere in
        memory: ``order_columns`` checks.
    data : float32 or float64
    q : (n, b) float32 or float64
        Rows are contiguous, perhaps with gaps between them, as in part of a wider block; other layouts are
        copied.
    y : (r, b) of the type of ``q``, written
        Rows are contiguous, perhaps with gaps between them.

    Notes
    -----
    Work 2 b flops a nonzero; no scratch. Sums are made in the type of ``q``: float32 values widen under
    float64, float64 values are rounded under float32. A row has several partial sums, which are joined in the
    end, so that the error of a row of t nonzeros is below t eps of the sum of magnitudes.

    A block is computed in slabs of 256 bytes of a row, and the nonzeros are read once for each; the rest of
    the width is computed in powers of two. Each width compiles a loop when first used. Blocks of many
    products are better kept in slabs by the caller, one call for each: see ``slabs.py``. Bits depend on the
    width of the block, and not on the range of rows.

    References
    ----------
    Yang, Buluc, Owens, Design principles for sparse matrix multiplication on the GPU, Euro-Par 2018: one sum
    a row, and rows of the dense factor read whole. Vector registers stand for the lanes of a warp.
    """
    begin, end = int(indptr[0]), int(indptr[-1])
    rows = np.repeat(np.arange(len(y)), np.diff(indptr))
    y[...] = 0
    np.add.at(y, rows, data[begin:end, None].astype(q.dtype) * q[indices[begin:end]])


@kernel
def are_in_order(indptr: Array, indices: Array) -> bool:
    """True if the indices of every row increase, so that none occurs twice.

    Parameters
    ----------
    indptr : (r + 1,) int32 or int64
        As for ``multiply_rows``, and not checked.
    indices : int32 or int64

    Notes
    -----
    One read of the indices, up to the first that is out of order; no scratch (the reference body: 9 bytes an
    index).
    """
    begin, end = int(indptr[0]), int(indptr[-1])
    increases = np.diff(indices[begin:end], prepend=-1) > 0
    starts = indptr[:-1][np.diff(indptr) > 0] - begin
    increases[starts] = True
    return bool(increases.all())


@kernel
def order_columns(
    indptr: Array, indices: Array, data: Array, *, pointers: Int64, rows: Array, values: Array
) -> None:
    """Sort the nonzeros of a range of rows by column (CSR to CSC), and check pointers and indices.

    Parameters
    ----------
    indptr, indices : as for ``multiply_rows``
    data : of any type
        One entry for each nonzero: its value, or the position of its value.
    pointers : (n + 1,) int64, written
        Column ``j`` has the nonzeros ``pointers[j] .. pointers[j + 1] - 1`` of the next two.
    rows : (nnz or more,) int32 or int64, written
        Rows of the nonzeros of each column, increasing, 0 for the first of the range; repeated where a row
        has a column twice.
    values : (nnz or more,) of the type of ``data``, written

    Raises
    ------
    ValueError
        A pointer is below the one before it or outside the arrays, an index is not in ``0 .. n - 1``, or the
        result does not fit. The message gives the position of the first such index.

    Notes
    -----
    A sort by counting: reads indices twice and data once, and writes as much, at some 8 ns a nonzero, as
    random places are written; 2 n more for the pointers. No scratch (the reference body: 24 bytes a nonzero).

    References
    ----------
    Gustavson, Two fast algorithms for sparse matrices: multiplication and permuted transposition, ACM
    Transactions on Mathematical Software 4(3), 1978: the transposition, without the permutation.
    """
    check_room(indptr, indices, data, pointers=pointers, rows=rows, values=values)
    check_rows(indptr, indices, data, len(pointers) - 1)
    begin, end = int(indptr[0]), int(indptr[-1])
    part = indices[begin:end]
    order = np.argsort(part, kind="stable")
    pointers[0] = 0
    np.cumsum(np.bincount(part, minlength=len(pointers) - 1), out=pointers[1:])
    rows[: end - begin] = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))[order]
    values[: end - begin] = data[begin:end][order]


@kernel
def add_columns(pointers: Array, rows: Array, values: Array, y: Array, *, z: Float64) -> None:
    """``z += A.T @ y`` for a range of columns, from the order that ``order_columns`` makes.

    Parameters
    ----------
    pointers : (c + 1,) int32 or int64
        Pointers of the columns in the range: a slice of those of all columns, absolute as ``indptr`` is.
    rows : int32 or int64
        Rows of ``y``; not checked.
    values : float32 or float64
    y : (r, b) float32 or float64
        As ``q`` of ``multiply_rows``.
    z : (c, b) float64, added to
        Rows for the columns in the range. They are contiguous, perhaps with gaps between them.

    Notes
    -----
    Work and memory as of ``multiply_rows``, and 16 b bytes for each column that has nonzeros; no scratch.
    ``PIECE`` nonzeros at a time are summed in the type of ``y``, pieces are added in float64 and in order: a
    column of t nonzeros is within min(t, 512) eps of the sum of magnitudes, and a column without nonzeros is
    neither read nor written. Bits depend on the width of the block, and not on the range of columns.
    """
    for j in range(len(z)):
        for start in range(int(pointers[j]), int(pointers[j + 1]), PIECE):
            piece = slice(start, min(start + PIECE, int(pointers[j + 1])))
            z[j] += values[piece].astype(y.dtype) @ y[rows[piece]]


@kernel
def scatter_rows(indptr: Array, indices: Array, data: Array, y: Array, *, z: Float64) -> None:
    """``z += A.T @ y`` for a range of sparse rows; no other thread may add to ``z`` meanwhile.

    Parameters
    ----------
    indptr, indices, data : as for ``multiply_rows``
        Indices are not checked.
    y : (r, b) float32 or float64
        As ``q`` of ``multiply_rows``.
    z : (n, b) float64, added to
        Rows are contiguous, perhaps with gaps between them.

    Notes
    -----
    Work 2 b flops a nonzero, in float64; no scratch, and no order of columns. A row of ``z`` is read and
    written for every nonzero: for up to ``NARROW`` columns that takes less time than ``order_columns``, for
    more ``add_columns`` is faster. Numbers are added in the order of the rows: bits depend on it alone.
    """
    for i in range(len(indptr) - 1):
        nonzeros = slice(int(indptr[i]), int(indptr[i + 1]))
        values = data[nonzeros].astype(np.float64)
        np.add.at(z, indices[nonzeros], values[:, None] * y[i].astype(np.float64))


def column_order(indptr: Array, indices: Array, data: Array, columns: int) -> tuple[Int64, Array, Array]:
    """Sort nonzeros by column as ``order_columns``, into new arrays.

    Returns pointers, rows (int32 where they fit) and values.
    """
    nonzeros = max(0, int(indptr[-1]) - int(indptr[0]))
    pointers = np.empty(columns + 1, np.int64)
    rows = np.empty(nonzeros, np.int32 if len(indptr) <= 2**31 else np.int64)
    values = np.empty(nonzeros, data.dtype)
    order_columns(indptr, indices, data, pointers=pointers, rows=rows, values=values)
    return pointers, rows, values


def check_arrays(indptr: Array, indices: Array, data: Array) -> None:
    """Raise ``ValueError`` if pointers are outside the arrays."""
    begin, end = int(indptr[0]), int(indptr[-1])
    if begin < 0 or end > min(len(indices), len(data)):
        raise ValueError(
            f"rows begin at nonzero {begin} and end at {end}, and there are {len(indices)} indices and "
            f"{len(data)} values: the pointers are not those of these arrays"
        )


def check_room(
    indptr: Array, indices: Array, data: Array, *, pointers: Array, rows: Array, values: Array
) -> None:
    """Raise ``ValueError`` as ``check_arrays``, or if the arrays to be written are too short or too narrow.

    They are too narrow if the type of ``rows`` does not hold the numbers of all rows.
    """
    check_arrays(indptr, indices, data)
    count, nonzeros = len(indptr) - 1, int(indptr[-1]) - int(indptr[0])
    if min(len(rows), len(values)) < nonzeros or len(pointers) < 1:
        raise ValueError(f"{nonzeros} nonzeros do not fit into {len(rows)} rows and {len(values)} values")
    if count - 1 > np.iinfo(rows.dtype).max:
        raise ValueError(f"{count} rows have numbers that {rows.dtype} does not hold: take fewer at a time")


def check_rows(indptr: Array, indices: Array, data: Array, columns: int) -> None:
    """Raise ``ValueError`` as ``check_arrays``, if a row ends before it begins, or an index is no column."""
    check_arrays(indptr, indices, data)
    falls = np.flatnonzero(np.diff(indptr) < 0)
    if falls.size:
        raise ValueError(wrong_pointer(indptr, int(falls[0])))
    begin = int(indptr[0])
    part = indices[begin : int(indptr[-1])]
    wrong = np.flatnonzero((part < 0) | (part >= columns))
    if wrong.size:
        raise ValueError(wrong_index(indptr, indices, begin + int(wrong[0]), columns))


def wrong_pointer(indptr: Array, row: int) -> str:
    """Message about a row that ends before it begins."""
    return f"row {row} (from 0) would have the nonzeros from {indptr[row]} to before {indptr[row + 1]}"


def wrong_index(indptr: Array, indices: Array, position: int, columns: int) -> str:
    """Message about an index that is no column."""
    row = int(np.searchsorted(indptr, position, side="right")) - 1
    return (
        f"index {indices[position]} at position {position}, in row {row} (from 0), is no column: there are "
        f"{columns}, from 0 to {columns - 1}"
    )
