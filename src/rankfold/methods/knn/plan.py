"""Plan of a search over pairs of blocks of rows: groups of blocks held in memory, reads, memory, tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.bounds import TERMS
from rankfold.kernels.neighbors.meeting import TILE, shortlist_length
from rankfold.methods.bits.folds import NearestBits, NearestSets
from rankfold.methods.knn.graph import SORT_BYTES
from rankfold.methods.knn.pair_fold import NearestPairs
from rankfold.methods.knn.sparse_fold import NearestSparsePairs
from rankfold.methods.knn.write_lists import WriteLists
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.device import runs_on_device
from rankfold.pipeline.engine.pairs import FEW, Pairs
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.planning.passes import RESERVE_BYTES, Pass, blas_bytes, numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, TaskFacts, cut_store, plan_task, smaller_argument
from rankfold.pipeline.planning.shape_only import ShapeOnly

NeighborFold = NearestPairs | NearestSparsePairs | NearestBits | NearestSets

SCAN_FLOPS = 60.0
"""Floating-point operations of a matrix product that take as long as comparing one bound of a distance."""

PACKED_BYTES = blas_bytes(max(TILE, TERMS))
"""Packing buffers of one BLAS thread, for products of tiles: ``TILE`` rows, ``TERMS`` terms at a time."""


def group_rows(pairs: Pairs, edges: npt.NDArray[np.int64]) -> int:
    """Largest number of rows of a group of blocks; ``edges`` are those of the groups, as indices of
    blocks."""
    return int(np.diff(pairs.rows[edges]).max())


@dataclass(frozen=True, slots=True)
class PairSweeps:
    """The sweeps of a search, for its plan: one over pairs of blocks, and one that writes the lists."""

    fold: NeighborFold
    write: WriteLists
    source: Source
    left: Source
    """The rows whose neighbors are found."""

    symmetric: bool
    """True if edges are sorted to make the graph symmetric."""

    def arrange(self, budget: Budget) -> FittedSweeps:
        """Choose as many threads as fit with one block each, then as few groups as fit and keep all busy."""
        fold, write, pairs = self.fold, self.write, self.fold.pairs
        concurrency, groups = _groups(fold, _limit_threads(write, budget))
        rows = group_rows(pairs, pairs.groups(groups))
        task = fold.memory_bytes(rows) + PACKED_BYTES
        writing = min(concurrency, write.cut.stream_count) * write.memory_bytes
        sorting = 2 * SORT_BYTES * self.symmetric
        lists = self.left.shape[0] * 16 * fold.k
        search = _sweep(fold, (concurrency, groups, task), self.source, self.left)
        write_pass = numbers_of("write", write, lists, lists * (2 + 2 * self.symmetric), 0.0, over="scratch")
        return FittedSweeps(
            passes=(search, write_pass),
            concurrency=concurrency,
            peak_bytes=RESERVE_BYTES + max(concurrency * task, writing, sorting),
            driver_bytes=sorting,
            checkpoint_bytes=0,
            most_at_once=pairs.most_at_once,
            grain_rows=pairs.tallest(),
            panel_rows=rows,
            most_passes=1,
            likely_passes=1,
            groups=groups,
        )


def _groups(fold: NeighborFold, budget: Budget) -> tuple[int, int]:
    """Number of threads, and of groups of blocks: the fewest that fit into memory and keep all busy."""
    pairs, room = fold.pairs, budget.memory_bytes - RESERVE_BYTES
    least = fold.memory_bytes(int(np.diff(pairs.rows).max())) + PACKED_BYTES
    concurrency = max(1, min(budget.threads, room // least, pairs.most_at_once))
    fewest, fits = 0, pairs.count
    while fits - fewest > 1:
        middle = (fewest + fits) // 2
        rows = group_rows(pairs, pairs.groups(middle))
        good = concurrency * (fold.memory_bytes(rows) + PACKED_BYTES) <= room
        fewest, fits = (fewest, middle) if good else (middle, fits)
    target = pairs.group_target(concurrency * budget.workers)
    return concurrency, min(pairs.count, max(fits, target))


def plan_neighbors(
    sweeps: PairSweeps, budget: Budget, sweeps_of: Callable[[int, Callable[[Source], Source]], PairSweeps]
) -> Plan:
    """Plan a search within a budget.

    ``sweeps_of(k, of)`` makes its sweeps with lists of length k, over matrices that ``of`` makes of its own:
    for advice on what would fit.

    Raises
    ------
    MemoryBudgetError
        One task that holds a single block takes more than the budget.
    """
    fold, left = sweeps.fold, sweeps.left
    lists = left.shape[0] * 16 * fold.k
    task_facts = TaskFacts(
        kind="knn",
        method="exact",
        source=left,
        dtype=fold.left.dtype,
        orientation="pairs of rows",
        rank=fold.k,
        result_bytes=lists * (2 + 2 * sweeps.symmetric),
        scratch_bytes=lists * fold.pairs.accumulators + 2 * 24 * left.shape[0] * fold.k * sweeps.symmetric,
        width=shortlist_length(fold.k),
        subject=f"knn of this {left.shape[0]} x {left.shape[1]} matrix",
    )
    return plan_task(
        task_facts,
        sweeps,
        budget,
        lambda: _way_out(fold, left, sweeps_of, budget),
        lambda: smaller_argument("k", fold.k, lambda k: sweeps_of(k, lambda matrix: matrix), budget),
    )


def _limit_threads(write: WriteLists, budget: Budget) -> Budget:
    """The budget, with fewer threads if memory is too small for all of them to write lists at once."""
    most = max(1, (budget.memory_bytes - RESERVE_BYTES) // write.memory_bytes)
    enough = most >= min(budget.threads, write.cut.stream_count)
    return budget if enough else dataclasses.replace(budget, threads=most)


def _sweep(fold: NeighborFold, arrangement: tuple[int, int, int], source: Source, left: Source) -> Pass:
    """Planned bytes, operations and tasks of the sweep over pairs of blocks.

    ``arrangement`` has the number of tasks at once, the number of groups, and the bytes of a task.
    """
    pairs, lists = fold.pairs, left.shape[0] * 16 * fold.k
    concurrency, groups, task_bytes = arrangement
    tasks = 1 + (groups * (groups + 1) // 2 if pairs.others is None else groups * pairs.accumulators)
    flops = pairs.row_pairs * (SCAN_FLOPS + fold.pair_flops)
    at_once = max(1, groups // 2) if pairs.others is None else groups * pairs.accumulators
    reads, writes = _reads(fold, concurrency, groups, (source, left)), lists * groups
    item = fold.product_bytes
    on_device = runs_on_device(fold.kernels)
    device_bytes = fold.device_bytes(group_rows(pairs, pairs.groups(groups))) if on_device else 0
    on_gpu: dict[str, Any] = {"on_device": on_device, "device_bytes": device_bytes}
    return Pass("pairs", "matrix", reads, writes, flops, task_bytes, tasks, at_once, item=item, **on_gpu)


def _reads(fold: NeighborFold, concurrency: int, groups: int, matrices: tuple[Source, Source]) -> int:
    """Bytes read from the matrices in the sweep, if a group stays in memory for the next task that needs it.

    ``concurrency`` is the number of tasks at once, ``groups`` the number of groups, ``matrices`` are the rows
    that are searched and those whose neighbors are found.
    """
    pairs, (source, left) = fold.pairs, matrices
    rows, all_rows = left.shape[0] * fold.left.bytes_to_read, source.shape[0] * fold.right.bytes_to_read
    if pairs.others is not None:
        return rows * pairs.accumulators + all_rows * groups
    if concurrency > 1 and groups <= FEW * concurrency:
        return rows * groups
    # Each group is held once for the groups after it, and passes each group before it. With several tasks at
    # once, some held groups are read again by another task.
    loads = 2 + (concurrency > 1) if groups > 1 else 1
    return rows * loads + rows * (groups - 1) // 2


def _way_out(
    fold: NeighborFold,
    left: Source,
    sweeps_of: Callable[[int, Callable[[Source], Source]], PairSweeps],
    budget: Budget,
) -> str:
    tallest = fold.pairs.tallest()
    if left.row_grid.splittable or left.row_grid.longest != tallest:
        return ""
    small = sweeps_of(fold.k, lambda matrix: ShapeOnly.plain(matrix.shape, matrix.dtype, matrix.name))
    return cut_store(f"of {tallest} rows must be held whole", small, budget)
