"""Panels of a sparse matrix, by its stored numbers: nothing is as long as rows times columns.

A panel is some lines of the long side as they are stored, and the same numbers in the order of what lies
across them. Line ``i`` of the matrix that a method sees is ``f_i (s_i - c_i t)`` with ``s_i`` what is stored:

    a tall matrix    f = 1, c = 1, t the shift of its columns, which is known before the pass
    a wide one       t = 1, c the mean of the line, a column, and f what it is divided by, both known here

Products with what is stored are shifted by such a term of rank one, and nothing else is dense.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels.sparse.moments import add_moments
from rankfold.kernels.sparse.products import order_columns
from rankfold.methods.parts.column_statistics import divisors, standard_deviations
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.finite import BAD, join_bad
from rankfold.methods.parts.panels import numbers
from rankfold.pipeline.data.source import Csr, compressed, index_dtype, require_compressed, sum_places
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, DeclaredFold, Given, Sum, Workspace
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SparsePanels:
    """How a sweep holds a sparse matrix: the view, its cut, and the number of panels at once."""

    view: View
    """Swept along the lines that lie together in the store."""

    cut: Cut
    slots: int
    numbers: int
    """Stored numbers of the fullest panel."""

    @property
    def index(self) -> np.dtype[Any]:
        """Type of pointers and places."""
        source = self.view.source
        stored = compressed(source)
        return index_dtype(*source.shape, stored.nnz if stored is not None else 0)

    @property
    def number_bytes(self) -> int:
        """Bytes of a stored number with its place, as it is read and in the working type."""
        source, working = self.view.source.dtype, self.view.dtype
        return self.index.itemsize + source.itemsize + (source != working) * working.itemsize

    @property
    def memory_bytes(self) -> int:
        """Bytes of all panels, of what reading one takes, and of one in the other order.

        Numbers of one place are added up in copies, if there are any.
        """
        stored, rows = compressed(self.view.source), self.cut.panel_rows
        reading = stored.sparse_bytes(self.numbers) if stored is not None else 0
        panel = self.numbers * self.number_bytes + 8 * (rows + 1) + reading
        copies = self.numbers * (self.view.dtype.itemsize + 2 * self.index.itemsize)
        return self.slots * panel + copies + self.numbers * self.order_bytes + 8 * (self.view.short + 1)

    @property
    def order_bytes(self) -> int:
        """Bytes of a stored number in the other order."""
        return 4 + self.view.dtype.itemsize

    def read(self, start: int, stop: int) -> Csr:
        """Lines ``start:stop`` in the working type, every place once and in order."""
        lines = require_compressed(self.view.source).read_sparse((start, stop))
        data = numbers(lines.data).astype(self.view.dtype, copy=False)
        return sum_places(dataclasses.replace(lines, data=data), self.view.short)

    def corner(self, line: int, place: int) -> tuple[int, int]:
        """Row and column of the matrix."""
        return (line, place) if self.view.orientation is Orientation.ROWS else (place, line)


class Lines(NamedTuple):
    """Lines of a panel, and what makes of them those of the matrix."""

    stored: Csr
    means: Float64 | None
    """(lines,) of each; None where all are shifted by the same vector."""

    scale: Float64 | None
    """(lines,) what each is multiplied by; None for 1."""


class OverStoredNumbers(DeclaredFold):
    """What all folds over panels of a sparse matrix share."""

    __slots__ = ()
    panels: SparsePanels

    @property
    def cut(self) -> Cut:
        """How lines are cut into panels and streams."""
        return self.panels.cut

    @property
    def slots(self) -> int:
        """Number of panels at once."""
        return self.panels.slots

    @property
    def memory_bytes(self) -> int:
        """Bytes of a segment, with its panels."""
        return self.panels.memory_bytes + super().memory_bytes

    @property
    def longest_side(self) -> int:
        """Nothing is multiplied by BLAS."""
        return 0

    def buffers(self) -> Mapping[str, Buffer]:
        """The other order of a panel."""
        panels, short = self.panels, self.panels.view.short
        return {
            "pointers": Buffer((short + 1,), np.dtype(np.int64)),
            "rows": Buffer((panels.numbers,), np.dtype(np.int32)),
            "values": Buffer((panels.numbers,), panels.view.dtype),
        }

    @property
    def vector_bytes(self) -> int:
        """Vectors along either side of a panel."""
        return 8 * 8 * max(self.panels.view.short, self.cut.panel_rows)

    @property
    def beside_bytes(self) -> int:
        """See ``DeclaredFold``."""
        return self.vector_bytes

    def workspace(self, device: Device = HOST) -> Workspace:
        """Buffers, and room for panels."""
        work = super().workspace(device)
        work.panels = [None] * self.slots
        return work

    def read(self, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Fetch a panel."""
        work.panels[slot] = self.panels.read(start, stop)

    def take(self, work: Workspace, slot: int) -> Csr:
        """The panel in a slot, which is then free."""
        lines: Csr = work.panels[slot]
        work.panels[slot] = None
        return lines

    def bring_in_order(self, work: Workspace, lines: Csr) -> None:
        """The same numbers by what lies across the lines, in the buffers for those."""
        order = {"pointers": work.pointers, "rows": work.rows, "values": work.values}
        order_columns(lines.indptr, lines.indices, lines.data, **order)

    def count(self, state: State, name: str, lines: Csr, marks: npt.NDArray[np.bool_], start: int) -> None:
        """Add the numbers that are marked, and where the first is."""
        chosen = np.flatnonzero(marks)
        at = np.searchsorted(lines.indptr, chosen, side="right") - 1 + start
        rows, columns = self.panels.corner(at, lines.indices[chosen])  # type: ignore[arg-type]
        first = np.lexsort((columns, rows))[0]
        here = np.array([len(chosen), rows[first], columns[first]], np.int64)  # type: ignore[index]
        state[name] = join_bad(state[name], here)

    def count_bad(self, state: State, lines: Csr, start: int) -> None:
        """Add numbers that are not finite; without one, squares overflow, and the matrix is refused."""
        bad = ~np.isfinite(lines.data)
        if not bad.any():
            raise DataError(
                f"lines {start} to {start + len(lines.indptr) - 1} (from 0) hold numbers so much larger than "
                "others of the matrix that squares leave the range of float64. Are they marks for what is "
                "missing? Replace or drop them, and run again."
            )
        self.count(state, "bad", lines, bad, start)


