"""Initial positions by eigenvectors of the graph: each component in a box of its own.

Eigenvectors say nothing about the relative positions of components. These get boxes side by side, in
proportion to their numbers of rows, by repeated bisection of the unit box.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

INSIDE = 0.8
"""Share of a box that a component fills along each axis, where there are several components."""


def boxes(sizes: Int64, columns: int) -> tuple[Float64, Float64]:
    """(c, columns) lower and upper corners of boxes that fill the unit box, in proportion to sizes.

    >>> low, high = boxes(np.array([2, 1, 1]), 2)
    >>> low.tolist(), high.tolist()
    ([[0.0, 0.0], [0.5, 0.0], [0.5, 0.5]], [[0.5, 1.0], [1.0, 0.5], [1.0, 1.0]])
    """
    low, high = np.zeros((len(sizes), columns)), np.ones((len(sizes), columns))
    before = np.concatenate([[0], np.cumsum(sizes)])
    open_ = [(0, len(sizes))]
    while open_:
        first, last = open_.pop()
        if last - first < 2:
            continue
        half = (before[first] + before[last]) / 2
        cut = int(np.clip(np.searchsorted(before, half), first + 1, last - 1))
        share = (before[cut] - before[first]) / (before[last] - before[first])
        axis = int((high[first] - low[first]).argmax())
        place = low[first, axis] + share * (high[first, axis] - low[first, axis])
        high[first:cut, axis] = low[cut:last, axis] = place
        open_ += [(first, cut), (cut, last)]
    return low, high


def place_components(coordinates: Float64, labels: Int64, anywhere: Any) -> tuple[Float64, int]:
    """(m, d) positions in the unit box; and number of rows at random positions within their box.

    Parameters
    ----------
    coordinates : (m, d) float64
        Coordinates of each component by itself; all 0 where it has none.
    labels : (m,) int64
        Component of each row, from 0 on; -1 for rows without edges, which may be anywhere.
    anywhere : (m, d)
        Random positions in the unit box.
    """
    places, order = np.array(anywhere, np.float64), np.argsort(labels, kind="stable")
    sizes = np.bincount(labels[labels >= 0])
    ends = (labels < 0).sum() + np.concatenate([[0], np.cumsum(sizes)])
    low, high = boxes(sizes, coordinates.shape[1])
    inside = INSIDE if len(sizes) > 1 else 1.0
    at_random = int(ends[0])
    for one in range(len(sizes)):
        rows = order[ends[one] : ends[one + 1]]
        own = coordinates[rows]
        span = np.ptp(own, axis=0)
        if not span.any():
            at_random += len(rows)
        unit = np.where(span > 0, (own - own.min(axis=0)) / np.where(span > 0, span, 1), places[rows])
        width = high[one] - low[one]
        places[rows] = low[one] + width * ((1 - inside) / 2 + inside * unit)
    return places, at_random
