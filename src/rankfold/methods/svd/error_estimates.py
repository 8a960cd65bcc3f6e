"""Error estimates of singular values, from numbers that the passes compute anyway.

Upper bounds of values, as ``largest_eigenvalues`` finds them. Let T = diag(theta) hold the Ritz values on a
basis Q, S the residuals of all Ritz vectors, and C be A'A outside Q.

In the basis of Ritz vectors, completed by any of the rest,

    A'A = [ T  S' ]      T = diag(theta),   C >= 0.
          [ S  C  ]

Where x I - C is positive definite, A'A - x I has as many positive eigenvalues as its Schur complement
T - x I + S'(x I - C)^-1 S (Sylvester's law of inertia). So x, the i-th eigenvalue of A'A, is the i-th
eigenvalue of T + S'(x I - C)^-1 S, and as the inverse falls with x, for every lower bound t of it above C

    x  <=  i-th eigenvalue of  T + S'(t I - C)^-1 S.

If C is only known not to be negative, S'S / t is left, which is what the half step finds already. Here C
is estimated by a sketch of rows. A sketch is right on average, and the inverse is convex:
for t above both, the mean of (t I - C)^-1 over sketches is not below that of the true C (Jensen's
inequality for operator convex functions; Bhatia, Matrix Analysis, 1997, chapter V). ``squares`` have to
allow for the error of a single sketch.

No gap between Ritz values is assumed, so the bound also holds for clusters, and for equal values just
outside a block. To first order in S the bound is theta + |s_i|^2 / (theta - c) as of Kato and Temple
(Parlett, The Symmetric Eigenvalue Problem, 1980, section 10) with c where the residual is, rather than the
worst there is.
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
"""Factor on second-order estimates of relative errors. With it, on spectra from flat to i^-1, spiked and
stepped, no true error exceeded the largest estimate, and none its own by more than half."""


SKETCH_ALLOWANCE = 1.1
"""Factor on bounds of relative errors by a sketch. Without it the values of three of 1000 adversarial
matrices exceeded their bounds, by at most 1.1 %."""

CLUSTER = 1e-3
"""Largest residual, relative to the squared value, at which values closer than their residuals count as a
cluster."""

GAPS = (2.0, 16.0, 256.0, np.inf)
"""Upper edges of bins of gaps, in multiples of the smallest gap: values of a bin share one eigenvalue
problem."""


@dataclass(frozen=True, slots=True)
class Ritz:
    """Estimates of the ``rank`` leading singular values of A on a basis Q, from small matrices."""

    values: Float64
    """(rank,) values on span(Q): lower bounds of the singular values, by Cauchy interlacing."""

    half_step_values: Float64
    """(rank,) singular values of A projected on span(A Q), half a step of subspace iteration further: not
    smaller than ``values``, and still lower bounds."""

    second_order: Float64
    """(rank,) relative errors of ``values`` by squared residuals over gaps; infinite where there is no
    gap."""

    first_order: Float64
    """(rank,) relative errors by residuals alone: distances to the nearest singular value, whichever it
    is."""

    noise: Float64
    """(rank,) relative rounding errors of the values, measured by the asymmetry of Q'A'A Q."""

    @property
    def gain(self) -> Float64:
        """(rank,) relative rise from ``values`` to ``half_step_values``."""
        return np.maximum(self.half_step_values - self.values, 0.0) / np.maximum(
            self.half_step_values, np.finfo(np.float64).tiny
        )


@dataclass(frozen=True, slots=True)
class Truncation:
    """Number of components that an approximation needs, and the error that it leaves."""

    rank: int
    """Number of leading components to keep."""

    error: float
    """Frobenius norm of what is left out over that of the matrix; at least what rounding may hide."""

    @classmethod
    def of(cls, squares: Float64, total: float, tol: float, *, rounding: float = 0.0) -> Truncation:
        """Keep the fewest leading components that leave out at most ``tol`` of the norm; all if none do.

        ``squares`` are the leading squared singular values, decreasing, and ``total`` is the sum of all of
        them. ``rounding`` bounds the error of the sum of ``squares``, in addition to that of sums in float64.
        """
        rounding += 16 * float(np.finfo(np.float64).eps) * total
        return cls._least(total - np.cumsum(squares), total, tol, rounding)

    @classmethod
    def of_all(cls, s: Float64, tol: float) -> Truncation:
        """Keep the fewest of all singular values ``s`` that leave out at most ``tol`` of the norm.

        The remainder is then a sum, not a difference.
        """
        remainders = np.append(np.cumsum(s[:0:-1] ** 2)[::-1], 0.0)
        total = float((s**2).sum())
        return cls._least(remainders, total, tol, (len(s) * float(np.finfo(np.float64).eps)) ** 2 * total)

    @classmethod
    def _least(cls, remainders: Float64, total: float, tol: float, rounding: float) -> Truncation:
        # If the remainder is as small as rounding, more components are not known to be better.
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
        Its leading eigenpairs. The last one represents the part of the spectrum that is not wanted.
    image : (n, l)
        A'A Q w.
    residual : (l,)
        Squared norms of A'A Q w - theta Q w. Formed, not taken from small matrices: as the difference
        of squares it would be lost to rounding once the values span three orders of magnitude.
    rank : int
        Number of leading values wanted.
    outside : float
        Largest squared singular value outside the basis, where known; counts if above the last of ``theta``.

    Notes
    -----
    The error of an eigenvalue is at most its squared residual over the gap to those not wanted (Kato and
    Temple; Parlett, The Symmetric Eigenvalue Problem, 1980, section 10.1), where the gap is our own
    estimate of it.

    The part of ``products`` that is not symmetric is rounding of the passes. Turned into the basis of Ritz
    vectors, the norm of its row i says how far the i-th value can be trusted. A bound in terms of eps (s1 /
    s)^2 would be right and useless: rounding errors of rows are independent and mostly cancel.
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
    """Relative errors (l,) of values that their residuals do not separate from others of a narrow cluster.

    ``theta`` (l,) are squared values, ``residuals`` (l,) norms; values outside such a cluster get 0. A Ritz
    vector is then a mixture of the cluster's vectors. The gap to values beyond the cluster says nothing of
    the order within it, and other members may be outside the basis. Copies of one value differ by the second
    order at most.
    """
    apart = np.abs(theta[:, None] - theta)
    spread = np.where(apart <= residuals[:, None] + residuals, apart, 0.0).max(axis=1, initial=0.0)
    narrow = (residuals <= CLUSTER * theta) & (theta > 0)
    return np.where(narrow, spread / np.where(narrow, 2 * theta, 1.0), 0.0)


def largest_eigenvalues(
    theta: Float64, couplings: Float64, parts: Float64, squares: Float64, least: float, lower: Float64
) -> Float64:
    """Upper bounds of the leading eigenvalues of A'A, from a basis Q and a sketch of rows.

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
        Squared singular value assumed for directions outside both Q and V.
    lower : (k,)
        Lower bounds of the k leading eigenvalues, decreasing.

    Returns
    -------
    (k,)
        Infinite for values whose lower bound is not above all ``squares``: another one may be in their place.

    Notes
    -----
    Derived at the head of this module.

    One eigenvalue problem serves all values of about the same gap, as a smaller t makes the bound larger.
    Small gaps have narrower bins, as those values are the last to converge. Work 4/3 p^3 + 2 l p^2 flops
    for each problem.
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
    """Largest relative errors of lower bounds ``values`` (k,), times ``SKETCH_ALLOWANCE``; 1 if unknown.

    ``upper`` (k,) are upper bounds of squared singular values, infinite if unknown.
    """
    known = np.isfinite(upper) & (upper > 0)
    bound = np.sqrt(np.where(known, upper, 1.0))
    return np.where(known, np.clip(SKETCH_ALLOWANCE * (1.0 - values / bound), 0.0, 1.0), 1.0)


