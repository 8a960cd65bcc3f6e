"""Nonnegative least squares, a row at a time: what both factors of an NMF are solved by.

Rows w of W minimize |x - w H|^2 over w >= 0 without knowing each other: w G w' / 2 - b w', with G = H H' and
b = x H'. Coordinate descent takes many rows side by side; block principal pivoting solves each exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

RETRIES = 3
"""Exchanges of all infeasible coordinates that may fail to lower their number, before one goes at a time."""

EXCHANGES = 5
"""Exchanges in all, for each coordinate, before a row counts as unsolved."""


@kernel
def descend_rows(gram: Array, b: Array, *, w: Array, sweeps: int) -> None:
    """Improve rows by cyclic coordinate descent (HALS), in place.

    Parameters
    ----------
    gram : (k, k) float32 or float64, symmetric, diagonal not negative
    b : (r, k) of that type
    w : (r, k) of that type, not negative; written
    sweeps : int, >= 1
        Over all k coordinates of each row.

    Notes
    -----
    Work 2 r k^2 flops a sweep. A row depends on no other, so that cuts change nothing. A coordinate
    whose diagonal is zero is left alone: its component is dead.

    References
    ----------
    Cichocki, Phan, Fast local algorithms for large scale nonnegative matrix and tensor factorizations, IEICE
    Trans. Fundamentals E92-A(3), 2009: HALS; several sweeps on one product with the data after Gillis,
    Glineur, Accelerated multiplicative updates and hierarchical ALS algorithms for nonnegative matrix
    factorization, Neural Computation 24(4), 2012.
    """
    for _ in range(sweeps):
        for t in np.flatnonzero(np.diag(gram) > 0):
            slope = w @ gram[:, t] - b[:, t]
            w[:, t] = np.maximum(w[:, t] - slope / gram[t, t], 0)


@kernel
def solve_rows(gram: Float64, b: Float64, *, w: Float64) -> None:
    """Solve rows exactly by block principal pivoting, from the support of what is there.

    Parameters
    ----------
    gram : (k, k) float64, symmetric positive semidefinite, its diagonal of one size or zero
    b : (r, k) float64
    w : (r, k) float64, not negative; its zeros are where a solution is looked for first; written

    Notes
    -----
    Work about k^3 / 3 flops for each exchange, 2 to 5 of them a row. A ridge of 1e-14 of the mean
    diagonal stands in where the Gram matrix is singular. A row that ``EXCHANGES`` do not solve is left to
    200 sweeps of coordinate descent.

    References
    ----------
    Kim, Park, Fast nonnegative matrix factorization: an active-set-like method and comparisons, SIAM J. Sci.
    Comput. 33(6), 2011, algorithm 2; rows are solved one by one, since equal supports are rare.
    """
    k = len(gram)
    ridge_gram = gram + 1e-14 * np.trace(gram) / k * np.eye(k)
    for row in range(len(b)):
        tolerance = 1e-12 * np.abs(b[row]).max(initial=0.0)
        passive, retries, fewest = w[row] > 0, RETRIES, k + 1
        for _ in range(EXCHANGES * k):
            x, y = np.zeros(k), -b[row]
            x[passive] = np.linalg.solve(ridge_gram[np.ix_(passive, passive)], b[row, passive])
            y = ridge_gram @ x - b[row]
            wrong = (passive & (x < 0)) | (~passive & (y < -tolerance))
            if not wrong.any():
                w[row] = x
                break
            if wrong.sum() < fewest:
                fewest, retries = int(wrong.sum()), RETRIES
            elif retries:
                retries -= 1
            else:
                wrong[: int(np.flatnonzero(wrong)[-1])] = False
            passive = passive ^ wrong
        else:
            descend_rows.reference(ridge_gram, b[row : row + 1], w=w[row : row + 1], sweeps=200)  # type: ignore[attr-defined]
