"""Ranks of given neighbors by counting: passes over a matrix, for some of its rows that are held.

A first pass measures the distances of the given neighbors, which are the thresholds. A second pass reads all
rows, and counts those that come before each threshold. Bounds from products settle most pairs, as in a search
for neighbors; pairs that they leave open are measured. Counts are integers, so that results do not depend on
cuts, threads and order.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import aligned_empty
from rankfold.kernels.neighbors.bounds import TERMS
from rankfold.kernels.neighbors.lists import Metric, sort_lists
from rankfold.kernels.neighbors.meeting import Rows, square_norms
from rankfold.kernels.neighbors.ranking import TILE, Thresholds, rank_rows, ranking_bytes
from rankfold.kernels.neighbors.ranks import count_every_pair, count_nearer, measure_keys
from rankfold.methods.knn.pair_fold import DTYPES, METRIC_OF_WAY, way_of
from rankfold.methods.knn.row_blocks import LARGEST_SQUARE, BlockReader, RowBuffer, row_dtype
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device, Kernel
from rankfold.pipeline.engine.fold import Buffer, DeclaredFold, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State, load_arrays
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

OPEN = 0.05
"""Share of pairs of rows that bounds by float32 products leave open, above which products are made in
float64."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows ``start:stop`` that are held in memory together; a process reads them once for all its threads."""

    reader: BlockReader
    start: int
    stop: int
    name: str
    """Key by which threads of a process find the group if it is in memory; unique to a run and these rows."""

    @property
    def count(self) -> int:
        """Number of rows of the group."""
        return self.stop - self.start

    def memory_bytes(self, step: int) -> int:
        """Bytes of the rows in memory, and of reading ``step`` of them at a time."""
        return self.reader.memory_bytes(self.count) + self.reader.read_bytes(min(step, self.count))

    def rows(self, step: int) -> ResidentRows:
        """The rows in memory; reads them, ``step`` at a time, unless another thread has done so."""
        with _LOCK:
            resident = _RESIDENT_ROWS.get(self.name)
            if resident is None:
                resident = _RESIDENT_ROWS[self.name] = ResidentRows(self._read(step))
            return resident

    def _read(self, step: int) -> Rows:
        reader, buffer = self.reader, self.reader.buffer(self.count)
        if reader.lent:
            return reader.read(buffer, self.start, self.stop, 0)
        for top in range(self.start, self.stop, step):
            reader.read(buffer, top, min(top + step, self.stop), top - self.start)
        copy = buffer.raw if reader.bounded and not reader.copies else buffer.copy
        return Rows(self.start, buffer.raw, copy, buffer.norms, buffer.scale)


@dataclass(slots=True, weakref_slot=True)
class ResidentRows:
    """Rows in memory that threads of a process share, as long as one of them refers to these."""

    rows: Rows


