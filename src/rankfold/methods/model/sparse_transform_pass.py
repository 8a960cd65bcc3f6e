"""Project new sparse rows to components, at a cost proportional to stored numbers: see ``transform_pass.py``.

With ``S`` the stored matrix, rows are ``S D - 1 (mean D)'``, where D holds the factors of columns. Their
products with a basis are therefore those of ``S`` with the basis scaled by D, minus one vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.products import weigh
from rankfold.kernels.sparse.products import multiply_rows
from rankfold.methods.model.transform_pass import products
from rankfold.methods.nmf.row_solvers import NormalRows
from rankfold.methods.parts.finite import BAD
from rankfold.methods.parts.sparse_panels import OverStoredNumbers, SparsePanels
from rankfold.pipeline.data.source import Csr
from rankfold.pipeline.engine.device import HOST, Device, Kernel
from rankfold.pipeline.engine.fold import Buffer, Constant, Given, ScratchConstant, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.scratch import ScratchMatrix

Float64 = npt.NDArray[np.float64]

NUMBERS = 2**18
"""Number of stored numbers whose squares are summed at a time."""

SQUARES_BYTES = 40 * NUMBERS
"""Bytes for summing the squares of ``NUMBERS`` stored numbers."""


@dataclass(frozen=True, slots=True)
class ProjectSparseRows(OverStoredNumbers):
    """Fold over rows of a sparse matrix that writes ``(x - mean) * factor @ basis * weights``."""

    panels: SparsePanels
    """Panels (rows read at a time), which are whole chunks of the output."""

    basis: ScratchMatrix
    """(columns, k) right vectors in the working type."""

    columns: ScratchMatrix
    """(columns, 2): mean of each column, and the factor that it is multiplied by."""

    weights: Float64
    """(k,) factors that coordinates are multiplied by before they are written."""

    array: Path
    """The Zarr array to write, (rows, k)."""

    row_seconds: float
    normal: NormalRows | None = None
    """Solver of coordinates from the products; None if products are the coordinates."""

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels that it calls."""
        solving = () if self.normal is None else self.normal.solver.kernels
        return (multiply_rows, weigh, *solving)

    def buffers(self) -> Mapping[str, Buffer]:
        """Basis (n, k); mean and factor of columns; products ``y`` of a panel (rows, k), ``y64`` in float64.

        ``z`` (rows, k) are coordinates solved from products, ``out`` the chunk to write.
        """
        rows, dtype, rank = self.cut.panel_rows, self.panels.view.dtype, self.basis.columns
        normal: dict[str, Buffer] = {}
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
            "out": Buffer((rows, rank), dtype),
        }

    def sums(self) -> Mapping[str, Sum]:
        """Sums from which the relative error of the projection follows.

        ``gram`` (k, k) is the Gram matrix of the coordinates, ``inner`` (1,) the inner product of coordinates
        and products, ``squares`` (1,) the sum of squares of the rows; also a count of bad numbers.
        """
        rank = self.basis.columns
        return {"gram": Sum((rank, rank)), "inner": Sum((1,)), "squares": Sum((1,)), "bad": BAD}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of two copies of chunks in Zarr, of solving, vectors, the scaled basis, and squares."""
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
        """Compute coordinates of the rows ``start:stop``, write them, and add to the sums."""
        lines, count = self.take(work, slot), stop - start
        squares = squares_of(lines, work.mean, work.factor)
        if not np.isfinite(squares):
            self.count_bad(state, lines, start)
            return
        state["squares"] += squares
        y, y64, out = work.y[:count], work.y64[:count], work.out[:count]
        multiply_rows(lines.indptr, lines.indices, lines.data, work.basis, y=y)
        np.subtract(y, work.offset, out=y64)
        z = y64
        if self.normal is not None:
            z = work.z[:count]
            self.normal.solve(y64, work.normal, work.linear, out=z)
        for name, sums in products(z, y64).items():
            state[name] += sums
        weigh(z, work.weights, out=out)
        if not state["bad"][0]:  # rows with bad numbers raise after the pass
            write_whole_chunks(self.array, out, (start, stop), (0, self.basis.columns))


def squares_of(lines: Csr, mean: Float64, factor: Float64) -> float:
    """Sum of squares of ``(x - mean) * factor`` over all entries of some sparse rows, zeros included.

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
