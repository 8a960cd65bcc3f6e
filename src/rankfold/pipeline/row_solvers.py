"""How rows of one factor are improved when the other stands: by descent, pivoting, splitting, or ratios.

Rows w minimise w G w'/2 - (b - l) w' over those allowed, with l what a penalty of first order takes away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.kernels.multiplicative import multiply_rows
from rankfold.kernels.nonnegative import descend_rows, solve_rows
from rankfold.kernels.splitting import split_rows

Array = npt.NDArray[Any]

FIRST_SWEEPS = 50
"""From rows of zeros: by then less than a thousandth of what can be gained is left."""

FILL = 1e-3
"""What stands for a zero, of a typical number, where multiplicative updates start: zero would stay."""


class RowSolver(Protocol):
    """What improves rows."""

    def improve(self, gram: Array, b: Array, linear: Array, w: Array, *, fresh: bool) -> None:
        """Improve ``w`` (r, k) in place; ``b`` (r, k) may be spoilt; ``fresh`` rows are zero so far."""


@dataclass(frozen=True, slots=True)
class Descent:
    """Cyclic coordinate descent (HALS)."""

    sweeps: int

    def improve(self, gram: Array, b: Array, linear: Array, w: Array, *, fresh: bool) -> None:
        """See the protocol."""
        b -= linear
        descend_rows(gram, b, w=w, sweeps=FIRST_SWEEPS if fresh else self.sweeps)


@dataclass(frozen=True, slots=True)
class Pivoting:
    """Exact rows by block principal pivoting, in float64."""

    def improve(self, gram: Array, b: Array, linear: Array, w: Array, *, fresh: bool) -> None:
        """See the protocol."""
        wide = w.astype(np.float64)
        solve_rows(gram.astype(np.float64), (b - linear).astype(np.float64), w=wide)
        w[...] = wide


@dataclass(frozen=True, slots=True)
class Multiplicative:
    """Multiplicative updates, kept from zero, which they would not leave; rows start from descent."""

    sweeps: int
    scale: float
    """Size of a typical number in a row."""

    def improve(self, gram: Array, b: Array, linear: Array, w: Array, *, fresh: bool) -> None:
        """See the protocol."""
        if fresh:
            descend_rows(gram, b - linear, w=w, sweeps=FIRST_SWEEPS)
            np.maximum(w, FILL * self.scale, out=w)
        else:
            floor = self.scale * float(np.finfo(w.dtype).eps)
            multiply_rows(gram, b, w=w, linear=linear, floor=floor, sweeps=self.sweeps)


@dataclass(frozen=True, slots=True)
class Splitting:
    """ADMM, for rows with an upper bound or with sum one."""

    sweeps: int
    upper: float = np.inf
    simplex: bool = False

    def improve(self, gram: Array, b: Array, linear: Array, w: Array, *, fresh: bool) -> None:
        """See the protocol."""
        b -= linear
        sweeps = FIRST_SWEEPS if fresh else self.sweeps
        split_rows(gram, b, w=w, sweeps=sweeps, upper=self.upper, simplex=self.simplex)
