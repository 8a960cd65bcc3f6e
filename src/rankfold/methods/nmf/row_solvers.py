"""How rows of one factor are improved when the other stands: by descent, pivoting, splitting, or ratios.

Rows w minimize w G w'/2 - (b - l) w' over those allowed, with l what a penalty of first order takes away.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.kernels.nonnegative.admm import split_rows
from rankfold.kernels.nonnegative.multiplicative import multiply_rows
from rankfold.kernels.nonnegative.nnls import descend_rows, solve_rows
from rankfold.pipeline.engine.device import Kernel

Array = npt.NDArray[Any]

FIRST_SWEEPS = 50
"""From rows of zeros: by then less than a thousandth of what can be gained is left."""

FILL = 1e-3
"""What stands for a zero, of a typical number, where multiplicative updates start: zero would stay."""

SLACK = 1e3
"""Multiple of the least number of multiplicative updates up to which one counts as zero."""


def limits_of(bound: str | float) -> tuple[float, bool]:
    """Upper bound of the numbers in a row under a constraint, and whether they sum to one."""
    return (np.inf, bound == "simplex") if isinstance(bound, str) else (float(bound), False)


class RowSolver(Protocol):
    """A way to improve rows of one factor while the other stands."""

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All that it calls."""

    def improve(self, gram: Array, b: Array, linear: Array, w: Array, *, fresh: bool) -> None:
        """Improve ``w`` (r, k) in place; ``b`` (r, k) may be spoilt; ``fresh`` rows are zero so far."""

    def clear_floor(self, w: Array) -> Array:
        """Rows with what the solver cannot bring to zero as zero."""


@dataclass(frozen=True, slots=True)
class Descent:
    """Cyclic coordinate descent (HALS)."""

    sweeps: int

    kernels = (descend_rows,)

    def improve(self, gram: Array, b: Array, linear: Array, w: Array, *, fresh: bool) -> None:
        """See the protocol."""
        b -= linear
        _clear_useless(gram, linear, w)
        descend_rows(gram, b, w=w, sweeps=FIRST_SWEEPS if fresh else self.sweeps)

    def clear_floor(self, w: Array) -> Array:
        """See the protocol."""
        return w


@dataclass(frozen=True, slots=True)
class Pivoting:
    """Exact rows by block principal pivoting, in float64, also with an upper bound or with sum one."""

    upper: float = np.inf
    simplex: bool = False

    kernels = (solve_rows,)

    def improve(self, gram: Array, b: Array, linear: Array, w: Array, *, fresh: bool) -> None:
        """See the protocol."""
        wide = w.astype(np.float64)
        right = (b - linear).astype(np.float64)
        solve_rows(gram.astype(np.float64), right, w=wide, upper=self.upper, simplex=self.simplex)
        w[...] = wide

    def clear_floor(self, w: Array) -> Array:
        """See the protocol."""
        return w


@dataclass(frozen=True, slots=True)
class Multiplicative:
    """Multiplicative updates, kept from zero, which they would not leave; rows start from descent."""

    sweeps: int
    scale: float
    """Size of a typical number in a row."""

    kernels = (descend_rows, multiply_rows)

    def improve(self, gram: Array, b: Array, linear: Array, w: Array, *, fresh: bool) -> None:
        """See the protocol."""
        if fresh:
            descend_rows(gram, b - linear, w=w, sweeps=FIRST_SWEEPS)
            np.maximum(w, FILL * self.scale, out=w)
        else:
            multiply_rows(gram, b, w=w, linear=linear, floor=self._floor(w), sweeps=self.sweeps)

    def clear_floor(self, w: Array) -> Array:
        """See the protocol. What typical numbers were has changed since rows were kept from zero."""
        return np.where(w > SLACK * self._floor(w), w, w.dtype.type(0))

    def _floor(self, w: Array) -> float:
        return self.scale * float(np.finfo(w.dtype).eps)


@dataclass(frozen=True, slots=True)
class Splitting:
    """ADMM, for rows with an upper bound or with sum one."""

    sweeps: int
    upper: float = np.inf
    simplex: bool = False

    kernels = (split_rows,)

    def improve(self, gram: Array, b: Array, linear: Array, w: Array, *, fresh: bool) -> None:
        """See the protocol."""
        b -= linear
        if not self.simplex:
            _clear_useless(gram, linear, w)
        sweeps = max(FIRST_SWEEPS, self.sweeps) if fresh else self.sweeps
        split_rows(gram, b, w=w, sweeps=sweeps, upper=self.upper, simplex=self.simplex)

    def clear_floor(self, w: Array) -> Array:
        """See the protocol."""
        return w


def _clear_useless(gram: Array, linear: Array, w: Array) -> None:
    """Components that cost and gain nothing are best at zero, and solvers leave what has no curvature."""
    w *= ~((np.diag(gram) == 0) & (linear > 0))


# Rows from products -------------------------------------------------------------------------------


Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NormalRows:
    """Normal equations of rows, and what solves them."""

    constants: Path
    """A part with ``normal`` (k, k) and ``linear`` (k,)."""

    solver: RowSolver

    def solve(self, products: Float64, normal: Float64, linear: Float64, *, out: Float64) -> None:
        """Rows ``out`` (r, k) from ``products`` (r, k), which stay, and from the constants."""
        out[...] = 0
        self.solver.improve(normal, products.copy(), linear, out, fresh=True)
