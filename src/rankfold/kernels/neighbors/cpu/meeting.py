"""Two blocks of rows meet on the host. See ``kernels/neighbors/meeting.py``.

Bounds from float32 products shortlist a few candidates of every row, which are then measured. A row whose
shortlist was too short to be certain is gone through again, with products in float64, and every pair
measured that these do not rule out. So what a pair of blocks leaves behind is exact, and there is nothing
to certify at the end.

Where too many rows are uncertain (blocks far from the mean and close in themselves) shortlists are filled
from products in float64 from then on; that changes the time and nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.bounds import near, products, tiles
from rankfold.kernels.neighbors.lists import exhaust_rows, half, refine_rows, scan_pairs
from rankfold.kernels.neighbors.meeting import PRECISE_TILE, TILE, Lists, Rows, doubles, shortlist_length

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

UNCERTAIN = 0.05
"""Share of uncertain rows above which products had better be in float64."""


@dataclass(frozen=True, slots=True)
class Side:
    """Rows of one side of a pair of blocks, their lists, and their shortlists."""

    rows: Rows
    keys: npt.NDArray[np.float64]
    ids: Int64
    near: Array
    bounds: Array
    places: npt.NDArray[np.int32]


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
    """See the contract; scratch a tile of products, and two shortlists a row."""
    dtype = np.dtype(np.float64 if precise else np.float32)
    task = _Meeting(metric, shift, room, lists_i.keys.shape[1])
    one = task.side("left", x, lists_i, dtype)
    two = one if same else task.side("right", y, lists_j, dtype)
    for i, j in tiles(len(x), len(y), TILE if dtype == np.float32 else PRECISE_TILE, same=same):
        task.scan(one, i, two, j, dtype, same=same)
    uncertain = task.settle(one, y, lists_i.uncertain, same=same)
    if lists_j is not None:
        uncertain += task.settle(two, x, lists_j.uncertain, same=False)
    return uncertain > UNCERTAIN * (len(x) + len(y))


@dataclass(frozen=True, slots=True)
class _Meeting:
    """One call."""

    metric: int
    shift: Float64 | None
    room: Callable[..., Array]
    k: int

    def side(self, name: str, rows: Rows, lists: Lists | None, dtype: np.dtype[Any]) -> Side:
        """A side with shortlists that take what may still be of use."""
        count, most = len(rows), shortlist_length(self.k)
        row_terms = near(rows.norms, rows.raw.shape[1], self.metric, dtype)
        if lists is None:  # rows that only pass take nothing
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

    def scan(self, one: Side, i: slice, two: Side, j: slice, dtype: np.dtype[Any], *, same: bool) -> None:
        """Products of a tile, and what they shortlist."""
        x, y = one.rows.part(i.start, i.stop), two.rows.part(j.start, j.stop)
        a, b = self._factors(x, y, dtype)
        tile = self.room("tile", (len(x), len(y)), dtype)
        products(a, b, tile, functools.partial(self.room, "more", tile.shape, dtype))
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
            diagonal=i.start - j.start + 1 if same else -len(x),
        )

    def _factors(self, x: Rows, y: Rows, dtype: np.dtype[Any]) -> tuple[Array, Array]:
        if dtype == np.float32:
            assert x.copy is not None and y.copy is not None  # noqa: S101 - bounded metrics have them
            return x.copy, y.copy
        return doubles(x, self.metric, self.shift), doubles(y, self.metric, self.shift)

    def settle(self, side: Side, others: Rows, uncertain: Int64, *, same: bool) -> int:
        """Measure the shortlists of a side, and go through rows again that are uncertain; their number."""
        rows = side.rows
        certain = refine_rows(
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
        uncertain_rows = np.flatnonzero(~certain)
        for start in range(0, len(uncertain_rows), PRECISE_TILE):
            self._exhaust(side, uncertain_rows[start : start + PRECISE_TILE], others, same=same)
        uncertain += len(uncertain_rows)
        return len(uncertain_rows)

    def _exhaust(self, side: Side, rows: Int64, others: Rows, *, same: bool) -> None:
        """Every pair of some rows with a block that float64 does not rule out."""
        every, double, columns = side.rows, np.dtype(np.float64), side.rows.raw.shape[1]
        x = Rows(every.first, every.raw[rows], None, every.norms[rows], every.scale[rows])
        keys, ids = side.keys[rows], side.ids[rows]
        own = every.first + rows if same else np.full(len(rows), -1)
        a, near_x = doubles(x, self.metric, self.shift), near(x.norms, columns, self.metric, double)
        for j in range(0, len(others), PRECISE_TILE):
            y = others.part(j, min(len(others), j + PRECISE_TILE))
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
