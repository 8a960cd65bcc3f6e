"""Solvers that improve rows of one factor while the other is fixed: descent, pivoting, ADMM, or ratios.

Rows w minimize w G w'/2 - (b - l) w' over the allowed rows. G is the Gram matrix of the fixed factor, b the
product of a row of the data with that factor, l the linear term of a penalty.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.kernels.nonnegative.admm import split_rows
from rankfold.kernels.nonnegative.kl_divergence import quotients
from rankfold.kernels.nonnegative.multiplicative import multiply_rows
from rankfold.kernels.nonnegative.nnls import descend_rows, solve_rows
from rankfold.kernels.nonnegative.projected_gradient import gradient_rows
from rankfold.kernels.nonnegative.weighted_rows import (
    descend_weighted_rows,
    gradient_weighted_rows,
    pair_count,
    pair_products,
)
from rankfold.methods.warm import warm_columns
from rankfold.pipeline.data.view import working_dtype
from rankfold.pipeline.engine.device import Kernel

Array = npt.NDArray[Any]

DTYPES = (np.dtype(np.float64), np.dtype(np.float32))
"""Types of rows and of their Gram matrix, for which loops are compiled."""

FIRST_SWEEPS = 50
"""Number of sweeps for rows that start from zero: they leave less than a thousandth of the possible gain."""

FILL = 1e-3
"""Zeros are replaced by this share of a typical number before multiplicative updates, which cannot leave
zero."""

SLACK = 1e3
"""Numbers up to this multiple of the floor of multiplicative updates count as zero."""


def limits_of(bound: str | float) -> tuple[float, bool]:
    """Upper bound of the numbers in a row, and True if they sum to one.

    ``bound`` is the constraint: ``"nonnegative"``, ``"simplex"``, or the largest number allowed.
    """
    return (np.inf, bound == "simplex") if isinstance(bound, str) else (float(bound), False)


class RowSolver(Protocol):
    """Protocol of a solver that improves rows of one factor while the other is fixed."""

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels that it calls."""

    def improve(self, gram: Array, b: Array, linear: Array, w: Array, *, fresh: bool) -> None:
        """Improve rows ``w`` (r, k) of a factor in place; returns nothing.

        Parameters
        ----------
        gram : (k, k)
            Gram matrix of the fixed factor, with the quadratic term of a penalty on its diagonal.
        b : (r, k)
            Products of rows of the data with the fixed factor; may be overwritten.
        linear : (k,)
            Linear term of a penalty.
        w : (r, k)
        fresh : bool
            True if ``w`` is zero before the call, which then takes more sweeps.
        """

    def clear_floor(self, w: Array) -> Array:
        """Return rows ``w`` (r, k) with zeros where the solver can only come close to zero."""


@dataclass(frozen=True, slots=True)
class Descent:
    """Solver of rows by cyclic coordinate descent (HALS)."""

    sweeps: int
    """Number of sweeps over the components."""

    kernels = (descend_rows,)

    def improve(self, gram: Array, b: Array, linear: Array, w: Array, *, fresh: bool) -> None:
        """Improve rows ``w`` in place by sweeps of coordinate descent; see ``RowSolver.improve``.

        ``b`` is overwritten. ``fresh`` rows get ``FIRST_SWEEPS`` sweeps.
        """
        b -= linear
        _clear_useless(gram, linear, w)
        descend_rows(gram, b, w=w, sweeps=FIRST_SWEEPS if fresh else self.sweeps)

    def clear_floor(self, w: Array) -> Array:
        """Return ``w``: descent reaches zeros."""
        return w


@dataclass(frozen=True, slots=True)
class Pivoting:
    """Solver that finds exact rows by block principal pivoting, in float64.

    Numbers may have a bound ``upper``; with ``simplex`` those of each row sum to one.
    """

    upper: float = np.inf
    simplex: bool = False

    kernels = (solve_rows,)

    def improve(self, gram: Array, b: Array, linear: Array, w: Array, *, fresh: bool) -> None:
        """Replace rows ``w`` by the exact ones, found by block principal pivoting that starts from ``w``."""
        wide = w.astype(np.float64)
        right = (b - linear).astype(np.float64)
        solve_rows(gram.astype(np.float64), right, w=wide, upper=self.upper, simplex=self.simplex)
        w[...] = wide

    def clear_floor(self, w: Array) -> Array:
        """Return ``w``: pivoting reaches zeros."""
        return w


@dataclass(frozen=True, slots=True)
class Multiplicative:
    """Solver of rows by multiplicative updates, which cannot leave zero and so have a floor above it.

    Rows that start from zero are solved by descent first. ``sweeps`` is the number of updates.
    """

    sweeps: int
    scale: float
    """Size of a typical number in a row."""

    kernels = (descend_rows, multiply_rows)

    def improve(self, gram: Array, b: Array, linear: Array, w: Array, *, fresh: bool) -> None:
        """Improve rows ``w`` in place by multiplicative updates; see ``RowSolver.improve``.

        ``fresh`` rows are solved by descent instead, and their numbers raised to ``FILL * scale`` at least.
        """
        if fresh:
            descend_rows(gram, b - linear, w=w, sweeps=FIRST_SWEEPS)
            np.maximum(w, FILL * self.scale, out=w)
        else:
            multiply_rows(gram, b, w=w, linear=linear, floor=self._floor(w), sweeps=self.sweeps)

    def clear_floor(self, w: Array) -> Array:
        """Return a copy of ``w`` with 0 for numbers up to ``SLACK`` times the floor.

        The margin is wide, since typical sizes may have changed after the floor was set.
        """
        return np.where(w > SLACK * self._floor(w), w, w.dtype.type(0))

    def _floor(self, w: Array) -> float:
        return self.scale * float(np.finfo(w.dtype).eps)


