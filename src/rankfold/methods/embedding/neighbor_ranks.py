"""Ranks of given neighbors by counting: what a pass over a matrix adds to the counts of some rows of it.

The rows are held, the matrix passes by. First the pass meets the rows that are named and measures how far
they are, which makes thresholds; then it meets all rows, and counts those that come before each threshold.
Bounds from products settle most pairs, as in a search for neighbors; what they leave open is measured.
Counts are integers, so that cuts, threads and order do not show.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.bounds import TERMS, products, slack
from rankfold.kernels.neighbors.lists import Metric
from rankfold.kernels.neighbors.meeting import Rows, doubles
from rankfold.kernels.neighbors.ranks import count_every_pair, count_nearer, measure_keys
from rankfold.methods.knn.row_blocks import LARGEST_SQUARE, BlockReader, RowBuffer
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import aligned_empty
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, DeclaredFold, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State, load_arrays
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

TILE = (512, 1024)
"""Rows that are held and rows that pass in one product."""

OPEN = 0.05
"""Share of pairs left open above which products are made in float64."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows that stay in memory together, and how they are read: once in a process, whatever its threads."""

    reader: BlockReader
    start: int
    stop: int
    name: str
    """Name of a run and these rows; no two runs share one."""

    @property
    def count(self) -> int:
        """Rows."""
        return self.stop - self.start

    def memory_bytes(self, step: int) -> int:
        """Memory of the rows, and of reading so many at a time."""
        return self.reader.memory_bytes(self.count) + self.reader.read_bytes(min(step, self.count))

    def rows(self, step: int) -> ResidentRows:
        """The rows, from whoever has them already."""
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
    """Rows that several threads read."""

    rows: Rows


