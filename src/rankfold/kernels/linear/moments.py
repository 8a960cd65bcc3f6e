"""Count, mean and scatter of rows, in pieces that merge.

The one pass of every Gram method: blocks of rows are added to ``Moments``, two ``Moments`` merge into
one, and the root of that tree describes the whole matrix.

Never E[xx'] - E[x]E[x]': for float32 data of mean 1e3 and standard deviation 1 it is wrong by more
than the variance itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.linear.center_scale import subtract

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@dataclass(slots=True)
class Moments:
    """Moments of a set of rows; the arrays are updated in place."""

    count: int
    mean: Float64
    """(d,) float64."""
    scatter: Float64
    """(d, d) float64: sum over rows of (x - mean)(x - mean)', or of xx' for moments about zero."""

    @classmethod
    def empty(cls, columns: int) -> Moments:
        """Moments of no rows."""
        return cls(0, np.zeros(columns), np.zeros((columns, columns)))


@kernel
def add_rows(total: Moments, x: Array, mean: Float64, pow2_scale: float, *, out: Array, work: Array) -> None:
    """Add a block of rows, times ``pow2_scale``, to centered moments.

    Parameters
    ----------
    total : Moments
        Changed in place.
    x : (r, d) real or integer, C order
        The rows; left untouched unless it shares memory with ``out``.
    mean : (d,) float64
        Their mean.
    pow2_scale : float
        Power of two that keeps squares in the range of the working type.
    out : (r + 1, d) float32 or float64, overwritten
        Becomes the centered rows, and one row more for the difference of the means.
    work : (d, d) of the type of ``out``, overwritten

    Notes
    -----
    Work r d^2 flops (a symmetric rank-r update). The pairwise update of the scatter, n_a n_b / n
    times the outer square of the difference of means, rides along as one more row of the block, so
    no (d, d) temporary is made.

    References
    ----------
    [CGL83] Chan, Golub, LeVeque, Algorithms for computing the sample variance, The American
    Statistician 37(3), 1983: two-pass algorithm within a block, pairwise updating between blocks.
    Unlike them we keep the full scatter matrix.
    """
    rows = len(x)
    subtract(x, mean, np.full_like(mean, pow2_scale), out=out[:rows])
    delta = mean * pow2_scale - total.mean
    count = total.count + rows
    out[rows] = delta * np.sqrt(total.count * rows / count)
    np.matmul(out[: rows + 1].T, out[: rows + 1], out=work)
    total.scatter += work
    total.mean += delta * (rows / count)
    total.count = count


@kernel
def merge_moments(total: Moments, other: Moments) -> None:
    """Add ``other`` to ``total`` in place, whether about the mean or (means all zero) about zero.

    Notes
    -----
    Work 3 d^2 flops, no (d, d) temporary.
    """
    count = total.count + other.count
    if not other.count:
        return
    delta = other.mean - total.mean
    weight = total.count * other.count / count
    total.scatter += other.scatter
    for i in np.flatnonzero(delta):
        total.scatter[i] += delta[i] * weight * delta
    total.mean += delta * (other.count / count)
    total.count = count
