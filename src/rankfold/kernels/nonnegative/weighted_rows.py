"""Weighted nonnegative least squares: each row has weights, and so a Gram matrix, of its own.

Rows w of W minimize sum_c v_c (x_c - (w H)_c)^2 over w >= 0 independently of each other: w G w' / 2 - b w'
with G = H diag(v) H' and b = (v * x) H'. All G of many rows are one product, of their weights with the
products of every two rows of H, so that the symmetric half of each is a row of k (k + 1) / 2 entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


def pair_count(k: int) -> int:
    """Number of entries in the half of a symmetric (k, k) matrix, with its diagonal.

    >>> pair_count(3)
    6
    """
    return k * (k + 1) // 2


def pair_places(k: int) -> npt.NDArray[np.int64]:
    """(k, k) position of each entry of a symmetric matrix in its half: row after row up to the diagonal.

    >>> pair_places(3).tolist()
    [[0, 1, 3], [1, 2, 4], [3, 4, 5]]
    """
    i, j = np.indices((k, k))
    high, low = np.maximum(i, j), np.minimum(i, j)
    return np.asarray(high * (high + 1) // 2 + low, np.int64)


@kernel
def pair_products(x: Array, *, out: Array) -> None:
    """Products of every two coordinates of each row: the half of its outer product with itself.

    Parameters
    ----------
    x : (r, k) float32 or float64
    out : (r, k (k + 1) / 2) of that type; written
        In the order of ``pair_places``.

    Notes
    -----
    Work r k^2 / 2 flops; an entry is one product, rounded once.
    """
    high, low = np.tril_indices(x.shape[1])
    np.multiply(x[:, high], x[:, low], out=out)


@kernel
def descend_weighted_rows(grams: Array, b: Array, *, w: Array, sweeps: int) -> None:
    """Improve rows w for ``w G w' / 2 - b w'``, w >= 0, by cyclic coordinate descent, each with its own G.

    Parameters
    ----------
    grams : (r, k (k + 1) / 2) float32 or float64
        Half of the Gram matrix G of each row, positive semidefinite, in the order of ``pair_places``.
    b : (r, k) of that type
    w : (r, k) of that type, not negative; written
    sweeps : int, >= 1
        Over all k coordinates of each row.

    Notes
    -----
    No sweep raises ``w G w' / 2 - b w'``. A row depends on no other: which rows are in one call changes
    nothing. A coordinate whose diagonal is zero goes to zero where ``b`` is below zero, and is left alone
    elsewhere. Slopes are updated from step to step. Work 2 r k^2 flops a sweep.

    References
    ----------
    Cichocki, Phan, Fast local algorithms for large scale nonnegative matrix and tensor factorizations, IEICE
    Trans. Fundamentals E92-A(3), 2009: HALS. Kim, Choi, Weighted nonnegative matrix factorization, ICASSP
    2009: rows and columns as least squares with weights of their own, which they solve by active sets.
    """
    places = pair_places(w.shape[1])
    diagonal = grams[:, np.diag(places)]
    slope = -b
    for t in range(w.shape[1]):
        slope += w[:, t, None] * grams[:, places[t]]
    curved = diagonal > 0
    inverse = np.divide(1, diagonal, out=np.zeros_like(diagonal), where=curved)
    useless = ~curved & (b < 0)
    for _ in range(sweeps):
        for t in range(w.shape[1]):
            new = np.maximum(w[:, t] - slope[:, t] * inverse[:, t], 0)
            new[useless[:, t]] = 0
            slope += (new - w[:, t])[:, None] * grams[:, places[t]]
            w[:, t] = new


@kernel
def gradient_weighted_rows(grams: Array, b: Array, w: Array) -> Float64:
    """Sums over rows of squares of the projected gradient, by component; see ``gradient_rows``.

    Parameters
    ----------
    grams : (r, k (k + 1) / 2) float32 or float64
        As for ``descend_weighted_rows``.
    b, w : (r, k) of that type; ``w`` is not negative

    Returns
    -------
    (k,) float64
        Sums for ``w G - b`` where ``w`` is above zero, and for its negative part where ``w`` is zero.

    Notes
    -----
    Work 2 r k^2 flops, in the type of the rows; squares are summed in float64.
    """
    places = pair_places(w.shape[1])
    slope = -b
    for t in range(w.shape[1]):
        slope += w[:, t, None] * grams[:, places[t]]
    projection = np.where(w > 0, slope, np.minimum(slope, 0)).astype(np.float64)
    return np.einsum("ij,ij->j", projection, projection)  # type: ignore[no-any-return]
