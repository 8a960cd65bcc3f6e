"""What each pass told of the errors that are left, and whether that is enough."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.quality import Ritz, rounding

Float64 = npt.NDArray[np.float64]


@dataclass(slots=True)
class Convergence:
    """Errors of the ``rank`` leading singular values after each pass, against ``tol``."""

    rank: int
    tol: float
    dtype: np.dtype[Any]
    estimate: Float64 | None = None
    """(rank,) estimated relative errors after the last pass, rounding left out."""

    errors: list[float] = field(default_factory=list)
    """Largest of them after each pass, rounding included."""

    def observe(self, ritz: Ritz, estimate: Float64, *, exact: bool) -> bool:
        """Take in the state after a pass; whether another one would bring no more.

        ``exact`` says that the basis is the whole space.
        """
        self.estimate = np.zeros(self.rank) if exact else estimate
        rounded = ritz.noise + rounding(ritz.values, self.dtype)
        self.errors.append(float(np.minimum(self.estimate + rounded, 1.0).max()))
        enough = (self.estimate + rounded <= self.tol) | (self.estimate <= 2 * rounded)
        return exact or bool(enough.all())
