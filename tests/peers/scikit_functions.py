"""``sklearn.utils.extmath.randomized_svd`` by rankfold. The estimators need no adapter."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.extmath import svd_flip

import rankfold as rf


def randomized_svd(
    M: Any,
    n_components: int,
    *,
    n_oversamples: int = 10,
    n_iter: int | str = "auto",
    power_iteration_normalizer: str = "auto",
    transpose: bool | str = "auto",
    flip_sign: bool = True,
    random_state: Any = None,
    svd_lapack_driver: str = "gesdd",
) -> tuple[Any, ...]:
    """See ``sklearn.utils.extmath.randomized_svd``.

    ``n_iter`` is the number of passes after the first; bases are always orthonormalized, and the shorter
    side is found out.
    """
    found = rf.svd(
        M.T if transpose is True else M,
        n_components,
        tol=1e-8,
        solver="krylov",
        passes=8 if n_iter == "auto" else int(n_iter) + 1,
        oversampling=n_oversamples,
        seed=int(check_random_state(random_state).randint(2**31)),
    )
    u, s, vt = found.U[...], found.s, found.Vt[...]
    if transpose is True:
        u, vt = vt.T, u.T
    if flip_sign:
        u, vt = svd_flip(u, vt)
    return u, s.astype(u.dtype), np.ascontiguousarray(vt)
