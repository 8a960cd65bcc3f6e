"""Products of panels with a basis that makes their columns nearly orthonormal.

``Y = [(D - 1 c') W - 1 o', G]``, a grain at a time: D the matrix, c a shift, W the basis, o what the shift
differs from the mean, and Gaussian columns where the matrix has fewer directions than columns. The product
of such a Y with a small matrix is the long factor of a decomposition. It is formed anew in each pass: given
the same cut, to the same bits.

R factor of a matrix in one pass, by Householder reflections: nothing is squared.

With a column of ones before the others, what is left below the first row and right of the first column
is the R factor of the matrix with its column means taken off, whatever it was shifted by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.gaussian import TILE_ROWS, gaussian_rows
from rankfold.kernels.linear.qr import merge_r, panel_r
from rankfold.methods.parts.combination import COMPLETION
from rankfold.methods.parts.conditioned import Centering, Grains, OverConditioned
from rankfold.methods.parts.finite import join_bad
from rankfold.methods.parts.panels import Panels
from rankfold.pipeline.data.view import Orientation, aligned_empty
from rankfold.pipeline.storage.checkpoint import State, load_arrays
from rankfold.pipeline.storage.chunk_writer import write_long_rows
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Preconditioner:
    """The basis, and where it is kept."""

    constants: Path
    """A part with ``w`` (short, directions), ``offset`` (directions,) and ``shift`` (short,)."""

    directions: int
    random: int
    seed: int

    @property
    def width(self) -> int:
        """Columns of Y."""
        return self.directions + self.random


@dataclass(slots=True)
class Work:
    """Buffers of one segment."""

    grains: Grains
    w: Float64
    offset: Float64
    y: Float64


class OverWhitened(OverConditioned):
    """What folds over such products share."""

    __slots__ = ()
    preconditioner: Preconditioner

    @property
    def products_bytes(self) -> int:
        """Bytes of the buffers for panels, basis and products."""
        short, width = self.panels.view.short, self.preconditioner.width
        drawn = 2 * 8 * self.preconditioner.random * (self.panels.grain_rows + TILE_ROWS)
        return self.grains_bytes + 8 * width * (self.panels.grain_rows + short) + drawn

    def workspace(self) -> Work:
        """Allocate the buffers and load the basis."""
        stored = load_arrays(self.preconditioner.constants)
        y = aligned_empty((self.panels.grain_rows, self.preconditioner.width), np.float64)
        return Work(self.buffers(stored["shift"]), stored["w"], stored["offset"], y)

    def read(self, work: Work, start: int, stop: int, slot: int) -> None:
        """Fetch a panel."""
        self.panels.read(work.grains.panels, start, stop, slot)

    def products(
        self, state: State, work: Work, start: int, stop: int, slot: int
    ) -> Iterator[tuple[int, int, Float64]]:
        """Grains of Y: first and last long row, and (rows, width)."""
        known, moved = self.preconditioner.directions, bool(work.offset.any())
        for first, last, d in self.conditioned(state, work.grains, start, stop, slot):
            y = work.y[: last - first]
            np.matmul(d, work.w, out=y[:, :known])
            if moved:
                y[:, :known] -= work.offset
            if self.preconditioner.random:
                drawn = gaussian_rows(
                    self.preconditioner.seed, COMPLETION, (first, last), self.preconditioner.random
                )
                drawn *= 1 / np.sqrt(self.cut.length)  # about as long as the others
                y[:, known:] = drawn
            yield first, last, y


@dataclass(frozen=True, slots=True)
class PreconditionedGram(OverWhitened):
    """Fold of a matrix into ``Y'Y``, measured on the way."""

    panels: Panels
    """Of float64."""

    centering: Centering
    preconditioner: Preconditioner
    columns: ScratchMatrix | None
    row_seconds: float
    measured: bool = True

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace and of two accumulators, which a merge holds beside it."""
        return self.products_bytes + 8 * self.preconditioner.width**2 + 2 * self.accumulator_bytes

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        return 8 * self.preconditioner.width**2

    def start(self) -> State:
        """Accumulator of no rows."""
        return {"gram": np.zeros((self.preconditioner.width, self.preconditioner.width)), **self.measures()}

    def step(self, state: State, work: Work, start: int, stop: int, slot: int) -> None:
        """Multiply a panel, grain by grain."""
        for _, _, y in self.products(state, work, start, stop, slot):
            state["gram"] += y.T @ y

    def merge(self, total: State, other: State) -> None:
        """Add the sums."""
        for name in ("gram", "sums", "squares"):
            total[name] += other[name]
        total["bad"] = join_bad(total["bad"], other["bad"])


@dataclass(frozen=True, slots=True)
class PreconditionedFactor(OverWhitened):
    """Fold of a matrix into the R factor of Y, for columns that may be less independent than hoped."""

    panels: Panels
    """Of float64."""

    centering: Centering
    preconditioner: Preconditioner
    columns: ScratchMatrix | None
    row_seconds: float
    measured: bool = False

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace and of two accumulators; LAPACK copies a grain below R twice."""
        return self.products_bytes + self._stacked_bytes + 2 * self.accumulator_bytes

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        return 8 * self.preconditioner.width**2

    @property
    def merge_bytes(self) -> int:
        """Bytes that two R factors and the copies of LAPACK take beyond what a grain does."""
        return max(0, 3 * 2 * 8 * self.preconditioner.width**2 - self._stacked_bytes)

    @property
    def _stacked_bytes(self) -> int:
        return 3 * 8 * self.preconditioner.width * (self.panels.grain_rows + self.preconditioner.width)

    def start(self) -> State:
        """R of no rows."""
        return {"r": np.zeros((self.preconditioner.width, self.preconditioner.width)), **self.measures()}

    def step(self, state: State, work: Work, start: int, stop: int, slot: int) -> None:
        """Factorize products, grain by grain, below what came before."""
        for _, _, y in self.products(state, work, start, stop, slot):
            state["r"] = panel_r(np.vstack([state["r"], y]))

    def merge(self, total: State, other: State) -> None:
        """Join two R factors."""
        total["r"] = merge_r(total["r"], other["r"])
        total["bad"] = join_bad(total["bad"], other["bad"])


