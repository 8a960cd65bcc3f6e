"""The Gram pass over a sparse matrix: products of columns with columns, at the cost of its stored numbers.

Stored numbers are not centered. The scatter about the mean is found by subtracting count times the outer
product of the mean, once, in float64. That loses as many digits as the mean has beyond the deviations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.sparse.gram import add_gram, mirror_upper
from rankfold.kernels.sparse.moments import add_moments
from rankfold.kernels.sparse.products import order_columns
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.sparse_panels import OverSparsePanels, SparsePanels
from rankfold.pipeline.engine.fold import Buffer, Given, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State

Float64 = npt.NDArray[np.float64]

ROOM = 32 * 2**20
"""Smallest number of bytes for rows of the fullest columns, which ``add_gram`` fills in densely at a time."""

COLUMN_ROOM = 4096
"""Bytes of those dense rows for each column of the matrix, where that is more than ``ROOM``."""

NUMBER_ROOM = 40
"""Bytes that ``add_gram`` works on for each stored number of a panel."""


@dataclass(frozen=True, slots=True)
class SparseGramPass(OverSparsePanels):
    """Fold of a tall sparse matrix into sums, squares and the uncentered scatter of its rows."""

    panels: SparsePanels
    centering: Centering
    given: Float64
    """Provisional mean of the columns, (short,)."""

    row_seconds: float

    kernels = (order_columns, add_moments, add_gram)
    measures_columns = True
    columns = None

    @property
    def shift(self) -> Buffer:
        """Provisional mean of the columns, (short,)."""
        return Given.of(self.given)

    @property
    def temporary_bytes(self) -> int:
        """Bytes of vectors, of the workspace of ``add_gram``, and of stored numbers times ``pow2_scale``."""
        short, rows, numbers = self.panels.view.short, self.cut.panel_rows, self.panels.numbers
        vectors: int = OverSparsePanels.temporary_bytes.__get__(self)
        full = max(ROOM, COLUMN_ROOM * short) + 8 * short**2 + 256 * (short + rows)
        return vectors + full + numbers * (NUMBER_ROOM + self.panels.view.dtype.itemsize)

    @property
    def longest_side(self) -> int:
        """Longest side of operands of BLAS: columns, or rows that are filled in at a time."""
        return max(self.panels.view.short, COLUMN_ROOM)

    def sums(self) -> Mapping[str, Sum]:
        """``scatter`` (short, short), products of columns with columns; sums and squares of each column."""
        short = self.panels.view.short
        return {"scatter": Sum((short, short)), **OverSparsePanels.sums(self)}

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Add the products of columns of a panel to the scatter."""
        lines = self.take_lines(state, work, start, stop, slot, in_order=False)
        if lines is None:
            return
        stored, unit = lines.stored, self.centering.pow2_scale
        data: Any = stored.data if unit == 1 else stored.data * stored.data.dtype.type(unit)
        add_gram(stored.indptr, stored.indices, data, scatter=state["scatter"])

    def finish(self, state: State, shift: Float64) -> State:
        """Complete the scatter: both triangles, about the mean; add the mean, in the unit of the pass."""
        state = OverSparsePanels.finish(self, state, shift)
        scatter, count = state["scatter"], self.panels.view.long
        mirror_upper(scatter)
        mean = shift * self.centering.pow2_scale + state["sums"] / count
        if self.centering.center:
            scatter -= count * np.outer(mean, mean)
            diagonal = np.diag_indices(len(mean))
            scatter[diagonal] = np.maximum(state["squares"] - state["sums"] ** 2 / count, 0.0)
        else:
            mean = np.zeros_like(mean)
        return {**state, "mean": mean, "scatter": scatter}
