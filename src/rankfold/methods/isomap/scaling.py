"""From distances of landmarks to coordinates of all rows, and the error of these.

A landmark is weighted by the number of rows that are nearer to it than to any other. Landmarks that are far
from each other are not distributed as the rows are: without weights they would embed another distribution.
With all rows as landmarks each counts once, and nothing is approximate.

References
----------
Torgerson, Multidimensional scaling: I, Psychometrika 17, 1952: coordinates of landmarks are eigenvectors of
their centered squared distances. De Silva, Tenenbaum, Sparse multidimensional scaling using landmark points,
Stanford, 2004, section 2.2: those of a row follow from its squared distances to landmarks, less the mean of
each over landmarks. Unlike there means and eigenvectors are weighted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from rankfold.kernels.linear.dense import fix_signs, leading_eigenpairs

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

EPS = float(np.finfo(np.float64).eps)


def scaling_bytes(landmarks: int) -> int:
    """Memory of squared distances among landmarks, their copies, and eigenvectors of these."""
    return 6 * 8 * landmarks**2 + 2**20


@dataclass(frozen=True, slots=True)
class Scaling:
    """Linear map from squared distances from landmarks to coordinates."""

    eigenvalues: Float64
    """(l,) eigenvalues of centered squared distances among landmarks, times roots of weights; decreasing."""

    projection: Float64
    """(l, d) map from centered squared distances to coordinates; zero for eigenvalues not positive."""

    means: Float64
    """(l,) mean squared distance of each landmark from all, weighted."""

    reconstruction_error: float
    """Root of the residual sum of squares of the centered, weighted squared distances, divided by l, as
    ``reconstruction_error`` of scikit-learn."""

    @classmethod
    def of(cls, among: Float64, rows: Int64, components: int) -> Scaling:
        """Find the map from (l, l) distances among landmarks, weighted by (l,) ``rows``, in d dimensions."""
        count, share = len(among), rows / rows.sum()
        squares = among * among
        squares = (squares + squares.T) / 2  # paths in opposite directions are summed in different orders
        means, roots = squares @ share, np.sqrt(share * count)
        kernel = -0.5 * (squares - means - means[:, None] + share @ means)
        kernel *= roots * roots[:, None]
        total = float((kernel * kernel).sum())
        values = scipy.linalg.eigvalsh(kernel, check_finite=False)[::-1].copy()
        largest, vectors = leading_eigenpairs(kernel, components)
        positive = largest > count * EPS * max(abs(values[0]), abs(values[-1]))
        lengths = np.sqrt(np.where(positive, largest, np.inf))
        # Adding 0.0 makes zeros of missing directions positive.
        projection = -0.5 * roots[:, None] * (vectors * fix_signs(vectors)) / lengths + 0.0
        left = max(total - float((largest[positive] ** 2).sum()), 0.0)
        return cls(values, projection, means, float(np.sqrt(left)) / count)

    @property
    def rank(self) -> int:
        """Number of dimensions that landmarks spread in, at most d."""
        return int((self.projection != 0).any(axis=0).sum())

    def negative(self) -> tuple[int, float]:
        """Number of eigenvalues below zero by more than rounding; their share of the sum of all magnitudes.

        There are none if distances are those of points in a Euclidean space of any dimension.
        """
        magnitudes = np.abs(self.eigenvalues)
        below = self.eigenvalues < -len(magnitudes) * EPS * magnitudes.max()
        total = float(magnitudes.sum())
        return int(below.sum()), float(magnitudes[below].sum()) / total if total else 0.0

    def coordinates(self, distances: Array) -> Float64:
        """(r, d) coordinates from (r, l) distances; those of a row do not depend on other rows."""
        squares = distances.astype(np.float64)
        squares *= squares
        squares -= self.means
        out, product = np.empty((len(squares), self.projection.shape[1])), np.empty_like(squares)
        for axis in range(out.shape[1]):
            np.multiply(squares, self.projection[:, axis], out=product)
            product.sum(axis=1, out=out[:, axis])
        return out


def residual_variance(geodesics: Float64, embedded: Float64, rows: int) -> tuple[float, float]:
    """1 minus the squared correlation of path lengths and distances of (s, l) pairs; its standard error.

    The pairs are of s sampled rows and l landmarks. The error is that of sampling s of ``rows`` rows, by
    leaving each out in turn (Efron, Stein, The jackknife estimate of variance, Annals of Statistics 9, 1981).
    It is reduced by the share of all rows in the sample.
    """
    x, y = geodesics - geodesics.mean(), embedded - embedded.mean()
    sums = np.stack([part.sum(axis=1) for part in (x, y, x * x, y * y, x * y)])
    count, pairs = geodesics.shape
    total = sums.sum(axis=1, keepdims=True)
    value = float(_unexplained(total, count * pairs)[0])
    if count < 2 or count == rows:
        return value, 0.0
    without = _unexplained(total - sums, (count - 1) * pairs)
    spread = float(((without - without.mean()) ** 2).sum()) * (count - 1) / count
    return value, float(np.sqrt(spread * (1 - count / rows)))


def _unexplained(sums: Float64, pairs: int) -> Float64:
    """1 minus the squared correlation of x and y; 0 if x is constant, 1 if only y is.

    ``sums`` (5, s) are the sums of x, y, x x, y y and x y over ``pairs`` pairs, in each of s samples.
    """
    x, y, xx, yy, xy = sums
    variance, other, common = xx - x * x / pairs, yy - y * y / pairs, xy - x * y / pairs
    noise = EPS * pairs
    constant = variance <= noise * xx, other <= noise * yy
    share = common**2 / np.where(constant[0] | constant[1], 1.0, variance * other)
    unexplained: Float64 = np.where(constant[0], 0.0, np.where(constant[1], 1.0, np.clip(1 - share, 0, 1)))
    return unexplained


def distances_between(a: Float64, b: Float64) -> Float64:
    """(len(a), len(b)) Euclidean distances between all rows of ``a`` and of ``b``."""
    squares = np.zeros((len(a), len(b)))
    for axis in range(a.shape[1]):
        difference = a[:, axis, None] - b[:, axis]
        squares += difference * difference
    return np.sqrt(squares, out=squares)
