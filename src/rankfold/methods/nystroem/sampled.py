"""Error of products of features as similarities, on all pairs of sampled rows, with an interval.

The error of the trace covers similarities of rows with themselves, and is exact, since every row is visited.
This error covers pairs of different rows, and is estimated from a sample.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]

SAMPLE_ROWS = 256
"""Number of rows sampled, all pairs of which are compared."""

WIDTH = 1.96
"""Standard errors to either side that hold the truth in 95 of 100 samples."""


class SampledError(NamedTuple):
    """Root of the summed squares of errors on pairs, relative to those of similarities, and its interval."""

    value: float
    low: float
    high: float


def sampled_error(similarities: Float64, products: Float64, rows: int) -> SampledError:
    """Error from (s, s) similarities of a sample, and (s, s) products of its features; ``rows`` are in all.

    References
    ----------
    Efron, Stein, The jackknife estimate of variance, Annals of Statistics 9, 1981: each row is left out in
    turn, with all its pairs; and corrected for the share of rows that is sampled.
    """
    count = len(similarities)
    errors, sizes = np.square(similarities - products), np.square(similarities)
    for squares in (errors, sizes):
        np.fill_diagonal(squares, 0.0)
    errors, sizes = errors.sum(axis=1), sizes.sum(axis=1)
    total, size = float(errors.sum()), float(sizes.sum())
    if not size > 0:
        return SampledError(0.0, 0.0, 0.0)
    without = (total - 2 * errors) / np.maximum(size - 2 * sizes, np.finfo(np.float64).tiny)
    spread = (count - 1) / count * np.square(without - without.mean()).sum() * (1 - count / rows)
    ratio, width = total / size, WIDTH * float(np.sqrt(spread))
    return SampledError(*(float(np.sqrt(max(each, 0.0))) for each in (ratio, ratio - width, ratio + width)))
