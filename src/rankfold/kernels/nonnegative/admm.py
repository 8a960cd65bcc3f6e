"""Least squares under a constraint that is easy to project on, a row at a time: a box, or a simplex.

An unconstrained linear solve and a projection that ignores the data alternate (ADMM). The dual variable
starts at the gradient of the rows, its value at a solution, so that none is kept between calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]


@kernel
def split_rows(gram: Array, b: Array, *, w: Array, sweeps: int, upper: float, simplex: bool) -> None:
    """Improve rows w for ``w gram w' / 2 - b w'`` under a constraint, in place, by ADMM.

    ADMM is the alternating direction method of multipliers.

    Parameters
    ----------
    gram : (k, k) float32 or float64, symmetric positive semidefinite
    b : (r, k) of that type
    w : (r, k) of that type; written
        Feasible at the end, whatever it was on entry. A solution stays as it is, up to rounding.
    sweeps : int, >= 1
        Number of linear solves, each with a projection after it.
    upper : float, not negative, may be inf
        Rows end in ``0 <= w <= upper``, rounded to the type of ``w``.
    simplex : bool
        Rows end in ``w >= 0``, ``sum(w) == 1`` up to k roundings; ``upper`` is ignored.

    Notes
    -----
    A row depends on no other. If ``gram`` is zero, rows are only projected. The dual variable starts at
    ``(w gram - b) k / trace(gram)``, with which the first solve returns the rows themselves. Hence the first
    sweep is a step of projected gradient, of length ``k / trace(gram)``: long, so that fewer than five sweeps
    can leave rows worse than they were.
    Work 2 r k^2 flops a sweep, and k^3 once.

    References
    ----------
    Huang, Sidiropoulos, Liavas, A flexible and efficient algorithmic framework for constrained matrix and
    tensor factorization, IEEE Trans. Signal Processing 64(19), 2016 (arXiv 1506.04209): inner iteration and
    penalty. They keep the dual variable of the last call, and stop by residuals.
    """
    penalty, inverse = penalty_and_inverse(gram, w.dtype)
    if not penalty > 0:
        w[...] = project(w, upper, simplex)
        return
    dual, solution = (w @ gram - b) / penalty, w.copy()
    for sweep in range(sweeps):
        if sweep:
            solution = (b + penalty * (w + dual)) @ inverse
        w[...] = project(solution - dual, upper, simplex)
        dual += w - solution


def penalty_and_inverse(gram: Array, dtype: np.dtype[Any]) -> tuple[Any, Array]:
    """Mean eigenvalue rho of a (k, k) Gram matrix G, and ``(G + rho I)^-1``, both in ``dtype``.

    Both are zero if rho is not positive. The condition number is at most k + 1, so that the inverse may
    replace a factorization in float32 too.
    """
    k = len(gram)
    wide = gram.astype(np.float64)
    penalty = np.trace(wide) / k
    if not penalty > 0:
        return dtype.type(0), np.zeros((k, k), dtype)
    return dtype.type(penalty), np.linalg.inv(wide + penalty * np.eye(k)).astype(dtype)


def project(v: Array, upper: float, simplex: bool) -> Array:
    """Project each row of ``v`` onto ``0 <= v <= upper``, or, if ``simplex``, onto ``v >= 0, sum(v) == 1``.

    Returns a new array; ``upper`` does not bound rows of the simplex, which are projected by sorting.

    Condat, Fast projection onto the simplex and the l1 ball, Mathematical Programming 158, 2016, section 2.
    """
    if not simplex:
        return np.clip(v, 0, v.dtype.type(upper))
    v = v - v.max(axis=1, keepdims=True)
    excess = np.cumsum(-np.sort(-v, axis=1), axis=1) - 1
    counts = np.cumsum(np.ones_like(v[:1]), axis=1)
    threshold = (excess / counts).max(axis=1, keepdims=True)
    return np.maximum(v - threshold, 0)  # type: ignore[no-any-return]
