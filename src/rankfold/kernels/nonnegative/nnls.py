"""Nonnegative least squares, a row at a time: the subproblem of both factors of an NMF.

Rows w of W minimize |x - w H|^2 over w >= 0 independently of each other: w G w' / 2 - b w', with G = H H' and
b = x H'. Coordinate descent improves many rows side by side; block principal pivoting solves each exactly,
also below an upper bound or on the simplex.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

RETRIES = 3
"""Number of exchanges of all infeasible coordinates of a row that may fail to lower the number of these.
After them one coordinate at a time is exchanged, until their number falls."""

EXCHANGES = 5
"""Largest number of exchanges for each coordinate: a row of k coordinates may take ``EXCHANGES * k``."""

RIDGE = 1e-14
"""Share of each diagonal entry that is added to it, which makes a singular Gram matrix regular."""

STEPS = 20
"""Largest number of steps of the active-set method for each coordinate: ``STEPS * k`` for a row of k
coordinates, if exchanges do not solve it."""


@kernel
def descend_rows(gram: Array, b: Array, *, w: Array, sweeps: int) -> None:
    """Improve rows w for ``w gram w' / 2 - b w'``, w >= 0, by cyclic coordinate descent (HALS), in place.

    Parameters
    ----------
    gram : (k, k) float32 or float64, symmetric, diagonal not negative
    b : (r, k) of that type
    w : (r, k) of that type, not negative; written
    sweeps : int, >= 1
        Over all k coordinates of each row.

    Notes
    -----
    Work 2 r k^2 flops a sweep. A row depends on no other: which rows are in one call changes nothing. A
    coordinate whose diagonal is zero is left alone: its component is dead.

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
def solve_rows(
    gram: Float64, b: Float64, *, w: Float64, upper: float = np.inf, simplex: bool = False
) -> None:
    """Minimize ``w gram w' / 2 - b w'`` for each row w within bounds, exactly, by block principal pivoting.

    Parameters
    ----------
    gram : (k, k) float64, symmetric positive semidefinite
    b : (r, k) float64
    w : (r, k) float64, not negative; written
        On entry a guess: coordinates that are zero, or at ``upper``, are there in the first trial solution.
    upper : float, > 0, may be inf
        Rows end in ``0 <= w <= upper``.
    simplex : bool
        Rows end in ``w >= 0``, ``sum(w) == 1`` up to roundings; requires that ``upper`` is inf.

    Notes
    -----
    Work about k^3 / 3 flops for each exchange, 2 to 5 of them a row, more where there are upper bounds. A
    ridge of 1e-14 of each diagonal makes a singular Gram matrix regular, and the tolerance for zero follows
    the diagonal too: the scale of components changes nothing. A row that ``EXCHANGES`` do not solve is left
    to an active-set method that changes one coordinate at a time.

    References
    ----------
    Kim, Park, Fast nonnegative matrix factorization: an active-set-like method and comparisons, SIAM J. Sci.
    Comput. 33(6), 2011, algorithm 2; rows are solved one by one, since equal supports are rare. Judice,
    Pires, A block principal pivoting algorithm for large-scale strictly monotone linear complementarity
    problems, Computers & Operations Research 21(5), 1994: upper bounds. The multiplier of the sum is
    eliminated in each solve.
    """
    k = len(gram)
    ridge_gram, sizes = gram + np.diag(ridge_of(gram)), np.sqrt(np.diag(gram) + ridge_of(gram))
    for row, right in enumerate(b):
        largest = np.abs(np.divide(right, sizes, out=np.zeros(k), where=sizes > 0)).max(initial=0.0)
        zero = 1e-12 * max(largest, float(sizes.min()) if simplex else 0.0) * sizes
        pivoting = _Row(ridge_gram, right, zero, upper, simplex)
        if not pivoting.exchange(w[row]):
            pivoting.step(w[row])


