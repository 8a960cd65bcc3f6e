"""Rows of all runs into the result, sorted by partition, and how far each partition reaches.

A panel of the result is whole chunks; it takes its part of every run. Rows of a partition lie in order of
their numbers, since runs do, and each run keeps that order. So what is written is a function of the rows
and the centers alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.index.balls import MEASURED, reach
from rankfold.methods.index.layout import most_together
from rankfold.methods.knn.pair_fold import Room
from rankfold.methods.partitions.files import ID, Runs
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Constant, DeclaredFold, ScratchConstant, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SortRows(DeclaredFold):
    """Fold that writes rows by partition, and keeps the radius of each."""

    cut: Cut
    """Of rows in their new order: whole chunks."""

    edges: Int64
    """(partitions + 1,) where each partition begins among them."""

    run_starts: Int64
    """(panels + 1,) where each run begins on scratch."""

    runs: Runs
    centers: Path
    """A part with ``centers``."""

    metric: int
    result: Path
    slots: int = 1
    row_seconds: float = 1e-6

    def buffers(self) -> Mapping[str, Buffer]:
        """Rows and their numbers, centers, and where partitions begin in each run."""
        rows, columns, dtype = self.cut.panel_rows, self.runs.rows.columns, self.runs.rows.dtype
        return {
            "rows": Buffer((rows, columns), dtype),
            "ids": Buffer((rows, 1), ID),
            "index": ScratchConstant.of(self.runs.index),
            "centers": Constant((len(self.edges) - 1, columns), dtype, self.centers),
        }

    def sums(self) -> Mapping[str, Sum]:
        """Rows that were written; the farthest of each partition from its center."""
        radii = Sum((len(self.edges) - 1,), join=np.maximum)
        return {"rows": Sum((1,), ID), "radii": radii}

    @property
    def beside_bytes(self) -> int:
        """A run as it is read, a chunk as it is written, rows that are measured, tables of places."""
        panel, row = self.cut.panel_rows, self.runs.rows.row_bytes + 8
        measured = 4 * max(MEASURED, 8 * self.runs.rows.columns)
        # As many partitions as a panel has on average, and more where some are small.
        some = min(len(self.edges), 16 + 4 * most_together(self.cut.panels, self.edges))
        return 2 * panel * row + measured + 10 * self.runs.index.rows * some * 8

    def workspace(self, device: Device = HOST) -> Workspace:
        """Buffers, and room for a run."""
        work = DeclaredFold.workspace(self, device)
        work.room = Room()
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Gather some rows, measure them and write them."""
        count, columns = stop - start, self.runs.rows.columns
        first = int(np.searchsorted(self.edges, start, side="right")) - 1
        last = int(np.searchsorted(self.edges, stop, side="left"))
        self._gather(work, (start, stop), (first, last))
        for partition in range(first, last):
            low, high = np.clip(self.edges[partition : partition + 2], start, stop).tolist()
            if high > low:
                radius = reach(work.rows[low - start : high - start], work.centers[partition], self.metric)
                state["radii"][partition] = max(state["radii"][partition], radius)
        write_whole_chunks(self.result / "rows", work.rows[:count], (start, stop), (0, columns))
        write_whole_chunks(self.result / "ids", work.ids[:count], (start, stop), (0, 1))
        state["rows"] += count

    def _gather(self, work: Workspace, span: tuple[int, int], some: tuple[int, int]) -> None:
        """What runs have of places ``span``, which are in partitions ``some``."""
        (start, stop), (first, last) = span, some
        within = work.index[:, first : last + 1]
        counts = np.diff(within, axis=1)
        # Where rows of each run and partition go: behind those of the runs before.
        places = self.edges[first:last] + np.cumsum(counts, axis=0) - counts
        low, high = np.clip(places, start, stop), np.clip(places + counts, start, stop)
        begins = within[:, :-1] + low - places
        for run in np.flatnonzero((high > low).any(axis=1)).tolist():
            taken = np.flatnonzero(high[run] > low[run])
            # One piece of the run: of partitions in between all rows are taken.
            top = int(begins[run, taken[0]])
            end = int((begins + high - low)[run, taken[-1]])
            for into, matrix in ((work.rows, self.runs.rows), (work.ids, self.runs.ids)):
                piece = work.room.array(matrix.path.name, (end - top, into.shape[1]), into.dtype)
                matrix.read_into(piece, int(self.run_starts[run]) + top)
                at = 0
                for place, until in zip(low[run, taken].tolist(), high[run, taken].tolist(), strict=True):
                    into[place - start : until - start] = piece[at : at + until - place]
                    at += until - place
