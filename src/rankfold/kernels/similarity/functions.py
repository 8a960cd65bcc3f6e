"""Kernel functions of two rows, and rows prepared for tiles of pairs.

Functions of differences (rbf, laplacian) take rows less a common shift, such as the mean of some: rounding
errors of products then follow the distances of rows from the shift, not from zero. Cosine takes rows of
length 1, after which it is their product. All is float64: products in float32 leave errors of squared
distances of 1e-7 of squared norms, which a bandwidth turns into errors of similarities that are too large for
eigenvalues of 1e-6.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


class Kind(enum.IntEnum):
    """A kernel function of two rows x and y."""

    RBF = 0
    """exp(-gamma |x - y|^2)"""

    LAPLACIAN = 1
    """exp(-gamma sum |x_j - y_j|)"""

    POLYNOMIAL = 2
    """(gamma x'y + coef0)^degree"""

    SIGMOID = 3
    """tanh(gamma x'y + coef0)"""

    COSINE = 4
    """x'y / (|x| |y|), 0 for a row of zeros"""

    LINEAR = 5
    """x'y"""

    FUNCTION = 6
    """A function of the caller's own"""


OF_DIFFERENCES = (Kind.RBF, Kind.LAPLACIAN)
"""Kinds that depend on x - y alone, and are 1 for a row with itself."""


class Similarity(NamedTuple):
    """A kernel function with its parameters."""

    kind: int
    gamma: float = 1.0
    degree: float = 3.0
    coef0: float = 1.0
    function: Callable[..., float] | None = None
    """Function of two float64 rows, for ``Kind.FUNCTION``; compiled by numba, else called from Python."""

    @property
    def is_of_differences(self) -> bool:
        """True if it depends on x - y alone."""
        return self.kind in OF_DIFFERENCES


class Rows(NamedTuple):
    """Rows prepared for a kernel function by ``rows_of``."""

    values: Float64
    """(m, d) rows, less a shift or of length 1 as the kind requires."""

    squares: Float64
    """(m,) squared lengths of ``values``."""

    def part(self, rows: slice) -> Rows:
        """The rows of a slice."""
        return Rows(self.values[rows], self.squares[rows])


def rows_of(x: Array, similarity: Similarity, shift: Float64) -> Rows:
    """Copy of rows, prepared for a kernel function.

    Parameters
    ----------
    x : (m, d) of any real type
        Left untouched, finite.
    similarity : Similarity
    shift : (d,)
        Subtracted from rows if the function depends on differences alone; the same for both sides of a pair.

    Notes
    -----
    Work 3 m d flops. A shift rounds differences of rows by eps times their distances from it.
    """
    values = np.array(x, np.float64, order="C")
    if similarity.is_of_differences:
        values -= shift
    squares = np.einsum("ij,ij->i", values, values)
    if similarity.kind == Kind.COSINE:
        # By the largest number first: squares of rows may be out of range.
        largest = np.abs(values).max(axis=1, initial=0.0)
        values /= np.where(largest > 0, largest, 1.0)[:, None]
        lengths = np.sqrt(np.einsum("ij,ij->i", values, values))
        values /= np.where(lengths > 0, lengths, 1.0)[:, None]
        squares = (lengths > 0).astype(np.float64)
    return Rows(values, squares)


def own_similarities(x: Rows, similarity: Similarity) -> Float64:
    """(m,) similarity of each row with itself, exactly 1 or 0 where that is known."""
    kind = similarity.kind
    if similarity.is_of_differences:
        return np.ones(len(x.squares))
    if kind in (Kind.COSINE, Kind.LINEAR):
        return x.squares.copy()
    if kind == Kind.FUNCTION:
        assert similarity.function is not None  # noqa: S101 - it has one of this kind
        return np.array([similarity.function(row, row) for row in x.values], np.float64)
    return of_products(x.squares.copy(), similarity)


def of_products(products: Float64, similarity: Similarity) -> Float64:
    """Polynomial or sigmoid function of inner products, in place; returns the same array."""
    products *= similarity.gamma
    products += similarity.coef0
    if similarity.kind == Kind.SIGMOID:
        return np.asarray(np.tanh(products, out=products))
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.power(products, similarity.degree, out=products))
