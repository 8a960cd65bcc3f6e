"""Iterations of least squares on a small sparse matrix, which is read once and kept in memory in both orders.

In an iteration over stored numbers, reading and scattering cost as much as the products. In memory, products
for the long factor gather rows of the short one along lines of the matrix (its rows, or its columns if stored
by columns), and products for the short factor gather rows of the long one across lines. The main process does
all the work, and a run that was killed starts over.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.products import add_gram
from rankfold.kernels.sparse.products import add_columns, multiply_rows
from rankfold.kernels.sparse.sampled import sample_product
from rankfold.methods.nmf.alternation import Frobenius, linear_model
from rankfold.methods.nmf.passes.frobenius import NmfIteration, improve_rows
from rankfold.methods.nmf.passes.sparse import GRAIN_LINES, SparseNonnegativePass
from rankfold.methods.nmf.request import FactorRequest
from rankfold.methods.nmf.row_solvers import RowSolver
from rankfold.methods.parts.panels import no_bad, refuse_bad, refuse_negative
from rankfold.methods.svd.in_memory.matrix import both_orders
from rankfold.methods.svd.strategy import Strategy
from rankfold.pipeline.data.source import Csr, compressed
from rankfold.pipeline.engine.blocks import Cut, grains
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.planning.passes import Pass
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import NOWHERE, ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

SMALL_BYTES = 2**28
"""Largest ``memory_bytes`` of a matrix that is kept in memory; a larger one is read in each iteration, by
several threads."""


def stays(layout: Strategy, parameters: FactorRequest) -> bool:
    """True if a matrix is kept in memory: sparse and small, and factorized by least squares."""
    if not layout.fullest or parameters.loss != "frobenius":
        return False
    return memory_bytes(layout, parameters.rank) <= SMALL_BYTES


def memory_bytes(layout: Strategy, rank: int) -> int:
    """Bytes of a matrix kept in memory and of the rows of both factors.

    The matrix takes the larger of two sizes: while it is read, with copies to sum up duplicates, and in both
    orders."""
    view, panels = layout.view, layout.sparse_panels(1)
    item, index, stored = view.dtype.itemsize, panels.index.itemsize, compressed(view.source)
    reading = layout.numbers * (panels.number_bytes + item + 2 * index)
    reading += 0 if stored is None else stored.sparse_bytes(layout.numbers)
    rows = view.long * (2 * item + 8) + view.short * (item + 2 * 8) + min(view.long, GRAIN_LINES) * 6 * 8
    staying = layout.numbers * 2 * (item + index) + layout.fullest * 3 * 8
    return max(reading, staying) + rank * rows + 4 * 8 * (view.long + view.short)


def whole_read(layout: Strategy, rank: int, iterations: int) -> Pass:
    """Planned bytes, memory and operations of the single read, which includes the work of ``iterations``."""
    flops = 4.0 * layout.numbers * rank * iterations
    sizes = (memory_bytes(layout, rank), 1, 1)
    return Pass("whole", "matrix", layout.read_bytes, 0, flops, *sizes, numbers=layout.numbers)


@dataclass(frozen=True, slots=True)
class InMemory:
    """A sparse matrix in memory, as CSR of itself and of its transpose, and its long factor."""

    lines: Csr
    """(long, short) matrix in the working type."""

    across: Csr
    """(short, long) transpose of the matrix."""

    factor: Array
    """(long, k) long factor."""


@dataclass(slots=True)
class FrobeniusInMemory(Frobenius):
    """Iterations of ``Frobenius`` on a matrix kept in memory."""

    kept: InMemory | None = None

    def _sum(self, run: Run, after: ScratchMatrix, solver: RowSolver, *, close: bool) -> State:
        """Improve the long factor in memory and write it to ``after``; returns the sums of a pass.

        ``solver`` is that of long rows. ``close`` is True to sum squares of the residual, too.
        """
        state: State = {"bad": no_bad(), "negative": no_bad(), "squares": np.zeros(1)}
        if self.kept is None:
            self.kept = self._read(run, state, after, solver)
        if run.progress is not None:
            run.progress("iterations", self.index, self.model.parameters.passes)
        system, dtype = linear_model(self.model, self.factors), self.model.view.dtype
        gram = (system["gram"] + np.diag(system["diagonal"])).astype(dtype)
        right, linear = np.ascontiguousarray(system["right"], dtype), system["linear"].astype(dtype)
        lines, across, factor = self.kept.lines, self.kept.across, self.kept.factor
        rank, fresh = len(gram), self.factors.long is None
        state |= {name: np.zeros(rank) for name in ("gradient", "sums")}
        state |= {"gram": np.zeros((rank, rank)), "product": np.zeros((len(right), rank))}
        for start, stop in grains(0, len(factor), GRAIN_LINES):
            left, b = factor[start:stop], np.empty((stop - start, rank), dtype)
            multiply_rows(lines.indptr[start : stop + 1], lines.indices, lines.data, right, y=b)
            improve_rows(state, solver, gram, b, linear, left, fresh=fresh)
            add_gram(left.astype(np.float64), total=state["gram"])
        add_columns(across.indptr, across.indices, across.data, factor, z=state["product"])
        if close:
            state["residual"] = squares_left(self.kept, self.layout.cut, system, state["gram"])
        after.write(0, factor)
        return state

    def _read(self, run: Run, state: State, after: ScratchMatrix, solver: RowSolver) -> InMemory:
        """Read and check the matrix, and add its squares to ``state``.

        The long factor is that of the start, or zeros if there is none. ``after`` and ``solver`` only
        complete the fold that checks.
        """
        view, before = self.model.view, self.factors.long
        run.passes += 1
        panels, iteration = self.layout.sparse_panels(1), NmfIteration(NOWHERE, before, after, solver)
        lines = panels.read(0, view.long)
        SparseNonnegativePass(panels, iteration, True, 0.0).is_sound(state, lines, 0)
        refuse_bad(state, view.source)
        refuse_negative(state, view.source)
        factor = np.zeros((after.rows, after.columns), after.dtype) if before is None else before.load()
        return InMemory(*both_orders(lines, view.short, 1.0), factor)


def squares_left(kept: InMemory, panels: Cut, system: dict[str, Float64], gram: Float64) -> Float64:
    """(1,) sum of squares of the residual ``X - L S``, computed panel by panel: see ``passes.sparse``.

    ``panels`` is the cut of long rows into panels, ``gram`` (k, k) is ``L'L`` of the long factor, ``system``
    the arrays of ``linear_model``.
    """
    lines, right = kept.lines, np.ascontiguousarray(system["right"], np.float64)
    squares = (gram * system["gram"]).sum()
    for start, stop in pairwise(panels.panels):
        pointers, left = lines.indptr[start : stop + 1], kept.factor[start:stop].astype(np.float64)
        part = slice(int(pointers[0]), int(pointers[-1]))
        x = lines.data[part].astype(np.float64)
        model = np.empty_like(x)
        sample_product(pointers - part.start, lines.indices[part], left, right, out=model)
        squares += x @ (x - 2 * model)
    return np.array([squares])
