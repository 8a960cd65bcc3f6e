"""An orthonormal basis that grows block by block, with the small matrix that an operator is on it.

Memory and work are bounded: when there is no room for another block, the basis starts anew from its leading
Ritz vectors and the block that was to come (a thick restart), which loses nothing of what matters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg
from scipy.linalg.blas import dgemm

from rankfold.kernels.linear.gaussian import gaussian_rows
from rankfold.kernels.linear.orthonormal import orthonormalize
from rankfold.methods.random_keys import Purpose

Float64 = npt.NDArray[np.float64]

FADED = 1e-6
"""Length of a new vector, relative to the operator, below which it is made orthogonal with all care: what is
left of it is as much rounding as direction."""

NOTHING = 1e-14
"""Length of a new vector, relative to the operator, below which there is nothing but rounding in it."""

BELOW_ZERO = 1e-10
"""Size of a negative eigenvalue, relative to the operator, above which it is none of rounding."""

NEARLY_ONE = 0.1
"""Largest difference of the second triangular factor from unity at which two rounds have been enough."""

ROWS = 2048
"""Of the basis that are turned at a time."""

SMALL_ROWS = 1024
"""Rows of basis and block whose product BLAS makes at once, where it would arrange larger ones anew first."""


class RitzPairs(NamedTuple):
    """Leading eigenpairs of an operator on a basis."""

    values: Float64
    """(count,) decreasing."""

    vectors: Float64
    """(width, count), on the basis."""

    residuals: Float64
    """(count,) length of C u - theta u."""

    def leading(self, count: int) -> RitzPairs:
        """The first of them."""
        return RitzPairs(self.values[:count], self.vectors[:, :count], self.residuals[:count])

    def beyond(self, count: int) -> float:
        """The first value after those; 0 if there is none."""
        return float(self.values[count]) if len(self.values) > count else 0.0


@dataclass(slots=True)
class LanczosBasis:
    """Columns ``K[:, :width]`` that the operator C was applied to, and those that it makes of them beside.

    C K = K T + P G with T = K'C K, P orthonormal to K, and nothing left out: what a Ritz pair lacks is its
    part along P.
    """

    k: Float64
    """(short, most) in Fortran order, so that leading columns lie together."""

    small: Float64
    """(most, most): T."""

    pending: Float64
    """(short, p): P, without columns where the basis is all of the space."""

    coupling: Float64
    """(p, width): G."""

    seed: int
    """Key of what is drawn at random."""

    width: int = 0
    parent: int = 0
    """First column of the block that was multiplied last."""

    aside: int = 0
    """Pending columns that are left for later: the first ones."""

    fresh: bool = False
    """Whether the next block may have large parts along all of the basis."""

    size: float = 0.0
    """Largest number of T so far."""

    least: float = np.inf
    """Smallest eigenvalue of T at any look: an upper bound of the smallest of the operator."""

    negative: int = 0
    """Most eigenvalues of T that were below zero by more than rounding: the operator has as many at least."""

    draws: int = 0
    """How often random vectors were drawn."""

    lost: Float64 = field(default_factory=lambda: np.zeros((0, 0)))
    """(w, w) R'R of residuals R of the first columns along what was dropped: see ``narrow``."""

    @classmethod
    def begin(cls, short: int, columns: int, most: int, seed: int) -> LanczosBasis:
        """A basis that begins with a random block, and may have so many columns."""
        empty = np.zeros((short, 0)), np.zeros((0, 0))
        basis = cls(np.empty((short, most), order="F"), np.zeros((most, most)), *empty, seed)
        block = basis.draw(columns)
        factors = cholesky_qr(block)
        basis.pending = orthonormalize(block) if factors is None else factors[0]
        basis.coupling = np.zeros((columns, 0))
        return basis

    @property
    def is_whole(self) -> bool:
        """Whether there is nothing outside it."""
        return not self.pending.size

    @property
    def block_columns(self) -> int:
        """Columns that are multiplied next."""
        return int(self.pending.shape[1]) - self.aside

    @property
    def has_room(self) -> bool:
        """Whether they fit in."""
        return bool(self.width + self.block_columns <= self.k.shape[1])

    def multiply(self, apply: Callable[[Float64], Float64]) -> None:
        """Take in what is pending, but for what is left aside, and apply the operator to it.

        Notes
        -----
        Work 8 short width block flops. What is known to be large is taken off first: the parts along the
        block itself and along the one that it was made from. What is left has small parts along all
        others, so that one round of Gram-Schmidt against all of the basis leaves it as orthogonal as two do.
        After a restart the block was made from all that was kept, and both rounds are against all.
        """
        block, rest, first = self.pending[:, self.aside :], self.pending[:, : self.aside], self.width
        width = first + block.shape[1]
        self.k[:, first:width] = block
        z = np.asfortranarray(apply(np.ascontiguousarray(block)))
        near = slice(0 if self.fresh else self.parent, width)
        overlap = np.zeros((width, z.shape[1]))
        overlap[near], z = _take_off(self.k[:, near], z)
        beside, z = _take_off(np.asfortranarray(rest), z) if rest.size else (np.zeros((0, z.shape[1])), z)
        others, z = _take_off(self.k[:, :width], z)
        overlap += others
        self.small[:width, first:width] = overlap
        self.small[first:width, :width] = overlap.T
        self.size = max(self.size, float(np.abs(overlap).max()))
        self.parent, self.width, self.fresh = first, width, False
        q, r = self._orthonormal(z, rest)
        unseen = np.zeros((q.shape[1], first))
        self.pending = np.hstack([rest, q]) if rest.size else q
        self.coupling = np.block([[self.coupling[: self.aside], beside], [unseen, r]])
        if not q.size:
            self.rejoin()

    def _orthonormal(self, z: Float64, rest: Float64) -> tuple[Float64, Float64]:
        """Orthonormal columns that span a block outside basis and rest, and the block on them."""
        short, columns = len(z), min(z.shape[1], len(z) - self.width - rest.shape[1])
        if columns == z.shape[1]:
            factors = cholesky_qr(z)
            if factors is not None and np.abs(np.diag(factors[1])).min() > FADED * self.size:
                return factors
        if columns == 0:
            return np.zeros((short, 0)), np.zeros((0, z.shape[1]))
        # Directions of rounding alone are replaced by random ones: unit vectors may be in the basis.
        block = z[:, :columns].copy()
        faint = np.linalg.norm(block, axis=0) <= NOTHING * self.size
        if faint.any():
            block[:, faint] = self.draw(columns)[:, faint]
        q = orthonormalize(block, lambda: [self.k[:, : self.width], rest])
        return q, q.T @ z

    def draw(self, columns: int) -> Float64:
        """Gaussian vectors, (short, columns), never the same again."""
        short, place = len(self.k), self.draws
        self.draws += 1
        rows = (place * short, (place + 1) * short)
        return gaussian_rows(self.seed, Purpose.LANCZOS_VECTORS, rows, columns)

    def set_aside(self, columns: int) -> None:
        """Go on with random vectors outside, along which nothing that was multiplied has a part."""
        known = [self.k[:, : self.width], np.asfortranarray(self.pending)]
        drawn = np.asfortranarray(self.draw(columns))
        for basis in 2 * known:
            _, drawn = _take_off(basis, drawn)
        factors = cholesky_qr(drawn)
        others = orthonormalize(drawn, lambda: known) if factors is None else factors[0]
        self.aside = self.pending.shape[1]
        self.coupling = np.vstack([self.coupling, np.zeros((others.shape[1], self.width))])
        self.pending = np.hstack([self.pending, others])

    def outside(self, z: Float64, vectors: Float64) -> Float64:
        """What a block has outside (width, count) orthonormal combinations of the basis."""
        basis = self.k[:, : self.width]
        return np.asarray(
            dgemm(-1.0, basis, vectors @ (vectors.T @ (basis.T @ z)), 1.0, np.array(z, order="F"))
        )

    def narrow(self, vectors: Float64, columns: int) -> None:
        """Keep the pending directions that some Ritz vectors need most, and the lengths of what is dropped.

        What the operator is on the basis stays as it is: products with blocks to come tell it anew.
        """
        self.rejoin()
        u = np.linalg.svd(self.coupling @ vectors)[0]
        dropped = u[:, columns:].T @ self.coupling
        self.lost = self._lost() + dropped.T @ dropped
        self.pending, self.coupling = self.pending @ u[:, :columns], u[:, :columns].T @ self.coupling
        self.fresh = True

    def _lost(self) -> Float64:
        """Products of what was dropped, of all columns."""
        lost = np.zeros((self.width, self.width))
        lost[: len(self.lost), : len(self.lost)] = self.lost
        return lost

    def rejoin(self) -> None:
        """Take what was left aside with the next block."""
        self.fresh, self.aside = self.fresh or self.aside > 0, 0

    def ritz(self, count: int) -> RitzPairs:
        """Leading pairs."""
        # All of them by divide and conquer take half the time of some by relatively robust representations.
        pairs = np.linalg.eigh(self._symmetric())
        self.least = min(self.least, float(pairs[0][0]))
        self.negative = max(self.negative, int((pairs[0] < -BELOW_ZERO * self.size).sum()))
        return self._pairs(pairs, count)

    def ritz_pair(self, index: int) -> RitzPairs:
        """The pair of that number, from 0, and the one after it: a third of the time of all."""
        last = self.width - 1 - index
        subset = (max(last - 1, 0), last)
        pairs = scipy.linalg.eigh(self._symmetric(), check_finite=False, subset_by_index=subset)
        if len(pairs[0]) < subset[1] - subset[0] + 1:  # LAPACK may leave out some of many equal values
            values, vectors = np.linalg.eigh(self._symmetric())
            pairs = values[subset[0] : last + 1], vectors[:, subset[0] : last + 1]
        return self._pairs(pairs, 2)

    def _symmetric(self) -> Float64:
        square = self.small[: self.width, : self.width]
        return np.asarray((square + square.T) / 2)

    def _pairs(self, pairs: tuple[Float64, Float64], count: int) -> RitzPairs:
        """The last of some in increasing order, from the largest."""
        values, vectors = pairs[0][::-1][:count], pairs[1][:, ::-1][:, :count]
        residuals = np.linalg.norm(self.coupling @ vectors, axis=0)
        if self.lost.size:
            dropped = np.einsum("ij,ij->j", vectors, self._lost() @ vectors)
            residuals = np.sqrt(residuals**2 + np.maximum(dropped, 0.0))
        return RitzPairs(np.maximum(values, 0.0), vectors, residuals)

    def restart(self, pairs: RitzPairs) -> None:
        """Keep Ritz vectors alone.

        What couples them with the next block comes out of the next product by itself.

        References
        ----------
        Wu, Simon, Thick-restart Lanczos method for large symmetric eigenvalue problems, SIAM J. Matrix Anal.
        Appl. 22(2), 2000; ours is by blocks.
        """
        keep = len(pairs.values)
        for top in range(0, len(self.k), ROWS):
            rows = self.k[top : top + ROWS]
            rows[:, :keep] = (pairs.vectors.T @ rows[:, : self.width].T).T  # by columns, as they lie
        self.small[...] = 0.0
        np.fill_diagonal(self.small[:keep, :keep], pairs.values)
        if self.lost.size:
            self.lost = pairs.vectors.T @ self._lost() @ pairs.vectors
        self.coupling = self.coupling @ pairs.vectors
        self.width, self.parent, self.fresh = keep, 0, True

    def combine(self, vectors: Float64) -> Float64:
        """(short, k) combinations of its columns."""
        return np.asarray(self.k[:, : self.width] @ vectors)


