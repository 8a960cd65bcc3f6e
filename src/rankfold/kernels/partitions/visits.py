"""Partitions that a row had better visit: those that its neighbors are in and it is not.

Rows between partitions are in several, so that the lists of a partition name rows that others know. A row
whose neighbors are in another partition likely has more there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.neighbors.lists import EMPTY

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]

NONE = -1
"""In place of a partition."""


@kernel
def choose_visits(ids: Int64, partitions: Int32, own: int, *, out: Int32) -> None:
    """Partitions that most neighbors of a row are in, besides its own, in place.

    Parameters
    ----------
    ids : (p, k) int64
        Lists of the rows of a partition, by places among these; ``EMPTY`` where there is no neighbor.
    partitions : (p, s) int32
        That each row is in, its nearest first; ``NONE`` after the last.
    own : int
        The partition. Rows to which another one is nearer choose there.
    out : (p, v) int32
        Written: partitions by how many neighbors are in them, of equal counts the lower first; ``NONE`` after
        the last.

    Notes
    -----
    Work k s comparisons for each partition that neighbors of a row are in.
    """
    out[...] = NONE
    for i in np.flatnonzero(partitions[:, 0] == own):
        neighbors = ids[i][ids[i] != EMPTY]
        names, counts = np.unique(partitions[neighbors], return_counts=True)
        others = ~np.isin(names, partitions[i]) & (names != NONE)
        order = np.lexsort((names[others], -counts[others]))[: out.shape[1]]
        out[i, : len(order)] = names[others][order]
