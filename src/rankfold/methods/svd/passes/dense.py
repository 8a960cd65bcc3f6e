"""The fused pass: ``Y = A Q`` goes to scratch and ``Z = A'Y`` accumulates, each panel read once.

A first pass may make a sketch of the rows as well, while they are in cache. A panel is the rows in memory at
a time, a grain the rows of one matrix product.

``A`` is the matrix as long by short, its columns centered and scaled as asked: see ``conditioned.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.center_scale import measure, subtract
from rankfold.kernels.linear.count_sketch import add_to_buckets, draw_buckets, draw_tiles
from rankfold.kernels.linear.panel import panel_product
from rankfold.methods.parts.conditioned import Centering, OverConditionedPanels
from rankfold.methods.parts.panels import Panels
from rankfold.methods.random_keys import Purpose
from rankfold.pipeline.engine.fold import Buffer, Constant, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class PanelPass(OverConditionedPanels):
    """Fold that writes ``Y = A Q`` to scratch and sums ``Z = A'Y``, for a basis Q as wide as ``y``."""

    panels: Panels
    centering: Centering
    constants: Path
    """Checkpoint file with ``q`` (short, width), times ``pow2_scale`` and column weights, and ``shift``."""

    y: ScratchMatrix
    columns: ScratchMatrix | None
    measures_columns: bool
    row_seconds: float
    sketch_rows: int = 0
    """Rows of the sketch; 0 for none."""

    seed: int = 0
    purpose: Purpose = Purpose.ROW_SIGNS
    """Purpose that keys the random numbers of the sketch."""
    tf32: bool = False
    """True if a device may round operands of products to 11 bits."""

    kernels = (measure, subtract, panel_product, add_to_buckets, draw_buckets)

    @property
    def shift_part(self) -> Path:
        """Path of the checkpoint file that holds the shift of the columns."""
        return self.constants

    def buffers(self) -> Mapping[str, Buffer]:
        """Basis ``q`` (short, width); products ``y`` of a grain (grain rows, width); ``z`` (short, width).

        ``z`` is what the grain adds to Z. All are in the working type. The others are those of
        ``OverConditionedPanels``.
        """
        view, width = self.panels.view, self.y.columns
        return {
            **OverConditionedPanels.buffers(self),
            "q": Constant((view.short, width), view.dtype, self.constants),
            "y": Buffer((self.panels.grain_rows, width), view.dtype),
            "z": Buffer((view.short, width), view.dtype),
        }

    def sums(self) -> Mapping[str, Sum]:
        """Z (short, width); sums and squares of columns; a sketch ``rows`` (sketch_rows, short) if asked for.

        ``signs`` (sketch_rows,) are the sums of the random signs in each row of the sketch.
        """
        short, rows = self.panels.view.short, self.sketch_rows
        sketch = (
            {"rows": Sum((rows, short), self.panels.view.dtype), "signs": Sum((rows,), on_host=True)}
            if rows
            else {}
        )
        return {"z": Sum((short, self.y.columns)), **OverConditionedPanels.sums(self), **sketch}

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Write the product Y of a panel with the basis and add the panel's A'Y to Z, grain by grain."""
        for first, last, d in self.condition_grains(state, work, start, stop, slot):
            y = work.y[: last - first]
            panel_product(d, work.q, y=y, z=state["z"], work=work.z, tf32=self.tf32)
            work.device.send(y, functools.partial(self.y.write, first))
            if self.sketch_rows:
                self._sketch(state, work, d, first)

    def _sketch(self, state: State, work: Workspace, d: Array, first: int) -> None:
        """Add rows ``d``, the first one row ``first``, with random signs to random rows of the sketch."""
        unit = self.centering.panel_factor(self.panels.view.orientation)
        tiles = draw_tiles(self.seed, self.purpose, self.sketch_rows, first, first + len(d))
        for low, high, buckets, signs in tiles:
            factors = (signs * unit).astype(d.dtype)
            rows, place = d[low - first : high - first], work.device.place
            add_to_buckets(rows, place(buckets, np.int64), place(factors, d.dtype), sums=state["rows"])
            np.add.at(state["signs"], buckets, signs)
