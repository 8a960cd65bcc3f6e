"""Penalties of nonnegative factors, in a normalization where they are meaningful.

One factor can be made smaller and the other larger without changing their product. If both are penalized,
the penalties fix their sizes, and they are scikit-learn's. A penalty on one factor alone would shrink it to
zero; it is therefore evaluated with each component of the other factor scaled to unit norm. With a_j and b_j
the components of the penalized factor and of the other:

    l1 sum_j |a_j|_1 |b_j|_2 + l2/2 sum_j |a_j|^2 |b_j|^2

For fixed b this is again linear plus quadratic in a. In b only |b_j|_2 is not. It is bounded from above by
|b_j|^2 / (2 c) + c / 2, with c the current |b_j|: updates still never raise the objective.

References
----------
Hunter, Lange, A tutorial on MM algorithms, The American Statistician 58(1), 2004: why minimizing a bound that
touches the objective never raises the objective.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Penalty:
    """Weights of the sum of a factor's elements and of half their squares."""

    l1: float = 0.0
    l2: float = 0.0

    @classmethod
    def of(cls, alpha: float, l1_ratio: float, count: int) -> Penalty:
        """Penalty as in scikit-learn, for a factor whose other side has ``count`` rows or columns."""
        return cls(alpha * l1_ratio * count, alpha * (1 - l1_ratio) * count)

    def __bool__(self) -> bool:
        return self.l1 > 0 or self.l2 > 0

    def scale(self, share: float) -> Penalty:
        """The penalty with both weights times ``share``, for a factorization of a share of the rows."""
        return Penalty(self.l1 * share, self.l2 * share)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sums and sums of squares, each (k,), of the components of a factor; penalties follow from them."""

    sums: Float64
    squares: Float64

    @classmethod
    def of(cls, columns: npt.NDArray[np.floating]) -> Sizes:
        """Sizes of a factor (r, k) whose components are columns."""
        return cls(
            columns.sum(axis=0, dtype=np.float64), np.einsum("ij,ij->j", columns, columns, dtype=float)
        )


def weights(own: Penalty, other: Penalty, mine: Sizes, theirs: Sizes) -> tuple[Float64, Float64]:
    """Terms of the penalties in the normal equations of a factor, ``linear`` (k,) and ``diagonal`` (k,).

    A solver subtracts the first from products with the data, and adds the second to the diagonal of the Gram
    matrix. ``own`` and ``mine`` are of the factor to solve, ``other`` and ``theirs`` of the other factor.
    """
    k = len(mine.sums)
    if bool(own) == bool(other):
        return np.full(k, own.l1), np.full(k, own.l2)
    if own:
        return own.l1 * np.sqrt(theirs.squares), own.l2 * theirs.squares
    norms = np.sqrt(mine.squares)
    inverse = np.divide(1.0, norms, out=np.zeros(k), where=norms > 0)
    return np.zeros(k), other.l1 * theirs.sums * inverse + other.l2 * theirs.squares


def cheapest(first: Penalty, second: Penalty, one: Sizes, two: Sizes) -> Float64:
    """Scales (k,) of components that make the penalty least without a change of the product.

    Components of the second factor are to be multiplied by them, those of the first divided.
    """
    if not (first and second):
        return np.ones(len(one.sums))
    alive = (one.squares > 0) & (two.squares > 0)
    low, high = np.full(len(one.sums), -200.0), np.full(len(one.sums), 200.0)
    for _ in range(60):
        middle = (low + high) / 2
        d = np.exp(middle)
        rises = second.l1 * two.sums * d + second.l2 * two.squares * d**2
        more = rises > first.l1 * one.sums / d + first.l2 * one.squares / d**2
        low, high = np.where(more, low, middle), np.where(more, middle, high)
    return np.where(alive, np.exp(low), 1.0)


def penalty(first: Penalty, second: Penalty, one: Sizes, two: Sizes) -> float:
    """Value of the penalty for two factors."""
    if bool(first) == bool(second):
        value = first.l1 * one.sums.sum() + first.l2 / 2 * one.squares.sum()
        return float(value + second.l1 * two.sums.sum() + second.l2 / 2 * two.squares.sum())
    if second:
        first, one, two = second, two, one
    norms = np.sqrt(two.squares)
    return float(first.l1 * (one.sums * norms).sum() + first.l2 / 2 * (one.squares * two.squares).sum())
