"""Block Lanczos on the Gram matrix of the shorter side, until its leading values have settled.

A product with one vector costs almost as much as one with eight, since most of it is waiting for numbers of
the matrix; a wider block multiplies more vectors than are needed. Blocks of eight were the best of 1 to 64
on matrices of cells by genes, documents by words, and graphs.

A small residual proves that a value is right, but not that no other was missed. If a value has more copies
than a block has columns, a Krylov space that begins with that block holds only as many copies as columns.
So before the end random vectors probe what the iteration cannot see, and again if they find something.

Search for values that an iteration from one random block cannot see: copies of repeated values.

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

from rankfold.methods.svd.error_estimates import order_errors
from rankfold.methods.svd.in_memory.basis import LanczosBasis, RitzPairs

Float64 = npt.NDArray[np.float64]

TINY = float(np.finfo(np.float64).tiny)

BLOCK = 8
"""Number of columns of a block."""

MOST_PRODUCTS = 200
"""Largest number of columns to multiply by the operator, for each column that the basis has room for."""

MOST_FOR_COPIES = 8
"""Largest number of columns multiplied to find copies, as a multiple of those multiplied until the first was
seen."""

SETTLED = 0.03
"""Residual, relative to its value, at which values beyond those wanted count as settled: gaps are measured
to these values."""

ROUNDING = 64 * float(np.finfo(np.float64).eps)
"""Residual, relative to the largest value, up to which more products do not improve a value."""

PROBE_BLOCKS = 3
"""Number of products with a block of probing vectors after which a probe ends, unless a value may still
rise."""

MOSTLY = 0.5
"""Share of a Ritz vector in the span of probing vectors from which on it counts as found by them."""


@dataclass(frozen=True, slots=True)
class RitzVectors:
    """Approximate leading eigenpairs of the Gram matrix C of the shorter side, and how they were found."""

    squares: Float64
    """(k,) squared singular values, as lower bounds."""

    vectors: Float64
    """(short, k) orthonormal eigenvectors."""

    residuals: Float64
    """(k,) norm of C u - theta u, with C the Gram matrix, theta a value and u its vector."""

    errors: Float64
    """(k,) estimated relative error of each singular value, rounding left out."""

    outside: float
    """Largest squared singular value after the first k, as the basis estimates it."""

    convergence: list[float]
    """Largest estimated relative error, each time that all values were estimated."""

    products: int
    """Number of columns that were multiplied by the operator."""

    least: float = 0.0
    """Smallest eigenvalue seen: see ``LanczosBasis``."""

    negative: int = 0
    """Number of negative eigenvalues seen, of an operator that should have none: see ``LanczosBasis``."""


def room(rank: int, short: int) -> int:
    """Largest number of columns of the basis: four for each component, and at least eight blocks beyond the
    rank.

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
    most_products: int | None = None,
) -> RitzVectors:
    """The ``rank`` leading eigenpairs of a symmetric operator; values below zero become 0.

    Parameters
    ----------
    apply : callable, C times (short, b) vectors in new memory
    short : int
        Length of the vectors.
    rank : int, at most short - BLOCK
    tol : float
        Estimated relative error of a singular value (root of an eigenvalue) at which it counts as known.
    seed : int
    heard : callable, called with the largest estimated error each time it is found
    most_products : int, optional
        Largest number of columns to multiply; by default ``MOST_PRODUCTS`` for each of the basis.

    Notes
    -----
    Products with D columns, between 2 and 5 for each component where the spectrum is not flat; other work
    4 short D (width of the basis) flops and as much again for restarts; memory 8 short (room + 3 BLOCK).

    References
    ----------
    Golub, Underwood, The block Lanczos method for computing eigenvalues, in Mathematical Software III, 1977;
    Zhou, Saad, Block Krylov-Schur method for large symmetric eigenvalue problems, Numer. Algorithms 47, 2008.
    Unlike them we orthogonalize against all of the basis once, after subtracting the parts known to be large.
    """
    most = room(rank, short)
    basis = LanczosBasis.begin(short, BLOCK, most, seed)
    allowed = MOST_PRODUCTS * most if most_products is None else most_products
    progress = Progress(rank, tol, allowed, Probes(rank, tol))
    while True:
        progress.products += basis.block_columns
        basis.multiply(apply)
        progress.ends = basis.is_whole or progress.products >= progress.allowed
        if progress.looks_at(basis):
            pairs = basis.ritz(max(min(rank + BLOCK, short), (rank + basis.width) // 2))
            if progress.is_enough(basis, pairs, apply):
                return progress.answer(basis, pairs)
            heard(progress.convergence[-1])
            if not basis.has_room:
                basis.restart(pairs.leading(most - basis.block_columns))
                progress.probes.first = basis.width


@dataclass(slots=True)
class Progress:
    """Progress of the iteration: estimated errors, and decisions when to estimate again and when to stop."""

    rank: int
    tol: float
    allowed: int
    """Largest number of columns that may be multiplied."""

    probes: Probes
    products: int = 0
    """Number of columns that were multiplied."""

    ends: bool = False
    """True if nothing is left to multiply, or the allowed products are used up."""

    settled: bool = False
    """True if the values had settled when they were last estimated."""

    errors: Float64 = field(default_factory=lambda: np.zeros(0))
    """(rank,) relative errors when all values were last estimated."""

    convergence: list[float] = field(default_factory=list)
    """Largest error, for each time that all values were estimated."""

    searches: int = 0
    """Number of searches that found missing copies of a value."""

    may_miss: bool = False
    """True if a search had to end before the probability that it misses a copy was small enough."""

    lower: Float64 = field(default_factory=lambda: np.zeros(0))
    """(rank,) lower bounds of the wanted values, if a search has found missing ones; else empty."""

    def looks_at(self, basis: LanczosBasis) -> bool:
        """True if it is time to estimate all values.

        That is when the last wanted value, which settles last, has settled; when the basis is full or the
        whole space; and when no more products are allowed.
        """
        if self.ends or not basis.has_room:
            return True
        if basis.width < max(self.rank + BLOCK, 2 * self.rank):
            return False
        if self.products < self.probes.end:
            return False
        last = basis.ritz_pair(self.rank - 1)
        if not last.values.size:  # LAPACK's syevr may find none of equal values, and give no error
            return True
        exact = last.residuals[0] <= ROUNDING * basis.size
        return bool(exact or self.probes.are_out or _errors_of(last, 1)[0] <= self.tol)

    def is_enough(self, basis: LanczosBasis, pairs: RitzPairs, apply: Callable[[Float64], Float64]) -> bool:
        """Estimate all values from ``pairs``; True if they have settled and probing vectors found no more."""
        self.errors = _errors_of(pairs, self.rank)
        self.convergence.append(float(self.errors.max()))
        risen = self._has_risen(pairs)
        if risen and not self.probes.are_out:
            basis.rejoin()
        settled = _has_settled(pairs, self.errors, self.rank, self.tol) and risen
        self.settled = settled
        if self.ends:
            return True
        if self.products >= self.probes.end:
            if self.probes.go_on(pairs, self.products):
                return False
            if settled and self.probes.found_nothing(pairs):
                return True
            self.probes.end_with(basis)
            if settled and (value := self._repeated(pairs)) and self._misses(basis, pairs, apply, value):
                return self.may_miss
            if settled:
                self.probes.begin(basis, pairs, self.errors, self.products)
        return False

    def _has_risen(self, pairs: RitzPairs) -> bool:
        """True if the values have reached the lower bounds that a search has found."""
        return bool((pairs.values[: len(self.lower)] >= self.lower).all())

    def _slack(self) -> float:
        """Relative difference of squares up to which a larger value does not matter to the claimed errors."""
        return float(np.clip(2 * self.errors.max(initial=0.0), ROUNDING, 2 * self.tol))

    def _least(self, theta: Float64) -> float:
        """Squared value that another has to exceed to replace the last of ``theta`` (rank,), those wanted."""
        return float(theta[-1]) * (1 + self._slack()) + ROUNDING * float(theta[0])

    def _repeated(self, pairs: RitzPairs) -> float:
        """The squared value, above the last one wanted, of which copies may be outside the basis, or 0."""
        theta = pairs.values[: self.rank]
        upper, lower = repeated_value(theta, BLOCK, self.tol)
        least = self._least(theta)
        if upper <= least:
            return 0.0
        if upper <= theta[-1] * (1 + self.tol) ** 2:
            return 0.0  # the claimed errors include it: see ``answer``
        return max(lower, least)

    def _misses(
        self, basis: LanczosBasis, pairs: RitzPairs, apply: Callable[[Float64], Float64], value: float
    ) -> bool:
        """True if a search finds copies of ``value`` that the basis lacks: see ``OutsideSearch``.

        Random vectors then join the next block and bring the copies in. If the allowed products are used up,
        the result is also True, and errors are raised to those that a missing copy would make.
        """
        theta = pairs.values[: self.rank]
        search = OutsideSearch.begin(basis, pairs, self.rank, value, BLOCK)
        while search.chance() > MISS_PROBABILITY:
            if self.products >= self.allowed:
                self._claim_missing(theta, value)
                return True
            self.products += search.block.shape[1]
            search.step(apply)
            found = search.ritz_values()
            if found[0] > self._least(theta):
                if not self.searches:
                    self.allowed = min(self.allowed, MOST_FOR_COPIES * self.products)
                self.searches += 1
                if self.searches > 2 * (2 + self.rank // BLOCK):
                    self._claim_missing(theta, float(found[0]))
                    return True
                # Half of the way is enough to know that the basis has found them.
                self.lower = (np.sort(np.append(theta, found))[::-1][: self.rank] + theta[-1]) / 2
                self.probes.join(basis, pairs)
                return True
        return False

    def _with_copies(self, theta: Float64) -> Float64:
        """(rank,) errors, raised to allow for copies of a repeated value that were not searched for."""
        upper, _ = repeated_value(theta, BLOCK, self.tol)
        if self._least(theta) < upper <= theta[-1] * (1 + self.tol) ** 2:
            return np.asarray(np.maximum(self.errors, np.sqrt(np.maximum(upper / theta, 1.0)) - 1))
        return self.errors

    def _claim_missing(self, theta: Float64, value: float) -> None:
        """Raise the errors to what they are if a copy of the squared ``value`` is missing; end the search."""
        self.errors = np.maximum(self.errors, np.sqrt(np.maximum(value / theta, 1.0)) - 1)
        self.convergence[-1], self.settled, self.may_miss = float(self.errors.max()), False, True

    def answer(self, basis: LanczosBasis, pairs: RitzPairs) -> RitzVectors:
        """The wanted eigenpairs with their estimated errors, from the Ritz pairs of the basis."""
        wanted, outside = pairs.leading(self.rank), pairs.beyond(self.rank)
        u = basis.combine(wanted.vectors)
        errors = self._with_copies(wanted.values)
        if not (self.settled or basis.is_whole):  # values beyond may rise, so gaps to them do not count
            by_residuals = np.where(wanted.residuals > 0, 1.0, 0.0)
            positive = wanted.values > 0
            np.divide(wanted.residuals, 2 * wanted.values, out=by_residuals, where=positive)
            errors = np.maximum(errors, np.minimum(by_residuals, 1.0))
        if not self._has_risen(pairs):  # twice, as ``lower`` is half of the way
            errors = np.maximum(errors, np.maximum(self.lower / np.maximum(wanted.values, TINY), 1.0) - 1)
        found = (wanted.values, u, wanted.residuals, order_errors(errors, np.sqrt(wanted.values)), outside)
        return RitzVectors(*found, self.convergence, self.products, basis.least, basis.negative)


@dataclass(slots=True)
class Probes:
    """Probes: random vectors, multiplied alone once values have settled, to find values that were missed."""

    rank: int
    tol: float
    count: int = 0
    """Number of probes made since a search last found something."""

    most: Float64 = field(default_factory=lambda: np.zeros(0))
    """(rank,) largest squared values that the wanted ones may reach if nothing new is found."""

    end: int = 0
    """Total number of columns multiplied at which the current probe ends."""

    are_out: bool = False
    """True while probing vectors are multiplied alone."""

    first: int = 0
    """Index of the first column of the basis that comes from probing vectors alone."""

    def begin(self, basis: LanczosBasis, pairs: RitzPairs, errors: Float64, products: int) -> None:
        """Begin a probe: continue with random vectors, if the basis has room and is not the whole space.

        ``errors`` (rank,) are those of the wanted values, ``products`` the columns multiplied so far.
        """
        columns = self._set_aside(basis, pairs)
        self.first = basis.width
        self.count, self.are_out = self.count + 1, columns > 0
        self.end = products + PROBE_BLOCKS * columns
        self.most = pairs.values[: self.rank] * (1 + 4 * np.maximum(errors, self.tol))
        self.most += ROUNDING * pairs.values[0]

    def _set_aside(self, basis: LanczosBasis, pairs: RitzPairs) -> int:
        """Leave pending columns aside and draw random vectors outside the basis; return their number.

        At most ``BLOCK`` are drawn, fewer or none if the basis has no room or nothing is outside it.
        """
        short, most = int(basis.k.shape[0]), int(basis.k.shape[1])
        outside = short - basis.width - basis.pending.shape[1]
        columns = int(max(0, min(BLOCK, outside, most - len(pairs.values))))
        if columns:
            basis.set_aside(columns)
        return columns

    def join(self, basis: LanczosBasis, pairs: RitzPairs) -> None:
        """Restart from leading Ritz vectors, and multiply random vectors alone until the values have risen.

        Blocks are at most twice as wide afterwards: see ``LanczosBasis.narrow``.
        """
        if basis.pending.shape[1] > BLOCK:
            basis.narrow(pairs.vectors[:, : self.rank], BLOCK)
        pairs = pairs.leading(self.rank + BLOCK)
        basis.restart(pairs)
        self._set_aside(basis, pairs)
        self.count, self.are_out = 0, False

    def go_on(self, pairs: RitzPairs, products: int) -> bool:
        """True if an unconverged value of the probe may still exceed the last value wanted.

        A Ritz value may rise by its residual. If one that lies mostly in the span of the probe may rise that
        far, another block of columns is allowed beyond the ``products`` so far.
        """
        if not self.are_out:
            return False
        share = (pairs.vectors[self.first :, self.rank :] ** 2).sum(axis=0)
        largest = pairs.values[self.rank :] + pairs.residuals[self.rank :]
        rising = bool((largest[share > MOSTLY] > self.most[-1]).any())
        if rising:
            self.end = products + BLOCK
        return rising

    def end_with(self, basis: LanczosBasis) -> None:
        """End the probe: the next block includes the vectors that were left aside."""
        basis.rejoin()
        self.are_out = False

    def found_nothing(self, pairs: RitzPairs) -> bool:
        """True if a probe was made, and no wanted value has risen above ``most`` by new directions."""
        return self.count > 0 and not bool((pairs.values[: self.rank] > self.most).any())


def estimated_errors(theta: Float64, residuals: Float64, outside: float) -> Float64:
    """Estimated relative errors (k,) of singular values, from Ritz values of their squares and residuals.

    Parameters
    ----------
    theta, residuals : (k,)
        Ritz values, decreasing, and norms of their residuals.
    outside : float
        Largest square that is not wanted.

    Notes
    -----
    An eigenvalue lies within the residual r of a Ritz value, and within r^2 / gap with the gap to the values
    that are not wanted (Kato and Temple; Parlett, The Symmetric Eigenvalue Problem, 1980, section 10.1). The
    relative error of the singular value is half of that of the eigenvalue.
    """
    gap = np.maximum(theta - outside, np.maximum(residuals, np.finfo(np.float64).tiny))
    error = np.minimum(residuals, residuals**2 / gap)
    relative = np.where(error > 0, 1.0, 0.0)
    np.divide(error, 2 * theta, out=relative, where=theta > error)
    return relative


def _errors_of(pairs: RitzPairs, rank: int) -> Float64:
    return estimated_errors(pairs.values[:rank], pairs.residuals[:rank], pairs.beyond(rank))


def _has_settled(pairs: RitzPairs, errors: Float64, rank: int, tol: float) -> bool:
    """True if more products would not improve the wanted values, and the next ones are known well enough."""
    values, _, residuals = pairs
    exact = residuals <= ROUNDING * values[0]
    beyond = exact[rank:] | (residuals[rank:] <= SETTLED * values[rank:])
    return bool(((errors <= tol) | exact[:rank]).all() and beyond[:BLOCK].all())


MISS_PROBABILITY = 1e-6
"""Largest probability that one search misses a copy of a value that it was made for."""

CLUSTER = (1e-9, 1e-4)
"""Smallest and largest limit of the relative difference between values that count as copies of one."""

TOLERANCES = 32
"""That limit in multiples of the tolerance: values farther apart are resolved before they count as known."""

KNOWN = 0.03
"""Residual of a Ritz pair, relative to the distance of its value from that sought, up to which a search stays
orthogonal to the pair."""

NEGLIGIBLE = 1e-12
"""Length of a new direction, relative to the norm of the operator, below which it is dropped."""


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
    """Block Lanczos in the space outside a basis, for eigenvalues alone."""

    basis: LanczosBasis
    known: Float64
    """(width, count) coefficients of combinations of the basis that the process stays orthogonal to."""

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
        """Start from ``columns`` random vectors outside the ``rank`` wanted pairs, and others well known.

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
        """Multiply the block by ``apply``, and extend the band matrix and the bound of the probability.

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