@dataclass(frozen=True, slots=True)
class Splitting:
    """Solver of rows by ``sweeps`` iterations of ADMM, for rows with an upper bound or a sum of one.

    Numbers may have a bound ``upper``; with ``simplex`` those of each row sum to one.
    """

    sweeps: int
    upper: float = np.inf
    simplex: bool = False

    kernels = (split_rows,)

    def improve(self, gram: Array, b: Array, linear: Array, w: Array, *, fresh: bool) -> None:
        """Improve rows ``w`` in place by ADMM; ``b`` is overwritten. See ``RowSolver.improve``."""
        b -= linear
        if not self.simplex:
            _clear_useless(gram, linear, w)
        sweeps = max(FIRST_SWEEPS, self.sweeps) if fresh else self.sweeps
        split_rows(gram, b, w=w, sweeps=sweeps, upper=self.upper, simplex=self.simplex)

    def clear_floor(self, w: Array) -> Array:
        """Return ``w``: ADMM reaches zeros."""
        return w


def _clear_useless(gram: Array, linear: Array, w: Array) -> None:
    """Set columns of rows ``w`` (r, k) to zero in place where a component has a penalty ``linear`` but a zero
    diagonal of ``gram``: solvers leave it unchanged."""
    w *= ~((np.diag(gram) == 0) & (linear > 0))


# Rows from products -------------------------------------------------------------------------------


Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NormalRows:
    """Solver of rows whose normal equations have the same matrix, and the path of that matrix."""

    constants: Path
    """Checkpoint file with ``normal`` (k, k) and ``linear`` (k,)."""

    solver: RowSolver

    def solve(self, products: Float64, normal: Float64, linear: Float64, *, out: Float64) -> None:
        """Solve rows ``out`` (r, k) from right-hand sides ``products`` (r, k), which are unchanged.

        ``normal`` (k, k) is the matrix of the normal equations, ``linear`` (k,) the term of a penalty.
        """
        out[...] = 0
        self.solver.improve(normal, products.copy(), linear, out, fresh=True)


def warm_factors(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the loops that find factors once, to compile or load them; starts always use descent.

    ``dtype`` and ``shape`` are those of the matrix, ``request`` is that of the task.
    """
    if "row_weights" in request:  # rows are scaled as they are read
        dtype = working_dtype(dtype)
    warm_columns(dtype, request, shape, loops=("panels",))
    for solver in ("hals", request["solver"]):
        _SOLVERS[solver]()
    if "weights" in request or "missing" in request:
        _warm_weighted_rows()


def warm_coordinates(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the loops that find coordinates of new rows in given factors once, to compile or load them.

    ``dtype`` and ``shape`` are those of the matrix of new rows, ``request`` is that of the task.
    """
    warm_columns(dtype, request, shape)
    _warm_pivoting()


def _few(dtype: np.dtype[Any]) -> tuple[np.ndarray[Any, Any], ...]:
    """A Gram matrix, right-hand sides, and rows, each (4, 4)."""
    return np.eye(4, dtype=dtype), np.ones((4, 4), dtype), np.ones((4, 4), dtype)


@functools.cache
def _warm_descent() -> None:
    for dtype in DTYPES:
        gram, b, w = _few(dtype)
        descend_rows(gram, b, w=w, sweeps=1)
        gradient_rows(gram, b, w)


@functools.cache
def _warm_pivoting() -> None:
    gram, b, w = _few(np.dtype(np.float64))
    solve_rows(gram, b, w=w)


@functools.cache
def _warm_weighted_rows() -> None:
    for dtype in DTYPES:
        _, b, w = _few(dtype)
        halves = np.empty((4, pair_count(4)), dtype)
        pair_products(w, out=halves)
        descend_weighted_rows(halves, b, w=w, sweeps=1)
        gradient_weighted_rows(halves, b, w)


@functools.cache
def _warm_ratios() -> None:
    for dtype in DTYPES:
        gram, b, w = _few(dtype)
        multiply_rows(gram, b, w=w, linear=np.ones(4, dtype), floor=0.0, sweeps=1)
        for width in (4, 8):
            x, model = (np.ones((4, width), dtype)[:, :4] for _ in range(2))
            quotients(x, model, total=np.zeros(1))


@functools.cache
def _warm_splitting() -> None:
    for dtype in DTYPES:
        gram, b, w = _few(dtype)
        split_rows(gram, b, w=w, sweeps=1, upper=np.inf, simplex=False)


_SOLVERS = {"hals": _warm_descent, "bpp": _warm_pivoting, "mu": _warm_ratios, "admm": _warm_splitting}
