"""Project new rows to components: each panel is read, multiplied, and written as whole chunks.

Panels (rows read at a time) are whole chunks of the output, so no two tasks ever write the same chunk. A
grain is the rows of one product. The residual follows from the sum of squares of the data and the Gram matrix
of the products, without a second read.

If rows are too long for memory, columns are swept and products are summed.

Sparse rows are projected at a cost proportional to stored numbers (``ProjectSparseRows``). With ``S`` the
stored matrix, rows are ``S D - 1 (mean D)'``, where D holds the factors of columns. Their products with a
basis are therefore those of ``S`` with the basis scaled by D, minus one vector.
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
from rankfold.kernels.linear.products import product, weigh
from rankfold.kernels.sparse.products import multiply_rows
from rankfold.methods.nmf.row_solvers import NormalRows
from rankfold.methods.parts.panels import BAD, Grain, OverPanels, Panels, Part, count_bad, numbers
from rankfold.methods.parts.sparse_panels import OverStoredNumbers, SparsePanels
from rankfold.pipeline.data.source import Csr
from rankfold.pipeline.engine.device import HOST, Device, Kernel
from rankfold.pipeline.engine.fold import Buffer, Constant, Given, ScratchConstant, Sum, Workspace
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


class WritesCoordinates:
    """Base class of folds that write coordinates of rows: products with a basis, or solved from these.

    Products are ``(x - mean) * factor @ basis``; the fields are those of ``ProjectRows``.
    """

    __slots__ = ()
    basis: ScratchMatrix
    columns: ScratchMatrix
    weights: Float64
    normal: NormalRows | None

    @property
    def rank(self) -> int:
        """Number of components."""
        return self.basis.columns

    @property
    def coordinate_kernels(self) -> tuple[Kernel, ...]:
        """All kernels that find coordinates from products."""
        return (weigh, *(() if self.normal is None else self.normal.solver.kernels))

    def coordinate_buffers(self, rows: int, out_rows: int, dtype: np.dtype[Any]) -> Mapping[str, Buffer]:
        """Working arrays by name, for ``rows`` rows at a time, ``out_rows`` rows to write, of ``dtype``.

        ``basis`` (n, k), ``columns`` (n, 2) mean and factor of columns, ``weights`` (k,); products ``y``
        (rows, k), and ``y64`` in float64; ``z`` (rows, k) coordinates solved from products, ``out``
        (out_rows, k) the chunks to write. ``normal`` (k, k) and ``linear`` (k,) are constants of the solver,
        if there is one.
        """
        rank, normal = self.rank, dict[str, Buffer]()
        if self.normal is not None:
            part = self.normal.constants
            normal = {"normal": Constant((rank, rank), part=part), "linear": Constant((rank,), part=part)}
        return {
            **normal,
            "weights": Given.of(self.weights),
            "basis": ScratchConstant.of(self.basis),
            "columns": ScratchConstant.of(self.columns),
            "y": Buffer((rows, rank), dtype),
            "y64": Buffer((rows, rank)),
            "z": Buffer((rows if self.normal else 0, rank)),
            "out": Buffer((out_rows, rank), dtype),
        }

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all rows, by name, from which the relative error of the projection follows.

        ``gram`` (k, k) is the Gram matrix of the coordinates, ``inner`` (1,) the inner product of coordinates
        and products, ``squares`` (1,) the sum of squares of the rows, ``bad`` count and first position of NaN
        and Inf.
        """
        gram = Sum((self.rank, self.rank))
        return {"gram": gram, "inner": Sum((1,)), "squares": Sum((1,)), "bad": BAD}

    def add_coordinates(self, state: State, work: Workspace, count: int, out: Array) -> None:
        """Find coordinates of ``count`` rows from their products; add to sums ``state``, and fill ``out``.

        Products are read from ``work.y64``; ``out`` (count, k) gets the coordinates times ``weights``.
        """
        z = y64 = work.y64[:count]
        if self.normal is not None:
            z = work.z[:count]
            self.normal.solve(y64, work.normal, work.linear, out=z)
        for name, sums in products(z, y64).items():
            state[name] += sums
        weigh(z, work.weights, out=out)


