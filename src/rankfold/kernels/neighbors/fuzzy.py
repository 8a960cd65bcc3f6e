"""How strongly each row belongs to the neighborhood of another: the weights of a graph of neighbors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]

STEPS = 64
"""Halvings of an interval in which a width is sought."""

CLOSE = 1e-5
"""How near to its target a sum of weights comes."""

LEAST_WIDTH = 1e-3
"""Of a width, as a share of the mean distance."""

BLOCK_ROWS = 2**15
"""Rows that the reference body takes at once."""


@kernel
def membership(distances: Array, mean_distance: float, *, out: Array) -> None:
    """``exp(-(d - rho) / sigma)`` of each neighbor, sigma such that they sum to log2(k + 1) in each row.

    Parameters
    ----------
    distances : (m, k) float32 or float64
        Of the neighbors of each row, without the row itself, in increasing order, none negative.
    mean_distance : float
        Mean over all rows, each row counted with its distance of 0 from itself.
    out : (m, k) float32 or float64, written
        Between 0 and 1; 1 up to the distance rho of the nearest neighbor that is not in the same place.

    Notes
    -----
    Up to 64 (k exponentials) a row, in float64; some 10 vectors of a block of scratch.

    References
    ----------
    McInnes, Healy, Melville, UMAP, arXiv:1802.03426, algorithms 2 and 3. The row itself counts as one of
    k + 1 neighbors, and a width is at least a thousandth of the mean distance, as in their implementation.
    """
    for first in range(0, len(distances), BLOCK_ROWS):
        block = np.ascontiguousarray(distances[first : first + BLOCK_ROWS], np.float64)
        out[first : first + BLOCK_ROWS] = _weights(block, mean_distance)


def _weights(d: npt.NDArray[np.float64], mean_distance: float) -> npt.NDArray[np.float64]:
    count = d.shape[1]
    apart = d > 0
    nearest = np.where(apart.any(axis=1), np.min(np.where(apart, d, np.inf), axis=1, initial=np.inf), 0.0)
    beyond = np.maximum(d - nearest[:, None], 0.0)
    target = np.log2(count + 1)
    low, high, width = np.zeros(len(d)), np.full(len(d), np.inf), np.ones(len(d))
    open_ = np.arange(len(d))
    for _ in range(STEPS):
        total = np.exp(-beyond[open_] / width[open_, None]).sum(axis=1)
        open_, total = (each[np.abs(total - target) >= CLOSE] for each in (open_, total))
        if not len(open_):
            break
        wide, narrow = open_[total > target], open_[total <= target]
        high[wide], low[narrow] = width[wide], width[narrow]
        bounded = np.isfinite(high[open_])
        width[open_] = np.where(bounded, (low[open_] + high[open_]) / 2, 2 * width[open_])
    mean = np.where(nearest > 0, d.sum(axis=1) / (count + 1), mean_distance)
    width = np.maximum(width, LEAST_WIDTH * mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.where(beyond > 0, np.exp(-beyond / width[:, None]), 1.0)
    return weights
