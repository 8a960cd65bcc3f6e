"""An orthonormal basis that grows block by block, with the small matrix that an operator is on it.

Memory and work are bounded: when there is no room for another block, the basis starts anew from its leading
Ritz vectors and the block that was to come (a thick restart), which loses nothing of what matters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.dense import leading_eigenpairs
from rankfold.kernels.linear.orthonormal import orthonormalize

Float64 = npt.NDArray[np.float64]

FADED = 1e-6
"""Length of a new vector, relative to the operator, below which it is made orthogonal with all care: what is
left of it is as much rounding as direction."""

NEARLY_ONE = 0.1
"""Largest difference of the second triangular factor from unity at which two rounds have been enough."""

ROWS = 2048
"""Of the basis that are turned at a time."""


@dataclass(slots=True)
class LanczosBasis:
    """Columns ``K[:, :width]``, of which the last block is not yet multiplied, and ``K'C K`` of the others."""

    k: Float64
    """(short, most) in Fortran order, so that leading columns lie together."""

    small: Float64
    """(most, most): K'C K."""

    start: int
    width: int
    coupling: Float64 = field(default_factory=lambda: np.zeros((0, 0)))
    """(new, block) what is left of C K_last, on the block that comes next."""

    following: Float64 = field(default_factory=lambda: np.zeros((0, 0)))
    """(short, new) that block; without columns where the basis is all of the space."""

    fresh: bool = False
    """Whether the last block was multiplied right after a restart."""

    size: float = 0.0
    """Largest number of the small matrix so far."""

    @classmethod
    def of(cls, block: Float64, most: int) -> LanczosBasis:
        """A basis that begins with a block, and may have so many columns."""
        short, width = block.shape
        k = np.empty((short, most), order="F")
        k[:, :width] = block
        return cls(k, np.zeros((most, most)), 0, width)

    @property
    def is_whole(self) -> bool:
        """Whether there is nothing outside it."""
        return self.following.shape[1] == 0

    @property
    def has_room(self) -> bool:
        """Whether the next block fits in."""
        return self.width + self.following.shape[1] <= self.k.shape[1]

    def multiply(self, apply: Callable[[Float64], Float64]) -> None:
        """Apply the operator to the last block, and make what is new of it the next block.

        Notes
        -----
        Work 8 short width block flops. What is known to be large is taken off first: the parts along the
        block itself and along the one that it was made from. What is left has small parts along all
        others, so that one round of Gram-Schmidt against all of the basis leaves it as orthogonal as two do.
        After a restart the block was made from all that was kept, and both rounds are against all.
        """
        width, block = self.width, slice(self.start, self.width)
        z = apply(np.ascontiguousarray(self.k[:, block]))
        basis = self.k[:, :width]
        near = slice(0 if self.fresh else max(0, 2 * self.start - width), width)
        overlap = np.zeros((width, z.shape[1]))
        overlap[near] = self.k[:, near].T @ z
        z -= self.k[:, near] @ overlap[near]
        rest = basis.T @ z
        z -= basis @ rest
        overlap += rest
        self.small[:width, block] = overlap
        self.small[block, :width] = overlap.T
        self.size = max(self.size, float(np.abs(overlap).max()))
        self.fresh = False
        self.following, self.coupling = self._orthonormal(z)

    def _orthonormal(self, z: Float64) -> tuple[Float64, Float64]:
        """Orthonormal columns that span a block outside the basis, and the block on them."""
        short, columns = len(z), min(z.shape[1], len(z) - self.width)
        if columns == z.shape[1]:
            factors = cholesky_qr(z)
            if factors is not None and np.abs(np.diag(factors[1])).min() > FADED * self.size:
                return factors
        if columns == 0:
            return np.zeros((short, 0)), np.zeros((0, z.shape[1]))
        # Directions of rounding alone are replaced by others that the basis has not seen.
        q = orthonormalize(z[:, :columns], lambda: [self.k[:, : self.width]])
        return q, q.T @ z

    def append(self) -> None:
        """Take in the next block."""
        width = self.width + self.following.shape[1]
        self.k[:, self.width : width] = self.following
        self.start, self.width = self.width, width

    def ritz(self, count: int) -> tuple[Float64, Float64, Float64]:
        """Leading Ritz values of all that was multiplied, vectors on the basis, and lengths of residuals.

        The residual of a Ritz pair is what the next block takes of it, and nothing else: (count,) numbers from
        the last rows of (width, count) vectors.
        """
        symmetric = (self.small[: self.width, : self.width] + self.small[: self.width, : self.width].T) / 2
        values, vectors = leading_eigenpairs(symmetric, min(count, self.width))
        residuals = np.linalg.norm(self.coupling @ vectors[self.start :], axis=0)
        return np.maximum(values, 0.0), vectors, residuals

    def restart(self, values: Float64, vectors: Float64) -> None:
        """Keep Ritz vectors alone, and go on with the next block.

        What couples the two comes out of the next product by itself.

        References
        ----------
        Wu, Simon, Thick-restart Lanczos method for large symmetric eigenvalue problems, SIAM J. Matrix Anal.
        Appl. 22(2), 2000; ours is by blocks.
        """
        keep = len(values)
        for top in range(0, len(self.k), ROWS):
            rows = self.k[top : top + ROWS]
            rows[:, :keep] = rows[:, : self.width] @ vectors
        self.small[...] = 0.0
        np.fill_diagonal(self.small[:keep, :keep], values)
        self.width, self.fresh = keep, True
        self.append()

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
    lengths = np.sqrt(np.einsum("ij,ij->j", z, z))
    if not (lengths > 0).all():
        return None
    q, r = z / lengths, np.diag(lengths)
    for last in (False, True):
        try:
            factor = np.linalg.cholesky(q.T @ q).T
        except np.linalg.LinAlgError:
            return None
        if last and np.abs(factor - np.eye(len(factor))).max() > NEARLY_ONE:
            return None
        q, r = q @ np.linalg.inv(factor), factor @ r
    return q, r