_LOCK = threading.Lock()
_RESIDENT_ROWS: weakref.WeakValueDictionary[str, ResidentRows] = weakref.WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class GatherRows(DeclaredFold):
    """Fold that writes ``source``, which are some rows of a matrix, to a store of their own at ``path``."""

    cut: Cut
    """Panels (rows read at once) of ``source``, which are whole chunks of the new store."""

    source: Source
    path: Path
    row_seconds: float
    slots: int = 1

    def buffers(self) -> Mapping[str, Buffer]:
        """``rows`` (panel rows, columns): the rows that were read."""
        return {"rows": Buffer((self.cut.panel_rows, self.source.shape[1]), self.source.dtype)}

    def sums(self) -> Mapping[str, Sum]:
        """``rows`` (1,): number of rows that were written."""
        return {"rows": Sum((1,), np.dtype(np.int64))}

    @property
    def temporary_bytes(self) -> int:
        """Additional bytes of a step: the last chunk filled up to full length, and buffers to read."""
        rows, columns = self.cut.panel_rows, self.source.shape[1]
        return rows * columns * self.source.dtype.itemsize + self.source.read_bytes(rows, columns)

    def read(self, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Read rows ``start:stop`` of ``source`` into ``work.rows``."""
        self.source.read_into(work.rows[: stop - start], (start, stop), (0, self.source.shape[1]))

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Write rows ``start:stop`` from ``work.rows`` to the new store, and count them in ``state``."""
        write_whole_chunks(self.path, work.rows[: stop - start], (start, stop), (0, self.source.shape[1]))
        state["rows"] += stop - start


@dataclass(slots=True)
class RankWorkspace:
    """Held rows, buffers of the passing rows, and device of a segment (the unit of work of a worker).

    ``thresholds`` are the arrays of the file ``MeetRows.thresholds``, ``now`` is the panel that passes,
    ``shift`` (d,) is subtracted from rows before products or None, and ``room`` holds the buffers of
    ``array``.
    """

    resident: ResidentRows
    rows: Rows
    """The held rows on the device."""

    passing: RowBuffer
    device: Device
    shift: Float64 | None
    thresholds: State = field(default_factory=dict)
    now: Rows | None = None
    largest: float = 0.0
    """Largest squared norm of the passing rows."""

    precise: bool = False
    """True if products are made in float64."""

    room: dict[str, Array] = field(default_factory=dict)

    def array(self, name: str, shape: tuple[int, int], dtype: npt.DTypeLike) -> Array:
        """Return an uninitialized array, in the reused buffer for this name and type."""
        key, size = f"{name} {np.dtype(dtype).name}", shape[0] * shape[1]
        if key not in self.room or self.room[key].size < size:
            self.room[key] = aligned_empty((size,), dtype)
        return self.room[key][:size].reshape(shape)

    def be_precise(self) -> None:
        """Make products in float64 from now on."""
        self.precise = True


@dataclass(frozen=True, slots=True)
class MeetRows:
    """Base of two folds: a group of rows stays in memory while all rows of a matrix pass by in panels."""

    cut: Cut
    passing: BlockReader
    group: RowGroup
    thresholds: Path
    """Path of a file with arrays on the neighbors of the held rows: see the subclasses."""

    k: int
    by_lanes: bool
    """True if matrix products bound distances, and exact distances are sums by lanes, see
    ``kernels/neighbors/lists.py``; False if all pairs are measured element by element."""

    row_seconds: float
    precise: bool = False
    slots: int = 1

    @property
    def memory_bytes(self) -> int:
        """Bytes of one segment (unit of work of a worker), besides the held rows."""
        tall = self.cut.panel_rows
        names = self.group.count * self.k * 8 * 8
        return self.passing.memory_bytes(tall) + self.passing.read_bytes(tall) + names + self._tiles

    @property
    def _tiles(self) -> int:
        return 0

    @property
    def resident_bytes(self) -> int:
        """Bytes of the held rows, which the threads of a process share."""
        return self.group.memory_bytes(self.cut.panel_rows)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Empty: no kernel runs on a device."""
        return ()

    @property
    def resident(self) -> frozenset[str]:
        """Empty: all sums stay on the host."""
        return frozenset()

    @property
    def device_bytes(self) -> int:
        """0: nothing runs on a device."""
        return 0

    def workspace(self, device: Device = HOST) -> RankWorkspace:
        """Allocate the buffers; the held rows are read unless another thread has them."""
        resident, shift = self.group.rows(self.cut.panel_rows), self.group.reader.shift
        thresholds = load_arrays(self.thresholds)
        return RankWorkspace(
            resident,
            _bring(device, resident.rows),
            self.passing.buffer(self.cut.panel_rows),
            device,
            None if shift is None else device.bring(shift),
            {name: device.bring(each) for name, each in thresholds.items()},
            precise=self.precise,
        )

    def read(self, work: RankWorkspace, start: int, stop: int, slot: int) -> None:
        """Read the passing rows ``start:stop`` into ``work.now``, on the device of ``work``."""
        work.now = None
        rows = self.passing.read(work.passing, start, stop, 0)
        work.now, work.largest = _bring(work.device, rows), float(rows.norms.max())


@dataclass(frozen=True, slots=True)
class MeasureThresholds(MeetRows):
    """Fold that measures the distances of the held rows from their given neighbors.

    The file ``thresholds`` has ``passing``, (rows * k,) sorted indices of these neighbors among the passing
    rows, and ``places``, the index of each in the flat array of distances, (rows * k,).
    """

    def start(self) -> State:
        """Sums of a stream: ``keys`` (rows * k,), distances, infinite until they are measured."""
        return {"keys": np.full(self.group.count * self.k, np.inf)}

    def step(self, state: State, work: RankWorkspace, start: int, stop: int, slot: int) -> None:
        """Write distances of held rows from their neighbors among rows ``start:stop`` to ``state``."""
        rows, resident_rows = work.now, work.resident.rows
        assert rows is not None  # noqa: S101 - read came before
        neighbors = work.thresholds["passing"]
        first, last = (int(np.searchsorted(neighbors, row)) for row in (start, stop))
        places = work.thresholds["places"][first:last]
        state["keys"][places] = measure_keys(
            resident_rows.raw,
            rows.raw,
            resident_rows.scale,
            rows.scale,
            metric=self.passing.metric,
            by_lanes=self.by_lanes,
            rows=places // self.k,
            others=neighbors[first:last] - start,
        )

    def merge(self, total: State, other: State) -> None:
        """Lower ``total`` to ``other``: a distance is measured in one stream, and infinite in others."""
        np.minimum(total["keys"], other["keys"], out=total["keys"])


@dataclass(frozen=True, slots=True)
class CountNearer(MeetRows):
    """Fold that counts, for each neighbor (threshold) of each held row, the rows that are nearer to the row.

    The file ``thresholds`` has ``keys`` (values that order rows as distances do) and ``ids`` of neighbors,
    (rows, k) sorted, and ``own`` (rows,), the ids of the held rows. An id is a row number of the matrix.
    """

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernels that run on a device; metrics that products do not bound stay on the host."""
        return (rank_rows,) if self.by_lanes else ()

    @property
    def resident(self) -> frozenset[str]:
        """Names of the sums that lie on the device."""
        return frozenset({"counts", "measured"} if self.by_lanes else ())

    @property
    def device_bytes(self) -> int:
        """Upper bound on bytes on a device: rows, stored and multiplied, thresholds, counts, products."""
        columns, (resident, passing) = self.passing.columns, (self.group.count, self.cut.panel_rows)
        row = columns * (self.passing.dtype.itemsize + 4 * self.group.reader.copies) + 2 * 8
        names = resident * (3 * 8 * self.k + 8)
        return (resident + passing) * row + names + ranking_bytes(resident, passing, columns, self.k)

    @property
    def _tiles(self) -> int:
        columns = self.passing.columns
        if not self.by_lanes:
            return 2 * sum(TILE) * columns * 8 + 2**20
        doubles = 2 * sum(TILE) * columns * 8 + 8 * sum(TILE) * 8
        return TILE[0] * TILE[1] * (4 + 8) * (1 + (columns > TERMS)) + doubles + 2 * 8 * TILE[0] * self.k

    def start(self) -> State:
        """Zeros: ``counts`` (rows, k) of nearer rows, and ``measured`` (1,), the pairs measured exactly."""
        return {"counts": np.zeros((self.group.count, self.k), np.int64), "measured": np.zeros(1, np.int64)}

    def step(self, state: State, work: RankWorkspace, start: int, stop: int, slot: int) -> None:
        """Add to ``state``, for each threshold, the number of rows ``start:stop`` that come before it."""
        rows = work.now
        assert rows is not None  # noqa: S101 - read came before
        if not self.by_lanes:
            self._measure(state, work, rows)
            return
        wild = max(work.largest, float(work.resident.rows.norms.max())) > LARGEST_SQUARE
        measured = state["measured"].copy()
        rank_rows(
            work.rows,
            rows,
            thresholds=Thresholds(*(work.thresholds[name] for name in Thresholds._fields)),
            counts=state["counts"],
            measured=state["measured"],
            metric=self.passing.metric,
            shift=work.shift,
            precise=work.precise or wild,
            room=work.array,
        )
        few = state["measured"] - measured <= OPEN * len(rows) * len(work.rows)
        work.device.holds(few.all(), work.be_precise)

    def merge(self, total: State, other: State) -> None:
        """Add the counts ``other`` of one stream to ``total``, in place."""
        total["counts"] += other["counts"]
        total["measured"] += other["measured"]

    def _measure(self, state: State, work: RankWorkspace, rows: Rows) -> None:
        """Measure all pairs with the passing ``rows`` and count them, where products bound no distance."""
        for top in range(0, len(rows), TILE[1]):
            others = rows.part(top, min(len(rows), top + TILE[1]))
            for start in range(0, len(work.rows), TILE[0]):
                some = slice(start, min(len(work.rows), start + TILE[0]))
                count_every_pair(
                    work.rows.raw[some].astype(np.float64),
                    others.raw.astype(np.float64),
                    metric=self.passing.metric,
                    first=others.first,
                    counts=state["counts"][some],
                    **{name: work.thresholds[name][some] for name in ("own", "keys", "ids")},
                )


def _bring(device: Device, rows: Rows) -> Rows:
    """Copy rows to a device, with the copy of them that is multiplied."""
    raw, norms, scale = (device.bring(each) for each in (rows.raw, rows.norms, rows.scale))
    copy = raw if rows.copy is rows.raw else None if rows.copy is None else device.bring(rows.copy)
    return Rows(rows.first, raw, copy, norms, scale)


def warm_quality(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loops that rank rows of type ``dtype`` by the metric of ``request`` once."""
    _warm_ranks(dtype, way_of(request["metric"], shape[1]))


@functools.cache
def _warm_ranks(dtype: np.dtype[Any], way: str) -> None:
    x, one, at = np.zeros((4, 4), row_dtype(dtype)), np.ones(4), np.arange(4)
    thresholds: dict[str, Any] = {
        "own": at,
        "first": 0,
        "keys": np.ones((4, 2)),
        "ids": np.zeros((4, 2), np.int64),
    }
    counts = np.zeros((4, 2), np.int64)
    metric = METRIC_OF_WAY.get(way, Metric.EUCLIDEAN)
    if way in METRIC_OF_WAY:
        square_norms(x, out=np.empty(4))
        for kind in DTYPES:
            bound = (np.ones(4, kind), np.ones(4, kind))
            tile = np.zeros((4, 4), kind)
            count_nearer(tile, bound, bound, x, x, one, one, metric=metric, counts=counts, **thresholds)
    else:
        count_every_pair(np.zeros((4, 4)), np.zeros((4, 4)), metric=0, counts=counts, **thresholds)
    measure_keys(x, x, one, one, metric=metric, by_lanes=way in METRIC_OF_WAY, rows=at, others=at)
    sort_lists(np.zeros((4, 2)), np.zeros((4, 2), np.int64))
