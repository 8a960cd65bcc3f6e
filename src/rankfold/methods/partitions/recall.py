"""The share of true neighbors that a search has found, and a confidence interval for it.

A row is chosen among all with equal chances; of its ``k`` true neighbors ``h`` were found. Neighbors as near
as the farthest true one count, so that a choice among equal distances is no error. What is reported is the
mean of ``h / k`` over some rows, and an interval for the mean over all rows.

Shares of one row are not independent, and near 1 they are far from normal: a normal interval misses the
mean too often there. The interval is that of Clopper and Pearson, for as many independent neighbors as have
the variance that is seen between rows. Few rows may show none by chance: half a row without a hit is added
in the variance.

References
----------
Korn, Graubard, Confidence intervals for proportions with small expected number of positive counts estimated
from survey data, Survey Methodology 24(2), 1998: the effective size of a sample in that interval.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

MISSED = 0.05
"""Largest share of samples whose interval does not contain the mean."""

EXTRA_ROWS = 0.5
"""Rows without a found neighbor that are added in the variance between rows."""


class Recall(NamedTuple):
    """Mean recall of sampled rows, and an interval that contains that of all rows for 95 % of samples."""

    mean: float
    low: float
    high: float


def recall_of(hits: npt.NDArray[np.int64], k: int, rows: int) -> Recall:
    """Recall from the number of true neighbors found, of ``k`` each, of rows sampled from ``rows``.

    It is exact if these are all rows.

    >>> found = recall_of(np.full(100, 15), 15, 10**6)
    >>> found.mean, round(found.low, 2), found.high
    (1.0, 0.96, 1.0)
    """
    shares, count = hits / k, len(hits)
    mean = float(shares.mean())
    if count == rows:
        return Recall(mean, mean, mean)
    seen = count + EXTRA_ROWS
    middle = mean * count / seen
    between = (float(((shares - middle) ** 2).sum()) + EXTRA_ROWS * middle**2) / seen
    trials = count * min(float(k), max(1.0, middle * (1 - middle) / between if between > 0 else 1.0))
    hits_of_them, misses = mean * trials, (1 - mean) * trials
    low = betaincinv(hits_of_them, misses + 1, MISSED / 2) if hits_of_them > 0 else 0.0
    high = betaincinv(hits_of_them + 1, misses, 1 - MISSED / 2) if misses > 0 else 1.0
    return Recall(mean, float(low), float(high))
