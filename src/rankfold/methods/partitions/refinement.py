"""Compare visitors with the rows of partitions, exactly, and keep rows nearer than those in their lists.

A visitor of a partition is a row that is not in it, but has neighbors there. A batch holds the rows of some
partitions and their visitors. If a partition is searched in pieces, each piece has a part of the rows and of
the visitors, which are compared with each other. A fold is the work of a sweep (one run through all
partitions) on each batch.

Before that, one more read of the matrix writes rows sorted by the partitions that they visit. Its fold is the
work on each panel (rows read at a time).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import EMPTY
from rankfold.kernels.neighbors.meeting import Lists as NearLists
from rankfold.methods.knn.row_blocks import BlockReader
from rankfold.methods.partitions.assign import SORTED_BYTES, write_run
from rankfold.methods.partitions.files import ID, PARTITION, Found, Lists, Runs
from rankfold.methods.partitions.meet_all import let_meet, meeting_room
from rankfold.methods.partitions.search import OverPartitions, gather_rows, name_neighbors, write_lists
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, DeclaredFold, ScratchConstant, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Meetings:
    """Positions of the rows of partitions and of rows that visit these, and batches to compare both."""

    cut: Cut
    """Cut of the rows of each partition and its visitors, one partition after the other, into batches."""

    rows: Int64
    """(partitions + 1,) where each partition begins among the rows of all partitions."""

    visitors: Int64
    """(partitions + 1,) where the visitors of each partition begin among those of all partitions."""

    @property
    def ends(self) -> Int64:
        """(partitions + 1,) where each partition begins if its rows and its visitors are counted together."""
        return self.rows + self.visitors

    def partitions(self, start: int, stop: int) -> tuple[int, int]:
        """The first partition of the batch at positions ``start:stop``, and the one after the last."""
        ends = self.ends
        return int(np.searchsorted(ends, start, side="right")) - 1, int(np.searchsorted(ends, stop))

    def spans(self, start: int, stop: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Start and stop of the rows and of the visitors in the batch at positions ``start:stop``.

        A piece of a large partition has an even share of both.
        """
        (first, last), ends = self.partitions(start, stop), self.ends
        whole, below, above = int(ends[last] - ends[first]), start - int(ends[first]), stop - int(ends[first])

        def share(each: Int64) -> tuple[int, int]:
            low, count = int(each[first]), int(each[last] - each[first])
            return low + count * below // whole, low + count * above // whole

        return share(self.rows), share(self.visitors)

    def batch_starts(self) -> Int64:
        """(batches + 1,) where the visitors of each batch begin among those of all batches."""
        panels = self.cut.panels.tolist()
        starts = [self.spans(*each)[1][0] for each in itertools.pairwise(panels)]
        return np.array([*starts, self.visitors[-1]], np.int64)