@dataclass(slots=True)
class WriteWork(Work):
    """Buffers of one segment that writes."""

    coefficients: Float64
    weights: Float64
    factor: Float64
    out: Array


@dataclass(frozen=True, slots=True)
class WritePreconditioned(OverWhitened):
    """Fold that writes ``(Y @ coefficients) * weights`` and sums up the Gram matrix before weights."""

    panels: Panels
    """Of float64; panels are whole chunks of the array."""

    centering: Centering
    preconditioner: Preconditioner
    columns: ScratchMatrix | None
    constants: Path
    """A part with ``coefficients`` (width, k) and ``weights`` (k,)."""

    array: Path
    """The Zarr array to write, (rows, k), or (k, rows) if ``transposed``."""

    transposed: bool
    dtype: np.dtype[Any]
    rank: int
    row_seconds: float
    measured: bool = False

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace and of two accumulators; chunks that are not as they lie are copied."""
        chunks = 2 * self.cut.panel_rows * self.rank * self.dtype.itemsize
        factor = 8 * self.rank * (self.panels.grain_rows + self.preconditioner.width + 3 * self.rank)
        return self.products_bytes + factor + chunks

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        return 8 * self.rank**2

    def start(self) -> State:
        """Gram matrix of no rows."""
        return {"gram": np.zeros((self.rank, self.rank)), **self.measures()}

    def workspace(self) -> WriteWork:
        """Allocate the buffers and load the constants."""
        products, stored, tall = (
            OverWhitened.workspace(self),
            load_arrays(self.constants),
            self.cut.panel_rows,
        )
        return WriteWork(
            grains=products.grains,
            w=products.w,
            offset=products.offset,
            y=products.y,
            coefficients=stored["coefficients"],
            weights=stored["weights"],
            factor=aligned_empty((self.panels.grain_rows, self.rank), np.float64),
            out=aligned_empty((self.rank, tall) if self.transposed else (tall, self.rank), self.dtype),
        )

    def step(self, state: State, work: WriteWork, start: int, stop: int, slot: int) -> None:
        """Form rows ``start:stop`` and write them as whole chunks."""
        out = work.out.T if self.transposed else work.out
        for first, last, y in self.products(state, work, start, stop, slot):
            factor = work.factor[: last - first]
            np.matmul(y, work.coefficients, out=factor)
            state["gram"] += factor.T @ factor
            np.multiply(factor, work.weights, out=out[first - start : last - start], casting="same_kind")
        if not state["bad"][0]:
            write_long_rows(self.array, work.out, start, stop, transposed=self.transposed)

    def merge(self, total: State, other: State) -> None:
        """Add the Gram matrices."""
        total["gram"] += other["gram"]
        total["bad"] = join_bad(total["bad"], other["bad"])


# Without a sample ---------------------------------------------------------------------------------


@dataclass(slots=True)
class FactorWork:
    """Buffers of one segment."""

    grains: Grains
    stacked: Float64
    """R so far, and a grain below it."""


@dataclass(frozen=True, slots=True)
class PanelFactor(OverConditioned):
    """Fold of a matrix, times the unit, into its R factor."""

    panels: Panels
    """Of float64."""

    centering: Centering
    shift: Float64
    columns: ScratchMatrix | None
    row_seconds: float
    measured: bool = True

    @property
    def ones(self) -> bool:
        """Whether the matrix has a column of ones before its own."""
        return self.centering.center and self.panels.view.orientation is Orientation.ROWS

    @property
    def width(self) -> int:
        """Columns in all."""
        return self.panels.view.short + self.ones

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace and of two accumulators; LAPACK copies a grain below R twice."""
        return self.grains_bytes + 3 * self._stacked_bytes + 2 * self.accumulator_bytes

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        return 8 * self.width**2

    @property
    def merge_bytes(self) -> int:
        """Bytes that two R factors and the copies of LAPACK take beyond what a grain does."""
        return max(0, 3 * 2 * 8 * self.width**2 - 2 * self._stacked_bytes)

    @property
    def _stacked_bytes(self) -> int:
        return 8 * self.width * (self.panels.grain_rows + self.width)

    def start(self) -> State:
        """R of no rows."""
        return {"r": np.zeros((self.width, self.width)), **self.measures()}

    def workspace(self) -> FactorWork:
        """Allocate the buffers."""
        stacked = aligned_empty((self.width + self.panels.grain_rows, self.width), np.float64)
        return FactorWork(self.buffers(self.shift), stacked)

    def read(self, work: FactorWork, start: int, stop: int, slot: int) -> None:
        """Fetch a panel."""
        self.panels.read(work.grains.panels, start, stop, slot)

    def step(self, state: State, work: FactorWork, start: int, stop: int, slot: int) -> None:
        """Factorize a panel, grain by grain, below what came before."""
        for first, last, d in self.conditioned(state, work.grains, start, stop, slot):
            stacked = work.stacked[: self.width + last - first]
            stacked[: self.width] = state["r"]
            below = stacked[self.width :]
            if self.ones:
                below[:, 0] = 1.0
            np.multiply(d, self.centering.unit, out=below[:, int(self.ones) :])
            state["r"] = panel_r(stacked)

    def merge(self, total: State, other: State) -> None:
        """Join two R factors."""
        total["r"] = merge_r(total["r"], other["r"])
        for name in ("sums", "squares"):
            total[name] += other[name]
        total["bad"] = join_bad(total["bad"], other["bad"])
