"""How good a result is, from numbers that the passes leave behind anyway."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankfold.kernels.small import leading_eigenpairs

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class HalfStep:
    """What half a step more would give, for the leading singular values on a basis."""

    ritz: Float64
    """(rank,) singular values on span(Q): lower bounds of those of A, by Cauchy interlacing."""

    gain: Float64
    """(rank,) relative rise when the Rayleigh quotient moves on to span(A Q), never negative."""

    noise: Float64
    """(rank,) relative rounding error of ``ritz`` and ``gain``, as measured."""


def half_step(products: Float64, squares: Float64, rank: int, keep: int) -> HalfStep:
    """Singular values on a basis Q and on A Q, from small matrices.

    Parameters
    ----------
    products : (p, p)
        Q'A'A Q for orthonormal Q, as computed: not quite symmetric.
    squares : (p, p)
        (A'A Q)'(A'A Q).
    rank : int
        Number of leading values looked at.
    keep : int
        Ritz vectors whose images span the left space of the half step.

    Notes
    -----
    The part of ``products`` that is not symmetric is rounding of the passes. Turned into the basis of
    Ritz vectors, the norm of its row i says how far the i-th value can be trusted. A bound in terms of
    eps (s1 / s)^2 would be right and useless: rounding errors of rows are independent and mostly cancel.
    """
    tiny = np.finfo(np.float64).tiny
    theta, w = leading_eigenpairs((products + products.T) / 2, min(keep, len(products)))
    ritz = np.sqrt(np.maximum(theta, 0.0))
    inverse = np.where(ritz > np.finfo(np.float64).eps * ritz[0], 1.0 / np.maximum(ritz, tiny), 0.0)
    left = (w.T @ squares @ w) * np.outer(inverse, inverse)
    risen = np.sqrt(np.maximum(np.linalg.eigvalsh((left + left.T) / 2)[::-1], 0.0))
    gain = np.maximum(risen - ritz, 0.0) / np.maximum(risen, tiny)
    error = np.linalg.norm(w.T @ (products - products.T) @ w, axis=1) / 2
    noise = np.minimum(error / (2 * np.maximum(theta, tiny)), 1.0)
    return HalfStep(ritz[:rank], gain[:rank], noise[:rank])


def half_step_error(gain: Float64, previous: Float64 | None, *, exact: bool = False) -> Float64:
    """Estimated relative error of singular values that include the half step.

    Parameters
    ----------
    gain, previous : (k,)
        Gains of the half step after this pass and after the one before (None after the first pass).
    exact : bool
        Whether the basis spans the whole short side, so that nothing is missing.

    Returns
    -------
    (k,)
        Infinity after the first pass, which says nothing of the rate.

    Notes
    -----
    Errors fall by a ratio r per half step, so the error left after one that gained g is g r / (1 - r).
    Two half steps lie between two gains: r = sqrt(g / g_previous). The estimate is never below g itself
    (r = 1/2), since the ratio of the first passes flatters the later ones.
    """
    if exact:
        return np.zeros_like(gain)
    if previous is None:
        return np.full_like(gain, np.inf)
    ratio = np.sqrt(np.minimum(gain / np.where(previous > 0, previous, 1.0), 0.98))
    return gain * np.maximum(1.0, ratio / (1.0 - ratio))
