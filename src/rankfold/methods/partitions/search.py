"""Neighbors within partitions: every pair of rows of a partition is compared, exactly.

A batch of partitions is read from all runs (a run: the rows of one panel of the matrix, sorted by partition
on scratch), searched one partition after the other, and its lists are written in order of rows. A row's list
begins with the largest distance in its list of earlier rounds as a bound, so that later rounds measure few
pairs; lists after all rounds are the same as without it. A fold is the work of a sweep (one run through all
partitions) on each batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import aligned_empty
from rankfold.kernels.neighbors.lists import EMPTY
from rankfold.kernels.neighbors.meeting import Lists as NearLists
from rankfold.kernels.partitions.visits import NONE, choose_visits
from rankfold.methods.knn.pair_fold import BufferPool
from rankfold.methods.knn.row_blocks import BlockReader
from rankfold.methods.partitions.files import ID, PARTITION, Found, Runs
from rankfold.methods.partitions.layout import pieces_of
from rankfold.methods.partitions.meet_all import let_meet, meeting_room
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, DeclaredFold, ScratchConstant, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


class OverPartitions(DeclaredFold):
    """Base class of folds that compare rows of partitions, read in batches, in buffers."""

    __slots__ = ()
    reader: BlockReader

    def sums(self) -> Mapping[str, Sum]:
        """``pairs`` (1,) compared, and ``uncertain`` (1,).

        The last counts how often a row had too few candidates in a partition to be certain, so that its
        distances from all rows there were computed.
        """
        return {"pairs": Sum((1,)), "uncertain": Sum((1,), ID)}

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate the buffers; ``raw`` is aligned for products at full speed."""
        work = DeclaredFold.workspace(self, device)
        work.raw = aligned_empty(work.raw.shape, work.raw.dtype)
        work.room, work.precise = BufferPool(), False
        return work

    def ready(self, work: Workspace, name: str, raw: Array) -> Any:
        """Rows ``raw`` (r, n) ready for comparison; a copy that this takes is in the buffer ``name``."""
        shape = len(raw), self.reader.copy_columns
        copy = work.room.array(name, shape, np.float32) if self.reader.copies else None
        return self.reader.ready(raw, copy)


def name_neighbors(lists: NearLists, ids: Int64) -> None:
    """Replace ``lists.ids``, indices of rows of a partition, by the ids of these rows, in place.

    ``ids`` (rows,) are those of all rows of the partition. They increase, so that equal distances were
    decided as ids decide them.
    """
    known = lists.ids != EMPTY
    lists.ids[known] = ids[lists.ids[known]]


@dataclass(frozen=True, slots=True)
class SearchPartitions(OverPartitions):
    """Fold that compares all pairs of rows within each partition of a batch, and writes their lists."""

    reader: BlockReader
    """Reader that prepares rows for comparison; it reads none from the matrix here."""

    cut: Cut
    """Cut of the rows of all partitions, one after the other, into batches."""

    ends: Int64
    """(partitions + 1,) position of the first row of each partition among the rows of all partitions."""

    run_starts: Int64
    """(panels + 1,) position in the files ``runs`` at which the rows of each panel of the matrix begin."""

    runs: Runs
    found: Found
    k: int
    list_edges: Int64
    """(panels + 1,) edges of the panels of rows whose lists will be merged at a time."""

    visits: int
    """Largest number of partitions that are chosen for a row to visit: its neighbors are there, and it is
    not."""

    later: bool
    """True in rounds after the first, when rows have lists already."""

    slots: int = 1
    row_seconds: float = 1e-5

    def buffers(self) -> Mapping[str, Buffer]:
        """Rows of a batch with their ids, partitions and lists, and where partitions begin in each run.

        ``raw`` (rows, n), ``ids`` (rows, 1), ``farthest`` (rows, 1) of earlier lists, ``keys`` and
        ``neighbors`` (rows, k), ``partitions`` (rows, spill), ``visits`` (rows, visits), ``index`` (panels,
        partitions + 1).
        """
        rows, n = self.cut.panel_rows, self.reader.columns
        return {
            "ids": Buffer((rows, 1), ID),
            "farthest": Buffer((rows, 1)),
            "index": ScratchConstant.of(self.runs.index),
            "keys": Buffer((rows, self.k)),
            "neighbors": Buffer((rows, self.k), ID),
            "partitions": Buffer((rows, self.runs.each), PARTITION),
            "raw": Buffer((rows, n), self.reader.dtype),
            "visits": Buffer((rows, self.visits), PARTITION),
        }

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides its buffers: reading a run, a prepared partition, and lists in order."""
        rows, n = self.cut.panel_rows, self.reader.columns
        run = rows * (n * self.reader.dtype.itemsize + 16 + 4 * self.runs.each)
        ready = rows * (4 * n * self.reader.copies + 4 * 8)
        step = 2 * 2**20 + 2 * 8 * n
        lists = rows * (16 * self.k + 6 * 8 + 4 * self.visits)
        return max(run, ready + step + lists) + lists + meeting_room(rows, rows, n, self.k)

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Read the batch of partitions at positions ``start:stop``, search each, and write the lists."""
        self._gather(work, start, stop)
        count = stop - start
        keys, neighbors = work.keys[:count], work.neighbors[:count]
        keys[...] = work.farthest[:count] if self.later else np.inf
        neighbors[...] = EMPTY
        work.visits[:count] = NONE
        for partition, places in pieces_of(self.ends, start, stop):
            if places.stop - places.start > 1:
                some = slice(places.start - start, places.stop - start)
                self._search(state, work, some, partition)
        self._write(work, start, count)

    def _search(self, state: State, work: Workspace, some: slice, partition: int) -> None:
        """Compare all pairs of rows of a partition, and choose the partitions that rows visit.

        ``some`` is the slice of its rows in the buffers, ``partition`` its number.
        """
        raw, reader, rows = work.raw[some], self.reader, some.stop - some.start
        ready = self.ready(work, "copy", raw)
        lists = NearLists(work.keys[some], work.neighbors[some], state["uncertain"])
        let_meet(reader, work, ready, ready, lists, same=True)
        state["pairs"] += rows * (rows - 1) / 2
        choose_visits(lists.ids, work.partitions[some], partition, out=work.visits[some])
        name_neighbors(lists, work.ids[some, 0])

    def _gather(self, work: Workspace, start: int, stop: int) -> None:
        """Read the rows of a batch into the buffers, by partition, each partition in order of rows."""
        runs = self.runs
        assert runs.partitions is not None  # noqa: S101 - those of a round are written with them
        pieces = [(work.raw, runs.rows), (work.ids, runs.ids), (work.partitions, runs.partitions)]
        if self.later:
            pieces.append((work.farthest, runs.farthest))
        gather_rows(work.room, pieces, work.index, self.ends, (start, stop), self.run_starts)

    def _write(self, work: Workspace, start: int, count: int) -> None:
        """Write the ``count`` lists of the batch at position ``start``, in order of rows, and the partitions
        that these rows should visit."""
        batch = int(np.searchsorted(self.cut.panels, start))
        lists = work.keys[:count], work.neighbors[:count]
        order = write_lists(self.found, (batch, start), work.ids[:count, 0], lists, self.list_edges)
        assert self.found.visits is not None  # noqa: S101 - those of a round are written with them
        self.found.visits.write(start, work.visits[:count][order])


