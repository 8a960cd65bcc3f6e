"""A request for a decomposition, checked against the matrix before anything is planned."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankfold.methods.svd.solvers.solver import SOLVERS
from rankfold.pipeline.errors import InputError, argument

DEFAULT_TOL = 1e-4
DEFAULT_PASSES = 8
COMPLETION_PASSES = 30
"""Default of the largest number of passes that complete missing numbers."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for one decomposition: everything that decides the numbers, and nothing else."""

    kind: str
    """``"svd"``, ``"pca"`` or ``"qr"``."""

    rank: int
    """Number of components; with ``adaptive`` the most that there can be."""

    tol: float = DEFAULT_TOL
    """Estimated relative error at which every singular value counts as found."""

    method: str = "auto"
    """Name of a solver, or ``"auto"``."""

    passes: int = DEFAULT_PASSES
    """Largest number of passes over the matrix."""

    seed: int = 0
    center: bool = False
    scale: bool = False
    whiten: bool = False
    rows: bool = True
    """True if row outputs (``U``, ``scores``) are written."""

    adaptive: bool = False
    """True if only as many components are kept as an approximation to ``tol`` takes, at most ``rank``."""

    oversampling: int | None = None
    """Columns of a block beyond the rank; None for the default of ``orientation.block_width``."""

    missing: str = "raise"
    """``"raise"`` or ``"em"``; column means of ``"mean"`` are filled in before the request is made."""

    completion_passes: int | None = None
    """Largest number of passes that complete missing numbers; None if nothing is completed."""

    precision: str | None = None
    """One of ``PRECISIONS``; None for float32 where it holds the data, float64 elsewhere."""

    @property
    def working_dtype(self) -> np.dtype[Any] | None:
        """Type to compute in; None where the type of the data decides."""
        return working_dtype_of(self.precision)

    def as_dict(self) -> dict[str, Any]:
        """Fields by name, as JSON types; those of precision and completion only where they are used."""
        fields = dataclasses.asdict(self)
        if self.precision is None:
            del fields["precision"]
        if self.missing == "raise":
            del fields["missing"], fields["completion_passes"]
        return fields


def working_dtype_of(precision: str | None) -> np.dtype[Any] | None:
    """The type to compute in for a value of ``precision``; None where the type of the data decides."""
    return np.dtype(precision) if precision in ("float32", "float64") else None


def check_request(request: Request, shape: tuple[int, int], name: str) -> None:
    """Raise ``InputError`` for a request that a matrix of that shape cannot answer; ``name`` is its name."""
    rows, columns = shape
    most = min(shape)
    if request.rank < 1:
        raise InputError(f"rank {request.rank} was asked for; ask for 1 to {most}")
    if request.center and rows < 2:
        raise InputError(f"{name} has {rows} row: principal components need at least 2 samples")
    if request.rank > most:
        raise InputError(
            f"rank {request.rank} was asked for, but {name} is {rows} x {columns}: it has at most {most} "
            f"singular values. Ask for {argument('rank', most)} or less."
        )
    if request.adaptive and request.method != "auto" and not SOLVERS[request.method].finds_rank:
        finders = ("auto", *(name for name in SOLVERS.ours if SOLVERS[name].finds_rank))
        raise InputError(
            f"{request.method} does not find the rank from tol alone: say rank= (--rank), or take "
            f"{', '.join(finders)}"
        )
    if request.adaptive and request.oversampling is not None:
        raise InputError("oversampling counts columns beyond a rank: say rank= (--rank), or leave it out")
    _check_precision(request)
    if request.missing == "em" and request.adaptive:
        raise InputError(
            "missing='em' completes what is missing by as many components as are asked for: say rank= "
            "(--rank), and no tol alone"
        )


def _check_precision(request: Request) -> None:
    if request.precision == "tf32" and request.method != "subspace":
        raise InputError(
            "precision tf32 rounds products that later passes put right, as those of subspace iteration "
            "alone do: say solver='subspace' (--solver subspace), or leave out precision= (--precision)"
        )
