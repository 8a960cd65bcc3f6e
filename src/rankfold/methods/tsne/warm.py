"""Compiled loops of a descent, and those that weigh neighbors of new rows, run once on a few numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rankfold.kernels.graph.perplexity import affinities
from rankfold.kernels.grid.nodes import Lattice, potentials_at, spread_charges
from rankfold.kernels.grid.pairs import push_sums
from rankfold.kernels.layout.descent import Affinities, Descent, Motion, descend, measure_descent
from rankfold.kernels.layout.settling import NewPoints, PlacementOptions, settle_by_nodes, settle_by_pairs
from rankfold.kernels.sums.repulsion import Repulsion
from rankfold.methods.tsne.repulsion import OPENING, ORDER, WIDEST, by_grid, by_tree


def warm_descent(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Compile the loops that a descent with this many rows and dimensions uses."""
    width = int(request["n_components"])
    _warm(min(3, width), np.dtype(np.int32 if shape[0] < 2**31 else np.int64))
    _warm_pairs(min(3, width))
    if by_grid(shape[0], width):
        _warm_grid()
    if by_tree(shape[0], width):
        _warm_tree()


def warm_new_rows(width: int) -> None:
    """Compile the loops that place new rows in ``width`` dimensions and weigh their neighbors."""
    _warm_new_rows(width)


@functools.cache
def _warm_new_rows(width: int) -> None:
    width = max(2, min(3, width))
    points, weights = np.zeros((2, width), np.float32), np.full((2, 2), 0.5, np.float32)
    rows, settling = (
        NewPoints(np.zeros((2, 2), np.int64), weights, points),
        PlacementOptions(1, 0.1, 0.8, 1.5, 0.25),
    )
    for wide in (np.ones((2, 2)), np.ones((2, 4))[:, :2]):
        affinities(wide, np.ones(1), out=np.empty((2, 2), np.float32))
    if width > WIDEST:
        settle_by_pairs(points, rows, points.T.copy(), settling=settling, out=points.copy())
    else:
        _warm_grid()
        lattice, nodes = Lattice(-2.0, -2.0, 1.0), np.ones((5, 5, 3), np.float32)
        settle_by_nodes(points, rows, lattice, nodes, settling=settling, out=points.copy())


@functools.cache
def _warm(width: int, index: np.dtype[Any]) -> None:
    pulls = Affinities(np.arange(3), np.array([1, 0], index), np.ones(2, np.float32))
    positions, still = np.zeros((2, width), np.float32), np.zeros((2, width), np.float32)
    now, motion = Descent(1.0, 1.0, 1.0, 0.5, 5.0), Motion(still.copy(), still.copy())
    descend(positions, 0, pulls, still, descent=now, motion=motion, out=still.copy())
    measure_descent(positions, 0, pulls, still, descent=now, out=np.empty((2, 2), np.float32))


@functools.cache
def _warm_pairs(width: int) -> None:
    points = np.zeros((2, width), np.float32)
    push_sums(points, np.ascontiguousarray(points.T), push=points.copy(), near=np.empty(2))


@functools.cache
def _warm_tree() -> None:
    points = np.arange(3 * 99, dtype=np.float32).reshape(-1, 3)
    tree, forces, weights = Repulsion.of(points), np.empty((99, 3)), np.empty(99)
    tree.push(0, tree.groups, opening=OPENING, order=ORDER, forces=forces, weights=weights)


@functools.cache
def _warm_grid() -> None:
    points, lattice = np.zeros((2, 2), np.float32), Lattice(-2.0, -2.0, 1.0)
    spread_charges(points, lattice, 0, out=np.zeros((5, 5)))
    potentials_at(points, lattice, np.zeros((5, 5, 2), np.float32), out=points)
