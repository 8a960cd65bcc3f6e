"""Exact nearest neighbors between two blocks of rows: the step of a sweep over pairs of blocks.

A task holds a group of blocks in memory, and other blocks pass one by one. Rows are read on the host and
brought to the device that compares them; see ``kernels/neighbors/meeting.py`` for the comparison. Lists are
exact after each pair of blocks: there is nothing to certify at the end. A fold is the work of a sweep over
pairs of blocks (runs of rows) on each pair.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import aligned_empty
from rankfold.kernels.neighbors.bounds import TERMS, tiles
from rankfold.kernels.neighbors.lists import (
    BY_PRODUCTS,
    EMPTY,
    Metric,
    compare_pairs,
    distance,
    exhaust_rows,
    measure_near,
    measure_pairs,
    merge_lists,
    refine_rows,
    scan_pairs,
    sort_lists,
)
from rankfold.kernels.neighbors.lists import in_order as measure_in_order
from rankfold.kernels.neighbors.meeting import (
    PRECISE_TILE,
    TILE,
    Lists,
    Rows,
    double_rows,
    doubles_bytes,
    limit_pairs,
    meet_rows,
    meeting_bytes,
    shortlist_length,
    square_norms,
)
from rankfold.methods.knn.request import METRICS, SET_METRICS
from rankfold.methods.knn.row_blocks import LARGEST_SQUARE, BlockReader, RowBuffer, row_dtype
from rankfold.pipeline.engine.device import HOST, Device, Kernel
from rankfold.pipeline.engine.pairs import Pairs
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.storage.checkpoint import State

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]

MEASURED_TILE = 256
"""Largest number of rows of either side in a tile (pairs compared at a time) for metrics by which every pair
is measured.
"""

FEW_COLUMNS = 16
"""Number of columns below which Euclidean distances of all pairs of rows are measured: products, and bounds
from these, would take longer."""

DTYPES = (np.dtype(np.float64), np.dtype(np.float32))
"""Types of products of rows."""

METRIC_OF_WAY = {"squares": Metric.EUCLIDEAN, "inner": Metric.INNER_PRODUCT}
"""For each way to bound distances by products, see ``way_of``, a metric by which its loops are compiled."""


def has_bounds(metric: int, columns: int) -> bool:
    """True if matrix products bound distances by a metric; else the distance of every pair is computed."""
    euclidean = metric in (Metric.EUCLIDEAN, Metric.SQEUCLIDEAN)
    return metric in BY_PRODUCTS and not (euclidean and columns < FEW_COLUMNS)


@dataclass(slots=True)
class BufferPool:
    """Buffers by name, each kept at the largest size that was asked for."""

    buffers: dict[str, Array] = field(default_factory=dict)

    def array(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Return an uninitialized array in the buffer of this name and type, which is reused."""
        key, size = f"{name} {np.dtype(dtype).name}", math.prod(shape)
        if key not in self.buffers or self.buffers[key].size < size:
            self.buffers.pop(key, None)  # freed before the larger one is allocated
            self.buffers[key] = aligned_empty((size,), dtype)
        return self.buffers[key][:size].reshape(shape)


@dataclass(slots=True)
class PairWorkspace:
    """Rows that one task has in memory: a group of blocks, the block compared with it, and buffers."""

    resident: RowBuffer
    passing: RowBuffer
    precise: bool
    """True if products are made in float64."""

    device: Device = HOST
    shift: npt.NDArray[np.float64] | None = None
    """(columns,) subtracted from rows before they are multiplied, on the device that multiplies; or None."""

    span: tuple[int, int] = (-1, -1)
    """First block in memory, and one past the last."""

    blocks: dict[int, Rows] = field(default_factory=dict)
    """Rows of the blocks in memory, by number of the block."""

    now: Rows | None = None
    """The passing block, which blocks in memory are compared with."""

    largest: dict[int, float] = field(default_factory=dict)
    """Largest squared norm of each block in memory, by its number, and of the passing one, at ``PASSING``."""

    room: BufferPool = field(default_factory=BufferPool)


