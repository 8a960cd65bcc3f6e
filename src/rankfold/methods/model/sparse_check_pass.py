"""Residuals of a result against a sparse matrix, at a cost proportional to stored numbers: see ``check.py``.

With ``S`` the stored matrix, the centered and scaled matrix is ``A = S D - 1 (mean D)'``, where D holds the
factors of columns. Products with ``A`` and ``A'`` are those with ``S`` minus a term of rank one: for ``A`` in
every panel (rows read at a time), for ``A'`` once in the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.products import add_gram, weigh
from rankfold.kernels.sparse.products import add_columns, multiply_rows, order_columns
from rankfold.methods.model.sparse_transform_pass import SQUARES_BYTES, squares_of
from rankfold.methods.parts.finite import BAD
from rankfold.methods.parts.sparse_panels import OverStoredNumbers, SparsePanels
from rankfold.pipeline.data.view import View
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Given, ScratchConstant, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class VerifySparse(OverStoredNumbers):
    """Fold of a tall sparse matrix A into ``sum((A V - L s)^2)``, ``A'L`` and ``L'L``.

    V and L are its short and its long factor, s its singular values.
    """

    panels: SparsePanels
    """Panels of rows in float64."""

    long: View
    """The long factor, (rows, k)."""

    short: ScratchMatrix
    """The short factor, (columns, k) float64."""

    columns: ScratchMatrix
    """(columns, 2): mean of each column of the matrix, and the factor that it is multiplied by."""

    values: Float64
    """(k,) singular values."""

    weights: Float64
    """(k,) factors that make the columns of the stored long factor orthonormal."""

    row_seconds: float

    kernels = (order_columns, multiply_rows, add_columns, add_gram, weigh)

    def buffers(self) -> Mapping[str, Buffer]:
        """A transposed panel; ``short`` (n, k), the short factor; mean and factor of columns; products.

        ``y`` (rows, k) is a panel of A times the short factor, ``long`` (rows, k) its rows of the long one.
        """
        rows, rank = self.cut.panel_rows, len(self.values)
        return {
            **OverStoredNumbers.buffers(self),
            "short": ScratchConstant.of(self.short),
            "columns": ScratchConstant.of(self.columns),
            "s": Given.of(self.values),
            "weights": Given.of(self.weights),
            "y": Buffer((rows, rank)),
            "long": Buffer((rows, rank)),
        }

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all rows, from which residuals and orthogonality follow.

        ``left`` (k,) are squares of the columns of A V - L s, ``gram`` (k, k) is L'L, ``squares`` (1,) those
        of A. ``product`` (n, k) is that of the stored matrix, transposed, with L; ``long`` (k,) are the
        column sums of L, for the term of the mean that ``finish`` subtracts. Also count and position of bad
        numbers.
        """
        k = len(self.values)
        product, gram = Sum((self.panels.view.short, k)), Sum((k, k))
        sums = {"left": Sum((k,)), "product": product, "long": Sum((k,)), "gram": gram}
        return {**sums, "squares": Sum((1,)), "bad": BAD}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of rows of the long factor read ahead, vectors, the scaled short factor, and squares."""
        tall, rank, short = self.cut.panel_rows, len(self.values), self.panels.view.short
        factor = self.slots * (tall * rank * self.long.dtype.itemsize + self.long.read_bytes(tall))
        return factor + 8 * rank * (rank + short) + 7 * 8 * max(tall, short) + SQUARES_BYTES

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers and panels of the long factor; scale the short factor by factors of columns."""
        work = OverStoredNumbers.workspace(self, device)
        work.mean, work.factor = work.columns.T.copy()
        work.offset = (work.mean * work.factor) @ work.short
        work.short = work.short * work.factor[:, None]
        shape, dtype = self.long.panel_shape(self.cut.panel_rows), self.long.source.dtype
        work.long_panels = [np.empty(shape, dtype) for _ in range(self.slots)]
        return work

    def read(self, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Read the rows ``start:stop`` of the matrix and of the long factor into a slot."""
        OverStoredNumbers.read(self, work, start, stop, slot)
        self.long.read(self.long.part(work.long_panels[slot], 0, stop - start), start, stop)

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Add a panel to squares of residuals, to A'L and to L'L."""
        lines, count = self.take(work, slot), stop - start
        squares = squares_of(lines, work.mean, work.factor)
        if not np.isfinite(squares):
            self.count_bad(state, lines, start)
            return
        state["squares"] += squares
        long, y = work.long[:count], work.y[:count]
        weigh(self.long.part(work.long_panels[slot], 0, count), work.weights, out=long)
        multiply_rows(lines.indptr, lines.indices, lines.data, work.short, y=y)
        y -= work.offset
        self.bring_in_order(work, lines)
        add_columns(work.pointers, work.rows, work.values, long, z=state["product"])
        state["long"] += long.sum(axis=0)
        add_gram(long, total=state["gram"])
        long *= work.s
        y -= long
        state["left"] += np.einsum("ij,ij->j", y, y)

    def finish(self, state: State, columns: Any) -> State:
        """Correct ``product`` for centering and scaling; ``columns`` (n, 2) are means and factors."""
        mean, factor = columns.T
        product = (state["product"] - np.outer(mean, state["long"])) * factor[:, None]
        return {**state, "product": product}
