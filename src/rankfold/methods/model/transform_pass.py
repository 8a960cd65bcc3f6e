"""Rows of new data into components: each panel is read, multiplied, and written as whole chunks.

Panels are whole chunks of the output, so no two tasks ever write the same one. What is left of the rows
is told from the sum of squares of the data and the Gram matrix of the products: nothing is read twice.

Where rows are too long to be held, columns are swept and products add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.center_scale import measure
from rankfold.methods.nmf.row_solvers import NormalRows
from rankfold.methods.parts.finite import count_bad, join_bad, no_bad
from rankfold.methods.parts.panels import Buffers, OverPanels, Panels, numbers
from rankfold.pipeline.data.view import aligned_empty
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@dataclass(slots=True)
class Work:
    """Buffers of one segment."""

    panels: Buffers
    basis: Array
    mean: Float64
    factor: Float64
    y: Array
    y64: Float64
    z: Float64
    out: Array


@dataclass(frozen=True, slots=True)
class ProjectRows(OverPanels):
    """Fold of a matrix swept by rows, written as ``(x - mean) * factor @ basis * weights``."""

    panels: Panels
    basis: ScratchMatrix
    """(columns, k) right vectors, of the working type."""

    columns: ScratchMatrix
    """(columns, 2): mean and factor of each column."""

    weights: Float64
    """(k,)."""

    reach: float
    """Power of two that keeps squares of the raw numbers in range."""

    array: Path
    """The Zarr array to write, (rows, k)."""

    row_seconds: float
    normal: NormalRows | None = None
    """What solves coordinates from the products, where they are not these."""

    @property
    def rank(self) -> int:
        """Components."""
        return self.basis.columns

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace, of two accumulators, and of two more copies of the chunks inside Zarr."""
        item, rows = self.panels.dtype.itemsize, self.panels.grain_rows
        products = rows * self.rank * (item + 8) + (rows * 3 * 8 * self.rank if self.normal else 0)
        chunks = 3 * self.cut.panel_rows * self.rank * item
        vectors = 7 * 8 * self.columns.rows
        return self.panels.memory_bytes + self.basis.nbytes + products + chunks + vectors + 24 * self.rank**2

    def start(self) -> State:
        """Accumulator of no rows."""
        return {
            "gram": np.zeros((self.rank, self.rank)),
            "inner": np.zeros(1),
            "squares": np.zeros(1),
            "bad": no_bad(),
        }

    def workspace(self) -> Work:
        """Allocate the buffers and load the constants."""
        columns = self.columns.load()
        rows, dtype = self.panels.grain_rows, self.panels.dtype
        return Work(
            panels=self.panels.buffers(),
            basis=self.basis.load(),
            mean=np.ascontiguousarray(columns[:, 0]),
            factor=np.ascontiguousarray(columns[:, 1]),
            y=aligned_empty((rows, self.rank), dtype),
            y64=aligned_empty((rows, self.rank), np.float64),
            z=aligned_empty((rows if self.normal else 0, self.rank), np.float64),
            out=aligned_empty((self.cut.panel_rows, self.rank), dtype),
        )

    def read(self, work: Work, start: int, stop: int, slot: int) -> None:
        """Fetch a panel."""
        self.panels.read(work.panels, start, stop, slot)

    def step(self, state: State, work: Work, start: int, stop: int, slot: int) -> None:
        """Multiply a panel, grain by grain, and write its rows."""
        out = work.out[: stop - start]
        for first, last, raw in self.panels.grains(work.panels, start, stop, slot):
            squares = measured_squares(raw, work.mean, work.factor, self.reach)
            if squares is None:
                refuse_overflow(state, raw, *self.panels.corner(first))
                continue
            state["squares"] += squares
            d = self.panels.conditioned(work.panels, raw, work.mean, work.factor)
            y, y64 = work.y[: last - first], work.y64[: last - first]
            np.matmul(d, work.basis, out=y)
            np.copyto(y64, y)
            z = y64
            if self.normal is not None:
                z = work.z[: last - first]
                self.normal.solve(y64, out=z)
            for name, sums in products(z, y64).items():
                state[name] += sums
            np.multiply(z, self.weights, out=out[first - start : last - start], casting="same_kind")
        if not state["bad"][0]:  # what holds bad numbers is refused in the end
            write_whole_chunks(self.array, out, (start, stop), (0, self.rank))

    def merge(self, total: State, other: State) -> None:
        """Add the sums."""
        for name in ("gram", "inner", "squares"):
            total[name] += other[name]
        total["bad"] = join_bad(total["bad"], other["bad"])


