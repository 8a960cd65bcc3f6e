"""Vertices of a graph that go down a gradient: drawn to their neighbors, pushed by all others.

A vertex reads positions and writes its own new one beside them, so that any of them may move at once, to the
same bytes.
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
"""A coordinate that turns back gains the first; one that goes on keeps the second, and never has less than
the third."""


class Pulls(NamedTuple):
    """Edges of some vertices, those of vertex i beside each other."""

    pointers: Int64
    """(m + 1,) where edges of a vertex begin, and end."""

    neighbors: Array
    """int32 or int64."""

    weights: Float32

    def part(self, first: int, last: int) -> Pulls:
        """Edges of some of them."""
        ends = self.pointers[first : last + 1]
        some = slice(int(ends[0]), int(ends[-1]))
        return Pulls(ends - ends[0], self.neighbors[some], self.weights[some])


class Descent(NamedTuple):
    """What a step is multiplied with."""

    exaggeration: float
    """Attraction."""

    inverse: float
    """Repulsion: one over the sum of all pairs."""

    rate: float
    momentum: float
    longest: float
    """Step of a vertex."""


class Motion(NamedTuple):
    """Of some vertices, changed in place."""

    velocities: Float32
    gains: Float32


@kernel
def descend(
    positions: Float32,
    first: int,
    pulls: Pulls,
    push: Float32,
    *,
    descent: Descent,
    motion: Motion,
    out: Float32,
) -> None:
    """New positions of consecutive vertices, a step down the gradient.

    The gradient of a vertex is ``exaggeration sum w q (y - y_j) - inverse push``, over its edges of weights
    w, with ``q = 1 / (1 + |y - y_j|^2)``.

    Parameters
    ----------
    positions : (n, d) float32
        Of all vertices.
    first : int
        The first vertex that moves.
    pulls : Pulls
        Edges of the m that do.
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
    gradient = _gradient(positions, first, pulls, push, descent)
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
    positions: Float32, first: int, pulls: Pulls, push: Float32, *, descent: Descent, out: Float32
) -> None:
    """``sum w log(1 + |y - y_j|^2)`` and the squared length of the gradient, of consecutive vertices.

    Parameters
    ----------
    positions, first, pulls, push, descent
        As for ``descend``.
    out : (m, 2) float32, written

    Notes
    -----
    A logarithm and 3 d + 6 operations an edge; no scratch.
    """
    gradient = _gradient(positions, first, pulls, push, descent)
    own, squares = _squares(positions, first, pulls)
    out[:, 0] = np.bincount(own, pulls.weights * np.log1p(squares), len(out))
    out[:, 1] = (gradient.astype(np.float64) ** 2).sum(axis=1)


def _squares(positions: Float32, first: int, pulls: Pulls) -> tuple[Int64, Array]:
    """Vertex of each edge, counted from the first, and squared length of the edge."""
    own = np.repeat(np.arange(len(pulls.pointers) - 1), np.diff(pulls.pointers))
    between = positions[first + own].astype(np.float64) - positions[pulls.neighbors]
    return own, (between**2).sum(axis=1)


def _gradient(positions: Float32, first: int, pulls: Pulls, push: Float32, descent: Descent) -> Float32:
    own, squares = _squares(positions, first, pulls)
    between = positions[first + own].astype(np.float64) - positions[pulls.neighbors]
    pull = pulls.weights / (1 + squares)
    sums = [np.bincount(own, pull * line, len(pulls.pointers) - 1) for line in between.T]
    attraction = np.stack(sums, axis=1).astype(np.float32)
    return np.float32(descent.exaggeration) * attraction - np.float32(descent.inverse) * push
