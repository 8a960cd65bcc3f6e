"""Write rows into the result, sorted by partition, and find the radius of each partition.

They are read from runs: the rows of each panel of the matrix (rows read at a time), sorted by partition on
scratch. A panel of the result is whole chunks; it takes its part of every run. Rows of a partition are in
order of their numbers, since runs are, and each run keeps that order. So what is written is a function of the
rows and the centers alone. A fold is the work of a sweep (one run through the result) on each panel.
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
from rankfold.methods.knn.pair_fold import BufferPool
from rankfold.methods.partitions.files import ID, Runs
from rankfold.methods.partitions.layout import pieces_of
from rankfold.methods.partitions.search import gather_rows
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
    """Fold that writes rows by partition, and finds the radius of each partition."""

    cut: Cut
    """Cut of the rows in their new order into whole chunks."""

    edges: Int64
    """(partitions + 1,) where each partition begins among the rows in their new order."""

    run_starts: Int64
    """(panels + 1,) position in the files ``runs`` at which the rows of each panel of the matrix begin."""

    runs: Runs
    centers: Path
    """Checkpoint file with ``centers`` (partitions, n)."""

    metric: int
    result: Path
    slots: int = 1
    row_seconds: float = 1e-6

    def buffers(self) -> Mapping[str, Buffer]:
        """Rows and their numbers, centers, and where partitions begin in each run.

        ``rows`` (rows, n), ``ids`` (rows, 1), ``centers`` (partitions, n), ``index`` (panels, partitions +
        1).
        """
        rows, columns, dtype = self.cut.panel_rows, self.runs.rows.columns, self.runs.rows.dtype
        return {
            "rows": Buffer((rows, columns), dtype),
            "ids": Buffer((rows, 1), ID),
            "index": ScratchConstant.of(self.runs.index),
            "centers": Constant((len(self.edges) - 1, columns), dtype, self.centers),
        }

    def sums(self) -> Mapping[str, Sum]:
        """``rows`` (1,) written; ``radii`` (partitions,), the largest distance of a row from its center."""
        radii = Sum((len(self.edges) - 1,), join=np.maximum)
        return {"rows": Sum((1,), ID), "radii": radii}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides its buffers: reading a run, writing a chunk, measuring rows, positions."""
        panel, row = self.cut.panel_rows, self.runs.rows.row_bytes + 8
        measured = 4 * max(MEASURED, 8 * self.runs.rows.columns)
        # Partitions that a panel has on average, with room for more where some are small.
        some = min(len(self.edges), 16 + 4 * most_together(self.cut.panels, self.edges))
        return 2 * panel * row + measured + 10 * some * 8

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate the buffers, and ``room``, reusable memory for reading runs."""
        work = DeclaredFold.workspace(self, device)
        work.room = BufferPool()
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Read rows ``start:stop`` of the new order, measure their distances from centers, and write them."""
        count, columns = stop - start, self.runs.rows.columns
        pieces = [(work.rows, self.runs.rows), (work.ids, self.runs.ids)]
        gather_rows(work.room, pieces, work.index, self.edges, (start, stop), self.run_starts)
        for partition, places in pieces_of(self.edges, start, stop):
            if places.stop > places.start:
                own = work.rows[places.start - start : places.stop - start]
                radius = reach(own, work.centers[partition], self.metric)
                state["radii"][partition] = max(state["radii"][partition], radius)
        write_whole_chunks(self.result / "rows", work.rows[:count], (start, stop), (0, columns))
        write_whole_chunks(self.result / "ids", work.ids[:count], (start, stop), (0, 1))
        state["rows"] += count
