"""Named kernels as laws of distances: see ``rankfold.kernels.sums.laws``.

Kernels of densities are scaled to an integral of one over space. With ``V`` the volume of the unit ball in d
dimensions and ``S = d V`` its surface:

    gaussian      (2 pi)^(d/2) h^d
    exponential   S (d - 1)! h^d
    tophat        V h^d
    epanechnikov  V h^d 2 / (d + 2)
    linear        V h^d / (d + 1)
    cosine        S h^d times the integral of r^(d - 1) cos(pi r / 2) from 0 to 1

That integral is a series, of the sine of 1 - r by its powers, in any number of dimensions:
``sum_k (-1)^k (pi / 2)^(2 k + 1) / (d (d + 1) ... (d + 2 k + 1))``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rankfold.kernels.sums.laws import Law
from rankfold.methods.sums.arguments import BANDWIDTH_RULES

TERMS = 12
"""Number of terms of the series of cosine: in one dimension, where it falls slowest, the next is below
1e-20."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: its law (a function of distance), the ``scale`` of that, and the ``factor`` of its sums."""

    law: Law
    scale: float
    factor: float = 1.0

    @property
    def decays(self) -> bool:
        """True if the kernel decays exponentially or faster, so that far sources may be left out."""
        return self.law in (Law.GAUSSIAN, Law.EXPONENTIAL)

    @property
    def is_compact(self) -> bool:
        """True if the kernel is 0 beyond a radius, which is ``scale``."""
        return self.law > Law.EXPONENTIAL


def force_kernel(name: str, softening: float, bandwidth: float) -> Kernel:
    """The kernel of sums and forces named ``name``; softening and bandwidth are in units of the points.

    Forces are negative gradients of sums.

    >>> force_kernel("gravity", 0.5, 1.0)
    Kernel(law=<Law.INVERSE: 0>, scale=0.25, factor=-1.0)
    """
    square = bandwidth * bandwidth
    return {
        "gravity": Kernel(Law.INVERSE, softening * softening, -1.0),
        "coulomb": Kernel(Law.INVERSE, softening * softening),
        "gaussian": Kernel(Law.GAUSSIAN, 0.5 / square),
        "cauchy": Kernel(Law.CAUCHY, square, square),
        "squared_cauchy": Kernel(Law.SQUARED_CAUCHY, square, square * square),
    }[name]


def density_kernel(name: str, bandwidth: float) -> Kernel:
    """The kernel of densities named ``name``, with value 1 at distance 0, not with an integral of 1."""
    law = Law[name.upper()]
    scale = {Law.GAUSSIAN: 0.5 / (bandwidth * bandwidth), Law.EXPONENTIAL: 1 / bandwidth}
    return Kernel(law, scale.get(law, bandwidth))


def log_integral(name: str, bandwidth: float, columns: int) -> float:
    """Logarithm of the integral over space of the kernel of densities ``name``, 1 at distance 0.

    Space has ``columns`` dimensions.

    >>> round(math.exp(log_integral("linear", 2.0, 1)), 12)
    2.0
    """
    d = columns
    volume = 0.5 * d * math.log(math.pi) - math.lgamma(0.5 * d + 1)
    if name == "gaussian":
        shape = 0.5 * d * math.log(2 * math.pi)
    elif name == "exponential":
        shape = volume + math.log(d) + math.lgamma(d)
    elif name == "tophat":
        shape = volume
    elif name == "epanechnikov":
        shape = volume + math.log(2 / (d + 2))
    elif name == "linear":
        shape = volume - math.log(d + 1)
    else:
        terms = [0.5 * math.pi / (d + 1)]
        for k in range(1, TERMS):
            terms.append(-terms[-1] * (0.5 * math.pi) ** 2 / ((d + 2 * k) * (d + 2 * k + 1)))
        shape = volume + math.log(math.fsum(terms))
    return shape + d * math.log(bandwidth)


def bandwidth_by_rule(rule: str, rows: int, columns: int) -> float:
    """Bandwidth by the rule ``"scott"`` or ``"silverman"``, for columns with a deviation of about 1.

    >>> bandwidth_by_rule("scott", 32, 1)
    0.5
    """
    few = rows if rule == BANDWIDTH_RULES[0] else rows * (columns + 2) / 4
    return float(few ** (-1 / (columns + 4)))
