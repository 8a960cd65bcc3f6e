"""A matrix against the factors that were found of it: residuals on both sides, in one sweep.

A panel of long rows meets its rows of the long factor while it is in cache: what is left of them is
squared at once, and their product with the panel adds up to what the short side is compared with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.checkpoint import State
from rankfold.pipeline.finite import join_bad, no_bad
from rankfold.pipeline.folds.panels import Buffers, OverPanels, Panels
from rankfold.pipeline.folds.project_rows import measured_squares, refuse_overflow
from rankfold.pipeline.narrow import Narrow
from rankfold.pipeline.view import Orientation, View, aligned_empty

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@dataclass(slots=True)
class Work:
    """Buffers of one segment."""

    panels: Buffers
    held: list[Array]
    """Rows of the long factor, one buffer for each panel that is read ahead."""

    columns: Float64
    short: Float64
    y: Float64
    long: Float64
    product: Float64


@dataclass(frozen=True, slots=True)
class Verify(OverPanels):
    """Fold of a matrix A and its factors into ``sum((A S - L s)^2)``, ``A'L`` and ``L'L``."""

    panels: Panels
    """Of float64."""

    long: View
    """The long factor, along the same axis, (rows, k)."""

    short: Narrow
    """The short factor, (short, k) float64."""

    columns: Narrow
    """(columns, 2): mean of each column of the matrix, and what it is multiplied by."""

    values: Float64
    """(k,) singular values."""

    weights: Float64
    """(k,) what the stored long factor is multiplied by to be orthonormal."""

    reach: float
    row_seconds: float

    @property
    def rank(self) -> int:
        """Components."""
        return len(self.values)

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace, and of two accumulators, which a merge holds beside it."""
        rows, short = self.panels.grain_rows, self.panels.view.short
        tall = self.cut.panel_rows
        held = self.slots * (tall * self.rank * self.long.dtype.itemsize + self.long.read_bytes(tall))
        sides = 8 * (self.rank * (2 * rows + 4 * short + 3 * self.rank) + 9 * max(rows, short))
        return self.panels.memory_bytes + held + sides

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        return 8 * self.rank * (self.panels.view.short + self.rank)

    def start(self) -> State:
        """Nothing compared."""
        k = self.rank
        return {
            "left": np.zeros(k),
            "product": np.zeros((self.panels.view.short, k)),
            "gram": np.zeros((k, k)),
            "squares": np.zeros(1),
            "bad": no_bad(),
        }

    def workspace(self) -> Work:
        """Allocate the buffers and load the short factor."""
        rows, by_rows = self.panels.grain_rows, self._by_rows
        columns = self.columns.load() if by_rows else aligned_empty((rows, 2), np.float64)
        tall, stored = self.cut.panel_rows, self.long.source.dtype
        return Work(
            panels=self.panels.buffers(),
            held=[self.long.panel_buffer(tall, stored) for _ in range(self.slots)],
            columns=columns,
            short=self.short.load(),
            y=aligned_empty((rows, self.rank), np.float64),
            long=aligned_empty((rows, self.rank), np.float64),
            product=aligned_empty((self.panels.view.short, self.rank), np.float64),
        )

    def read(self, work: Work, start: int, stop: int, slot: int) -> None:
        """Fetch a panel and its rows of the long factor."""
        self.panels.read(work.panels, start, stop, slot)
        self.long.read(self.long.part(work.held[slot], 0, stop - start), start, stop)

    def step(self, state: State, work: Work, start: int, stop: int, slot: int) -> None:
        """Compare a panel, grain by grain."""
        for first, last, raw in self.panels.grains(work.panels, start, stop, slot):
            if not self._by_rows:
                self.columns.read_into(work.columns[: last - first], first)
            mean, factor = np.ascontiguousarray(work.columns[: raw.shape[1]].T)
            squares = measured_squares(raw, mean, factor, self.reach)
            if squares is None:
                refuse_overflow(state, raw, *self.panels.corner(first))
                continue
            state["squares"] += squares
            d = self.panels.view.as_rows(self.panels.conditioned(work.panels, raw, mean, factor))
            stored = self.long.as_rows(self.long.part(work.held[slot], first - start, last - start))
            long, y = work.long[: last - first], work.y[: last - first]
            np.multiply(stored, self.weights, out=long)
            np.matmul(d, work.short, out=y)
            np.matmul(d.T, long, out=work.product)
            state["product"] += work.product
            state["gram"] += long.T @ long
            long *= self.values
            y -= long
            state["left"] += np.einsum("ij,ij->j", y, y)

    def merge(self, total: State, other: State) -> None:
        """Add the sums."""
        for name in ("left", "product", "gram", "squares"):
            total[name] += other[name]
        total["bad"] = join_bad(total["bad"], other["bad"])

    @property
    def _by_rows(self) -> bool:
        return self.panels.view.orientation is Orientation.ROWS