def products(z: Float64, y: Float64) -> State:
    """Gram matrix of coordinates, and their inner product with ``y`` as its trace: alike they round alike."""
    gram = z.T @ z
    return {"gram": gram, "inner": np.atleast_1d(np.trace(gram if z is y else z.T @ y))}


def measured_squares(raw: Array, mean: Float64, factor: Float64, reach: float) -> float | None:
    """Sum of squares of ``(raw - mean) * factor``; None if one of them is not finite."""
    squares = measure(numbers(raw), mean, reach)[1]
    return float(squares @ (factor / reach) ** 2) if np.isfinite(squares).all() else None


def refuse_overflow(state: State, raw: Array, row: int, column: int) -> None:
    """Count bad elements; raise if there are none, since then the numbers are out of all proportion."""
    if np.isfinite(raw).all():
        raise DataError(
            f"numbers near row {row}, column {column} are so much larger than those that were fitted that "
            "their squares overflow. Are they in the units of the fit?"
        )
    count_bad(state, raw, row, column)


# Along columns ------------------------------------------------------------------------------------


@dataclass(slots=True)
class ColumnWork:
    """Buffers of one segment."""

    panels: Buffers
    basis: Array
    columns: npt.NDArray[np.float64]
    y: Array


@dataclass(frozen=True, slots=True)
class ProjectColumns(OverPanels):
    """Fold of a matrix swept by columns into ``(x - mean) * factor @ basis``, summed in float64."""

    panels: Panels
    basis: ScratchMatrix
    """(columns, k) right vectors, of the working type."""

    columns: ScratchMatrix
    """(columns, 2): mean and factor of each column."""

    reach: float
    """Power of two that keeps squares of the raw numbers in range."""

    row_seconds: float

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace, and of two accumulators, which a merge holds beside it."""
        rows, short, rank = self.panels.grain_rows, self.panels.view.short, self.basis.columns
        constants = rows * (self.basis.row_bytes + 9 * 8)
        return self.panels.memory_bytes + constants + short * rank * (self.panels.dtype.itemsize + 2 * 8)

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        return 8 * self.panels.view.short * self.basis.columns

    def start(self) -> State:
        """Accumulator of no columns."""
        shape = self.panels.view.short, self.basis.columns
        return {"product": np.zeros(shape), "squares": np.zeros(1), "bad": no_bad()}

    def workspace(self) -> ColumnWork:
        """Allocate the buffers."""
        rows, dtype = self.panels.grain_rows, self.panels.dtype
        return ColumnWork(
            panels=self.panels.buffers(),
            basis=aligned_empty((rows, self.basis.columns), dtype),
            columns=aligned_empty((rows, 2), np.float64),
            y=aligned_empty((self.panels.view.short, self.basis.columns), dtype),
        )

    def read(self, work: ColumnWork, start: int, stop: int, slot: int) -> None:
        """Fetch a panel."""
        self.panels.read(work.panels, start, stop, slot)

    def step(self, state: State, work: ColumnWork, start: int, stop: int, slot: int) -> None:
        """Multiply a panel, grain by grain."""
        for first, last, raw in self.panels.grains(work.panels, start, stop, slot):
            basis, columns = work.basis[: last - first], work.columns[: last - first]
            self.columns.read_into(columns, first)
            mean, factor = np.ascontiguousarray(columns.T)
            squares = measured_squares(raw, mean, factor, self.reach)
            if squares is None:
                refuse_overflow(state, raw, *self.panels.corner(first))
                continue
            state["squares"] += squares
            self.basis.read_into(basis, first)
            np.matmul(self.panels.conditioned(work.panels, raw, mean, factor), basis, out=work.y)
            state["product"] += work.y

    def merge(self, total: State, other: State) -> None:
        """Add the sums."""
        for name in ("product", "squares"):
            total[name] += other[name]
        total["bad"] = join_bad(total["bad"], other["bad"])
