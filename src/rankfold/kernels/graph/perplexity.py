"""Affinity of each row to its neighbors: Gaussian weights of a chosen perplexity, as in t-SNE.

The perplexity of weights p that sum to 1 is ``exp(-sum p log p)``, a number of neighbors. The precision beta
of ``exp(-beta d^2)`` at which a row has it is found by Newton steps on the entropy, within an interval that
halves where a step would leave it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

STEPS = 200
"""Largest number of Newton steps and halvings of the search for a precision."""

CLOSE = 1e-10
"""Difference from its target below which an entropy is accepted."""

BLOCK_ROWS = 2**13
"""Rows that the reference body computes at once."""


@kernel
def affinities(distances: Array, perplexities: Float64, *, out: Array) -> None:
    """``exp(-beta d^2)`` of each neighbor over their sum, beta such that each row has the given perplexity.

    Parameters
    ----------
    distances : (m, k) float32 or float64
        Distances of the neighbors of each row, in any order, none negative, with squares within the range of
        float64.
    perplexities : (s,) float64, each in (0, k]
        If there are several, the weights are the mean of those for each perplexity.
    out : (m, k) float32 or float64, written
        Rows sum to 1.

    Notes
    -----
    Some 8 s k exponentials a row; scratch one row. Entropies come within 1e-10 of their target, or as near as
    the distances allow: a row with more nearest neighbors at one distance than its perplexity gives these
    equal weights, and one whose distances are all the same gives all equal weights.

    References
    ----------
    van der Maaten, Hinton, Visualizing data using t-SNE, Journal of Machine Learning Research 9, 2008,
    section 2. Kobak, Berens, The art of using t-SNE for single-cell transcriptomics, Nature Communications
    10, 2019, for several perplexities. The smallest squared distance is subtracted from all, which changes no
    entropy, so that not all exponentials are 0.
    """
    for top in range(0, len(distances), BLOCK_ROWS):
        squares = np.asarray(distances[top : top + BLOCK_ROWS], np.float64) ** 2
        squares = squares - squares.min(axis=1, keepdims=True)
        weights = np.zeros(squares.shape)
        for perplexity in perplexities:
            weights += _weights(squares, float(np.log(perplexity)))
        out[top : top + BLOCK_ROWS] = weights / len(perplexities)


def _weights(squares: Float64, target: float) -> Float64:
    """(m, k) weights that sum to 1 in each row, and have the entropy ``target`` where its ties allow it.

    ``squares`` are squared distances less the smallest of each row.
    """
    ties = (squares == 0).sum(axis=1)
    mean = squares.sum(axis=1) / np.maximum(1, squares.shape[1] - ties)
    squares = squares / np.where(mean > 0, mean, 1)[:, None]
    beta = np.ones(len(squares))
    # If the nearest alone are too many, or all are the same, no precision fits: its limit of infinity does.
    sure = (np.log(ties) >= target) | (mean == 0)
    low, high = np.zeros(len(beta)), np.full(len(beta), np.inf)
    open_ = np.flatnonzero(~sure)
    for _ in range(STEPS):
        if not len(open_):
            break
        own, part = beta[open_], squares[open_]
        with np.errstate(under="ignore"):
            p = np.exp(-own[:, None] * part)
        total = p.sum(axis=1)
        first, second = (p * part).sum(axis=1) / total, (p * part * part).sum(axis=1) / total
        excess = np.log(total) + own * first - target
        still = np.abs(excess) >= CLOSE
        open_, own, excess = open_[still], own[still], excess[still]
        wide = excess > 0
        low[open_[wide]], high[open_[~wide]] = own[wide], own[~wide]
        slope = -own * (second[still] - first[still] ** 2)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = own - excess / slope
        inside = (step > low[open_]) & (step < high[open_]) & (step < 4 * own)
        bounded = np.isfinite(high[open_])
        halved = np.where(bounded, (low[open_] + high[open_]) / 2, 2 * own)
        beta[open_] = np.where(inside, step, halved)
    with np.errstate(under="ignore"):
        p = np.exp(-beta[:, None] * squares)
    p = np.where(sure[:, None], squares == 0, p)
    return np.asarray(p / p.sum(axis=1, keepdims=True))
