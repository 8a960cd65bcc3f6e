"""Plan of a search by partitions, and its cost compared with that of all pairs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import Metric
from rankfold.methods.knn.arguments import DEFAULT_RECALL
from rankfold.methods.knn.graph import SORT_BYTES
from rankfold.methods.knn.pair_fold import has_bounds
from rankfold.methods.knn.plan import SCAN_FLOPS
from rankfold.methods.knn.row_blocks import BlockReader
from rankfold.methods.partitions.complete import Completed
from rankfold.methods.partitions.files import Found, Lists, Runs, visits_of
from rankfold.methods.partitions.layout import LIKELY_SPILL, Layout
from rankfold.methods.partitions.meet_all import FewRows
from rankfold.methods.partitions.merge import MergeLists, WriteMerged
from rankfold.methods.partitions.refinement import Meetings, PlaceVisitors, SearchVisits
from rankfold.methods.partitions.rounds import MOST_ROUNDS, assign_fold
from rankfold.methods.partitions.sample import CollectRows
from rankfold.methods.partitions.search import SearchPartitions
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import PanelSweeps, TaskFacts, plan_task, smaller_argument
from rankfold.pipeline.storage.scratch import NOWHERE, ScratchMatrix

Int64 = npt.NDArray[np.int64]

if TYPE_CHECKING:
    from rankfold.methods.knn.knn import Neighbors

LIKELY_ROUNDS = 1
"""Number of rounds, each with its visits, that usually reach the recall."""

MOST_SHARE = 0.5
"""Share of the operations of all pairs below which partitions are taken: rows near many directions take
several rounds, and are not known before."""

LIST_FLOPS = 2e6
"""Floating-point operations of a matrix product that take as long as making the list of a row in a partition,
and merging it: some 20 microseconds."""


def layout_of(task: Neighbors) -> Layout:
    """Number and size of the partitions for a search, and cuts of its sweeps."""
    parameters = task.parameters
    recall = DEFAULT_RECALL if parameters.min_recall is None else parameters.min_recall
    chunk_rows = task.lists_cut().panel_rows
    return Layout(task.source, parameters.k, parameters.partition_rows, recall, chunk_rows)


def can_search(task: Neighbors) -> bool:
    """True if a search can be made by partitions, by its metric, columns and other arguments."""
    return not _hindrance(task)


def require_partitions(task: Neighbors) -> None:
    """Raise ``InputError`` if a search cannot be made by partitions."""
    reason = _hindrance(task)
    if reason:
        raise InputError(f"solver approximate {reason}. Leave solver out")


def _hindrance(task: Neighbors) -> str:
    """Reason, for a message, why a search cannot be made by partitions; empty if it can."""
    parameters, columns = task.parameters, task.source.shape[1]
    if task.queries is not None or task.earlier is not None:
        return "finds neighbors of all rows among themselves, without queries and base"
    if parameters.metric == "inner_product":
        return (
            "takes metrics by which near rows share what they are near to; rows of large norm have the "
            "largest inner products with all others, in whichever partition these are"
        )
    if (
        parameters.needs_tree
        or parameters.function is not None
        or parameters.code
        not in (
            Metric.EUCLIDEAN,
            Metric.SQEUCLIDEAN,
            Metric.COSINE,
        )
    ):
        return f"takes euclidean, sqeuclidean, cosine and correlation, not {parameters.metric}"
    if not has_bounds(parameters.code, columns):
        return f"is for rows of 16 columns or more, of which {task.source.name} has {columns}"
    return ""


def is_cheaper(task: Neighbors) -> bool:
    """True if partitions can be searched, in less than ``MOST_SHARE`` of the operations of all pairs."""
    return can_search(task) and operations(task) < MOST_SHARE * pair_operations(task)


def operations(task: Neighbors) -> float:
    """Estimated cost of a search by partitions, in floating-point operations of matrix products."""
    layout = layout_of(task)
    truth = layout.recall_rows * layout.rows * _each(layout)
    return truth + LIKELY_ROUNDS * sum(_round_operations(layout))


def pair_operations(task: Neighbors) -> float:
    """Estimated cost of comparing all pairs of rows, in floating-point operations of matrix products."""
    rows, columns = task.source.shape
    return rows * (rows - 1) / 2 * (2.0 * columns + SCAN_FLOPS)


def comparison(task: Neighbors) -> str:
    """Operations by partitions and over all pairs, in words, for the plan of a search that may do either."""
    ours, theirs = operations(task), pair_operations(task)
    return f"{ours:.1e} by partitions, {theirs:.1e} for all pairs"


def _each(layout: Layout) -> float:
    return 2.0 * layout.source.shape[1] + SCAN_FLOPS


def _round_operations(layout: Layout) -> tuple[float, float, float]:
    """Estimated operations of a round, in three parts: putting rows into partitions, comparing rows within
    these, and comparing them with partitions that they visit."""
    average, placed = LIKELY_SPILL * layout.rows / layout.count, LIKELY_SPILL * layout.rows
    centers = layout.rows * layout.count
    each = _each(layout)
    lists = placed * LIST_FLOPS
    return centers * each, placed * average / 2 * each + lists, placed * average * each + lists


def plan_partitions(task: Neighbors, budget: Budget) -> Plan:
    """Plan a search by partitions within a budget.

    Raises
    ------
    MemoryBudgetError
        A panel, or a batch of partitions, does not fit.
    """
    layout, symmetric = layout_of(task), task.parameters.symmetric is not None
    sweeps = _Sweeps(task, layout)
    lists = layout.rows * 16 * layout.k
    place = layout.row_bytes + 16 + 8 + 16 * layout.k + 4 * (layout.spill + layout.visits)
    task_facts = TaskFacts(
        kind="knn",
        method="approximate",
        source=task.source,
        dtype=sweeps.reader.dtype,
        orientation=f"{layout.count} partitions",
        rank=layout.k,
        result_bytes=lists * (2 + 2 * symmetric),
        scratch_bytes=(layout.places + layout.visits * layout.rows) * place
        + 2 * lists
        + (layout.sample_rows + layout.recall_rows) * layout.row_bytes
        + 2 * 24 * layout.rows * layout.k * symmetric,
        decided_by="the recall of the rounds before",
        subject=f"knn of this {layout.rows} x {task.source.shape[1]} matrix by partitions",
    )
    panels = sweeps.panels()
    plan = plan_task(task_facts, panels, budget, smaller=lambda: _smaller(task, layout, budget))
    by_name = {each.name: each for each in plan.passes}
    first, visit = by_name["assign-01"], by_name["visit-01"]
    later = [
        dataclasses.replace(each, name=f"{each.name[:-2]}{i:02d}", is_likely=False)
        for i in range(2, MOST_ROUNDS + 1)
        for each in (first, visit)
    ]
    return dataclasses.replace(
        plan,
        passes=(*plan.passes[:3], *later, *plan.passes[3:]),
        most_passes=1 + 2 * MOST_ROUNDS,
        likely_passes=1 + 2 * LIKELY_ROUNDS,
        comparison=comparison(task),
    )


def _smaller(task: Neighbors, layout: Layout, budget: Budget) -> str:
    """Text that suggests the argument ``partition_rows`` with as many rows as fit."""

    def sweeps_of(rows: int) -> PanelSweeps:
        other = dataclasses.replace(
            task, parameters=dataclasses.replace(task.parameters, partition_rows=rows)
        )
        return _Sweeps(other, layout_of(other)).panels()

    rows = layout.rows // layout.count
    return smaller_argument("partition_rows", rows, sweeps_of, budget, least=2 * (layout.k + 1))


@dataclass(frozen=True, slots=True)
class _Sweeps:
    """Costs of the sweeps of a search by partitions, for its plan."""

    task: Neighbors
    layout: Layout

    def panels(self) -> PanelSweeps:
        """Sweeps in the form that the planner takes."""
        symmetric = self.task.parameters.symmetric is not None
        return PanelSweeps(self.passes, self.layout.cut, self.driver_bytes(symmetric), 0)

    @property
    def reader(self) -> BlockReader:
        """Reader as if rows were centered, which takes a copy: a sample of rows decides that later."""
        shift = np.zeros(self.layout.source.shape[1])
        return BlockReader(self.layout.source, self.task.parameters.code, shift, bounded=True)

    def passes(self, slots: int) -> list[Pass]:
        """Passes over the matrix in the first round, and sweeps over intermediate files in any round."""
        layout, reader, (rows, columns) = self.layout, self.reader, self.layout.source.shape
        reads, place = rows * columns * layout.source.dtype.itemsize, layout.row_bytes + 16
        runs, k = Runs.of(layout, NOWHERE, 0, layout.most_count), layout.k
        ids = sample_ids_of_plan(layout)
        into = tuple(ScratchMatrix(NOWHERE, len(each), columns, reader.dtype) for each in ids)
        collect = CollectRows(reader, layout.cut, ids, into)
        few, before = FewRows(reader, into[1], k), Lists.after(layout, NOWHERE, "round")
        assign = assign_fold(layout, reader, (NOWHERE, layout.most_count, runs, before), few)
        visitors = Runs.of_visitors(layout, NOWHERE, 0, layout.most_count)
        visits = visits_of(layout, NOWHERE, 0)
        place_visitors = PlaceVisitors(reader, layout.cut, visits, visitors, before)
        planned = layout.planned_batches
        found = Found.of(layout, NOWHERE, 0, len(planned.panels) - 1)
        ends, edges = np.zeros(layout.most_count + 1, np.int64), layout.merges.panels
        starts = layout.cut.panels * layout.spill
        most = layout.visits
        search = SearchPartitions(reader, planned, ends, starts, runs, found, k, edges, most, later=True)
        files = runs, visitors, (starts, starts), found
        search_visits = SearchVisits(reader, Meetings(planned, ends, ends), *files, k, edges)
        lists = planned.panels, found, before, before, visits
        merge = MergeLists(layout.merges, *lists, k, ids[1], np.zeros(len(ids[1])))
        completed = Completed(np.zeros(0, np.int64), before)
        cut = self.task.lists_cut()
        write = WriteMerged(cut, before, completed, NOWHERE, k, graph=True)
        nearest, within, among = _round_operations(layout)
        truth = layout.recall_rows * rows * _each(layout)
        placed = int(min(layout.spill, LIKELY_SPILL) * rows)
        written, found_bytes = placed * place, placed * (16 * k + 8)
        return [
            numbers_of("sample", collect, reads, 0, 2.0 * rows * columns),
            numbers_of("assign-01", assign, reads, written, nearest + truth),
            numbers_of("visit-01", place_visitors, reads, written, 0.0),
            numbers_of("search", search, written, found_bytes, within, over="scratch"),
            numbers_of("meet", search_visits, 2 * written, found_bytes, among, over="scratch"),
            numbers_of("merge", merge, 4 * found_bytes, 2 * found_bytes, 0.0, over="scratch"),
            numbers_of("write", write, rows * 16 * k, rows * 32 * k, 0.0, over="scratch"),
        ]

    def driver_bytes(self, symmetric: bool) -> int:
        """Bytes in the leading process: the sample twice, centers, k-means, drawing rows, sorting edges."""
        layout, columns = self.layout, self.layout.source.shape[1]
        sample = layout.sample_rows * (3 * 4 * columns + layout.row_bytes + 8 * 8 + layout.count // 4)
        centers = layout.count * columns * 8 * 8 + 2**20
        drawing = 2 * 8 * layout.rows if layout.sample_rows * 50 > layout.rows else 0
        return max(sample + centers, drawing, 2 * SORT_BYTES * symmetric)


def sample_ids_of_plan(layout: Layout) -> tuple[Int64, Int64]:
    """Placeholders for the row numbers of ``sample_ids`` in a plan, where only their count matters."""
    return np.arange(layout.sample_rows), np.arange(layout.recall_rows)
