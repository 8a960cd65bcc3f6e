"""The fused pass: ``Y = A Q`` goes to scratch and ``Z = A'Y`` accumulates, each panel read once.

``A`` is the matrix as long by short, its columns centred and scaled as asked: see ``conditioned``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.panel import panel_product
from rankfold.pipeline.checkpoint import State, load_arrays
from rankfold.pipeline.finite import join_bad
from rankfold.pipeline.folds.conditioned import Grains, OverConditioned
from rankfold.pipeline.folds.local_columns import Centring
from rankfold.pipeline.folds.panels import Panels
from rankfold.pipeline.narrow import Narrow
from rankfold.pipeline.view import aligned_empty

Array = npt.NDArray[Any]


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
    centring: Centring
    constants: Path
    """A part with ``q`` (short, width), scaled by ``unit`` and by column weights, and ``shift``."""

    y: Narrow
    columns: Narrow | None
    measured: bool
    row_seconds: float

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace, and of two accumulators, which a merge holds beside it."""
        short, width, item = self.panels.view.short, self.y.columns, self.panels.view.dtype.itemsize
        basis = short * width * (8 + item)  # as loaded, then in the working type
        products = (self.panels.grain_rows + short) * width * item
        return self.grains_bytes + basis + products + 2 * 8 * short * width

    def start(self) -> State:
        """Accumulator of no rows."""
        return {"z": np.zeros((self.panels.view.short, self.y.columns)), **self.measures()}

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

    def merge(self, total: State, other: State) -> None:
        """Add the sums."""
        for name in ("z", "sums", "squares"):
            total[name] += other[name]
        total["bad"] = join_bad(total["bad"], other["bad"])
