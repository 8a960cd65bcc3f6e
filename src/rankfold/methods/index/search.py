"""Neighbors of queries in an index: queries are compared with the partitions that they probe.

A query probes the partitions of its nearest centers: as many as are asked for, or all that may hold a
neighbor. A panel of queries is searched at a time: adjacent partitions are read at once, and each is compared
with all queries of the panel that probe it. The probed partitions follow from the query, the index and their
number, and distances are exact. So a list depends on no other query.

An exact search probes all partitions that may hold a neighbor. By the triangle inequality, the rows of a
partition are at least as far as its center, less its radius. The nearest partitions are searched first: they
give the distance up to which others may hold a neighbor. A fold is the work of a sweep (one run through the
queries) on each panel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import EMPTY, merge_lists, sort_lists
from rankfold.kernels.neighbors.meeting import Lists as NearLists
from rankfold.kernels.neighbors.meeting import Rows
from rankfold.methods.index.layout import at_once, may_be_near, taken
from rankfold.methods.knn.pair_fold import BufferPool
from rankfold.methods.knn.row_blocks import BlockReader
from rankfold.methods.knn.write_lists import require_sound, write_lists
from rankfold.methods.partitions.files import ID, Lists
from rankfold.methods.partitions.layout import pieces_of
from rankfold.methods.partitions.meet_all import let_meet, meeting_room
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Constant, DeclaredFold, Given, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

FIRST_PROBES = 4
"""Number of partitions that each query is compared with before others are ruled out."""


class Where(NamedTuple):
    """Destination of finished lists: ``result``, the path of a result, or ``lists``, intermediate files."""

    result: Path | None = None
    lists: Lists | None = None


@dataclass(frozen=True, slots=True)
class SearchIndex(DeclaredFold):
    """Fold that finds the ``k`` nearest rows of an index for each query; a panel is the queries at a time."""

    cut: Cut
    """Cut of the queries into panels, which are searched at a time."""

    queries: BlockReader
    index: BlockReader
    ids: Source
    """(m, 1) number in the indexed matrix of each row of the index."""

    part: Path
    """Path of a checkpoint file with ``centers``, ``edges`` and ``radii`` of the partitions."""

    reads: Int64
    """Edges of the runs of rows of the index that are read at once: see ``reads_of``."""

    partitions: int
    together: int
    """Largest number of partitions that are read at once."""

    k: int
    probes: int
    """Number of partitions, those of its nearest centers, that each query is compared with."""

    exact: bool
    """True if queries are also compared with all other partitions that are not ruled out."""

    where: Where
    slots: int = 1
    row_seconds: float = 1e-5

    kernels = (merge_lists, sort_lists)

    def buffers(self) -> Mapping[str, Buffer]:
        """Centers, edges and radii of partitions; lists and probes of queries; numbers of the rows read.

        ``centers`` (partitions, n), ``edges`` (partitions + 1,), ``radii`` (partitions,), ``reads``; ``keys``
        and ``neighbors`` (queries, k), ``probed`` (queries, probes); ``ids`` (rows read, 1).
        """
        count, rows = self.partitions, self.cut.panel_rows
        return {
            "centers": Constant((count, self.index.columns), self.index.dtype, self.part),
            "edges": Constant((count + 1,), ID, self.part),
            "radii": Constant((count,), part=self.part),
            "reads": Given.of(self.reads),
            "keys": Buffer((rows, self.k)),
            "neighbors": Buffer((rows, self.k), ID),
            "probed": Buffer((rows, self.probes), np.dtype(np.int32)),
            "ids": Buffer((self.read_rows, 1), ID),
        }

    def sums(self) -> Mapping[str, Sum]:
        """``rows`` (1,) queries searched, ``pairs`` (1,) compared, and ``uncertain`` (1,).

        The last counts how often a query had too few candidates in a partition to be certain, so that its
        distances from all rows there were computed.
        """
        return {"rows": Sum((1,), ID), "pairs": Sum((1,), ID), "uncertain": Sum((1,), ID)}

    @property
    def read_rows(self) -> int:
        """Largest number of rows of the index that are read at once."""
        return int(np.diff(self.reads).max())

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides its buffers: queries, rows of the index, and the comparison of both."""
        rows, n, k = self.cut.panel_rows, self.index.columns, self.k
        some = min(rows, at_once(self.index.columns))
        panel = self.queries.memory_bytes(rows) + self.queries.read_bytes(rows)
        read = self.index.memory_bytes(self.read_rows) + self.index.read_bytes(self.read_rows)
        centers = self.index.memory_bytes(self.partitions)
        places = rows * self.probes * 24 + 16 * self.partitions
        meeting = some * (n * (self.index.dtype.itemsize + 4) + 16 + 5 * 16 * k)
        nearest = some * 16 * self.probes + meeting_room(some, self.partitions, n, self.probes)
        meeting += max(meeting_room(some, self.read_rows, n, k), nearest)
        ruled_out = 3 * some * 8 * n + rows * self.together * 2
        ruled_out += self.together * (3 * 8 * n + 4 * 8 * some)
        written = rows * k * (2 * 16 + 3 * 8)
        return panel + read + centers + places + max(meeting + ruled_out, written)

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate memory for queries and for rows of the index, and prepare the centers for comparison."""
        work = DeclaredFold.workspace(self, device)
        work.panel, work.read = self.queries.buffer(self.cut.panel_rows), self.index.buffer(self.read_rows)
        work.room, work.precise = BufferPool(), False
        work.ready, work.metric = self.index.ready(work.centers), self.index.metric
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Find the nearest rows of queries ``start:stop``, and write their lists."""
        panel, count = self.queries.read(work.panel, start, stop, 0), stop - start
        lists = NearLists(work.keys[:count], work.neighbors[:count], state["uncertain"])
        lists.keys[...], lists.ids[...] = np.inf, EMPTY
        probed = self._nearest(work, panel)
        task = _Panel(self, work, panel, lists, state)
        task.meet(task.chosen(probed))
        # Lists are short where partitions have fewer rows than a list: compare these queries with all others.
        wanted = np.full(count, self.exact) | np.isinf(lists.keys[:, 0])
        if self.probes < self.partitions and wanted.any():
            task.meet(task.possible(probed, wanted))
        sort_lists(lists.keys, lists.ids)
        state["rows"] += count
        self._write(lists, start, stop)

    def _nearest(self, work: Workspace, panel: Rows) -> Array:
        """(queries, probes) partitions of the nearest centers of each query, in no particular order."""
        probed: Array = work.probed[: len(panel)]
        step = at_once(self.index.columns)
        for top in range(0, len(panel), step):
            some = panel.part(top, min(len(panel), top + step))
            shape = len(some), self.probes
            lists = NearLists(np.full(shape, np.inf), np.full(shape, EMPTY), np.zeros(1, np.int64))
            let_meet(self.index, work, some, work.ready, lists)
            probed[top : top + len(some)] = lists.ids
        return probed

    def _write(self, lists: NearLists, start: int, stop: int) -> None:
        if self.where.lists is not None:
            self.where.lists.write(start, lists.keys, lists.ids)
            return
        assert self.where.result is not None  # noqa: S101 - lists go somewhere
        require_sound(lists.keys, lists.ids, start, others=int(self.reads[-1]), itself=False)
        write_lists(self.where.result, lists.keys, lists.ids, (start, stop), graph=True)


