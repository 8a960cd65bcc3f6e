"""One iteration of a nonnegative factorization in one read: it improves the long factor and sums its products
with the data, using each panel twice while it is in cache.

The matrix, seen as long by short, is approximated by L S. Rows of L depend only on S and on their own rows of
the matrix. The result is therefore the same as updating all of L, then reading the matrix again. The same
iteration runs over a matrix compressed onto a few directions of its short side, which lies on scratch. A
panel is the rows read at a time, a grain those of one product.
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
from rankfold.kernels.linear.products import add_gram, add_product, product
from rankfold.kernels.nonnegative.projected_gradient import gradient_rows
from rankfold.methods.nmf.row_solvers import RowSolver
from rankfold.methods.parts.panels import BAD, OverPanels, Panels, count_negative, numbers
from rankfold.pipeline.engine.blocks import Cut, grains
from rankfold.pipeline.engine.device import HOST, Device, Kernel
from rankfold.pipeline.engine.fold import Buffer, Constant, DeclaredFold, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NmfIteration:
    """Inputs and outputs of an iteration besides the data, and the work on a grain.

    The matrix, seen as (long, short), is approximated by L S; L is improved, and S is given.
    """

    constants: Path
    """Checkpoint file with ``right`` (width, k), ``gram`` (k, k), ``diagonal`` (k,) and ``linear`` (k,).

    L is solved from the product of the data with ``right``, minus ``linear``, and from ``gram`` plus
    ``diagonal``; ``linear`` and ``diagonal`` are those of penalties."""

    before: ScratchMatrix | None
    """(long, k) L of the previous iteration; None in the first one, which starts from zero."""

    after: ScratchMatrix
    """(long, k) new L, which the pass writes."""

    solver: RowSolver
    residual: bool = False
    """True to sum squares of the residual explicitly, which loses no digits."""

    @property
    def rank(self) -> int:
        """Number of components."""
        return self.after.columns

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels that it calls."""
        return (measure, product, add_gram, add_product, gradient_rows, *self.solver.kernels)

    def buffers(self, rows: int, width: int) -> dict[str, Buffer]:
        """Arrays of ``constants``, and buffers for grains of ``rows`` rows of ``width`` columns.

        ``across`` is ``right`` transposed, ``b`` the data times ``right``, (rows, k), with room for its
        ``transpose``; ``left`` holds rows of L, ``product`` (k, width) what they add to the sum of that name,
        and ``rest`` (rows, width) the residual.
        """
        dtype, rank, part = self.after.dtype, self.rank, self.constants
        transpose_rows = rows if dtype == np.float64 else 0
        return {
            "right": Constant((width, rank), dtype, part),
            "across": Buffer((rank, width), dtype),
            "gram": Constant((rank, rank), part=part),
            "diagonal": Constant((rank,), part=part),
            "linear": Constant((rank,), dtype, part),
            "b": Buffer((rows, rank), dtype),
            "transpose": Buffer((rank, transpose_rows), dtype),
            "left": Buffer((rows, rank), dtype),
            "product": Buffer((rank, width), dtype),
            "rest": Buffer((rows if self.residual else 0, width), dtype),
        }

    def ready(self, work: Workspace) -> Workspace:
        """In ``work``, which is returned, transpose ``right`` into ``across``, and add ``diagonal`` to the
        diagonal of ``gram``."""
        np.copyto(work.across, work.right.T)
        work.gram = (work.gram + np.diag(work.diagonal)).astype(self.after.dtype)
        return work

    def temporary_bytes(self, rows: int) -> int:
        """Bytes that solving ``rows`` rows of L takes in addition to the buffers."""
        item, rank = self.after.dtype.itemsize, self.rank
        return item * rows * rank + 8 * 3 * rows * rank + item * (4 * 64 + rank) * rank + 8 * rank * rank

    def sums(self, width: int) -> dict[str, Sum]:
        """Sums over all rows of the data X (long, width), with L the new long factor (long, k).

        ``product`` (k, width) is ``L'X``, ``gram`` (k, k) is ``L'L``, ``sums`` (k,) are column sums of L,
        ``gradient`` (k,) are squares of the projected gradient at the old L, and ``residual`` (1,) the sum of
        squares of the residual, if it is asked for.
        """
        rank, one = (self.rank,), (1,)
        return {
            "product": Sum((self.rank, width)),
            "gram": Sum((self.rank, self.rank)),
            "sums": Sum(rank),
            "gradient": Sum(rank),
            "residual": Sum(one),
        }

    def advance(self, state: State, work: Workspace, first: int, last: int, d: Array) -> None:
        """Improve rows ``first:last`` of L by the same rows ``d`` (rows, width) of the data.

        They are written to ``after``, and add to the sums in ``state``.
        """
        b = work.b[: last - first]
        _multiply(d, work, out=b)
        left = self.improve(state, work, first, b)
        add_product(left, d, total=state["product"], work=work.product)
        add_gram(left, total=state["gram"])
        if self.residual:
            rest = work.rest[: last - first]
            product(left, work.across, out=rest)
            np.subtract(d, rest, out=rest)
            nothing = np.zeros_like(state["residual"], shape=rest.shape[1])
            state["residual"] += measure(rest, nothing, 1.0)[1].sum()

    def improve(self, state: State, work: Workspace, first: int, b: Array) -> Array:
        """Improve r rows of L from row ``first`` on, write them to ``after``, and return them (r, k).

        ``b`` (r, k) is the data times ``right``, and is overwritten. Adds to ``gradient`` and ``sums`` in
        ``state``.
        """
        left = work.left[: len(b)]
        if self.before is None:
            left[...] = 0
        else:
            work.device.fill(left, functools.partial(self.before.read_into, start=first))
        improve_rows(state, self.solver, work.gram, b, work.linear, left, fresh=self.before is None)
        work.device.send(left, functools.partial(self.after.write, first))
        return left  # type: ignore[no-any-return]


