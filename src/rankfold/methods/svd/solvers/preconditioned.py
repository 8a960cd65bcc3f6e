"""Products of panels with a basis that makes their columns nearly orthonormal.

``Y = [(D - 1 c') W - 1 o', G]``, a grain (rows of one product) at a time: D is the matrix, c a shift, W the
basis, o the difference between mean and shift in the basis, and G Gaussian columns where the matrix has fewer
directions than columns. The product of such a Y with a small matrix is the long factor of a decomposition. Y
is formed anew in each pass: given the same cut, to the same bits.

``PanelFactor`` finds the R factor of a matrix in one pass, by Householder reflections: nothing is squared.
With a column of ones before the others, the part of R below the first row and right of the first column is
the R factor of the matrix about its column means, whatever it was shifted by.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.center_scale import measure, subtract
from rankfold.kernels.linear.gaussian import TILE_ROWS, gaussian_rows
from rankfold.kernels.linear.products import add_gram, product, weigh
from rankfold.kernels.linear.qr import merge_r, panel_r
from rankfold.methods.parts.conditioned import Centering, OverConditionedPanels
from rankfold.methods.parts.panels import Panels
from rankfold.methods.random_keys import Purpose
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Constant, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_long_rows
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Preconditioner:
    """A stored basis W that makes columns of a matrix nearly orthonormal, completed by random columns."""

    constants: Path
    """Checkpoint file with W ``w`` (short, directions), ``offset`` (directions,) and ``shift`` (short,)."""

    directions: int
    """Number of columns of the basis W."""

    random: int
    """Number of Gaussian columns of Y."""

    seed: int
    """Key of the Gaussian columns."""

    @property
    def width(self) -> int:
        """Number of columns of Y: those of W and Gaussian ones."""
        return self.directions + self.random


class OverWhitenedPanels(OverConditionedPanels):
    """Base class of folds over the rows of Y (see the module), grain by grain."""

    __slots__ = ()
    preconditioner: Preconditioner

    @property
    def shift_part(self) -> Path:
        """Path of the checkpoint file that holds the shift of the columns."""
        return self.preconditioner.constants

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays of a segment by name, besides those of ``OverConditionedPanels``.

        ``w`` (short, directions) and ``offset`` (directions,) are constants, ``y`` (grain rows, width) a
        grain of Y.
        """
        short, directions, part = self.panels.view.short, self.preconditioner.directions, self.shift_part
        return {
            **super().buffers(),
            "w": Constant((short, directions), part=part),
            "offset": Constant((directions,), part=part),
            "y": Buffer((self.panels.grain_rows, self.preconditioner.width)),
        }

    @property
    def random_bytes(self) -> int:
        """Bytes of vectors along either side of a grain, and of Gaussian columns as they are drawn."""
        column_bytes = 2 * 8 * self.preconditioner.random * (self.panels.grain_rows + TILE_ROWS)
        return self.vectors_bytes + column_bytes

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers and panels; ``has_offset`` is True if the offset is not zero."""
        work = super().workspace(device)
        work.has_offset = bool(work.offset.any())
        return work

    def products(
        self, state: State, work: Workspace, start: int, stop: int, slot: int
    ) -> Iterator[tuple[int, int, Float64]]:
        """Yield grains of Y for long rows ``start:stop``, which were read into panel ``slot``.

        Each comes as index of its first long row, index after the last, and values (rows, width) in a buffer
        that the next one overwrites. Sums of columns are added to ``state`` if they are measured.
        """
        directions = self.preconditioner.directions
        for first, last, d in self.condition_grains(state, work, start, stop, slot):
            y = work.y[: last - first]
            product(d, work.w, out=y[:, :directions])
            if work.has_offset:
                y[:, :directions] -= work.offset
            if self.preconditioner.random:
                random_columns = gaussian_rows(
                    self.preconditioner.seed, Purpose.COMPLETION, (first, last), self.preconditioner.random
                )
                random_columns *= 1 / np.sqrt(self.cut.length)  # about as long as the others
                y[:, directions:] = work.device.place(random_columns, random_columns.dtype)
            yield first, last, y


@dataclass(frozen=True, slots=True)
class PreconditionedGram(OverWhitenedPanels):
    """Fold that sums ``Y'Y`` over all rows, and sums and squares of the columns of the matrix."""

    panels: Panels
    """Panels (rows in memory at a time), converted to float64."""

    centering: Centering
    preconditioner: Preconditioner
    columns: ScratchMatrix | None
    row_seconds: float
    measures_columns: bool = True

    kernels = (measure, subtract, gaussian_rows, product, add_gram)

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all rows: ``gram`` (width, width) is ``Y'Y``; others as ``OverConditionedPanels``."""
        square = (self.preconditioner.width,) * 2
        return {"gram": Sum(square), **OverConditionedPanels.sums(self)}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums: vectors, random columns and the product of a grain."""
        return self.random_bytes + 8 * self.preconditioner.width**2

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Add ``Y'Y`` of long rows ``start:stop``, read into panel ``slot``, to ``state``, grain by grain."""
        for _, _, y in self.products(state, work, start, stop, slot):
            add_gram(y, total=state["gram"])


