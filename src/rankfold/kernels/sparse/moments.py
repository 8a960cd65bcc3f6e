"""Sums and sums of squares of stored values, line by line (row or column), and rows added to buckets.

Zeros that are not stored take part in neither: a line of n entries of which t are stored has n - t of them,
which the caller adds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@kernel
def add_moments(
    pointers: Array, values: Array, shift: Float64, unit: float, *, sums: Float64, squares: Float64
) -> None:
    """Add the sum and the sum of squares of ``(v - shift) * unit`` over the stored values v of every line.

    Parameters
    ----------
    pointers : (l + 1,) int32 or int64
        Line ``i`` has the values ``pointers[i] .. pointers[i + 1] - 1``: rows as they are stored, or columns
        as ``order_columns`` brings them together.
    values : float32 or float64
    shift : (l,) float64
        Subtracted from all values of a line.
    unit : float
        Factor of all differences.
    sums, squares : (l,) float64, added to

    Notes
    -----
    Values are added in order and in float64, one read of them. No scratch (the reference body: 24 bytes a
    value).
    """
    begin, end = int(pointers[0]), int(pointers[-1])
    lines = np.repeat(np.arange(len(sums)), np.diff(pointers))
    with np.errstate(over="ignore", invalid="ignore"):
        differences = (values[begin:end].astype(np.float64) - shift[lines]) * unit
        np.add.at(sums, lines, differences)
        np.add.at(squares, lines, differences * differences)


@kernel
def add_rows_to_buckets(
    indptr: Array, indices: Array, data: Array, buckets: npt.NDArray[np.int64], factors: Array, *, sums: Array
) -> None:
    """``sums[buckets[i]] += factors[i] * row i`` for every sparse row.

    Parameters
    ----------
    indptr, indices, data : as for ``multiply_rows``
        Indices are not checked.
    buckets : (r,) int64
        Row of ``sums`` that each sparse row is added to.
    factors : (r,) of the type of ``sums``
    sums : (c, n) float32 or float64, C order, added to

    Notes
    -----
    Rows are added in order. Work 2 flops a stored number, at some 2 ns each; no scratch (the reference body:
    24 bytes a stored number).

    References
    ----------
    Clarkson, Woodruff, Low-rank approximation and regression in input sparsity time, J. ACM 63(6), 2017.
    """
    begin, end = int(indptr[0]), int(indptr[-1])
    rows = np.repeat(np.arange(len(buckets)), np.diff(indptr))
    products = factors[rows] * data[begin:end].astype(sums.dtype)
    np.add.at(sums, (buckets[rows], indices[begin:end]), products)
