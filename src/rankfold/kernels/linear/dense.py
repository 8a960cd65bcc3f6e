"""Dense factorizations of small matrices, and signs that do not depend on the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
"""For a complex matrix complex128 instead, except for values and norms."""

ORTHONORMAL = 64 * float(np.finfo(np.float64).eps)
"""Half of the largest inner product of vectors that counts as rounding."""

ROWS_AT_ONCE = 256


def adjoint(a: Array) -> Array:
    """The conjugate transpose; for a real matrix the transpose, without a copy."""
    return a.conj().T


def inner(a: Array, b: Array) -> float:
    """Real part of the inner product of two arrays, the first of them conjugated."""
    return float((a.conj() * b).sum().real)


@kernel
def leading_eigenpairs(a: Float64, k: int) -> tuple[Float64, Float64]:
    """The ``k`` largest eigenvalues of a symmetric or Hermitian matrix, and their vectors.

    Parameters
    ----------
    a : (p, p) float64 or complex128, symmetric or Hermitian
        C order; overwritten.
    k : int, 1 <= k <= p

    Returns
    -------
    values : (k,) float64, decreasing
    vectors : (p, k), orthonormal columns

    Notes
    -----
    Work 4/3 p^3 + 2 p^2 k + 2 p k^2 flops (LAPACK ``syevr`` on a subset); scratch 8 p^2 + 16 p k bytes. A
    complex matrix takes four times the flops and the bytes, and is copied, not overwritten.

    The trap: ``syevr`` leaves vectors of eigenvalues within 1e-11 of each other orthogonal to 1e-12 alone
    (relatively robust representations: Dhillon, Parlett, SIAM J. Matrix Anal. Appl. 25(3), 2004), and values
    found on them are then off by that. Such vectors are made orthonormal, which does not take them out of
    the space of their eigenvalues.
    """
    p, diagonal = len(a), a.diagonal().copy()
    if np.iscomplexobj(a):
        a = np.asfortranarray(a).T  # whose transpose is the matrix itself, not its conjugate
    try:
        # The transpose of a C array is what LAPACK wants; the array itself would be copied.
        values, vectors = scipy.linalg.eigh(
            a.T, overwrite_a=True, check_finite=False, subset_by_index=(p - k, p - 1), driver="evr"
        )
        if len(values) < k:  # some of many equal ones are silently left out
            raise scipy.linalg.LinAlgError
    except scipy.linalg.LinAlgError:
        # ``syevr`` may not find its representations where eigenvalues crowd near zero. It has overwritten
        # one triangle and the diagonal: the other triangle is still there.
        a[np.diag_indices(p)] = diagonal
        values, vectors = np.linalg.eigh(a, UPLO="L")
        values, vectors = values[p - k :], vectors[:, p - k :].conj()
    _make_orthonormal(vectors)
    return values[::-1].copy(), vectors[:, ::-1].copy()


def _make_orthonormal(v: Array) -> None:
    """Replace nearly orthonormal columns, in place, by the nearest ones that are orthonormal to rounding.

    The first order of V (V'V)^(-1/2): the error that is left is the square of what it was.
    """
    half = adjoint(v) @ v
    half[np.diag_indices(len(half))] -= 1
    half /= 2
    if np.abs(half).max(initial=0.0) <= ORTHONORMAL:
        return
    for first in range(0, len(v), ROWS_AT_ONCE):
        v[first : first + ROWS_AT_ONCE] -= v[first : first + ROWS_AT_ONCE] @ half


@kernel
def leading_singular_triplets(a: Float64, k: int) -> tuple[Float64, Float64, Float64]:
    """The ``k`` largest singular triplets of a small or skinny matrix.

    Parameters
    ----------
    a : (p, l) float64
    k : int, 1 <= k <= min(p, l)

    Returns
    -------
    u : (p, k), s : (k,) decreasing, v : (l, k)

    Notes
    -----
    LAPACK ``gesdd``: 14 p l^2 + 8 l^3 flops for p >= l; scratch about 4 p l doubles.
    """
    u, s, vt = np.linalg.svd(a, full_matrices=False)
    return u[:, :k].copy(), s[:k].copy(), adjoint(vt[:k]).copy()


@kernel
def fix_signs(v: Float64) -> Float64:
    """Sign, or complex number of length 1, of each column that makes its leading entry positive.

    Parameters
    ----------
    v : (n, k) float64 or complex128

    Returns
    -------
    (k,) of +1 and -1, or of length 1
        The leading entry is the first whose magnitude is within 1 % of the largest: symmetric
        vectors have two largest entries of opposite sign, and rounding must not choose between them.
        The sum of a column would do worse still: on the centered side it is pure rounding noise.
    """
    magnitude = np.abs(v)
    leading = np.argmax(magnitude >= 0.99 * magnitude.max(axis=0), axis=0)
    return phases_to_positive(v[leading, np.arange(v.shape[1])])


def phases_to_positive(entries: Array) -> Array:
    """Factors that make entries positive: +1 or -1, or complex numbers of length 1; 1 for zeros."""
    if not np.iscomplexobj(entries):
        return np.where(entries < 0, -1.0, 1.0)
    length = np.abs(entries)
    return np.where(length > 0, entries.conj() / np.where(length > 0, length, 1.0), 1.0)


def ritz_vectors(products: Float64, keep: int) -> tuple[Float64, Float64]:
    """Leading eigenpairs of ``products`` Q'A'A Q (b, b), made symmetric first; negative values become 0.

    Returns at most ``keep`` eigenvalues, decreasing, and their eigenvectors as columns of (b, keep).
    """
    theta, w = leading_eigenpairs((products + adjoint(products)) / 2, min(keep, len(products)))
    return np.maximum(theta, 0.0), w
