"""How far products of features are from similarities, on all pairs of some rows, with an interval.

The trace tells what features leave of rows by themselves, exactly, since every row is visited; this is of
pairs of different rows, of which a sample is looked at.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]

SAMPLE_ROWS = 256
"""Of whose pairs similarities are looked at."""

WIDTH = 1.96
"""Standard errors to either side that hold the truth in 95 of 100 samples."""


class SampledError(NamedTuple):
    """Root of the squares of what features leave of similarities of pairs, relative to these."""

    value: float
    low: float
    high: float


def sampled_error(similarities: Float64, products: Float64, rows: int) -> SampledError:
    """Of (s, s) similarities of a sample of so many rows, and products of their features.

    References
    ----------
    Efron, Stein, The jackknife estimate of variance, Annals of Statistics 9, 1981: each row is left out in
    turn, with all its pairs; less the share of rows that is looked at anyhow.
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
