"""Bounds of the distances of rows from their inner products, with rounding errors included.

With ``n`` the squared norm of a row as multiplied, unit roundoff ``u`` and ``m`` terms summed by one
product at most, a product differs from the exact one by at most ``m u (n_i + n_j) / 2``; centering, rounding
of the copy, of norms and of the three terms add less than ``EXTRA u (n_i + n_j) / 2``. Half a squared
distance is then at least ``(1 - e) (n_i + n_j) / 2 - product`` with ``e = (m + EXTRA) u``, whatever the
order of the sum.

A shorter product bounds it too. With ``z`` the coordinates of a row in r orthonormal directions, and ``t``
the length of what they leave of it, ``x_i . x_j <= z_i . z_j + t_i t_j`` by Cauchy and Schwarz: the product
of rows of r + 1 numbers. The leading directions of a sample hold most of the distances, and few pairs are
left to measure. Coordinates are summed in float64, and lengths rounded up, so that the same ``EXTRA`` covers
their roundings.

References
----------
Seidl, Kriegel, Optimal multi-step k-nearest neighbor search, SIGMOD 1998: candidates by a lower bound of the
distance, which is measured until the bound exceeds the distance of the k-th.

Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, SIAM 2002, section 3.1: the error of an
inner product in any order of the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import Metric

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

TERMS = 1024
"""Columns of one product; products of wider rows are added up, so that rounding does not grow with width."""

EXTRA = 24
"""Roundings besides those of a product: 4 of the copy, 2 of centering, 8 of norms and sums, doubled."""


def slack(columns: int, dtype: np.dtype[Any]) -> float:
    """Error bound ``e`` of bounds by products of rows of ``columns`` entries in ``dtype``.

    It is a share of the mean of the squared norms of both rows: see the module documentation.
    """
    terms = min(columns, TERMS) + -(-columns // TERMS)
    pow2_scale = float(np.finfo(dtype).eps) / 2
    # Bounds are compared with norms and distances, which are float64 sums over all columns.
    return ((terms + EXTRA) * pow2_scale + 2 * columns * np.finfo(np.float64).eps) * 1.01


def near(
    norms: Float64, columns: int, metric: int, dtype: np.dtype[Any], share: float | None = None
) -> Array:
    """(r,) term of each row in the lower bound of half a squared distance: ``near[i] + near[j] - product``.

    ``norms`` (r,) are squared norms, and ``share`` is the error bound of products, ``slack`` if None. For
    ``INNER_PRODUCT`` the bound is that of the negative product itself.
    """
    share, tiny = slack(columns, dtype) if share is None else share, columns * float(np.finfo(dtype).tiny)
    weight = -share if metric == Metric.INNER_PRODUCT else 1 - share
    terms: Array = (weight * norms / 2 - tiny).astype(dtype)
    return terms


def products(a: Array, b: Array, out: Array, spare: Callable[[], Array]) -> None:
    """Write ``a @ b.T`` into ``out``, summed over pieces of ``TERMS`` columns.

    ``spare`` returns a buffer for the product of a second piece.
    """
    for piece, (start, stop) in enumerate(pieces(a.shape[1], TERMS)):
        into = out if piece == 0 else spare()[: len(a), : len(b)]
        np.matmul(a[:, start:stop], b[:, start:stop].T, out=into)
        if piece:
            out += into


def pieces(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Begin and end of the fewest nearly equal pieces of ``range(count)``, each of at most ``most``.

    >>> list(pieces(10, 4))
    [(0, 3), (3, 6), (6, 10)]
    """
    number = -(-count // most)
    for i in range(number):
        yield count * i // number, count * (i + 1) // number


def tiles(rows: int, others: int, most: int, *, same: bool) -> Iterator[tuple[slice, slice]]:
    """Row ranges of tiles of two blocks, of at most ``most`` rows; if ``same``, not below the diagonal.

    Tiles on the diagonal come first: rows of one block are nearer to each other, as a rule, than to others.

    >>> [(i.start, j.start) for i, j in tiles(1000, 1000, 512, same=True)]
    [(0, 0), (500, 500), (0, 500)]
    """
    if same:
        yield from ((slice(*piece), slice(*piece)) for piece in pieces(rows, most))
    for top, end in pieces(others, most):
        for first, last in pieces(rows, most):
            if not same or first < top:
                yield slice(first, last), slice(top, end)