def estimated_errors(history: Sequence[Ritz], bound: Float64 | None = None) -> Float64:
    """Estimated relative errors (rank,) of the last ``half_step_values``, from all passes so far.

    ``history`` has the estimates after each pass. ``bound`` (rank,) holds the errors by
    ``largest_eigenvalues``, where a sketch of rows bounds what is outside the basis.

    Notes
    -----
    The smaller of two estimates. The bound is 1 while values outside the basis may be as large as those
    wanted, which lasts long where spectra are flat. The other estimate treats the basis as a sample of the
    spectrum. It is twice the second-order bound of the last pass, or the rest of a geometric series whose
    terms are the rises of the last two passes (Aitken) where that is smaller, but never below the
    second-order bound itself. The series alone is not enough: values dwell on a plateau, as of a cluster,
    before they rise again, and the series then reports that they have converged. Residuals alone are not
    enough while a cluster wider than the block enters the basis, since they do not show the rest of it.
    Where a value rises by more than half of its previous rise, a series leaves at least that rise, and no
    smaller error is claimed. After a single pass, with nothing to compare it with, only the bound counts.
    """
    last_pass = history[-1]
    # A bound of the error of ``values``, less the known rise, bounds that of ``half_step_values``.
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
    """Estimated relative errors (rank,) of ``ritz.half_step_values`` after a pass of subspace iteration.

    ``ritz`` describes the block that was multiplied, ``pair`` the basis of that block and the one before.
    ``bound`` (rank,) holds the errors by ``largest_eigenvalues`` for the basis of both, where a sketch of
    rows bounds what is outside.

    Notes
    -----
    The pair holds two steps of a Krylov space that starts from the block before, so its values are better
    lower bounds. The distance to them is known, and only their own error is estimated, by residual and
    gap. A single block is not enough. Its smallest value lies far below the first eigenvalue that is not
    wanted while the spectrum is flat, so the gap is found too large. A series through its values (Aitken)
    is too short, because convergence slows down here: directions that fade fast go first. After one pass
    there is no pair: only the bound counts, or without one an estimate with twice the safety.
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
    """Errors (k,): the smaller of ``bound`` and the largest of ``estimate``; ``bound`` itself if ``alone``.

    Without a bound, ``estimate``. The estimate of a single value is a guess, and may be flattered by chance,
    or by values in the wrong order; the largest of all is not.
    """
    if bound is None:
        return estimate
    return bound if alone else np.minimum(estimate.max(initial=0.0), bound)


def order_errors(estimate: Float64, values: Float64) -> Float64:
    """Clip errors (k,) to [0, 1]; raise each to at least that of any larger value, which converges first.

    ``values`` (k,) are decreasing. An error is also raised to that of a smaller value that may truly be
    larger: the two may be swapped.
    """
    errors: Float64 = np.clip(np.maximum.accumulate(estimate), 0.0, 1.0)
    for i in range(len(values) - 2, -1, -1):
        if values[i] <= values[i + 1] * (1 + errors[i + 1]):
            errors[i] = max(errors[i], errors[i + 1])
    return errors


def errors_of_remainder(s: Float64, remainder: float) -> Float64:
    """Largest relative errors of ``s`` (k,) if each square lacks up to ``remainder``; 0 where s is 0."""
    return np.asarray(np.sqrt(1 + remainder / np.where(s > 0, s, np.inf) ** 2) - 1)


def rounding(s: Float64, dtype: np.dtype[Any]) -> Float64:
    """Relative rounding errors (k,) of singular values ``s`` found backward stably: eps s[0] / s.

    eps is that of ``dtype``; the error of a value of 0 is 0.
    """
    eps = float(np.finfo(dtype).eps)
    return np.where(s > 0, eps * s[0] / np.where(s > 0, s, 1.0), 0.0)
