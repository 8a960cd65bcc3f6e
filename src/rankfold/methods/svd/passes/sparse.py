"""The fused pass over a sparse matrix, at the cost of its stored numbers.

``Y = A Q`` goes to scratch and ``Z = A'Y`` accumulates, as in ``dense.py``. Both are sums over stored numbers
that lie together: of rows of Q for the first, of rows of Y of the panel for the second. A slab is a few
columns of Q or Y, 256 bytes of each row. With lines of A (its rows, or columns if the sweep runs along them)
as ``sparse_panels.py`` defines them,

    y_i = f_i (s_i Q - c_i t'Q),      Z = sum_i f_i s_i y_i' - t (sum_i f_i c_i y_i)',

and the last term is subtracted once, when all panels are through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._layouts import aligned_empty
from rankfold.kernels.linear.count_sketch import draw_buckets, draw_tiles
from rankfold.kernels.sparse.moments import add_moments, add_rows_to_buckets
from rankfold.kernels.sparse.products import add_columns, multiply_rows, order_columns
from rankfold.kernels.sparse.slabs import cut_block, slab_shape
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.sparse_panels import Lines, OverSparsePanels, SparsePanels
from rankfold.methods.random_keys import Purpose
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Constant, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


WIDE_ROWS = 4096
"""Rows of a basis that are converted to float64 at a time."""


@dataclass(frozen=True, slots=True)
class SparsePass(OverSparsePanels):
    """Fold that writes ``Y = A Q`` to scratch and sums ``Z = A'Y`` of a sparse A; see ``PanelPass``."""

    panels: SparsePanels
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

    is_double: bool = False
    """True if products are summed in float64 whatever the data: for columns far from zero."""

    kernels = (order_columns, multiply_rows, add_columns, add_moments, add_rows_to_buckets, draw_buckets)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type that products are summed in."""
        return np.dtype(np.float64) if self.is_double else self.panels.view.dtype

    @property
    def shift(self) -> Buffer:
        """Shift of the columns, (short,)."""
        return Constant((self.panels.view.short,), part=self.constants)

    def buffers(self) -> Mapping[str, Buffer]:
        """Basis ``q`` (short, width), and ``slabs`` of it; products ``y`` of a panel (rows, width).

        ``slab`` holds the products of a panel with one slab.
        """
        short, rows, width = self.panels.view.short, self.cut.panel_rows, self.y.columns
        return {
            **OverSparsePanels.buffers(self),
            "q": Constant((short, width), self.dtype, self.constants),
            "slabs": Buffer(slab_shape(short, width, self.dtype), self.dtype),
            "slab": Buffer(slab_shape(rows, width, self.dtype)[1:], self.dtype),
            "y": Buffer((rows, width), self.panels.view.dtype),
        }

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers; copy the basis into slabs that begin on cache lines; compute ``offset`` (width,).

        ``offset`` is ``t'Q`` of the formula in the module.
        """
        work = OverSparsePanels.workspace(self, device)
        for name in ("slabs", "slab"):
            setattr(work, name, aligned_empty(getattr(work, name).shape, self.dtype))
        cut_block(work.q, slabs=work.slabs)
        ends = work.shift if self._by_rows else np.ones(self.panels.view.short)
        work.offset = _wide_product(ends, work.q)
        del work.q
        return work

    @property
    def _by_rows(self) -> bool:
        return self.panels.view.orientation is Orientation.ROWS

    @property
    def temporary_bytes(self) -> int:
        """Bytes of vectors, of the shift of a slab's products, and of rows of the basis in float64."""
        slab = self.cut.panel_rows * slab_shape(1, self.y.columns, self.dtype)[2] * (not self._by_rows)
        vectors: int = OverSparsePanels.temporary_bytes.__get__(self)
        return (
            vectors
            + slab * (8 + self.dtype.itemsize)
            + 8 * min(WIDE_ROWS, self.panels.view.short) * self.y.columns
        )

    def sums(self) -> Mapping[str, Sum]:
        """``z`` (short, width), the sum of f_i s_i y_i'; ``weights`` (width,), the sum of f_i c_i y_i.

        Also sums and squares of columns, and a sketch ``rows`` (sketch_rows, short) if asked for: for each of
        its rows ``signs`` sums the random signs, and ``shares`` the signed f_i c_i of its lines.
        """
        width, rows = self.y.columns, self.sketch_rows
        sums = {
            "z": Sum((self.panels.view.short, width)),
            "weights": Sum((width,)),
            **OverSparsePanels.sums(self),
        }
        if rows:
            sketch = Sum((rows, self.panels.view.short), self.panels.view.dtype)
            sums |= {"rows": sketch, "signs": Sum((rows,)), "shares": Sum((rows,))}
        return sums

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Write the products Y of a panel and add to the sums, slab by slab."""
        lines = self.take_lines(state, work, start, stop, slot, in_order=True)
        if lines is None:
            return
        stored, count, width = lines.stored, stop - start, self.y.columns
        shifts = self.centering.center
        for s, basis in enumerate(work.slabs):
            first = s * basis.shape[1]
            last = min(first + basis.shape[1], width)
            y = work.slab[:count, : last - first]
            multiply_rows(stored.indptr, stored.indices, stored.data, basis[:, : last - first], y=y)
            offset = work.offset[first:last]
            if shifts:
                y -= (offset if lines.means is None else np.outer(lines.means, offset)).astype(self.dtype)
            if lines.scale is not None:
                y *= lines.scale.astype(self.dtype)[:, None]
            work.y[:count, first:last] = y
            if lines.scale is not None:
                y *= lines.scale.astype(self.dtype)[:, None]
            if shifts:
                weights = y.sum(axis=0, dtype=np.float64) if lines.means is None else lines.means @ y
                state["weights"][first:last] += weights
            add_columns(work.pointers, work.rows, work.values, y, z=state["z"][:, first:last])
        self.y.write(start, work.y[:count])
        if self.sketch_rows:
            self._sketch(state, lines, start, stop)

    def _sketch(self, state: State, lines: Lines, start: int, stop: int) -> None:
        """Add the lines ``start:stop`` with random signs to random rows of the sketch."""
        stored, dtype = lines.stored, self.panels.view.dtype
        unit = self.centering.panel_factor(self.panels.view.orientation)
        tiles = draw_tiles(self.seed, self.purpose, self.sketch_rows, start, stop)
        for low, high, buckets, signs in tiles:
            here = slice(low - start, high - start)
            factors = signs * unit
            if lines.scale is not None:
                factors = factors * lines.scale[here]
            pointers = stored.indptr[low - start : high - start + 1]
            part = (pointers, stored.indices, stored.data, buckets, factors.astype(dtype))
            add_rows_to_buckets(*part, sums=state["rows"])
            np.add.at(state["signs"], buckets, signs)
            if self.centering.center:
                np.add.at(
                    state["shares"], buckets, factors * (1.0 if lines.means is None else lines.means[here])
                )

    def finish(self, state: State, shift: Float64) -> State:
        """Complete sums to those of ``PanelPass``: terms of rank one, and zeros that are not stored."""
        state = OverSparsePanels.finish(self, state, shift)
        ends = shift if self._by_rows else np.ones(self.panels.view.short)
        if self.centering.center:
            state["z"] -= np.outer(ends, state["weights"])
            if self.sketch_rows:
                state["rows"] -= np.outer(state["shares"], ends).astype(state["rows"].dtype)
        return state


def _wide_product(vector: Float64, q: Array) -> Float64:
    """``vector @ q`` in float64, converting few rows of ``q`` at a time."""
    total = np.zeros(q.shape[1])
    for first in range(0, len(q), WIDE_ROWS):
        part = slice(first, first + WIDE_ROWS)
        total += vector[part] @ q[part].astype(np.float64)
    return total
