"""Labels and bounds of the rows of a tile, from their products with centers.

Here a center is named by its row of ``Centers.packed``. Groups are groups of centers, see ``_open_rows.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import part
from rankfold.kernels.clustering.cpu._open_rows import Rounding, Tile, narrow, slack_of, widen
from rankfold.kernels.clustering.nearest_centers import Centers
from rankfold.kernels.neighbors.cpu._distances import distance, load
from rankfold.kernels.neighbors.lists import Metric

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

SQUARED = int(Metric.SQEUCLIDEAN)


@part
def _score(
    products: Array, a: int, groups: Int64, found: int, edges: Int64, squares: Array, least: Float64
) -> None:
    """Turn products of row ``a`` of a tile with the centers of its open groups into scores, in place.

    The score of a center is its squared distance less the squared norm of the row. ``groups[a]`` lists the
    ``found`` open groups, and ``least`` gets the least score of each; ``squares`` has the squared norms of
    centers.
    """
    for j in range(found):
        lowest = squares.dtype.type(np.inf)
        for p in range(edges[groups[a, j]], edges[groups[a, j] + 1]):
            product = products[a, p]
            score = squares[p] - (product + product)
            products[a, p] = score
            lowest = min(lowest, score)
        least[j] = lowest


@part
def _highest(
    length: float,
    groups: Int64,
    a: int,
    found: int,
    roots: Float64,
    error: float,
    tiny: float,
    least: Float64,
    slack: Float64,
) -> float:
    """Write the error bounds of scores of open groups into ``slack``; returns a bound above the least score.

    ``length`` is the norm of row ``a`` of a tile, ``roots`` the largest norm of a center in each group, and
    ``least`` the least computed score in each of the ``found`` open groups.
    """
    high = np.inf
    for j in range(found):
        slack[j] = slack_of(length, roots[groups[a, j]], error, tiny)
        high = min(high, least[j] + slack[j])
    return high


@part
def _candidates(
    scores: Array,
    a: int,
    groups: Int64,
    found: int,
    edges: Int64,
    least: Float64,
    slack: Float64,
    high: float,
    places: Int64,
) -> int:
    """List centers in ``places``, by row of ``packed``, if their score may be at most ``high``.

    ``slack`` has the error bound of scores in each of the ``found`` open groups of row ``a``. Returns the
    number of centers.
    """
    count = 0
    for j in range(found):
        if least[j] - slack[j] <= high:
            for p in range(edges[groups[a, j]], edges[groups[a, j] + 1]):
                places[count] = p
                count += scores[a, p] - slack[j] <= high
    return count


@part
def _with_own(own: int, low: float, high: float, places: Int64, count: int) -> int:
    """Append center ``own``, that a row had, to ``places``, if it may be nearest and is not listed.

    ``low`` is the lower bound of its score, ``high`` an upper bound of the least; ``own`` is -1 for none.
    Returns the new number of listed centers.
    """
    if own < 0 or low > high:
        return count
    for c in range(count):
        if places[c] == own:
            return count
    places[count] = own
    return count + 1


@part
def _measure(
    x: Array, i: int, exact: Float64, members: Int64, places: Int64, count: int, row: Float64, lanes: Float64
) -> tuple[int, float]:
    """The center nearest to ``x[i]`` among the first ``count`` of ``places``, and its squared distance.

    Centers are rows of ``packed``; of equally near ones it is the one with the least number. ``row`` and
    ``lanes`` are scratch.
    """
    best, least = 0, np.inf
    load(x[i], 1.0, SQUARED, row)
    for c in range(count):
        square = distance(row, 1.0, exact, members[places[c]], 1.0, SQUARED, None, lanes)
        nearer = square < least or (square == least and members[places[c]] < members[places[best]])
        if nearer or c == 0:
            best, least = c, square
    return places[best], least


@part
def _keep_bounds(
    norm: float,
    groups: Int64,
    a: int,
    found: int,
    least: Float64,
    slack: Float64,
    bounds: Array,
    i: int,
) -> None:
    """Write into ``bounds[i]`` lower bounds of the distances of a row from the centers of each open group.

    ``norm`` is the squared norm of the row, which is row ``a`` of its tile.
    """
    for j in range(found):
        bounds[i, 1 + groups[a, j]] = narrow(np.sqrt(max(least[j] + norm - slack[j], 0.0)))


@part
def _leave_out(
    new: int,
    norm: float,
    scores: Array,
    groups: Int64,
    a: int,
    found: int,
    edges: Int64,
    slack: Float64,
    bounds: Array,
    i: int,
) -> None:
    """Write again the lower bound of the group of the nearest center, ``new``, without that center.

    It goes to ``bounds[i]``. ``scores`` are as ``_score`` leaves them; for others see ``_keep_bounds``.
    """
    for j in range(found):
        g, least = groups[a, j], np.inf
        if edges[g] <= new < edges[g + 1]:
            for p in range(edges[g], edges[g + 1]):
                if p != new:
                    least = min(least, np.float64(scores[a, p]))
            bounds[i, 1 + g] = narrow(np.sqrt(max(least + norm - slack[j], 0.0)))


@part
def _put_back(
    own: int, square: float, groups: Int64, a: int, found: int, edges: Int64, bounds: Array, i: int
) -> None:
    """Lower the bound in ``bounds[i]`` of the group of ``own``, a center that row i left, if it was not open.

    ``square`` is a lower bound of the squared distance of the row from that center.
    """
    for j in range(found):
        if edges[groups[a, j]] <= own < edges[groups[a, j] + 1]:
            return
    g = 0
    while edges[g + 1] <= own:
        g += 1
    bounds[i, 1 + g] = min(bounds[i, 1 + g], np.float32(narrow(np.sqrt(max(square, 0.0)))))


@part
def _measure_all(
    x: Array,
    i: int,
    exact: Float64,
    members: Int64,
    places: Int64,
    bounds: Array,
    row: Float64,
    lanes: Float64,
) -> int:
    """Find the nearest center of a row whose products may overflow, by measuring all distances.

    Returns the row of ``packed`` that holds it. Writes bounds of the row, of which none excludes a group.
    """
    for p in range(members.shape[0]):
        places[p] = p
    new, square = _measure(x, i, exact, members, places, members.shape[0], row, lanes)
    bounds[i, 0] = widen(np.sqrt(square))
    bounds[i, 1:] = 0
    return new


@part
def settle(
    x: Array,
    centers: Centers,
    rounding: Rounding,
    labels: Array,
    bounds: Array,
    tile: Tile,
    count: int,
    places: Int64,
) -> int:
    """Write labels and bounds of the ``count`` open rows in ``tile``, from their products with centers.

    Returns the number of rows whose label changed; ``places``, (k + 1,), is scratch.
    """
    # Fields are taken out of tuples once: each access updates two reference counts.
    exact, _, _, wide, members, places_of, edges, _, _ = centers
    _, numbers, before, norms, products, groups, founds, _, _, scores, least, slack, row, lanes = tile
    squares, roots, group_roots, _, _, error, tiny, limit = rounding
    largest, moved = roots.max(), 0
    for a in range(count):
        i, norm, found, own, low = numbers[a], norms[a], founds[a], -1, np.inf
        length = np.sqrt(norm)
        if not (length + largest) ** 2 < limit:  # also if it is NaN
            new = _measure_all(x, i, exact, members, places, bounds, row, lanes)
        else:
            _score(scores, a, groups, found, edges, squares, least)
            high = _highest(length, groups, a, found, group_roots, error, tiny, least, slack)
            if before[a] >= 0:
                own = places_of[before[a]]
                score, wrong = wide[own] - 2 * products[a], slack_of(length, roots[own], error, tiny)
                low, high = score - wrong, min(high, score + wrong)
            some = _candidates(scores, a, groups, found, edges, least, slack, high, places)
            some = _with_own(own, low, high, places, some)
            new, square = places[0], high + norm
            if some > 1:
                new, square = _measure(x, i, exact, members, places, some, row, lanes)
            bounds[i, 0] = widen(np.sqrt(max(square, 0.0)))
            _keep_bounds(norm, groups, a, found, least, slack, bounds, i)
            _leave_out(new, norm, scores, groups, a, found, edges, slack, bounds, i)
            if own >= 0 and own != new:
                _put_back(own, low + norm, groups, a, found, edges, bounds, i)
        labels[i] = members[new]
        moved += labels[i] != before[a]
    return moved
