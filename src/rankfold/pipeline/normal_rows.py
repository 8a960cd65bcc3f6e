"""Rows of the left factor from their products with the right one: least squares over those allowed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.checkpoint import load_arrays
from rankfold.pipeline.row_solvers import RowSolver

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NormalRows:
    """Normal equations of rows, and what solves them."""

    constants: Path
    """A part with ``normal`` (k, k) and ``linear`` (k,)."""

    solver: RowSolver

    def solve(self, products: Float64, *, out: Float64) -> None:
        """Rows ``out`` (r, k) from ``products`` (r, k), which stay."""
        stored = load_arrays(self.constants)
        out[...] = 0
        self.solver.improve(stored["normal"], products.copy(), stored["linear"], out, fresh=True)