def improve_rows(
    state: State, solver: RowSolver, gram: Array, b: Array, linear: Array, left: Array, *, fresh: bool
) -> None:
    """Improve rows ``left`` (r, k) of L in place by ``solver``; for the parameters see ``RowSolver.improve``.

    ``b`` (r, k) is overwritten. Adds squares of the projected gradient at the old rows to
    ``state["gradient"]``, and column sums of the new rows to ``state["sums"]``.
    """
    state["gradient"] += gradient_rows(gram, b - linear, solver.clear_floor(left))
    solver.improve(gram, b, linear, left, fresh=fresh)
    state["sums"] += left.sum(axis=0, dtype=np.float64)


def _multiply(d: Array, work: Workspace, *, out: Array) -> None:
    """Write ``d @ work.right`` to ``out`` (rows, k).

    In float64 it is made as a transposed product, a fifth faster in OpenBLAS (slower in float32).
    """
    if work.transpose.size:
        transpose = work.transpose[:, : len(d)]
        product(work.across, d.T, out=transpose)
        out[...] = transpose.T
    else:
        product(d, work.right, out=out)


@dataclass(frozen=True, slots=True)
class NonnegativePass(OverPanels):
    """Fold of one iteration of least squares over a dense matrix."""

    panels: Panels
    iteration: NmfIteration
    first_pass: bool
    """True to sum squares and to count NaN and negative numbers, as only the first pass does."""

    row_seconds: float

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels that it calls."""
        return (measure, subtract, *self.iteration.kernels)

    def buffers(self) -> Mapping[str, Buffer]:
        """Buffers of the iteration, and a vector of zeros as long as the longer side of a grain."""
        short, rows = self.panels.view.short, self.panels.grain_rows
        return {"nothing": Buffer((max(short, rows),)), **self.iteration.buffers(rows, short)}

    def sums(self) -> Mapping[str, Sum]:
        """Sums of the iteration; sum of squares of the matrix; counts of NaN and negative numbers."""
        checks = {"squares": Sum((1,)), "bad": BAD, "negative": BAD}
        return {**self.iteration.sums(self.panels.view.short), **checks}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a vector of ones, and those that solving the rows of a grain takes besides the buffers."""
        rows = self.panels.grain_rows
        return 8 * max(self.panels.view.short, rows) + self.iteration.temporary_bytes(rows)

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers and panels, and compute arrays that follow from the constants."""
        work = self.iteration.ready(OverPanels.workspace(self, device))
        work.nothing[:] = 0.0
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Improve rows ``start:stop`` of the long factor, grain by grain, and add to the sums in ``state``.

        The first pass also checks the numbers of the panel.
        """
        for grain in self.panels.grains(work.panels, start, stop, slot):
            first, last, raw, staged = grain
            nothing = work.nothing[: raw.shape[1]]
            if self.first_pass:
                squares = measure(numbers(raw), nothing, 1.0)[1].sum()
                if not self.is_finite(state, work, grain, squares):
                    continue
                state["squares"] += squares
                count = functools.partial(count_negative, state, staged, *self.panels.corner(first))
                work.device.holds(raw.min() >= 0, count)
            if raw.dtype != self.panels.dtype:
                raw = self.panels.condition(work.panels, raw, nothing, nothing + 1)
            self.iteration.advance(state, work, first, last, self.panels.view.as_rows(raw))


@dataclass(frozen=True, slots=True)
class CompressedPass(DeclaredFold):
    """Fold of one iteration over a compressed matrix, (long, width), on scratch."""

    compressed: ScratchMatrix
    cut: Cut
    iteration: NmfIteration
    row_seconds: float
    slots: int = 1

    @property
    def _grain_rows(self) -> int:
        return min(self.cut.grain_rows, self.cut.panel_rows)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels that it calls."""
        return self.iteration.kernels

    def buffers(self) -> Mapping[str, Buffer]:
        """Rows of a grain of the compressed matrix, (grain rows, width), and buffers of the iteration."""
        rows, width = self._grain_rows, self.compressed.columns
        grain = Buffer((rows, width), self.compressed.dtype)
        return {"rows": grain, **self.iteration.buffers(rows, width)}

    def sums(self) -> Mapping[str, Sum]:
        """Sums of the iteration: see ``NmfIteration.sums``."""
        return self.iteration.sums(self.compressed.columns)

    @property
    def temporary_bytes(self) -> int:
        """Bytes that solving the rows of a grain takes in addition to the buffers."""
        return self.iteration.temporary_bytes(self._grain_rows)

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers, and compute arrays that follow from the constants."""
        return self.iteration.ready(DeclaredFold.workspace(self, device))

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Improve rows ``start:stop`` of the long factor grain by grain; add to the sums in ``state``."""
        for first, last in grains(start, stop, self.cut.grain_rows):
            d = work.rows[: last - first]
            work.device.fill(d, functools.partial(self.compressed.read_into, start=first))
            self.iteration.advance(state, work, first, last, d)
