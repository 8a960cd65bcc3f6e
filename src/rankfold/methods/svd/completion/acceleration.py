"""Anderson acceleration of the completion: each model is mixed from those of the last passes.

A pass maps a model x to the next one, g(x), and changes little where components explain hardly more than
noise does. The changes of the last passes show how that goes on: of all affine combinations of their models,
the one whose changes g(x) - x nearly cancel is taken, and g of it [WN11]. Loadings are rotated to those that
they are compared with, since a model does not depend on a rotation of its coordinates.

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
"""Number of earlier passes that are mixed."""

GROWTH = 2.0
"""Ratio of a change to the one before above which earlier passes are forgotten."""

REGULAR = 1e-10
"""Relative increase of the diagonal of the Gram matrix of changes, for nearly dependent changes."""


@dataclass(slots=True)
class Acceleration:
    """Models of the last passes and how a pass changed them, all in the same coordinates."""

    models: list[Float64] = field(default_factory=list)
    """(n, k + 1) loadings and mean of each model."""

    changes: list[Float64] = field(default_factory=list)
    """(n, k + 1) changes g(x) - x of each model by a pass."""

    def following(self, model: RowModel, plain: RowModel) -> RowModel:
        """The model for the next pass, from ``model`` and the result ``plain`` of a pass with it."""
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
