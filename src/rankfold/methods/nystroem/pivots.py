"""One pass that draws rows for landmarks: uniformly, or in proportion to what earlier ones leave of each.

Pivots are the landmarks of earlier passes. A panel is the rows that are read at once, a grain the rows of one
matrix product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.similarity.functions import Rows, rows_of
from rankfold.kernels.similarity.tiles import multiply
from rankfold.methods.kmeans.kept_rows import KeptRows, exponentials
from rankfold.methods.parts.finite import BAD
from rankfold.methods.parts.panels import OverPanels, Panels, numbers
from rankfold.methods.random_keys import Purpose
from rankfold.methods.similarity.features import EVALUATION_FLOPS, OverRows, rows_cut
from rankfold.methods.similarity.request import KernelChoice
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Constant, Sum, Workspace
from rankfold.pipeline.planning.seconds import NOMINAL_FLOPS
from rankfold.pipeline.storage.checkpoint import State

Float64 = npt.NDArray[np.float64]

FAINT = 1e-12
"""Residual of a row below which it is only rounding, relative to the row's similarity with itself."""


@dataclass(frozen=True, slots=True)
class DrawRows(OverRows):
    """Fold that draws rows: it keeps those with the smallest keys, which are exponential random numbers
    divided by residuals. It also sums residuals.

    With pivots S and their triangular factor L, K_SS = L L', a row has the residual
    ``k(x, x) - |L^-1 k(S, x)|^2``. Similarities with pivots are computed again in each pass, so that nothing
    is stored for rows in between.
    """

    panels: Panels
    choice: KernelChoice
    shift: Float64
    kept: KeptRows
    key: int
    """Key of the random numbers of this pass."""

    constants: Path
    """Path of a file with ``pivots`` (s, d), and ``inverse`` (s, s), the transpose of L^-1."""

    pivots: int
    by_share: bool
    """True if rows are drawn in proportion to their residuals; else uniformly."""

    @classmethod
    def of(
        cls,
        source: Source,
        choice: tuple[KernelChoice, Float64],
        kept: KeptRows,
        key: int,
        pivots: tuple[Path, int],
        slots: int,
        *,
        by_share: bool,
    ) -> DrawRows:
        """Fold over a matrix.

        ``choice`` is a kernel function with its shift, ``pivots`` the path of the constants and the number of
        pivots.
        """
        view = View(source, Orientation.ROWS)
        panels = Panels(view, rows_cut(source, 1, 8), slots, view.source.dtype, borrows=True)
        return cls(panels, *choice, kept, key, *pivots, by_share)

    @property
    def row_flops(self) -> float:
        """Operations for each row."""
        return self.pivots * (2.0 * self.kept.columns + EVALUATION_FLOPS + 2 * self.pivots) + 100

    @property
    def row_seconds(self) -> float:
        """Nominal seconds for each row."""
        return self.row_flops / NOMINAL_FLOPS[8]

    def buffers(self) -> Mapping[str, Buffer]:
        """``pivots`` (s, d), and ``inverse`` (s, s), the transpose of L^-1, loaded from ``constants``."""
        count, part = self.pivots, self.constants
        return {
            "pivots": Constant((count, self.kept.columns), part=part),
            "inverse": Constant((count, count), part=part),
        }

    def sums(self) -> Mapping[str, Sum]:
        """Rows that are kept, with keys and ids; ``bad`` entries; and, (1,) each, sums of the similarities of
        rows with themselves, of residuals above 0, and of magnitudes of those below 0.
        """
        traces = {name: Sum((1,)) for name in ("own", "residual", "negative")}
        return {**traces, "bad": BAD, **self.kept.sums()}

    @property
    def temporary_bytes(self) -> int:
        """Additional bytes: pivots in the form they are compared in, and a grain (rows of one product) with
        its similarities.
        """
        rows, count = self.panels.grain_rows, self.kept.count
        pivots = 2 * 8 * self.pivots * (self.kept.columns + 1)
        return pivots + self.rows_bytes(self.pivots) + 8 * (8 * rows + 4 * count * (self.kept.columns + 4))

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers for panels, and prepare pivots for comparison."""
        work = OverPanels.workspace(self, device)
        work.rows = rows_of(work.pivots, self.choice.similarity, self.shift)
        return work

    def merge(self, total: State, other: State) -> None:
        """Join the sums of two streams, and the rows that both have kept."""
        self.kept.join(total, other)
        for name, each in self.sums().items():
            if name not in self.kept.names:
                total[name] = each.combine(total[name], other[name])

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Compute the residuals of a panel, grain by grain; sum them, and keep the rows of smallest keys."""
        for grain, rows, own in self.rows_of_grains(state, work, start, stop, slot):
            residual = residuals_of(rows, own, work.rows, work.inverse, self.choice)
            state["own"] += own.sum()
            weights = np.where(residual < 0, 0.0, residual)
            state["residual"] += weights.sum()
            state["negative"] += np.where(residual < 0, -residual, 0.0).sum()
            weights = weights if self.by_share else np.ones(len(residual))
            keys = exponentials(self.key, Purpose.LANDMARK_ROWS, grain.first, grain.last)
            with np.errstate(divide="ignore"):
                keys = np.where(weights > 0, keys / weights, np.inf)
            self.kept.take(state, keys, grain.first, numbers(grain.raw).astype(np.float64))


def residuals_of(rows: Rows, own: Float64, pivots: Rows, inverse: Float64, choice: KernelChoice) -> Float64:
    """(m,) residuals: similarities of rows with themselves less what pivots explain, 0 where that is
    rounding.

    A residual is negative where the kernel function is not positive.
    """
    if not len(pivots.squares):
        return own.copy()
    factors = np.zeros((len(own), len(inverse)))
    multiply(rows, pivots, similarity=choice.similarity, v=inverse, out=factors)
    with np.errstate(over="ignore", invalid="ignore"):
        residual = own - np.einsum("ij,ij->i", factors, factors)
    residual[np.abs(residual) <= FAINT * np.abs(own)] = 0.0
    return np.asarray(residual)


def no_pivots(columns: int) -> dict[str, Any]:
    """Pivots before the first pass: none, with an empty ``inverse`` and no ids."""
    return {"pivots": np.zeros((0, columns)), "inverse": np.zeros((0, 0)), "ids": np.zeros(0, np.int64)}
