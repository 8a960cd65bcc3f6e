"""True neighbors of a few queries: one read of the index, except partitions that balls rule out.

The distances of rows in partitions that were searched before bound those of other neighbors. Tasks work on
parts of the index in parallel; each has lists of all the queries. A fold is the work of a sweep (one run
through the index) on the rows that are read at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import EMPTY, merge_lists, sort_lists
from rankfold.kernels.neighbors.meeting import Lists as NearLists
from rankfold.methods.index.layout import at_once, may_be_near, taken
from rankfold.methods.knn.pair_fold import BufferPool
from rankfold.methods.knn.row_blocks import BlockReader
from rankfold.methods.partitions.files import ID
from rankfold.methods.partitions.layout import pieces_of
from rankfold.methods.partitions.meet_all import let_meet, meeting_room
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Constant, DeclaredFold, Given, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TrueNeighbors(DeclaredFold):
    """Fold that compares a few queries with the rows of an index, and keeps the ``k`` nearest of each."""

    cut: Cut
    """Cut of the rows of the index into those read at once: see ``reads_of``."""

    queries: BlockReader
    index: BlockReader
    part: Path
    """Path of a checkpoint file with ``centers``, ``edges`` and ``radii`` of the partitions."""

    partitions: int
    together: int
    """Largest number of partitions that are read at once."""

    limits: Float64
    """(queries,) distances within which k rows are known to be."""

    k: int
    slots: int = 1
    row_seconds: float = 1e-6

    kernels = (merge_lists, sort_lists)

    def buffers(self) -> Mapping[str, Buffer]:
        """Centers, first rows and radii of partitions, and the distances ``limits`` of queries.

        ``centers`` (partitions, n), ``edges`` (partitions + 1,), ``radii`` (partitions,), ``limits``
        (queries,).
        """
        count = self.partitions
        return {
            "centers": Constant((count, self.index.columns), self.index.dtype, self.part),
            "edges": Constant((count + 1,), ID, self.part),
            "radii": Constant((count,), part=self.part),
            "limits": Given.of(self.limits),
        }

    def sums(self) -> Mapping[str, Sum]:
        """Lists of the queries: ``keys`` and ``places`` (queries, k), and ``uncertain`` (1,).

        Keys are distances, places are indices of rows of the index, sorted by partition. The last sum counts
        how often a query had too few candidates in a partition to be certain, so that its distances from all
        rows there were computed.
        """
        shape = len(self.limits), self.k
        return {
            "keys": Sum(shape, empty=self._limited),
            "places": Sum(shape, ID, self._unknown),
            "uncertain": Sum((1,), ID),
        }

    def _limited(self) -> Float64:
        return np.repeat(self.limits[:, None], self.k, axis=1)

    def _unknown(self) -> Int64:
        return np.full((len(self.limits), self.k), EMPTY)

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step: queries, rows of the index, ruling out partitions, and comparing rows."""
        count, rows, n, k = len(self.limits), self.cut.panel_rows, self.index.columns, self.k
        queries = self.queries.memory_bytes(count) + self.queries.read_bytes(count)
        read = self.index.memory_bytes(rows) + self.index.read_bytes(rows)
        some = min(count, at_once(n))
        ruled_out = 3 * some * 8 * n + count * self.together * 2 + self.together * (3 * 8 * n + 32 * some)
        meeting = count * (n * (self.index.dtype.itemsize + 12) + 16 + 5 * 16 * k)
        return queries + read + ruled_out + meeting + meeting_room(count, rows, n, k)

    def workspace(self, device: Device = HOST) -> Workspace:
        """Read all queries, and allocate memory for rows of the index that are read at once."""
        work, count = DeclaredFold.workspace(self, device), len(self.limits)
        work.few = self.queries.read(self.queries.buffer(count), 0, count, 0)
        work.read = self.index.buffer(self.cut.panel_rows)
        work.room, work.precise, work.metric = BufferPool(), False, self.index.metric
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Compare queries with the partitions in rows ``start:stop`` of the index that may hold neighbors."""
        pieces = pieces_of(work.edges, start, stop)
        first, last = pieces[0][0], pieces[-1][0] + 1
        near = may_be_near(work, (first, last), work.few, state["keys"][:, 0])
        if not near.any():
            return
        rows = self.index.read(work.read, start, stop, 0)
        for partition, places in pieces:
            some = np.flatnonzero(near[:, partition - first])
            if len(some) and places.stop > places.start:
                part = rows.part(places.start - start, places.stop - start)
                mine = NearLists(state["keys"][some], state["places"][some], state["uncertain"])
                let_meet(self.index, work, taken(work.few, some, work.room), part, mine)
                state["keys"][some], state["places"][some] = mine.keys, mine.ids

    def merge(self, total: State, other: State) -> None:
        """Merge the lists ``other``, from other rows of the index, into ``total``, in place."""
        lists = {"other_keys": other["keys"], "other_ids": other["places"]}
        merge_lists(total["keys"], total["places"], **lists)
        total["uncertain"] += other["uncertain"]
