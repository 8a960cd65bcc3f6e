"""Put each row into the partition of its nearest center, and into those of others nearly as near.

Partitions are a function of the rows and the centers alone, however rows are cut and multiplied. A panel
(rows read at a time) is written once, sorted by partition: this is a run. In the first round, the rows whose
true neighbors are wanted are compared with the panel while it is in memory. A fold is the work of a sweep
(one run through the matrix) on each panel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import EMPTY, Metric, merge_lists, sort_lists
from rankfold.kernels.neighbors.meeting import Lists as NearLists
from rankfold.kernels.neighbors.meeting import Rows
from rankfold.kernels.partitions.visits import NONE
from rankfold.methods.knn.pair_fold import BufferPool
from rankfold.methods.knn.row_blocks import BlockReader
from rankfold.methods.partitions.files import Lists, Runs
from rankfold.methods.partitions.layout import REACH
from rankfold.methods.partitions.meet_all import FewRows, let_meet, meeting_room
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Constant, DeclaredFold, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]

SORTED_BYTES = 2**20
"""Bytes of the rows of a panel that are copied at a time, in the order of their partitions."""


@dataclass(frozen=True, slots=True)
class AssignRows(DeclaredFold):
    """Fold that writes the rows of each panel (rows read at a time) sorted by partition, and counts them."""

    reader: BlockReader
    cut: Cut
    centers: Path
    """Checkpoint file with ``centers`` (partitions, n), in the type of the rows."""

    partitions: int
    spill: int
    """Largest number of partitions that a row is put into."""

    runs: Runs
    before: Lists | None
    """Lists of neighbors from earlier rounds of a search, or None."""

    few: FewRows | None
    """Rows that are compared with all others in the first round of a search; else None."""

    slots: int = 1
    row_seconds: float = 1e-5

    kernels = (merge_lists, sort_lists)

    def buffers(self) -> Mapping[str, Buffer]:
        """``centers`` (partitions, n); in the first round also ``few``, rows compared with all others."""
        columns, dtype, part = self.reader.columns, self.reader.dtype, self.centers
        few = {} if self.few is None else {"few": self.few.buffer()}
        return {"centers": Constant((self.partitions, columns), dtype, part), **few}

    def sums(self) -> Mapping[str, Sum]:
        """``counts`` (partitions,) of rows; in the first round also the lists of ``FewRows.sums``."""
        counts = {"counts": Sum((self.partitions,), np.dtype(np.int64))}
        return counts if self.few is None else {**counts, **self.few.sums()}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step: rows of a panel, their nearest centers, rows in order, lists, and comparisons."""
        rows, n = self.cut.panel_rows, self.reader.columns
        k = self.before.keys.columns if self.before is not None else 0
        panel = self.reader.memory_bytes(rows) + self.reader.read_bytes(rows)
        order = rows * self.spill * 8 * 8 + 2 * max(SORTED_BYTES, n * self.reader.dtype.itemsize)
        centers = self.reader.memory_bytes(self.partitions) + 8 * 4 * self.partitions
        meeting = meeting_room(rows, self.partitions, n, self.spill)
        few = 0 if self.few is None else self.few.memory_bytes(rows)
        lists = 3 * rows * 16 * self.spill
        return lists + panel + order + centers + max(meeting, rows * 8 * (k + 1)) + few

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate a panel (rows read at a time), and prepare the centers for comparison with rows."""
        work, reader = DeclaredFold.workspace(self, device), self.reader
        work.panel, work.room = reader.buffer(self.cut.panel_rows), BufferPool()
        work.ready = reader.ready(work.centers)
        work.few_rows = None if self.few is None else reader.ready(work.few)
        work.precise = False
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Put rows ``start:stop`` into partitions, and write them to ``runs`` sorted by partition.

        Adds to ``counts`` in ``state``; in the first round also updates the lists there.
        """
        panel = self.reader.read(work.panel, start, stop, 0)
        known = self._nearest(work, panel)
        number = int(np.searchsorted(self.cut.panels, start))
        state["counts"] += write_run(self.runs, (number, start), panel, known, self.before)
        if self.few is not None:
            self.few.meet(state, work, panel)

    def merge(self, total: State, other: State) -> None:
        """Add ``other``, the counts and lists from other rows of the matrix, to ``total``, in place."""
        total["counts"] += other["counts"]
        if self.few is not None:
            self.few.join(total, other)

    def _nearest(self, work: Workspace, panel: Rows) -> npt.NDArray[np.int32]:
        """(rows, spill) partitions of each row, the nearest first; ``NONE`` where a center is too far."""
        shape = len(panel), self.spill
        lists = NearLists(np.full(shape, np.inf), np.full(shape, EMPTY), np.zeros(1, np.int64))
        let_meet(self.reader, work, panel, work.ready, lists)
        sort_lists(lists.keys, lists.ids)
        squares = lists.keys**2 if self.reader.metric == Metric.EUCLIDEAN else lists.keys
        return np.where(squares <= REACH * squares[:, :1], lists.ids, NONE).astype(np.int32)


def write_run(
    runs: Runs, place: tuple[int, int], panel: Rows, known: npt.NDArray[np.int32], before: Lists | None
) -> Int64:
    """Write the rows of a panel sorted by partition, with the largest distances (keys) of their lists.

    Parameters
    ----------
    runs : Runs
        Files to write into.
    place : (int, int)
        Number of the panel, and of its first row in the matrix.
    panel : Rows
        Rows of the panel.
    known : (rows, most) int32
        Partitions that each row goes into; ``NONE`` after the last.
    before : Lists or None
        Lists that the rows have.

    Returns
    -------
    (partitions,) int64
        Number of rows that each partition got.
    """
    (number, first), (rows, places) = place, np.nonzero(known != NONE)
    own = known[rows, places]
    order = np.argsort(own, kind="stable")
    ends = np.searchsorted(own[order], np.arange(runs.index.columns)).astype(np.int64)
    rows, at = rows[order], first * runs.each
    runs.index.write(number, ends[None])
    each = max(1, SORTED_BYTES // runs.rows.row_bytes)
    for top in range(0, len(rows), each):
        runs.rows.write(at + top, np.ascontiguousarray(panel.raw[rows[top : top + each]]))
    runs.ids.write(at, np.ascontiguousarray((rows + first)[:, None]))
    if runs.partitions is not None:
        runs.partitions.write(at, np.ascontiguousarray(known[rows]))
    if before is not None:
        keys = np.empty((len(panel), before.keys.columns))
        before.keys.read_into(keys, first)
        runs.farthest.write(at, np.ascontiguousarray(keys[rows, :1]))
    return np.diff(ends)