@dataclass(frozen=True, slots=True)
class ProjectRows(WritesCoordinates, OverPanels):
    """Fold over rows of a matrix that writes ``(x - mean) * factor @ basis * weights``."""

    panels: Panels
    basis: ScratchMatrix
    """Right vectors (n, k) in the working type, on scratch."""

    columns: ScratchMatrix
    """Scratch matrix (n, 2): mean of each column, and its factor once the mean is subtracted."""

    weights: Float64
    """(k,) factors that coordinates are multiplied by before they are written."""

    square_scale: float
    """Power of two that raw numbers are multiplied by before they are squared, so that squares stay in
    range."""

    array: Path
    """Path of the Zarr array to write, (rows, k)."""

    row_seconds: float
    normal: NormalRows | None = None
    """Solver of coordinates from the products; None if products are the coordinates."""

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels that it calls."""
        return (measure, subtract, product, *self.coordinate_kernels)

    def buffers(self) -> Mapping[str, Buffer]:
        """Arrays of ``coordinate_buffers``: for the rows of a grain, and ``out`` for those of a panel."""
        return self.coordinate_buffers(self.panels.grain_rows, self.cut.panel_rows, self.panels.dtype)

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums.

        They are those of two copies of chunks in Zarr, of the product of a grain, of solving, and of vectors.
        """
        rows, rank = self.panels.grain_rows, self.rank
        solving = rows * 2 * 8 * rank if self.normal else 0
        chunks = 2 * self.cut.panel_rows * rank * self.panels.dtype.itemsize
        return solving + chunks + 5 * 8 * self.columns.rows + 8 * rank**2

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers and panels; ``mean`` and ``factor`` of columns are separate vectors (n,)."""
        work = OverPanels.workspace(self, device)
        work.mean, work.factor = work.columns.T.copy()
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Write coordinates of rows ``start:stop``, read into panel ``slot``; add to the sums ``state``."""
        out = work.out[: stop - start]
        for grain in self.panels.grains(work.panels, start, stop, slot):
            first, last = grain.first, grain.last
            if not take_squares(self, state, work, grain, (work.mean, work.factor), self.square_scale):
                continue
            d = self.panels.condition(work.panels, grain.raw, work.mean, work.factor)
            y = work.y[: last - first]
            product(d, work.basis, out=y)
            np.copyto(work.y64[: last - first], y)
            self.add_coordinates(state, work, last - first, out[first - start : last - start])
        work.device.send(out, functools.partial(self._write, state, start, stop))

    def _write(self, state: State, start: int, stop: int, out: Array) -> None:
        if not state["bad"][0]:  # rows with bad numbers raise after the pass
            write_whole_chunks(self.array, out, (start, stop), (0, self.rank))


def products(z: Float64, y: Float64) -> State:
    """The sums ``gram`` and ``inner`` for coordinates ``z`` (rows, k) and products ``y`` (rows, k).

    ``gram`` (k, k) is the Gram matrix of ``z``, ``inner`` (1,) the inner product of ``z`` and ``y``. The
    latter is computed as a trace, so that both have the same rounding if ``z`` is ``y``.
    """
    gram = z.T @ z
    return {"gram": gram, "inner": np.atleast_1d(np.trace(gram if z is y else z.T @ y))}


