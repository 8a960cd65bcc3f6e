"""Place new rows among vertices which stay: towards neighbors, and away from random vertices.

A row depends on the vertices and on itself alone, so that it goes through all epochs at once, and ends at the
same place whichever rows are placed with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.layout.forces import FIRST_FACTOR, MASK, SECOND_FACTOR, STEP, Forces, mix
from rankfold.kernels.layout.vertices import _force, _pulls, _push

Float32 = npt.NDArray[np.float32]


class NewRows(NamedTuple):
    """Rows that are to be placed."""

    neighbors: npt.NDArray[np.int64]
    """(m, k) vertices that are neighbors of each row."""

    phases: npt.NDArray[np.uint32]
    """(m, k) phases of edges, see ``phases_of``; 0 for edges that never pull."""

    keys: npt.NDArray[np.uint64]
    """(m,) key of the random numbers of each row."""

    start: Float32
    """(m, d) first positions."""


@kernel
def place_rows(
    positions: Float32, rows: NewRows, *, forces: Forces, rates: Float32, negatives: int, out: Float32
) -> None:
    """Compute positions of new rows after all epochs.

    Each time an edge of a row pulls, the row moves towards its other end, then away from random vertices.

    Parameters
    ----------
    positions : (n, d) float32, n < 2**32
        Positions of vertices, which stay.
    rows : (m, ...)
        See ``NewRows``.
    forces
        See ``forces.py``.
    rates : (e,) float32
        Factor of forces in each epoch.
    negatives : int
        Number of random vertices that repel a row each time one of its edges pulls.
    out : (m, d) float32, written
        Last positions of rows.

    Notes
    -----
    Some 20 (1 + negatives) d operations for each pull; no scratch. Every body computes the same, to the last
    bit.

    References
    ----------
    McInnes, Healy, Melville, UMAP, arXiv:1802.03426, algorithm 5, with one side of each edge at rest, as in
    ``transform`` of umap-learn. Unlike there random numbers are a function of the row alone.
    """
    words = (negatives + 1) // 2
    for place, key in enumerate(rows.keys.tolist()):
        x = rows.start[place].copy()
        for epoch, rate in enumerate(rates, 1):
            own = mix((key + STEP * epoch) & MASK)
            for edge, neighbor in enumerate(rows.neighbors[place].tolist()):
                if not _pulls(epoch, int(rows.phases[place, edge])):
                    continue
                x += rate * _force(forces.attraction, x - positions[neighbor])
                counter = (own + STEP * (edge * words + 1)) & MASK
                x += rate * _push(positions, x, forces.repulsion, counter, negatives)
        out[place] = x


def row_keys(neighbors: npt.NDArray[np.int64], key: int) -> npt.NDArray[np.uint64]:
    """(m,) keys of the random numbers of rows, from their neighbors (m, k) in order, and a common ``key``."""
    keys = np.full(len(neighbors), key, np.uint64)
    for column in range(neighbors.shape[1]):
        keys = _mix_all(keys + np.uint64(STEP) * (neighbors[:, column].astype(np.uint64) + np.uint64(1)))
    return keys


def _mix_all(words: Any) -> npt.NDArray[np.uint64]:
    """``mix`` of each word of an array."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(FIRST_FACTOR)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(SECOND_FACTOR)
    mixed: npt.NDArray[np.uint64] = words ^ (words >> np.uint64(31))
    return mixed