def gather_rows(
    room: BufferPool,
    pieces: Sequence[tuple[Array, ScratchMatrix]],
    index: Int64,
    edges: Int64,
    span: tuple[int, int],
    run_starts: Int64,
) -> None:
    """Read rows by partition from all runs into arrays; rows of a partition are in order of their numbers.

    A run holds the rows of one panel of the matrix, sorted by partition.

    Parameters
    ----------
    room : BufferPool
        Buffers that are reused.
    pieces : arrays to fill, each with the matrix on scratch that holds its runs
    index : (runs, partitions + 1)
        Where each partition begins in each run.
    edges : (partitions + 1,)
        Where each partition begins among the rows of all partitions, one after the other.
    span : (int, int)
        Positions among these rows that are wanted; they may begin and end within a partition.
    run_starts : (runs + 1,)
        Where runs begin on scratch.
    """
    (start, stop), some = span, pieces_of(edges, *span)
    if not some:
        return
    first, last = some[0][0], some[-1][0] + 1
    # The rows of a run go behind those of the runs before.
    places = edges[first:last].copy()
    for run, within in enumerate(index[:, first : last + 1]):
        counts = np.diff(within)
        low, high = (np.clip(each, start, stop) for each in (places, places + counts))
        begins = run_starts[run] + within[:-1] + low - places
        places += counts
        wanted = np.flatnonzero(high > low)
        if wanted.size:
            # One piece of the run, since all rows of the partitions in between are wanted.
            for into, matrix in pieces:
                _take_run(
                    room, into, matrix, int(begins[wanted[0]]), low[wanted] - start, high[wanted] - start
                )


def _take_run(room: BufferPool, into: Array, matrix: ScratchMatrix, at: int, low: Int64, high: Int64) -> None:
    """Copy rows of a file, from row ``at`` on, to rows ``low:high`` of ``into``, for each of some partitions.

    ``low`` and ``high`` (p,) have one entry for each partition.
    """
    if len(low) == 1:
        matrix.read_into(into[low[0] : high[0]], at)
        return
    piece = room.array(matrix.path.name, (int((high - low).sum()), into.shape[1]), into.dtype)
    matrix.read_into(piece, at)
    top = 0
    for place, end in zip(low.tolist(), high.tolist(), strict=True):
        into[place:end] = piece[top : top + end - place]
        top += end - place


def write_lists(
    found: Found, place: tuple[int, int], ids: Int64, lists: tuple[Float64, Int64], edges: Int64
) -> Int64:
    """Write the lists of a batch of partitions to ``found``, in order of their rows; returns that order.

    Parameters
    ----------
    found : Found
        Files to write into.
    place : (int, int)
        Number of the batch, and its first position in the files.
    ids : (r,)
        Number of the row of each list.
    lists : (r, k), (r, k)
        Keys and ids of the lists.
    edges : (panels + 1,)
        Edges of the panels of rows whose lists will be merged at a time.

    Returns
    -------
    (r,)
        Indices that sort ``ids``.
    """
    batch, start = place
    order = np.argsort(ids, kind="stable")
    ordered = np.ascontiguousarray(ids[order])
    found.ids.write(start, ordered[:, None])
    found.lists.write(start, *(each[order] for each in lists))
    found.index.write(batch, np.searchsorted(ordered, edges).astype(np.int64)[None])
    return order
