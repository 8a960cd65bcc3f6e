"""Count the neighbors of each row, and list them: two sweeps, the second over chunks of edges.

A chunk of edges may begin and end anywhere in a row. Rows that two chunks share are searched twice, so that
chunks are written whole, by one task each, however many neighbors a row has. A fold is the work of a sweep
(one run through the rows) on each panel (rows read at a time).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.tree import LEAF, count_within, list_within
from rankfold.methods.tree.points import few_points
from rankfold.methods.tree.queries import Queries
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.fold import DeclaredFold, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CountNeighbors(DeclaredFold):
    """Fold (work on each panel, the rows at a time) that counts neighbors of rows, and writes the counts."""

    cut: Cut
    """Cut of the rows into panels, each of which is whole chunks of the counts."""

    queries: Queries
    radius: float
    result: Path
    slots: int = 1
    row_seconds: float = 1e-5

    kernels = (count_within,)

    def sums(self) -> Mapping[str, Sum]:
        """``edges`` (1,), the number of neighbors of all rows together; ``most`` (1,), the most of a row."""
        most = Sum((1,), np.dtype(np.int64), join=np.maximum)
        return {"edges": Sum((1,), np.dtype(np.int64)), "most": most}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step: the queries of a panel, and their counts."""
        rows = self.cut.panel_rows
        return self.queries.panel_bytes(rows) + 2 * 8 * rows

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Count the neighbors of rows ``start:stop``, and write the counts."""
        counts = self._count(start, stop)
        state["edges"] += counts.sum()
        np.maximum(state["most"], counts.max(), out=state["most"])
        write_whole_chunks(self.result / "degrees", counts, (start, stop))

    def _count(self, start: int, stop: int) -> Int64:
        points, reader = self.queries.points, self.queries.reader
        assert points is not None  # noqa: S101 - there is no run without
        order, x, own = self.queries.take(np.arange(start, stop))
        counts, by_row = np.empty(len(x), np.int64), np.empty(len(x), np.int64)
        where: dict[str, Any] = {"metric": reader.code, "radius": self.radius}
        count_within(points.tree, x, own, reader.period, **where, counts=counts)
        by_row[order] = counts
        return by_row


@dataclass(frozen=True, slots=True)
class ListNeighbors(DeclaredFold):
    """Fold that lists the neighbors of rows, and writes them as chunks of edges of a sparse graph."""

    cut: Cut
    """Cut of the edges, in order of rows, into panels, each of which is a whole chunk."""

    queries: Queries
    radius: float
    starts: Int64
    """(rows + 1,) first edge of each row."""

    most: int
    """Most edges of a row."""

    result: Path
    slots: int = 1
    row_seconds: float = 1e-6

    kernels = (list_within,)

    def sums(self) -> Mapping[str, Sum]:
        """``edges`` (1,), the number of edges written."""
        return {"edges": Sum((1,), np.dtype(np.int64))}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step: a chunk of edges, the lists of its rows, and the positions where lists begin."""
        return list_bytes(self.queries, self.cut.panel_rows, self.most, len(self.starts))

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Find and write edges ``start:stop``: of the first row, of the rows in between, and of the last."""
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        last = int(np.searchsorted(self.starts, stop, side="left"))
        rows = first + np.flatnonzero(np.diff(self.starts[first : last + 1]))
        keys, ids = np.empty(stop - start), np.empty(stop - start, np.int64)
        for some in (rows[:1], rows[1:-1], rows[1:][-1:]):
            if len(some):
                self._list(some, start, keys, ids)
        state["edges"] += stop - start
        graph = self.result / "graph"
        write_whole_chunks(graph / "data", self.queries.reader.keys_of(keys), (start, stop))
        write_whole_chunks(graph / "indices", ids, (start, stop))

    def _list(self, rows: Int64, start: int, keys: npt.NDArray[np.float64], ids: Int64) -> None:
        """List the edges of successive rows, and copy those in the chunk that begins at ``start``."""
        points, reader = self.queries.points, self.queries.reader
        assert points is not None  # noqa: S101 - there is no run without
        order, x, own = self.queries.take(rows)
        first, last = int(self.starts[rows[0]]), int(self.starts[rows[-1] + 1])
        lists = np.empty(last - first), np.empty(last - first, np.int64)
        where: dict[str, Any] = {"metric": reader.code, "radius": self.radius}
        where["starts"] = self.starts[rows[order]] - first
        list_within(points.tree, x, own, reader.period, **where, keys=lists[0], ids=lists[1])
        low, high = max(first, start), min(last, start + len(keys))
        for into, values in zip((keys, ids), lists, strict=True):
            into[low - start : high - start] = values[low - first : high - first]


def list_bytes(queries: Queries, chunk: int, most: int, rows: int) -> int:
    """Bytes of a step of ``ListNeighbors``, for rows with at most ``most`` edges each."""
    some = min(rows, chunk + 2)
    return 16 * (2 * chunk + max(chunk, most)) + queries.panel_bytes(some) + 9 * rows + 16 * some


def warm_radius(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loops of a search once; points are float64 for any type of the matrix."""
    _warm_within(periodic=request.get("box") is not None)


@functools.cache
def _warm_within(*, periodic: bool) -> None:
    period, counts = np.ones(2) if periodic else None, np.zeros(1, np.int64)
    tree, one = few_points(), (np.zeros((1, 2)), np.zeros(1, np.int64))
    count_within(tree, *one, period, metric=0, radius=1.0, counts=counts)
    keys, ids = np.zeros(2 * LEAF), np.zeros(2 * LEAF, np.int64)
    starts = np.zeros(1, np.int64)
    list_within(tree, *one, period, metric=0, radius=1.0, starts=starts, keys=keys, ids=ids)