class OverSparsePanels(OverStoredNumbers):
    """What folds share that center and scale what is stored."""

    __slots__ = ()
    centering: Centering
    measures_columns: bool
    """Whether sums and squares are taken: the first pass over the data."""

    columns: ScratchMatrix | None
    """Where mean and deviation of each column go when the sweep runs along the columns."""

    @property
    def shift(self) -> Buffer:
        """What all lines of a tall matrix are shifted by, (short,)."""
        raise TypeError(f"{type(self).__name__} shifts nothing")

    def buffers(self) -> Mapping[str, Buffer]:
        """The shift, and the other order of a panel."""
        return {"shift": self.shift, **OverStoredNumbers.buffers(self)}

    def sums(self) -> Mapping[str, Sum]:
        """Of stored numbers less the shift: their count, sum and squares in each place."""
        short = (self.panels.view.short,)
        return {"counts": Sum(short), "sums": Sum(short), "squares": Sum(short), "bad": BAD}

    def take_lines(
        self, state: State, work: Workspace, start: int, stop: int, slot: int, *, in_order: bool
    ) -> Lines | None:
        """The panel in a slot, measured, and brought into the other order where that is asked for.

        None of one that is not finite, whose bad numbers are counted.
        """
        lines = self.take(work, slot)
        by_rows = self.panels.view.orientation is Orientation.ROWS
        if in_order or (by_rows and self.measures_columns):
            self.bring_in_order(work, lines)
        if by_rows:
            if self.measures_columns and not self._measure_places(state, work, lines, start):
                return None
            return Lines(lines, None, None)
        return self._measure_lines(state, work, lines, start)

    def _measure_places(self, state: State, work: Workspace, lines: Csr, start: int) -> bool:
        sums, squares = np.zeros((2, self.panels.view.short))
        unit = self.centering.pow2_scale
        add_moments(work.pointers, work.values, work.shift, unit, sums=sums, squares=squares)
        if not np.isfinite(squares).all():
            self.count_bad(state, lines, start)
            return False
        state["counts"] += np.diff(work.pointers)
        state["sums"] += sums
        state["squares"] += squares
        return True

    def _measure_lines(self, state: State, work: Workspace, lines: Csr, start: int) -> Lines | None:
        """Exactly, about the mean of each line: means and squares of whole columns."""
        count, filled = self.panels.view.short, np.diff(lines.indptr)
        zeros, unit = count - filled, self.centering.pow2_scale
        mean, nothing = np.zeros((2, len(filled)))
        if self.centering.center:
            sums = np.zeros(len(filled))
            add_moments(lines.indptr, lines.data, nothing, 1.0, sums=sums, squares=nothing.copy())
            mean = sums / count
        sums, squares = np.zeros((2, len(filled)))
        add_moments(lines.indptr, lines.data, mean, unit, sums=sums, squares=squares)
        if not np.isfinite(squares).all():
            self.count_bad(state, lines, start)
            return None
        squares += zeros * (mean * unit) ** 2
        deviation, factor = np.ones_like(mean), None
        if self.centering.scale:
            deviation = standard_deviations(squares / unit**2, count, mean, self.centering)
            factor = 1.0 / divisors(deviation)
            squares = squares * factor**2
        state["squares"][0] += squares.sum()
        if self.columns is not None:
            self.columns.write(start, np.column_stack([mean, deviation]))
        return Lines(lines, mean if self.centering.center else None, factor)

    def finish(self, state: State, shift: Float64) -> State:
        """Sums as those of a fold over dense panels, with the zeros that are not stored."""
        if self.panels.view.orientation is not Orientation.ROWS or not self.measures_columns:
            return state
        zeros, shifted = self.panels.view.long - state["counts"], shift * self.centering.pow2_scale
        sums, squares = state["sums"] - zeros * shifted, state["squares"] + zeros * shifted**2
        return {**state, "sums": sums, "squares": squares}


@dataclass(frozen=True, slots=True)
class SparseStatistics(OverSparsePanels):
    """Fold of ``x - shift`` into column sums and sums of squares."""

    panels: SparsePanels
    centering: Centering
    given: Float64
    """The shift."""

    row_seconds: float

    kernels = (order_columns, add_moments)
    measures_columns = True
    columns = None

    @property
    def shift(self) -> Buffer:
        """See ``OverSparsePanels``."""
        return Given.of(self.given)

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Add a panel."""
        self.take_lines(state, work, start, stop, slot, in_order=False)
