"""How hard all vertices push each other: by a grid in a plane, or pair by pair.

Either way of doing it takes the positions of all vertices, and then says what pushes any of them, to the same
bytes whichever are asked for together. It also says the sum of ``1 / (1 + d^2)`` over all pairs, which all
pushes are divided by; or, where that takes as long as the pushes do, each vertex's share of it.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.kernels.grid.pairs import push_sums
from rankfold.methods.random_keys import Purpose
from rankfold.methods.tsne.grid import GridRepulsion

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

FEW_ROWS = 3000
"""Up to which pairs take less time than a grid."""

WIDEST = 2
"""Dimensions of a grid."""

SAMPLE = 200
"""Vertices whose pushes are compared with sums over all pairs."""


class Repulsion(Protocol):
    """Pushes, for one place of all vertices after the other."""

    def prepare(self, positions: Float32) -> float | None:
        """Take positions of all; the sum over all ordered pairs, or nothing if ``near`` is to be summed."""

    def push(self, first: int, out: Float32, near: Float64) -> None:
        """Of consecutive vertices, what pushes them, and their sums if these were not told."""


def repulsion_of(rows: int, width: int, pool: ThreadPoolExecutor, threads: int) -> Repulsion:
    """By what so many rows are pushed: it depends on nothing else."""
    return GridRepulsion(rows, pool, threads) if by_grid(rows, width) else PairRepulsion()


def by_grid(rows: int, width: int) -> bool:
    """Whether there is a grid."""
    return rows > FEW_ROWS and width <= WIDEST


class PairRepulsion:
    """All pairs."""

    def __init__(self) -> None:
        self.positions = np.empty((0, 0), np.float32)
        self.sources = self.positions

    def prepare(self, positions: Float32) -> float | None:
        """See the protocol."""
        self.positions, self.sources = positions, np.ascontiguousarray(positions.T)
        return None

    def push(self, first: int, out: Float32, near: Float64) -> None:
        """See the protocol; a vertex does not push itself."""
        push_sums(self.positions[first : first + len(out)], self.sources, push=out, near=near)
        near -= 1


def error_of(repulsion: Repulsion, positions: Float32, seed: int) -> float:
    """Of pushes, relative to their size, by some vertices; 0 where they are sums over all pairs."""
    if isinstance(repulsion, PairRepulsion):
        return 0.0
    count = len(positions)
    key = np.array([seed, Purpose.LAYOUT_PAIRS], np.uint64)
    rows = np.random.Generator(np.random.Philox(key=key)).integers(0, count, SAMPLE)
    exact, near = np.empty((SAMPLE, positions.shape[1]), np.float32), np.empty(SAMPLE)
    push_sums(positions[rows], np.ascontiguousarray(positions.T), push=exact, near=near)
    found: Any = np.empty_like(exact)
    for place, row in enumerate(rows.tolist()):
        repulsion.push(row, found[place : place + 1], near[:1])
    size = float(np.square(exact, dtype=np.float64).sum())
    return math.sqrt(float(np.square(found - exact, dtype=np.float64).sum()) / size) if size else 0.0