@dataclass(frozen=True, slots=True)
class PreconditionedFactor(OverWhitenedPanels):
    """Fold that finds the R factor of Y by reflections, for columns that may be nearly dependent."""

    panels: Panels
    """Panels (rows in memory at a time), converted to float64."""

    centering: Centering
    preconditioner: Preconditioner
    columns: ScratchMatrix | None
    row_seconds: float
    measures_columns: bool = False

    @property
    def merge_bytes(self) -> int:
        """Bytes, with copies of LAPACK, that merging two R factors takes beyond factorizing a grain."""
        return max(0, 3 * 2 * 8 * self.preconditioner.width**2 - self._stack_bytes)

    @property
    def _stack_bytes(self) -> int:
        return 3 * 8 * self.preconditioner.width * (self.panels.grain_rows + self.preconditioner.width)

    kernels = (measure, subtract, gaussian_rows, product, panel_r)

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all rows: ``r`` (width, width) is R of the rows of Y so far, merged between streams.

        Others are those of ``OverConditionedPanels``.
        """
        square = (self.preconditioner.width,) * 2
        return {"r": Sum(square, join=merge_r), **OverConditionedPanels.sums(self)}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums.

        They are those of vectors, of random columns, and of a grain below R, which LAPACK copies twice.
        """
        return self.random_bytes + self._stack_bytes

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Factorize Y of long rows ``start:stop``, read into panel ``slot``, below R so far, by grains."""
        for _, _, y in self.products(state, work, start, stop, slot):
            state["r"] = panel_r(np.vstack([state["r"], y]))


@dataclass(frozen=True, slots=True)
class WritePreconditionedRows(OverWhitenedPanels):
    """Fold that writes ``(Y @ coefficients) * weights`` and sums its Gram matrix before weights."""

    panels: Panels
    """Panels in float64, which are whole chunks of the array."""

    centering: Centering
    preconditioner: Preconditioner
    columns: ScratchMatrix | None
    constants: Path
    """Path of a checkpoint file with ``coefficients`` (width, k) and ``weights`` (k,)."""

    array: Path
    """Path of the Zarr array to write, (rows, k), or (k, rows) if ``transposed``."""

    transposed: bool
    dtype: np.dtype[Any]
    rank: int
    """Number k of columns to write."""

    row_seconds: float
    measures_columns: bool = False

    kernels = (measure, subtract, gaussian_rows, product, add_gram, weigh)

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays of a segment by name, besides those of ``OverWhitenedPanels``.

        ``coefficients`` (width, k) and ``weights`` (k,) are constants, ``factor`` (grain rows, k) a grain of
        the factor before weights, ``out`` (panel rows, k) the chunks to write, transposed if these are.
        """
        tall, width, rank = self.cut.panel_rows, self.preconditioner.width, self.rank
        return {
            **OverWhitenedPanels.buffers(self),
            "coefficients": Constant((width, rank), part=self.constants),
            "weights": Constant((rank,), part=self.constants),
            "factor": Buffer((self.panels.grain_rows, rank)),
            "out": Buffer((rank, tall) if self.transposed else (tall, rank), self.dtype),
        }

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all rows: ``gram`` (k, k) of ``Y @ coefficients``, those of ``OverConditionedPanels``."""
        return {"gram": Sum((self.rank, self.rank)), **OverConditionedPanels.sums(self)}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums.

        They are those of vectors, of random columns, of a Gram matrix, and of a copy of the chunks to write.
        """
        chunks = self.cut.panel_rows * self.rank * self.dtype.itemsize
        return self.random_bytes + 8 * self.rank**2 + chunks

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Form long rows ``start:stop`` of the factor, and write them as whole chunks; add to ``gram``."""
        out = work.out.T if self.transposed else work.out
        for first, last, y in self.products(state, work, start, stop, slot):
            factor = work.factor[: last - first]
            product(y, work.coefficients, out=factor)
            add_gram(factor, total=state["gram"])
            weigh(factor, work.weights, out=out[first - start : last - start])
        work.device.send(work.out, functools.partial(self._write, state, start, stop))

    def _write(self, state: State, start: int, stop: int, out: Array) -> None:
        if not state["bad"][0]:
            write_long_rows(self.array, out, start, stop, transposed=self.transposed)


# Without a sample ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PanelFactor(OverConditionedPanels):
    """Fold that finds R of a matrix, times a power of two, by Householder reflections.

    The power of two is ``Centering.panel_factor``.
    """

    panels: Panels
    """Panels (rows in memory at a time), converted to float64."""

    centering: Centering
    shift: Float64
    columns: ScratchMatrix | None
    row_seconds: float
    measures_columns: bool = True

    @property
    def ones(self) -> bool:
        """True if a column of ones is put before those of the matrix."""
        return self.centering.center and self.panels.view.orientation is Orientation.ROWS

    @property
    def width(self) -> int:
        """Number of columns of R: those of the matrix, and that of ones."""
        return self.panels.view.short + self.ones

    @property
    def merge_bytes(self) -> int:
        """Bytes, with copies of LAPACK, that merging two R factors takes beyond factorizing a grain."""
        return max(0, 3 * 2 * 8 * self.width**2 - 2 * self._stack_bytes)

    @property
    def _stack_bytes(self) -> int:
        return 8 * self.width * (self.panels.grain_rows + self.width)

    kernels = (measure, subtract, panel_r)

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays of a segment by name, besides those of ``OverConditionedPanels``.

        ``stacked`` (width + grain rows, width) is R of the rows so far, with a grain below it.
        """
        stacked = Buffer((self.width + self.panels.grain_rows, self.width))
        return {**OverConditionedPanels.buffers(self), "stacked": stacked}

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all rows: ``r`` (width, width) is R of the rows so far; those of two streams are merged.

        Others are those of ``OverConditionedPanels``.
        """
        return {"r": Sum((self.width, self.width), join=merge_r), **OverConditionedPanels.sums(self)}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums: vectors, and two copies by LAPACK of a grain below R."""
        return self.vectors_bytes + 2 * self._stack_bytes

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Factorize long rows ``start:stop``, read into panel ``slot``, below ``state["r"]``, by grains."""
        unit = self.centering.panel_factor(self.panels.view.orientation)
        for first, last, d in self.condition_grains(state, work, start, stop, slot):
            stacked = work.stacked[: self.width + last - first]
            stacked[: self.width] = state["r"]
            below = stacked[self.width :]
            if self.ones:
                below[:, 0] = 1.0
            np.multiply(d, unit, out=below[:, int(self.ones) :])
            state["r"] = panel_r(stacked)
