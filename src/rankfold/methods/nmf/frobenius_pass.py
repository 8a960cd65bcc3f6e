"""One iteration of a nonnegative factorization in one read: the long factor is improved, and its products
with the data accumulate, each panel used twice while it is in cache.

The matrix as long by short is about L S. Rows of L depend on S and on their own rows of the matrix alone, so
that what comes out is what updating all of L, then reading again, would give. The same iteration runs over a
matrix that was compressed onto a few directions of its short side and lies on scratch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.center_scale import measure
from rankfold.kernels.nonnegative.projected_gradient import gradient_rows
from rankfold.methods.nmf.row_solvers import RowSolver
from rankfold.methods.parts.finite import count_bad, count_negative, join_bad, no_bad
from rankfold.methods.parts.panels import Buffers, OverPanels, Panels, numbers
from rankfold.pipeline.data.view import aligned_empty
from rankfold.pipeline.engine.blocks import Cut, grains
from rankfold.pipeline.storage.checkpoint import State, load_arrays
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

SUMS = ("product", "gram", "sums", "gradient", "residual")
"""What an iteration adds up."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """What an iteration needs besides the data."""

    constants: Path
    """A part with ``right`` (width, k), whose product with the data L is solved from, its ``gram`` (k, k) to
    which ``diagonal`` (k,) of a penalty is added, and ``linear`` (k,), which one takes away."""

    before: ScratchMatrix | None
    """(long, k) L of the iteration before; nothing at first, when it starts from zero."""

    after: ScratchMatrix
    solver: RowSolver
    residual: bool = False
    """Whether what the product leaves of the data is formed: sums of squares then lose no digits."""

    @property
    def rank(self) -> int:
        """Components."""
        return self.after.columns

    def memory_bytes(self, rows: int, width: int) -> int:
        """Bytes of the buffers for grains of ``rows`` rows, and of two accumulators."""
        item, rank = self.after.dtype.itemsize, self.rank
        products = 3 * rows * rank + 3 * width * rank + rank * rank + self.residual * rows * width
        solving = 8 * 3 * rows * rank + item * 4 * 64 * rank
        return item * products + solving + 8 * rank * rank + 2 * self.accumulator_bytes(width)

    def accumulator_bytes(self, width: int) -> int:
        """Bytes of the sums of a stream."""
        return 8 * self.rank * (width + self.rank)

    def start(self, width: int) -> State:
        """Sums of no rows."""
        rank = self.rank
        return {
            "product": np.zeros((rank, width)),
            "gram": np.zeros((rank, rank)),
            "sums": np.zeros(rank),
            "gradient": np.zeros(rank),
            "residual": np.zeros(1),
        }

    def factors(self, rows: int, width: int) -> Factors:
        """Allocate the buffers and load the constants."""
        stored, dtype = load_arrays(self.constants), self.after.dtype
        gram = stored["gram"] + np.diag(stored["diagonal"])
        return Factors(
            right=np.ascontiguousarray(stored["right"], dtype),
            across=np.ascontiguousarray(stored["right"].T, dtype),
            gram=gram.astype(dtype),
            linear=stored["linear"].astype(dtype),
            b=aligned_empty((rows, self.rank), dtype),
            turned=aligned_empty((self.rank, rows if dtype == np.float64 else 0), dtype),
            left=aligned_empty((rows, self.rank), dtype),
            product=aligned_empty((self.rank, width), dtype),
            rest=aligned_empty((rows if self.residual else 0, width), dtype),
        )

    def advance(self, state: State, work: Factors, first: int, last: int, d: Array) -> None:
        """Improve rows ``first:last`` of L by the rows ``d`` (rows, width) of the data, and add them up."""
        b, left = work.b[: last - first], work.left[: last - first]
        _multiply(d, work, out=b)
        if self.before is None:
            left[...] = 0
        else:
            self.before.read_into(left, first)
        state["gradient"] += gradient_rows(work.gram, b - work.linear, self.solver.standing(left))
        self.solver.improve(work.gram, b, work.linear, left, fresh=self.before is None)
        self.after.write(first, left)
        np.matmul(left.T, d, out=work.product)
        state["product"] += work.product
        state["gram"] += left.T @ left
        state["sums"] += left.sum(axis=0, dtype=np.float64)
        if self.residual:
            rest = work.rest[: last - first]
            np.subtract(d, np.matmul(left, work.across, out=rest), out=rest)
            state["residual"] += measure(rest, np.zeros(rest.shape[1]), 1.0)[1].sum()


@dataclass(slots=True)
class Factors:
    """Buffers of one segment."""

    right: Array
    across: Array
    """``right`` turned over."""

    gram: Array
    linear: Array
    b: Array
    turned: Array
    left: Array
    product: Array
    rest: Array


def _multiply(d: Array, work: Factors, *, out: Array) -> None:
    """``d @ right``; in float64 turned over, which OpenBLAS multiplies a fifth faster, and float32 slower."""
    if work.turned.size:
        turned = work.turned[:, : len(d)]
        np.matmul(work.across, d.T, out=turned)
        out[...] = turned.T
    else:
        np.matmul(d, work.right, out=out)


@dataclass(slots=True)
class Work:
    """Buffers of one segment over the matrix."""

    panels: Buffers
    factors: Factors
    nothing: Float64


@dataclass(frozen=True, slots=True)
class NonnegativePass(OverPanels):
    """Fold of the matrix."""

    panels: Panels
    iteration: Iteration
    measured: bool
    """Whether squares are taken, and NaN and negative numbers counted: once is enough."""

    row_seconds: float

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace and of two accumulators."""
        short = self.panels.view.short
        ones = 2 * 8 * max(short, self.panels.grain_rows)
        return self.panels.memory_bytes + ones + self.iteration.memory_bytes(self.panels.grain_rows, short)

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        return self.iteration.accumulator_bytes(self.panels.view.short)

    def start(self) -> State:
        """Sums of no rows."""
        counted = {"squares": np.zeros(1), "bad": no_bad(), "negative": no_bad()}
        return {**self.iteration.start(self.panels.view.short), **counted}

    def workspace(self) -> Work:
        """Allocate the buffers."""
        short, rows = self.panels.view.short, self.panels.grain_rows
        return Work(self.panels.buffers(), self.iteration.factors(rows, short), np.zeros(max(short, rows)))

    def read(self, work: Work, start: int, stop: int, slot: int) -> None:
        """Fetch a panel."""
        self.panels.read(work.panels, start, stop, slot)

    def step(self, state: State, work: Work, start: int, stop: int, slot: int) -> None:
        """Take in a panel, grain by grain."""
        for first, last, raw in self.panels.grains(work.panels, start, stop, slot):
            nothing = work.nothing[: raw.shape[1]]
            if self.measured:
                squares = measure(numbers(raw), nothing, 1.0)[1].sum()
                if not np.isfinite(squares):
                    count_bad(state, raw, *self.panels.corner(first))
                    continue
                state["squares"] += squares
                if raw.min() < 0:
                    count_negative(state, raw, *self.panels.corner(first))
            if raw.dtype != self.panels.dtype:
                raw = self.panels.conditioned(work.panels, raw, nothing, nothing + 1)
            self.iteration.advance(state, work.factors, first, last, self.panels.view.as_rows(raw))

    def merge(self, total: State, other: State) -> None:
        """Add the sums."""
        for name in (*SUMS, "squares"):
            total[name] += other[name]
        for name in ("bad", "negative"):
            total[name] = join_bad(total[name], other[name])


