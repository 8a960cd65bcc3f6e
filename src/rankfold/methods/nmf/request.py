"""Parameters of a nonnegative factorization, checked before anything is read.

Also starting factors from the caller: arrays, or an earlier result.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.argument import number
from rankfold.methods.nmf.arguments import INITS, NmfArguments
from rankfold.pipeline.data.dtypes import require_real
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.text import suggest_name

DEFAULT_PASSES = {"hals": 8, "bpp": 8, "admm": 8, "mu": 50}
"""Default of the largest number of reads of the matrix, by solver: multiplicative updates converge slowly."""

COMPRESSING = {"compressed": 1, "nndsvd": 1}
"""Number of passes over the matrix before the first iteration, by ``init``; 0 for others."""

Constraint = str | float
"""Constraint of a factor: ``"nonnegative"``, ``"simplex"``, or the largest number allowed."""


@dataclass(frozen=True, slots=True)
class FactorRequest:
    """Parameters of ``nmf`` that a result depends on."""

    rank: int
    loss: str
    solver: str
    init: str
    alpha_w: float
    alpha_h: float
    l1_ratio: float
    constraint_w: Constraint
    constraint_h: Constraint
    tol: float
    grad_tol: float
    """Norm of the projected gradient at which passes end; 0 for no such limit."""

    time_limit: float
    """Seconds after which no pass begins; 0 for no limit."""

    passes: int
    """Largest number of reads of the matrix; 0 for the default of the solver."""

    seed: int

    @classmethod
    def of(cls, init: str, arguments: NmfArguments) -> FactorRequest:
        """Make a request from a caller's arguments; those that may be a word or a number are converted.

        ``init`` is the name of a start, ``"custom"`` if the caller gives factors.
        """
        alpha = arguments.alpha_H
        return cls(
            arguments.rank,
            arguments.loss,
            arguments.solver,
            init,
            arguments.alpha_W,
            arguments.alpha_W if alpha == "same" else number("alpha_H", alpha),
            arguments.l1_ratio,
            _constraint("constraint_W", arguments.constraint_W),
            _constraint("constraint_H", arguments.constraint_H),
            arguments.tol,
            arguments.grad_tol,
            arguments.time_limit,
            arguments.passes or 0,
            arguments.seed,
        )

    @property
    def has_constraints(self) -> bool:
        """True if a factor has a constraint besides nonnegativity."""
        return (self.constraint_w, self.constraint_h) != ("nonnegative", "nonnegative")

    @property
    def compressing(self) -> int:
        """Number of passes over the matrix before the first iteration, which compress it."""
        return COMPRESSING.get(self.init, 0)

    def resolve(self) -> FactorRequest:
        """Resolve every ``auto`` and default, from the other parameters alone."""
        solver, init = self.solver, self.init
        if solver == "auto":
            solver = "mu" if self.loss != "frobenius" else "admm" if self.has_constraints else "hals"
        passes = self.passes or DEFAULT_PASSES.get(solver, 8)
        return dataclasses.replace(
            self, solver=solver, init="compressed" if init == "auto" else init, passes=passes
        )

    def check(self) -> None:
        """Raise ``InputError`` for parameters that are invalid, alone or together."""
        if self.init not in INITS:
            raise InputError(
                f"init {self.init!r} is not known"
                f"{suggest_name(self.init, INITS)}: take one of {', '.join(INITS)}"
            )
        self._check_numbers()
        self._check_together()

    def _check_numbers(self) -> None:
        if not 0 <= self.alpha_h < float("inf"):
            raise InputError(f"alpha_H must be a finite number of at least 0, not {self.alpha_h}")
        for option, value in (("constraint_W", self.constraint_w), ("constraint_H", self.constraint_h)):
            if value not in ("nonnegative", "simplex") and not (isinstance(value, float) and value > 0):
                raise InputError(
                    f"{option} must be 'nonnegative', 'simplex', or the largest number allowed, not {value!r}"
                )

    def _check_together(self) -> None:
        request = self.resolve()
        if request.passes <= request.compressing:
            raise InputError(
                f"nmf from {request.init} factors takes {request.compressing + 1} passes at least, but "
                f"passes={request.passes}"
            )
        if self.loss != "frobenius":
            if request.solver != "mu":
                raise InputError(
                    f"solver {request.solver} is for the Frobenius loss: take mu for {self.loss}"
                )
            if self.grad_tol:
                raise InputError("grad_tol is for the Frobenius loss: say tol for the other")
        if self.has_constraints and request.solver != "admm":
            raise InputError(
                f"constraints are for solver admm: {request.solver} takes factors that are >= 0 alone"
            )

    def as_dict(self) -> dict[str, Any]:
        """Dictionary for the facts of a result, which identifies a request."""
        fields = dataclasses.asdict(self)
        # Results know these by the names of their first version.
        fields["gradient"], fields["seconds"] = fields.pop("grad_tol"), fields.pop("time_limit")
        return {"kind": "nmf", **fields}


def _constraint(name: str, value: object) -> Constraint:
    return value if isinstance(value, str) else number(name, value)


# Custom start -------------------------------------------------------------------------------------


Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CustomStart:
    """Starting factors W (m, k) and H (k, n), not converted; only the one of the short side is ever read."""

    w: Any
    h: Any

    @classmethod
    def of(cls, start: object) -> CustomStart:
        """Open a start from a pair of arrays, a result of nmf, or the path of one."""
        if isinstance(start, (str, Path)):
            start = Result(start)
        if isinstance(start, Result):
            if start.attrs.get("kind") != "nmf":
                raise InputError(
                    f"{start.path} is the result of {start.attrs.get('kind')}: nmf starts from one of nmf"
                )
            return cls(start.W, start.H)
        if not (isinstance(start, (tuple, list)) and len(start) == 2):
            raise InputError("init must be a name, a pair of arrays (W, H), or a result of nmf")
        return cls(*(factor if hasattr(factor, "shape") else _array(factor) for factor in start))

    def short(self, shape: tuple[int, int], rank: int, *, by_rows: bool) -> Float64:
        """Return the factor that the first pass starts from, checked, as float64.

        That is H (k, n) if ``by_rows``, else the transpose of W, (k, m). ``InputError`` if a factor has
        another shape, or if the returned one has negative or non-finite values or is all zero.
        """
        rows, columns = shape
        for name, factor, target in (("W", self.w, (rows, rank)), ("H", self.h, (rank, columns))):
            require_real("factors to start from", factor.dtype)
            if tuple(factor.shape) != target:
                raise InputError(f"{name} to start from has shape {tuple(factor.shape)}, not {target}")
        short = np.array(self.h[...] if by_rows else self.w[...].T, np.float64)
        if not (np.isfinite(short).all() and short.min() >= 0):
            raise InputError("factors to start from must be finite and at least 0")
        if not short.any():
            raise InputError("factors to start from are all zero: from there nothing moves")
        return short


def _array(factor: object) -> Any:
    try:
        numbers = np.asarray(factor)
        return numbers if numbers.dtype.kind == "c" else np.asarray(numbers, np.float64)
    except (TypeError, ValueError):
        raise InputError("factors to start from must be arrays of numbers") from None


def digest(short: Float64 | None) -> str:
    """Hexadecimal hash of a starting factor (k, short), which identifies it; empty for None."""
    if short is None:
        return ""
    return hashlib.blake2b(np.ascontiguousarray(short).data, digest_size=16).hexdigest()
