"""How good a result is, from numbers that the passes leave behind anyway.

Upper bounds of values, as ``largest_eigenvalues`` finds them. Let T = diag(theta) hold the Ritz values on a
basis Q, S the residuals of all Ritz vectors, and C be A'A outside Q.

In the basis of Ritz vectors, completed by any of the rest,

    A'A = [ T  S' ]      T = diag(theta),   C >= 0.
          [ S  C  ]

Where x I - C is positive definite, A'A - x I has as many positive eigenvalues as its Schur complement
T - x I + S'(x I - C)^-1 S (Sylvester's law of inertia). So x, the i-th eigenvalue of A'A, is the i-th
eigenvalue of T + S'(x I - C)^-1 S, and as the inverse falls with x, for every lower bound t of it above C

    x  <=  i-th eigenvalue of  T + S'(t I - C)^-1 S.

With nothing known of C but that it is not negative, S'S / t is left, which is what the half step finds
already. Here C is as a sketch of rows shows it. A sketch is right on average, and the inverse is convex:
for t above both, the mean of (t I - C)^-1 over sketches is not below that of the true C (Jensen's
inequality for operator convex functions; Bhatia, Matrix Analysis, 1997, chapter V). What single sketches
err by is for ``squares`` to allow for.

Nothing is said of gaps between Ritz values, so clusters and values equal just outside a block are bounded
alike. To first order in S the bound is theta + |s_i|^2 / (theta - c) as of Kato and Temple (Parlett, The
Symmetric Eigenvalue Problem, 1980, section 10) with c where the residual is, rather than the worst there
is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.dense import adjoint

Float64 = npt.NDArray[np.float64]

SAFETY = 2.0
"""Estimates are multiplied by this. With it, on spectra from flat to i^-1, spiked and stepped, no true error
exceeded the largest estimate, and none its own by more than half."""


SKETCH_ALLOWANCE = 1.1
"""Bounds by a sketch are multiplied by this: of 1000 adversarial matrices three were exceeded without, by
at most 1.1 %."""

CLUSTER = 1e-3
"""Relative residual up to which values that lie within their residuals are taken for a cluster."""

GAPS = (2.0, 16.0, 256.0, np.inf)
"""Gaps up to so many times the smallest share one eigenvalue problem."""


@dataclass(frozen=True, slots=True)
class Ritz:
    """Estimates of the leading singular values on a basis Q, from small matrices."""

    values: Float64
    """(rank,) on span(Q): lower bounds of the singular values, by Cauchy interlacing."""

    half_step_values: Float64
    """(rank,) on span(A Q), half a step further: not smaller, and lower bounds still."""

    second_order: Float64
    """(rank,) relative error of ``values`` by their residuals and gaps; infinite where there is no gap."""

    first_order: Float64
    """(rank,) the same by residuals alone: how far the nearest value may be, whichever it is."""

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
    second_order = np.maximum(second_order, _unresolved(theta, np.sqrt(residual)))
    error = np.linalg.norm(adjoint(w) @ (products - adjoint(products)) @ w, axis=1) / 2
    with np.errstate(over="ignore"):
        first_order = np.sqrt(residual) / (2 * np.maximum(theta, tiny))
        noise = np.minimum(error / (2 * np.maximum(theta, tiny)), 1.0)
    return Ritz(values[:rank], half_step_values[:rank], second_order[:rank], first_order[:rank], noise[:rank])


def _unresolved(theta: Float64, residuals: Float64) -> Float64:
    """Relative errors of values that residuals do not tell from others of a narrow cluster.

    A Ritz vector is then a mixture of the cluster's, and a gap to what lies beyond the cluster says nothing
    of its order within: others of it may be outside. Copies of one value differ by the second order at most.
    """
    apart = np.abs(theta[:, None] - theta)
    spread = np.where(apart <= residuals[:, None] + residuals, apart, 0.0).max(axis=1, initial=0.0)
    narrow = (residuals <= CLUSTER * theta) & (theta > 0)
    return np.where(narrow, spread / np.where(narrow, 2 * theta, 1.0), 0.0)


def largest_eigenvalues(
    theta: Float64, couplings: Float64, parts: Float64, squares: Float64, least: float, lower: Float64
) -> Float64:
    """Upper bounds of the leading eigenvalues of A'A, from all that a basis Q and a sketch of rows tell.

    Parameters
    ----------
    theta : (p,)
        All Ritz values, the eigenvalues of Q'A'A Q, decreasing.
    couplings : (p, p)
        S'S with S = (I - Q Q') A'A Q W, the residuals of all Ritz vectors Q W.
    parts : (l, p)
        V'S with orthonormal V outside Q.
    squares : (l,)
        Squared singular values that A (I - Q Q') has along V.
    least : float
        The same for all that is outside both.
    lower : (k,)
        Lower bounds of the k leading eigenvalues, decreasing.

    Returns
    -------
    (k,)
        Infinite for values whose lower bound is not above all ``squares``: another one may be in their place.

    Notes
    -----
    Derived at the head of this module.

    One eigenvalue problem serves all values of about the same gap, as a smaller t makes the bound larger;
    the smaller the gaps, the closer, as those values are the last to converge. Work 4/3 p^3 + 2 l p^2 flops
    for each.
    """
    upper = np.full(len(lower), np.inf)
    gaps = lower - max(float(squares.max(initial=0.0)), least)
    last = int((gaps > 0).sum())
    smallest = gaps[last - 1]
    for ratio in GAPS:
        if not last:
            break
        t, first = lower[last - 1], int((gaps[:last] > ratio * smallest).sum())
        weights = 1 / (t - squares) - 1 / (t - least)
        matrix = couplings / (t - least) + adjoint(parts) @ (weights[:, None] * parts)
        matrix[np.diag_indices(len(theta))] += theta
        values = np.linalg.eigvalsh((matrix + adjoint(matrix)) / 2)[::-1]
        upper[first:last] = values[first:last]
        last = first
    return upper


def errors_within(values: Float64, upper: Float64) -> Float64:
    """Largest relative errors of lower bounds of singular values, below ``upper`` bounds of squares."""
    known = np.isfinite(upper) & (upper > 0)
    bound = np.sqrt(np.where(known, upper, 1.0))
    return np.where(known, np.clip(SKETCH_ALLOWANCE * (1.0 - values / bound), 0.0, 1.0), 1.0)


def estimated_errors(history: Sequence[Ritz], bound: Float64 | None = None) -> Float64:
    """Estimated relative errors of the last ``half_step_values``, from all passes so far.

    ``bound`` is what ``largest_eigenvalues`` leaves of them, where a sketch of rows tells what is outside.

    Notes
    -----
    The smaller of two. The bound is 1 while values outside the basis may be as large as those that are
    wanted: long, where spectra are flat. The other one takes the basis for a sample of the spectrum: twice
    the second-order bound of the last pass, or what is left of a geometric series whose terms are the rises
    of the last two passes (Aitken) where that is smaller, but not below the second-order bound itself. The
    series alone will not do: values dwell on a plateau, as of a cluster, before they rise again, and it then
    says that they have arrived. Nor will residuals alone while a cluster wider than the block comes in, of
    which they do not show the rest: where a value rises by more than half of what it rose before, a series
    leaves no less than that rise, and no less is claimed. Of a single pass, with nothing to compare it with,
    only the bound counts.
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
        least = np.maximum(last_pass.second_order - last_pass.gain, 0.0)
        dwells = 2 * rise >= previous
        relative_rise = rise / np.maximum(last, np.finfo(np.float64).tiny)
        estimate = np.minimum(estimate, np.maximum(SAFETY * remainder, least))
        estimate = np.maximum(estimate, np.where(dwells, relative_rise, 0.0))
    return order_errors(_smaller(estimate, bound, alone=len(history) == 1), last_pass.half_step_values)


def errors_of_iteration(ritz: Ritz, pair: Ritz | None, bound: Float64 | None = None) -> Float64:
    """Estimated relative errors of ``ritz.half_step_values`` after a pass of subspace iteration.

    ``ritz`` is of the block that was multiplied, ``pair`` of that block and the one before together, and
    ``bound`` of the basis of both, where a sketch of rows tells what is outside.

    Notes
    -----
    The pair holds two steps of a Krylov space that starts where the iteration stands, so its values are
    better lower bounds: the distance to them is known, and only what they lack themselves is estimated, by
    residual and gap. A single block will not do. Its smallest value lies far below the first eigenvalue
    that is not wanted while the spectrum is flat, and the gap comes out too large; and a series through
    its values (Aitken) is too short, for here convergence slows down, as the directions that fade fast go
    first. After one pass there is no pair: the bound counts alone, or twice the safety is taken.
    """
    if pair is None:
        estimate = np.maximum(2 * SAFETY * ritz.second_order - ritz.gain, 0.0)
    else:
        distance = np.maximum(pair.half_step_values - ritz.half_step_values, 0.0) / np.maximum(
            pair.half_step_values, np.finfo(np.float64).tiny
        )
        estimate = distance + np.maximum(SAFETY * pair.second_order - pair.gain, 0.0)
    return order_errors(_smaller(estimate, bound, alone=pair is None), ritz.half_step_values)


def _smaller(estimate: Float64, bound: Float64 | None, *, alone: bool) -> Float64:
    """The bound, or the largest estimate where that is smaller; the bound where that stands ``alone``.

    The estimate of a single value is a guess, and may be flattered by chance, or by values in the wrong
    order; the largest of all is not.
    """
    if bound is None:
        return estimate
    return bound if alone else np.minimum(estimate.max(initial=0.0), bound)


def order_errors(estimate: Float64, values: Float64) -> Float64:
    """Between 0 and 1, and none known to be better than a larger one, which converges first.

    Nor than a smaller one that may be larger in truth: the two can be in each other's place.
    """
    errors: Float64 = np.clip(np.maximum.accumulate(estimate), 0.0, 1.0)
    for i in range(len(values) - 2, -1, -1):
        if values[i] <= values[i + 1] * (1 + errors[i + 1]):
            errors[i] = max(errors[i], errors[i + 1])
    return errors


def errors_of_remainder(s: Float64, remainder: float) -> Float64:
    """Largest relative errors of values whose squares may each lack ``remainder``; 0 for a value of 0."""
    return np.asarray(np.sqrt(1 + remainder / np.where(s > 0, s, np.inf) ** 2) - 1)


def rounding(s: Float64, dtype: np.dtype[Any]) -> Float64:
    """Relative rounding error of singular values found backward stably: eps times the largest."""
    eps = float(np.finfo(dtype).eps)
    return np.where(s > 0, eps * s[0] / np.where(s > 0, s, 1.0), 0.0)
