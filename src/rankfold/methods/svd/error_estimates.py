"""How good a result is, from numbers that the passes leave behind anyway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]

SAFETY = 2.0
"""Estimates are multiplied by this. With it, on spectra from flat to i^-1, spiked and stepped, no true error
exceeded the largest estimate, and none its own by more than half."""


@dataclass(frozen=True, slots=True)
class Ritz:
    """Estimates of the leading singular values on a basis Q, from small matrices."""

    values: Float64
    """(rank,) on span(Q): lower bounds of the singular values, by Cauchy interlacing."""

    half_step_values: Float64
    """(rank,) on span(A Q), half a step further: not smaller, and lower bounds still."""

    second_order: Float64
    """(rank,) relative error of ``values`` by their residuals and gaps; infinite where there is no gap."""

    noise: Float64
    """(rank,) relative rounding error of all of these, as measured."""

    @property
    def gain(self) -> Float64:
        """(rank,) relative rise by the half step."""
        return np.maximum(self.half_step_values - self.values, 0.0) / np.maximum(
            self.half_step_values, np.finfo(np.float64).tiny
        )


@dataclass(frozen=True, slots=True)
class Truncation:
    """How many components an approximation needs, and what it leaves out."""

    rank: int
    error: float
    """Frobenius norm of what is left out over that of the matrix; not below what rounding hides."""

    @classmethod
    def of(cls, squares: Float64, total: float, tol: float, *, rounding: float = 0.0) -> Truncation:
        """The fewest of the leading squared singular values that leave ``tol`` of the norm, or all of them.

        ``rounding`` is what the squares may be wrong by together, besides that of sums in float64.
        """
        rounding += 16 * float(np.finfo(np.float64).eps) * total
        return cls._least(total - np.cumsum(squares), total, tol, rounding)

    @classmethod
    def of_all(cls, s: Float64, tol: float) -> Truncation:
        """The same where all singular values are known: what is left is summed, not a difference."""
        remainders = np.append(np.cumsum(s[:0:-1] ** 2)[::-1], 0.0)
        total = float((s**2).sum())
        return cls._least(remainders, total, tol, (len(s) * float(np.finfo(np.float64).eps)) ** 2 * total)

    @classmethod
    def _least(cls, remainders: Float64, total: float, tol: float, rounding: float) -> Truncation:
        # Where as little is left as rounding, more components are not known to be better.
        enough = remainders <= max(tol**2 * total - rounding, rounding)
        rank = int(enough.argmax()) + 1 if enough.any() else len(remainders)
        most = max(float(remainders[rank - 1]), 0.0) + rounding
        return cls(rank, min(float(np.sqrt(most / total)), 1.0) if total > 0 else 0.0)


def ritz_values(
    products: Float64,
    theta: Float64,
    w: Float64,
    image: Float64,
    residual: Float64,
    rank: int,
    outside: float = 0.0,
) -> Ritz:
    """Singular values on a basis Q and on A Q, with their errors.

    Parameters
    ----------
    products : (p, p)
        Q'A'A Q for orthonormal Q, as computed.
    theta, w : (l,), (p, l)
        Its leading eigenpairs. The last one stands for the part of the spectrum that is not wanted.
    image : (n, l)
        A'A Q w.
    residual : (l,)
        Squared norms of A'A Q w - theta Q w. Formed, not taken from small matrices: as the difference
        of squares it would be lost to rounding once the values span three orders of magnitude.
    rank : int
        Number of leading values looked at.
    outside : float
        Squared singular value of the part of the matrix outside the basis, if larger than the last kept.

    Notes
    -----
    The error of an eigenvalue is at most its squared residual over the gap to those not wanted (Kato and
    Temple; Parlett, The Symmetric Eigenvalue Problem, 1980, section 10.1), where the gap is our own
    estimate of it.

    The part of ``products`` that is not symmetric is rounding of the passes. Turned into the basis of
    Ritz vectors, the norm of its row i says how far the i-th value can be trusted. A bound in terms of
    eps (s1 / s)^2 would be right and useless: rounding errors of rows are independent and mostly cancel.
    """
    tiny = np.finfo(np.float64).tiny
    values = np.sqrt(theta)
    inverse = np.where(values > np.finfo(np.float64).eps * values[0], 1.0 / np.maximum(values, tiny), 0.0)
    half_step_values = np.linalg.svd(image * inverse, compute_uv=False).astype(np.float64, copy=False)
    gap = theta - max(theta[-1], outside)
    second_order = np.where(residual > 0, np.inf, 0.0)
    np.divide(residual, 2 * theta * gap, out=second_order, where=gap > 0)
    error = np.linalg.norm(w.T @ (products - products.T) @ w, axis=1) / 2
    noise = np.minimum(error / (2 * np.maximum(theta, tiny)), 1.0)
    return Ritz(values[:rank], half_step_values[:rank], second_order[:rank], noise[:rank])


def estimated_errors(history: Sequence[Ritz]) -> Float64:
    """Estimated relative errors of the last ``half_step_values``, from all passes so far.

    Notes
    -----
    The smaller of two: the second-order bound of the last pass, and what is left of a geometric series
    whose terms are the rises of the last two passes (Aitken). The first is too large where convergence
    is fast, the second where it quickens; where convergence is slow both are near the truth.
    """
    last_pass = history[-1]
    # What bounds the error of ``values`` bounds that of ``half_step_values`` less the rise, which is known.
    estimate = np.maximum(SAFETY * last_pass.second_order - last_pass.gain, 0.0)
    if len(history) > 2:
        before, middle, last = (ritz.half_step_values for ritz in history[-3:])
        rise, previous = np.maximum(last - middle, 0.0), np.maximum(middle - before, 0.0)
        ratio = rise / np.maximum(previous, np.finfo(np.float64).tiny)
        remainder = np.full_like(ratio, np.inf)
        falls = ratio < 1
        remainder[falls] = (
            (rise * ratio)[falls] / (1 - ratio[falls]) / np.maximum(last[falls], np.finfo(np.float64).tiny)
        )
        estimate = np.minimum(estimate, SAFETY * remainder)
    # The rate of one value is guessed from two differences, and may be flattered by chance.
    return _order_errors(estimate)


def errors_of_iteration(ritz: Ritz, pair: Ritz | None) -> Float64:
    """Estimated relative errors of ``ritz.half_step_values`` after a pass of subspace iteration.

    ``ritz`` is of the block that was multiplied, ``pair`` of that block and the one before together.

    Notes
    -----
    The pair holds two steps of a Krylov space that starts where the iteration stands, so its values are
    better lower bounds: the distance to them is known, and only what they lack themselves is estimated, by
    residual and gap. A single block will not do. Its smallest value lies far below the first eigenvalue
    that is not wanted while the spectrum is flat, and the gap comes out too large; and a series through
    its values (Aitken) is too short, for here convergence slows down, as the directions that fade fast go
    first. After one pass there is no pair, and twice the safety is taken.
    """
    if pair is None:
        return _order_errors(2 * SAFETY * ritz.second_order - ritz.gain)
    distance = np.maximum(pair.half_step_values - ritz.half_step_values, 0.0) / np.maximum(
        pair.half_step_values, np.finfo(np.float64).tiny
    )
    return _order_errors(distance + np.maximum(SAFETY * pair.second_order - pair.gain, 0.0))


def _order_errors(estimate: Float64) -> Float64:
    """Between 0 and 1, and none known to be better than a larger one, which converges first."""
    return np.clip(np.maximum.accumulate(estimate), 0.0, 1.0)


def errors_of_remainder(s: Float64, remainder: float) -> Float64:
    """Largest relative errors of values whose squares may each lack ``remainder``; 0 for a value of 0."""
    return np.asarray(np.sqrt(1 + remainder / np.where(s > 0, s, np.inf) ** 2) - 1)


def rounding(s: Float64, dtype: np.dtype[Any]) -> Float64:
    """Relative rounding error of singular values found backward stably: eps times the largest."""
    eps = float(np.finfo(dtype).eps)
    return np.where(s > 0, eps * s[0] / np.where(s > 0, s, 1.0), 0.0)
