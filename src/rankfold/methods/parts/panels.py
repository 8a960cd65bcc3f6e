"""Panels of the matrix in buffers that a worker reuses, and grains of them ready to multiply."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.center_scale import subtract
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.blocks import Cut, grains
from rankfold.pipeline.engine.fold import DeclaredFold, Workspace

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Panels:
    """How a sweep holds the matrix: the view, its cut, and the number of buffers."""

    view: View
    cut: Cut
    slots: int
    dtype: np.dtype[Any]
    """Type of grains once they are centered and scaled."""

    extra_rows: int = 0
    """Rows that a grain buffer has beyond the grain."""

    borrows: bool = False
    """Whether panels of a matrix in memory are taken where they lie: for folds that never write to them."""

    copy_grains: bool = False
    """Whether grains are conditioned into a buffer of their own even where the types agree."""

    @property
    def grain_rows(self) -> int:
        """Rows of the largest grain."""
        return min(self.cut.grain_rows, self.cut.panel_rows)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the buffers of one workspace, and of what reading keeps in each thread that reads."""
        view, rows = self.view, self.cut.panel_rows
        panels = self.slots * rows * view.short * view.source.dtype.itemsize * (not self._lent)
        grain = (self.grain_rows + self.extra_rows) * view.short * self.dtype.itemsize
        return panels + grain * self._converts + self.slots * view.read_bytes(rows)

    @property
    def _converts(self) -> bool:
        return self.copy_grains or self.view.source.dtype != self.dtype

    @property
    def _lent(self) -> bool:
        return self.borrows and self.view.lend(0, 0) is not None

    def buffers(self) -> Buffers:
        """Allocate them."""
        view = self.view
        rows = 0 if self._lent else self.cut.panel_rows
        slots = [view.panel_buffer(rows, view.source.dtype) for _ in range(self.slots)]
        grain = None
        if self._converts:
            grain = view.panel_buffer(self.grain_rows + self.extra_rows, self.dtype)
        return Buffers(slots, grain)

    def read(self, buffers: Buffers, start: int, stop: int, slot: int) -> None:
        """Read a panel into a slot, or take it as it lies."""
        lent = self.view.lend(start, stop) if self.borrows else None
        if lent is None:
            self.view.read(buffers.slots[slot], start, stop)
        else:
            buffers.slots[slot] = lent

    def grains(self, buffers: Buffers, start: int, stop: int, slot: int) -> Iterator[tuple[int, int, Array]]:
        """Grains of the panel in a slot: first and last long row, and the numbers as they lie."""
        for first, last in grains(start, stop, self.cut.grain_rows):
            yield first, last, self.view.part(buffers.slots[slot], first - start, last - start)

    def condition(self, buffers: Buffers, raw: Array, shift: Float64, scale: Float64) -> Array:
        """``(raw - shift) * scale`` as ``dtype``, in place where the types agree."""
        out = raw
        if buffers.grain is not None:
            rows = raw.shape[0 if self.view.orientation is Orientation.ROWS else 1]
            out = self.view.part(buffers.grain, 0, rows)
        subtract(numbers(raw), shift, scale, out=out)
        return out

    def corner(self, long_row: int) -> tuple[int, int]:
        """Row and column of the matrix where a long row starts."""
        return (long_row, 0) if self.view.orientation is Orientation.ROWS else (0, long_row)


@dataclass(slots=True)
class Buffers:
    """Allocated panels."""

    slots: list[Array]
    grain: Array | None


class OverPanels(DeclaredFold):
    """What folds over panels of the matrix share."""

    __slots__ = ()
    panels: Panels

    @property
    def cut(self) -> Cut:
        """How long rows are cut into panels and streams."""
        return self.panels.cut

    @property
    def slots(self) -> int:
        """Number of buffers for panels."""
        return self.panels.slots

    @property
    def memory_bytes(self) -> int:
        """Bytes of a segment, with its panels."""
        return self.panels.memory_bytes + super().memory_bytes

    def workspace(self) -> Workspace:
        """Buffers, and panels."""
        work = super().workspace()
        work.panels = self.panels.buffers()
        return work

    def read(self, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Fetch a panel."""
        self.panels.read(work.panels, start, stop, slot)

    @property
    def longest_side(self) -> int:
        """Rows of a grain and, where they are factorized together, of R above them."""
        return min(self.cut.grain_rows, self.cut.panel_rows) + self.panels.view.short


def numbers(x: Array) -> Array:
    """The same memory in a type that compiled loops read; float16 alone is copied."""
    if x.dtype == np.bool_:
        return x.view(np.uint8)
    return x.astype(np.float32) if x.dtype == np.float16 else x
