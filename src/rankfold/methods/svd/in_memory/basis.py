"""An orthonormal basis that grows block by block, with the projection of an operator on it.

Memory and work are bounded: when there is no room for another block, the basis restarts from its leading
Ritz vectors and the pending block (a thick restart), which loses nothing of what matters.
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
"""Length of a new vector, relative to the norm of the operator, below which it is orthogonalized with extra
care: what is left of it is as much rounding as direction."""

NOTHING = 1e-14
"""Length of a new vector, relative to the norm of the operator, below which it is nothing but rounding."""

BELOW_ZERO = 1e-10
"""Size of a negative eigenvalue, relative to the norm of the operator, above which it is not due to
rounding."""

NEARLY_ONE = 0.1
"""Largest element of the difference of the second triangular factor from the identity at which two rounds of
Cholesky QR are enough."""

ROWS = 2048
"""Number of rows of the basis that a restart multiplies at a time."""

SMALL_ROWS = 1024
"""Number of rows of basis and block per call of BLAS, which would first copy more into another layout."""


class RitzPairs(NamedTuple):
    """Leading eigenpairs of an operator projected on a basis."""

    values: Float64
    """(count,) Ritz values, decreasing."""

    vectors: Float64
    """(width, count) coefficients on the basis."""

    residuals: Float64
    """(count,) norm of C u - theta u for each value theta and Ritz vector u of the operator C."""

    def leading(self, count: int) -> RitzPairs:
        """The first ``count`` pairs."""
        return RitzPairs(self.values[:count], self.vectors[:, :count], self.residuals[:count])

    def beyond(self, count: int) -> float:
        """The first value after ``count`` pairs; 0 if there is none."""
        return float(self.values[count]) if len(self.values) > count else 0.0


@dataclass(slots=True)
class LanczosBasis:
    """Columns ``K[:, :width]`` that the operator C was applied to, and the pending columns P of their images.

    C is symmetric, (short, short). C K = K T + P G with T = K'C K, and P orthonormal and orthogonal to K.
    Nothing is left out: the residual of a Ritz pair is its part along P.
    """

    k: Float64
    """(short, most): K in its first ``width`` columns; in Fortran order, so that these lie together."""

    small: Float64
    """(most, most): T = K'C K, in its leading (width, width) part."""

    pending: Float64
    """(short, p): P, to be multiplied next; without columns if the basis is the whole space."""

    coupling: Float64
    """(p, width): G, coefficients on P of the images C K."""

    seed: int
    """Key of the random vectors."""

    width: int = 0
    """Number of columns of K that are in use."""

    parent: int = 0
    """Index, in K, of the first column of the block that was multiplied last."""

    aside: int = 0
    """Number of pending columns, the first ones of P, that products leave out until ``rejoin`` is called."""

    fresh: bool = False
    """True if the image of the next block may have large parts along all of the basis."""

    size: float = 0.0
    """Largest absolute value in T so far, as an estimate of the norm of the operator."""

    least: float = np.inf
    """Smallest eigenvalue of T so far: an upper bound of the smallest of the operator."""

    negative: int = 0
    """Largest number of eigenvalues of T seen below zero by more than rounding: C has at least as many."""

    draws: int = 0
    """Number of times that random vectors were drawn."""

    lost: Float64 = field(default_factory=lambda: np.zeros((0, 0)))
    """(w, w) R'R of residuals R of the first w columns of K along dropped directions: see ``narrow``."""

    @classmethod
    def begin(cls, short: int, columns: int, most: int, seed: int) -> LanczosBasis:
        """A basis of vectors of length ``short``, with a random pending block, and room for ``most`` columns.

        The block has ``columns`` columns, drawn with the key ``seed``.
        """
        empty = np.zeros((short, 0)), np.zeros((0, 0))
        basis = cls(np.empty((short, most), order="F"), np.zeros((most, most)), *empty, seed)
        block = basis.draw(columns)
        factors = cholesky_qr(block)
        basis.pending = orthonormalize(block) if factors is None else factors[0]
        basis.coupling = np.zeros((columns, 0))
        return basis

    @property
    def is_whole(self) -> bool:
        """True if the basis is the whole space, with nothing outside it."""
        return not self.pending.size

    @property
    def block_columns(self) -> int:
        """Number of columns that the next call of ``multiply`` multiplies."""
        return int(self.pending.shape[1]) - self.aside

    @property
    def has_room(self) -> bool:
        """True if the next block fits into the basis."""
        return bool(self.width + self.block_columns <= self.k.shape[1])

    def multiply(self, apply: Callable[[Float64], Float64]) -> None:
        """Add the pending block to the basis, without columns left aside, and apply the operator to it.

        ``apply`` returns C times a (short, b) block, in new memory.

        Notes
        -----
        Work 8 short width block flops. Parts known to be large are subtracted first: those along the block
        itself and along the one that it was made from. What remains has small parts along all others, so that
        one round of Gram-Schmidt against all of the basis leaves it as orthogonal as two do. After a restart
        the block was made from all vectors that were kept, and both rounds are against all of them.
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
        """Orthonormalize a block ``z`` (short, b) that is orthogonal to the basis and to ``rest``.

        ``rest`` are the pending columns left aside. Returns Q (short, c), orthogonal to both, and the
        coefficients Q'z (c, b); c is b, or less if not as much space is left.
        """
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
        """New Gaussian vectors, (short, columns), different in each call."""
        short, place = len(self.k), self.draws
        self.draws += 1
        rows = (place * short, (place + 1) * short)
        return gaussian_rows(self.seed, Purpose.LANCZOS_VECTORS, rows, columns)

    def set_aside(self, columns: int) -> None:
        """Leave all pending columns out of the next products; append ``columns`` random pending columns.

        The random vectors are orthonormal, and orthogonal to the other pending columns and to the basis.
        """
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
        """The part of a block ``z`` (short, b) orthogonal to combinations of the basis.

        ``vectors`` (width, count) are the orthonormal coefficients of the combinations.
        """
        basis = self.k[:, : self.width]
        return np.asarray(
            dgemm(-1.0, basis, vectors @ (vectors.T @ (basis.T @ z)), 1.0, np.array(z, order="F"))
        )

    def narrow(self, vectors: Float64, columns: int) -> None:
        """Reduce the pending block to the ``columns`` directions where residuals of Ritz vectors are largest.

        ``vectors`` (width, count) are the coefficients of the Ritz vectors. Inner products of residuals along
        dropped directions are added to ``lost``. T stays as it is: products with later blocks find the
        dropped parts again.
        """
        self.rejoin()
        u = np.linalg.svd(self.coupling @ vectors)[0]
        dropped = u[:, columns:].T @ self.coupling
        self.lost = self._lost() + dropped.T @ dropped
        self.pending, self.coupling = self.pending @ u[:, :columns], u[:, :columns].T @ self.coupling
        self.fresh = True

    def _lost(self) -> Float64:
        """``lost`` as (width, width), with zeros for columns added to the basis since it was computed."""
        lost = np.zeros((self.width, self.width))
        lost[: len(self.lost), : len(self.lost)] = self.lost
        return lost

    def rejoin(self) -> None:
        """Include the columns that were left aside in the next block."""
        self.fresh, self.aside = self.fresh or self.aside > 0, 0

    def ritz(self, count: int) -> RitzPairs:
        """The ``count`` leading Ritz pairs of the basis; also updates ``least`` and ``negative``."""
        # All pairs by divide and conquer take half the time of some by relatively robust representations.
        pairs = np.linalg.eigh(self._symmetric())
        self.least = min(self.least, float(pairs[0][0]))
        self.negative = max(self.negative, int((pairs[0] < -BELOW_ZERO * self.size).sum()))
        return self._pairs(pairs, count)

    def ritz_pair(self, index: int) -> RitzPairs:
        """The Ritz pair at ``index``, from 0 for the largest, and the next, in a third of the time of all."""
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
        """The ``count`` largest of eigenpairs that are given in increasing order, now decreasing.

        ``pairs`` are (values, vectors); residuals are found here.
        """
        values, vectors = pairs[0][::-1][:count], pairs[1][:, ::-1][:, :count]
        residuals = np.linalg.norm(self.coupling @ vectors, axis=0)
        if self.lost.size:
            dropped = np.einsum("ij,ij->j", vectors, self._lost() @ vectors)
            residuals = np.sqrt(residuals**2 + np.maximum(dropped, 0.0))
        return RitzPairs(np.maximum(values, 0.0), vectors, residuals)

    def restart(self, pairs: RitzPairs) -> None:
        """Replace the basis by the Ritz vectors of ``pairs``, and T by their values: a thick restart.

        The next product computes their coupling with the pending block.

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
        """Combinations (short, k) of the columns of the basis, with coefficients ``vectors`` (width, k)."""
        return np.asarray(self.k[:, : self.width] @ vectors)


