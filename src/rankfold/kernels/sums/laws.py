"""Interactions of two points (laws), as functions of the square of their distance.

With ``s`` the square of the distance:

    INVERSE         1 / sqrt(s + scale)         gravity and charges; scale is the square of the softening
    CAUCHY          1 / (s + scale)             Student's t with one degree of freedom, as in t-SNE
    SQUARED_CAUCHY  1 / (s + scale)^2
    GAUSSIAN        exp(shift - s scale)
    EXPONENTIAL     exp(shift - sqrt(s) scale)
    TOPHAT          1                           where sqrt(s) < scale; all below are 0 beyond
    EPANECHNIKOV    1 - s / scale^2
    LINEAR          1 - sqrt(s) / scale
    COSINE          cos(pi sqrt(s) / (2 scale))

Each target has its own shift: with that of the nearest source, sums far from all sources neither vanish nor
lose digits. Only the first four have derivatives everywhere, and so forces and moments. Their
derivatives by ``s`` follow from one another: ``f' = -c u f`` with ``u = 1 / (s + scale)`` and c = 1/2, 1 or
2, one more from each derivative to the next; for the gaussian ``u = scale`` and c = 1.

At distance 0 INVERSE and the like with a scale of 0 count as 0: two equal points exert no force.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


class Law(IntEnum):
    """Laws of distance; the module documentation has their formulas."""

    INVERSE = 0
    CAUCHY = 1
    SQUARED_CAUCHY = 2
    GAUSSIAN = 3
    EXPONENTIAL = 4
    TOPHAT = 5
    EPANECHNIKOV = 6
    LINEAR = 7
    COSINE = 8


SMOOTH = (Law.INVERSE, Law.CAUCHY, Law.SQUARED_CAUCHY, Law.GAUSSIAN)
"""Laws with derivatives everywhere, which have forces and moments."""

EXPONENTS = {Law.INVERSE: 0.5, Law.CAUCHY: 1.0, Law.SQUARED_CAUCHY: 2.0}


def derivatives(law: int, s: Float64, scale: float, shift: Any, count: int) -> list[Float64]:
    """Values of a law at squared distances ``s``, and of its first ``count`` derivatives by ``s``.

    The list has ``count + 1`` arrays of the shape of ``s``; ``shift`` is a number or broadcasts with ``s``.
    """
    if law == Law.GAUSSIAN:
        first = np.exp(shift - s * scale)
        return [first * (-scale) ** k for k in range(count + 1)]
    exponent, u = EXPONENTS[Law(law)], 1 / (s + scale)
    values = [u**exponent]
    for k in range(count):
        values.append(-(exponent + k) * u * values[-1])
    return values


def values(law: int, s: Float64, scale: float, shift: Any) -> Float64:
    """Values of a law at squared distances ``s``; ``shift`` is a number or broadcasts with ``s``."""
    if law in SMOOTH:
        return derivatives(law, s, scale, shift, 0)[0]
    d = np.sqrt(s)
    if law == Law.EXPONENTIAL:
        decayed: Float64 = np.exp(shift - d * scale)
        return decayed
    if law == Law.TOPHAT:
        shape = np.ones_like(d)
    elif law == Law.EPANECHNIKOV:
        shape = 1 - s / scale**2
    else:
        shape = 1 - d / scale if law == Law.LINEAR else np.cos(0.5 * np.pi * d / scale)
    return np.where(d < scale, shape, 0.0)


def at_zero(law: int, scale: float) -> float:
    """Value of a law at distance 0, for a shift of 0; 0 where it would be infinite."""
    if law not in EXPONENTS:
        return 1.0
    return scale ** -EXPONENTS[Law(law)] if scale else 0.0
