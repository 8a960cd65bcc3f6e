"""Compare two blocks of rows: exact nearest neighbors of either block in the other.

On the host products of tiles shortlist candidates, which are measured; see ``cpu/meeting.py``. On a device
they are found by tensor cores; see ``gpu/meeting.cu``. Lists are the same to the last bit, since distances
are measured by one sum, and decided by (distance, id).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.neighbors.lists import Metric, _take, distance

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

TILE = 896
"""Largest number of rows of either side in one product: large enough for full speed, and scanned while it is
in cache."""

PRECISE_TILE = 512
"""Largest number of rows of either side in one product in float64, for which rows are converted."""

DOUBLE_BYTES = 16 * 2**20
"""Largest number of bytes of rows that are converted to float64 together, unless ``FEWEST_DOUBLES`` rows take
more."""

FEWEST_DOUBLES = 8
"""Fewest rows that are converted together, however wide they are."""


def double_rows(columns: int, most: int = PRECISE_TILE) -> int:
    """Number of rows of either side that are in float64 at a time: fewer if they are wide.

    >>> double_rows(4096), double_rows(100_000), double_rows(10**6)
    (512, 20, 8)
    """
    return min(most, max(FEWEST_DOUBLES, DOUBLE_BYTES // (8 * columns)))


def doubles_bytes(rows: int, columns: int, k: int) -> int:
    """Bytes of rows that are converted to float64, for blocks of at most ``rows`` rows and lists of ``k``.

    These are both sides of a tile and, for uncertain rows, also their originals and their lists.
    """
    return min(double_rows(columns), rows) * (3 * 8 * columns + 4 * 8 * k)


def shortlist_length(k: int) -> int:
    """Length of the shortlist of a row for ``k`` neighbors: the longer, the surer that none is lost."""
    return k + max(8, k // 4)


NOTED = 512
"""Largest number of candidates of a row that a device has room for."""


PRODUCT_BYTES = 64 * 2**20
"""Largest number of bytes of products that a device holds at a time, unless a single row takes more."""


def meeting_bytes(rows: int, columns: int) -> int:
    """Scratch bytes of ``meet_rows`` on a device for blocks of ``rows`` rows: operands and candidates.

    For products in float64 this includes converted rows, and the products of some of them.
    """
    return 2 * rows * (8 * max(columns, 16) + 4 * NOTED + 10 * 8) + 8 * rows * products_at_once(rows, rows, 8)


def products_at_once(rows: int, others: int, itemsize: int) -> int:
    """Number of rows, of ``rows``, whose products with ``others`` rows a device holds at a time.

    ``itemsize`` is the bytes of a product.
    """
    return max(1, min(rows, PRODUCT_BYTES // max(1, itemsize * others)))


@dataclass(slots=True)
class Rows:
    """Some rows of a matrix in memory."""

    first: int
    """Number of the first of these rows in the matrix."""

    raw: Array
    copy: npt.NDArray[np.float32] | None
    """Rows as they are multiplied on the host, (rows, columns); None for metrics that products do not bound.
    Of projected rows coordinates, and lengths of what these leave, (rows, leading or more)."""

    norms: Float64
    """(rows,) squared norms of the rows that the copy is of."""

    scale: Float64
    """(rows,) reciprocal norms for cosine, else ones."""

    leading: int = 0
    """Number of the first columns of the copy that are multiplied, if rows are projected; else 0."""

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def stop(self) -> int:
        """Number of the last of these rows in the matrix, plus one."""
        return self.first + len(self.raw)

    @property
    def projected(self) -> bool:
        """True if the copy is of projected rows, whose products are upper bounds of those of rows."""
        return self.leading > 0

    def part(self, start: int, stop: int) -> Rows:
        """Rows ``start:stop`` of these."""
        copy = None if self.copy is None else self.copy[start:stop]
        some = slice(start, stop)
        return Rows(
            self.first + start, self.raw[some], copy, self.norms[some], self.scale[some], self.leading
        )


GROUPS = 64
"""Number of groups of the pairs of a row in ``limit_pairs``."""

HALVES = 8
"""Bisections of ``limit_of``: a limit is found to 1/256 of the range of values."""


@kernel
def limit_pairs(
    products: Array, near_i: Array, near_j: Array, *, bounds_i: Array, bounds_j: Array, diagonal: int
) -> None:
    """Lower the limits of empty shortlists before their first tile is scanned, in place.

    The pairs of a row in the tile fall into ``GROUPS`` groups, by column. If the least bounds of as many
    groups as a shortlist is long are not above a limit, no pair above it would stay. Rows are grouped
    likewise for the columns.

    Parameters
    ----------
    products, near_i, near_j, diagonal
        As for ``scan_pairs``, of float32 or float64.
    bounds_i, bounds_j : (p, c) and (q, c')
        Empty shortlists: all bounds of a row are the same. Lowered where it is certain that enough pairs fill
        them. They may be one array.

    Notes
    -----
    Two passes over the tile in vectors, and ``HALVES`` times ``GROUPS`` comparisons a row and column: a tenth
    of the time to fill a shortlist from pairs in any order.
    """
    limits = np.full((2, max(products.shape)), np.inf, products.dtype)
    bound = near_i[:, None] + near_j - products
    bound[~np.triu(np.ones(bound.shape, np.bool_), diagonal)] = np.inf
    for limit, lines, bounds in zip(limits, (bound, bound.T), (bounds_i, bounds_j), strict=True):
        groups, length = np.arange(lines.shape[1]) % GROUPS, bounds.shape[1]
        for place in range(len(lines) * (length <= GROUPS)):
            least = np.full(GROUPS, np.inf, products.dtype)
            np.fmin.at(least, groups, lines[place])
            limit[place] = limit_of(least, length)
    for limit, bounds in zip(limits, (bounds_i, bounds_j), strict=True):
        above = np.nextafter(limit[: len(bounds)], products.dtype.type(np.inf))
        np.minimum(bounds, above[:, None], out=bounds)


def limit_of(values: Array, count: int) -> Any:
    """Limit that at least ``count`` of the values do not exceed, near the least one; inf if there is none."""
    known = values[values < np.inf]
    if len(known) < count:
        return values.dtype.type(np.inf)
    low, high = known.min(), known.max()
    for _ in range(HALVES):
        between = low + (high - low) * values.dtype.type(0.5)
        low, high = (low, between) if (values <= between).sum() >= count else (between, high)
    return high


class Lists(NamedTuple):
    """Nearest neighbors so far of each row of a block: see ``lists.py``."""

    keys: Float64
    """(rows, k) keys, the farthest in column 0."""

    ids: Int64
    uncertain: Int64
    """(1,) number of times that a row had too few candidates to be certain, and was compared with all."""

    def part(self, some: slice) -> Lists:
        """Lists of some of the rows, which share memory with these."""
        return Lists(self.keys[some], self.ids[some], self.uncertain)


@kernel
def square_norms(x: Array, *, out: Float64) -> None:
    """Write the squared norms of rows.

    Parameters
    ----------
    x : (r, d) float32, float64 or uint8
    out : (r,)
        Written: sums in float64, in any order.
    """
    np.einsum("ij,ij->i", x.astype(np.float64), x.astype(np.float64), out=out)


def doubles(rows: Rows, metric: int, shift: Float64 | None) -> Float64:
    """Some rows as they are multiplied, in float64: scaled under ``COSINE``, else less the shift."""
    values: Float64 = rows.raw.astype(np.float64)
    if metric == Metric.COSINE:
        values *= rows.scale[:, None]
    elif shift is not None:
        values -= shift
    return values


@kernel
def meet_rows(
    x: Rows,
    y: Rows,
    *,
    lists_i: Lists,
    lists_j: Lists | None,
    metric: int,
    shift: Float64 | None,
    same: bool,
    precise: bool,
    room: Callable[..., Array],
) -> bool:
    """Compare all pairs of rows of two blocks, and insert them into the neighbor lists of both, in place.

    Parameters
    ----------
    x, y : Rows
        (p, d) and (q, d), of one type; ``y`` is ``x`` where ``same``.
    lists_i, lists_j : Lists
        Neighbor lists of the rows of x and of y; ``lists_j`` is None if y has none or is x. Written.
    metric : one of ``BY_PRODUCTS``
    shift : (d,) float64 or None
        Subtracted from rows before they are multiplied; not under ``COSINE``.
    same : bool
        True if both are one block; no row is then paired with itself.
    precise : bool
        True if products of float32 leave its range, or are too inexact.
    room : callable
        ``room(name, shape, dtype)``, a buffer that is kept for the next call.

    Returns
    -------
    bool
        True if so many rows were uncertain that the next call should be precise.

    Notes
    -----
    Work 2 p q d flops and some distances of 3 d flops.
    """
    for i in range(len(x)):
        for j in range(len(y)):
            if same and i == j:
                continue
            key = distance(x.raw[i], y.raw[j], x.scale[i], y.scale[j], metric=metric)
            _take(lists_i.keys[i], lists_i.ids[i], key, y.first + j)
            if lists_j is not None:
                _take(lists_j.keys[j], lists_j.ids[j], key, x.first + i)
    return False
