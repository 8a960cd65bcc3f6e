"""The fused pass: ``Y = A Q`` goes to scratch and ``Z = A'Y`` accumulates, each panel read once.

A first pass may make a sketch of the rows as well, while they are in cache.

``A`` is the matrix as long by short, its columns centered and scaled as asked: see ``conditioned``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.count_sketch import TILE_ROWS, add_to_buckets, draw_buckets
from rankfold.kernels.linear.panel import panel_product
from rankfold.methods.parts.conditioned import Centering, Grains, OverConditioned
from rankfold.methods.parts.finite import join_bad
from rankfold.methods.parts.panels import Panels
from rankfold.pipeline.data.view import aligned_empty
from rankfold.pipeline.storage.checkpoint import State, load_arrays
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]

ROW_SIGNS = 6
"""Purpose key of buckets and signs."""


@dataclass(slots=True)
class Work:
    """Buffers of one segment."""

    grains: Grains
    q: Array
    y: Array
    z: Array


@dataclass(frozen=True, slots=True)
class PanelPass(OverConditioned):
    """Fold of a matrix with a basis of ``width`` columns."""

    panels: Panels
    centering: Centering
    constants: Path
    """A part with ``q`` (short, width), scaled by ``unit`` and by column weights, and ``shift``."""

    y: ScratchMatrix
    columns: ScratchMatrix | None
    measured: bool
    row_seconds: float
    sketch_rows: int = 0
    """Rows of the sketch; 0 for none."""

    seed: int = 0

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace, and of two accumulators, which a merge holds beside it.

        The basis in the working type; as it is loaded it is gone before there is an accumulator.
        """
        short, width, item = self.panels.view.short, self.y.columns, self.panels.view.dtype.itemsize
        products = (self.panels.grain_rows + 2 * short) * width * item
        return self.grains_bytes + products + 2 * self.accumulator_bytes

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        short, item = self.panels.view.short, self.panels.view.dtype.itemsize
        return 8 * short * self.y.columns + self.sketch_rows * (short * item + 8)

    def start(self) -> State:
        """Accumulator of no rows."""
        view = self.panels.view
        state = {"z": np.zeros((view.short, self.y.columns)), **self.measures()}
        if self.sketch_rows:
            state["rows"] = np.zeros((self.sketch_rows, view.short), view.dtype)
            state["signs"] = np.zeros(self.sketch_rows)
        return state

    def workspace(self) -> Work:
        """Allocate the buffers and load the constants."""
        view, width = self.panels.view, self.y.columns
        constants = load_arrays(self.constants)
        return Work(
            grains=self.buffers(constants["shift"]),
            q=constants["q"].astype(view.dtype),
            y=aligned_empty((self.panels.grain_rows, width), view.dtype),
            z=aligned_empty((view.short, width), view.dtype),
        )

    def read(self, work: Work, start: int, stop: int, slot: int) -> None:
        """Fetch a panel."""
        self.panels.read(work.grains.panels, start, stop, slot)

    def step(self, state: State, work: Work, start: int, stop: int, slot: int) -> None:
        """Multiply a panel, grain by grain."""
        for first, last, d in self.conditioned(state, work.grains, start, stop, slot):
            y = work.y[: last - first]
            panel_product(d, work.q, y=y, z=state["z"], work=work.z)
            self.y.write(first, y)
            if self.sketch_rows:
                self._sketch(state, d, first)

    def _sketch(self, state: State, d: Array, first: int) -> None:
        """Add rows to their buckets, which are drawn by tiles."""
        last = first + len(d)
        for tile in range(first // TILE_ROWS, -(-last // TILE_ROWS)):
            top = tile * TILE_ROWS
            low, high = max(first, top), min(last, top + TILE_ROWS)
            drawn = draw_buckets(self.seed, ROW_SIGNS, tile, self.sketch_rows)
            buckets, signs = (numbers[low - top : high - top] for numbers in drawn)
            factors = (signs * self.centering.unit).astype(d.dtype)
            add_to_buckets(d[low - first : high - first], buckets, factors, sums=state["rows"])
            np.add.at(state["signs"], buckets, signs)

    def merge(self, total: State, other: State) -> None:
        """Add the sums."""
        for name in ("z", "sums", "squares", *("rows", "signs") * bool(self.sketch_rows)):
            total[name] += other[name]
        total["bad"] = join_bad(total["bad"], other["bad"])
