"""Search for values that an iteration from one random block cannot see: copies of repeated values.

A Krylov space that begins with b random vectors holds at most b copies of a value, and their residuals do not
show the others. There can be others only where b values or more coincide, and they matter only where they are
larger than the last value wanted. There a separate Lanczos process, from a new random block, runs in the
space outside the basis, where a missing copy is an eigenvector. It keeps no basis: two blocks and a band
matrix are enough for values alone.

The probability that a search misses a copy. Let D be the operator outside the basis, of size N, x an
eigenvector of length 1 for the value v, V_1, V_2, ... the blocks of the process, and y_j = V_j' x. The
recurrence
D V_j = V_j+1 B_j+1 + V_j A_j + V_j-1 B_j' gives

    B_j+1' y_j+1 = (v - A_j) y_j - B_j y_j-1,       so  y_j = P_j y_1  with matrices P_j that are known.

The blocks are orthonormal, so the squares of all y_j sum to 1 at most: y_1' M y_1 <= 1 with
M = sum P_j' P_j, which grows fast where v lies above the Ritz values. So y_1 is no longer than l^(-1/2), l
the smallest eigenvalue of M. M depends on the start, and on x itself, so only the length of y_1 counts. The
first block spans a random subspace of p dimensions, so y_1 has a density of
Gamma(N/2) / (pi^(p/2) Gamma((N-p)/2)) at most, and the chance that it is so short is no more than that times
the volume of a ball:

    P <= Gamma(N/2) / (Gamma((N-p)/2) Gamma(p/2 + 1)) l^(-p/2).

The search ends when that is below ``MISS_PROBABILITY``, or when a Ritz value rises above the last value
wanted. It holds for every spectrum, and nothing is random but the start.

van Dorsselaer, Hochstenbach, van der Vorst, Computing probabilistic bounds for extreme eigenvalues of
symmetric matrices with the Lanczos method, SIAM J. Matrix Anal. Appl. 22, 2000, bound by the polynomial of
one vector; ours are those of a block.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import scipy.linalg

from rankfold.methods.svd.in_memory.basis import LanczosBasis, RitzPairs

Float64 = npt.NDArray[np.float64]

MISS_PROBABILITY = 1e-6
"""Largest probability that one search misses a copy of a value that it was made for."""

CLUSTER = (1e-9, 1e-4)
"""Smallest and largest limit of the relative difference between values that count as copies of one."""

TOLERANCES = 32
"""The limit in multiples of the tolerance: values farther apart are resolved before they count as known."""

KNOWN = 0.03
"""Residual, relative to the distance from the value sought, up to which a search stays outside a pair."""

NEGLIGIBLE = 1e-12
"""Length of a new direction, relative to the operator, below which it is dropped."""


def repeated_value(theta: Float64, copies: int, tol: float) -> tuple[float, float]:
    """Largest and smallest of the lowest ``copies`` nearly equal values above the last one; zeros if none.

    Parameters
    ----------
    theta : (k,) decreasing eigenvalues that were found
    copies : int
        Largest number of copies of one value that the iteration could find.
    tol : float
        Relative error at which a value counts as known.

    >>> repeated_value(np.array([3.0, 2.0, 2.0, 2.0, 1.0]), 3, 1e-6)
    (2.0, 2.0)
    >>> repeated_value(np.array([3.0, 2.0, 2.0, 2.0, 1.0]), 4, 1e-6)
    (0.0, 0.0)
    """
    if len(theta) < copies:
        return 0.0, 0.0
    width = float(np.clip(TOLERANCES * tol, *CLUSTER))
    first, last = theta[: len(theta) - copies + 1], theta[copies - 1 :]
    together = np.flatnonzero((first - last <= width * first) & (first > theta[-1]))
    if not len(together):
        return 0.0, 0.0
    return float(first[together[-1]]), float(last[together[-1]])


@dataclass(slots=True)
class OutsideSearch:
    """Block Lanczos outside a basis, for eigenvalues alone."""

    basis: LanczosBasis
    known: Float64
    """(width, count) combinations of the basis that the process stays orthogonal to."""

    value: float
    """Eigenvalue of which a copy may be outside the basis."""

    block: Float64
    """(short, p) orthonormal, outside the basis: what is multiplied next."""

    before: Float64
    """(short, p') block that was multiplied last; without columns at first."""

    link: Float64
    """(p, p') B: coefficients of the image of the previous block on this block."""

    columns: int
    """Number of columns of the first block."""

    parts: tuple[Float64, Float64]
    """Matrices P of the block and of the one before, (p, columns) and (p', columns): see the module."""

    squares: Float64
    """(columns, columns) M: the sum of P'P so far."""

    band: list[tuple[Float64, Float64]] = field(default_factory=list)
    """Blocks of the band matrix (projected operator) of the process: for each step A, and B to its left."""

    @classmethod
    def begin(
        cls, basis: LanczosBasis, pairs: RitzPairs, rank: int, value: float, columns: int
    ) -> OutsideSearch:
        """Start from random vectors outside the wanted pairs and other pairs that are known well enough.

        The part of an eigenvector of ``value`` along a Ritz vector is at most the residual over the
        difference of values.
        """
        far = pairs.residuals <= KNOWN * np.maximum(value - pairs.values, 0.0)
        far[:rank] = True
        known = pairs.vectors[:, far]
        drawn = basis.outside(basis.outside(basis.draw(columns), known), known)
        q, none, one = np.linalg.qr(drawn)[0], np.zeros((len(drawn), 0)), np.eye(columns)
        parts = one, np.zeros((0, columns))
        return cls(basis, known, value, q, none, np.zeros((columns, 0)), columns, parts, one.copy())

    def step(self, apply: Callable[[Float64], Float64]) -> None:
        """Multiply the block, and extend the band matrix and the bound of the probability.

        Work 4 short (width of the basis) p flops in addition to the product.
        """
        block = self.block
        z = self.basis.outside(apply(np.ascontiguousarray(block)), self.known)
        own = block.T @ z
        z -= block @ own + self.before @ self.link.T
        z -= block @ (block.T @ z)
        self.band.append(((own + own.T) / 2, self.link))
        q, r, order = scipy.linalg.qr(z, mode="economic", pivoting=True, check_finite=False)
        count = int((np.abs(np.diag(r)) > NEGLIGIBLE * self.basis.size).sum())
        link = np.zeros((count, block.shape[1]))
        link[:, order] = r[:count]
        part = self.value * self.parts[0] - self.band[-1][0] @ self.parts[0] - self.link @ self.parts[1]
        part = np.asarray(np.linalg.lstsq(link.T, part, rcond=None)[0], np.float64)
        self.parts, self.squares = (part, self.parts[0]), np.asarray(self.squares + part.T @ part)
        self.before, self.block, self.link = block, q[:, :count], link

    def ritz_values(self) -> Float64:
        """The largest Ritz values, as many as the first block has columns, decreasing."""
        edges = np.cumsum([0, *(len(own) for own, _ in self.band)])
        size, most = int(edges[-1]), 2 * self.columns
        lower = np.zeros((most, size))  # row i and column j of the matrix are at [i - j, j]
        for (own, link), first in zip(self.band, edges[:-1], strict=True):
            for block, left in ((own, first), (link, first - link.shape[1])):
                i, j = np.indices(block.shape).reshape(2, -1)
                below = first + i >= left + j
                i, j = i[below], j[below]
                lower[first + i - left - j, left + j] = block[i, j]
        span = (max(size - self.columns, 0), size - 1)
        stored = lower[: min(most, size)]
        values = scipy.linalg.eigvals_banded(
            stored, lower=True, select="i", select_range=span, check_finite=False
        )
        if len(values) < span[1] - span[0] + 1:  # LAPACK may leave out some of many equal values
            values = scipy.linalg.eigvals_banded(stored, lower=True, check_finite=False)[-self.columns :]
        return np.asarray(values[::-1])

    def chance(self) -> float:
        """Upper bound of the probability that ``value`` exists outside the basis but was not found."""
        if not self.block.shape[1]:
            return 0.0  # all that the first block can reach has been seen
        size, p = len(self.basis.k) - self.known.shape[1], self.columns
        if size < p + 2:
            return 1.0
        smallest = max(float(np.linalg.eigvalsh(self.squares)[0]), 1.0)
        volume = -math.lgamma(p / 2 + 1) - p / 2 * math.log(smallest)
        return math.exp(min(math.lgamma(size / 2) - math.lgamma((size - p) / 2) + volume, 0.0))
