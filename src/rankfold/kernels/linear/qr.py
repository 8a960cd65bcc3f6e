"""R factors of tall panels and of stacked R factors: a QR tree that never forms Q."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel, portable
from rankfold.kernels.linear.dense import adjoint, phases_to_positive

Float64 = npt.NDArray[np.float64]

LEAST_EIGENVALUE = 1e-2
"""Least eigenvalue of a Gram matrix of columns of length 1 from which ``r_of_gram`` computes R."""


@portable
@kernel
def panel_r(y: Float64) -> Float64:
    """R factor of a panel, with non-negative diagonal.

    Parameters
    ----------
    y : (r, b) float64 or complex128, any r >= 0
        Left untouched.

    Returns
    -------
    (b, b) of the same type, upper triangular
        Rows beyond ``r`` are zero when the panel is shorter than wide.

    Notes
    -----
    Work 2 r b^2 flops by Householder reflections; scratch 8 r b bytes. Backward stable whatever the
    condition of ``y``, where a Cholesky factor of ``y'y`` fails beyond 1e8.
    """
    rows, columns = y.shape
    if not rows:
        return np.zeros_like(y, shape=(columns, columns))
    r: Float64 = np.linalg.qr(y, mode="r")  # type: ignore[assignment]
    if rows < columns:
        r = np.vstack([r, np.zeros_like(y, shape=(columns - rows, columns))])
    return r * phases_to_positive(np.diag(r))[:, None]


@portable
@kernel
def merge_r(a: Float64, b: Float64) -> Float64:
    """R factor of two panels from their R factors.

    Parameters
    ----------
    a, b : (b, b) float64, upper triangular

    Returns
    -------
    (b, b) float64, upper triangular, non-negative diagonal

    References
    ----------
    Demmel, Grigori, Hoemmen, Langou, Communication-optimal parallel and sequential QR and LU
    factorizations, SIAM J. Sci. Comput. 34(1), 2012 (TSQR), with panels one after the other within a
    stream (panels that one accumulator takes), and a fixed tree between streams.
    """
    return panel_r(np.vstack([a, b]))


@kernel
def r_of_gram(product: Float64) -> Float64 | None:
    """R factor of a matrix from its Gram matrix, or None where that would lose digits.

    Parameters
    ----------
    product : (b, b) float64 or complex128, symmetric or Hermitian
        Inner products of columns, summed in float64. Left untouched.

    Returns
    -------
    (b, b) of the same type, upper triangular, positive diagonal; or None
        When columns, scaled to length 1, have a Gram matrix with an eigenvalue below ``LEAST_EIGENVALUE``.

    Notes
    -----
    Work 3 b^3 flops. Scaling by the lengths of columns is exact in effect, for rounding errors of inner
    products are relative to these lengths; what then counts is the condition of the scaled columns, so
    that relative errors of all singular values, however small, are at most some 100 b eps.

    References
    ----------
    Demmel, Veselic, Jacobi's method is more accurate than QR, SIAM J. Matrix Anal. Appl. 13(4), 1992: the
    relative accuracy of singular values under scaling of columns.
    """
    lengths = np.sqrt(np.maximum(np.diag(product).real, 0.0))
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        return None
    scaled = (product + adjoint(product)) / 2 / lengths / lengths[:, None]
    if np.linalg.eigvalsh(scaled)[0] < LEAST_EIGENVALUE:
        return None
    return np.asarray(adjoint(np.linalg.cholesky(scaled)) * lengths)
