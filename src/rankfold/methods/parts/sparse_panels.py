"""Panels of a sparse matrix, by its stored numbers: no array has rows times columns elements.

A line is a row of the matrix, or a column where the sweep runs along the columns. A panel is the lines that
are read at a time, as they are stored, and the same numbers transposed. Line ``i`` of the matrix that a
method sees is ``f_i (s_i - c_i t)`` with ``s_i`` the stored line:

    a tall matrix    f = 1, c = 1, t the shift of its columns, which is known before the pass
    a wide one       t = 1, c the mean of the line, a column, and 1 / f its divisor, both found here

Products with stored numbers are shifted by such a term of rank one, and nothing else is dense.
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
from rankfold.methods.parts.conditioned import Centering, divisors, standard_deviations
from rankfold.methods.parts.panels import BAD, join_bad, numbers
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
    """Panels of a sweep over a sparse matrix: the view, its cut, and the number of panels in memory."""

    view: View
    """View of the matrix, swept along the lines that are contiguous in the store."""

    cut: Cut
    slots: int
    """Number of panels that a segment (unit of work of a worker) has in memory at once."""

    numbers: int
    """Number of stored numbers in the fullest panel."""

    @property
    def index(self) -> np.dtype[Any]:
        """Integer type of the pointers and indices of panels, int32 or int64."""
        source = self.view.source
        stored = compressed(source)
        return index_dtype(*source.shape, stored.nnz if stored is not None else 0)

    @property
    def number_bytes(self) -> int:
        """Bytes of a stored number of a panel: index, value, and a copy in the working type if it differs."""
        source, working = self.view.source.dtype, self.view.dtype
        return self.index.itemsize + source.itemsize + (source != working) * working.itemsize

    @property
    def memory_bytes(self) -> int:
        """Upper bound on the bytes of the panels of one segment.

        It has all panels, reading of one, one of them transposed, and a copy of one to sum up duplicates.
        """
        stored, rows = compressed(self.view.source), self.cut.panel_rows
        reading = stored.sparse_bytes(self.numbers) if stored is not None else 0
        panel = self.numbers * self.number_bytes + 8 * (rows + 1) + reading
        copies = self.numbers * (self.view.dtype.itemsize + 2 * self.index.itemsize)
        return self.slots * panel + copies + self.numbers * self.order_bytes + 8 * (self.view.short + 1)

    @property
    def order_bytes(self) -> int:
        """Bytes of a stored number in a transposed panel: its line and its value."""
        return 4 + self.view.dtype.itemsize

    def read(self, start: int, stop: int) -> Csr:
        """Lines ``start:stop`` as CSR in the working type, duplicates summed and indices in order."""
        lines = require_compressed(self.view.source).read_sparse((start, stop))
        data = numbers(lines.data).astype(self.view.dtype, copy=False)
        return sum_places(dataclasses.replace(lines, data=data), self.view.short)

    def corner(self, line: int, place: int) -> tuple[int, int]:
        """Row and column of the matrix for the number with index ``place`` in line ``line``."""
        return (line, place) if self.view.orientation is Orientation.ROWS else (place, line)


class Lines(NamedTuple):
    """Lines of a panel as stored, with the means and factors that center and scale them."""

    stored: Csr
    means: Float64 | None
    """(lines,) mean of each line, to be subtracted from its numbers; None where lines have no means of their
    own."""

    scale: Float64 | None
    """(lines,) factor of each line once the mean is subtracted; None for 1."""


class OverStoredNumbers(DeclaredFold):
    """Base class of all folds over panels of a sparse matrix."""

    __slots__ = ()
    panels: SparsePanels

    @property
    def cut(self) -> Cut:
        """Cut of the lines into panels and streams (runs of panels that are summed in order)."""
        return self.panels.cut

    @property
    def slots(self) -> int:
        """Number of panels that a segment has in memory at once."""
        return self.panels.slots

    @property
    def memory_bytes(self) -> int:
        """Upper bound on the bytes of one segment (unit of work of a worker): panels, buffers, and two sets
        of sums."""
        return self.panels.memory_bytes + super().memory_bytes

    @property
    def longest_side(self) -> int:
        """Longest side of an operand of BLAS: 0, as nothing is multiplied by BLAS."""
        return 0

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays by name, for one panel transposed (CSC).

        ``pointers`` (short + 1,) are where each index of the short side begins in ``rows`` and ``values``,
        the line within the panel and the value of each stored number.
        """
        panels, short = self.panels, self.panels.view.short
        return {
            "pointers": Buffer((short + 1,), np.dtype(np.int64)),
            "rows": Buffer((panels.numbers,), np.dtype(np.int32)),
            "values": Buffer((panels.numbers,), panels.view.dtype),
        }

    @property
    def vector_bytes(self) -> int:
        """Bytes of the vectors along either side of a panel that a step allocates."""
        return 8 * 8 * max(self.panels.view.short, self.cut.panel_rows)

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums: vectors along either side of a panel."""
        return self.vector_bytes

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate the buffers; ``panels`` is a list of slots, each None until a panel is read into it."""
        work = super().workspace(device)
        work.panels = [None] * self.slots
        return work

    def read(self, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Read the lines ``start:stop`` into panel ``slot`` of ``work``."""
        work.panels[slot] = self.panels.read(start, stop)

    def take(self, work: Workspace, slot: int) -> Csr:
        """Remove the panel from slot number ``slot`` of ``work``, and return it."""
        lines: Csr = work.panels[slot]
        work.panels[slot] = None
        return lines

    def bring_in_order(self, work: Workspace, lines: Csr) -> None:
        """Transpose ``lines`` (to CSC) into the buffers ``pointers``, ``rows`` and ``values`` of ``work``."""
        order = {"pointers": work.pointers, "rows": work.rows, "values": work.values}
        order_columns(lines.indptr, lines.indices, lines.data, **order)

    def count(self, state: State, name: str, lines: Csr, marks: npt.NDArray[np.bool_], start: int) -> None:
        """Add to ``state[name]`` the count of numbers where ``marks`` is True, and the position of the first.

        ``marks`` has one entry for each stored number of ``lines``, and ``start`` is the index of the first
        line.
        """
        chosen = np.flatnonzero(marks)
        at = np.searchsorted(lines.indptr, chosen, side="right") - 1 + start
        rows, columns = self.panels.corner(at, lines.indices[chosen])  # type: ignore[arg-type]
        first = np.lexsort((columns, rows))[0]
        here = np.array([len(chosen), rows[first], columns[first]], np.int64)  # type: ignore[index]
        state[name] = join_bad(state[name], here)

    def count_bad(self, state: State, lines: Csr, start: int) -> None:
        """Add NaN and Inf in ``lines`` to ``state["bad"]``; ``start`` is the index of the first line.

        If there are none, squares of the numbers overflow, and ``DataError`` is raised.
        """
        bad = ~np.isfinite(lines.data)
        if not bad.any():
            raise DataError(
                f"lines {start} to {start + len(lines.indptr) - 1} (from 0) hold numbers so much larger than "
                "others of the matrix that squares leave the range of float64. Are they marks for what is "
                "missing? Replace or drop them, and run again."
            )
        self.count(state, "bad", lines, bad, start)


class OverSparsePanels(OverStoredNumbers):
    """Base class of folds over stored numbers that center and scale them."""

    __slots__ = ()
    centering: Centering
    measures_columns: bool
    """True if sums and squares of columns are added up as well, as in the first pass over the data."""

    columns: ScratchMatrix | None
    """Scratch matrix (columns, 2) for mean and deviation of each column, in a sweep along the columns, or
    None."""

    @property
    def shift(self) -> Buffer:
        """Buffer for the vector (short,) that is subtracted from each line of a tall matrix."""
        raise TypeError(f"{type(self).__name__} shifts nothing")

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays by name: ``shift`` (short,), and those for a transposed panel."""
        return {"shift": self.shift, **OverStoredNumbers.buffers(self)}

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all lines, by name.

        For a tall matrix, ``counts``, ``sums`` and ``squares`` (short,) are number, sum and sum of squares of
        the stored numbers of each column, less the shift and times ``pow2_scale``. Of a wide matrix
        ``squares[0]`` is the sum of all squares. ``bad`` is count and first position of NaN and Inf.
        """
        short = (self.panels.view.short,)
        return {"counts": Sum(short), "sums": Sum(short), "squares": Sum(short), "bad": BAD}

    def take_lines(
        self, state: State, work: Workspace, start: int, stop: int, slot: int, *, in_order: bool
    ) -> Lines | None:
        """Take lines ``start:stop`` out of panel ``slot``, with their means and factors.

        Sums of columns are added to ``state`` if they are measured. With ``in_order`` the panel is also
        transposed into the buffers. None if some numbers are not finite, which are counted in ``state``.
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
        """Lines that are whole columns, with means and factors found exactly, about the mean of each.

        ``start`` is the index of the first; None if numbers are not finite, which are counted in ``state``.
        """
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
            deviation = standard_deviations(squares, count, mean * unit, self.centering) / unit
            factor = 1.0 / divisors(deviation)
            squares = self.centering.scaled_squares(squares, factor)
        state["squares"][0] += squares.sum()
        if self.columns is not None:
            self.columns.write(start, np.column_stack([mean, deviation]))
        return Lines(lines, mean if self.centering.center else None, factor)

    def finish(self, state: State, shift: Float64) -> State:
        """The sums ``state`` with what zeros that are not stored add, given the ``shift`` (short,)."""
        if self.panels.view.orientation is not Orientation.ROWS or not self.measures_columns:
            return state
        zeros, shifted = self.panels.view.long - state["counts"], shift * self.centering.pow2_scale
        sums, squares = state["sums"] - zeros * shifted, state["squares"] + zeros * shifted**2
        return {**state, "sums": sums, "squares": squares}


@dataclass(frozen=True, slots=True)
class SparseStatistics(OverSparsePanels):
    """Fold that sums the columns of ``x - shift`` and their squares over all rows of a tall sparse matrix."""

    panels: SparsePanels
    centering: Centering
    given: Float64
    """(short,) vector that is subtracted from each row."""

    row_seconds: float

    kernels = (order_columns, add_moments)
    measures_columns = True
    columns = None

    @property
    def shift(self) -> Buffer:
        """Buffer that holds ``given``, (short,)."""
        return Given.of(self.given)

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Add rows ``start:stop``, read into panel ``slot``, to sums and squares of columns in ``state``."""
        self.take_lines(state, work, start, stop, slot, in_order=False)
