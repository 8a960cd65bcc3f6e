"""Gradient descent of the vertices of a graph: drawn to their neighbors, pushed by all others.

A vertex reads positions and writes its new one to another array, so that any of them may move at once, with
the same bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

GAIN_STEP, GAIN_SHARE, LEAST_GAIN = 0.2, 0.8, 0.01
"""Change of the gain of a coordinate: plus the first if velocity and gradient differ in sign; else times the
second, plus the third."""


class Affinities(NamedTuple):
    """Edges of some vertices, those of each vertex contiguous (CSR)."""

    pointers: Int64
    """(m + 1,) begin of the edges of each vertex, and end of the last."""

    neighbors: Array
    """Other ends of edges, int32 or int64."""

    weights: Float32

    def part(self, first: int, last: int) -> Affinities:
        """Edges of vertices ``first:last``."""
        ends = self.pointers[first : last + 1]
        some = slice(int(ends[0]), int(ends[-1]))
        return Affinities(ends - ends[0], self.neighbors[some], self.weights[some])


class Descent(NamedTuple):
    """Factors and limits of a step."""

    exaggeration: float
    """Factor of the attraction."""

    inverse: float
    """Factor of the repulsion: one over the sum of q over all pairs."""

    rate: float
    momentum: float
    longest: float
    """Length of the longest step of a vertex: longer ones are shortened to it."""


class Motion(NamedTuple):
    """Velocities and gains of some vertices, (m, d) each, changed in place by a step."""

    velocities: Float32
    gains: Float32


@kernel
def descend(
    positions: Float32,
    first: int,
    affinities: Affinities,
    push: Float32,
    *,
    descent: Descent,
    motion: Motion,
    out: Float32,
) -> None:
    """Compute new positions of consecutive vertices, a step down the gradient.

    The gradient of a vertex is ``exaggeration sum w q (y - y_j) - inverse push``, over its edges of weights
    w, with ``q = 1 / (1 + |y - y_j|^2)``.

    Parameters
    ----------
    positions : (n, d) float32
        Positions of all vertices.
    first : int
        First vertex that moves.
    affinities : Affinities
        Edges of the m vertices that move.
    push : (m, d) float32
        Repulsion, not yet normalized.
    descent : Descent
    motion : Motion, (m, d) float32 each, changed
    out : (m, d) float32, written
        New positions; no part of ``positions``.

    Notes
    -----
    Some 3 d + 4 operations an edge, and 20 d a vertex; no scratch.

    References
    ----------
    van der Maaten, Hinton, Journal of Machine Learning Research 9, 2008; gains of Jacobs, Neural Networks 1,
    1988, with the numbers of their implementation. Steps have a longest length as in openTSNE.
    """
    gradient = _gradient(positions, first, affinities, push, descent)
    velocities, gains = motion
    turned = np.sign(velocities) != np.sign(gradient)
    step, share, least = (np.float32(number) for number in (GAIN_STEP, GAIN_SHARE, LEAST_GAIN))
    gains[...] = np.where(turned, gains + step, gains * share + least)
    velocities *= np.float32(descent.momentum)
    velocities -= np.float32(descent.rate) * gains * gradient
    length = np.sqrt((velocities**2).sum(axis=1, keepdims=True))
    velocities *= np.float32(descent.longest) / np.maximum(length, np.float32(descent.longest))
    out[...] = positions[first : first + len(out)] + velocities


@kernel
def measure_descent(
    positions: Float32, first: int, affinities: Affinities, push: Float32, *, descent: Descent, out: Float32
) -> None:
    """Write, for consecutive vertices, a sum over their edges and the squared length of their gradient.

    The sum is ``sum w log(1 + |y - y_j|^2)``, the part of the loss that depends on edges.

    Parameters
    ----------
    positions, first, affinities, push, descent
        As for ``descend``.
    out : (m, 2) float32, written
        The sum of each vertex, then the squared length of its gradient.

    Notes
    -----
    A logarithm and 3 d + 6 operations an edge; no scratch.
    """
    gradient = _gradient(positions, first, affinities, push, descent)
    own, squares = _squares(positions, first, affinities)
    out[:, 0] = np.bincount(own, affinities.weights * np.log1p(squares), len(out))
    out[:, 1] = (gradient.astype(np.float64) ** 2).sum(axis=1)


def _squares(positions: Float32, first: int, affinities: Affinities) -> tuple[Int64, Array]:
    """Vertex of each edge, counted from the first, and squared length of the edge."""
    own = np.repeat(np.arange(len(affinities.pointers) - 1), np.diff(affinities.pointers))
    between = positions[first + own].astype(np.float64) - positions[affinities.neighbors]
    return own, (between**2).sum(axis=1)


def _gradient(
    positions: Float32, first: int, affinities: Affinities, push: Float32, descent: Descent
) -> Float32:
    own, squares = _squares(positions, first, affinities)
    between = positions[first + own].astype(np.float64) - positions[affinities.neighbors]
    pull = affinities.weights / (1 + squares)
    sums = [np.bincount(own, pull * line, len(affinities.pointers) - 1) for line in between.T]
    attraction = np.stack(sums, axis=1).astype(np.float32)
    return np.float32(descent.exaggeration) * attraction - np.float32(descent.inverse) * push
