"""Sums of squares of the positive and negative elements of columns formed from scratch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.blocks import Cut, grains
from rankfold.pipeline.checkpoint import State, load_arrays
from rankfold.pipeline.narrow import Narrow
from rankfold.pipeline.view import aligned_empty

Array = npt.NDArray[Any]


@dataclass(slots=True)
class Work:
    """Buffers of one segment."""

    coefficients: Array
    rows: Array


@dataclass(frozen=True, slots=True)
class SignedSquares:
    """Fold of ``y @ coefficients``: (2, k) squares above and below zero."""

    y: Narrow
    cut: Cut
    constants: Path
    """A part with ``coefficients`` (columns, k)."""

    rank: int
    row_seconds: float
    slots: int = 1

    @property
    def _grain_rows(self) -> int:
        return min(self.cut.grain_rows, self.cut.panel_rows)

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace and of two accumulators."""
        row_bytes = self.y.row_bytes + 8 * self.y.columns + 3 * 8 * self.rank
        return self._grain_rows * row_bytes + 8 * self.rank * self.y.columns

    def start(self) -> State:
        """Sums of no rows."""
        return {"squares": np.zeros((2, self.rank))}

    def workspace(self) -> Work:
        """Allocate the buffers."""
        rows = aligned_empty((self._grain_rows, self.y.columns), self.y.dtype)
        return Work(load_arrays(self.constants)["coefficients"], rows)

    def read(self, work: Work, start: int, stop: int, slot: int) -> None:
        """Nothing to read ahead: rows come from scratch, grain by grain."""

    def step(self, state: State, work: Work, start: int, stop: int, slot: int) -> None:
        """Take in rows, grain by grain."""
        for first, last in grains(start, stop, self.cut.grain_rows):
            rows = work.rows[: last - first]
            self.y.read_into(rows, first)
            u = rows @ work.coefficients
            above = np.square(np.maximum(u, 0)).sum(axis=0)
            state["squares"] += above, np.square(u).sum(axis=0) - above

    def merge(self, total: State, other: State) -> None:
        """Add the sums."""
        total["squares"] += other["squares"]
