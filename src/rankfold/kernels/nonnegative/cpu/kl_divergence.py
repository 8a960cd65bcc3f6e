"""Quotients and their logarithms, vectorized. See ``kernels/nonnegative/kl_divergence.py``.

The logarithm is written out: numba calls that of the C library, one number at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, contracted_part
from rankfold.kernels.nonnegative.cpu._tiles import LANES

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

TINY = 2.0**-1022
"""The smallest normal number of float64."""
MANTISSA, BITS = np.uint64((1 << 52) - 1), np.uint64(52)
ROOT_HALF = np.uint64(np.float64(np.sqrt(0.5)).view(np.uint64))
TO_ONE = np.uint64((1023 << 52) - int(ROOT_HALF))
"""Difference between the bits of 1 and of the root of 1/2: with it added, exponents step at that root."""
MAGIC = np.uint64(1075 << 52)
"""The bits of 2^52: the mantissa of such a number holds an integer."""
BIAS = float(2**52 + 1023)
LN2, LN2_REST = float.fromhex("0x1.62e42fefp-1"), float.fromhex("0x1.473de6af278edp-34")
"""The logarithm of 2 as a sum of two numbers; the first is so short that times an exponent it is exact."""


@contracted_part
def _log(q: float, power: float) -> float:
    """Natural logarithm of ``q 2^power``, for a normal q, to two roundings.

    It uses no branch, table or conversion of integers.
    """
    bits = np.float64(q).view(np.uint64) + TO_ONE
    exponent = np.uint64((bits >> BITS) | MAGIC).view(np.float64) - BIAS + power
    m = np.uint64((bits & MANTISSA) + ROOT_HALF).view(np.float64)
    # m is within a root of 2 of 1: log m = 2 atanh s with s^2 < 0.0295, and s^22 / 23 is below rounding.
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    low = 1 / 3 + z * (1 / 5 + z * (1 / 7 + z * (1 / 9 + z * (1 / 11))))
    high = 1 / 13 + z * (1 / 15 + z * (1 / 17 + z * (1 / 19 + z * (1 / 21))))
    z2 = z * z
    series = z * (low + z2 * z2 * z * high)
    return exponent * LN2 + (2 * s + (2 * s * series + exponent * LN2_REST))


@contracted_part
def _divide(data: Float64, model: Float64, floor: float, terms: Float64) -> None:
    for j in range(LANES):
        x, p = data[j], max(model[j], floor)
        # A quotient that may overflow is formed 2^1022 times too small, which is exact.
        steep = x > 1.0 and p < 1.0
        q = (x * TINY if steep else x) / p
        terms[j] = x * _log(max(q, TINY), 1022.0 if steep else 0.0) + (p - x)
        model[j] = q * 2.0**1022 if steep else q


@compile_loop
def _quotients(x: Array, product: Array, floor: float, largest: float) -> float:
    data, model, terms, sums = np.zeros(LANES), np.ones(LANES), np.zeros(LANES), np.zeros(LANES)
    total = 0.0
    for i in range(x.shape[0]):
        sums[:] = 0
        for first in range(0, x.shape[1], LANES):
            # Slices halve the time: the compiler cannot know that a sum of indices is not negative.
            here, there = x[i, first : first + LANES], product[i, first : first + LANES]
            for j in range(len(here)):
                data[j], model[j] = here[j], there[j]
            _divide(data, model, floor, terms)
            for j in range(len(here)):
                sums[j] += terms[j]
                there[j] = min(model[j], largest)
        row = 0.0
        for j in range(LANES):
            row += sums[j]
        total += row
    return total


def quotients(x: Array, product: Array, *, total: Float64) -> None:
    """See the contract; no scratch. Divides data by their model, and adds the divergence to ``total``.

    Column ``j`` adds to lane ``j mod 64``, lanes add up after each row.
    """
    limits = np.finfo(product.dtype)
    total += _quotients(x, product, float(limits.tiny), float(limits.max))
