"""Rows of a factor into the whole chunks of the result, each written once and by one task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.parts.combination import Combination
from rankfold.methods.parts.combination import Work as CombinationWork
from rankfold.pipeline.data.view import aligned_empty
from rankfold.pipeline.engine.blocks import Cut, grains
from rankfold.pipeline.storage.checkpoint import State, load_arrays
from rankfold.pipeline.storage.chunk_writer import write_long_rows

Array = npt.NDArray[Any]


@dataclass(slots=True)
class Work:
    """Buffers of one segment."""

    combination: CombinationWork
    rotation: npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64]
    factor: npt.NDArray[np.float64]
    out: Array


@dataclass(frozen=True, slots=True)
class WriteRows:
    """Fold that writes ``(combination @ rotation) * weights`` and sums up the Gram matrix before weights."""

    combination: Combination
    cut: Cut
    """Panels are whole chunks of the array."""

    constants: Path
    """A part with ``rotation`` (width, k) and ``weights`` (k,)."""

    array: Path
    """The Zarr array to write, (rows, k), or (k, rows) if ``transposed``."""

    transposed: bool
    dtype: np.dtype[Any]
    rank: int
    row_seconds: float
    slots: int = 1

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace and of two accumulators; chunks that are not as they lie are copied."""
        rows, tall = self._rows, self.cut.panel_rows
        chunk, rotation = tall * self.rank * self.dtype.itemsize, self.combination.width * self.rank
        factor = 8 * (rows * self.rank + rotation + 3 * self.rank**2)
        return self.combination.memory_bytes(rows) + factor + 2 * chunk

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        return 8 * self.rank**2

    @property
    def longest_side(self) -> int:
        """Rows of a grain and of R above them."""
        return self._rows + self.combination.width

    @property
    def _rows(self) -> int:
        return min(self.cut.grain_rows, self.cut.panel_rows)

    def start(self) -> State:
        """Gram matrix of no rows."""
        return {"gram": np.zeros((self.rank, self.rank))}

    def workspace(self) -> Work:
        """Allocate the buffers and load the constants."""
        stored = load_arrays(self.constants)
        tall = self.cut.panel_rows
        return Work(
            combination=self.combination.workspace(self._rows),
            rotation=stored["rotation"],
            weights=stored["weights"],
            factor=aligned_empty((self._rows, self.rank), np.float64),
            out=aligned_empty((self.rank, tall) if self.transposed else (tall, self.rank), self.dtype),
        )

    def read(self, work: Work, start: int, stop: int, slot: int) -> None:
        """Nothing to read ahead: rows come from scratch, grain by grain."""

    def step(self, state: State, work: Work, start: int, stop: int, slot: int) -> None:
        """Form rows ``start:stop`` and write them as whole chunks."""
        out = work.out.T if self.transposed else work.out
        for first, last in grains(start, stop, self.cut.grain_rows):
            factor = work.factor[: last - first]
            np.matmul(self.combination.rows(work.combination, first, last), work.rotation, out=factor)
            state["gram"] += factor.T @ factor
            np.multiply(factor, work.weights, out=out[first - start : last - start], casting="same_kind")
        write_long_rows(self.array, work.out, start, stop, transposed=self.transposed)

    def merge(self, total: State, other: State) -> None:
        """Add the Gram matrices."""
        total["gram"] += other["gram"]
