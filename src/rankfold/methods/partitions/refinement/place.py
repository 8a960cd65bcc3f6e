"""Write rows by the partitions that they visit, from one more read.

A fold is the work of a sweep (one run through the rows) on each panel (rows read at a time).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rankfold.methods.knn.row_blocks import BlockReader
from rankfold.methods.partitions.assign import SORTED_BYTES, write_run
from rankfold.methods.partitions.files import PARTITION, Lists, Runs
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, DeclaredFold, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix


@dataclass(frozen=True, slots=True)
class PlaceVisitors(DeclaredFold):
    """Fold that writes rows, panel by panel, sorted by the partitions that they visit, and counts them.

    A panel is the rows that are read at a time.
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
        """Read rows ``start:stop``, and write each once for every partition that it visits."""
        panel = self.reader.read(work.panel, start, stop, 0)
        visits = work.visits[: stop - start]
        self.visits.read_into(visits, start)
        number = int(np.searchsorted(self.cut.panels, start))
        state["counts"] += write_run(self.runs, (number, start), panel, visits, self.before)
