"""Repulsion between all vertices: by a grid in a plane, a tree in space, or pair by pair.

Each way takes the positions of all vertices, and then computes the repulsive force (push) on any of them, to
the same bytes whichever are asked for together. It also returns the sum of ``1 / (1 + d^2)`` over all pairs,
by which all forces are divided; or, where that takes as long as the forces do, each vertex's share of it.
"""

from __future__ import annotations

import functools
import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.kernels.grid.pairs import push_sums
from rankfold.kernels.sums.moments import moments_bytes
from rankfold.kernels.sums.repulsion import Repulsion as TreeSums
from rankfold.kernels.sums.tree import tree_bytes
from rankfold.methods.random_keys import Purpose
from rankfold.methods.tsne.grid import GridRepulsion, warm_grid

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

FEW_ROWS = 3000
"""Number of rows up to which pairs take less time than a grid or a tree."""

WIDEST, WIDEST_TREE = 2, 3
"""Largest number of dimensions for a grid, and for a tree."""

OPENING, ORDER = 0.8, 2
"""Opening (largest ratio of radius to distance at which a node of a tree is summed as a whole) and order of
the expansions of nodes. Forces are then off by some 1 %, as by the grid."""

PIECES = 16
"""Pieces for each thread into which the vertices of a tree are cut, since some take longer than others."""

SAMPLE = 200
"""Number of random vertices at which forces are compared with exact sums over all pairs."""


class Repulsion(Protocol):
    """Computes repulsive forces: ``prepare`` takes all positions, then ``push`` gives forces on some."""

    def prepare(self, positions: Float32) -> float | None:
        """Take ``positions`` (n, d) of all vertices; returns the sum of ``1 / (1 + d^2)`` over ordered pairs.

        It is None if the caller is to sum it from the parts of vertices that ``push`` writes to ``near``.
        """

    def push(self, first: int, out: Float32, near: Float64) -> None:
        """Write forces on vertices from ``first`` on to ``out`` (m, d), not divided by the sum over pairs.

        If ``prepare`` returned None, also write the sum of ``1 / (1 + d^2)`` over all others of each to
        ``near`` (m,).
        """


def repulsion_of(rows: int, width: int, pool: ThreadPoolExecutor, threads: int) -> Repulsion:
    """Repulsion by a grid, a tree or all pairs; only numbers of rows and of dimensions (``width``) decide."""
    if by_tree(rows, width):
        return TreeRepulsion(rows, width, pool, threads)
    return GridRepulsion(rows, pool, threads) if by_grid(rows, width) else PairRepulsion()


def by_grid(rows: int, width: int) -> bool:
    """True if repulsive forces in ``width`` dimensions are computed by a grid."""
    return rows > FEW_ROWS and width <= WIDEST


def by_tree(rows: int, width: int) -> bool:
    """True if repulsive forces in ``width`` dimensions are computed by a tree."""
    return rows > FEW_ROWS and WIDEST < width <= WIDEST_TREE


def pushing_bytes(rows: int, width: int) -> int:
    """Upper bound on the bytes of a tree and its forces, with the points copied while it is built."""
    return tree_bytes(rows, width) + moments_bytes(rows) + 8 * rows * (2 * width + 1)


class PairRepulsion:
    """Repulsive forces summed over all pairs of vertices."""

    def __init__(self) -> None:
        self.positions = np.empty((0, 0), np.float32)
        self.sources = self.positions

    def prepare(self, positions: Float32) -> float | None:
        """Take ``positions`` (n, d) of all vertices; returns None, as ``push`` computes parts of the sum."""
        self.positions, self.sources = positions, np.ascontiguousarray(positions.T)
        return None

    def push(self, first: int, out: Float32, near: Float64) -> None:
        """Write forces on vertices from ``first`` on to ``out`` (m, d), parts of the sum to ``near`` (m,).

        A vertex does not repel itself.
        """
        push_sums(self.positions[first : first + len(out)], self.sources, push=out, near=near)
        near -= 1


class TreeRepulsion:
    """Repulsion by far nodes of a tree and near pairs; ``prepare`` computes it for all vertices at once."""

    def __init__(self, rows: int, width: int, pool: ThreadPoolExecutor, threads: int) -> None:
        self.pool, self.threads = pool, threads
        self.pushes, self.near = np.empty((rows, width)), np.empty(rows)

    def prepare(self, positions: Float32) -> float | None:
        """Compute forces on all vertices, at ``positions`` (n, d).

        Returns the sum of ``1 / (1 + d^2)`` over all ordered pairs.
        """
        sums = TreeSums.of(positions)
        pieces = 1 if self.threads == 1 else PIECES * self.threads
        edges = [sums.groups * i // pieces for i in range(pieces + 1)]
        how: dict[str, Any] = {
            "opening": OPENING,
            "order": ORDER,
            "forces": self.pushes,
            "weights": self.near,
        }
        for _ in self.pool.map(lambda ends: sums.push(*ends, **how), itertools.pairwise(edges)):
            pass
        return float(self.near.sum())

    def push(self, first: int, out: Float32, near: Float64) -> None:
        """Copy the forces on vertices from ``first`` on to ``out`` (m, d); ``near`` is not used."""
        out[...] = self.pushes[first : first + len(out)]


def error_of(repulsion: Repulsion, positions: Float32, seed: int) -> float:
    """Relative error of forces, by their summed squares at some random vertices; 0 for sums over pairs.

    ``repulsion`` was prepared with ``positions`` (n, d); ``seed`` draws the vertices.
    """
    if isinstance(repulsion, PairRepulsion):
        return 0.0
    count = len(positions)
    key = np.array([seed, Purpose.LAYOUT_PAIRS], np.uint64)
    rows = np.random.Generator(np.random.Philox(key=key)).integers(0, count, SAMPLE)
    exact, near = np.empty((SAMPLE, positions.shape[1]), np.float32), np.empty(SAMPLE)
    push_sums(positions[rows], np.ascontiguousarray(positions.T), push=exact, near=near)
    pushes: Any = np.empty_like(exact)
    for place, row in enumerate(rows.tolist()):
        repulsion.push(row, pushes[place : place + 1], near[:1])
    size = float(np.square(exact, dtype=np.float64).sum())
    return math.sqrt(float(np.square(pushes - exact, dtype=np.float64).sum()) / size) if size else 0.0


def warm_repulsion(rows: int, width: int) -> None:
    """Run the compiled loops of repulsion in ``width`` dimensions once, and those that measure errors."""
    _warm_pairs(min(3, width))
    if by_grid(rows, width):
        warm_grid()
    if by_tree(rows, width):
        _warm_tree()


@functools.cache
def _warm_pairs(width: int) -> None:
    points = np.zeros((2, width), np.float32)
    push_sums(points, np.ascontiguousarray(points.T), push=points.copy(), near=np.empty(2))


@functools.cache
def _warm_tree() -> None:
    points = np.arange(3 * 99, dtype=np.float32).reshape(-1, 3)
    tree, forces, weights = TreeSums.of(points), np.empty((99, 3)), np.empty(99)
    tree.push(0, tree.groups, opening=OPENING, order=ORDER, forces=forces, weights=weights)
