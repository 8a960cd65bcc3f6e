"""Rows of a low-rank approximation out of its factors, written as whole chunks of a plain array.

The sweep runs along the longer side of what is written: over the left factor by rows, or over the right
one by columns. Sums are float64 and rounded once, so a mean of 1e4 costs float32 nothing but its own digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.blocks import grains
from rankfold.pipeline.checkpoint import State
from rankfold.pipeline.folds.panels import Buffers, OverPanels, Panels
from rankfold.pipeline.narrow import Narrow
from rankfold.pipeline.source import Source, Span
from rankfold.pipeline.view import Orientation, aligned_empty
from rankfold.pipeline.whole_chunks import write_whole_chunks

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@dataclass(slots=True)
class Work:
    """Buffers of one segment."""

    panels: Buffers
    other: Float64
    columns: Float64
    factor: Float64
    product: Float64
    out: Array


@dataclass(frozen=True, slots=True)
class Rebuild(OverPanels):
    """Fold over the long factor that writes ``(left * weights) @ right * scale + mean``."""

    panels: Panels
    first: int
    """Of the long factor: where what is written begins."""

    other: Source
    """The factor of the short side."""

    short: Span
    """What is written of it."""

    columns: Narrow
    """(columns, 2): mean and scale of each column."""

    weights: Float64
    """(rank,); components beyond are left out."""

    array: Path
    width: int
    """Of a chunk, along the short side."""

    row_seconds: float

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of what is written."""
        return self.panels.dtype

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace, with what reading the other factor and writing chunks takes."""
        rank, short, rows = len(self.weights), self.short[1] - self.short[0], self.panels.grain_rows
        resident = short * rank * (8 + self.dtype.itemsize) + self.other.read_bytes(*self._other_shape)
        products = 8 * rows * (rank + self.width) + 2 * 16 * self._held_columns
        return self.panels.memory_bytes + resident + products + 3 * self._tile_bytes

    @property
    def _by_rows(self) -> bool:
        return self.panels.view.orientation is Orientation.ROWS

    @property
    def _other_shape(self) -> tuple[int, int]:
        shape = len(self.weights), self.short[1] - self.short[0]
        return shape if self._by_rows else shape[::-1]

    @property
    def _held_columns(self) -> int:
        return self.columns.rows if self._by_rows else self.cut.panel_rows

    @property
    def _tile_bytes(self) -> int:
        return self.cut.panel_rows * self.width * self.dtype.itemsize

    def start(self) -> State:
        """No rows written."""
        return {"rows": np.zeros(1, dtype=np.int64)}

    def workspace(self) -> Work:
        """Allocate the buffers and load the other factor."""
        rank, short, rows = len(self.weights), self.short[1] - self.short[0], self.panels.grain_rows
        raw = np.empty(self._other_shape, self.other.dtype)
        spans = [(0, rank), self.short]
        self.other.read_into(raw, *(spans if self._by_rows else spans[::-1]))
        other = aligned_empty((rank, short), np.float64)
        np.multiply(raw if self._by_rows else raw.T, self.weights[:, None], out=other)
        columns = aligned_empty((self._held_columns, 2), np.float64)
        if self._by_rows:
            self.columns.read_into(columns, 0)
        return Work(
            panels=self.panels.buffers(),
            other=other,
            columns=columns,
            factor=aligned_empty((rows, rank), np.float64),
            product=aligned_empty((rows * self.width,), np.float64),
            out=aligned_empty((self.cut.panel_rows * self.width,), self.dtype),
        )

    def read(self, work: Work, start: int, stop: int, slot: int) -> None:
        """Fetch a panel of the long factor."""
        self.panels.read(work.panels, self.first + start, self.first + stop, slot)

    def step(self, state: State, work: Work, start: int, stop: int, slot: int) -> None:
        """Form a panel of the matrix, one chunk across at a time, and write it."""
        view = self.panels.view
        held = view.as_rows(view.part(work.panels.slots[slot], 0, stop - start))
        if not self._by_rows:
            self.columns.read_into(work.columns[: stop - start], start)
        short = self.short[1] - self.short[0]
        for left in range(0, short, self.width):
            right = min(left + self.width, short)
            out = work.out[: (stop - start) * (right - left)].reshape(stop - start, right - left)
            for first, last in grains(0, stop - start, self.cut.grain_rows):
                self._form(work, held[first:last], (first, last), (left, right), out[first:last])
            if self._by_rows:
                write_whole_chunks(self.array, out, (start, stop), (left, right))
            else:
                write_whole_chunks(self.array, out.T, (left, right), (start, stop))
        state["rows"] += stop - start

    def merge(self, total: State, other: State) -> None:
        """Add the counts."""
        total["rows"] += other["rows"]

    def _form(self, work: Work, held: Array, rows: Span, across: Span, out: Array) -> None:
        """One grain of a chunk, from rows of the long factor."""
        factor = work.factor[: len(held)]
        np.copyto(factor, held[:, : len(self.weights)])
        product = work.product[: out.size].reshape(out.shape)
        np.matmul(factor, work.other[:, slice(*across)], out=product)
        columns = work.columns[slice(*across)] if self._by_rows else work.columns[slice(*rows), None]
        product *= columns[..., 1]
        product += columns[..., 0]
        np.copyto(out, product, casting="same_kind")
