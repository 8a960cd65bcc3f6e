"""Two blocks of rows meet: the nearest of either in the other, exactly.

On the host products of tiles shortlist candidates, which are measured; see ``cpu/meeting.py``. On a device
they are noted by tensor cores; see ``gpu/meeting.cu``. Lists are the same to the last bit, since distances
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
"""Most rows of either side in one product: large enough for full speed, and scanned while it is in cache."""

PRECISE_TILE = 512
"""The same in float64, for which rows are converted."""

DOUBLE_BYTES = 16 * 2**20
"""Bytes of the rows that are converted together, unless a few rows take more."""

FEWEST_DOUBLES = 8
"""Rows that are converted together, however wide they are."""


def double_rows(columns: int, most: int = PRECISE_TILE) -> int:
    """Rows of either side that are in float64 at a time: fewer of wide ones.

    >>> double_rows(4096), double_rows(100_000), double_rows(10**6)
    (512, 20, 8)
    """
    return min(most, max(FEWEST_DOUBLES, DOUBLE_BYTES // (8 * columns)))


def doubles_bytes(rows: int, columns: int, k: int) -> int:
    """Memory of what is converted where the taller of two blocks has so many rows, with lists of ``k``.

    Both sides of a tile; of rows that are uncertain also what they are taken from, and their lists.
    """
    return min(double_rows(columns), rows) * (3 * 8 * columns + 4 * 8 * k)


def shortlist_length(k: int) -> int:
    """Candidates of a row for ``k`` places: the more, the surer that none was lost."""
    return k + max(8, k // 4)


NOTED = 512
"""Candidates of a row that a device has room for."""


PRODUCT_BYTES = 64 * 2**20
"""Of products that a device holds at a time, or those of a single row."""


def meeting_bytes(rows: int, columns: int) -> int:
    """Scratch of a device where blocks of so many rows meet: what is multiplied and what is noted of both.

    In float64 rows are converted, and products of some of them held.
    """
    return 2 * rows * (8 * max(columns, 16) + 4 * NOTED + 10 * 8) + 8 * rows * products_at_once(rows, rows, 8)


def products_at_once(rows: int, others: int, itemsize: int) -> int:
    """Rows of which products with all others are held at a time."""
    return max(1, min(rows, PRODUCT_BYTES // max(1, itemsize * others)))


@dataclass(slots=True)
class Rows:
    """Some rows in memory."""

    first: int
    """Row of the matrix that comes first."""

    raw: Array
    copy: npt.NDArray[np.float32] | None
    """As multiplied on the host; None for metrics that products do not bound."""

    norms: Float64
    """Squared, of the copy."""

    scale: Float64
    """Reciprocal norms for cosine, else ones."""

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def stop(self) -> int:
        """One past the last row of the matrix."""
        return self.first + len(self.raw)

    def part(self, start: int, stop: int) -> Rows:
        """A run of them."""
        copy = None if self.copy is None else self.copy[start:stop]
        some = slice(start, stop)
        return Rows(self.first + start, self.raw[some], copy, self.norms[some], self.scale[some])


GROUPS = 64
"""Of the pairs of a row, whose least bounds limit what its shortlist may take."""

HALVES = 8
"""Steps that narrow a limit down: to 1/256 of what the least bounds lie apart."""


@kernel
def limit_pairs(
    products: Array, near_i: Array, near_j: Array, *, bounds_i: Array, bounds_j: Array, diagonal: int
) -> None:
    """Lower what empty shortlists may take, before the first tile of theirs is scanned, in place.

    The pairs of a row in the tile fall into ``GROUPS`` groups, by column. Where as many of the least bounds
    of these as a shortlist is long are not above a limit, no pair above it would stay. Rows are grouped
    likewise for the columns.

    Parameters
    ----------
    products, near_i, near_j, diagonal
        As for ``scan_pairs``, of float32 or float64.
    bounds_i, bounds_j : (p, c) and (q, c')
        Shortlists that nothing is in: all bounds of a row are the same. Lowered where it is certain that as
        many pairs fill them. They may be one array.

    Notes
    -----
    Two passes over the tile in vectors, and ``HALVES`` times ``GROUPS`` comparisons a row and column: a tenth
    of what it takes to fill a shortlist from pairs in any order.
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
    """A limit that so many of some values are not above, a little over the least there is; inf if none is."""
    known = values[values < np.inf]
    if len(known) < count:
        return values.dtype.type(np.inf)
    low, high = known.min(), known.max()
    for _ in range(HALVES):
        between = low + (high - low) * values.dtype.type(0.5)
        low, high = (low, between) if (values <= between).sum() >= count else (between, high)
    return high


class Lists(NamedTuple):
    """The nearest of each row of a block so far: see ``lists.py``."""

    keys: Float64
    """(rows, k)"""

    ids: Int64
    uncertain: Int64
    """(1,) how often candidates of a row were too few to be certain, so that it met all others."""


@kernel
def square_norms(x: Array, *, out: Float64) -> None:
    """Squares of the norms of rows, in place.

    Parameters
    ----------
    x : (r, d) float32, float64 or uint8
    out : (r,)
        Written: sums in float64, in any order.
    """
    np.einsum("ij,ij->i", x.astype(np.float64), x.astype(np.float64), out=out)


def doubles(rows: Rows, metric: int, shift: Float64 | None) -> Float64:
    """The copy of some rows as float64 has it."""
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
    """Take the pairs of two blocks into the lists of both, in place.

    Parameters
    ----------
    x, y : Rows
        (p, d) and (q, d), of one type; ``y`` is ``x`` where ``same``.
    lists_i, lists_j : Lists
        Of x and, if it has any and is another block, of y. Written.
    metric : one of ``BY_PRODUCTS``
    shift : (d,) float64 or None
        What rows are less of before they are multiplied; not under ``COSINE``.
    same : bool
        Whether both are one block, whose rows do not meet themselves.
    precise : bool
        Products of float32 leave its range, or tell too little.
    room : callable
        ``room(name, shape, dtype)``, a buffer that is kept for the next call.

    Returns
    -------
    bool
        Whether so many rows were uncertain that the next call had better be precise.

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