@dataclass(frozen=True, slots=True)
class NearestPairs:
    """Fold that compares pairs of blocks of dense rows, and keeps the ``k`` nearest of each row.

    See ``PairFold``.
    """

    pairs: Pairs
    left: BlockReader
    """Reader of the rows whose nearest are found."""

    right: BlockReader
    """Reader of the rows among which the nearest are looked for; the same rows unless there are queries."""

    k: int
    metric: int
    function: Callable[..., float] | None
    """A compiled metric of the caller's own, in place of ``metric``."""

    precise: bool
    """True if products are in float64 from the start, because numbers exceed the range of float32."""

    def memory_bytes(self, rows: int) -> int:
        """Upper bound on the bytes of a task that holds ``rows`` rows in memory: buffers, lists, shortlists,
        tiles."""
        tallest, columns, most = self.pairs.tallest(), self.left.columns, shortlist_length(self.k)
        lists = 2 * 8 * self.k
        # Flags of the blocks that each block has been compared with: packed, and a byte for each.
        blocks = 2 * rows * self.pairs.count // int(self.pairs.rows[-1]) + 4
        buffers = self.left.memory_bytes(rows) + self.right.memory_bytes(self.pairs.passing_rows)
        reading = max(self.left.read_bytes(tallest), self.right.read_bytes(tallest))
        list_bytes = (rows + 3 * tallest) * lists + blocks * 2 * len(self.pairs.met)
        if not self.left.bounded:
            # Both sides of a tile, and those of the tile before.
            tile = min(double_rows(columns, MEASURED_TILE), tallest)
            return buffers + list_bytes + reading + 4 * tile * columns * 8
        sides = (min(TILE, tallest), 4), (min(PRECISE_TILE, tallest), 8)
        tiles = sum(rows**2 * item for rows, item in sides) * (1 + (columns > TERMS))
        doubles = doubles_bytes(tallest, columns, self.k)
        shortlists = 2 * tallest * (16 * most + 10 * 8)
        return buffers + list_bytes + reading + tiles + doubles + shortlists

    @property
    def pair_flops(self) -> float:
        """Floating-point operations for the product or the distance of a pair of rows."""
        return 2.0 * self.left.columns * (1 if self.left.bounded else 1.5)

    @property
    def product_bytes(self) -> int:
        """Bytes of a number in products: 4 in float32, 8 in float64."""
        return 4 if self.left.bounded and not self.precise else 8

    def start(self, block: int) -> State:
        """Empty lists for the rows of a block, before it is compared: see ``empty_lists``."""
        return empty_lists(self.pairs, block, self.k)

    def measure(self, row: int, other: int) -> float:
        """Distance of two rows of ``left``, by index, computed as the sweep computes it."""
        x, y = (self.left.read(self.left.buffer(1), index, index + 1, 0) for index in (row, other))
        if self.function is not None:
            return float(self.function(x.raw[0].astype(np.float64), y.raw[0].astype(np.float64)))
        if not self.left.bounded:
            return measure_in_order(x.raw[0].astype(np.float64), y.raw[0].astype(np.float64), self.metric)
        return distance(x.raw[0], y.raw[0], float(x.scale[0]), float(y.scale[0]), metric=self.metric)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernels that run on a device; metrics that products do not bound stay on the host."""
        return (meet_rows,) if self.left.bounded else ()

    resident = frozenset({"keys", "ids", "uncertain"})

    def device_bytes(self, rows: int) -> int:
        """Upper bound on the bytes on a device in a task that holds ``rows`` rows: rows, a block, lists,
        candidates."""
        tallest, columns = self.pairs.tallest(), self.left.columns
        sides = (rows + tallest) * (columns * self.left.dtype.itemsize + 2 * 8)
        lists = (rows + 3 * tallest) * 2 * 8 * self.k
        return sides + lists + meeting_bytes(tallest, columns)

    def workspace(self, rows: int, device: Device = HOST) -> PairWorkspace:
        """Allocate host buffers for a task that holds ``rows`` rows, and copy the shift to the device."""
        shift = None if self.left.shift is None else device.bring(self.left.shift)
        buffers = self.left.buffer(rows), self.right.buffer(self.pairs.passing_rows)
        return PairWorkspace(*buffers, self.precise, device, shift)

    def holds(self, work: PairWorkspace, group: tuple[int, int]) -> bool:
        """True if a group, blocks ``group[0]`` up to ``group[1]``, is in memory."""
        return work.span == group

    def load_resident(self, work: PairWorkspace, group: tuple[int, int]) -> int:
        """Read a group, blocks ``group[0]`` up to ``group[1]``, unless in memory; returns the bytes read."""
        if work.span == group:
            return 0
        work.span, work.blocks, work.now, work.largest = (-1, -1), {}, None, {}
        edges = self.pairs.rows
        first = int(edges[group[0]])
        for block in range(*group):
            start, stop = int(edges[block]), int(edges[block + 1])
            read = self.left.read(work.resident, start, stop, start - first)
            work.blocks[block], work.largest[block] = _bring(work, read), float(read.norms.max())
        work.span = group
        return (int(edges[group[1]]) - first) * self.left.bytes_to_read

    def load_passing(self, work: PairWorkspace, block: int, group: tuple[int, int]) -> int:
        """Read a block to compare with the held group, or find it in the group; returns the bytes read."""
        if self.pairs.others is None and block in work.blocks:
            work.now, work.largest[PASSING] = work.blocks[block], work.largest[block]
            return 0
        start, stop = int(self.pairs.met[block]), int(self.pairs.met[block + 1])
        work.now = None
        read = self.right.read(work.passing, start, stop, 0)
        work.now, work.largest[PASSING] = _bring(work, read), float(read.norms.max())
        return (stop - start) * self.right.bytes_to_read

    def accumulate(
        self, work: PairWorkspace, block: int, state: State, other: int, other_state: State | None
    ) -> None:
        """Compare a held block with the passing one, and update the lists of nearest rows of both, in place.

        ``block`` and ``other`` are the numbers of the two blocks, ``state`` and ``other_state`` their lists.
        ``other_state`` is None if the passing block has no lists of its own, or is the held one itself.
        """
        x, y = work.blocks[block], work.now
        assert y is not None  # noqa: S101 - load_passing came before
        same = self.pairs.others is None and block == other
        if not self.left.bounded:
            self._measure(work, x, state, y, state if same else other_state, same=same)
            return
        wild = max(work.largest[block], work.largest[PASSING]) > LARGEST_SQUARE
        work.precise |= meet_rows(
            x,
            y,
            lists_i=lists_of(state),
            lists_j=None if other_state is None else lists_of(other_state),
            metric=self.metric,
            shift=work.shift,
            same=same,
            precise=work.precise or wild,
            room=work.room.array,
        )

    def _measure(
        self, work: PairWorkspace, x: Rows, state: State, y: Rows, other_state: State | None, *, same: bool
    ) -> None:
        """Compute the distances of all pairs of rows ``x`` and ``y`` of two blocks, without products.

        Updates the lists of ``x`` in ``state`` and of ``y`` in ``other_state``, in place. ``same`` is True if
        both are one block.
        """
        none = np.full((len(y), 1), -np.inf), np.zeros((len(y), 1), np.int64)
        keys_j, ids_j = none if other_state is None else (other_state["keys"], other_state["ids"])
        for i, j in tiles(len(x), len(y), double_rows(x.raw.shape[1], MEASURED_TILE), same=same):
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
        """Measure pairs of rows ``a`` and ``b`` by the caller's own metric, and update ``lists`` in place.

        ``lists`` and ``where`` are arguments of ``compare_pairs``. Errors of the metric are raised as
        ``DataError``.
        """
        assert self.function is not None  # noqa: S101
        try:
            compare_pairs(a, b, function=self.function, **lists, **where)
        except (ArithmeticError, AssertionError, LookupError, ValueError) as error:
            raise DataError(f"the metric failed: {type(error).__name__}: {error}") from error


def empty_lists(pairs: Pairs, block: int, k: int) -> State:
    """Accumulator of a block before any comparison: ``keys`` and ``ids`` (rows, k), ``uncertain`` (1,).

    Keys are distances, infinite here, ids are indices of neighbors, ``EMPTY`` here; for ``uncertain`` see
    ``kernels.neighbors.meeting.Lists``.
    """
    rows = int(pairs.rows[block + 1] - pairs.rows[block])
    return {
        "keys": np.full((rows, k), np.inf),
        "ids": np.full((rows, k), EMPTY, np.int64),
        "uncertain": np.zeros(1, np.int64),
    }


def lists_of(state: State) -> Lists:
    """Lists in the accumulator of a block (keys, ids, uncertain), which kernels update in place."""
    return Lists(state["keys"], state["ids"], state["uncertain"])


PASSING = -1
"""Key of the passing block, in place of the number of a block."""


def _bring(work: PairWorkspace, rows: Rows) -> Rows:
    """Copy rows to the device of the task; there the device itself makes the copy for products."""
    raw, norms, scale = (work.device.bring(each) for each in (rows.raw, rows.norms, rows.scale))
    return Rows(rows.first, raw, rows.copy, norms, scale, rows.leading)


def way_of(metric: str, columns: int) -> str:
    """Name the way in which distances of rows are found.

    Returns
    -------
    str
        ``"squares"`` or ``"inner"``: products of rows bound squared distances or inner products; ``"pairs"``:
        every pair is measured; ``"function"``: a function of the caller, or distances that are given.
    """
    if metric in SET_METRICS:
        return "pairs"
    if metric not in METRICS:  # or distances that are given
        return "function"
    if not has_bounds(METRICS[metric], columns):
        return "pairs"
    return "inner" if METRICS[metric] == Metric.INNER_PRODUCT else "squares"


@functools.cache
def warm_lists(dtype: np.dtype[Any], way: str, others: np.dtype[Any]) -> None:
    """Run once the compiled loops that compare rows stored as ``dtype`` with rows stored as ``others``.

    ``way`` is a name that ``way_of`` returns.
    """
    keys, ids = np.full((4, 2), np.inf), np.full((4, 2), -1)
    if way in METRIC_OF_WAY:
        _warm_bounds((row_dtype(dtype), row_dtype(others)), METRIC_OF_WAY[way], keys, ids)
    elif way == "pairs":
        wide, pair = np.zeros((4, 4)), {"keys_i": keys, "ids_i": ids, "keys_j": keys, "ids_j": ids}
        measure_pairs(wide, wide, metric=0, **pair, first_i=0, first_j=0, diagonal=1)
    merge_lists(keys, ids, other_keys=keys, other_ids=ids)
    sort_lists(keys, ids)


def _warm_bounds(
    dtypes: tuple[np.dtype[Any], np.dtype[Any]],
    metric: int,
    keys: np.ndarray[Any, Any],
    ids: np.ndarray[Any, Any],
) -> None:
    (x, y), one = (np.zeros((4, 4), each) for each in dtypes), np.ones(4)
    measuring: dict[str, Any] = {"metric": metric, "first": 0, "keys": keys, "ids": ids}
    # Products are in float64 as well, where those of float32 leave too much open.
    for kind in DTYPES:
        near, tile = np.ones(4, kind), np.zeros((4, 4), kind)
        bounds, places = np.full((4, 3), np.inf, kind), np.full((4, 3), -1, np.int32)
        lists = {"bounds_i": bounds, "places_i": places, "bounds_j": bounds, "places_j": places}
        limit_pairs(tile, near, near, bounds_i=bounds, bounds_j=bounds, diagonal=1)
        scan_pairs(tile, near, near, **lists, first_i=0, first_j=0, diagonal=1)
    for each in (x, y):
        square_norms(each, out=np.empty(4))
    refine_rows(x, y, one, one, bounds=bounds, places=places, **measuring)
    near, tile = np.ones(4, np.float32), np.zeros((4, 4), np.float32)
    sides: dict[str, Any] = {"keys_i": keys, "ids_i": ids, "keys_j": keys, "ids_j": ids}
    where: dict[str, Any] = {"first_i": 0, "first_j": 0, "diagonal": 1}
    z = np.zeros((4, 2), np.float32)
    measure_near(tile, near, near, z, z, x, y, one, one, leading=1, metric=metric, **sides, **where)
    exhaust_rows(np.zeros((4, 4)), one, one, x, y, one, one, own=np.arange(4), **measuring)
