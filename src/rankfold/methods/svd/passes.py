"""Choice of the fold of a pass by the storage of a matrix: dense panels, or stored numbers alone.

The fused pass (``PanelPass``): ``Y = A Q`` goes to scratch and ``Z = A'Y`` accumulates, each panel read once.
A first pass may make a sketch of the rows as well, while they are in cache. A panel is the rows in memory at
a time, a grain the rows of one matrix product. ``A`` is the matrix as long by short, its columns centered and
scaled as asked: see ``parts/conditioned.py``.

The fused pass over a sparse matrix (``SparsePass``), at the cost of its stored numbers: ``Y = A Q`` goes to
scratch and ``Z = A'Y`` accumulates, as over dense panels. Both are sums over stored numbers that lie
together: of rows of Q for the first, of rows of Y of the panel for the second. A slab is a few columns of Q
or Y, 256 bytes of each row. With lines of A (its rows, or columns if the sweep runs along them) as
``parts/sparse_panels.py`` defines them,

    y_i = f_i (s_i Q - c_i t'Q),      Z = sum_i f_i s_i y_i' - t (sum_i f_i c_i y_i)',

and the last term is subtracted once, when all panels are through.

The Gram pass over a sparse matrix (``SparseGramPass``): products of columns with columns, at the cost of its
stored numbers. These are not centered. The scatter about the mean is found by subtracting count times the
outer product of the mean, once, in float64. That loses as many digits as the mean has beyond the deviations.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import aligned_empty
from rankfold.kernels.linear.center_scale import measure, subtract
from rankfold.kernels.linear.count_sketch import add_to_buckets, draw_buckets, draw_tiles
from rankfold.kernels.linear.panel import panel_product
from rankfold.kernels.sparse.gram import add_gram, mirror_upper
from rankfold.kernels.sparse.moments import add_moments, add_rows_to_buckets
from rankfold.kernels.sparse.products import add_columns, multiply_rows, order_columns
from rankfold.kernels.sparse.slabs import cut_block, slab_shape
from rankfold.methods.parts.conditioned import Centering, ColumnStatistics, OverConditionedPanels
from rankfold.methods.parts.panels import Panels
from rankfold.methods.parts.sparse_panels import Lines, OverSparsePanels, SparsePanels, SparseStatistics
from rankfold.methods.random_keys import Purpose
from rankfold.methods.svd.strategy import Strategy
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Constant, Given, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Float64 = npt.NDArray[np.float64]


def fused_pass(
    strategy: Strategy,
    slots: int,
    centering: Centering,
    constants: Path,
    y: ScratchMatrix,
    columns: ScratchMatrix | None,
    *,
    measures_columns: bool,
    sketch_rows: int,
    seed: int = 0,
    purpose: Purpose = Purpose.ROW_SIGNS,
    tf32: bool = False,
    is_double: bool = False,
) -> PanelPass | SparsePass:
    """The fold that computes Y = A Q and Z = A'Y in one pass, for a block Q of ``y.columns`` columns.

    ``slots`` is the number of panels in memory at once. The other arguments are the fields of ``PanelPass``
    and ``SparsePass``.
    """
    seconds = strategy.row_seconds(4 * y.columns)
    shared = (centering, constants, y, columns, measures_columns, seconds, sketch_rows, seed, purpose)
    if strategy.fullest:
        return SparsePass(strategy.sparse_panels(slots), *shared, is_double)
    return PanelPass(strategy.panels(slots), *shared, tf32)


def statistics_fold(
    strategy: Strategy, slots: int, shift: Float64, centering: Centering
) -> ColumnStatistics | SparseStatistics:
    """The fold of a pass that only sums columns less ``shift`` (short,) and their squares."""
    seconds = strategy.row_seconds(4)
    if strategy.fullest:
        return SparseStatistics(strategy.sparse_panels(slots), centering, shift, seconds)
    return ColumnStatistics(strategy.panels(slots), shift, centering.pow2_scale, seconds)


Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class PanelPass(OverConditionedPanels):
    """Fold that writes ``Y = A Q`` to scratch and sums ``Z = A'Y``, for a basis Q as wide as ``y``."""

    panels: Panels
    centering: Centering
    constants: Path
    """Checkpoint file with ``q`` (short, width), Q times weights of columns and the factor of A, and
    ``shift`` (short,)."""

    y: ScratchMatrix
    """Scratch matrix (long, width) to write Y to."""

    columns: ScratchMatrix | None
    """Scratch matrix (long, 2) for mean and deviation of columns in a sweep along these; None for no such
    file."""

    measures_columns: bool
    """True if sums and squares of columns are added up as well."""

    row_seconds: float
    sketch_rows: int = 0
    """Number of rows of the sketch; 0 for none."""

    seed: int = 0
    purpose: Purpose = Purpose.ROW_SIGNS
    """Purpose of random numbers (part of their key) that the sketch is drawn for."""
    tf32: bool = False
    """True if a device may round operands of products to 11 bits."""

    kernels = (measure, subtract, panel_product, add_to_buckets, draw_buckets)

    @property
    def shift_part(self) -> Path:
        """Path of the checkpoint file that holds the shift of the columns."""
        return self.constants

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays of a segment by name, besides those of ``OverConditionedPanels``.

        ``q`` (short, width) is the basis, ``y`` (grain rows, width) its product with a grain, ``z`` (short,
        width) what the grain adds to Z. All are in the working type.
        """
        view, width = self.panels.view, self.y.columns
        return {
            **OverConditionedPanels.buffers(self),
            "q": Constant((view.short, width), view.dtype, self.constants),
            "y": Buffer((self.panels.grain_rows, width), view.dtype),
            "z": Buffer((view.short, width), view.dtype),
        }

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all long rows by name, besides those of ``OverConditionedPanels``.

        ``z`` (short, width) is Z. If a sketch is made, ``rows`` (sketch_rows, short) holds it, and ``signs``
        (sketch_rows,) are the sums of the random signs in each of its rows.
        """
        short, rows = self.panels.view.short, self.sketch_rows
        sketch = (
            {"rows": Sum((rows, short), self.panels.view.dtype), "signs": Sum((rows,), on_host=True)}
            if rows
            else {}
        )
        return {"z": Sum((short, self.y.columns)), **OverConditionedPanels.sums(self), **sketch}

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Write Y of long rows ``start:stop``, read into panel ``slot``; add to Z and other sums."""
        for first, last, d in self.condition_grains(state, work, start, stop, slot):
            y = work.y[: last - first]
            panel_product(d, work.q, y=y, z=state["z"], work=work.z, tf32=self.tf32)
            work.device.send(y, functools.partial(self.y.write, first))
            if self.sketch_rows:
                self._sketch(state, work, d, first)

    def _sketch(self, state: State, work: Workspace, d: Array, first: int) -> None:
        """Add long rows ``d`` (rows, short) with random signs to random rows of the sketch in ``state``.

        ``first`` is the index of the first of them.
        """
        unit = self.centering.panel_factor(self.panels.view.orientation)
        tiles = draw_tiles(self.seed, self.purpose, self.sketch_rows, first, first + len(d))
        for low, high, buckets, signs in tiles:
            factors = (signs * unit).astype(d.dtype)
            rows, place = d[low - first : high - first], work.device.place
            add_to_buckets(rows, place(buckets, np.int64), place(factors, d.dtype), sums=state["rows"])
            np.add.at(state["signs"], buckets, signs)


WIDE_ROWS = 4096
"""Number of rows of a basis that are converted to float64 at a time."""


@dataclass(frozen=True, slots=True)
class SparsePass(OverSparsePanels):
    """Fold that writes ``Y = A Q`` to scratch and sums ``Z = A'Y`` of a sparse A, as ``PanelPass`` does."""

    panels: SparsePanels
    centering: Centering
    constants: Path
    """Checkpoint file with ``q`` (short, width), Q times weights of columns and the factor of A, and
    ``shift`` (short,)."""

    y: ScratchMatrix
    columns: ScratchMatrix | None
    measures_columns: bool
    row_seconds: float
    sketch_rows: int = 0
    """Number of rows of the sketch; 0 for none."""

    seed: int = 0
    purpose: Purpose = Purpose.ROW_SIGNS
    """Purpose of random numbers (part of their key) that the sketch is drawn for."""

    is_double: bool = False
    """True if products are summed in float64 whatever the type of the data: for columns far from zero."""

    kernels = (order_columns, multiply_rows, add_columns, add_moments, add_rows_to_buckets, draw_buckets)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type that products are summed in."""
        return np.dtype(np.float64) if self.is_double else self.panels.view.dtype

    @property
    def shift(self) -> Buffer:
        """Buffer for the vector (short,) that is subtracted from each line of a tall matrix."""
        return Constant((self.panels.view.short,), part=self.constants)

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays of a segment by name, besides those of ``OverSparsePanels``.

        ``q`` (short, width) is the basis, ``slabs`` (count, short, columns) a copy of it in slabs, ``slab``
        (panel rows, columns) the product of a panel with one of them, and ``y`` (panel rows, width) that with
        all.
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

        ``offset`` is ``t'Q`` of the formula in the module docstring.
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
        """Bytes of a step besides buffers and sums.

        They are those of vectors, of the shift of a slab's products, and of rows of the basis in float64.
        """
        slab = self.cut.panel_rows * slab_shape(1, self.y.columns, self.dtype)[2] * (not self._by_rows)
        vectors: int = OverSparsePanels.temporary_bytes.__get__(self)
        return (
            vectors
            + slab * (8 + self.dtype.itemsize)
            + 8 * min(WIDE_ROWS, self.panels.view.short) * self.y.columns
        )

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all lines by name, besides those of ``OverSparsePanels``.

        In terms of the module docstring, ``z`` (short, width) is the sum of f_i s_i y_i', ``weights``
        (width,) that of f_i c_i y_i. If a sketch is made, ``rows`` (sketch_rows, short) holds it; for each of
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
        """Write Y of lines ``start:stop``, read into panel ``slot``; add to the sums ``state``, by slabs."""
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
        """Add the lines ``start:stop`` with random signs to random rows of the sketch in ``state``."""
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
        """The sums ``state`` completed to those of ``PanelPass``, given the ``shift`` (short,) of columns.

        Terms of rank one are subtracted, and those of zeros that are not stored are added.
        """
        state = OverSparsePanels.finish(self, state, shift)
        ends = shift if self._by_rows else np.ones(self.panels.view.short)
        if self.centering.center:
            state["z"] -= np.outer(ends, state["weights"])
            if self.sketch_rows:
                state["rows"] -= np.outer(state["shares"], ends).astype(state["rows"].dtype)
        return state


def _wide_product(vector: Float64, q: Array) -> Float64:
    """``vector @ q``, (width,), in float64, converting few rows of ``q`` (short, width) at a time."""
    total = np.zeros(q.shape[1])
    for first in range(0, len(q), WIDE_ROWS):
        part = slice(first, first + WIDE_ROWS)
        total += vector[part] @ q[part].astype(np.float64)
    return total


ROOM = 32 * 2**20
"""Smallest number of bytes planned for rows of the fullest columns, which ``add_gram`` makes dense."""

COLUMN_ROOM = 4096
"""Bytes planned for those dense rows by column of the matrix, where that is more than ``ROOM`` in all."""

NUMBER_ROOM = 40
"""Bytes of working memory planned for ``add_gram`` for each stored number of a panel."""


@dataclass(frozen=True, slots=True)
class SparseGramPass(OverSparsePanels):
    """Fold that sums rows of a tall sparse matrix, their squares, and their uncentered scatter matrix."""

    panels: SparsePanels
    centering: Centering
    given: Float64
    """Provisional mean of the columns, (short,), in units of the data."""

    row_seconds: float

    kernels = (order_columns, add_moments, add_gram)
    measures_columns = True
    columns = None

    @property
    def shift(self) -> Buffer:
        """Buffer that holds ``given``, (short,)."""
        return Given.of(self.given)

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums.

        They are those of vectors, of the workspace of ``add_gram``, and of stored numbers times
        ``pow2_scale``.
        """
        short, rows, numbers = self.panels.view.short, self.cut.panel_rows, self.panels.numbers
        vectors: int = OverSparsePanels.temporary_bytes.__get__(self)
        full = max(ROOM, COLUMN_ROOM * short) + 8 * short**2 + 256 * (short + rows)
        return vectors + full + numbers * (NUMBER_ROOM + self.panels.view.dtype.itemsize)

    @property
    def longest_side(self) -> int:
        """Longest side of operands of BLAS: columns, or dense rows that are made at a time."""
        return max(self.panels.view.short, COLUMN_ROOM)

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all rows by name, besides those of ``OverSparsePanels``.

        ``scatter`` (short, short) are products of columns with columns, in the upper triangle.
        """
        short = self.panels.view.short
        return {"scatter": Sum((short, short)), **OverSparsePanels.sums(self)}

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Add products of columns over rows ``start:stop``, read into panel ``slot``, to sums ``state``."""
        lines = self.take_lines(state, work, start, stop, slot, in_order=False)
        if lines is None:
            return
        stored, unit = lines.stored, self.centering.pow2_scale
        data: Any = stored.data if unit == 1 else stored.data * stored.data.dtype.type(unit)
        add_gram(stored.indptr, stored.indices, data, scatter=state["scatter"])

    def finish(self, state: State, shift: Float64) -> State:
        """The sums with ``scatter`` about the mean, in both triangles, and with ``mean`` (short,).

        ``shift`` (short,) is the provisional mean. The mean is times ``pow2_scale``, the scatter times its
        square. Without centering, the scatter is about 0 and ``mean`` is 0.
        """
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
