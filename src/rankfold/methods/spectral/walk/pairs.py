"""Ritz pairs of the walk, and estimates of their errors.

An eigenvalue lies within the residual r of a Ritz value, and within r^2 / gap where the gap is that to what
lies outside the block. All columns of a block come from one Rayleigh-Ritz step, so that a residual is
orthogonal to each of them: the gap is to values outside the block, not to the next value. Where values lie
within their residuals of each other, any may have the error of any other, and their residuals are combined.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]

ROUNDING = 64 * float(np.finfo(np.float64).eps)
"""Error of an eigenvalue, between -1 and 1, that more steps do not lower."""

SAFETY = 4.0
"""Factor of estimates that take residuals to be small relative to gaps."""


class RitzPairs(NamedTuple):
    """Ritz pairs of a block of vectors on some rows, from the largest Ritz value on."""

    values: Float64
    """(b,) Ritz values."""

    residuals: Float64
    """(b,) lengths of N x - theta x, with N the symmetric matrix of the walk."""

    def errors(self, wanted: int) -> Float64:
        """(wanted,) estimated errors of the first values: amounts that they may still rise by.

        References
        ----------
        Parlett, The Symmetric Eigenvalue Problem, 1980: theorem 11.5.1 for the residuals of all wanted pairs
        together, section 10.1 (Kato and Temple) for their squares. The value outside is the least upper bound
        that a Ritz pair beyond the wanted ones gives for itself. It is an estimate: values that a block has
        not found yet have no bound.
        """
        values, residuals = self.values[:wanted], self.residuals[:wanted]
        together = float(np.linalg.norm(residuals))
        outside = float((self.values + self.residuals)[wanted:].min(initial=np.inf))
        near = np.abs(values[:, None] - self.values) <= residuals[:, None] + self.residuals
        mixed = np.sqrt(near @ self.residuals**2)
        gap = np.maximum(values - outside, np.maximum(mixed, np.finfo(np.float64).tiny))
        return np.asarray(np.minimum(SAFETY * mixed * (mixed / gap), together) + ROUNDING)

    def targets(self, wanted: int, tol: float) -> Float64:
        """(wanted,) errors that are small enough: relative to 1 less the value, or rounding."""
        return np.asarray(np.maximum(tol * (1 - self.values[:wanted]), 2 * ROUNDING))

    def excess(self, wanted: int, tol: float) -> float:
        """Largest error relative to its target; 1 or less is enough."""
        return float((self.errors(wanted) / self.targets(wanted, tol)).max())

    def needed(self, wanted: int, tol: float) -> float:
        """Largest factor by which a residual has to shrink for the errors to be small enough."""
        outside = float(self.values[wanted]) if len(self.values) > wanted else -1.0
        target = self.targets(wanted, tol)
        gap = np.maximum(self.values[:wanted] - outside, 0.0)
        enough = np.maximum(np.sqrt(target * gap / SAFETY), target / np.sqrt(wanted))
        return float((self.residuals[:wanted] / enough).max())
