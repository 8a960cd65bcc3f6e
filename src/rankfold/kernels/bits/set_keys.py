"""Distances of sets: all of them follow from two sizes, and from how many members two sets share.

A set is a row of bits, or the columns in which a sparse row is not zero. Sizes and shares are whole numbers,
so a distance is one rounded quotient: the same from either side and however members were counted.
"""

from __future__ import annotations

import enum

from rankfold.kernels.neighbors.lists import Metric


class SetMetric(enum.IntEnum):
    """Distance of two sets among ``bits`` columns, used as a key; values are none of those of ``Metric``."""

    HAMMING = int(Metric.HAMMING)
    """Share of all columns that are members of exactly one of the two sets."""

    JACCARD = 7
    """Share of the members of the union that exactly one of the two sets has; 0 for two empty sets."""


def set_key(shared: int, size_x: int, size_y: int, bits: int, metric: int) -> float:
    """Distance of two sets, the key of a pair: from the number of shared members and both sizes.

    >>> set_key(2, 3, 4, 10, SetMetric.HAMMING), set_key(2, 3, 4, 10, SetMetric.JACCARD)
    (0.3, 0.6)
    """
    apart = size_x + size_y - 2 * shared
    if metric == SetMetric.HAMMING:
        return apart / bits
    return apart / (apart + shared) if apart else 0.0
