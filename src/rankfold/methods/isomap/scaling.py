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
    """Bytes of squared distances among this many landmarks, their copies, and eigenvectors of these."""
    return 6 * 8 * landmarks**2 + 2**20


@dataclass(frozen=True, slots=True)
class Scaling:
    """Linear map from squared distances of rows from l landmarks to d coordinates."""

    eigenvalues: Float64
    """(l,) eigenvalues, decreasing, of the centered squared distances among landmarks, times -1/2 and roots
    of weights on both sides."""

    projection: Float64
    """(l, d) map from centered squared distances to coordinates; columns are 0 for eigenvalues not
    positive."""

    means: Float64
    """(l,) weighted mean of the squared distances of each landmark from all landmarks."""

    reconstruction_error: float
    """Root of the residual sum of squares of the centered, weighted squared distances, divided by l, as
    ``reconstruction_error`` of scikit-learn."""

    @classmethod
    def of(cls, among: Float64, rows: Int64, components: int) -> Scaling:
        """Find the map to ``components`` coordinates from distances among landmarks, ``among`` (l, l).

        ``rows`` (l,) are weights of landmarks: numbers of rows that are nearest to each.
        """
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
        """Number of coordinates in which rows differ: dimensions that landmarks spread in, at most d."""
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
        """(r, d) coordinates of rows from their distances (r, l) from landmarks, each row by itself."""
        squares = distances.astype(np.float64)
        squares *= squares
        squares -= self.means
        out, product = np.empty((len(squares), self.projection.shape[1])), np.empty_like(squares)
        for axis in range(out.shape[1]):
            np.multiply(squares, self.projection[:, axis], out=product)
            product.sum(axis=1, out=out[:, axis])
        return out


def residual_variance(geodesics: Float64, embedded: Float64, rows: int) -> tuple[float, float]:
    """1 minus the squared correlation of path lengths and distances in the embedding; and its standard error.

    ``geodesics`` and ``embedded`` (s, l) are path lengths and distances between s sampled rows and l
    landmarks. The error is that of sampling s of ``rows`` rows, by leaving each out in turn (Efron, Stein,
    The jackknife estimate of variance, Annals of Statistics 9, 1981). It is reduced by the share of all rows
    in the sample.
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
    """(s,) 1 minus the squared correlation of x and y, by sample; 0 if x is constant, 1 if only y is.

    ``sums`` (5, s) are the sums of x, y, x x, y y and x y over the ``pairs`` pairs of each sample.
    """
    x, y, xx, yy, xy = sums
    variance, other, common = xx - x * x / pairs, yy - y * y / pairs, xy - x * y / pairs
    noise = EPS * pairs
    constant = variance <= noise * xx, other <= noise * yy
    share = common**2 / np.where(constant[0] | constant[1], 1.0, variance * other)
    unexplained: Float64 = np.where(constant[0], 0.0, np.where(constant[1], 1.0, np.clip(1 - share, 0, 1)))
    return unexplained


def distances_between(a: Float64, b: Float64) -> Float64:
    """(len(a), len(b)) Euclidean distances of all rows of ``a`` (., d) from all rows of ``b`` (., d)."""
    squares = np.zeros((len(a), len(b)))
    for axis in range(a.shape[1]):
        difference = a[:, axis, None] - b[:, axis]
        squares += difference * difference
    return np.sqrt(squares, out=squares)
