"""Plan and work of a search for the nearest in a tree. The lists are the same as from all pairs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from rankfold.methods.knn.graph import SORT_BYTES
from rankfold.methods.tree.coordinates import PointReader, require_points
from rankfold.methods.tree.nearest import NearestInTree
from rankfold.methods.tree.plan import TreeSweeps, visited_points
from rankfold.methods.tree.points import PointTree, Queries
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.blocks import own_streams
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import TaskFacts, plan_task
from rankfold.pipeline.storage.scratch import NOWHERE

if TYPE_CHECKING:
    from rankfold.methods.knn.knn import Neighbors
    from rankfold.methods.knn.request import NeighborRequest

SHORT_ROWS = 16
"""Rows with fewer columns than this are measured by the same sum in every search, of all pairs or in a tree.
"""


def require_tree(request: NeighborRequest, source: Source, has_base: bool) -> None:
    """Raise ``InputError`` if a request needs a tree, but arguments or the matrix do not allow one.

    ``has_base`` is True if lists of an earlier search were given.
    """
    if request.solver == "pairs":
        what = "a box" if request.box is not None else request.metric
        raise InputError(f"solver pairs knows nothing of {what}: leave solver out, or take tree")
    require_points(request.metric, request.box, source)
    if source.shape[1] >= SHORT_ROWS:
        raise InputError(
            f"a tree is for points of fewer than {SHORT_ROWS} columns, but {source.name} has "
            f"{source.shape[1]}: leave solver and box out"
        )
    if has_base:
        raise InputError("base is gone on with by pairs of rows: leave it out, or solver and box")


def plan_tree(task: Neighbors, budget: Budget) -> Plan:
    """Plan a search in a tree within a budget.

    Raises
    ------
    MemoryBudgetError
        The points do not fit.
    """
    (rows, k), symmetric = (task.left.shape[0], task.parameters.k), task.parameters.symmetric is not None
    fold, lists = _fold(task, None, NOWHERE), rows * 16 * k
    reader = _reader(task, task.source)
    visited = visited_points(task.source.shape[0], reader.columns, k) + 20 * math.log2(rows + 1)
    sweeps = TreeSweeps(
        reader,
        task.left,
        (("nearest", fold, visited, lists * (2 + 2 * symmetric)),),
        2 * SORT_BYTES * symmetric,
    )
    task_facts = TaskFacts(
        kind="knn",
        method="tree",
        source=task.left,
        dtype=reader.source.dtype,
        orientation="points in a tree",
        rank=k,
        result_bytes=lists * (2 + 2 * symmetric),
        scratch_bytes=2 * 24 * rows * k * symmetric,
        subject=f"knn of this {rows} x {task.left.shape[1]} matrix by a tree of all points",
    )
    way_out = (
        "" if task.parameters.needs_tree and task.parameters.solver != "tree" else ", or leave solver out"
    )
    return plan_task(task_facts, sweeps, budget, lambda: way_out)


def search_tree(task: Neighbors, run: Run) -> None:
    """Read the points into a tree, search it, and write the lists."""
    points = PointTree.read(_reader(task, task.source), run.concurrency)
    run.passes += 1
    task.create_outputs(run)
    run.sweep("nearest", _fold(task, points, run.result))


def _reader(task: Neighbors, source: Source) -> PointReader:
    return PointReader(source, task.parameters.metric, task.parameters.box)


def _fold(task: Neighbors, points: PointTree | None, result: Path) -> NearestInTree:
    """Fold that finds the nearest points of queries, and writes them into the folder ``result``.

    ``points`` is None for a plan.
    """
    itself = task.queries is None
    queries = Queries(points, _reader(task, task.left), itself)
    lists, graph = task.lists_cut(), task.parameters.symmetric is None
    cut = own_streams(lists.panels, lists.grain_rows)
    return NearestInTree(cut, queries, task.source.shape[0], result, task.parameters.k, graph)