def take_squares(
    fold: OverPanels,
    state: State,
    work: Workspace,
    grain: Grain,
    columns: tuple[Float64, Float64],
    scale: float,
) -> bool:
    """Add squares of ``(raw - mean) * factor`` to ``state["squares"]``; ``columns`` are mean and factor.

    ``scale`` is a power of two that raw numbers are multiplied by before they are squared. Returns False if a
    square is not finite: bad elements are then counted, or ``DataError`` is raised.
    """
    mean, factor = columns
    squares = measure(numbers(grain.raw), mean, scale)[1]
    refuse = functools.partial(refuse_overflow, state, grain.staged, *fold.panels.corner(grain.first))
    if not work.device.holds(np.isfinite(squares).all(), refuse):
        return False
    with np.errstate(over="ignore"):  # of constant columns, whose squares are 0, in a large unit
        weights = np.minimum((factor / scale) ** 2, np.finfo(np.float64).max)
    state["squares"] += squares @ weights
    return True


def refuse_overflow(state: State, part: Part, row: int, column: int) -> None:
    """Count bad elements of a part of the matrix; raise ``DataError`` if there are none: squares overflow.

    ``part`` returns the part; ``row`` and ``column`` are the position of its first element.
    """
    if np.isfinite(part()).all():
        raise DataError(
            f"numbers near row {row}, column {column} are so much larger than those that were fitted that "
            "their squares overflow. Are they in the units of the fit?"
        )
    count_bad(state, part, row, column)


# Along columns ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProjectColumns(OverPanels):
    """Fold over columns of a matrix that sums ``(x - mean) * factor @ basis`` for all rows, in float64."""

    panels: Panels
    basis: ScratchMatrix
    """Right vectors (n, k) in the working type, on scratch."""

    columns: ScratchMatrix
    """Scratch matrix (n, 2): mean of each column, and its factor once the mean is subtracted."""

    square_scale: float
    """Power of two that raw numbers are multiplied by before they are squared, so that squares stay in
    range."""

    row_seconds: float

    kernels = (measure, subtract, product)

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays of a segment by name, for a grain of columns.

        ``basis`` (grain columns, k) and ``columns`` (grain columns, 2) are their rows of the basis, and their
        mean and factor; ``y`` (m, k) is what they add to the products of all m rows.
        """
        rows, dtype = self.panels.grain_rows, self.panels.dtype
        return {
            "basis": Buffer((rows, self.basis.columns), dtype),
            "columns": Buffer((rows, 2)),
            "y": Buffer((self.panels.view.short, self.basis.columns), dtype),
        }

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all columns, by name.

        ``product`` (m, k) are products of all m rows with the basis, ``squares`` (1,) is their sum of
        squares, ``bad`` count and first position of NaN and Inf.
        """
        shape = self.panels.view.short, self.basis.columns
        return {"product": Sum(shape), "squares": Sum((1,)), "bad": BAD}

    @property
    def longest_side(self) -> int:
        """Longest side of the product (m, k); BLAS packs few terms of the long side at a time."""
        return max(self.panels.view.short, self.basis.columns)

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums: vectors along the columns of a grain."""
        return 7 * 8 * self.panels.grain_rows

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Add products of columns ``start:stop``, read into panel buffer ``slot``, to those of all rows."""
        for grain in self.panels.grains(work.panels, start, stop, slot):
            rows, fill = grain.last - grain.first, work.device.fill
            basis, columns = work.basis[:rows], work.columns[:rows]
            fill(columns, functools.partial(self.columns.read_into, start=grain.first))
            mean, factor = columns.T.copy()
            if not take_squares(self, state, work, grain, (mean, factor), self.square_scale):
                continue
            fill(basis, functools.partial(self.basis.read_into, start=grain.first))
            product(self.panels.condition(work.panels, grain.raw, mean, factor), basis, out=work.y)
            state["product"] += work.y


NUMBERS = 2**18
"""Number of stored numbers whose squares are summed at a time."""

SQUARES_BYTES = 40 * NUMBERS
"""Bytes that summing the squares of ``NUMBERS`` stored numbers takes."""


