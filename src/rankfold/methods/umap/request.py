"""Parameters of a layout, checked before anything is read; the curve that its forces follow from."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankfold.methods.embedding.arguments import INITS
from rankfold.methods.umap.arguments import STEEPEST
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.text import suggest_name

FEW_ROWS = 10_000
"""Number of rows up to which there are more epochs by default."""

EPOCHS = (500, 200)
"""Default number of epochs: for few rows, and for more."""

DENSITY_EPOCHS = 200
"""Additional epochs by default where density counts."""


@dataclass(frozen=True, slots=True)
class LayoutRequest:
    """Parameters of ``umap`` that a result depends on."""

    n_components: int = 2
    n_epochs: int | None = None
    min_dist: float = 0.1
    spread: float = 1.0
    a: float | None = None
    b: float | None = None
    negative_sample_rate: int = 5
    repulsion_strength: float = 1.0
    learning_rate: float = 1.0
    density: float | None = None
    density_share: float = 0.3
    density_shift: float = 0.1
    init: str = INITS[0]
    seed: int = 0

    @classmethod
    def of(cls, **arguments: Any) -> LayoutRequest:
        """A request from arguments of a caller, each checked by itself."""
        request = cls(**arguments)
        request.check()
        return request

    def check(self) -> None:
        """Raise ``InputError`` for an ``init`` that is not known, or a curve that is not possible."""
        if self.init not in INITS:
            raise InputError(
                f"init {self.init!r} is not known"
                f"{suggest_name(self.init, INITS)}: "
                f"take {', '.join(INITS[:-1])}, an array of positions, or a "
                "result of pca, umap, spectral or diffusion_map"
            )
        self._check_curve()

    def _check_curve(self) -> None:
        if (self.a is None) != (self.b is None):
            raise InputError("a and b are of one curve: give both, or min_dist and spread instead")
        if self.a is None and self.min_dist > self.spread:
            raise InputError(f"min_dist must be at most spread, {self.spread}, not {self.min_dist}")
        for name, value in zip("ab", self.curve(), strict=True):
            if not 0 < value <= STEEPEST[name]:
                raise InputError(
                    f"no curve 1 / (1 + a d^(2 b)) is near to min_dist {self.min_dist} and spread "
                    f"{self.spread}: {name} would be {value:.3g}. Give a and b, or other distances"
                )

    def epochs(self, rows: int) -> int:
        """Number of epochs for this many rows."""
        if self.n_epochs is not None:
            return self.n_epochs
        return EPOCHS[rows > FEW_ROWS] + (DENSITY_EPOCHS if self.density else 0)

    def curve(self) -> tuple[float, float]:
        """``a`` and ``b``, as they are given or fitted.

        References
        ----------
        ``find_ab_params`` of umap-learn: 1 / (1 + a d^(2 b)) by least squares to 1 up to ``min_dist``, and to
        ``exp(-(d - min_dist) / spread)`` beyond, at 300 places up to three times ``spread``.
        """
        if self.a is not None and self.b is not None:
            return self.a, self.b
        from scipy.optimize import curve_fit

        # In units of spread, so that the fit does not depend on its scale.
        x, least = np.linspace(0, 3, 300), self.min_dist / self.spread
        y = np.where(x < least, 1.0, np.exp(least - x))
        try:
            (a, b), _ = curve_fit(lambda d, a, b: 1 / (1 + a * d ** (2 * b)), x, y)
        except RuntimeError:  # it has not converged
            return math.nan, math.nan
        with np.errstate(over="ignore"):
            return float(a * np.float64(self.spread) ** (-2 * b)), float(b)

    def as_dict(self) -> dict[str, Any]:
        """Parameters as a dict, for the facts of a result and to tell requests apart."""
        return {"kind": "umap", **dataclasses.asdict(self)}
