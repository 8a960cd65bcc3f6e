"""Combinations of narrow matrices on scratch: ``[Y_1 ... Y_t] C - 1 o'``, and Gaussian columns beside."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.gaussian import gaussian_rows
from rankfold.pipeline.data.view import aligned_empty
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.storage.checkpoint import load_arrays
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

COMPLETION = 2
"""Purpose key of the Gaussian columns that complete a basis."""


@dataclass(slots=True)
class Work:
    """Buffers for one grain, and the constants."""

    y: Array
    y64: Float64
    product: Float64
    combined: Float64
    coefficients: list[Float64]
    offset: Float64


@dataclass(frozen=True, slots=True)
class Combination:
    """Columns that live in the span of the ``Y``, formed again from scratch whenever they are read."""

    parts: tuple[ScratchMatrix, ...]
    constants: Path
    """A part with ``coefficients`` (sum of widths, columns) and ``offset`` (columns,)."""

    columns: int
    """Columns from the combination."""

    random: int
    """Gaussian columns that stand in for directions in which the matrix is zero."""

    seed: int

    @property
    def width(self) -> int:
        """Columns in all."""
        return self.columns + self.random

    @property
    def row_bytes(self) -> int:
        """Bytes of scratch behind one row."""
        return sum(part.row_bytes for part in self.parts)

    @property
    def working_row_bytes(self) -> int:
        """Bytes of buffers behind one row: as read, in float64, combined, and copied by LAPACK."""
        widest = max(part.columns for part in self.parts)
        return max(part.row_bytes for part in self.parts) + 8 * widest + 4 * 8 * self.width

    def memory_bytes(self, rows: int) -> int:
        """Bytes of the buffers for grains of ``rows`` rows."""
        widest = max(part.columns for part in self.parts)
        total = sum(part.columns for part in self.parts)
        buffers = rows * (max(p.row_bytes for p in self.parts) + 8 * widest + 2 * 8 * self.width)
        return buffers + 8 * (total + 1) * self.width + 8 * 1024 * self.random

    def workspace(self, rows: int) -> Work:
        """Allocate the buffers for grains of ``rows`` rows and load the constants."""
        stored = load_arrays(self.constants)
        edges = np.cumsum([0, *(part.columns for part in self.parts)])
        widest = max(self.parts, key=lambda part: part.columns)
        return Work(
            y=aligned_empty((rows, widest.columns), widest.dtype),
            y64=aligned_empty((rows, widest.columns), np.float64),
            product=aligned_empty((rows, self.columns), np.float64),
            combined=aligned_empty((rows, self.width), np.float64),
            coefficients=[
                np.ascontiguousarray(stored["coefficients"][a:b]) for a, b in itertools.pairwise(edges)
            ],
            offset=stored["offset"],
        )

    def rows(self, work: Work, start: int, stop: int) -> Float64:
        """Rows ``start:stop``, in a buffer of ``work``."""
        count = stop - start
        out = work.combined[:count]
        out[:, : self.columns] = -work.offset
        for part, coefficients in zip(self.parts, work.coefficients, strict=True):
            y = work.y.reshape(-1)[: count * part.columns].reshape(count, part.columns)
            y64 = work.y64.reshape(-1)[: count * part.columns].reshape(count, part.columns)
            part.read_into(y, start)
            np.copyto(y64, y)
            np.matmul(y64, coefficients, out=work.product[:count])
            out[:, : self.columns] += work.product[:count]
        if self.random:
            out[:, self.columns :] = gaussian_rows(self.seed, COMPLETION, (start, stop), self.random)
        return out


class OverCombination:
    """What folds over the rows of a combination share."""

    __slots__ = ()
    combination: Combination
    cut: Cut

    @property
    def grain_rows(self) -> int:
        """Rows of the largest grain."""
        return min(self.cut.grain_rows, self.cut.panel_rows)

    @property
    def longest_side(self) -> int:
        """Rows of a grain and of R above them."""
        return self.grain_rows + self.combination.width

    def workspace(self) -> Work:
        """Allocate the buffers."""
        return self.combination.workspace(self.grain_rows)

    def read(self, work: Work, start: int, stop: int, slot: int) -> None:
        """Nothing to read ahead: rows come from scratch, grain by grain."""
