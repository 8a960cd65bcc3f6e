"""Tables of attraction and repulsion by squared distance, epochs in which edges pull, and random numbers.

Both forces follow from the curve 1 / (1 + a d^(2 b)). As tables over the bits of a squared distance they need
no power and no division, which otherwise take most of the time of a layout. A table has ``2**BITS`` steps
between a power of two and the next one, and values in between are interpolated.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
UInt32 = npt.NDArray[np.uint32]

BITS = 6
"""Bits of the mantissa that number the steps of a table. Between two steps a power d^-s is off by
s (s + 1) / 2^15 at most, relative to itself: less than 1e-3 of any force."""

SHIFT = 23 - BITS
"""Bits of the mantissa that give the position between two steps."""

LEAST, MOST = -32, 32
"""Powers of two to whose range squared distances are clipped."""

FIRST = (127 + LEAST) << 23
"""Bits of the smallest squared distance in float32."""

LAST = ((MOST - LEAST) << 23) - 1
"""Bits of the largest squared distance, counted from ``FIRST``."""

FARTHEST = 4.0
"""Farthest that one force moves a vertex in a coordinate, at a rate of 1."""

MASK = 2**64 - 1

STEP, FIRST_FACTOR, SECOND_FACTOR = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Forces(NamedTuple):
    """Tables of factors by squared distance: a force is a factor times a difference of positions."""

    attraction: Float32
    """Table of negative factors: towards the other vertex."""

    repulsion: Float32


class Density(NamedTuple):
    """Force along each edge, in addition to the attraction, that preserves local densities of the data.

    References
    ----------
    Narayan, Berger, Cho, Assessing single-cell transcriptomic variability through density-preserving data
    visualization, Nature Biotechnology 39, 2021. Limited as any other force, as in umap-learn.
    """

    closeness: Float32
    """Table of 1 / (1 + a d^(2 b)) by the squared distance, as those of forces."""

    slope: float
    """Exponent b of that curve."""

    pushes: Float32
    """(n, 2) coefficients of each vertex. Sums of those of both ends of an edge, (p, q), give the factor of
    the force: ``phi ((1 - slope (1 - phi)) p - q phi' / phi) / share``, with phi the closeness of the ends,
    phi' its derivative by the squared distance, and share the share of epochs in which the edge pulls. Both
    are negative where the neighbors of the vertex should be nearer."""


class Edges(NamedTuple):
    """Edges of some vertices, by the vertex that they begin at (CSR)."""

    pointers: npt.NDArray[np.int64]
    """Begin of the edges of each vertex in the vectors below, in order, and end of those of the last."""

    neighbors: npt.NDArray[Any]
    """Other ends of edges; int32, or int64 where there are more vertices."""

    phases: UInt32
    """Phases of edges, see ``phases_of``."""

    def part(self, start: int, stop: int) -> Edges:
        """Edges of vertices ``start:stop``; shares the vectors."""
        return self._replace(pointers=self.pointers[start : stop + 1])


class Epoch(NamedTuple):
    """Parameters of one epoch of a layout."""

    number: int
    """Number of the epoch, from 1 on."""

    key: int
    """Key of its random numbers: see ``epoch_key``."""

    rate: float
    """Factor of all forces."""

    negatives: int
    """Number of random vertices that repel a vertex each time one of its edges pulls."""


def forces_of(a: float, b: float, strength: float) -> Forces:
    """Tables of forces for the curve 1 / (1 + a d^(2 b)); the repulsion is multiplied by ``strength``.

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
    """Phase of each edge: the part of a turn that it advances in an epoch, as a multiple of 2**-32.

    An edge pulls whenever a turn is full. ``largest`` is the largest weight of all edges.

    An edge of the largest weight pulls in every epoch but the first, and one of weight w in a share
    w / largest of them: by epoch n it has done so ``floor(n w / largest)`` times, or once less, without any
    state. After epoch n it is at ``n phase mod 2**32``, and a value below its phase means that a turn was
    just filled.
    """
    turns = np.floor(weights.astype(np.float64) * (2.0**32 / largest))
    return np.minimum(turns, 2.0**32 - 1).astype(np.uint32)


def mix(word: int) -> int:
    """64 pseudorandom bits from the 64 bits of a counter.

    References
    ----------
    Steele, Lea, Flood, Fast splittable pseudorandom number generators, OOPSLA 2014: the finalizer of
    SplitMix64, of a state that is a multiple of the golden ratio.
    """
    word = ((word ^ (word >> 30)) * FIRST_FACTOR) & MASK
    word = ((word ^ (word >> 27)) * SECOND_FACTOR) & MASK
    return word ^ (word >> 31)


def epoch_key(seed: int, purpose: int, epoch: int) -> int:
    """Key of the random numbers of an epoch; ``purpose`` keeps those of different uses apart."""
    return mix((mix((seed + STEP * purpose) & MASK) + STEP * (epoch + 1)) & MASK)


def _squares() -> list[float]:
    """Squared distances at the steps of tables."""
    steps = np.arange(((MOST - LEAST) << BITS) + 1, dtype=np.int64)
    squares: list[float] = ((steps << SHIFT) + FIRST).astype(np.int32).view(np.float32).tolist()
    return squares
