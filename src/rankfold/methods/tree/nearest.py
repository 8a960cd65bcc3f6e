"""Find the nearest points in a tree for each panel of queries, and write them into the result.

A fold is the work of a sweep (one run through the rows) on each panel (rows read at a time).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rankfold.kernels.neighbors.lists import EMPTY, sort_lists
from rankfold.kernels.neighbors.tree import nearest_in_tree
from rankfold.methods.knn.write_lists import require_sound, write_lists
from rankfold.methods.tree.points import Queries, few_points
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.fold import DeclaredFold, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State


@dataclass(frozen=True, slots=True)
class NearestInTree(DeclaredFold):
    """Fold that finds the ``k`` nearest points of each query of a panel (rows at a time), and writes them."""

    cut: Cut
    """Cut of the queries into panels, each of which is whole chunks of the result."""

    queries: Queries
    points: int
    """Number of points in the tree."""

    result: Path
    k: int
    graph: bool
    """True if lists are also written as the graph of a sparse matrix."""

    slots: int = 1
    row_seconds: float = 1e-5

    kernels = (nearest_in_tree, sort_lists)

    def sums(self) -> Mapping[str, Sum]:
        """``rows`` (1,), the number of queries whose lists were written."""
        return {"rows": Sum((1,), np.dtype(np.int64))}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step: queries of a panel, their lists in two orders, and checking and writing these."""
        rows = self.cut.panel_rows
        return self.queries.panel_bytes(rows) + rows * self.k * (2 * 16 + 3 * 8)

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Find the k nearest points of queries ``start:stop``, and write distances and indices."""
        reader, points = self.queries.reader, self.queries.points
        assert points is not None  # noqa: S101 - there is no run without
        order, x, own = self.queries.panel(start, stop)
        keys, ids = np.full((len(x), self.k), np.inf), np.full((len(x), self.k), EMPTY)
        nearest_in_tree(points.tree, x, own, reader.period, metric=reader.code, keys=keys, ids=ids)
        sort_lists(keys, ids)
        lists = np.empty_like(keys), np.empty_like(ids)
        lists[0][order], lists[1][order] = keys, ids
        require_sound(*lists, start, others=self.points, itself=self.queries.itself)
        state["rows"] += stop - start
        write_lists(self.result, reader.keys_of(lists[0]), lists[1], (start, stop), graph=self.graph)


@functools.cache
def warm_nearest(*, periodic: bool) -> None:
    """Run the compiled loops of a search for the nearest once, in a periodic box or without."""
    keys, ids = np.full((1, 2), np.inf), np.full((1, 2), EMPTY)
    period = np.ones(2) if periodic else None
    one = np.zeros((1, 2)), np.zeros(1, np.int64)
    nearest_in_tree(few_points(), *one, period, metric=0, keys=keys, ids=ids)
    sort_lists(keys, ids)
