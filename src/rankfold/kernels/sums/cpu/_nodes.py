"""Add a far node to the sums of a group of targets: see ``kernels/sums/tree_sums.py`` for the polynomial."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import contracted_part, part
from rankfold.kernels.sums.cpu._laws import CAUCHY, GAUSSIAN, INVERSE, exp
from rankfold.kernels.sums.cpu._sources import FORCE_X, FORCE_Y, FORCE_Z, SHIFT, SLOPE, SUM, VALUE, Y, Z
from rankfold.kernels.sums.moments import FIRST, SECOND, THIRD, WEIGHT
from rankfold.kernels.sums.pairs import GROUP

Float64 = npt.NDArray[np.float64]


@part
def add_node(group: Float64, row: Float64, law: int, scale: float, exponent: float, order: int) -> None:
    """Add a far node to the block sums of a group of targets, in place.

    ``group`` is laid out as in ``_sources.py``; ``row`` has the moments of the node, as in ``moments.py``;
    ``exponent`` is that of the law in ``laws.EXPONENTS``, not used for a gaussian; ``order`` is 2 or 3.
    """
    _law(group, row, law, scale)
    step = 0.0 if law == GAUSSIAN else 1.0
    start = 1.0 if law == GAUSSIAN else exponent
    if order > 2:
        _third(group, row, start, start + step, start + 2.0 * step, start + 3.0 * step)
    else:
        _second(group, row, start, start + step, start + 2.0 * step)


@part
def _law(group: Float64, row: Float64, law: int, scale: float) -> None:
    """Write, at ``VALUE`` and ``SLOPE`` of each target, the law at its distance from a node's center, and u.

    u is the factor from one derivative to the next in ``laws.py``; ``row`` has the moments of the node.
    """
    x, y, z = row[0], row[1], row[2]
    if law == GAUSSIAN:
        for i in range(GROUP):
            a, b, c = group[i] - x, group[Y + i] - y, group[Z + i] - z
            group[VALUE + i] = exp(group[SHIFT + i] - (a * a + b * b + c * c) * scale)
            group[SLOPE + i] = scale
    elif law == INVERSE:
        for i in range(GROUP):
            a, b, c = group[i] - x, group[Y + i] - y, group[Z + i] - z
            r2 = a * a + b * b + c * c + scale
            u = 1.0 / r2
            group[VALUE + i] = u * math.sqrt(r2)
            group[SLOPE + i] = u
    else:
        for i in range(GROUP):
            a, b, c = group[i] - x, group[Y + i] - y, group[Z + i] - z
            u = 1.0 / (a * a + b * b + c * c + scale)
            group[VALUE + i] = u if law == CAUCHY else u * u
            group[SLOPE + i] = u


@contracted_part
def _second(group: Float64, row: Float64, c0: float, c1: float, c2: float) -> None:
    x, y, z, m = row[0], row[1], row[2], row[WEIGHT]
    dx, dy, dz = row[FIRST], row[FIRST + 1], row[FIRST + 2]
    xx, xy, xz, yy, yz, zz = (
        row[SECOND],
        row[SECOND + 1],
        row[SECOND + 2],
        row[SECOND + 3],
        row[SECOND + 4],
        row[SECOND + 5],
    )
    trace = xx + yy + zz
    for i in range(GROUP):
        a, b, c = group[i] - x, group[Y + i] - y, group[Z + i] - z
        f, u = group[VALUE + i], group[SLOPE + i]
        f1 = -c0 * u * f
        f2 = -c1 * u * f1
        f3 = -c2 * u * f2
        px, py, pz = xx * a + xy * b + xz * c, xy * a + yy * b + yz * c, xz * a + yz * b + zz * c
        quadratic = px * a + py * b + pz * c
        linear = trace - 2.0 * (dx * a + dy * b + dz * c)
        along = 2.0 * (f1 * m + f2 * linear + 2.0 * f3 * quadratic)
        group[SUM + i] += f * m + f1 * linear + 2.0 * f2 * quadratic
        group[FORCE_X + i] -= along * a - 2.0 * f1 * dx + 4.0 * f2 * px
        group[FORCE_Y + i] -= along * b - 2.0 * f1 * dy + 4.0 * f2 * py
        group[FORCE_Z + i] -= along * c - 2.0 * f1 * dz + 4.0 * f2 * pz


@contracted_part
def _third(group: Float64, row: Float64, c0: float, c1: float, c2: float, c3: float) -> None:
    x, y, z, m = row[0], row[1], row[2], row[WEIGHT]
    dx, dy, dz = row[FIRST], row[FIRST + 1], row[FIRST + 2]
    q, o = row[SECOND : SECOND + 6], row[THIRD : THIRD + 10]
    xx, xy, xz, yy, yz, zz = q[0], q[1], q[2], q[3], q[4], q[5]
    xxx, xxy, xxz, xyy, xyz = o[0], o[1], o[2], o[3], o[4]
    xzz, yyy, yyz, yzz, zzz = o[5], o[6], o[7], o[8], o[9]
    trace = xx + yy + zz
    ux, uy, uz = xxx + xyy + xzz, xxy + yyy + yzz, xxz + yyz + zzz
    for i in range(GROUP):
        a, b, c = group[i] - x, group[Y + i] - y, group[Z + i] - z
        f, u = group[VALUE + i], group[SLOPE + i]
        f1 = -c0 * u * f
        f2 = -c1 * u * f1
        f3 = -c2 * u * f2
        f4 = -c3 * u * f3
        px, py, pz = xx * a + xy * b + xz * c, xy * a + yy * b + yz * c, xz * a + yz * b + zz * c
        quadratic = px * a + py * b + pz * c
        linear = trace - 2.0 * (dx * a + dy * b + dz * c)
        # The moments of third order times d: a symmetric matrix, of which d is taken once more.
        kxx, kxy, kxz = xxx * a + xxy * b + xxz * c, xxy * a + xyy * b + xyz * c, xxz * a + xyz * b + xzz * c
        kyy, kyz, kzz = xyy * a + yyy * b + yyz * c, xyz * a + yyz * b + yzz * c, xzz * a + yzz * b + zzz * c
        gx, gy, gz = kxx * a + kxy * b + kxz * c, kxy * a + kyy * b + kyz * c, kxz * a + kyz * b + kzz * c
        cubic = (4.0 / 3.0) * (gx * a + gy * b + gz * c)
        plane = 2.0 * (quadratic - (ux * a + uy * b + uz * c))
        along = 2.0 * (f1 * m + f2 * linear + f3 * plane - f4 * cubic)
        group[SUM + i] += f * m + f1 * linear + f2 * plane - f3 * cubic
        group[FORCE_X + i] -= along * a - 2.0 * f1 * dx + f2 * (4.0 * px - 2.0 * ux) - 4.0 * f3 * gx
        group[FORCE_Y + i] -= along * b - 2.0 * f1 * dy + f2 * (4.0 * py - 2.0 * uy) - 4.0 * f3 * gy
        group[FORCE_Z + i] -= along * c - 2.0 * f1 * dz + f2 * (4.0 * pz - 2.0 * uz) - 4.0 * f3 * gz