def cholesky_qr(z: Float64) -> tuple[Float64, Float64] | None:
    """Q and R of a narrow block by two rounds of Cholesky factors, or None where these lose digits.

    Notes
    -----
    Work 8 short block^2 flops, all of them products of tall matrices.

    References
    ----------
    Yamamoto, Nakatsukasa, Yanagisawa, Fukaya, Roundoff error analysis of the CholeskyQR2 algorithm, ETNA 44,
    2015. Columns are scaled to length 1 before, which takes their sizes out of the condition.
    """
    first = _scaled_cholesky(z.T @ z)
    if first is None:
        return None
    q = dgemm(1.0, z, np.linalg.inv(first))
    second = _scaled_cholesky(q.T @ q)
    if second is None or np.abs(second - np.eye(len(second))).max() > NEARLY_ONE:
        return None
    return dgemm(1.0, q, np.linalg.inv(second)), second @ first


def _scaled_cholesky(products: Float64) -> Float64 | None:
    """The triangular factor of a Gram matrix, from columns of length 1; None where there is none."""
    lengths = np.sqrt(np.diag(products))
    if not (lengths > 0).all():
        return None
    try:
        return np.asarray(np.linalg.cholesky(products / lengths / lengths[:, None]).T * lengths)
    except np.linalg.LinAlgError:
        return None


def _take_off(basis: Float64, z: Float64) -> tuple[Float64, Float64]:
    """Products of a block with basis vectors, and what it has beside them, which takes its place.

    Columns lie together in both: BLAS would copy a block that lies by rows twice, and takes twice as long.
    """
    overlap = np.zeros((basis.shape[1], z.shape[1]))
    for top in range(0, len(z), SMALL_ROWS):
        overlap += basis[top : top + SMALL_ROWS].T @ z[top : top + SMALL_ROWS]
    return overlap, dgemm(-1.0, basis, overlap, 1.0, z, overwrite_c=1)
