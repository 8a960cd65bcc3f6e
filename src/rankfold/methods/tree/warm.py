"""Compile the loops over trees, by running each once on a few numbers."""

from __future__ import annotations

import functools

import numpy as np

from rankfold.kernels.neighbors.lists import EMPTY, sort_lists
from rankfold.kernels.neighbors.tree import (
    LEAF,
    Tree,
    arrange_points,
    count_within,
    list_within,
    nearest_in_tree,
)


def _arranged() -> Tree:
    tree = Tree.empty(2 * LEAF, 2)
    tree.rows()[:] = 0
    tree.ids.reshape(-1)[:] = np.arange(2 * LEAF)
    arrange_points(tree, count=2 * LEAF, node=0, first=0, last=2, levels=-1)
    return tree


@functools.cache
def warm_nearest(*, periodic: bool) -> None:
    """Compile the loops of a search for the nearest."""
    keys, ids = np.full((1, 2), np.inf), np.full((1, 2), EMPTY)
    period = np.ones(2) if periodic else None
    one = np.zeros((1, 2)), np.zeros(1, np.int64)
    nearest_in_tree(_arranged(), *one, period, metric=0, keys=keys, ids=ids)
    sort_lists(keys, ids)


@functools.cache
def warm_within(*, periodic: bool) -> None:
    """Compile the loops of a search within a radius."""
    period, counts = np.ones(2) if periodic else None, np.zeros(1, np.int64)
    tree, one = _arranged(), (np.zeros((1, 2)), np.zeros(1, np.int64))
    count_within(tree, *one, period, metric=0, radius=1.0, counts=counts)
    keys, ids = np.zeros(2 * LEAF), np.zeros(2 * LEAF, np.int64)
    starts = np.zeros(1, np.int64)
    list_within(tree, *one, period, metric=0, radius=1.0, starts=starts, keys=keys, ids=ids)
