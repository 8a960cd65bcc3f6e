"""Block Lanczos on the Gram matrix of the shorter side, until its leading values have settled.

A product with one vector costs almost as much as one with eight, for most of it is waiting for numbers of the
matrix; a wider block multiplies more vectors than are needed. Blocks of eight were the best of 1 to 64 on
matrices of cells by genes, documents by words, and graphs.

A small residual vouches for a value, but not that no other was missed: of a value that is there more often
than a block has columns, a Krylov space that begins with that block holds as many copies as columns. So
before the end random vectors join, which see what the iteration cannot, and again if they find something.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.gaussian import gaussian_rows
from rankfold.methods.random_keys import Purpose
from rankfold.methods.svd.in_memory.basis import LanczosBasis, RitzPairs

Float64 = npt.NDArray[np.float64]

BLOCK = 8
"""Columns of a block."""

MOST_PRODUCTS = 200
"""Columns that are multiplied at most, for each column that the basis has room for."""

SETTLED = 0.03
"""Residual, relative to its value, at which values beyond those wanted count as settled, to which gaps are
measured."""

ROUNDING = 64 * float(np.finfo(np.float64).eps)
"""Residual, relative to the largest value, below which more products tell no more."""

NEAR = 1e1
"""Errors, in units of the tolerance, that some blocks more will take."""

PROBE_BLOCKS = 3
"""Products of random vectors after which they have seen enough. They join some blocks before the end."""


@dataclass(frozen=True, slots=True)
class RitzVectors:
    """Approximate eigenpairs of the Gram matrix."""

    squares: Float64
    """(k,) squared singular values, from below."""

    vectors: Float64
    """(short, k) orthonormal."""

    residuals: Float64
    """(k,) length of C u - theta u."""

    errors: Float64
    """(k,) estimated relative error of each singular value, rounding left out."""

    outside: float
    """Largest squared singular value beyond those, as far as the basis tells."""

    convergence: list[float]
    """Largest of the errors at each look."""

    products: int
    """Columns that were multiplied."""


def room(rank: int, short: int) -> int:
    """Columns that the basis has at most: four for each component, and eight blocks at least.

    >>> room(50, 2700), room(10, 2700), room(10, 40)
    (200, 74, 40)
    """
    return min(short, max(4 * rank, rank + 8 * BLOCK))


def block_lanczos(
    apply: Callable[[Float64], Float64],
    short: int,
    rank: int,
    tol: float,
    seed: int,
    heard: Callable[[float], None],
) -> RitzVectors:
    """The ``rank`` leading eigenpairs of a positive semidefinite operator.

    Parameters
    ----------
    apply : callable
        C times (short, b) vectors, in new memory.
    short : int
    rank : int, at most short - BLOCK
    tol : float
        Estimated relative error of a singular value at which it counts as known.
    seed : int
    heard : callable
        Called with the estimated error at each look.

    Notes
    -----
    Products with D columns, between 2 and 5 for each component where the spectrum is not flat; work beside
    them 4 short D (width of the basis) flops and as much again for restarts; memory 8 short (room + 3 BLOCK).

    References
    ----------
    Golub, Underwood, The block Lanczos method for computing eigenvalues, in Mathematical Software III, 1977;
    Zhou, Saad, Block Krylov-Schur method for large symmetric eigenvalue problems, Numer. Algorithms 47, 2008.
    Unlike them we orthogonalize against all of the basis once, after what is known to be large is off.
    """
    most = room(rank, short)
    drawn = gaussian_rows(seed, Purpose.RANDOM_BLOCK, (0, short), BLOCK)
    basis, progress = LanczosBasis.of(drawn, most), Progress(rank, tol, Probes(seed, rank, tol))
    while True:
        progress.products += basis.width - basis.start
        basis.multiply(apply)
        progress.ends = basis.is_whole or progress.products >= MOST_PRODUCTS * most
        if progress.looks_at(basis):
            pairs = basis.ritz(max(min(rank + BLOCK, short), (rank + basis.width) // 2))
            if progress.is_enough(basis, pairs):
                return progress.answer(basis, pairs)
            heard(progress.convergence[-1])
            if not basis.has_room:
                basis.restart(pairs.leading(most - basis.following.shape[1]))
        basis.append()


@dataclass(slots=True)
class Progress:
    """How far the values have come, and when to look again."""

    rank: int
    tol: float
    probes: Probes
    products: int = 0
    """Columns that were multiplied."""

    ends: bool = False
    """Whether there is nothing to multiply, or there has been enough."""

    errors: Float64 = field(default_factory=lambda: np.zeros(0))
    """(rank,) as estimated when all values were looked at."""

    convergence: list[float] = field(default_factory=list)
    """Largest of them each time."""

    def looks_at(self, basis: LanczosBasis) -> bool:
        """Whether all values are worth a look: the last one is, which is the last to settle."""
        if self.ends or not basis.has_room:
            return True
        if basis.width < max(self.rank + BLOCK, 2 * self.rank):
            return False
        if self.probes.count:
            return self.products >= self.probes.end
        last = basis.ritz_pair(self.rank - 1)
        exact = last.residuals[0] <= ROUNDING * basis.size
        return bool(exact or _errors_of(last, 1)[0] <= NEAR * self.tol)

    def is_enough(self, basis: LanczosBasis, pairs: RitzPairs) -> bool:
        """Whether more products would bring no more; vectors join the next block where that may soon be."""
        self.errors = _errors_of(pairs, self.rank)
        self.convergence.append(float(self.errors.max()))
        settled = _has_settled(pairs, self.errors, self.rank, self.tol)
        if self.ends or (settled and self.probes.found_nothing(pairs, self.products)):
            return True
        if settled or self.convergence[-1] <= NEAR * self.tol:
            self.probes.add(basis, pairs, self.errors, self.products)
        return False

    def answer(self, basis: LanczosBasis, pairs: RitzPairs) -> RitzVectors:
        """What has been found."""
        wanted, outside = pairs.leading(self.rank), pairs.beyond(self.rank)
        u = basis.combine(wanted.vectors)
        found = (wanted.values, u, wanted.residuals, self.errors, outside)
        return RitzVectors(*found, self.convergence, self.products)


@dataclass(slots=True)
class Probes:
    """Random vectors that join the iteration when it is about to end, to find what it cannot see."""

    seed: int
    rank: int
    tol: float
    count: int = 0
    before: Float64 = field(default_factory=lambda: np.zeros(0))
    """(rank,) what the values may rise to if nothing new is found."""

    end: int = 0
    """Products after which the last of them has seen enough."""

    def add(self, basis: LanczosBasis, pairs: RitzPairs, errors: Float64, products: int) -> None:
        """Let vectors join the next block, unless the last ones have not seen enough yet."""
        if self.count and (products < self.end or not self._rises(pairs)):
            return
        room_left = basis.k.shape[1] - basis.following.shape[1] - len(pairs.values)
        columns = min(BLOCK, room_left, len(basis.k) - basis.width - basis.following.shape[1])
        if columns > 0:
            rows = (self.count * len(basis.k), (self.count + 1) * len(basis.k))
            basis.widen(gaussian_rows(self.seed, Purpose.LANCZOS_PROBES, rows, BLOCK)[:, :columns])
        self.count += 1
        self.end = products + PROBE_BLOCKS * basis.following.shape[1] * (columns > 0)
        most = pairs.values[: self.rank] * (1 + 4 * np.maximum(errors, self.tol))
        self.before = most + ROUNDING * pairs.values[0] if columns > 0 else np.full(self.rank, np.inf)

    def found_nothing(self, pairs: RitzPairs, products: int) -> bool:
        """Whether vectors have joined, have seen enough, and no value has risen since by what is new."""
        return self.count > 0 and products >= self.end and not self._rises(pairs)

    def _rises(self, pairs: RitzPairs) -> bool:
        return bool((pairs.values[: self.rank] > self.before).any())


def estimated_errors(theta: Float64, residuals: Float64, outside: float) -> Float64:
    """Estimated relative errors of singular values, from Ritz values of their squares and their residuals.

    Parameters
    ----------
    theta, residuals : (k,)
    outside : float
        The largest square that is not wanted.

    Notes
    -----
    An eigenvalue lies within the residual r of a Ritz value, and within r^2 / gap where the gap is that to
    the values that are not wanted (Kato and Temple; Parlett, The Symmetric Eigenvalue Problem, 1980, section
    10.1). Of the singular value it is half of that, relatively.
    """
    gap = np.maximum(theta - outside, np.maximum(residuals, np.finfo(np.float64).tiny))
    error = np.minimum(residuals, residuals**2 / gap)
    relative = np.where(error > 0, 1.0, 0.0)
    np.divide(error, 2 * theta, out=relative, where=theta > error)
    return relative


def _errors_of(pairs: RitzPairs, rank: int) -> Float64:
    return estimated_errors(pairs.values[:rank], pairs.residuals[:rank], pairs.beyond(rank))


def _has_settled(pairs: RitzPairs, errors: Float64, rank: int, tol: float) -> bool:
    """Whether more products would bring no more."""
    values, _, residuals = pairs
    exact = residuals <= ROUNDING * values[0]
    beyond = exact[rank:] | (residuals[rank:] <= SETTLED * values[rank:])
    return bool(((errors <= tol) | exact[:rank]).all() and beyond[:BLOCK].all())