_LOCK = threading.Lock()
_RESIDENT_ROWS: weakref.WeakValueDictionary[str, ResidentRows] = weakref.WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class GatherRows(DeclaredFold):
    """Fold of some rows of a matrix into a store of their own."""

    cut: Cut
    """Panels are whole chunks of the store."""

    source: Source
    path: Path
    row_seconds: float
    slots: int = 1

    def buffers(self) -> Mapping[str, Buffer]:
        """Room for a panel."""
        return {"rows": Buffer((self.cut.panel_rows, self.source.shape[1]), self.source.dtype)}

    def sums(self) -> Mapping[str, Sum]:
        """Rows that were written."""
        return {"rows": Sum((1,), np.dtype(np.int64))}

    @property
    def beside_bytes(self) -> int:
        """The last chunk filled up, and what reading takes."""
        rows, columns = self.cut.panel_rows, self.source.shape[1]
        return rows * columns * self.source.dtype.itemsize + self.source.read_bytes(rows, columns)

    def read(self, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Fetch a panel."""
        self.source.read_into(work.rows[: stop - start], (start, stop), (0, self.source.shape[1]))

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Write it."""
        write_whole_chunks(self.path, work.rows[: stop - start], (start, stop), (0, self.source.shape[1]))
        state["rows"] += stop - start


@dataclass(slots=True)
class RankWorkspace:
    """Buffers of one segment, and the rows that are held."""

    resident: ResidentRows
    passing: RowBuffer
    thresholds: State = field(default_factory=dict)
    now: Rows | None = None
    precise: bool = False
    """Whether products are made in float64."""

    room: dict[str, Array] = field(default_factory=dict)

    def array(self, name: str, shape: tuple[int, int], dtype: npt.DTypeLike) -> Array:
        """A buffer that is made once."""
        key, size = f"{name} {np.dtype(dtype).name}", shape[0] * shape[1]
        if key not in self.room or self.room[key].size < size:
            self.room[key] = aligned_empty((size,), dtype)
        return self.room[key][:size].reshape(shape)


@dataclass(frozen=True, slots=True)
class MeetRows:
    """What both passes share: some rows are held, others pass."""

    cut: Cut
    passing: BlockReader
    group: RowGroup
    thresholds: Path
    """Names of the neighbors of the rows that are held, and what is made of them: see each pass."""

    k: int
    by_lanes: bool
    """Whether products bound distances, which are summed by lanes: see ``kernels/neighbors/lists.py``."""

    row_seconds: float
    precise: bool = False
    slots: int = 1

    @property
    def memory_bytes(self) -> int:
        """Memory of one segment besides the rows that are held."""
        tall = self.cut.panel_rows
        names = self.group.count * self.k * 8 * 8
        return self.passing.memory_bytes(tall) + self.passing.read_bytes(tall) + names + self._tiles

    @property
    def _tiles(self) -> int:
        return 0

    @property
    def resident_bytes(self) -> int:
        """Memory that the threads of a process share."""
        return self.group.memory_bytes(self.cut.panel_rows)

    @property
    def resident(self) -> frozenset[str]:
        """Nothing: these folds run on the host."""
        return frozenset()

    @property
    def device_bytes(self) -> int:
        """None."""
        return 0

    def workspace(self, device: Device = HOST) -> RankWorkspace:
        """Buffers; the rows that are held are read if no other thread has them."""
        rows = self.group.rows(self.cut.panel_rows)
        passing = self.passing.buffer(self.cut.panel_rows)
        return RankWorkspace(rows, passing, load_arrays(self.thresholds), precise=self.precise)

    def read(self, work: RankWorkspace, start: int, stop: int, slot: int) -> None:
        """Fetch the rows that pass."""
        work.now = self.passing.read(work.passing, start, stop, 0)


@dataclass(frozen=True, slots=True)
class MeasureThresholds(MeetRows):
    """Fold of the rows that are named into their distances from the rows that name them.

    ``thresholds`` has ``passing``, the rows of what passes that are named, sorted, and ``places``, where in
    the flat list of thresholds each of them belongs.
    """

    def start(self) -> State:
        """Nothing measured."""
        return {"keys": np.full(self.group.count * self.k, np.inf)}

    def step(self, state: State, work: RankWorkspace, start: int, stop: int, slot: int) -> None:
        """Measure what is named of a panel."""
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
        """Each is measured once, and infinite elsewhere."""
        np.minimum(total["keys"], other["keys"], out=total["keys"])


@dataclass(frozen=True, slots=True)
class CountNearer(MeetRows):
    """Fold of all rows into how many come before each threshold.

    ``thresholds`` has ``keys`` and ``ids`` (rows, k), sorted, and ``own``, the ids of the rows that are held.
    """

    @property
    def _tiles(self) -> int:
        columns = self.passing.columns
        if not self.by_lanes:
            return 2 * sum(TILE) * columns * 8 + 2**20
        doubles = 2 * sum(TILE) * columns * 8 + 8 * sum(TILE) * 8
        return TILE[0] * TILE[1] * (4 + 8) * (1 + (columns > TERMS)) + doubles + 2 * 8 * TILE[0] * self.k

    def start(self) -> State:
        """Nothing counted."""
        return {"counts": np.zeros((self.group.count, self.k), np.int64), "measured": np.zeros(1, np.int64)}

    def step(self, state: State, work: RankWorkspace, start: int, stop: int, slot: int) -> None:
        """Count the rows of a panel."""
        rows, resident_rows = work.now, work.resident.rows
        assert rows is not None  # noqa: S101 - read came before
        accumulate, before = self._count if self.by_lanes else self._measure, int(state["measured"][0])
        for top in range(0, len(rows), TILE[1]):
            others = rows.part(top, min(len(rows), top + TILE[1]))
            for i in range(0, len(resident_rows), TILE[0]):
                accumulate(state, work, slice(i, min(len(resident_rows), i + TILE[0])), others)
        if int(state["measured"][0]) - before > OPEN * len(rows) * len(resident_rows):
            work.precise = True

    def merge(self, total: State, other: State) -> None:
        """Add up."""
        total["counts"] += other["counts"]
        total["measured"] += other["measured"]

    def _measure(self, state: State, work: RankWorkspace, some: slice, others: Rows) -> None:
        count_every_pair(
            work.resident.rows.raw[some].astype(np.float64),
            others.raw.astype(np.float64),
            metric=self.passing.metric,
            first=others.first,
            counts=state["counts"][some],
            **{name: work.thresholds[name][some] for name in ("own", "keys", "ids")},
        )

    def _count(self, state: State, work: RankWorkspace, some: slice, others: Rows) -> None:
        x = work.resident.rows.part(some.start, some.stop)
        wild = max(x.norms.max(), others.norms.max()) > LARGEST_SQUARE
        dtype = np.dtype(np.float64 if work.precise or wild else np.float32)
        tile = work.array("tile", (len(x), len(others)), dtype)
        if dtype == np.float32:
            factors: tuple[Any, Any] = x.copy, others.copy
        else:
            reader = self.group.reader
            factors = doubles(x, reader.metric, reader.shift), doubles(others, reader.metric, reader.shift)
        products(*factors, tile, lambda: work.array("more", tile.shape, dtype))
        (near_i, far_i), (near_j, far_j) = (reaches(rows, self.passing.metric, dtype) for rows in (x, others))
        state["measured"] += count_nearer(
            tile,
            (near_i, near_j),
            (far_i, far_j),
            x.raw,
            others.raw,
            x.scale,
            others.scale,
            metric=self.passing.metric,
            first=others.first,
            counts=state["counts"][some],
            **{name: work.thresholds[name][some] for name in ("own", "keys", "ids")},
        )


def reaches(rows: Rows, metric: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """What each row brings to a lower and to an upper bound: see ``count_nearer``."""
    columns, weight = rows.raw.shape[1], 0 if metric == Metric.INNER_PRODUCT else 1
    share, tiny = slack(columns, dtype), columns * float(np.finfo(dtype).tiny)
    halves = rows.norms / 2
    return ((weight - share) * halves - tiny).astype(dtype), ((weight + share) * halves + tiny).astype(dtype)