@dataclass(frozen=True, slots=True)
class ProjectSparseRows(WritesCoordinates, OverStoredNumbers):
    """Fold over rows of a sparse matrix that writes ``(x - mean) * factor @ basis * weights``."""

    panels: SparsePanels
    """Panels (rows read at a time), which are whole chunks of the output."""

    basis: ScratchMatrix
    """Right vectors (n, k) in the working type, on scratch."""

    columns: ScratchMatrix
    """Scratch matrix (n, 2): mean of each column, and its factor once the mean is subtracted."""

    weights: Float64
    """(k,) factors that coordinates are multiplied by before they are written."""

    array: Path
    """Path of the Zarr array to write, (rows, k)."""

    row_seconds: float
    normal: NormalRows | None = None
    """Solver of coordinates from the products; None if products are the coordinates."""

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels that it calls."""
        return (multiply_rows, *self.coordinate_kernels)

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays of ``coordinate_buffers`` for the rows of a panel, which are the chunk to write."""
        return self.coordinate_buffers(self.cut.panel_rows, self.cut.panel_rows, self.panels.view.dtype)

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums.

        They are those of two copies of chunks in Zarr, of solving, vectors, the scaled basis, and squares.
        """
        rows, rank, item = self.cut.panel_rows, self.basis.columns, self.panels.view.dtype.itemsize
        solving = rows * 2 * 8 * rank if self.normal else 0
        columns = self.columns.rows * (6 * 8 + rank * (8 + item))
        return solving + 2 * rows * rank * item + columns + 8 * rank**2 + SQUARES_BYTES

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers; scale the basis by the factors of columns; compute ``offset`` (k,).

        ``offset``, the product of the scaled means with the basis, is subtracted from each row of products.
        """
        work = OverStoredNumbers.workspace(self, device)
        mean, factor = work.columns.T.copy()
        work.mean, work.factor = mean, factor
        work.offset = (mean * factor) @ work.basis
        work.basis = (work.basis * factor[:, None]).astype(self.panels.view.dtype)
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Write coordinates of rows ``start:stop``, read into panel ``slot``; add to the sums ``state``."""
        lines = take_measured(self, state, work, start, slot)
        if lines is None:
            return
        count, out = stop - start, work.out[: stop - start]
        multiply_rows(lines.indptr, lines.indices, lines.data, work.basis, y=work.y[:count])
        np.subtract(work.y[:count], work.offset, out=work.y64[:count])
        self.add_coordinates(state, work, count, out)
        if not state["bad"][0]:  # rows with bad numbers raise after the pass
            write_whole_chunks(self.array, out, (start, stop), (0, self.basis.columns))


def take_measured(
    fold: OverStoredNumbers, state: State, work: Workspace, start: int, slot: int
) -> Csr | None:
    """Take the rows out of panel buffer ``slot``; add squares of them, centered and scaled, to the sums.

    ``start`` is the index of the first row. Returns the rows as stored; None if a number is NaN or Inf, which
    is counted in ``state["bad"]``.
    """
    lines = fold.take(work, slot)
    squares = squares_of(lines, work.mean, work.factor)
    if not np.isfinite(squares):
        fold.count_bad(state, lines, start)
        return None
    state["squares"] += squares
    return lines


def squares_of(lines: Csr, mean: Float64, factor: Float64) -> float:
    """Sum of squares of ``(x - mean) * factor`` over all entries x of sparse rows, zeros included.

    ``mean`` and ``factor`` are (n,), of each column; factors bring elements near 1.
    """
    of_zero, total = (mean * factor) ** 2, 0.0
    zeros = (len(lines.indptr) - 1) * of_zero
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, len(lines.data), NUMBERS):
            part = slice(first, first + NUMBERS)
            at = lines.indices[part]
            numbers = (lines.data[part] - mean[at]) * factor[at]
            total += float(numbers @ numbers)
            zeros -= np.bincount(at, minlength=len(zeros)) * of_zero
        # A full column has no zeros, so its term is 0 except for rounding.
        return float(total + np.maximum(zeros, 0.0).sum())
