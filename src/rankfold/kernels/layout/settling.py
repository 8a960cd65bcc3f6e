"""Place new rows among vertices which stay, each independently: drawn to its neighbors, pushed by all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.grid.nodes import Lattice, potentials_at
from rankfold.kernels.grid.pairs import push_sums
from rankfold.kernels.layout.descent import GAIN_SHARE, GAIN_STEP, LEAST_GAIN

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

Pushes = Callable[[Float32], tuple[Float32, Float64]]


class NewPoints(NamedTuple):
    """Rows that are to be placed."""

    neighbors: Int64
    """(m, k) vertices that each row is drawn to."""

    weights: Float32
    """(m, k) weights of neighbors, which sum to 1 in each row."""

    start: Float32
    """(m, d) first positions."""

    def part(self, first: int, last: int) -> NewPoints:
        """Rows ``first:last``."""
        some = slice(first, last)
        return NewPoints(self.neighbors[some], self.weights[some], self.start[some])


class PlacementOptions(NamedTuple):
    """Parameters of the gradient descent that places rows."""

    steps: int
    rate: float
    momentum: float
    exaggeration: float
    longest: float
    """Length of the longest gradient; longer ones are shortened to it."""


@kernel
def settle_by_nodes(
    positions: Float32,
    rows: NewPoints,
    lattice: Lattice,
    nodes: Float32,
    *,
    options: PlacementOptions,
    out: Float32,
) -> None:
    """Place new rows in a plane by gradient descent of their divergence, with repulsion from nodes of a grid.

    The gradient of a row is ``exaggeration sum w q (y - y_j) - push / near``, over its neighbors, with
    ``q = 1 / (1 + |y - y_j|^2)``; ``push`` is the sum of ``q^2 (y - s)`` over all vertices s, and ``near``
    that of q.

    Parameters
    ----------
    positions : (n, 2) float32
        Positions of the vertices.
    rows : NewPoints
    lattice : Lattice
        Lattice of the nodes. Rows stay in its cells.
    nodes : (rows, columns, 3) float32
        Potentials: both coordinates of ``push``, and ``near``.
    options : PlacementOptions
    out : (m, 2) float32, written

    Notes
    -----
    Some 10 k + 200 operations a step of a row; scratch k numbers.

    References
    ----------
    Policar, Strazar, Zupan, openTSNE, Journal of Statistical Software 109, 2024, for rates and limits. Unlike
    there the sum of q is that of the row alone, so that rows do not affect each other.
    """
    low = np.array([lattice.low_x, lattice.low_y]) + lattice.spacing
    high = low + lattice.spacing * (np.array(nodes.shape[:2]) - 3.5)

    def pushes(y: Float32) -> tuple[Float32, Float64]:
        found = np.empty((len(y), 3), np.float32)
        potentials_at.reference(y, lattice, nodes, out=found)  # type: ignore[attr-defined]
        return found[:, :2], found[:, 2].astype(np.float64)

    _settle(positions, rows, pushes, options, (low.astype(np.float32), high.astype(np.float32)), out)


@kernel
def settle_by_pairs(
    positions: Float32, rows: NewPoints, sources: Float32, *, options: PlacementOptions, out: Float32
) -> None:
    """Place new rows in any dimension, as ``settle_by_nodes`` does, with repulsion summed over all vertices.

    Parameters
    ----------
    positions, rows, options
        As for ``settle_by_nodes``.
    sources : (d, n) float32
        Positions of the vertices, one coordinate after the other.
    out : (m, d) float32, written

    Notes
    -----
    Some (4 d + 6) n operations a step of a row; scratch 1024 + k numbers.
    """

    def pushes(y: Float32) -> tuple[Float32, Float64]:
        push, near = np.empty_like(y), np.empty(len(y))
        push_sums.reference(y, sources, push=push, near=near)  # type: ignore[attr-defined]
        return push, near

    none = np.full(len(sources), np.float32(np.inf))
    _settle(positions, rows, pushes, options, (-none, none), out)


def _settle(
    positions: Float32,
    rows: NewPoints,
    pushes: Pushes,
    options: PlacementOptions,
    limits: tuple[Float32, Float32],
    out: Float32,
) -> None:
    y = np.clip(rows.start, *limits)
    velocity, gains = np.zeros_like(y), np.ones_like(y)
    for _ in range(options.steps):
        push, near = pushes(y)
        between = (y[:, None] - positions[rows.neighbors]).astype(np.float64)
        pull = rows.weights / (1 + (between**2).sum(axis=2))
        gradient = options.exaggeration * (pull[:, :, None] * between).sum(axis=1)
        gradient -= push / np.maximum(near, 1e-30)[:, None]
        length = np.sqrt((gradient**2).sum(axis=1, keepdims=True))
        gradient *= np.where(length > options.longest, options.longest / np.maximum(length, 1e-30), 1)
        turned = np.sign(velocity) != np.sign(gradient)
        gains = np.where(turned, gains + GAIN_STEP, gains * GAIN_SHARE + LEAST_GAIN)
        velocity = (options.momentum * velocity - options.rate * gains * gradient).astype(np.float32)
        y = np.clip(y + velocity, *limits)
    out[...] = y
