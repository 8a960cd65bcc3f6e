"""Iterations of a nonnegative factorization over a sparse matrix; cost is proportional to stored numbers.

A line is a row of the matrix X, or a column if X is stored by columns; a slab is a few columns of a factor.
Iterations need two products: lines of X with the short factor S, which gather rows of S', and the long factor
L with X, which gather rows of L, or scatter them if they are short. Zeros enter neither. A number that
is not stored adds only its model value to the divergence, and all model values sum to the sums of L times
those of S. Squares of the residual are

    |X - L S|^2 = sum over stored x (x - 2 m) + <L'L, S S'>,      with m the model value at x.

Both are differences in float64: for float64 data they resolve no error below the square root of its rounding.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import aligned_empty
from rankfold.kernels.linear.products import add_gram
from rankfold.kernels.nonnegative.kl_divergence import quotients
from rankfold.kernels.nonnegative.nnls import descend_rows
from rankfold.kernels.sparse.moments import add_moments
from rankfold.kernels.sparse.products import (
    NARROW,
    add_columns,
    check_rows,
    multiply_rows,
    order_columns,
    scatter_rows,
)
from rankfold.kernels.sparse.sampled import sample_product
from rankfold.kernels.sparse.slabs import cut_block, slab_shape
from rankfold.methods.nmf.passes.divergence import UPDATES, below
from rankfold.methods.nmf.passes.frobenius import NmfIteration
from rankfold.methods.nmf.row_solvers import FILL, FIRST_SWEEPS
from rankfold.methods.parts.panels import BAD
from rankfold.methods.parts.sparse_panels import OverStoredNumbers, SparsePanels
from rankfold.pipeline.data.source import Csr
from rankfold.pipeline.engine.blocks import grains
from rankfold.pipeline.engine.device import HOST, Device, Kernel
from rankfold.pipeline.engine.fold import Buffer, Constant, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

GRAIN_LINES = 4096
"""Number of lines that are solved together: buffers stay in cache and do not grow with panels."""


@dataclass(frozen=True, slots=True)
class DivergenceIteration:
    """Files of an iteration under the divergence besides the data: constants, the long factor (long, k)
    ``before`` and ``after`` it. See ``DivergencePass``."""

    constants: Path
    before: ScratchMatrix | None
    after: ScratchMatrix


class OverStoredFactors(OverStoredNumbers):
    """Base class of the folds of one iteration over a sparse matrix, under either loss.

    It makes the products of the matrix with either factor. A line is a row of the matrix, or a column if that
    is stored by columns: the long factor has a row for each line.
    """

    __slots__ = ()
    iteration: NmfIteration | DivergenceIteration
    first_pass: bool
    """True to sum squares and to count bad and negative numbers, as only the first pass does."""

    @property
    def after(self) -> ScratchMatrix:
        """The new long factor, (long, k), which the pass writes."""
        return self.iteration.after

    @property
    def scatters(self) -> bool:
        """True if ``product`` is made by scattering rows of the long factor instead of gathering them, which
        is faster with few components."""
        return self.after.columns <= NARROW

    @property
    def grain_lines(self) -> int:
        """Largest number of lines that are solved together."""
        return min(GRAIN_LINES, self.cut.panel_rows)

    @property
    def longest_side(self) -> int:
        """Largest number of rows or columns of an operand of BLAS: that of the Gram matrix of lines solved
        together."""
        return max(self.grain_lines, self.after.columns)

    def buffers(self) -> Mapping[str, Buffer]:
        """The short factor ``right`` (short, k) and its slabs, which are a few columns each.

        If rows of the long factor are gathered, also slabs of those for a panel. ``b`` and ``left`` (lines
        solved together, k) are products of lines with the short factor, and rows of the long factor.
        """
        short, rank, dtype = self.panels.view.short, self.after.columns, self.after.dtype
        gathers = {} if self.scatters else OverStoredNumbers.buffers(self)
        rows = 0 if self.scatters else self.cut.panel_rows
        return {
            **gathers,
            "right": Constant((short, rank), dtype, self.iteration.constants),
            "short_slabs": Buffer(slab_shape(short, rank, dtype), dtype),
            "long_slabs": Buffer(slab_shape(rows, rank, dtype), dtype),
            "b": Buffer((self.grain_lines, rank), dtype),
            "left": Buffer((self.grain_lines, rank), dtype),
        }

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers, and copy the short factor into slabs that begin on cache lines."""
        work = OverStoredNumbers.workspace(self, device)
        for name in ("short_slabs", "long_slabs"):
            setattr(work, name, aligned_empty(getattr(work, name).shape, self.after.dtype))
        cut_block(work.right, slabs=work.short_slabs)
        return work

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all lines of the matrix X, with L the new long factor.

        ``product`` (short, k) is ``X'L``, under the divergence with the quotients ``X / (L S)`` in place of
        X: the transpose of that of dense folds. ``gram`` (k, k) is ``L'L``, ``sums`` (k,) are column sums of
        L. The first pass also sums ``squares`` (1,) of X and counts of bad and negative numbers.
        """
        short, rank = self.panels.view.short, self.after.columns
        return {
            "product": Sum((short, rank)),
            "gram": Sum((rank, rank)),
            "sums": Sum((rank,)),
            "squares": Sum((1,)),
            "bad": BAD,
            "negative": BAD,
        }

    def is_sound(self, state: State, lines: Csr, start: int) -> bool:
        """True if all numbers of a panel are finite and not negative; others are counted in ``state``.

        ``lines`` is the panel, ``start`` the number of its first line in the matrix. Squares of finite
        numbers are added to ``state``. Indices are checked too, since rows are written at them.
        """
        check_rows(lines.indptr, lines.indices, lines.data, self.panels.view.short)
        (sums, squares), ends = np.zeros((2, 1)), np.array([0, len(lines.data)])
        add_moments(ends, lines.data, np.zeros(1), 1.0, sums=sums, squares=squares)
        if not np.isfinite(squares).all():
            self.count_bad(state, lines, start)
            return False
        state["squares"] += squares
        negative = lines.data < 0
        if negative.any():
            self.count(state, "negative", lines, negative, start)
        return not negative.any()

    def multiply(self, pointers: Array, lines: Csr, numbers: Array, work: Workspace, *, out: Array) -> None:
        """Write the product of some lines of a panel with the short factor to ``out`` (r, k).

        The lines have the indices of ``lines``, and ``numbers`` (in place of its values) at the same places;
        ``pointers`` (r + 1,) are the places at which they begin.
        """
        for s, slab in enumerate(work.short_slabs):
            y = out[:, s * slab.shape[1] : (s + 1) * slab.shape[1]]
            multiply_rows(pointers, lines.indices, numbers, slab[:, : y.shape[1]], y=y)

    def add_rows(
        self, state: State, work: Workspace, lines: Csr, numbers: Array, span: tuple[int, int], left: Array
    ) -> None:
        """Add sums for some lines of a panel: ``span``, first and end, counted from its first line.

        ``left`` (r, k) are the rows of L for these lines, and ``numbers`` the values of the whole panel. The
        Gram matrix of ``left`` is added to ``gram`` in ``state``, in float64, since a grain of sparse lines
        has more rows than a dense one. The product with ``numbers`` is added to ``product`` if it is made by
        scattering; else rows are only copied to slabs, for ``add_panel``.
        """
        first, last = span
        add_gram(left.astype(np.float64), total=state["gram"])
        if self.scatters:
            scatter_rows(lines.indptr[first : last + 1], lines.indices, numbers, left, z=state["product"])
            return
        for s, slab in enumerate(work.long_slabs):
            part = left[:, s * slab.shape[1] : (s + 1) * slab.shape[1]]
            slab[first:last, : part.shape[1]] = part

    def add_panel(self, state: State, work: Workspace, lines: Csr, numbers: Array) -> None:
        """Add the product of a panel with its rows of L, taken from slabs, to ``product`` in ``state``.

        ``numbers`` are the values of the panel in place of those of ``lines``. Does nothing if ``add_rows``
        has scattered the product.
        """
        if self.scatters:
            return
        self.bring_in_order(work, dataclasses.replace(lines, data=numbers))
        for s, slab in enumerate(work.long_slabs):
            z = state["product"][:, s * slab.shape[1] : (s + 1) * slab.shape[1]]
            add_columns(work.pointers, work.rows, work.values, slab[:, : z.shape[1]], z=z)


@dataclass(frozen=True, slots=True)
class SparseNonnegativePass(OverStoredFactors):
    """Fold of one iteration of least squares over a sparse matrix; see ``NonnegativePass``."""

    panels: SparsePanels
    iteration: NmfIteration
    first_pass: bool
    row_seconds: float

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels that it calls."""
        sparse = (order_columns, multiply_rows, add_columns, scatter_rows, add_moments, sample_product)
        return (*sparse, *self.iteration.kernels)

    def buffers(self) -> Mapping[str, Buffer]:
        """Buffers of the base class and constants of the solver: see ``NmfIteration.constants``.

        If the residual is summed, ``wide_right`` is the short factor in float64, and ``model`` holds a value
        of the product of both factors for each stored number of a panel.
        """
        rank, dtype, part = self.after.columns, self.after.dtype, self.iteration.constants
        places, residual = self.panels.numbers, self.iteration.residual
        wide = (self.panels.view.short * residual, rank)
        return {
            **OverStoredFactors.buffers(self),
            "gram": Constant((rank, rank), part=part),
            "diagonal": Constant((rank,), part=part),
            "linear": Constant((rank,), dtype, part),
            "wide_right": Buffer(wide),
            "model": Buffer((places * residual,)),
        }

    @property
    def temporary_bytes(self) -> int:
        """Bytes of solving the lines of a grain, of its rows in float64, and of copies of the stored numbers
        of a panel."""
        rows, rank = self.grain_lines, self.after.columns
        looks = self.panels.numbers * (24 * self.iteration.residual + 3 * self.first_pass)
        solving = self.iteration.temporary_bytes(rows) + 8 * rows * rank
        return self.vector_bytes + solving + looks

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers; ``gram`` includes the penalty, ``plain_gram`` does not."""
        work = OverStoredFactors.workspace(self, device)
        if self.iteration.residual:
            work.wide_right[...] = work.right
        del work.right
        work.plain_gram = work.gram
        work.gram = (work.gram + np.diag(work.diagonal)).astype(self.after.dtype)
        return work

    def sums(self) -> Mapping[str, Sum]:
        """Sums of the base class, of squares of the projected gradient, ``gradient`` (k,), and of squares of
        the residual, ``residual`` (1,)."""
        return {
            **OverStoredFactors.sums(self),
            "gradient": Sum((self.after.columns,)),
            "residual": Sum((1,)),
        }

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Solve rows ``start:stop`` of the long factor for the lines of a panel, grain by grain, and add to
        the sums in ``state``."""
        lines = self.take(work, slot)
        if self.first_pass and not self.is_sound(state, lines, start):
            return
        for first, last in grains(0, stop - start, GRAIN_LINES):
            pointers, b = lines.indptr[first : last + 1], work.b[: last - first]
            self.multiply(pointers, lines, lines.data, work, out=b)
            left = self.iteration.improve(state, work, start + first, b)
            self.add_rows(state, work, lines, lines.data, (first, last), left)
            if self.iteration.residual:
                self._add_residual(state, work, lines, pointers, left)
        self.add_panel(state, work, lines, lines.data)

    def _add_residual(self, state: State, work: Workspace, lines: Csr, pointers: Array, left: Array) -> None:
        wide, part = left.astype(np.float64), slice(int(pointers[0]), int(pointers[-1]))
        sample_product(pointers, lines.indices, wide, work.wide_right, out=work.model)
        x = lines.data[part].astype(np.float64)
        state["residual"] += x @ (x - 2 * work.model[part]) + ((wide.T @ wide) * work.plain_gram).sum()


