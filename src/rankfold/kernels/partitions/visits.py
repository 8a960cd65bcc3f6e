"""Partitions that a row should visit: those that hold its neighbors and not the row itself.

A row that visits a partition is compared with the rows there. Rows between partitions are in several, so that
the neighbor lists of a partition name rows of other partitions too. A row whose neighbors are in another
partition likely has more there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.neighbors.lists import EMPTY

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]

NONE = -1
"""Stands for no partition."""


@kernel
def choose_visits(ids: Int64, partitions: Int32, own: int, *, out: Int32) -> None:
    """Find the partitions, other than a row's own, that hold most of its neighbors.

    Parameters
    ----------
    ids : (p, k) int64
        Neighbor lists of the rows of a partition, as positions among these rows; ``EMPTY`` where none.
    partitions : (p, s) int32
        Numbers of the partitions that each row is in, its nearest first; ``NONE`` after the last.
    own : int
        Number of the partition of these rows. Rows whose nearest partition is another one get ``NONE``: they
        choose in the call for that partition.
    out : (p, v) int32
        Written: numbers of partitions by descending number of neighbors in them, of equal counts the lower
        first; ``NONE`` after the last.

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
