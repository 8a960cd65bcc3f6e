"""Nearest neighbors of two blocks of rows, exactly: what a sweep over pairs does with each pair of blocks.

Bounds from float32 products shortlist a few candidates of every row, which are then measured. A row whose
shortlist was too short to be certain is gone through again, with products in float64, and every pair
measured that these do not rule out. So what a pair of blocks leaves behind is exact, and there is nothing
to certify at the end.

Where too many rows are uncertain (blocks far from the mean and close in themselves) shortlists are filled
from products in float64 from then on; that changes the time and nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import (
    BY_PRODUCTS,
    EMPTY,
    Metric,
    compare_pairs,
    exhaust_rows,
    half,
    measure_pairs,
    refine_rows,
    scan_pairs,
)
from rankfold.methods.knn.row_blocks import (
    LARGEST_SQUARE,
    TERMS,
    BlockReader,
    RowBuffer,
    Rows,
    near,
    products,
)
from rankfold.pipeline.data.view import aligned_empty
from rankfold.pipeline.engine.blocks import grains
from rankfold.pipeline.engine.pairs import Pairs
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.storage.checkpoint import State

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]

TILE = 896
"""Most rows of either side in one product: large enough for full speed, and scanned while it is in cache."""

PRECISE_TILE = 512
"""The same in float64, for which rows are converted."""

MEASURED_TILE = 256
"""The same where every pair is measured."""

FEW_COLUMNS = 16
"""Rows shorter than this are measured: a product and its bounds would take longer."""

UNCERTAIN = 0.05
"""Share of uncertain rows above which products are made in float64."""


def shortlist_length(k: int) -> int:
    """Candidates of a row for ``k`` places: the more, the surer that none was lost."""
    return k + max(8, k // 4)


def has_bounds(metric: int, columns: int) -> bool:
    """Whether products choose candidates; else every pair is measured."""
    euclidean = metric in (Metric.EUCLIDEAN, Metric.SQEUCLIDEAN)
    return metric in BY_PRODUCTS and not (euclidean and columns < FEW_COLUMNS)


@dataclass(slots=True)
class PairWorkspace:
    """Buffers of one task."""

    resident: RowBuffer
    passing: RowBuffer
    precise: bool
    """Whether products are made in float64."""

    span: tuple[int, int] = (-1, -1)
    """First block in memory, and one past the last."""

    blocks: dict[int, Rows] = field(default_factory=dict)
    """Their rows."""

    now: Rows | None = None
    """The block that passes."""

    room: dict[str, Array] = field(default_factory=dict)

    def array(self, name: str, shape: tuple[int, int], dtype: npt.DTypeLike) -> Array:
        """A buffer that is made once for the largest that is asked for."""
        key, size = f"{name} {np.dtype(dtype).name}", shape[0] * shape[1]
        if key not in self.room or self.room[key].size < size:
            self.room[key] = aligned_empty((size,), dtype)
        return self.room[key][:size].reshape(shape)


@dataclass(frozen=True, slots=True)
class Side:
    """Rows of one side of a pair of blocks, their lists, and their shortlists."""

    rows: Rows
    keys: npt.NDArray[np.float64]
    ids: Int64
    near: Array
    bounds: Array
    places: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class NearestPairs:
    """Fold of pairs of blocks into lists of the ``k`` nearest: see ``PairFold``."""

    pairs: Pairs
    left: BlockReader
    """Rows that have lists."""

    right: BlockReader
    """Rows that are in lists; the same ones unless there are queries."""

    k: int
    metric: int
    function: Callable[..., float] | None
    """A metric of the caller's own, in place of that."""

    precise: bool
    """Whether products are in float64 from the start: numbers out of the range of float32."""

    def memory_bytes(self, rows: int) -> int:
        """Most memory of a task that holds so many rows: buffers, lists, shortlists, tiles."""
        tallest, columns, most = self.pairs.tallest(), self.left.columns, shortlist_length(self.k)
        lists = 2 * 8 * self.k
        # Which blocks each has met: packed, and a byte for each.
        blocks = 2 * rows * self.pairs.count // int(self.pairs.rows[-1]) + 4
        buffers = self.left.memory_bytes(rows) + self.right.memory_bytes(tallest)
        reading = max(self.left.read_bytes(tallest), self.right.read_bytes(tallest))
        list_bytes = (rows + 3 * tallest) * lists + blocks * 2 * len(self.pairs.met)
        if not self.left.bounded:
            return buffers + list_bytes + reading + 4 * 2 * MEASURED_TILE * columns * 8
        sides = (min(TILE, tallest), 4), (min(PRECISE_TILE, tallest), 8)
        tiles = sum(rows**2 * item for rows, item in sides) * (1 + (columns > TERMS))
        doubles = 4 * PRECISE_TILE * columns * 8 + PRECISE_TILE * (columns * 8 + 4 * 8 * self.k)
        shortlists = 2 * tallest * (16 * most + 10 * 8)
        return buffers + list_bytes + reading + tiles + doubles + shortlists

    def start(self, block: int) -> State:
        """Empty lists."""
        rows = int(self.pairs.rows[block + 1] - self.pairs.rows[block])
        return {
            "keys": np.full((rows, self.k), np.inf),
            "ids": np.full((rows, self.k), EMPTY, np.int64),
            "uncertain": np.zeros(1, np.int64),
        }

    def workspace(self, rows: int) -> PairWorkspace:
        """Allocate buffers."""
        return PairWorkspace(self.left.buffer(rows), self.right.buffer(self.pairs.tallest()), self.precise)

    def holds(self, work: PairWorkspace, held: tuple[int, int]) -> bool:
        """Whether a group is there."""
        return work.span == held

    def load_resident(self, work: PairWorkspace, held: tuple[int, int]) -> int:
        """Read a group, block by block."""
        if work.span == held:
            return 0
        work.span, work.blocks, work.now = (-1, -1), {}, None
        edges = self.pairs.rows
        first = int(edges[held[0]])
        for block in range(*held):
            start, stop = int(edges[block]), int(edges[block + 1])
            work.blocks[block] = self.left.read(work.resident, start, stop, start - first)
        work.span = held
        return (int(edges[held[1]]) - first) * self.left.bytes_to_read

    def load_passing(self, work: PairWorkspace, block: int, held: tuple[int, int]) -> int:
        """Read a block, or find it in the group."""
        if self.pairs.others is None and block in work.blocks:
            work.now = work.blocks[block]
            return 0
        start, stop = int(self.pairs.met[block]), int(self.pairs.met[block + 1])
        work.now = self.right.read(work.passing, start, stop, 0)
        return (stop - start) * self.right.bytes_to_read

    def accumulate(
        self, work: PairWorkspace, block: int, state: State, other: int, other_state: State | None
    ) -> None:
        """Lists of both blocks, or of the first alone if the other has none."""
        x, y = work.blocks[block], work.now
        assert y is not None  # noqa: S101 - load_passing came before
        same = self.pairs.others is None and block == other
        if not self.left.bounded:
            self._measure(work, x, state, y, state if same else other_state, same=same)
            return
        wild = max(x.norms.max(), y.norms.max()) > LARGEST_SQUARE
        dtype = np.dtype(np.float64 if work.precise or wild else np.float32)
        one = self._side(work, "left", x, state, dtype)
        two = one if same else self._side(work, "right", y, other_state, dtype)
        for i, j in tiles(len(x), len(y), TILE if dtype == np.float32 else PRECISE_TILE, same=same):
            self._scan(work, one, i, two, j, dtype, same=same)
        uncertain = self._settle(work, one, y, state, same=same)
        if other_state is not None:
            uncertain += self._settle(work, two, x, other_state, same=False)
        if uncertain > UNCERTAIN * (len(x) + len(y)):
            work.precise = True

    def _side(
        self, work: PairWorkspace, name: str, rows: Rows, state: State | None, dtype: np.dtype[Any]
    ) -> Side:
        """A side with shortlists that take what may still be of use."""
        count, most, row_terms = len(rows), shortlist_length(self.k), near(rows, self.metric, dtype)
        if state is None:  # rows that only pass take nothing
            bounds, places = np.full((count, 1), -np.inf, dtype), np.full((count, 1), -1, np.int32)
            return Side(rows, np.empty((count, 0)), np.empty((count, 0), np.int64), row_terms, bounds, places)
        bounds = work.array(f"{name} bounds", (count, most), dtype)
        places = work.array(f"{name} places", (count, most), np.int32)
        limits = half(state["keys"][:, 0], self.metric)
        with np.errstate(over="ignore"):
            bounds[...] = np.nextafter(limits.astype(dtype), dtype.type(np.inf))[:, None]
        places[...] = -1
        return Side(rows, state["keys"], state["ids"], row_terms, bounds, places)

    def _scan(
        self,
        work: PairWorkspace,
        one: Side,
        i: slice,
        two: Side,
        j: slice,
        dtype: np.dtype[Any],
        *,
        same: bool,
    ) -> None:
        """Products of a tile, and what they shortlist."""
        x, y = one.rows.part(i.start, i.stop), two.rows.part(j.start, j.stop)
        a, b = self._factors(work, x, y, dtype)
        tile = work.array("tile", (len(x), len(y)), dtype)
        products(a, b, tile, functools.partial(work.array, "more", tile.shape, dtype))
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

    def _factors(self, work: PairWorkspace, x: Rows, y: Rows, dtype: np.dtype[Any]) -> tuple[Array, Array]:
        if dtype == np.float32:
            assert x.copy is not None and y.copy is not None  # noqa: S101 - bounded metrics have them
            return x.copy, y.copy
        return self.left.double(x), self.right.double(y)

    def _settle(self, work: PairWorkspace, side: Side, others: Rows, state: State, *, same: bool) -> int:
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
            self._exhaust(work, side, uncertain_rows[start : start + PRECISE_TILE], others, same=same)
        state["uncertain"] += len(uncertain_rows)
        return len(uncertain_rows)

    def _exhaust(self, work: PairWorkspace, side: Side, rows: Int64, others: Rows, *, same: bool) -> None:
        """Every pair of some rows with a block that float64 does not rule out."""
        every, double = side.rows, np.dtype(np.float64)
        x = Rows(every.first, every.raw[rows], None, every.norms[rows], every.scale[rows])
        keys, ids = side.keys[rows], side.ids[rows]
        own = every.first + rows if same else np.full(len(rows), -1)
        a, near_x = self.left.double(x), near(x, self.metric, double)
        for j in range(0, len(others), PRECISE_TILE):
            y = others.part(j, min(len(others), j + PRECISE_TILE))
            tile = work.array("tile", (len(x), len(y)), double)
            products(a, self.right.double(y), tile, functools.partial(work.array, "more", tile.shape, double))
            exhaust_rows(
                tile,
                near_x,
                near(y, self.metric, double),
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

    def _measure(
        self, work: PairWorkspace, x: Rows, state: State, y: Rows, other_state: State | None, *, same: bool
    ) -> None:
        """All pairs, where nothing is to be gained from bounds."""
        none = np.full((len(y), 1), -np.inf), np.zeros((len(y), 1), np.int64)
        keys_j, ids_j = none if other_state is None else (other_state["keys"], other_state["ids"])
        for i, j in tiles(len(x), len(y), MEASURED_TILE, same=same):
            lists: dict[str, Any] = {
                "keys_i": state["keys"][i],
                "ids_i": state["ids"][i],
                "keys_j": keys_j[j],
                "ids_j": ids_j[j],
            }
            diagonal = i.start - j.start + 1 if same else -(i.stop - i.start)
            where: dict[str, Any] = {
                "first_i": x.first + i.start,
                "first_j": y.first + j.start,
                "diagonal": diagonal,
            }
            a, b = x.raw[i].astype(np.float64), y.raw[j].astype(np.float64)
            if self.function is None:
                measure_pairs(a, b, metric=self.metric, **lists, **where)
            else:
                self._compare(a, b, lists, where)

    def _compare(self, a: Array, b: Array, lists: dict[str, Any], where: dict[str, Any]) -> None:
        """A metric of the caller's own, and what it may do wrong."""
        assert self.function is not None  # noqa: S101
        try:
            compare_pairs(a, b, function=self.function, **lists, **where)
        except (ArithmeticError, AssertionError, LookupError, ValueError) as error:
            raise DataError(f"the metric failed: {type(error).__name__}: {error}") from error


def tiles(rows: int, others: int, most: int, *, same: bool) -> Iterator[tuple[slice, slice]]:
    """Tiles of two blocks, of nearly one size; within one block those that have pairs above the diagonal.

    >>> [(i.start, j.start) for i, j in tiles(1000, 1000, 512, same=True)]
    [(0, 0), (0, 500), (500, 500)]
    """
    for top, end in grains(0, others, most):
        for first, last in grains(0, rows, most):
            if not same or first < end - 1:
                yield slice(first, last), slice(top, end)
