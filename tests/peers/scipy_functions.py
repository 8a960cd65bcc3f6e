"""``scipy.sparse.linalg.svds`` by rankfold: the largest singular values, in ascending order."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

import rankfold as rf
from rankfold.pipeline.errors import InputError

SOLVERS = ("arpack", "lobpcg", "propack")
EXACT = 1e-14
"""What ``tol=0`` asks for: as exact as the type allows."""

REFUSALS = {
    r"cannot be reduced$": "`A` must not be empty.",
    r"holds object": "`A` must be of numeric data type",
    r"a matrix has two": "array must have ndim <= 2",
    r"^rank ": "`k` must be an integer satisfying `0 < k <= min(A.shape)`.",
    r"^tol ": "`tol` must be a non-negative floating point value.",
}
"""What SciPy says of what rankfold refuses, by what rankfold says."""


def svds(
    A: Any,
    k: int = 6,
    ncv: int | None = None,
    tol: float = 0,
    which: str = "LM",
    v0: Any = None,
    maxiter: int | None = None,
    return_singular_vectors: bool | str = True,
    solver: str = "arpack",
    rng: Any = None,
    options: Any = None,
) -> Any:
    """See ``scipy.sparse.linalg.svds``. All solvers are block Krylov, which has no use for the rest."""
    if solver not in SOLVERS:
        raise ValueError(f"solver must be one of {SOLVERS}")
    if which != "LM":
        raise ValueError("`which` must be in {'LM'}")
    if return_singular_vectors not in (True, False, "u", "vh"):
        raise ValueError("`return_singular_vectors` must be in True, False, 'u' or 'vh'")
    if isinstance(A, LinearOperator):
        A = A.A  # an operator that was made of a matrix has it by this name
    seed = int(np.random.default_rng(rng).integers(2**62))
    try:
        found = rf.svd(A, k, tol=tol or EXACT, solver="krylov", passes=maxiter or 100, seed=seed)
    except InputError as error:
        raise refusal(error) from error
    u, s, vh = found.U[:, ::-1], found.s[::-1], found.Vt[::-1]
    if return_singular_vectors is False:
        return s
    return None if return_singular_vectors == "vh" else u, s, None if return_singular_vectors == "u" else vh


def refusal(error: InputError) -> ValueError:
    """The same refusal in SciPy's words, where it has any."""
    ours = str(error)
    return next((ValueError(theirs) for said, theirs in REFUSALS.items() if re.search(said, ours)), error)
