"""Combinations of narrow matrices on scratch: ``[Y_1 ... Y_t] C - 1 o'``, followed by Gaussian columns.

Scratch is intermediate files of a run. A grain is the rows of one product.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.gaussian import gaussian_rows
from rankfold.kernels.linear.products import mirror_bytes, product
from rankfold.methods.random_keys import Purpose
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.fold import Buffer, Constant, DeclaredFold, Workspace
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Combination:
    """Linear combinations of the columns of the ``Y``, formed from scratch files whenever they are read."""

    parts: tuple[ScratchMatrix, ...]
    constants: Path
    """Path of a checkpoint file with ``coefficients`` (sum of widths, columns) and ``offset`` (columns,)."""

    columns: int
    """Number of columns of the coefficients C."""

    random: int
    """Number of Gaussian columns that replace directions in which the matrix is zero."""

    seed: int

    @property
    def width(self) -> int:
        """Total number of columns."""
        return self.columns + self.random

    @property
    def row_bytes(self) -> int:
        """Bytes of scratch that one row is read from."""
        return sum(part.row_bytes for part in self.parts)

    @property
    def working_row_bytes(self) -> int:
        """Bytes of buffers for one row: as read, in float64, combined, and copied by LAPACK."""
        widest = max(part.columns for part in self.parts)
        return max(part.row_bytes for part in self.parts) + 8 * widest + 4 * 8 * self.width

    def buffers(self, rows: int) -> dict[str, Buffer]:
        """Buffers for grains of ``rows`` rows: a part as read and in float64, its product, and their sum.

        Coefficients and offset are the constants.
        """
        widest = max(self.parts, key=lambda part: part.columns)
        total = sum(part.columns for part in self.parts)
        return {
            "y": Buffer((rows, widest.columns), widest.dtype),
            "y64": Buffer((rows, widest.columns)),
            "product": Buffer((rows, self.columns)),
            "combined": Buffer((rows, self.width)),
            "coefficients": Constant((total, self.columns), part=self.constants),
            "offset": Constant((self.columns,), part=self.constants),
        }

    @property
    def temporary_bytes(self) -> int:
        """Bytes of Gaussian columns as they are drawn."""
        return 8 * 1024 * self.random

    def rows(self, work: Workspace, start: int, stop: int) -> Float64:
        """Form rows ``start:stop``, (rows, width), in a buffer of ``work``."""
        count = stop - start
        out: Float64 = work.combined[:count]
        out[:, : self.columns] = -work.offset
        edges = itertools.accumulate((part.columns for part in self.parts), initial=0)
        for part, (top, end) in zip(self.parts, itertools.pairwise(edges), strict=True):
            y = work.y.reshape(-1)[: count * part.columns].reshape(count, part.columns)
            y64 = work.y64.reshape(-1)[: count * part.columns].reshape(count, part.columns)
            work.device.fill(y, functools.partial(part.read_into, start=start))
            np.copyto(y64, y)
            product(y64, work.coefficients[top:end], out=work.product[:count])
            out[:, : self.columns] += work.product[:count]
        if self.random:
            random_columns = gaussian_rows(self.seed, Purpose.COMPLETION, (start, stop), self.random)
            out[:, self.columns :] = work.device.place(random_columns, random_columns.dtype)
        return out


class OverCombination(DeclaredFold):
    """Base class of folds over the rows of a combination."""

    __slots__ = ()
    combination: Combination
    cut: Cut

    @property
    def grain_rows(self) -> int:
        """Rows of the largest grain."""
        return min(self.cut.grain_rows, self.cut.panel_rows)

    @property
    def longest_side(self) -> int:
        """Most rows of an operand of BLAS: those of a grain, with an R factor above them."""
        return self.grain_rows + self.combination.width

    @property
    def operand_bytes(self) -> int:
        """Bytes of the largest operand of a product: combined rows, rows of a part, or all coefficients."""
        columns = [part.columns for part in self.combination.parts]
        rows = self.longest_side * max(self.combination.width, *columns)
        return 8 * max(rows, sum(columns) * self.combination.columns)

    def buffers(self) -> Mapping[str, Buffer]:
        """Buffers for one grain of the combination: see ``Combination.buffers``."""
        return self.combination.buffers(self.grain_rows)

    @property
    def temporary_bytes(self) -> int:
        """Bytes that the combination takes in addition to its buffers."""
        return self.combination.temporary_bytes

    @property
    def device_bytes(self) -> int:
        """Most bytes on a device, with those in which the Gram matrix of a grain is formed and mirrored."""
        return super().device_bytes + 8 * self.combination.width**2 + mirror_bytes(self.combination.width)
