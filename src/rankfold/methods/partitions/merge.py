"""Merge lists of partitions into lists of rows, and write these into the result.

A row has a list from each partition that it was in, and one from the rounds before; the nearest in all of
them are kept. The order of merging makes no difference. A fold is the work of a sweep (one run through the
rows) on each panel (rows read at a time).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import EMPTY, merge_rows, sort_lists
from rankfold.kernels.partitions.visits import NONE
from rankfold.methods.knn.write_lists import require_sound, write_lists
from rankfold.methods.partitions.complete import Completed
from rankfold.methods.partitions.files import ID, PARTITION, Found, Lists
from rankfold.methods.partitions.layout import VISITS
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.fold import Buffer, DeclaredFold, Given, ScratchConstant, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

PIECE_BYTES = 2**20
"""Bytes of the lists that are merged at a time."""


@dataclass(frozen=True, slots=True)
class MergeLists(DeclaredFold):
    """Fold that merges the lists that rows have from several partitions, and counts true neighbors."""

    cut: Cut
    """Cut of the rows into panels, whose lists are merged at a time."""

    batch_starts: Int64
    """(batches + 1,) position in the files ``found`` at which the lists of each batch of partitions begin."""

    found: Found
    before: Lists | None
    """Lists of all rows from earlier sweeps, or None."""

    after: Lists
    """Files for the merged lists of all rows."""

    visits: ScratchMatrix | None
    """File to write for the partitions that each row should visit, (rows, visits), since its neighbors are
    there and it is not; None after visits."""

    k: int
    true_rows: Int64
    """(t,) numbers, ascending, of the rows whose true neighbors are known."""

    farthest: Float64
    """(t,) distance of the farthest true neighbor of each row in ``true_rows``."""

    slots: int = 1
    row_seconds: float = 1e-6

    kernels = (merge_rows,)

    def buffers(self) -> Mapping[str, Buffer]:
        """Lists of the rows of a panel, the index of each batch, and true neighbors of some rows.

        ``keys`` and ``neighbors`` (rows, k), ``visits`` (rows, visits), ``index`` (batches, panels + 1), see
        ``Found``, ``true_rows`` (t,), ``farthest`` (t,).
        """
        shape = self.cut.panel_rows, self.k
        most = 0 if self.visits is None else self.visits.columns
        return {
            "keys": Buffer(shape),
            "neighbors": Buffer(shape, ID),
            "visits": Buffer((self.cut.panel_rows, most), PARTITION),
            "index": ScratchConstant.of(self.found.index),
            "true_rows": Given.of(self.true_rows),
            "farthest": Given.of(self.farthest),
        }

    def sums(self) -> Mapping[str, Sum]:
        """``hits`` (t,), true neighbors found of each row in ``true_rows``, and ``short`` (1,).

        The last counts lists of fewer than k neighbors.
        """
        return {"hits": Sum((len(self.true_rows),), ID), "short": Sum((1,), ID)}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step: lists that are merged at a time, as read and with their rows, and row numbers."""
        each = 16 * self.k + 8 + 4 * VISITS
        return 5 * (PIECE_BYTES + each) + 2 * self.cut.panel_rows * 8

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Merge the lists of rows ``start:stop`` from all batches, count true neighbors, and write lists."""
        count, panel = stop - start, int(np.searchsorted(self.cut.panels, start))
        keys, neighbors = work.keys[:count], work.neighbors[:count]
        if self.before is None:
            keys[...], neighbors[...] = np.inf, EMPTY
        else:
            self.before.read_into(keys, neighbors, start)
        work.visits[:count] = NONE
        each = max(1, PIECE_BYTES // (16 * self.k + 8))
        for batch in np.flatnonzero(work.index[:, panel + 1] > work.index[:, panel]):
            first, last = (int(self.batch_starts[batch] + work.index[batch, panel + i]) for i in (0, 1))
            for top in range(first, last, each):
                rows = self._merge(keys, neighbors, top, min(top + each, last), start)
                self._take_visits(work.visits, rows, top)
        if self.visits is not None:
            self.visits.write(start, work.visits[:count])
        self._count(state, keys, start, stop)
        self.after.write(start, keys, neighbors)

    def _take_visits(self, visits: Array, rows: Int64, top: int) -> None:
        """Copy the partitions that rows should visit into ``visits`` (rows of the panel, visits).

        One of the lists of a row has them. ``rows`` are the rows of some lists, counted from the first of the
        panel, and ``top`` is the position of the first of these lists in ``found``.
        """
        if self.found.visits is not None:
            some = np.empty((len(rows), visits.shape[1]), PARTITION)
            self.found.visits.read_into(some, top)
            chosen = some[:, 0] != NONE
            visits[rows[chosen]] = some[chosen]

    def _merge(self, keys: Float64, neighbors: Int64, top: int, end: int, start: int) -> Int64:
        """Merge the lists ``top:end`` of ``found`` into those of a panel that begins at row ``start``.

        The lists of the panel, ``keys`` and ``neighbors`` (rows, k), are changed in place. Returns the rows
        of the lists that were merged, counted from ``start``; some may be repeated.
        """
        ids, (own, others) = np.empty((end - top, 1), np.int64), empty_lists(end - top, self.k)
        self.found.ids.read_into(ids, top)
        self.found.lists.read_into(own, others, top)
        rows: Int64 = ids[:, 0] - start
        merge_rows(keys, neighbors, rows, other_keys=own, other_ids=others)
        return rows

    def _count(self, state: State, keys: Float64, start: int, stop: int) -> None:
        """Add to ``state`` the number of neighbors that are as near as the true ones, and that of lists of
        fewer than k neighbors."""
        first, last = np.searchsorted(self.true_rows, [start, stop]).tolist()
        for place in range(first, last):
            near = keys[self.true_rows[place] - start] <= self.farthest[place]
            state["hits"][place] += int(near.sum())
        state["short"] += int(np.isinf(keys[:, 0]).sum())


def empty_lists(rows: int, k: int) -> tuple[Float64, Int64]:
    """Uninitialized arrays (rows, k) of keys and of ids, into which lists are read."""
    return np.empty((rows, k)), np.empty((rows, k), np.int64)


@dataclass(frozen=True, slots=True)
class WriteMerged(DeclaredFold):
    """Fold that writes the merged lists of neighbors into the result."""

    cut: Cut
    """Cut of the rows into panels (rows written at a time), each of which is whole chunks."""

    lists: Lists
    completed: Completed | None
    """Lists of some rows, which replace those in ``lists``; None if there are none."""

    result: Path
    k: int
    graph: bool
    slots: int = 1
    row_seconds: float = 1e-6

    kernels = (sort_lists,)

    def buffers(self) -> Mapping[str, Buffer]:
        """Lists of a panel: ``keys`` and ``neighbors``, (rows, k)."""
        shape = self.cut.panel_rows, self.k
        return {"keys": Buffer(shape), "neighbors": Buffer(shape, ID)}

    def sums(self) -> Mapping[str, Sum]:
        """``rows`` (1,), the number of rows whose lists were written."""
        return {"rows": Sum((1,), ID)}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step: padded chunks, and sorting and checking lists."""
        return self.cut.panel_rows * self.k * (2 * 16 + 3 * 8)

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Sort and check the lists of rows ``start:stop``, and write them into the result."""
        keys, neighbors = work.keys[: stop - start], work.neighbors[: stop - start]
        self.lists.read_into(keys, neighbors, start)
        if self.completed is not None:
            self.completed.overlay(keys, neighbors, start)
        sort_lists(keys, neighbors)
        require_sound(keys, neighbors, start, others=self.lists.keys.rows, itself=True)
        state["rows"] += stop - start
        write_lists(self.result, keys, neighbors, (start, stop), graph=self.graph)
