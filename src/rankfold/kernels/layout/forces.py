"""Attraction and repulsion by squared distance, as tables; when an edge pulls; what random vertices push.

Both forces follow from the curve 1 / (1 + a d^(2 b)). As tables over the bits of a squared distance they take
no power and no division, which are most of the time of a layout otherwise: a power of two and the next one
have ``2**BITS`` steps between them, and values in between are interpolated.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
UInt32 = npt.NDArray[np.uint32]

BITS = 6
"""Of the mantissa, that tell steps of a table. Between two steps a power d^-s is off by s (s + 1) / 2^15 at
most, relative to itself: less than 1e-3 of any force."""

SHIFT = 23 - BITS
"""Bits of the mantissa that tell a place between two steps."""

LEAST, MOST = -32, 32
"""Powers of two that squared distances are taken to lie between."""

FIRST = (127 + LEAST) << 23
"""Bits of the smallest squared distance in float32."""

LAST = ((MOST - LEAST) << 23) - 1
"""The largest, counted from there."""

FARTHEST = 4.0
"""That one force moves a vertex in a coordinate, at a rate of 1."""

MASK = 2**64 - 1

STEP, FIRST_FACTOR, SECOND_FACTOR = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Forces(NamedTuple):
    """What a difference of positions is multiplied with, by its squared length."""

    attraction: Float32
    """Negative: towards the other vertex."""

    repulsion: Float32


class Density(NamedTuple):
    """What keeps rows apart that are so in the data: a force along each edge, besides the attraction.

    References
    ----------
    Narayan, Berger, Cho, Assessing single-cell transcriptomic variability through density-preserving data
    visualization, Nature Biotechnology 39, 2021. Limited as any other force, as in umap-learn.
    """

    closeness: Float32
    """Table of 1 / (1 + a d^(2 b)) by the squared distance, as those of forces."""

    slope: float
    """b of the curve."""

    pushes: Float32
    """(n, 2) Of each vertex: what its ends of edges are pushed with by how close they are, and by how steep
    the curve is there. Negative where the vertex is to have its neighbors nearer."""


class Edges(NamedTuple):
    """Of some vertices, by the one that they begin at."""

    pointers: npt.NDArray[np.int64]
    """Where those of each vertex begin in the vectors below, in order, and where those of the last end."""

    neighbors: npt.NDArray[Any]
    """Other ends; int32, or int64 where there are more vertices."""

    phases: UInt32
    """See ``phases_of``."""

    def part(self, start: int, stop: int) -> Edges:
        """Of some of the vertices."""
        return self._replace(pointers=self.pointers[start : stop + 1])


class Epoch(NamedTuple):
    """One of many, and what is done in it."""

    number: int
    """From 1 on."""

    key: int
    """Of its random numbers: see ``epoch_key``."""

    rate: float
    """That forces are multiplied with."""

    negatives: int
    """Random vertices that push whenever an edge pulls."""


def forces_of(a: float, b: float, strength: float) -> Forces:
    """Tables for a curve, and a strength of repulsion.

    References
    ----------
    McInnes, Healy, Melville, UMAP, arXiv:1802.03426, section 4.2; squared distances are raised by 0.001 in
    the repulsion, as there.
    """
    attraction, repulsion = [], []
    for square in _squares():
        # By the powers of the C library, which do not depend on how many are taken at a time.
        power = math.pow(square, b)
        attraction.append(-2 * a * b * power / square / (1 + a * power))
        repulsion.append(2 * strength * b / ((0.001 + square) * (1 + a * power)))
    return Forces(np.array(attraction, np.float32), np.array(repulsion, np.float32))


def closeness_of(a: float, b: float) -> Float32:
    """Table of the curve 1 / (1 + a d^(2 b)) itself, by the squared distance."""
    return np.array([1 / (1 + a * math.pow(square, b)) for square in _squares()], np.float32)


def phases_of(weights: Float32, largest: float) -> UInt32:
    """By how much of a turn each edge goes on in an epoch: it pulls whenever a turn is full.

    An edge of the largest weight pulls in every epoch but the first, and one of weight w in a share
    w / largest of them: by epoch n it has done so ``floor(n w / largest)`` times, or once less, without any
    state. After epoch n it stands at
    ``n phase mod 2**32``, and less than its phase says that a turn has just been filled.
    """
    turns = np.floor(weights.astype(np.float64) * (2.0**32 / largest))
    return np.minimum(turns, 2.0**32 - 1).astype(np.uint32)


def mix(word: int) -> int:
    """64 bits as good as random, by those of a counter.

    References
    ----------
    Steele, Lea, Flood, Fast splittable pseudorandom number generators, OOPSLA 2014: the finalizer of
    SplitMix64, of a state that is a multiple of the golden ratio.
    """
    word = ((word ^ (word >> 30)) * FIRST_FACTOR) & MASK
    word = ((word ^ (word >> 27)) * SECOND_FACTOR) & MASK
    return word ^ (word >> 31)


def epoch_key(seed: int, purpose: int, epoch: int) -> int:
    """What the random numbers of an epoch begin from."""
    return mix((mix((seed + STEP * purpose) & MASK) + STEP * (epoch + 1)) & MASK)


def _squares() -> list[float]:
    """Squared distances that tables have values of."""
    steps = np.arange(((MOST - LEAST) << BITS) + 1, dtype=np.int64)
    squares: list[float] = ((steps << SHIFT) + FIRST).astype(np.int32).view(np.float32).tolist()
    return squares