def ridge_of(gram: Array) -> Array:
    """(k,) ridge that makes a (k, k) Gram matrix regular when it is added to the diagonal.

    An entry is ``RIDGE`` times that of the diagonal; where that is not positive, times the diagonal's mean.
    """
    diagonal = gram.diagonal()
    ridge: Array = RIDGE * (diagonal + (diagonal <= 0) * diagonal.mean())
    return ridge


@dataclass(frozen=True, slots=True)
class _Row:
    """The quadratic program of one row w: least ``w G w' / 2 - b w'`` within bounds.

    G is ``gram``, (k, k), and b is ``right``, (k,); bounds are those of ``solve_rows``.
    """

    gram: Float64
    right: Float64
    zero: Float64
    """(k,) magnitudes up to which slopes count as zero."""

    upper: float
    simplex: bool

    def bounds_met(self, w: Float64) -> tuple[Array, Array]:
        """Masks of coordinates at the upper bound, and of free ones."""
        return (w > 0) & (w >= self.upper), (w > 0) & (w < self.upper)

    def solve(self, free: Array, top: Array) -> tuple[Float64, Float64]:
        """Solve for the coordinates of mask ``free``, those of ``top`` at ``upper``, the others at zero.

        Returns all coordinates (k,), and all slopes (k,); those of free coordinates are zero.
        """
        x = np.zeros(len(free))
        x[top] = self.upper
        inner, multiplier = self.gram[np.ix_(free, free)], 0.0
        x[free] = np.linalg.solve(inner, self.right[free] - self.gram[np.ix_(free, top)] @ x[top])
        if self.simplex:
            ones = np.linalg.solve(inner, np.ones(len(inner)))
            multiplier = (x.sum() - 1) / ones.sum()
            x[free] -= multiplier * ones
        return x, self.gram @ x - self.right + multiplier

    def exchange(self, w: Float64) -> bool:
        """Exchange coordinates between free and bound, from the bounds ``w`` is at, until all are feasible.

        Returns True if that succeeds, and then writes the solution into ``w``.
        """
        k = len(w)
        top, free = self.bounds_met(w)
        retries, fewest = RETRIES, k + 1
        for _ in range(EXCHANGES * k):
            if self.simplex and not free.any():
                free[self._vertex()] = True
            x, slope = self.solve(free, top)
            wrong = np.where(
                free, (x < 0) | (x > self.upper), np.where(top, slope > self.zero, slope < -self.zero)
            )
            if not wrong.any():
                w[...] = x
                return True
            if wrong.sum() < fewest:
                fewest, retries = int(wrong.sum()), RETRIES
            elif retries:
                retries -= 1
            else:
                wrong[: int(np.flatnonzero(wrong)[-1])] = False
            top, free = (top & ~wrong) | (wrong & free & (x > self.upper)), free ^ wrong
        return False

    def step(self, w: Float64) -> None:
        """Solve for ``w``, in place, by an active set, one coordinate at a time.

        ``w`` stays feasible and gets no worse.
        """
        np.minimum(w, self.upper, out=w)
        if self.simplex:
            w[...] = w / w.sum() if w.sum() > 0 else np.arange(len(w)) == self._vertex()
        top, free = self.bounds_met(w)
        for _ in range(STEPS * len(w)):
            x, slope = self.solve(free, top)
            low, high = free & (x < 0), free & (x > self.upper)
            lengths = np.ones(len(w))
            lengths[low] = w[low] / (w[low] - x[low])
            lengths[high] = (self.upper - w[high]) / (x[high] - w[high])
            first = int(np.argmin(lengths))
            if lengths[first] < 1:
                w[free] += lengths[first] * (x[free] - w[free])
                w[first], free[first], top[first] = self.upper if high[first] else 0.0, False, high[first]
                continue
            w[...] = x
            worst = np.where(free, 0, np.where(top, slope, -slope) - self.zero)
            if not worst.max() > 0:
                return
            first = int(np.argmax(worst))
            free[first], top[first] = True, False

    def _vertex(self) -> int:
        """Coordinate that is 1 at the vertex of the simplex with the lowest objective; others are 0 there."""
        return int(np.argmin(np.diag(self.gram) / 2 - self.right))