@dataclass(slots=True)
class CompressedWork:
    """Buffers of one segment over scratch."""

    factors: Factors
    rows: Array


@dataclass(frozen=True, slots=True)
class CompressedPass:
    """Fold of a compressed matrix, (long, width), on scratch."""

    compressed: ScratchMatrix
    cut: Cut
    iteration: Iteration
    row_seconds: float
    slots: int = 1

    @property
    def _grain_rows(self) -> int:
        return min(self.cut.grain_rows, self.cut.panel_rows)

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace and of two accumulators."""
        rows, width = self._grain_rows, self.compressed.columns
        return rows * self.compressed.row_bytes + self.iteration.memory_bytes(rows, width)

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        return self.iteration.accumulator_bytes(self.compressed.columns)

    def start(self) -> State:
        """Sums of no rows."""
        return self.iteration.start(self.compressed.columns)

    def workspace(self) -> CompressedWork:
        """Allocate the buffers."""
        rows, width = self._grain_rows, self.compressed.columns
        buffer = aligned_empty((rows, width), self.compressed.dtype)
        return CompressedWork(self.iteration.factors(rows, width), buffer)

    def read(self, work: CompressedWork, start: int, stop: int, slot: int) -> None:
        """Nothing to read ahead: rows come from scratch, grain by grain."""

    def step(self, state: State, work: CompressedWork, start: int, stop: int, slot: int) -> None:
        """Take in rows, grain by grain."""
        for first, last in grains(start, stop, self.cut.grain_rows):
            d = work.rows[: last - first]
            self.compressed.read_into(d, first)
            self.iteration.advance(state, work.factors, first, last, d)

    def merge(self, total: State, other: State) -> None:
        """Add the sums."""
        for name in SUMS:
            total[name] += other[name]
