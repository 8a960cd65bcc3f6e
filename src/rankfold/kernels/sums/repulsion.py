"""Repulsive forces between the points of a layout by t-SNE, for layouts that no grid fits.

Two points at distance d weigh ``q = 1 / (1 + d^2)``. Point i is pushed by ``sum_j q_ij^2 (y_i - y_j)``,
divided by the sum Z of all weights, with each pair counted from either side. Both are sums of one law over a
tree: the force is half the negative gradient of the weights.

The trap: errors of a force grow with its cancellation, those of Z do not. For 4000 normal points, by second
order, all forces together are off by up to 0.7 % in two columns and 0.2 % in three at an opening of 0.5, and
by up to 6 % and 0.8 % at 0.8; Z by 0.04 % and 0.2 % at most. One of a hundred forces is off by some ten times
as much.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankfold.kernels.sums.laws import Law
from rankfold.kernels.sums.pairs import GROUP, no_shifts
from rankfold.kernels.sums.tree import SumTree
from rankfold.kernels.sums.tree_sums import Groups, Sources, Way, sum_in_tree

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Repulsion:
    """Points of a layout in a tree, whose forces are computed group by group, by any number of threads."""

    tree: SumTree
    sources: Sources

    @classmethod
    def of(cls, y: npt.NDArray[np.floating]) -> Repulsion:
        """Build the tree of some points, (n, 1) to (n, 3), which are copied."""
        points = np.array(y, np.float64, order="C")
        tree = SumTree.of(points, np.arange(len(points)))
        return cls(tree, Sources.of(tree, np.ones(len(points))))

    @property
    def groups(self) -> int:
        """Number of groups of up to ``GROUP`` points; the forces of each may be computed by themselves."""
        return -(-len(self.tree.points) // GROUP)

    def push(
        self, first: int, last: int, *, opening: float, order: int, forces: Float64, weights: Float64
    ) -> None:
        """Compute the repulsive forces on the points of groups ``first:last``, and their weights.

        Parameters
        ----------
        first, last : int
            Range of groups; the result of a group does not depend on how groups are shared out.
        opening : float, >= 0 and below 1
            Largest ratio of a node's radius to its distance, see ``tree_sums``; 0 for exact sums.
        order : 2 or 3
            Order of expansions.
        forces : (n, d)
            Written, in the original order of points: forces, not yet divided by Z.
        weights : (n,)
            Likewise: the sum of ``q`` over the other points. The sum of all, in a fixed order, is Z.
        """
        rows = slice(first * GROUP, min(last * GROUP, len(self.tree.points)))
        x = self.tree.points[rows]
        count = len(x)
        edges = np.append(np.arange(0, count, GROUP), count)
        out, counts = np.empty((count, 1 + x.shape[1])), np.empty((len(edges) - 1, 2), np.int64)
        groups = Groups(x, np.ones(count), no_shifts(count), no_shifts(count), edges)
        way = Way(int(Law.CAUCHY), 1.0, opening, order, 0.0)
        sum_in_tree(self.sources, groups, way, counts=counts, out=out)
        ids = self.tree.ids[rows]
        weights[ids], forces[ids] = out[:, 0], 0.5 * out[:, 1:]


def repulsion(y: npt.NDArray[np.floating], *, opening: float = 0.5, order: int = 2) -> tuple[Float64, float]:
    """Repulsive forces (n, d) on all points, not yet divided by Z, and Z; in one thread.

    >>> forces, z = repulsion(np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    >>> forces.tolist(), z
    ([[-0.25, 0.0, 0.0], [0.25, 0.0, 0.0]], 1.0)
    """
    points = Repulsion.of(y)
    forces, weights = np.empty(points.tree.points.shape), np.empty(len(y))
    points.push(0, points.groups, opening=opening, order=order, forces=forces, weights=weights)
    return forces, float(weights.sum())