Meetings = Iterator[tuple[slice, list[tuple[slice, Int64]]]]
"""Slices of rows of the index to read. Each comes with slices of rows within it, and the indices of the
queries that are compared with these."""


@dataclass(slots=True)
class _Panel:
    """The queries of one step, with their lists of nearest rows so far."""

    fold: SearchIndex
    work: Workspace
    queries: Rows
    lists: NearLists
    state: State

    def chosen(self, probed: Array) -> Meetings:
        """Yield the rows to read, and the queries to compare with them, in the order of the index.

        ``probed`` (queries, probes) are the partitions that each query is compared with.
        """
        order = np.argsort(probed, axis=None, kind="stable")
        edges = np.searchsorted(probed.reshape(-1)[order], np.arange(self.fold.partitions + 1))
        order //= self.fold.probes
        for pieces in self._reads():
            some = [(places, order[edges[p] : edges[p + 1]]) for p, places in pieces]
            yield from _together(some)

    def possible(self, probed: Array, wanted: npt.NDArray[np.bool_]) -> Meetings:
        """Yield the rows to read of partitions that may still hold neighbors, and the queries to compare.

        ``probed`` (queries, probes) are partitions that are left out, since queries were compared with them;
        ``wanted`` (queries,) is True for the queries to compare.
        """
        for pieces in self._reads():
            first, last = pieces[0][0], pieces[-1][0] + 1
            near = may_be_near(self.work, (first, last), self.queries, self.lists.keys[:, 0])
            rows, places = np.nonzero((probed >= first) & (probed < last))
            near[rows, probed[rows, places] - first] = False
            near &= wanted[:, None]
            some = [(places, np.flatnonzero(near[:, p - first])) for p, places in pieces]
            yield from _together(some)

    def _reads(self) -> Iterator[list[tuple[int, slice]]]:
        """Yield, for rows read at once, the partitions or pieces among them: number and slice of rows."""
        for start, stop in zip(self.fold.reads[:-1].tolist(), self.fold.reads[1:].tolist(), strict=True):
            yield pieces_of(self.work.edges, start, stop)

    def meet(self, meetings: Meetings) -> None:
        """Read rows of the index, compare queries with them, and update the lists of these queries."""
        fold, work, step = self.fold, self.work, at_once(self.fold.index.columns)
        for span, some in meetings:
            rows = fold.index.read(work.read, span.start, span.stop, 0)
            ids = work.ids[: span.stop - span.start]
            fold.ids.read_into(ids, (span.start, span.stop), (0, 1))
            for places, queries in some:
                low, high = places.start - span.start, places.stop - span.start
                part = rows.part(low, high)
                part.first = 0
                for top in range(0, len(queries), step):
                    self._meet(queries[top : top + step], part, ids[low:high, 0])

    def _meet(self, some: Int64, rows: Rows, names: Int64) -> None:
        """Compare the queries with the indices ``some`` with ``rows`` of the index, and update their lists.

        ``names`` (rows,) are the numbers of the rows in the indexed matrix, in increasing order.
        """
        lists, k = self.lists, self.fold.k
        mine = lists.keys[some], lists.ids[some]
        keys = np.repeat(mine[0][:, :1], k, axis=1)
        gains = NearLists(keys, np.full(keys.shape, EMPTY), lists.uncertain)
        let_meet(self.fold.index, self.work, taken(self.queries, some, self.work.room), rows, gains)
        self.state["pairs"] += len(some) * len(rows)
        known = gains.ids != EMPTY
        if known.any():
            gains.ids[known] = names[gains.ids[known]]
            merge_lists(*mine, other_keys=gains.keys, other_ids=gains.ids)
            lists.keys[some], lists.ids[some] = mine


def _together(some: list[tuple[slice, Int64]]) -> Meetings:
    """Yield one slice of rows to read, from the first to the last partition with queries, if any has some.

    ``some`` has, for each of adjacent partitions, its slice of rows and the indices of its queries.
    """
    met = [(places, queries) for places, queries in some if len(queries) and places.stop > places.start]
    if met:
        yield slice(met[0][0].start, met[-1][0].stop), met
