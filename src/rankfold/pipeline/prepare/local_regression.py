"""A smooth curve through points, by local regression: loess as in Cleveland's Fortran code.

That code, which R's ``loess`` and scikit-misc wrap, does not regress at every point: it cuts the line at some
of the points, regresses there, and joins values and slopes by cubics. The joined curve may differ by 0.01
from regression at each point, in logarithms of variances, which changes what is chosen by it. So cuts are
made where that code makes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import DataError

Float64 = npt.NDArray[np.float64]

CELL = 0.2
"""Cells (intervals) with at most this share of the points of one regression are not cut again."""

MARGIN = 0.005
"""Distance of the ends of the curve beyond the points, as a share of their range."""

SINGULAR = 100 * float(np.finfo(np.float64).eps)
"""Ratio of singular values below which the points of a regression do not determine a parabola."""


def smooth(x: Float64, y: Float64, *, span: float) -> Float64:
    """Fit a loess curve to points, and return its values (n,) at ``x``.

    Parameters
    ----------
    x, y : (n,) float64
        Coordinates of the points.
    span : float
        Share of the points, in (0, 1], that each parabola is fitted to, weighted by distance.

    Raises
    ------
    DataError
        A share of the points has too few different ``x`` for a parabola.

    Notes
    -----
    Some ``2 / (CELL span)`` regressions of ``span n`` points: a few milliseconds for 20 000.

    References
    ----------
    Cleveland, Grosse, Computational methods for local regression, Statistics and Computing 1, 1991: cells of
    a k-d tree and blending, here on a line. Cuts fall on the point in the middle, and points that tie stay
    together, as in ``dloess`` of netlib, which scikit-misc 0.5 wraps.
    """
    order = np.argsort(x, kind="stable")
    knots = _knots(x[order], int(np.floor(len(x) * span * CELL)))
    count = min(len(x), int(len(x) * span + 1e-5))
    values, slopes = np.transpose([_parabola(x, y, knot, count, span) for knot in knots])
    left = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    width = knots[left + 1] - knots[left]
    t = (x - knots[left]) / width
    found = (1 - t) ** 2 * (1 + 2 * t) * values[left] + t**2 * (3 - 2 * t) * values[left + 1]
    return np.asarray(
        found + width * (t * (1 - t) ** 2 * slopes[left] - t**2 * (1 - t) * slopes[left + 1]), np.float64
    )


def _knots(x: Float64, most: int) -> Float64:
    """Knots where regressions are made, for sorted points: both ends, and cuts down to ``most`` points."""
    low, high = float(x[0]), float(x[-1])
    beyond = MARGIN * max(high - low, 1e-3 * max(abs(low), abs(high)) + 1e-30)
    knots = [low - beyond, high + beyond]
    cells = [(0, len(x) - 1, knots[0], knots[1])]
    while cells:
        first, last, left, right = cells.pop()
        if last - first + 1 <= most:
            continue
        middle = _cut(x, first, last)
        at = float(x[middle])
        if at not in (left, right):
            knots.append(at)
            cells += [(first, middle, left, at), (middle + 1, last, at, right)]
    return np.sort(knots)


def _cut(x: Float64, first: int, last: int) -> int:
    """Index of the point nearest the middle that differs from the next one; the middle if there is none."""
    middle, offset = (first + last) // 2, 0
    while first <= middle + offset < last and x[middle + offset] == x[middle + offset + 1]:
        offset = -offset if offset > 0 else 1 - offset
    return middle + offset if first <= middle + offset < last else middle


def _parabola(x: Float64, y: Float64, at: float, count: int, span: float) -> tuple[float, float]:
    """Value and slope at ``at`` of the parabola through the nearest points, by weighted least squares."""
    distances = np.abs(x - at)
    near = np.argpartition(distances, count - 1)[:count] if count else np.zeros(0, np.int64)
    reach = distances[near].max(initial=0.0)
    inside = near[distances[near] < reach]  # a point at the end of the reach has weight 0
    weights = (1 - (distances[inside] / reach) ** 3) ** 1.5
    t = (x[inside] - at) / (reach or 1.0)
    terms: npt.NDArray[Any] = np.stack([weights, weights * t, weights * t**2], axis=1)
    sizes = np.sqrt((terms**2).sum(axis=0))
    sizes[sizes == 0] = 1.0
    factors, _, rank, _ = np.linalg.lstsq(terms / sizes, weights * y[inside], rcond=SINGULAR)
    if rank < 3:
        raise DataError(
            f"a parabola is to go through the nearest {count} of {len(x)} points, and these lie at "
            f"{len(np.unique(x[near]))} places alone. Say a larger span (it is {span:g})"
        )
    return float(factors[0] / sizes[0]), float(factors[1] / sizes[1] / reach)
