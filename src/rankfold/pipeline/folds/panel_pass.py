"""The fused pass: ``Y = A Q`` goes to scratch and ``Z = A'Y`` accumulates, each panel read once.

``A`` is the matrix as long by short, its columns centred and scaled as asked. A tall matrix is shifted
by a vector fixed before the pass; what the true mean differs from it is put right afterwards by whoever
reads the accumulator. A wide matrix has whole columns in each panel and is centred exactly here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.condition import measure
from rankfold.kernels.panel import panel_product
from rankfold.pipeline.checkpoint import State, load_arrays
from rankfold.pipeline.finite import count_bad, join_bad, no_bad
from rankfold.pipeline.folds.local_columns import Centring, kept_columns
from rankfold.pipeline.folds.panels import Buffers, OverPanels, Panels, numbers
from rankfold.pipeline.narrow import Narrow
from rankfold.pipeline.view import Orientation, aligned_empty

Array = npt.NDArray[Any]


@dataclass(slots=True)
class Work:
    """Buffers of one segment."""

    panels: Buffers
    q: Array
    shift: npt.NDArray[np.float64]
    ones: npt.NDArray[np.float64]
    y: Array
    z: Array


@dataclass(frozen=True, slots=True)
class PanelPass(OverPanels):
    """Fold of a matrix with a basis of ``width`` columns."""

    panels: Panels
    centring: Centring
    constants: Path
    """A part with ``q`` (short, width), scaled by ``unit`` and by column weights, and ``shift``."""

    y: Narrow
    columns: Narrow | None
    """Where mean and scale of each column go when the sweep runs along the columns."""

    measured: bool
    """Whether sums and squares are taken: the first pass over the data."""

    row_seconds: float

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace, and of two accumulators, which a merge holds beside it."""
        short, width, item = self.panels.view.short, self.y.columns, self.panels.view.dtype.itemsize
        basis = short * width * (8 + item)  # as loaded, then in the working type
        products = (self.panels.grain_rows + short) * width * item
        vectors = 8 * 8 * max(short, self.panels.grain_rows)
        return self.panels.memory_bytes + basis + products + 2 * 8 * short * width + vectors

    def start(self) -> State:
        """Accumulator of no rows."""
        short = self.panels.view.short
        return {
            "z": np.zeros((short, self.y.columns)),
            "sums": np.zeros(short),
            "squares": np.zeros(short),
            "bad": no_bad(),
        }

    def workspace(self) -> Work:
        """Allocate the buffers and load the constants."""
        view, width = self.panels.view, self.y.columns
        constants = load_arrays(self.constants)
        return Work(
            panels=self.panels.buffers(),
            q=constants["q"].astype(view.dtype),
            shift=constants["shift"],
            ones=np.ones(max(view.short, self.panels.grain_rows)),
            y=aligned_empty((self.panels.grain_rows, width), view.dtype),
            z=aligned_empty((view.short, width), view.dtype),
        )

    def read(self, work: Work, start: int, stop: int, slot: int) -> None:
        """Fetch a panel."""
        self.panels.read(work.panels, start, stop, slot)

    def step(self, state: State, work: Work, start: int, stop: int, slot: int) -> None:
        """Multiply a panel, grain by grain."""
        condition = self._shifted if self.panels.view.orientation is Orientation.ROWS else self._centred
        for first, last, raw in self.panels.grains(work.panels, start, stop, slot):
            d = condition(state, work, first, raw)
            if d is None:
                count_bad(state, raw, *self.panels.corner(first))
                continue
            y = work.y[: last - first]
            panel_product(self.panels.view.as_rows(d), work.q, y=y, z=state["z"], work=work.z)
            self.y.write(first, y)

    def merge(self, total: State, other: State) -> None:
        """Add the sums."""
        for name in ("z", "sums", "squares"):
            total[name] += other[name]
        total["bad"] = join_bad(total["bad"], other["bad"])

    def _shifted(self, state: State, work: Work, first: int, raw: Array) -> Array | None:
        if self.measured:
            sums, squares = measure(numbers(raw), work.shift, self.centring.unit)
            if not np.isfinite(squares).all():
                return None
            state["sums"] += sums
            state["squares"] += squares
        if not self.centring.centre and raw.dtype == self.panels.view.dtype:
            return raw
        return self.panels.conditioned(work.panels, raw, work.shift, work.ones[: raw.shape[1]])

    def _centred(self, state: State, work: Work, first: int, raw: Array) -> Array | None:
        columns = kept_columns(raw, self.centring, first, self.columns)
        if columns is None:
            return None
        state["squares"][0] += columns.squares.sum()
        if not self.centring.centre and raw.dtype == self.panels.view.dtype:
            return raw
        return self.panels.conditioned(work.panels, raw, columns.mean, columns.scale)
