"""Array of a result from rows of an earlier result, followed by new ones; the matrix is not read.

Also the matrix of those rows that follow the ones an earlier result was made from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rankfold.pipeline.data.selection import select
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.fold import Buffer, DeclaredFold, Sum, Workspace
from rankfold.pipeline.prepare.prepared import PreparedSource, select_prepared
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.scratch import ScratchMatrix


@dataclass(frozen=True, slots=True)
class JoinRows(DeclaredFold):
    """Fold that writes an array of a result by whole chunks: rows of an earlier result, then new ones."""

    cut: Cut
    """Cut of all m rows of the array into panels that are whole chunks."""

    earlier: Source
    """Rows of the earlier result, (m0, k), or (1, m0) if the array is a vector."""

    new: ScratchMatrix
    """Scratch matrix (m - m0, k) of the rows that follow those."""

    array: Path
    """Path of the Zarr array to write, (m, k) or (m,)."""

    old_rows: int
    """Number m0 of rows of the earlier result."""

    slots: int = 1
    row_seconds: float = 1e-8

    def buffers(self) -> Mapping[str, Buffer]:
        """The buffer ``rows`` for the rows that are written at a time, (panel rows, k)."""
        return {"rows": Buffer((self.cut.panel_rows, self.new.columns), self.new.dtype)}

    def sums(self) -> Mapping[str, Sum]:
        """The sum ``rows`` (1,): number of rows written."""
        return {"rows": Sum((1,), np.dtype(np.int64))}

    @property
    def temporary_bytes(self) -> int:
        """Additional bytes of a step: a copy of the rows of a chunk, and reading of earlier rows."""
        rows = self.cut.panel_rows
        return rows * self.new.row_bytes + self.earlier.read_bytes(rows, self.new.columns)

    @property
    def _numbers(self) -> bool:
        """True if the array is a vector: each of its rows is one number."""
        return self.earlier.shape == (1, self.old_rows) and self.new.columns == 1

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Write rows ``start:stop`` of the array, from the earlier result and from scratch; count them."""
        rows = work.rows[: stop - start]
        middle = min(max(self.old_rows, start), stop)
        if start < middle:
            part = rows[: middle - start]
            if self._numbers:
                self.earlier.read_into(part.reshape(1, -1), (0, 1), (start, middle))
            else:
                self.earlier.read_into(part, (start, middle), (0, self.new.columns))
        if middle < stop:
            self.new.read_into(rows[middle - start :], middle - self.old_rows)
        if self._numbers:
            write_whole_chunks(self.array, rows[:, 0], (start, stop))
        else:
            write_whole_chunks(self.array, rows, (start, stop), (0, self.new.columns))
        state["rows"] += stop - start


def new_rows(source: Source, first: int) -> Source:
    """The rows of ``source`` from index ``first`` on, with its preparation steps (``prepare=``) if any."""
    rows = slice(first, None)
    if isinstance(source, PreparedSource):
        return select_prepared(source, rows=rows, columns=None)
    return select(source, rows=rows, columns=None)