@dataclass(frozen=True, slots=True)
class SparseDivergencePass(OverStoredFactors):
    """Fold of one iteration under the divergence over a sparse matrix; see ``DivergencePass``."""

    panels: SparsePanels
    iteration: DivergenceIteration
    first_pass: bool
    row_seconds: float

    kernels = (
        order_columns,
        multiply_rows,
        add_columns,
        scatter_rows,
        add_moments,
        sample_product,
        add_gram,
        quotients,
        descend_rows,
    )

    def buffers(self) -> Mapping[str, Buffer]:
        """Buffers of the base class, constants of the update, and quotients of a panel's stored numbers."""
        rank, dtype, part = self.after.columns, self.after.dtype, self.iteration.constants
        return {
            **OverStoredFactors.buffers(self),
            "gram": Constant((rank, rank), dtype, part),
            "linear": Constant((rank,), dtype, part),
            "diagonal": Constant((rank,), dtype, part),
            "scale": Constant((1,), dtype, part),
            "quotient": Buffer((self.panels.numbers,), dtype),
        }

    @property
    def temporary_bytes(self) -> int:
        """Bytes of products and denominators of an update, of rows in float64, and of copies of the stored
        numbers of a panel."""
        rows, rank, item = self.grain_lines, self.after.columns, self.after.dtype.itemsize
        update = 6 * item * rows * rank + 2 * 8 * rows * rank
        measures = self.panels.numbers * (item + 3 + 8 * self.first_pass)
        return self.vector_bytes + update + measures

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers, and sum up the short factor: ``mass`` (k,) in float64, ``sums`` in its type."""
        work = OverStoredFactors.workspace(self, device)
        work.mass = work.right.sum(axis=0, dtype=np.float64)
        work.sums = work.mass.astype(self.after.dtype)
        return work

    def sums(self) -> Mapping[str, Sum]:
        """Sums of the base class, and those of ``DivergencePass.sums`` that it lacks.

        ``divergence`` (1,) is that of the matrix from the product of its factors. The first pass also sums
        ``columns`` (short,) of the matrix and ``entropy`` (2,), for ``independence_divergence``.
        """
        sums = {"divergence": Sum((1,)), "columns": Sum((self.panels.view.short,)), "entropy": Sum((2,))}
        return {**OverStoredFactors.sums(self), **sums}

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Update rows ``start:stop`` of the long factor for the lines of a panel, grain by grain, and add to
        the sums in ``state``."""
        lines = self.take(work, slot)
        if self.first_pass:
            if not self.is_sound(state, lines, start):
                return
            self._measure(state, work, lines)
        for first, last in grains(0, stop - start, GRAIN_LINES):
            pointers, left = lines.indptr[first : last + 1], work.left[: last - first]
            self._update(work, lines, pointers, left, start + first)
            work.device.send(left, functools.partial(self.after.write, start + first))
            self._diverge(state, work, lines, pointers, left)
            self.add_rows(state, work, lines, work.quotient, (first, last), left)
        self.add_panel(state, work, lines, work.quotient)

    def _measure(self, state: State, work: Workspace, lines: Csr) -> None:
        """Add to ``entropy`` and ``columns`` in ``state`` for a panel: see ``independence_divergence``."""
        count = len(lines.indptr) - 1
        sums, squares = np.zeros((2, count))
        add_moments(lines.indptr, lines.data, np.zeros(count), 1.0, sums=sums, squares=squares)
        size, total = len(lines.data), float(sums.sum())
        if total > 0:
            level, own = work.quotient[:size], np.zeros(1)
            level[...] = total / size
            mean = float(level[0])
            quotients(lines.data[None], level[None], total=own)
            state["entropy"][0] += own[0] + total - size * mean + total * np.log(mean)
        state["entropy"][1] += (sums * np.log(np.where(sums > 0, sums, 1))).sum()
        state["columns"] += np.bincount(lines.indices, lines.data, self.panels.view.short)

    def _update(self, work: Workspace, lines: Csr, pointers: Array, left: Array, start: int) -> None:
        b = work.b[: len(left)]
        if self.iteration.before is None:
            left[...] = 0
            self.multiply(pointers, lines, lines.data, work, out=b)
            descend_rows(work.gram, b - work.linear, w=left, sweeps=FIRST_SWEEPS)
            np.maximum(left, left.dtype.type(FILL) * work.scale, out=left)
        else:
            work.device.fill(left, functools.partial(self.iteration.before.read_into, start=start))
        limits, part = np.finfo(left.dtype), slice(int(pointers[0]), int(pointers[-1]))
        for _ in range(UPDATES):
            sample_product(pointers, lines.indices, left, work.right, out=work.quotient)
            quotient = work.quotient[part]
            np.maximum(quotient, limits.tiny, out=quotient)
            with np.errstate(over="ignore"):
                np.divide(lines.data[part], quotient, out=quotient)
            np.minimum(quotient, limits.max, out=quotient)
            self.multiply(pointers, lines, work.quotient, work, out=b)
            left *= b
            left /= below(left, work.sums + work.linear, work.diagonal)
            np.maximum(left, limits.eps * work.scale, out=left)

    def _diverge(self, state: State, work: Workspace, lines: Csr, pointers: Array, left: Array) -> None:
        """Write quotients of stored numbers and their model, with final rows ``left`` (r, k) of the long
        factor, to ``work.quotient``.

        ``pointers`` (r + 1,) are the places in ``lines`` at which the lines of these rows begin. Adds to
        ``divergence`` and to ``sums`` in ``state``.
        """
        part, sums = slice(int(pointers[0]), int(pointers[-1])), left.sum(axis=0, dtype=np.float64)
        sample_product(pointers, lines.indices, left, work.right, out=work.quotient)
        quotient = work.quotient[part]
        state["divergence"] += sums @ work.mass - quotient.sum(dtype=np.float64)
        quotients(lines.data[part][None], quotient[None], total=state["divergence"])
        state["sums"] += sums
