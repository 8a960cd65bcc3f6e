"""Laws of distances inside loops over a group of targets. See ``kernels/sums/laws.py``."""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from rankfold.kernels._compiled import part
from rankfold.kernels.sums.laws import Law

INVERSE = int(Law.INVERSE)
CAUCHY = int(Law.CAUCHY)
SQUARED_CAUCHY = int(Law.SQUARED_CAUCHY)
GAUSSIAN = int(Law.GAUSSIAN)
EXPONENTIAL = int(Law.EXPONENTIAL)
TOPHAT = int(Law.TOPHAT)
EPANECHNIKOV = int(Law.EPANECHNIKOV)
LINEAR = int(Law.LINEAR)

ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it leaves an integer in the last bits
LOG2_E = 1.4426950408889634
LN2_HIGH = 0.6931471803691238
LN2_LOW = 1.9082149292705877e-10
LEAST = -709.0
"""Least argument of ``exp``: its power of two is the first below normal numbers, with the bits of 0, so that
the result is 0."""


@intrinsic
def bits_of(_: Any, x: Any) -> Any:
    """The bits of a float64 as int64."""

    def generate(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic
def float_of(_: Any, x: Any) -> Any:
    """The float64 that has the bits of an int64."""

    def generate(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


@part
def exp(x: float) -> float:
    """``exp`` of a number up to 700, to 2 ulp, in steps that a compiler vectorizes.

    x = n ln 2 + r with abs(r) < 0.35, where Taylor's polynomial of degree 12 is right to 2e-16. The result
    is 0 for x below -708.75, where it would not be a normal number.
    """
    x = max(x, LEAST)
    shifted = x * LOG2_E + ROUND
    n = shifted - ROUND
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    power: float = float_of((bits_of(shifted) + 1023) << 52)  # type: ignore[call-arg]
    return p * power


@part
def compact(law: int, s: float, scale: float, shift: float) -> float:
    """Value, at a squared distance ``s``, of a law that does not have derivatives everywhere.

    ``scale`` and ``shift`` are those of its formula, see ``kernels/sums/laws.py``.
    """
    d = math.sqrt(s)
    if law == EXPONENTIAL:
        return exp(shift - d * scale)
    if d >= scale:
        return 0.0
    if law == TOPHAT:
        return 1.0
    if law == EPANECHNIKOV:
        return 1.0 - s / (scale * scale)
    if law == LINEAR:
        return 1.0 - d / scale
    return math.cos(0.5 * math.pi * d / scale)
