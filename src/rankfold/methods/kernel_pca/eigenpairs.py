"""Leading eigenpairs of the centered matrix of similarities: by block Lanczos, or for few rows by LAPACK.

K is the (n, n) matrix of similarities, values of the kernel function, of all rows. With H = I - 1 1'/n the
centered matrix is H K H. Its products take no more passes than those of K: vectors are centered, multiplied,
and centered again. The first product includes the vector of ones. From that follow the means that new rows
are centered by, and the size of K; products within rounding of that size are set to 0.

A kernel function that is not positive has negative eigenvalues too. Leading are the largest, not those of the
largest magnitude; those below zero are counted as far as the iteration has found them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.dense import fix_signs
from rankfold.kernels.similarity.functions import Similarity
from rankfold.kernels.similarity.tiles import LOSS, evaluate
from rankfold.methods.claims import relative_errors
from rankfold.methods.similarity.blocks import RowBlocks, require_finite
from rankfold.methods.similarity.operator import SimilarityMatrix
from rankfold.methods.svd.in_memory.basis import BELOW_ZERO
from rankfold.methods.svd.in_memory.lanczos import BLOCK, block_lanczos, room
from rankfold.pipeline.storage.checkpoint import State

Float64 = npt.NDArray[np.float64]

FEW_ROWS = 512
"""Number of rows up to which all eigenvalues are computed, from a dense matrix."""

EPS = float(np.finfo(np.float64).eps)

ROUNDING = 64 * EPS
"""Error of an eigenvalue by rounding, relative to the largest eigenvalue of K, however far one iterates."""


@dataclass(frozen=True, slots=True)
class Eigenpairs:
    """Leading eigenpairs of H K H, the centered (n, n) matrix of similarities."""

    values: Float64
    """(k,) eigenvalues, decreasing, none below zero."""

    vectors: Float64
    """(n, k) orthonormal eigenvectors, with fixed signs."""

    residuals: Float64
    """(k,) length of H K H u - theta u for each eigenpair (theta, u)."""

    errors: Float64
    """(k,) estimated absolute error of each eigenvalue, rounding included."""

    means: Float64
    """(n,) mean of the similarities of each row with all rows, itself included."""

    trace: float
    """Trace of H K H: the sum of all its eigenvalues, not only of those found."""

    negative: int
    """Number of eigenvalues below zero that were found: all there are if ``is_whole``, else a lower bound."""

    least: float
    """Smallest eigenvalue that was found."""

    is_whole: bool
    """True if all eigenvalues were computed."""

    @property
    def largest_error(self) -> float:
        """Largest estimated error of an eigenvalue, relative to that eigenvalue."""
        return float(relative_errors(self.errors, self.values).max())


def is_dense(rows: int, rank: int) -> bool:
    """True if ``rank`` components of ``rows`` rows are computed from a dense matrix by LAPACK."""
    return rows <= FEW_ROWS or 2 * (room(rank, rows) + BLOCK) >= rows


# By products ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class CenteredSimilarities:
    """Operator H K H that multiplies blocks of vectors, and stores its products for a resumed run.

    ``products`` is the number of products so far, ``means`` (n,) are mean similarities of rows once there is
    one.
    """

    matrix: SimilarityMatrix
    part: Callable[[int], Path] | None
    """Function that gives the path of a stored product, by its number; None if none are stored."""

    keep: Callable[[Path, Callable[[], State]], State]
    """Function that loads the arrays of a file, or makes and stores them if it does not exist."""

    products: int = 0
    means: Float64 = field(default_factory=lambda: np.zeros(0))
    size: float = 0.0
    """Largest length so far of a product with a vector of length 1: of K with equal entries at first, then of
    H K H. It is no more than the largest eigenvalue of K."""

    def __call__(self, v: Float64) -> Float64:
        """(n, q) products of H K H with vectors ``v`` (n, q), or as stored by an earlier attempt."""
        v = v - v.mean(axis=0)
        number, first = self.products, self.products == 0
        beside = np.hstack([v, np.ones((len(v), 1))]) if first else np.ascontiguousarray(v)
        if self.part is None:
            z = self.matrix.multiply(beside)
        else:
            path = self.part(number)
            z = self.keep(path, lambda: {"z": self.matrix.multiply(beside, path.with_suffix(".sums"))})["z"]
        self.products += 1
        with np.errstate(over="ignore", invalid="ignore"):
            if first:
                self.means, z = z[:, -1] / len(z), z[:, :-1].copy()
                self.size = float(np.linalg.norm(self.means) * np.sqrt(len(v)))
            z = z - z.mean(axis=0)
            lengths = np.linalg.norm(z, axis=0)
        require_finite([self.size, *lengths], self.matrix.blocks.source.name)
        self.size = max(self.size, float(lengths.max(initial=0.0)))
        z[:, lengths <= ROUNDING * self.size] = 0.0
        return np.asarray(z)


def pairs_by_products(
    centered: CenteredSimilarities, rank: int, asked: tuple[float, int, int], tell: Callable[[float], None]
) -> Eigenpairs:
    """The ``rank`` leading eigenpairs by block Lanczos.

    ``asked`` are the relative tolerance, the most products, and the seed. ``tell`` is called with the largest
    estimated error each time that it is found.

    Notes
    -----
    ``block_lanczos`` estimates relative errors of roots of values; that of a value is twice as large.
    """
    tol, most, seed = asked
    rows = centered.matrix.blocks.rows
    ritz = block_lanczos(centered, rows, rank, tol / 2, seed, tell, BLOCK * most)
    theta = significant(ritz.squares, centered.size, rows)
    trace, similarity = centered.matrix.trace(), centered.matrix.blocks.similarity
    errors = theta * ritz.errors * (2 + ritz.errors) + rounding(centered.size, rows, similarity, trace)
    total = trace - float(centered.means.sum())
    vectors = ritz.vectors * fix_signs(ritz.vectors)
    exact = theta, vectors, ritz.residuals, errors, centered.means, total
    return Eigenpairs(*exact, ritz.negative, min(ritz.least, 0.0), False)


def significant(theta: Float64, size: float, rows: int) -> Float64:
    """(k,) eigenvalues ``theta``, set to 0 where they are within rounding of the largest, or of ``size``.

    ``size`` is that of the matrix of similarities of ``rows`` rows before it is centered.
    """
    largest = float(np.abs(theta).max(initial=0.0))
    return np.where(theta > max(rows * EPS * largest, ROUNDING * size), theta, 0.0)


def rounding(size: float, rows: int, similarity: Similarity, trace: float) -> float:
    """Upper estimate of the error of any eigenvalue by rounding of sums and of similarities.

    ``size`` is that of K, ``trace`` the trace of K. Errors of similarities are independent. For functions of
    differences, similarities of rows with themselves are 1. For others, their mean from the trace is their
    size.
    """
    own = 1.0 if similarity.is_of_differences else abs(trace) / rows
    return ROUNDING * size + LOSS * own * float(np.sqrt(rows))


# All of them, by LAPACK -------------------------------------------------------------------------------


def dense_bytes(rows: int) -> int:
    """Bytes of a dense matrix of ``rows`` rows and columns, its eigenvectors, and the workspace of LAPACK."""
    return 8 * rows * (5 * rows + 40)


def pairs_of_dense(blocks: RowBlocks, rank: int) -> Eigenpairs:
    """The ``rank`` leading eigenpairs from the dense matrix, by LAPACK; ``DataError`` if it is not finite."""
    rows, name = blocks.rows, blocks.source.name
    k = np.empty((rows, rows))
    for a in range(blocks.count):
        x = blocks.block(a)
        for b in range(a, blocks.count):
            part = k[blocks.span(a), blocks.span(b)]
            y = x if a == b else blocks.block(b)
            evaluate(x, y, similarity=blocks.similarity, out=part)
            k[blocks.span(b), blocks.span(a)] = (part + part.T) / 2 if a == b else part.T
    require_finite(k, name)
    with np.errstate(over="ignore", invalid="ignore"):
        own, means = float(np.trace(k)), k.mean(axis=1)
        size = float(np.linalg.norm(means) * np.sqrt(rows))
        k -= means
        k -= means[:, None] - means.mean()
    require_finite(size, name)
    require_finite(k, name)
    k[np.abs(k) <= ROUNDING * size / rows] = 0.0
    values, vectors = np.linalg.eigh(k)
    largest = max(abs(float(values[0])), abs(float(values[-1])))
    negative = int((values < -max(BELOW_ZERO * largest, rows * EPS * size)).sum())
    theta, u = values[::-1][:rank].copy(), np.ascontiguousarray(vectors[:, ::-1][:, :rank])
    with np.errstate(over="ignore", invalid="ignore"):
        residuals = np.linalg.norm(k @ u - u * theta, axis=0)
    require_finite(residuals, name)
    theta = significant(theta, max(size, largest), rows)
    u *= fix_signs(u)
    errors = residuals + rounding(size, rows, blocks.similarity, own)
    trace = float(np.trace(k))
    return Eigenpairs(theta, u, residuals, errors, means, trace, negative, float(values[0]), True)
