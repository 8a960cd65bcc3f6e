"""Models that take several passes at once: Anderson's mixing of what the last passes made of theirs.

A pass makes of a model x the next one, g(x), and little changes where components explain hardly more than
noise does. What the last passes changed tells how that goes on: of all affine combinations of their models,
the one whose changes g(x) - x nearly cancel is taken, and g of it [WN11]. Loadings are turned to those that
they are compared with, since a model does not depend on how its coordinates are turned.

References
----------
[WN11] Walker, Ni, Anderson acceleration for fixed-point iterations, SIAM J. Numer. Anal. 49(4), 2011.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.complete_rows import RowModel
from rankfold.methods.svd.completion.low_rank_model import row_model

Float64 = npt.NDArray[np.float64]

DEPTH = 5
"""Passes that are looked back at."""

GROWTH = 2.0
"""Ratio of a change to the one before from which on earlier ones tell nothing."""

REGULAR = 1e-10
"""Of what directions of change are made less dependent by, as a share of their squares."""


@dataclass(slots=True)
class Acceleration:
    """Models of the last passes and what became of them, all turned alike."""

    models: list[Float64] = field(default_factory=list)
    """(n, k + 1) loadings and mean."""

    changes: list[Float64] = field(default_factory=list)
    """What a pass changed of each."""

    def following(self, model: RowModel, plain: RowModel) -> RowModel:
        """The model for the next pass, from one and what a pass made of it."""
        k = len(model.gram)
        left, _, right = np.linalg.svd(plain.loadings.T @ model.loadings)
        turn = left @ right
        x = np.column_stack([model.loadings, model.mean])
        change = np.column_stack([plain.loadings @ turn, plain.mean]) - x
        if self.changes and np.linalg.norm(change) > GROWTH * np.linalg.norm(self.changes[-1]):
            self.models.clear()
            self.changes.clear()
        self.models, self.changes = [*self.models[-DEPTH:], x], [*self.changes[-DEPTH:], change]
        mixed = x + change
        if len(self.models) > 1:
            changes = [after - before for before, after in zip(self.changes, self.changes[1:], strict=False)]
            steps = [after - before for before, after in zip(self.models, self.models[1:], strict=False)]
            gram = np.array([[float((a * b).sum()) for b in changes] for a in changes])
            gram[np.diag_indices(len(gram))] *= 1 + REGULAR
            weights = np.linalg.lstsq(gram, np.array([float((a * change).sum()) for a in changes]))[0]
            for weight, step, each in zip(weights, steps, changes, strict=True):
                mixed = mixed - weight * (step + each)
        spread = turn.T @ plain.spread @ turn
        loadings, mean = mixed[:, :k], mixed[:, k]
        _, turn = np.linalg.eigh(loadings.T @ loadings + len(loadings) * spread)
        turn = turn[:, ::-1]
        for each in (*self.models, *self.changes):
            each[:, :k] = each[:, :k] @ turn
        return row_model(mean, loadings @ turn, turn.T @ spread @ turn, float(plain.noise[0]))
