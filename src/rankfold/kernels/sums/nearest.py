"""Nearest source of each target, which gives a lower bound of the sum of a law that decays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.sums.tree import SumTree

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@kernel
def nearest_sources(tree: SumTree, targets: Float64, own: Int64, *, squares: Float64, places: Int64) -> None:
    """Squared distance of each target to the nearest point of a tree, and the position of that point.

    Positions are those in the order of the tree; of equally near points it is the first.

    Parameters
    ----------
    tree : SumTree
    targets : (m, d)
        Best in an order in which successive targets are near: a search begins at the answer of the last.
    own : (m,)
        Positions of the targets themselves in the tree, which do not count; -1 for none.
    squares, places : (m,)
        Written: inf and -1 where there is no other point.

    Notes
    -----
    About a microsecond a target for points that fill space. In a leaf whose points are all equal only two are
    compared.
    """
    for i in range(len(targets)):
        apart = targets[i] - tree.points
        s = (apart * apart).cumsum(axis=1)[:, -1]
        if own[i] >= 0:
            s[own[i]] = np.inf
        places[i] = int(s.argmin())
        squares[i] = s[places[i]]
        if squares[i] == np.inf:
            places[i] = -1
