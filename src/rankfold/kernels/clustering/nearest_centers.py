"""The nearest center of every row, exactly, and the sums of clusters: one step of k-means over some rows.

Which center is nearest is a function of a row and the centers alone: squared distances are measured in
float64 by the sum that ``kernels/neighbors/lists.py`` fixes, and the first of equally near centers wins.
Products, bounds of earlier steps, and the cut of rows into tiles decide only what need not be measured.

A step takes at most ``2 r k n`` flops in the working type, less what bounds rule out, ``3 n`` in float64 for
each pair that products leave open, and ``n`` additions for each row that is added or moved. A product of n
numbers rounds by at most ``n eps`` of the product of both norms: all centers within twice that of the nearest
are measured. The tuned body takes 256 rows at a time, ``256 (n + k)`` numbers.

Ding, Zhao, Shen, Musuvathi, Mytkowicz, Yinyang k-means: a drop-in replacement of the classic k-means with
consistent speedup, ICML 2015: a bound for each group of centers, kept from step to step. Unlike them, bounds
are widened by what rounding may take, and groups stay open as a whole.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.neighbors.lists import Metric, distance

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

MARGIN = 2.0**-22
"""Relative amount by which bounds are widened each time they are stored in float32: more than rounding takes
from them, or from a distance that is measured."""

LARGEST = 3e38
SMALLEST = 1.2e-38
"""Least and largest bounds stored in float32: either stands for all values beyond it."""


class Centers(NamedTuple):
    """Centers, packed by groups, and how far they moved: see ``centers_of``."""

    exact: Float64
    """(k, n) centers."""

    shift: Array
    """(n,) subtracted from rows before they are multiplied or added up, in the working type."""

    packed: Array
    """(k, n) centers less the shift, group after group, in the working type."""

    squares: Float64
    """(k,) squared norms of the rows of ``packed``."""

    members: npt.NDArray[np.int64]
    """(k,) number of the center in each row of ``packed``."""

    places: npt.NDArray[np.int64]
    """(k,) row of ``packed`` that holds each center."""

    edges: npt.NDArray[np.int64]
    """(g + 1,) first row of each group in ``packed``, and k."""

    drift: Float64
    """(k,) upper bound of the distance that each center has moved since bounds were written."""

    group_drift: Float64
    """(g,) largest ``drift`` in each group."""


def centers_of(
    exact: Float64, shift: Array, groups: npt.NDArray[np.int64], before: Float64 | None = None
) -> Centers:
    """Prepare centers for ``assign_rows``.

    Parameters
    ----------
    exact : (k, n) float64
    shift : (n,) float32 or float64
        Near the mean of the rows: products of what is left round little.
    groups : (k,) int64
        Group of each center, 0 .. g - 1, none of them empty: centers near each other share a bound.
    before : (k, n) float64, optional
        Centers that bounds were written for.
    """
    order = np.argsort(groups, kind="stable").astype(np.int64)
    packed = np.ascontiguousarray((exact - shift.astype(np.float64)).astype(shift.dtype)[order])
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    with np.errstate(over="ignore"):  # refused where rows are assigned
        squares = np.square(packed, dtype=np.float64).sum(axis=1)
    drift = np.zeros(len(exact)) if before is None else np.sqrt(((exact - before) ** 2).sum(axis=1))
    drift *= 1 + MARGIN
    sizes = np.bincount(groups)
    edges = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    group_drift = np.maximum.reduceat(drift[order], edges[:-1])
    return Centers(
        np.ascontiguousarray(exact),
        shift,
        packed,
        squares,
        order,
        places,
        edges,
        drift,
        group_drift,
    )


@kernel
def assign_rows(
    x: Array,
    centers: Centers,
    *,
    labels: npt.NDArray[np.int32],
    bounds: npt.NDArray[np.float32],
    sums: Float64,
    counts: Float64,
    squares: Float64,
    weights: Float64 | None = None,
    whole: bool = True,
) -> int:
    """Label rows by their nearest centers, and add them to the sums of their clusters.

    Parameters
    ----------
    x : (r, n) real, finite
    centers : Centers, k of them in g groups
    labels : (r,) int32, C-contiguous; written
        On entry labels by the centers before, or -1 where there are none.
    bounds : (r, 1 + g) float32, C-contiguous; written
        Upper bound of the distance of each row from its center, then lower bounds of its distances from the
        other centers of each group. Bounds on entry are read where there is a label.
    sums, counts : (k, n), (k,) float64; added to
        Sums of rows less ``centers.shift``, and of their weights.
    squares : (1,) float64; weighted squared norms of these rows less the shift, added to if ``whole``
    weights : (r,) float64, weight of each row, optional
    whole : bool
        True to add all rows. False to move only rows whose label changed: each is added to its new cluster
        and subtracted from its old one.

    Returns
    -------
    int
        Number of rows whose label changed.
    """
    moved, wide = 0, x.astype(np.float64)
    for i, row in enumerate(wide):
        old = labels[i]
        labels[i] = new = _nearest(row, centers, bounds[i])
        moved += int(new != old)
        weight, d = 1.0 if weights is None else weights[i], row - centers.shift
        if whole:
            squares += weight * (d * d).sum()
        if whole or new != old:
            sums[new] += weight * d
            counts[new] += weight
        if not whole and 0 <= old != new:
            sums[old] -= weight * d
            counts[old] -= weight
    return moved


def _nearest(row: Float64, centers: Centers, bounds: npt.NDArray[np.float32]) -> int:
    """Number of the center nearest to a row; writes ``bounds``, (1 + g,), as tight as they can be stored."""
    squares = [distance(row, center, 1.0, 1.0, metric=Metric.SQEUCLIDEAN) for center in centers.exact]
    far = np.sqrt(np.array(squares))
    nearest = int(np.argmin(squares))
    bounds[0] = min(far[nearest] * (1 + MARGIN) + SMALLEST, LARGEST)
    far[nearest] = np.inf
    for g, (first, last) in enumerate(zip(centers.edges[:-1], centers.edges[1:], strict=True)):
        bounds[1 + g] = min(far[centers.members[first:last]].min() * (1 - MARGIN), LARGEST)
    return nearest
