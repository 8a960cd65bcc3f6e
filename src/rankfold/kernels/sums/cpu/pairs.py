"""Sums over all sources. See ``kernels/sums/pairs.py``.

With up to three columns a group of targets adds one source after the other; with more, squares of distances
are first summed column by column.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels._dispatch import plain
from rankfold.kernels.sums.cpu._laws import EXPONENTIAL, GAUSSIAN
from rankfold.kernels.sums.cpu._sources import (
    BLOCK,
    ERRORS,
    ERRORS_HERE,
    SETTLED,
    SETTLED_HERE,
    SHIFT,
    SIZE,
    add_source,
    begin,
    law_at,
    settle,
)
from rankfold.kernels.sums.laws import at_zero
from rankfold.kernels.sums.pairs import GROUP

Float64 = npt.NDArray[np.float64]

FEW = 3
"""Largest number of columns of points for which loops over columns are written out."""


def sum_pairs(
    x: Float64,
    weights: Float64,
    targets: Float64,
    own: Float64,
    shifts: Float64,
    *,
    law: int,
    scale: float,
    magnitudes: bool = False,
    out: Float64,
) -> None:
    """See the contract. Sum of a law over all sources at each target, and forces."""
    inputs = plain(x), plain(weights), plain(targets), plain(own), plain(shifts)
    result, d = np.ascontiguousarray(out), x.shape[1]
    how: list[Any] = [int(law), float(scale), at_zero(law, scale), bool(magnitudes)]
    if d <= FEW:
        how += [np.empty(SIZE), result]
        _sum_few(*inputs, *how)
    else:
        how += [np.empty((d, GROUP)), np.empty((3, d + 2, GROUP)), np.empty((3, GROUP)), result]
        _sum_many(*inputs, *how)
    if result is not out:
        out[...] = result


@part
def _load(group: Float64, targets: Float64, shifts: Float64, first: int, last: int) -> None:
    """Load targets ``first:last`` and their shifts into ``group``, the last repeated up to ``GROUP``."""
    for i in range(GROUP):
        t = min(first + i, last - 1)
        for c in range(FEW):
            group[c * GROUP + i] = targets[t, c] if c < targets.shape[1] else 0.0
        group[SHIFT + i] = shifts[t]


@part
def _store(
    group: Float64, own: Float64, first: int, last: int, at_place: float, magnitudes: bool, out: Float64
) -> None:
    """Write the settled sums of a group to rows ``first:last`` of ``out``, without the targets themselves.

    ``own`` has the weights of all targets among the sources, ``at_place`` is the law at distance 0.
    """
    for i in range(last - first):
        here = group[SETTLED_HERE + i] + group[ERRORS_HERE + i]
        here -= abs(own[first + i]) if magnitudes else own[first + i]
        out[first + i, 0] = group[SETTLED + i] + group[ERRORS + i]
        if here != 0.0:
            out[first + i, 0] += here * at_place * math.exp(group[SHIFT + i])
        for c in range(1, min(out.shape[1], 2) if magnitudes else out.shape[1]):
            out[first + i, c] = group[SETTLED + c * GROUP + i] + group[ERRORS + c * GROUP + i]


@compile_loop
def _sum_few(
    x: Float64,
    weights: Float64,
    targets: Float64,
    own: Float64,
    shifts: Float64,
    law: int,
    scale: float,
    at_place: float,
    magnitudes: bool,
    group: Float64,
    out: Float64,
) -> None:
    d = x.shape[1]
    for first in range(0, len(targets), GROUP):
        last = min(first + GROUP, len(targets))
        _load(group, targets, shifts, first, last)
        begin(group)
        for start in range(0, len(x), BLOCK):
            for j in range(start, min(start + BLOCK, len(x))):
                y = x[j, 1] if d > 1 else 0.0
                z = x[j, 2] if d > 2 else 0.0
                add_source(group, x[j, 0], y, z, weights[j], law, scale, magnitudes)
            settle(group, 5)
        _store(group, own, first, last, at_place, magnitudes, out)


@compile_loop
def _sum_many(
    x: Float64,
    weights: Float64,
    targets: Float64,
    own: Float64,
    shifts: Float64,
    law: int,
    scale: float,
    at_place: float,
    magnitudes: bool,
    tall: Float64,
    sums: Float64,
    values: Float64,
    out: Float64,
) -> None:
    d = x.shape[1]
    for first in range(0, len(targets), GROUP):
        last = min(first + GROUP, len(targets))
        for i in range(GROUP):
            for c in range(d):
                tall[c, i] = targets[min(first + i, last - 1), c]
        sums[:] = 0.0
        for start in range(0, len(x), BLOCK):
            for j in range(start, min(start + BLOCK, len(x))):
                w = abs(weights[j]) if magnitudes else weights[j]
                _measure(tall, x, j, values)
                _value(values, shifts, first, last, w, law, scale, magnitudes, sums)
                if out.shape[1] > 2 and not magnitudes:
                    for c in range(d):
                        for i in range(GROUP):
                            sums[0, 2 + c, i] += values[1, i] * (tall[c, i] - x[j, c])
            _settle_many(sums)
        for i in range(last - first):
            here = sums[1, 1, i] + sums[2, 1, i]
            here -= abs(own[first + i]) if magnitudes else own[first + i]
            out[first + i, 0] = sums[1, 0, i] + sums[2, 0, i]
            if here != 0.0:
                out[first + i, 0] += here * at_place * math.exp(shifts[first + i])
            for c in range(1, min(out.shape[1], 2) if magnitudes else out.shape[1]):
                out[first + i, c] = sums[1, 1 + c, i] + sums[2, 1 + c, i]


@part
def _measure(tall: Float64, x: Float64, j: int, values: Float64) -> None:
    values[0, :] = 0.0
    for c in range(len(tall)):
        for i in range(GROUP):
            a = tall[c, i] - x[j, c]
            values[0, i] += a * a


@part
def _value(
    values: Float64,
    shifts: Float64,
    first: int,
    last: int,
    w: float,
    law: int,
    scale: float,
    magnitudes: bool,
    sums: Float64,
) -> None:
    shifted = law in (GAUSSIAN, EXPONENTIAL)
    for i in range(GROUP):
        s = values[0, i]
        if s == 0.0:
            sums[0, 1, i] += w
            values[1, i] = 0.0
        else:
            shift = shifts[min(first + i, last - 1)] if shifted else 0.0
            f, slope = law_at(law, s, scale, shift)
            sums[0, 0, i] += w * f
            values[1, i] = w * slope
            if magnitudes:
                sums[0, 2, i] += w * slope * math.sqrt(s)


@part
def _settle_many(sums: Float64) -> None:
    for c in range(sums.shape[1]):
        for i in range(GROUP):
            value, total = sums[0, c, i], sums[1, c, i]
            sum_ = total + value
            larger = abs(total) >= abs(value)
            high, low = total if larger else value, value if larger else total
            sums[2, c, i] += (high - sum_) + low
            sums[1, c, i] = sum_
            sums[0, c, i] = 0.0
