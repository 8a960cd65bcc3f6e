"""Singular triplets of a matrix in memory, and the factor of its longer side as it is written.

Squares only decide directions. Values come from the images of these directions on the longer side, half a
step further, so their errors are relative to the largest value and not to its square.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.dense import fix_signs
from rankfold.kernels.linear.qr import r_of_gram
from rankfold.methods.svd.error_estimates import order_errors, rounding
from rankfold.methods.svd.in_memory.lanczos import BLOCK, ROUNDING, block_lanczos, estimated_errors
from rankfold.methods.svd.in_memory.matrix import MatrixInMemory
from rankfold.methods.svd.long_factor import ZERO
from rankfold.methods.svd.strategy import Strategy
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.storage.chunk_writer import write_long_rows

Float64 = npt.NDArray[np.float64]

LEAST_RATIO = 1e-3
"""Smallest singular value, relative to the largest, at which vectors stay orthogonal when divided by it."""

REFINEMENTS = 3
"""Largest number of times that residuals of the matrix itself are checked, with a step of subspace iteration
each, for steep spectra."""

FULL_COLUMNS = 64
"""Length of the shorter side up to which all triplets are found by one dense decomposition."""


@dataclass(frozen=True, slots=True)
class FactorInMemory:
    """The factor of the longer side, held in memory: a ``LongFactor``."""

    vectors: Float64
    """(long, k) orthonormal vectors."""

    def write(self, run: Run, layout: Strategy, array: Path, weights: Float64) -> Float64:
        """Write the vectors times ``weights`` (k,) in chunks of the Zarr array at ``array``.

        Returns the Gram matrix (k, k) of the vectors without weights.
        """
        transposed, dtype = layout.view.orientation is Orientation.COLUMNS, layout.view.dtype
        for start in range(0, len(self.vectors), layout.out_chunk):
            stop = min(start + layout.out_chunk, len(self.vectors))
            rows = (self.vectors[start:stop] * weights).astype(dtype)
            write_long_rows(array, rows.T if transposed else rows, start, stop, transposed=transposed)
        return np.asarray(self.vectors.T @ self.vectors)


@dataclass(frozen=True, slots=True)
class TripletsInMemory:
    """Leading singular triplets of a matrix in memory, with values of the matrix times its unit."""

    s: Float64
    short: Float64
    """(short, k) singular vectors of the shorter side, signs fixed."""

    long: Float64
    """(long, k) singular vectors of the longer side."""

    residuals: Float64
    """(k,) norms of A v - s u, relative to the largest s, where u is of the shorter side and s v is its
    image."""

    errors: Float64
    """(k,) estimated relative errors of ``s``."""

    convergence: list[float]
    """Largest estimated error, each time that all values were estimated; empty if found by one
    decomposition."""

    products: int
    """Number of columns that were multiplied by A, and as many by A'."""


def leading_triplets(
    matrix: MatrixInMemory,
    short: int,
    rank: int,
    tol: float,
    seed: int,
    heard: Callable[[float], None] = lambda error: None,
) -> TripletsInMemory:
    """The ``rank`` leading singular triplets of a matrix whose shorter side has length ``short``.

    Parameters
    ----------
    tol : float
        Estimated relative error at which a singular value counts as known.
    seed : int
        Key of the random vectors.
    heard : callable
        Called with the largest estimated error each time it is found.

    Notes
    -----
    See ``block_lanczos``; in addition 6 long rank^2 flops, and three (long, rank) arrays.
    """
    if is_tiny(rank, short):
        return _all_triplets(matrix, short, rank)
    ritz = block_lanczos(lambda q: matrix.to_short(matrix.to_long(q)), short, rank, tol, seed, heard)
    s, turn, long = _half_step(matrix.to_long(ritz.vectors))
    vectors, residuals, errors = ritz.vectors @ turn, _over(ritz.residuals, s), ritz.errors
    for _ in range(REFINEMENTS * _is_steep(ritz.squares, tol)):
        # Squares do not distinguish values this small from rounding: residuals of the matrix itself do.
        image = matrix.to_short(long)
        residuals = np.linalg.norm(image - vectors * s, axis=0)
        errors = estimated_errors(s**2, s * residuals, ritz.outside)
        if (errors + _rounding(matrix, s) <= tol).all():
            break
        vectors = np.linalg.qr(image)[0]
        s, turn, long = _half_step(matrix.to_long(vectors))
        vectors = vectors @ turn
    signs, largest = fix_signs(vectors), max(float(s[0]), np.finfo(np.float64).tiny)
    errors = order_errors(errors + _rounding(matrix, s), s)
    errors[s == 0] = 0.0
    long *= signs  # in place: it may be the largest array there is
    return TripletsInMemory(
        s, vectors * signs, long, residuals / largest, errors, ritz.convergence, ritz.products
    )


def is_tiny(rank: int, short: int) -> bool:
    """True if the shorter side is decomposed whole: it is short, or has no room for two blocks and the rank.

    >>> is_tiny(10, 64), is_tiny(10, 100), is_tiny(95, 100)
    (True, False, True)
    """
    return short <= max(FULL_COLUMNS, rank + 2 * BLOCK)


def _all_triplets(matrix: MatrixInMemory, short: int, rank: int) -> TripletsInMemory:
    """The ``rank`` leading triplets, by a dense decomposition of the whole matrix."""
    s, turn, long = _half_step(matrix.to_long(np.eye(short)))
    s, vectors, long = s[:rank], turn[:, :rank], long[:, :rank]
    signs, exact = fix_signs(vectors), np.zeros(rank)
    errors = np.minimum(_rounding(matrix, s), 1.0)
    return TripletsInMemory(s, vectors * signs, long * signs, exact, errors, [], short)


def _half_step(image: Float64) -> tuple[Float64, Float64, Float64]:
    """Singular values (k,), right vectors (k, k) and left vectors (m, k) of ``image`` (m, k), m >= k.

    Values decrease. They come from its Gram matrix where that loses no digits, as for images of Ritz vectors.
    Otherwise reflections are used, which leave columns orthonormal whatever the rank.
    """
    r = r_of_gram(image.T @ image)
    if r is not None:
        _, s, vt = np.linalg.svd(r)
        if s[-1] > LEAST_RATIO * s[0]:
            return s, vt.T, image @ (vt.T / s)
    q, r = np.linalg.qr(image)
    u, s, vt = np.linalg.svd(r)
    s[s <= ZERO * s[0]] = 0.0
    return s, vt.T, q @ u


def _is_steep(squares: Float64, tol: float) -> bool:
    """True if rounding of the smallest of ``squares`` (k,), relative to that, may exceed the tolerance."""
    return bool(ROUNDING * squares[0] > tol * squares[-1])


def _over(residuals: Float64, s: Float64) -> Float64:
    """Residuals (k,) of the Gram matrix over values ``s`` (k,): those of the matrix; 0 where s is 0."""
    own = np.zeros_like(s)
    np.divide(residuals, s, out=own, where=s > 0)
    return own


def _rounding(matrix: MatrixInMemory, s: Float64) -> Float64:
    """Relative rounding errors (k,) of singular values ``s``, by products with the matrix and by float64."""
    return _over(np.full_like(s, matrix.rounding), s) + rounding(s, np.dtype(np.float64))