def cholesky_qr(z: Float64) -> tuple[Float64, Float64] | None:
    """Q (short, b) and R (b, b) of a block by two rounds of Cholesky QR, or None if these lose digits.

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
    """Upper triangular Cholesky factor of a Gram matrix, computed for columns scaled to length 1.

    None if a column is zero or the matrix is not numerically positive definite.
    """
    lengths = np.sqrt(np.diag(products))
    if not (lengths > 0).all():
        return None
    try:
        return np.asarray(np.linalg.cholesky(products / lengths / lengths[:, None]).T * lengths)
    except np.linalg.LinAlgError:
        return None


def _take_off(basis: Float64, z: Float64) -> tuple[Float64, Float64]:
    """Subtract the projection of ``z`` (short, b) on orthonormal columns; return ``basis' z``, and the rest.

    The rest overwrites ``z``. Both arguments are in Fortran order: BLAS would copy a block in C order twice,
    and take twice as long.
    """
    overlap = np.zeros((basis.shape[1], z.shape[1]))
    for top in range(0, len(z), SMALL_ROWS):
        overlap += basis[top : top + SMALL_ROWS].T @ z[top : top + SMALL_ROWS]
    return overlap, dgemm(-1.0, basis, overlap, 1.0, z, overwrite_c=1)
