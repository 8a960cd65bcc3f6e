"""Moments of the sources of each node of a tree about a center, up to third order, for sums from afar.

The center is that of the absolute weights, so that first moments vanish where weights have one sign. The
radius is the distance to the farthest corner of the box of the node: no source is farther. Where all sources
of a node are at one position the center is that position, to the last bit, and the radius is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.sums.tree import START, STOP, SumTree, most_nodes

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

CENTER, RADIUS, WEIGHT, MAGNITUDE, FIRST, SECOND, THIRD, MOMENTS = 0, 3, 4, 5, 6, 9, 15, 25
"""Positions in a row of moments: center, square of the radius, sum of weights and of their magnitudes, then
the moments of first, second and third order, each product once: xx, xy, xz, yy, yz, zz; xxx, xxy, xxz, xyy,
xyz, xzz, yyy, yyz, yzz, zzz. Last the length of a row."""

PAIRS = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
TRIPLES = ((0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 1), (0, 1, 2), (0, 2, 2), (1, 1, 1), (1, 1, 2), (1, 2, 2),
           (2, 2, 2))  # fmt: skip


@kernel
def node_moments(tree: SumTree, weights: Float64, *, moments: Float64) -> None:
    """Compute the moments of all nodes of a tree.

    Parameters
    ----------
    tree : SumTree
        With points of 1 to 3 columns.
    weights : (n,)
        Weights of the points in the order of the tree, of any sign.
    moments : (k, MOMENTS)
        Written; 0 for columns that the points do not have.

    Notes
    -----
    Some 60 operations a point and 300 a node: those of a node follow from those of its halves.

    References
    ----------
    Barnes, Hut, A hierarchical O(N log N) force-calculation algorithm, Nature 324, 1986: the tree and its
    monopoles. Higher moments are shifted as in any Cartesian multipole method. Here nodes are halved, not cut
    into eight, and as large as the box of their points.
    """
    moments[:] = 0.0
    for node, (start, stop) in enumerate(tree.nodes[:, [START, STOP]].tolist()):
        x, w = tree.points[start:stop], weights[start:stop]
        wide, box = np.zeros((len(x), 3)), np.zeros((2, 3))
        wide[:, : x.shape[1]], box[:, : x.shape[1]] = x, tree.boxes[node]
        magnitude = float(np.abs(w).sum())
        center = np.abs(w) @ wide / magnitude if magnitude else box.mean(axis=0)
        center = np.clip(center, box[0], box[1])
        apart = wide - center
        row = moments[node]
        row[CENTER:RADIUS] = center
        row[RADIUS] = (np.maximum(center - box[0], box[1] - center) ** 2).sum()
        row[WEIGHT], row[MAGNITUDE] = w.sum(), magnitude
        row[FIRST:SECOND] = w @ apart
        row[SECOND:THIRD] = [(w * apart[:, a] * apart[:, b]).sum() for a, b in PAIRS]
        row[THIRD:] = [(w * apart[:, a] * apart[:, b] * apart[:, c]).sum() for a, b, c in TRIPLES]


def moments_bytes(points: int) -> int:
    """Upper bound on the bytes of the moments of a tree of ``points`` points, and of their weights in two
    orders."""
    return most_nodes(points) * MOMENTS * 8 + 2 * points * 8
