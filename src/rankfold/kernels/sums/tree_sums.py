"""Sums over a tree: sources near a group of targets one by one, those far from it by the moments of nodes.

Targets are in groups that are near each other. A group goes through the tree once. A node of radius ``b``
whose center is ``r`` from the box of the group, or farther, is far if ``b <= opening * reach``, where the
reach is the length on which the law changes: ``sqrt(r^2 + scale)`` for INVERSE and the like, the lesser of
the width and ``width^2 / r`` for a gaussian of that width. With an opening of 0 only nodes whose sources are
all at one position are far, and these are exact: sums are then those of ``sum_pairs``.

The sum over a far node, with d from its center to the target and moments M, D, Q, O of its sources
y - center, is Taylor's polynomial of f(|d - y|^2), of second or third order in y:

    f M + f' (tr Q - 2 d D) + 2 f'' (d Q d - d U) - 4/3 f''' (O d d d)       with U_a = sum_b O_abb

A group that adds many sources, such as one that is spread around others, is halved if its targets one by one
would add fewer in all, judged by the one in the middle.

Sources that cannot count are left out node by node: nodes beyond the width of a compact law, and, for laws
that decay as exponentials, nodes that all together add less than ``cutoff`` of the least sum in a group.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.sums import moments as at
from rankfold.kernels.sums.laws import SMOOTH, Law, at_zero, derivatives, values
from rankfold.kernels.sums.tree import SKIP, START, STOP, SumTree

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

ORDERS = (2, 3)
"""Orders that the polynomial of far nodes may have."""

EXPENSIVE = 2048
"""Cost of a group, in sources, above which halving it is considered."""

NODE_COST = 2
"""Cost of a far node, in sources that take as long."""

NEAREST, FARTHEST = 1e-60, 1e60
"""Squares of reaches between which derivatives of third order are finite numbers; beyond no node is far."""

Visit = tuple[int, int]
"""A node, and how it is summed: ``PLACE``, ``FAR`` or ``NEAR``."""

PLACE, FAR, NEAR = range(3)
"""Ways to sum a node: as one source, by its moments, or source by source."""

PAIRS_SUMMED, NODES_SUMMED = 0, 1
"""Columns of ``counts``: pairs of a target and a source, and pairs of a target and a far node."""


class Sources(NamedTuple):
    """Points in a tree with weights: a tuple, so that a kernel sees its arrays."""

    points: Float64
    """(n, d) coordinates in the order of a ``SumTree``, d <= 3."""

    nodes: Int64
    """(k, 3) nodes, with columns ``START``, ``STOP`` and ``SKIP``."""

    boxes: Float64
    """(k, 2, d) smallest and largest coordinates of each node."""

    weights: Float64
    """(n,) in the order of ``points``."""

    moments: Float64
    """(k, MOMENTS) moments of each node, by ``node_moments``."""

    @classmethod
    def of(cls, tree: SumTree, weights: Float64) -> Sources:
        """Sources of a tree of up to three columns; ``weights`` are in the order of its points."""
        moments = np.empty((len(tree.nodes), at.MOMENTS))
        at.node_moments(tree, weights, moments=moments)
        return cls(tree.points, tree.nodes, tree.boxes, weights, moments)


class Groups(NamedTuple):
    """Targets in groups that are near each other, each of at most ``pairs.GROUP``."""

    targets: Float64
    """(m, d) coordinates, d <= 3."""

    own: Float64
    """(m,) weight of the target among the sources, which is left out; 0 where it is none of them."""

    shifts: Float64
    """(m,) shift of each target, see ``laws``; 0 for laws without."""

    floors: Float64
    """(m,) logarithm of a lower bound of the magnitude of the sum at a target, without its shift; -inf where
    none is known, and for laws that do not decay."""

    edges: Int64
    """(groups + 1,) first target of each group, and m."""


class Way(NamedTuple):
    """A law, and parameters of the approximation of its sums."""

    law: int
    scale: float
    opening: float
    """Largest ratio of radius to reach of a far node, below 1.

    0 for laws without derivatives, and for exact sums.
    """

    order: int
    """Order of the polynomial of far nodes, one of ``ORDERS``."""

    cutoff: float
    """Largest share of a sum that sources may have which are left out since they are far."""


@kernel
def sum_in_tree(sources: Sources, groups: Groups, way: Way, *, counts: Int64, out: Float64) -> None:
    """Compute, at each target, the sum of a law over the sources of a tree, and its negative gradient.

    Parameters
    ----------
    sources : Sources
    groups : Groups
    way : Way
    counts : (groups, 2)
        Written: numbers of pairs of a target and a source, and of a target and a node.
    out : (m, 1) or (m, 1 + d)
        Written, as by ``sum_pairs``.

    Notes
    -----
    For points that fill space some ``log(n) / opening^3`` nodes a target, of 60 or 110 operations. A group
    does not depend on others, nor on where a call begins.

    References
    ----------
    Barnes, A modified tree code: don't laugh, it runs, Journal of Computational Physics 87, 1990: one list of
    interactions for a group of targets. Barnes, Hut, 1986: see ``moments``. Here a node is as large as the
    box of its points, and expansions are of any law with derivatives.
    """
    limit = weight_limit(sources, way)
    counts[:] = 0

    def visits_of(rows: slice) -> list[Visit]:
        x = groups.targets[rows]
        least = float(np.min(groups.floors[rows])) + limit
        return _visits(sources, np.stack([x.min(axis=0), x.max(axis=0)]), way, least)

    runs = [(g, int(groups.edges[g]), int(groups.edges[g + 1])) for g in range(len(groups.edges) - 1)]
    while runs:
        g, start, stop = runs.pop()
        rows, middle = slice(start, stop), (start + stop) // 2
        visits = visits_of(rows)
        if stop - start > 1 and _cost(sources, visits) > EXPENSIVE:
            alone = _cost(sources, visits_of(slice(middle, middle + 1)))
            if alone * (stop - start) < _cost(sources, visits):
                runs += [(g, start, middle), (g, middle, stop)]
                continue
        counts[g] += _sum_run(sources, groups, way, rows, visits, out)


def weight_limit(sources: Sources, way: Way) -> float:
    """Logarithm of ``cutoff`` divided by the sum of the magnitudes of all weights; -inf without a cutoff.

    Added to the least of ``floors``, it is the logarithm of the law below which sources are left out.
    """
    total = float(sources.moments[0, at.MAGNITUDE])
    return math.log(way.cutoff) - math.log(total) if way.cutoff > 0 and total > 0 else -math.inf


def _sum_run(
    sources: Sources, groups: Groups, way: Way, rows: slice, visits: list[Visit], out: Float64
) -> Int64:
    """Write the sums at targets ``rows`` into ``out``; returns their row (2,) of ``counts``.

    ``visits`` lists the nodes to sum.
    """
    group, shifts = groups.targets[rows], groups.shifts[rows]
    total, here, counts = np.zeros((len(group), out.shape[1])), -groups.own[rows], np.zeros(2, np.int64)
    for node, kind in visits:
        if kind == FAR:
            _add_node(total, group, shifts, sources.moments[node], way)
            counts[NODES_SUMMED] += len(group)
        else:
            some = _place(sources, node) if kind == PLACE else _leaf(sources, node)
            _add_sources(total, here, group, shifts, *some, way)
            counts[PAIRS_SUMMED] += len(group) * len(some[0])
    some = here != 0
    total[some, 0] += here[some] * at_zero(way.law, way.scale) * np.exp(shifts[some])
    out[rows] = total
    return counts


def _visits(sources: Sources, box: Float64, way: Way, least: float) -> list[Visit]:
    """List the nodes that are summed at targets within ``box``, (2, d), and how: see ``Visit``.

    Sources for which the logarithm of the law is below ``least`` are left out, if the law decays.
    """
    visits, node = [], 0
    while node < len(sources.nodes):
        low, high = sources.boxes[node]
        apart = np.maximum(np.maximum(low - box[1], box[0] - high), 0.0)
        row, after = sources.moments[node], int(sources.nodes[node, SKIP])
        center = row[: sources.points.shape[1]]
        gap = np.maximum(np.maximum(box[0] - center, center - box[1]), 0.0)
        if _is_left_out(way, float((apart * apart).sum()), least):
            node = after
        elif row[at.RADIUS] == 0:
            visits.append((node, PLACE))
            node = after
        elif _is_far(way, float((gap * gap).sum()), float(row[at.RADIUS])):
            visits.append((node, FAR))
            node = after
        else:
            if after == node + 1:
                visits.append((node, NEAR))
            node += 1
    return visits


def _cost(sources: Sources, visits: list[Visit]) -> int:
    """Cost of the visits of a group of targets, in sources that take as long."""
    sizes = sources.nodes[:, STOP] - sources.nodes[:, START]
    return sum((1, NODE_COST, int(sizes[node]))[kind] for node, kind in visits)


def _is_left_out(way: Way, s: float, least: float) -> bool:
    """True if no source of a node counts at a group of targets; their boxes are ``sqrt(s)`` apart.

    ``least`` is the logarithm of the law below which a source of a decaying law does not count.
    """
    if way.law == Law.GAUSSIAN:
        return -s * way.scale < least
    if way.law == Law.EXPONENTIAL:
        return -math.sqrt(s) * way.scale < least
    return way.law > Law.EXPONENTIAL and s > way.scale * way.scale


def _is_far(way: Way, s: float, radius: float) -> bool:
    """True if a node may be summed by its moments.

    ``s`` is the square of the distance of its center from the targets' box, ``radius`` that of its radius.
    """
    if way.law not in SMOOTH or not way.opening or not s:
        return False
    square, scale = way.opening * way.opening, way.scale
    if way.law == Law.GAUSSIAN:
        # A width h has scale 1 / (2 h^2): the reach is h, or h^2 / r where that is less.
        return 2 * scale * radius * max(1.0, 2 * scale * s) <= square
    return NEAREST < s + scale < FARTHEST and radius <= square * (s + scale)


def _place(sources: Sources, node: int) -> tuple[Float64, Float64]:
    """(1, d) common position of all sources of a node, and (1,) sum of their weights."""
    row = sources.moments[node]
    return row[None, : sources.points.shape[1]], row[at.WEIGHT : at.WEIGHT + 1]


def _leaf(sources: Sources, node: int) -> tuple[Float64, Float64]:
    rows = slice(int(sources.nodes[node, START]), int(sources.nodes[node, STOP]))
    return sources.points[rows], sources.weights[rows]


def _add_sources(
    total: Float64,
    here: Float64,
    group: Float64,
    shifts: Float64,
    x: Float64,
    weights: Float64,
    way: Way,
) -> None:
    law, scale = way.law, way.scale
    apart = group[:, None] - x
    s = (apart * apart).sum(axis=2)
    w = np.where(s == 0, 0.0, weights)
    here += np.where(s == 0, weights, 0.0).sum(axis=1)
    s = np.where(s == 0, 1.0, s)
    total[:, 0] += (w * values(law, s, scale, shifts[:, None])).sum(axis=1)
    if total.shape[1] > 1:
        slopes = -2 * w * derivatives(law, s, scale, shifts[:, None], 1)[1]
        total[:, 1:] += np.einsum("ij,ijc->ic", slopes, apart)


def _add_node(total: Float64, group: Float64, shifts: Float64, row: Float64, way: Way) -> None:
    order = way.order
    d = np.zeros((len(group), 3))
    d[:, : group.shape[1]] = group
    d -= row[: at.RADIUS]
    s = (d * d).sum(axis=1)
    f = derivatives(way.law, s, way.scale, shifts, order + 1)
    first, second, third = row[at.FIRST : at.SECOND], np.zeros((3, 3)), np.zeros((3, 3, 3))
    for value, (a, b) in zip(row[at.SECOND : at.THIRD], at.PAIRS, strict=True):
        second[a, b] = second[b, a] = value
    for value, (a, b, c) in zip(row[at.THIRD :], at.TRIPLES, strict=True):
        for p in ((a, b, c), (a, c, b), (b, a, c), (b, c, a), (c, a, b), (c, b, a)):
            third[p] = value
    trace, pulled = np.trace(second), d @ second
    quadratic, linear = (pulled * d).sum(axis=1), d @ first
    value = f[0] * row[at.WEIGHT] + f[1] * (trace - 2 * linear) + 2 * f[2] * quadratic
    along = f[1] * row[at.WEIGHT] + f[2] * (trace - 2 * linear) + 2 * f[3] * quadratic
    gradient = 2 * d * along[:, None] - 2 * f[1][:, None] * first + 4 * f[2][:, None] * pulled
    if order > 2:
        vector, bent = np.einsum("abb->a", third), np.einsum("abc,ib,ic->ia", third, d, d)
        cubic, toward = (bent * d).sum(axis=1), d @ vector
        value += -2 * f[2] * toward - 4 / 3 * f[3] * cubic
        gradient += 2 * d * (-2 * f[3] * toward - 4 / 3 * f[4] * cubic)[:, None]
        gradient += -2 * f[2][:, None] * vector - 4 * f[3][:, None] * bent
    total[:, 0] += value
    if total.shape[1] > 1:
        total[:, 1:] -= gradient[:, : group.shape[1]]
