"""Compare two blocks of rows on the host. See ``kernels/neighbors/meeting.py``.

Bounds from float32 products shortlist a few candidates of every row, which are then measured. A row whose
shortlist was too short to be certain is compared again, with products in float64, and every pair that these
do not rule out is measured. So lists are exact after each pair of blocks, and nothing is left to certify at
the end.

If too many rows are uncertain (blocks far from the mean, with rows close to each other) shortlists are filled
from products in float64 from then on; that changes the time and nothing else.

Of projected rows (see ``bounds.py``) a product takes a fraction of the time, and its bound is not as close: a
shortlist would lose too much. There every pair whose bound is below the limit of a list is measured at once,
so that limits fall as fast as they can. Only the first tile of a row fills its list from a shortlist.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels._dispatch import plain, wide
from rankfold.kernels.neighbors.bounds import near, products, slack, tiles
from rankfold.kernels.neighbors.cpu._masks import keep_least
from rankfold.kernels.neighbors.lists import (
    EMPTY,
    Metric,
    exhaust_rows,
    half,
    measure_near,
    refine_rows,
    scan_pairs,
)
from rankfold.kernels.neighbors.meeting import (
    GROUPS,
    HALVES,
    TILE,
    Lists,
    Rows,
    double_rows,
    doubles,
    shortlist_length,
)

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

Index = np.uint64
"""Index type of loops that are to be vectorized: see ``lists.py``."""

WORTH_LIMITS = 4 * GROUPS
"""Rows and columns of a tile from which on ``limit_pairs`` is worth its time."""

WORTH_BALLS = 4 * TILE
"""Rows of both sides from which on a ball around a tile saves more time than it takes."""

STRIP = 224
"""Rows of a tile on the diagonal that are multiplied together, with all rows from the first of them on."""

UNCERTAIN = 0.05
"""Share of uncertain rows (whose shortlist was too short) above which products should be in float64."""


MOST_MEASURED = 0.3
"""Share of the pairs of two blocks of projected rows above which measuring them takes longer than products of
whole rows in float64.
"""


def square_norms(x: Array, *, out: Float64) -> None:
    """See the contract; no scratch. Squared norms of rows."""
    _square(wide(x), int(x.shape[1]), out)


def _squares_of(x: Array, columns: int, out: Float64) -> None:
    for i in range(len(out)):
        total = 0.0
        for t in range(Index(columns)):
            value = np.float64(x[i, t])
            total += value * value
        out[i] = total


# Bounds allow for additions in any order.
_square = compile_loop(_squares_of, fastmath={"reassoc", "contract", "nsz"})


@dataclass(frozen=True, slots=True)
class Side:
    """Rows of one side of a pair of blocks, their lists, and their shortlists.

    ``keys`` and ``ids`` are the lists, ``bounds`` and ``places`` the shortlists, as in ``lists.py``; ``near``
    has the terms of rows in bounds, as ``bounds.near`` returns them.
    """

    rows: Rows
    keys: npt.NDArray[np.float64]
    ids: Int64
    near: Array
    bounds: Array
    places: npt.NDArray[np.int32]

    balls: dict[int, tuple[Float64, float]] = field(default_factory=dict)
    """Center and radius of a ball around some rows, keyed by the first of them."""

    def ball(self, some: slice) -> tuple[Float64, float]:
        """Center (d,) and radius of a ball that contains some rows as they were before they were rounded."""
        if some.start not in self.balls:
            rows = self.rows.part(some.start, some.stop)
            assert rows.copy is not None  # noqa: S101 - asked for where there is one
            center = rows.copy.mean(axis=0, dtype=np.float64).astype(np.float32)
            size = float(np.einsum("i,i->", center, center, dtype=np.float64))
            squares = rows.norms + size
            single = np.finfo(np.float32)
            error = slack(len(center), single.dtype) * squares + len(center) * float(single.tiny)
            radius = np.sqrt(max(0.0, float((squares - 2.0 * (rows.copy @ center) + error).max())))
            rounding = 2.0**-22 * np.sqrt(float(rows.norms.max()))
            self.balls[some.start] = center.astype(np.float64), float(radius + rounding)
        return self.balls[some.start]

    def unlimited(self, some: slice) -> Array:
        """Bounds of the shortlists of some rows, a view, if all are empty and any is unlimited.

        Otherwise new bounds of -inf, (rows, 1), which accept nothing.
        """
        bounds = self.bounds[some]
        is_known = bool(np.isfinite(bounds[:, 0]).all() or (self.places[some] >= 0).any())
        return bounds if not is_known else np.full((len(bounds), 1), -np.inf, bounds.dtype)


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
    """See the contract. Inserts all pairs of two blocks into neighbor lists.

    Scratch a tile of products, and two shortlists a row.
    """
    dtype = np.dtype(np.float64 if precise else np.float32)
    task = _Meeting(metric, shift, room, lists_i.keys.shape[1])
    if x.projected and not precise:
        return task.meet_projected(x, y, lists_i, lists_i if same else lists_j, same=same)
    one = task.side("left", x, lists_i, dtype)
    two = one if same else task.side("right", y, lists_j, dtype)
    most = double_rows(x.raw.shape[1]) if precise else TILE
    for i, j in tiles(len(x), len(y), most, same=same):
        task.scan(one, i, two, j, dtype, same=same)
    uncertain = task.settle(one, y, lists_i.uncertain, same=same)
    if lists_j is not None:
        uncertain += task.settle(two, x, lists_j.uncertain, same=False)
    return uncertain > UNCERTAIN * (len(x) + len(y))


def limit_pairs(
    products: Array, near_i: Array, near_j: Array, *, bounds_i: Array, bounds_j: Array, diagonal: int
) -> None:
    """See the contract; scratch ``GROUPS`` numbers a column. Lowers the limits of empty shortlists."""
    dtype, (p, q) = products.dtype, products.shape
    # Lists that accept nothing need no limit.
    lengths = [each.shape[1] if each[0, 0] > -np.inf else q + GROUPS for each in (bounds_i, bounds_j)]
    if min(lengths) > GROUPS:
        return
    least, limits = np.full((GROUPS, q), np.inf, dtype), np.full((2, max(p, q)), np.inf, dtype)
    inputs = wide(products), plain(near_i), plain(near_j), int(diagonal)
    _limit(*inputs, lengths[0], lengths[1], least, limits, np.empty(GROUPS, dtype))
    for limit, bounds in zip(limits, (bounds_i, bounds_j), strict=True):
        above = np.nextafter(limit[: len(bounds)], dtype.type(np.inf))
        np.minimum(bounds, above[:, None], out=bounds)


@compile_loop
def _limit(
    products: Array,
    near_i: Array,
    near_j: Array,
    diagonal: int,
    length_i: int,
    length_j: int,
    least: Array,
    limits: Array,
    groups: Array,
) -> None:
    q = len(near_j)
    for i in range(len(near_i)):
        first = max(0, i + diagonal)
        row, near, below = products[i], near_i[i], least[i % GROUPS]
        groups[:] = np.inf
        for start in range(first - first % GROUPS, q, GROUPS):
            if first <= start and start + GROUPS <= q:
                keep_least(row, near_j, groups, 0, start, near)
                if length_j <= GROUPS:
                    keep_least(row, near_j, below, start, start, near)
            else:
                for j in range(max(first, start), min(start + GROUPS, q)):
                    bound = near + near_j[j] - row[j]
                    groups[j - start] = bound if bound < groups[j - start] else groups[j - start]
                    below[j] = bound if bound < below[j] else below[j]
        if length_i <= GROUPS:
            limits[0, i] = _limit_of(groups, length_i)
    if length_j <= GROUPS:
        for j in range(q):
            for t in range(GROUPS):
                groups[t] = least[t, j]
            limits[1, j] = _limit_of(groups, length_j)


@part
def _limit_of(values: Array, count: int) -> Any:
    """Limit that at least ``count`` of ``GROUPS`` values do not exceed; inf if fewer are below inf.

    Computed as by ``limit_of``.
    """
    infinity, middle = values.dtype.type(np.inf), values.dtype.type(0.5)
    low, high, known = infinity, -infinity, 0
    for t in range(Index(GROUPS)):
        value = values[t]
        is_known = value < infinity
        known += is_known
        low = value if value < low else low
        high = value if is_known and value > high else high
    if known < count:
        return infinity
    for _ in range(HALVES):
        between = low + (high - low) * middle
        below = 0
        for t in range(Index(GROUPS)):
            below += values[t] <= between
        low, high = (low, between) if below >= count else (between, high)
    return high


@dataclass(frozen=True, slots=True)
class _Meeting:
    """Parameters and buffers of one ``meet_rows`` call, and its steps; ``k`` is the length of its lists."""

    metric: int
    shift: Float64 | None
    room: Callable[..., Array]
    k: int

    def side(self, name: str, rows: Rows, lists: Lists | None, dtype: np.dtype[Any]) -> Side:
        """Side of ``rows`` with empty shortlists, which accept only bounds that may still enter its lists.

        ``name`` tells its buffers apart from those of the other side.
        """
        count, most = len(rows), shortlist_length(self.k)
        row_terms = self._near(rows, dtype)
        if lists is None:  # rows without lists accept nothing
            bounds, places = np.full((count, 1), -np.inf, dtype), np.full((count, 1), -1, np.int32)
            return Side(rows, np.empty((count, 0)), np.empty((count, 0), np.int64), row_terms, bounds, places)
        keys, ids, _ = lists
        bounds = self.room(f"{name} bounds", (count, most), dtype)
        places = self.room(f"{name} places", (count, most), np.int32)
        limits = half(keys[:, 0], self.metric)
        with np.errstate(over="ignore"):
            bounds[...] = np.nextafter(limits.astype(dtype), dtype.type(np.inf))[:, None]
        places[...] = -1
        return Side(rows, keys, ids, row_terms, bounds, places)

    def is_far(self, one: Side, i: slice, two: Side, j: slice) -> bool:
        """True if no row ``i`` of ``one`` is near a row ``j`` of ``two``: their balls are too far apart.

        A pair that is left out this way is farther than the largest bound of either shortlist, as is one that
        its own bound rules out: rows that are certain stay certain.
        """
        if min(len(one.rows), len(two.rows)) < WORTH_BALLS:
            return False
        roots = max(float(one.bounds[i, 0].max()), float(two.bounds[j, 0].max()))
        plain = self.metric != Metric.INNER_PRODUCT and one.rows.copy is not None
        if roots == np.inf or not plain or (one is two and i.start == j.start):
            return False
        (a, radius_a), (b, radius_b) = one.ball(i), two.ball(j)
        gap = float(np.sqrt(((a - b) ** 2).sum())) - radius_a - radius_b
        return gap > 0 and gap * gap / 2 * (1 - 1e-9) > roots

    def meet_projected(self, x: Rows, y: Rows, lists_i: Lists, lists_j: Lists | None, *, same: bool) -> bool:
        """Compare two blocks of projected rows; returns True if so many pairs were measured that products in
        float64 would cost less.
        """
        single, measured, was_full = np.dtype(np.float32), 0, bool((lists_i.ids[:, 0] != EMPTY).all())
        near_x, near_y = self._near(x, single), self._near(y, single)
        accepting = self._nothing(len(y)) if lists_j is None else lists_j
        for i, j in tiles(len(x), len(y), TILE, same=same):
            a, b = x.part(i.start, i.stop), y.part(j.start, j.stop)
            own = lists_i.part(i)
            others = None if lists_j is None else lists_j.part(j)
            diagonal = i.start - j.start + 1 if same else -len(a)
            tile = self._tile(a, b, single, diagonal)
            if any((each.ids[:, 0] == EMPTY).any() for each in (own, others) if each is not None):
                self._fill(a, b, own, others, tile, diagonal)
            keys, ids, _ = accepting.part(j)
            assert a.copy is not None and b.copy is not None  # noqa: S101 - projected rows have them
            measured += measure_near(
                tile,
                near_x[i],
                near_y[j],
                a.copy,
                b.copy,
                a.raw,
                b.raw,
                a.scale,
                b.scale,
                leading=a.leading,
                metric=self.metric,
                keys_i=own.keys,
                ids_i=own.ids,
                keys_j=keys,
                ids_j=ids,
                first_i=a.first,
                first_j=b.first,
                diagonal=diagonal,
            )
        return was_full and measured > MOST_MEASURED * len(x) * len(y)

    def _nothing(self, rows: int) -> Lists:
        """Lists that accept nothing, for rows that have none."""
        keys, ids = self.room("no keys", (rows, 1), np.float64), self.room("no ids", (rows, 1), np.int64)
        keys[...], ids[...] = -np.inf, EMPTY
        return Lists(keys, ids, np.zeros(1, np.int64))

    def _fill(
        self, x: Rows, y: Rows, lists_i: Lists, lists_j: Lists | None, tile: Array, diagonal: int
    ) -> None:
        """Fill lists with the pairs of a tile that have the least bounds, so that they have a limit."""
        single = np.dtype(np.float32)
        one, two = self.side("left", x, lists_i, single), self.side("right", y, lists_j, single)
        self._shortlist(one, slice(0, len(x)), two, slice(0, len(y)), tile, diagonal)
        self._refine(one, y)
        if lists_j is not None:
            self._refine(two, x)

    def scan(self, one: Side, i: slice, two: Side, j: slice, dtype: np.dtype[Any], *, same: bool) -> None:
        """Insert pairs of rows ``i`` of ``one`` and rows ``j`` of ``two`` into the shortlists of both sides.

        Bounds are from products in ``dtype``; if ``same``, of each pair only that with the larger row in j.
        """
        if dtype == np.float32 and self.is_far(one, i, two, j):
            return
        x, y = one.rows.part(i.start, i.stop), two.rows.part(j.start, j.stop)
        diagonal = i.start - j.start + 1 if same else -len(x)
        tile = self._tile(x, y, dtype, diagonal)
        self._shortlist(one, i, two, j, tile, diagonal)

    def _tile(self, x: Rows, y: Rows, dtype: np.dtype[Any], diagonal: int) -> Array:
        """Products of two tiles of rows; on the diagonal of a block no more of them than are needed."""
        a, b = self._factors(x, y, dtype)
        tile = self.room("tile", (len(x), len(y)), dtype)
        strip = STRIP if diagonal == 1 else len(x)
        for top in range(0, len(x), strip):
            left = top if diagonal == 1 else 0
            more = functools.partial(self.room, "more", (strip, len(y)), dtype)
            products(a[top : top + strip], b[left:], tile[top : top + strip, left:], more)
        return tile

    def _shortlist(self, one: Side, i: slice, two: Side, j: slice, tile: Array, diagonal: int) -> None:
        """Insert the pairs of a tile into the shortlists of rows ``i`` of one side and ``j`` of the other."""
        bounds = one.unlimited(i), two.unlimited(j)
        if min(tile.shape) >= WORTH_LIMITS and max(each.shape[1] for each in bounds) > 1:
            limit_pairs(
                tile, one.near[i], two.near[j], bounds_i=bounds[0], bounds_j=bounds[1], diagonal=diagonal
            )
        scan_pairs(
            tile,
            one.near[i],
            two.near[j],
            bounds_i=one.bounds[i],
            places_i=one.places[i],
            bounds_j=two.bounds[j],
            places_j=two.places[j],
            first_i=i.start,
            first_j=j.start,
            diagonal=diagonal,
        )

    def _factors(self, x: Rows, y: Rows, dtype: np.dtype[Any]) -> tuple[Array, Array]:
        if dtype == np.float32:
            assert x.copy is not None and y.copy is not None  # noqa: S101 - bounded metrics have them
            leading = x.leading or x.copy.shape[1]
            return x.copy[:, :leading], y.copy[:, :leading]
        return doubles(x, self.metric, self.shift), doubles(y, self.metric, self.shift)

    def settle(self, side: Side, others: Rows, uncertain: Int64, *, same: bool) -> int:
        """Measure the shortlists of a side, into its lists, then compare uncertain rows with all ``others``.

        Returns the number of uncertain rows, and adds it to ``uncertain``, (1,).
        """
        uncertain_rows = np.flatnonzero(~self._refine(side, others))
        most = double_rows(side.rows.raw.shape[1])
        for start in range(0, len(uncertain_rows), most):
            self._exhaust(side, uncertain_rows[start : start + most], others, same=same)
        uncertain += len(uncertain_rows)
        return len(uncertain_rows)

    def _refine(self, side: Side, others: Rows) -> npt.NDArray[np.bool_]:
        """Measure the shortlists of a side; returns which rows (rows,) are certain to have lost nothing."""
        rows = side.rows
        return refine_rows(
            rows.raw,
            others.raw,
            rows.scale,
            others.scale,
            metric=self.metric,
            first=others.first,
            bounds=side.bounds,
            places=side.places,
            keys=side.keys,
            ids=side.ids,
        )

    def _near(self, rows: Rows, dtype: np.dtype[Any]) -> Array:
        """Terms of rows in the bounds of their products in a type: see ``bounds.near``."""
        is_short = dtype == np.float32 and rows.projected and rows.copy is not None
        columns = rows.copy.shape[1] if is_short else rows.raw.shape[1]  # type: ignore[union-attr]
        return near(rows.norms, columns, self.metric, dtype)

    def _exhaust(self, side: Side, rows: Int64, others: Rows, *, same: bool) -> None:
        """Insert pairs of rows ``rows`` of ``side`` with ``others`` into the lists of these rows.

        All pairs are measured but those that products in float64 rule out.
        """
        every, double, columns = side.rows, np.dtype(np.float64), side.rows.raw.shape[1]
        x = Rows(every.first, every.raw[rows], None, every.norms[rows], every.scale[rows])
        keys, ids = side.keys[rows], side.ids[rows]
        own = every.first + rows if same else np.full(len(rows), -1)
        a, near_x = doubles(x, self.metric, self.shift), near(x.norms, columns, self.metric, double)
        most = double_rows(columns)
        for j in range(0, len(others), most):
            y = others.part(j, min(len(others), j + most))
            tile = self.room("tile", (len(x), len(y)), double)
            more = functools.partial(self.room, "more", tile.shape, double)
            products(a, doubles(y, self.metric, self.shift), tile, more)
            exhaust_rows(
                tile,
                near_x,
                near(y.norms, columns, self.metric, double),
                x.raw,
                y.raw,
                x.scale,
                y.scale,
                metric=self.metric,
                own=own,
                first=y.first,
                keys=keys,
                ids=ids,
            )
        side.keys[rows], side.ids[rows] = keys, ids
