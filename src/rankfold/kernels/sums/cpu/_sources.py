"""Add sources to the sums of a group of targets, with compensated summation of blocks.

A group is one array, so that loops over its targets are vectors: 21 rows of ``GROUP`` entries, one for each
target, which begin at the offsets below. Sums since the last ``settle`` are a block; settled sums have rows
of their own for their rounding errors.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import part
from rankfold.kernels.sums.cpu._laws import CAUCHY, GAUSSIAN, INVERSE, SQUARED_CAUCHY, compact, exp
from rankfold.kernels.sums.pairs import GROUP

Float64 = npt.NDArray[np.float64]

# Rows of a group: coordinates, the shift, a block of five sums (the law, three forces, weights of sources at
# the target itself), these settled, and their errors; last the value and the slope of a law.
Y = GROUP
Z = 2 * GROUP
SHIFT = 3 * GROUP
SUM = 4 * GROUP
FORCE_X = 5 * GROUP
FORCE_Y = 6 * GROUP
FORCE_Z = 7 * GROUP
HERE = 8 * GROUP
SETTLED = 9 * GROUP
SETTLED_HERE = 13 * GROUP
ERRORS = 14 * GROUP
ERRORS_HERE = 18 * GROUP
VALUE = 19 * GROUP
SLOPE = 20 * GROUP
SIZE = 21 * GROUP

BLOCK = 64
"""Sources, or nodes, that are added before a block is settled."""


@part
def add_source(
    group: Float64, x: float, y: float, z: float, w: float, law: int, scale: float, magnitudes: bool
) -> None:
    """Add a source at (x, y, z) with weight ``w`` to the block sums of all targets of a group, in place.

    Parameters
    ----------
    group : (SIZE,)
        Targets and their sums, laid out as the module documentation says. The law is added at ``SUM``, the
        force at ``FORCE_X`` to ``FORCE_Z``; for a target in the very place of the source only ``w`` is added,
        at ``HERE``.
    law, scale
        See ``kernels/sums/laws.py``. Laws without derivatives add no force.
    magnitudes : bool
        True to add absolute values of the law, and at ``FORCE_X`` the length of the force.
    """
    if magnitudes:
        _add_magnitude(group, x, y, z, abs(w), law, scale)
    elif law == INVERSE:
        for i in range(GROUP):
            a, b, c = group[i] - x, group[Y + i] - y, group[Z + i] - z
            s = a * a + b * b + c * c
            m = 0.0 if s == 0.0 else w
            r2 = 1.0 if s == 0.0 else s + scale
            u = 1.0 / r2
            f = m * (u * math.sqrt(r2))
            _gather(group, i, f, f * u, a, b, c, w - m)
    elif law == CAUCHY:
        for i in range(GROUP):
            a, b, c = group[i] - x, group[Y + i] - y, group[Z + i] - z
            s = a * a + b * b + c * c
            m = 0.0 if s == 0.0 else w
            u = 1.0 / (1.0 if s == 0.0 else s + scale)
            f = m * u
            _gather(group, i, f, 2.0 * f * u, a, b, c, w - m)
    elif law == SQUARED_CAUCHY:
        for i in range(GROUP):
            a, b, c = group[i] - x, group[Y + i] - y, group[Z + i] - z
            s = a * a + b * b + c * c
            m = 0.0 if s == 0.0 else w
            u = 1.0 / (1.0 if s == 0.0 else s + scale)
            f = m * u * u
            _gather(group, i, f, 4.0 * f * u, a, b, c, w - m)
    elif law == GAUSSIAN:
        for i in range(GROUP):
            a, b, c = group[i] - x, group[Y + i] - y, group[Z + i] - z
            s = a * a + b * b + c * c
            m = 0.0 if s == 0.0 else w
            f = m * exp(group[SHIFT + i] - s * scale)
            _gather(group, i, f, 2.0 * f * scale, a, b, c, w - m)
    else:
        for i in range(GROUP):
            a, b, c = group[i] - x, group[Y + i] - y, group[Z + i] - z
            s = a * a + b * b + c * c
            if s == 0.0:
                group[HERE + i] += w
            else:
                group[SUM + i] += w * compact(law, s, scale, group[SHIFT + i])


@part
def _gather(group: Float64, i: int, f: float, pull: float, a: float, b: float, c: float, here: float) -> None:
    group[SUM + i] += f
    group[FORCE_X + i] += pull * a
    group[FORCE_Y + i] += pull * b
    group[FORCE_Z + i] += pull * c
    group[HERE + i] += here


@part
def _add_magnitude(group: Float64, x: float, y: float, z: float, w: float, law: int, scale: float) -> None:
    for i in range(GROUP):
        a, b, c = group[i] - x, group[Y + i] - y, group[Z + i] - z
        s = a * a + b * b + c * c
        if s == 0.0:
            group[HERE + i] += w
        else:
            value, slope = law_at(law, s, scale, group[SHIFT + i])
            group[SUM + i] += w * value
            group[FORCE_X + i] += w * slope * math.sqrt(s)


@part
def law_at(law: int, s: float, scale: float, shift: float) -> tuple[float, float]:
    """Value of a law at a squared distance s, and -2 times its derivative by s (0 for laws without)."""
    if law == GAUSSIAN:
        f = exp(shift - s * scale)
        return f, 2.0 * f * scale
    if law > GAUSSIAN:
        return compact(law, s, scale, shift), 0.0
    u = 1.0 / (s + scale)
    if law == INVERSE:
        f = math.sqrt(u)
        return f, f * u
    if law == CAUCHY:
        return u, 2.0 * u * u
    return u * u, 4.0 * u * u * u


@part
def settle(group: Float64, rows: int) -> None:
    """Add the first ``rows`` of the five rows of block sums to the settled sums, in place, and zero them.

    [Neumaier]'s sum, with selects in place of branches.
    """
    for t in range(rows * GROUP):
        value, total = group[SUM + t], group[SETTLED + t]
        sum_ = total + value
        larger = abs(total) >= abs(value)
        high, low = total if larger else value, value if larger else total
        group[ERRORS + t] += (high - sum_) + low
        group[SETTLED + t] = sum_
        group[SUM + t] = 0.0


@part
def begin(group: Float64) -> None:
    """Zero all sums of a group, of the block and settled, and their errors."""
    for t in range(SUM, SIZE):
        group[t] = 0.0