@dataclass(frozen=True, slots=True)
class SearchVisits(OverPartitions):
    """Fold that compares rows with those of partitions that they visit, and writes nearer ones found.

    A row visits partitions that hold its neighbors, not itself.
    """

    reader: BlockReader
    """Reader that prepares rows for comparison; it reads none from the matrix here."""

    meetings: Meetings
    runs: Runs
    """Files of the rows in partitions, sorted by partition within each panel of the matrix."""

    visitors: Runs
    run_starts: tuple[Int64, Int64]
    """(panels + 1,) positions in ``runs`` and in ``visitors`` at which the rows of each panel begin."""

    found: Found
    k: int
    list_edges: Int64
    """(panels + 1,) edges of the panels of rows whose lists will be merged at a time."""

    slots: int = 1
    row_seconds: float = 1e-5

    @property
    def cut(self) -> Cut:
        """Cut of rows and visitors into batches of partitions."""
        return self.meetings.cut

    def buffers(self) -> Mapping[str, Buffer]:
        """Rows of a batch and their visitors, and where partitions begin in each run.

        ``raw`` (rows, n) and ``ids`` (rows, 1), rows of partitions before visitors; of visitors ``farthest``
        (rows, 1), ``keys`` and ``neighbors`` (rows, k); ``index`` and ``visitor_index`` (panels, partitions +
        1).
        """
        rows, n = self.cut.panel_rows + 1, self.reader.columns
        return {
            "ids": Buffer((rows, 1), ID),
            "farthest": Buffer((rows, 1)),
            "index": ScratchConstant.of(self.runs.index),
            "visitor_index": ScratchConstant.of(self.visitors.index),
            "keys": Buffer((rows, self.k)),
            "neighbors": Buffer((rows, self.k), ID),
            "raw": Buffer((rows, n), self.reader.dtype),
        }

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides its buffers: reading rows of a run, prepared rows, and lists in order."""
        rows, n = self.cut.panel_rows, self.reader.columns
        run = rows * (n * self.reader.dtype.itemsize + 16)
        ready = rows * (4 * n * self.reader.copies + 4 * 8)
        step = 2 * 2**20 + 2 * 8 * n
        lists = rows * (16 * self.k + 6 * 8)
        return max(run, ready + step + lists) + lists + meeting_room(rows, rows, n, self.k)

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Read the batch at positions ``start:stop``, compare visitors with rows, and write their lists."""
        first, last = self.meetings.partitions(start, stop)
        rows, visitors = self.meetings.spans(start, stop)
        count, guests = rows[1] - rows[0], visitors[1] - visitors[0]
        self._gather(work, rows, visitors)
        keys, neighbors = work.keys[:guests], work.neighbors[:guests]
        keys[...], neighbors[...] = work.farthest[:guests], EMPTY
        for partition in range(first, last):
            some = _part(self.meetings.rows, partition, rows)
            others = _part(self.meetings.visitors, partition, visitors)
            if some.stop > some.start and others.stop > others.start:
                self._meet(state, work, some, others, count)
        batch = int(np.searchsorted(self.cut.panels, start))
        ids = work.ids[count : count + guests, 0]
        write_lists(self.found, (batch, visitors[0]), ids, (keys, neighbors), self.list_edges)

    def _gather(self, work: Workspace, rows: tuple[int, int], visitors: tuple[int, int]) -> None:
        """Read the rows of partitions, then their visitors, into the buffers."""
        count, meetings = rows[1] - rows[0], self.meetings
        pieces = [(work.raw, self.runs.rows), (work.ids, self.runs.ids)]
        gather_rows(work.room, pieces, work.index, meetings.rows, rows, self.run_starts[0])
        guests = self.visitors
        pieces = [
            (work.raw[count:], guests.rows),
            (work.ids[count:], guests.ids),
            (work.farthest, guests.farthest),
        ]
        gather_rows(work.room, pieces, work.visitor_index, meetings.visitors, visitors, self.run_starts[1])

    def _meet(self, state: State, work: Workspace, some: slice, others: slice, count: int) -> None:
        """Compare the visitors of a partition with its rows, and update the lists of the visitors.

        ``some`` and ``others`` are slices of its rows and visitors; in the buffers, visitors follow ``count``
        rows.
        """
        raw = work.raw[some], work.raw[count + others.start : count + others.stop]
        ready = [self.ready(work, name, each) for name, each in zip(("copy", "visitors"), raw, strict=True)]
        lists = NearLists(work.keys[others], work.neighbors[others], state["uncertain"])
        let_meet(self.reader, work, ready[1], ready[0], lists)
        state["pairs"] += len(raw[0]) * len(raw[1])
        name_neighbors(lists, work.ids[some, 0])


def _part(ends: Int64, partition: int, span: tuple[int, int]) -> slice:
    """Slice of the rows of a batch that belong to a partition; empty if none do.

    The batch is positions ``span`` (start and stop) among the rows of all partitions, which begin at ``ends``
    (partitions + 1,).
    """
    low, high = max(span[0], int(ends[partition])), min(span[1], int(ends[partition + 1]))
    return slice(low - span[0], max(low, high) - span[0])


@dataclass(frozen=True, slots=True)
class PlaceVisitors(DeclaredFold):
    """Fold that writes rows, panel by panel, sorted by the partitions that they visit, and counts them.

    A panel is the rows that are read at a time. A row visits partitions that hold its neighbors, not itself.
    """

    reader: BlockReader
    cut: Cut
    visits: ScratchMatrix
    """(rows, visits) partitions that each row visits."""

    runs: Runs
    before: Lists
    """Lists of neighbors that rows have so far."""

    slots: int = 1
    row_seconds: float = 1e-6

    def buffers(self) -> Mapping[str, Buffer]:
        """``visits`` (rows, visits), the partitions that each row of a panel visits."""
        return {"visits": Buffer((self.cut.panel_rows, self.visits.columns), PARTITION)}

    def sums(self) -> Mapping[str, Sum]:
        """``counts`` (partitions,), the number of rows that visit each partition."""
        return {"counts": Sum((self.runs.index.columns - 1,), np.dtype(np.int64))}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step: rows of a panel, their order by partition, some of them in order, and lists."""
        rows, n = self.cut.panel_rows, self.reader.columns
        panel = self.reader.memory_bytes(rows) + self.reader.read_bytes(rows)
        order = rows * self.runs.each * 8 * 8 + 2 * max(SORTED_BYTES, n * self.reader.dtype.itemsize)
        return panel + order + rows * 8 * (self.before.keys.columns + 1)

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate a panel (rows read at a time)."""
        work = DeclaredFold.workspace(self, device)
        work.panel = self.reader.buffer(self.cut.panel_rows)
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Read rows ``start:stop``, and write each to ``runs`` once for every partition that it visits.

        Adds to ``counts`` in ``state``.
        """
        panel = self.reader.read(work.panel, start, stop, 0)
        visits = work.visits[: stop - start]
        self.visits.read_into(visits, start)
        number = int(np.searchsorted(self.cut.panels, start))
        state["counts"] += write_run(self.runs, (number, start), panel, visits, self.before)
