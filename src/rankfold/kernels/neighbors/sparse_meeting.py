"""Compare two blocks of sparse rows: exact nearest neighbors of either block in the other.

Products choose candidates, as those of dense rows do. A candidate is measured by norms and the product of the
entries that both rows have: the sum of squared differences, by which dense rows are measured, would read all
entries of both. Norms and product are in twice the precision, so that nothing is lost where they cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.neighbors.lists import Metric, _take, distance
from rankfold.kernels.neighbors.meeting import Lists

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

TILE = (256, 2048)
"""Largest number of rows of either side in one product: of those held as CSR, and of those sorted by
column."""

NEAR = 2.0**-10
"""Share of the sum of both squared norms: a squared distance up to it is summed from differences. Above it
norms less twice the product leave all digits: for t entries in two rows they are wrong by (t eps)^2 of the
norms."""

SPLITTER = 2.0**27 + 1

MOST_COMMON = 1024
"""Largest number of columns of the dense block, which is scratch."""


@dataclass(slots=True)
class SparseRows:
    """Some rows of a sparse matrix in memory (CSR), with columns that increase."""

    first: int
    """Number of the first of these rows in the matrix."""

    columns: int
    indptr: Int64
    """(rows + 1,) positions in the next two."""

    indices: Array
    """Columns, int32 or int64, checked."""

    data: Array
    """Values as stored: float32, float64 or uint8."""

    norms: Float64
    """(rows,) squared norms of rows as multiplied: ones under cosine."""

    scale: Float64
    """(rows,) reciprocal norms for cosine, else ones."""

    squares: Float64
    """(rows, 2) squared norms in twice the precision, of scaled rows: see ``square_rows``."""

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def part(self, start: int, stop: int) -> SparseRows:
        """Rows ``start:stop`` of these."""
        some, pointers = slice(start, stop), self.indptr[start : stop + 1]
        arrays = self.indices, self.data, self.norms[some], self.scale[some], self.squares[some]
        return SparseRows(self.first + start, self.columns, pointers, *arrays)

    @property
    def longest(self) -> int:
        """Number of stored entries of the longest row."""
        return int(np.diff(self.indptr).max(initial=0))


@kernel
def square_rows(indptr: Array, indices: Array, data: Array, scale: Float64, *, squares: Float64) -> bool:
    """Write squared norms of scaled rows in twice the precision, and check that columns increase.

    Parameters
    ----------
    indptr, indices : CSR arrays, as for ``sparse.products.multiply_rows``
        Not checked.
    data : float32, float64 or uint8
    scale : (r,)
        Factor of the values of each row, in float64.
    squares : (r, 2) float64, written
        Squared norm, and what rounding took from it.

    Returns
    -------
    bool
        True if columns of every row increase. If not, ``squares`` is undefined.

    Notes
    -----
    Some 8 ns a nonzero; no scratch. A row of t nonzeros is within (t eps)^2 of its norm.

    References
    ----------
    Ogita, Rump, Oishi, Accurate sum and dot product, SIAM Journal on Scientific Computing 26(6), 2005: Dot2,
    with the products of Dekker, since nothing says whether a machine multiplies and adds in one step.
    """
    for i in range(len(indptr) - 1):
        stored = slice(int(indptr[i]), int(indptr[i + 1]))
        if (indices[stored][1:] <= indices[stored][:-1]).any():
            return False
        values = (data[stored].astype(np.float64) * scale[i]).tolist()
        squares[i] = _dot(values, values)
    return True


def sparse_distance(x: SparseRows, i: int, y: SparseRows, j: int, metric: int) -> float:
    """Key (distance) of row ``i`` of ``x`` and row ``j`` of ``y``, the same from either side.

    Squared distances are the norms less twice the product, all in twice the precision. Where little is left
    of norms, they are the sum of squared differences, as for dense rows; inner products always are the sum of
    dense rows.
    """
    scale_x, scale_y = float(x.scale[i]), float(y.scale[j])
    if metric == Metric.COSINE and (scale_x == 0 or scale_y == 0):
        return 1.0
    a, b = dense_row(x, i), dense_row(y, j)
    if metric == Metric.INNER_PRODUCT:
        return distance(a, b, scale_x, scale_y, metric=metric)
    both = np.flatnonzero((a != 0) & (b != 0))
    product = _dot(*((row[both].astype(np.float64) * s).tolist() for row, s in ((a, scale_x), (b, scale_y))))
    norms, rest = _add(float(x.squares[i, 0]), float(y.squares[j, 0]))
    square, more = _add(norms, -2 * product[0])
    square += (float(x.squares[i, 1] + y.squares[j, 1]) - 2 * product[1]) + (rest + more)
    if square <= NEAR * norms:
        return distance(a, b, scale_x, scale_y, metric=metric)
    if metric == Metric.COSINE:
        return square / 2
    return float(np.sqrt(square)) if metric == Metric.EUCLIDEAN else square


def dense_row(rows: SparseRows, i: int) -> Array:
    """(columns,) row ``i`` with its zeros."""
    stored, row = slice(int(rows.indptr[i]), int(rows.indptr[i + 1])), np.zeros(rows.columns, rows.data.dtype)
    row[rows.indices[stored]] = rows.data[stored]
    return row


def _dot(a: list[float], b: list[float]) -> tuple[float, float]:
    """Inner product of two rows, and what rounding took from it."""
    total, rest = 0.0, 0.0
    for one, two in zip(a, b, strict=True):
        product, lost = _multiply(one, two)
        total, more = _add(total, product)
        rest += more + lost
    return total, rest


def _add(a: float, b: float) -> tuple[float, float]:
    """A sum, and what rounding took from it."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _multiply(a: float, b: float) -> tuple[float, float]:
    """A product, and what rounding took from it."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    return product, a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _split(a: float) -> tuple[float, float]:
    """A number as the sum of two numbers of half its digits each."""
    scaled = SPLITTER * a
    high = scaled - (scaled - a)
    return high, a - high


@kernel
def meet_sparse_rows(
    x: SparseRows,
    y: SparseRows,
    *,
    common: Int64,
    lists_i: Lists,
    lists_j: Lists | None,
    metric: int,
    same: bool,
    precise: bool,
    room: Callable[..., Array],
) -> bool:
    """Compare all pairs of rows of two blocks, and insert them into the neighbor lists of both, in place.

    Parameters
    ----------
    x, y : SparseRows
        p and q rows, of one type and of the same columns; ``y`` is ``x`` where ``same``.
    common : (h,) int64
        Columns that are multiplied as a dense block, none twice, ``MOST_COMMON`` at most. The choice changes
        the time and nothing else.
    lists_i, lists_j, metric, same, precise, room
        As for ``meet_rows``.

    Returns
    -------
    bool
        True if so many rows were uncertain that the next call should be precise.

    Notes
    -----
    Work 2 p q h flops, and of the other columns those of ``add_row_products``; distances, of a few rows more
    than lists are long, at some 2 ns for each entry of both rows. Scratch: ``scratch_bytes``.

    References
    ----------
    As of ``add_row_products``; bounds as of ``bounds.py``, where a sum has no more terms than a row has
    entries, since a product with a zero is exact.
    """
    for i in range(len(x)):
        for j in range(len(y)):
            if same and i == j:
                continue
            key = sparse_distance(x, i, y, j, metric)
            _take(lists_i.keys[i], lists_i.ids[i], key, y.first + j)
            if lists_j is not None:
                _take(lists_j.keys[j], lists_j.ids[j], key, x.first + i)
    return False


def scratch_bytes(numbers: int, longest: int, columns: int, shortlist: int, rows: int) -> int:
    """Upper bound on the scratch memory of ``meet_sparse_rows``, in bytes.

    Parameters
    ----------
    numbers, rows : int
        Stored entries and rows of the larger block.
    longest : int
        Stored entries of the longest row.
    columns : int
        Columns of the matrix.
    shortlist : int
        Length of the shortlist of a row.
    """
    p, q = TILE
    common = min(MOST_COMMON, columns)
    products, blocks = 8 * p * q, 8 * (p + q) * common
    # The rest of rows that are held and of those that are in lists, and their order, in float64.
    stored = 16 * min(numbers, p * longest) + 28 * min(numbers, q * longest)
    # Both shortlists with the terms of bounds, and those of uncertain rows; pointers of lists, and places.
    shortlists = 2 * rows * (16 * shortlist + 6 * 8)
    uncertain = p * (16 * shortlist + 8 * 8) + 16 * min(numbers, p * longest)
    # Pointers of lists, places of common columns, and a row with its zeros.
    return products + blocks + stored + shortlists + uncertain + 21 * (columns + 8) + 8 * (p + q)
