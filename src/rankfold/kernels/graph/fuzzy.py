"""Membership strength of each row in the neighborhood of another: the weights of a graph of neighbors.

The search for a width stops as soon as a sum is near enough, and where it stops shows in the sixth digit of
the weights. So distances are rounded to float32 and sums are made in float64, one neighbor after the other,
as in umap-learn: the weights are the same.

The search begins at a width of 1. For distances far from 1 it would not converge, and float32 may not hold
them: they are taken in units of a power of two near the mean of their row, which changes no digit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

STEPS = 64
"""Largest number of steps of the search for a width, by halving an interval."""

CLOSE = 1e-5
"""Difference from its target below which a sum of weights is accepted."""

LEAST_WIDTH = 1e-3
"""Least width of a row, as a share of the mean distance: smaller ones are raised to it."""

LEAST_UNIT, LARGEST_UNIT = 2.0**-32, 2.0**32
"""Mean distances of a row between which distances are not divided by a power of two."""

BLOCK_ROWS = 2**15
"""Rows that the reference body computes at once."""


@kernel
def membership(
    distances: Array, mean_distance: float, *, local_connectivity: float = 1.0, first: int = 0, out: Array
) -> None:
    """``exp(-(d - rho) / sigma)`` of each neighbor, sigma such that they sum to log2(k + 1) in each row.

    Parameters
    ----------
    distances : (m, k) float32 or float64
        Distances of the neighbors of each row, without the row itself, in increasing order, none negative,
        their sum within the range of float64. They are rounded to float32.
    mean_distance : float
        Mean distance over all rows, each row counted with its distance of 0 from itself.
    local_connectivity : float, >= 0
        Number of neighbors that weigh 1: rho is the distance of the neighbor of that rank among those at a
        distance above 0, interpolated for a fraction; of the last of them, if there are fewer.
    first : int, 0 or 1
        First neighbor whose weight is summed, to log2(k + 1 - first). It is 1 for rows that are not among
        those they are compared with: the nearest takes the place of the row itself.
    out : (m, k) float32 or float64, written
        Weights between 0 and 1; 1 up to the distance rho.

    Notes
    -----
    Up to 64 (k exponentials) a row; some 10 vectors of a block of scratch. Sums of weights are within 1e-5 of
    their target, and two correct bodies may differ by that: all weights grow with sigma, so that none differs
    by more than the sums do.

    References
    ----------
    McInnes, Healy, Melville, UMAP, arXiv:1802.03426, algorithms 2 and 3. As in their implementation the row
    itself counts as one of k + 1 neighbors, sigma is at least a thousandth of the mean distance (of the row
    if rho is not 0, else of all), and distances are float32.
    """
    for top in range(0, len(distances), BLOCK_ROWS):
        block = distances[top : top + BLOCK_ROWS].astype(np.float64)
        units = units_of(block.mean(axis=1))
        in_units = (block / units[:, None]).astype(np.float32)
        out[top : top + BLOCK_ROWS] = _weights(in_units, mean_distance / units, local_connectivity, first)


def units_of(means: Float64) -> Float64:
    """A power of two near each mean, or 1 for means that are not far from 1."""
    is_far = (means > 0) & ((means < LEAST_UNIT) | (means > LARGEST_UNIT))
    return np.ldexp(1.0, np.where(is_far, np.frexp(means)[1], 0))


def _weights(d: Float32, mean_distance: Float64, local_connectivity: float, first: int) -> Float64:
    count = d.shape[1] - first
    rho = _rho(d, local_connectivity)
    beyond = d - rho[:, None]
    target = np.log2(count + 1)
    low, high, width = np.zeros(len(d)), np.full(len(d), np.inf), np.ones(len(d))
    open_ = np.arange(len(d))
    for _ in range(STEPS):
        total = _sums(beyond[open_, first:], width[open_])
        still = np.abs(total - target) >= CLOSE
        open_, total = open_[still], total[still]
        if not len(open_):
            break
        wide, narrow = open_[total > target], open_[total <= target]
        high[wide], low[narrow] = width[wide], width[narrow]
        bounded = np.isfinite(high[open_])
        width[open_] = np.where(bounded, (low[open_] + high[open_]) / 2, 2 * width[open_])
    mean = np.where(rho > 0, d.sum(axis=1, dtype=np.float64) / (count + 1), mean_distance)
    return _strengths(beyond, np.maximum(width, LEAST_WIDTH * mean).astype(np.float32))


def _rho(d: Float32, local_connectivity: float) -> Float32:
    """(m,) distance rho of each row up to which neighbors weigh 1, from increasing distances (m, k)."""
    index = int(local_connectivity)
    between = local_connectivity - index
    apart = (d > 0).sum(axis=1)
    first = d.shape[1] - apart

    def at(place: int) -> Float32:
        """(m,) distance of rank ``place``, from 1, among those above 0; of the last if fewer, 0 if none."""
        where = np.minimum(first + place - 1, d.shape[1] - 1)
        return np.where((apart > 0) & (place > 0), np.take_along_axis(d, where[:, None], 1)[:, 0], 0)

    rho = at(index)
    enough = (apart >= local_connectivity) & (between > CLOSE)
    return np.where(enough, rho + between * (at(index + 1) - rho).astype(np.float64), rho).astype(np.float32)


def _strengths(beyond: Float32, width: Array) -> Float64:
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        weights = np.exp(-(np.maximum(beyond, 0) / width[:, None].astype(np.float64)))
    return np.where((beyond > 0) & (width[:, None] > 0), weights, 1.0)


def _sums(beyond: Float32, width: Float64) -> Float64:
    """Sum of the weights of each row, added up in the order of its neighbors."""
    weights, total = _strengths(beyond, width), np.zeros(len(width))
    for column in range(weights.shape[1]):
        total += weights[:, column]
    return total
