"""The numbers of a search for neighbors before it runs: groups, reads, memory, tasks."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankfold.methods.knn.graph import SORT_BYTES
from rankfold.methods.knn.pair_fold import TILE, NearestPairs, listed
from rankfold.methods.knn.row_blocks import TERMS
from rankfold.methods.knn.write_lists import WriteLists
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.pairs import FEW, Pairs
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import MemoryBudgetError
from rankfold.pipeline.planning.fit import RESERVE_BYTES
from rankfold.pipeline.planning.passes import Pass, blas_bytes, numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.units import format_bytes

SCAN_FLOPS = 60.0
"""Operations of a product that take as long as comparing one bound does."""

PACKED_BYTES = blas_bytes(max(TILE, TERMS))
"""What a thread of BLAS packs: pairs of rows are multiplied in tiles, so many terms at a time."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How many tasks a process runs at once, and the groups that they hold."""

    concurrency: int
    groups: int
    task_bytes: int


def group_rows(pairs: Pairs, edges: npt.NDArray[np.int64]) -> int:
    """Rows of the tallest group."""
    return int(np.diff(pairs.rows[edges]).max())


def arrange(fold: NearestPairs, budget: Budget) -> Arrangement:
    """As many threads as fit with one block each; then as few groups as fit, and as keep all threads busy."""
    pairs, room = fold.pairs, budget.memory_bytes - RESERVE_BYTES
    least = fold.memory_bytes(int(np.diff(pairs.rows).max())) + PACKED_BYTES
    concurrency = max(1, min(budget.threads, room // least, pairs.most_at_once))
    fewest, fits = 0, pairs.count
    while fits - fewest > 1:
        middle = (fewest + fits) // 2
        rows = group_rows(pairs, pairs.groups(middle))
        good = concurrency * (fold.memory_bytes(rows) + PACKED_BYTES) <= room
        fewest, fits = (fewest, middle) if good else (middle, fits)
    groups = min(pairs.count, max(fits, pairs.groups_wanted(concurrency * budget.workers)))
    task = fold.memory_bytes(group_rows(pairs, pairs.groups(groups))) + PACKED_BYTES
    return Arrangement(concurrency, groups, task)


def plan_neighbors(
    source: Source, left: Source, fold: NearestPairs, write: WriteLists, *, symmetric: bool, budget: Budget
) -> Plan:
    """Plan a search within a budget.

    Raises
    ------
    MemoryBudgetError
        One task that holds a single block takes more than the budget.
    """
    found, pairs, k = arrange(fold, _writing_too(write, budget)), fold.pairs, fold.k
    writing = min(found.concurrency, write.cut.stream_count) * write.memory_bytes
    peak = RESERVE_BYTES + max(found.concurrency * found.task_bytes, writing, 2 * SORT_BYTES * symmetric)
    if peak > budget.memory_bytes:
        _refuse(fold, left, budget, peak)
    lists, edges = left.shape[0] * 16 * k, pairs.groups(found.groups)
    written = lists * (2 + 2 * symmetric)
    return Plan(
        kind="knn",
        method="exact",
        shape=left.shape,
        dtype=source.dtype.name,
        working_dtype=fold.left.dtype.name,
        orientation="pairs of rows",
        rank=k,
        adaptive=False,
        width=listed(k),
        grain_rows=pairs.tallest(),
        panel_rows=group_rows(pairs, edges),
        passes=(
            _sweep(fold, found, source, left),
            numbers_of("write", write, lists, written, 0.0, over="scratch"),
        ),
        most_passes=1,
        likely_passes=1,
        concurrency=found.concurrency,
        slots=1,
        driver_bytes=2 * SORT_BYTES * symmetric,
        peak_bytes=peak,
        budget_bytes=budget.memory_bytes,
        scratch_bytes=lists * pairs.lanes + 2 * 24 * left.shape[0] * k * symmetric,
        result_bytes=written,
        checkpoint_bytes=0,
        useful_workers=max(1, -(-pairs.most_at_once // found.concurrency)),
        seconds=None,
        groups=found.groups,
    )


def _writing_too(write: WriteLists, budget: Budget) -> Budget:
    """With no more threads than can write lists at once, if there are streams for so many."""
    most = max(1, (budget.memory_bytes - RESERVE_BYTES) // write.memory_bytes)
    enough = most >= min(budget.threads, write.cut.stream_count)
    return budget if enough else dataclasses.replace(budget, threads=most)


def _sweep(fold: NearestPairs, found: Arrangement, source: Source, left: Source) -> Pass:
    """The sweep over pairs in numbers."""
    pairs, lists = fold.pairs, left.shape[0] * 16 * fold.k
    groups = found.groups
    tasks = 1 + (groups * (groups + 1) // 2 if pairs.others is None else groups * pairs.lanes)
    flops = pairs.row_pairs * (SCAN_FLOPS + 2.0 * source.shape[1] * (1 if fold.left.bounded else 1.5))
    at_once = max(1, found.groups // 2) if pairs.others is None else found.groups * pairs.lanes
    reads, writes = _reads(fold, found, source, left), lists * found.groups
    item = 4 if fold.left.bounded and not fold.precise else 8
    return Pass("pairs", "matrix", reads, writes, flops, found.task_bytes, tasks, at_once, item=item)


def _reads(fold: NearestPairs, found: Arrangement, source: Source, left: Source) -> int:
    """Bytes of the matrix, where what a task holds stays for the next one that wants it."""
    pairs = fold.pairs
    rows, all_rows = left.shape[0] * fold.left.bytes_to_read, source.shape[0] * fold.right.bytes_to_read
    if pairs.others is not None:
        return rows * pairs.lanes + all_rows * found.groups
    if found.concurrency > 1 and found.groups <= FEW * found.concurrency:
        return rows * found.groups
    # Each group is held once for the groups that come after it, and passes by those before it. With several
    # tasks at once some that are held change hands.
    held = 2 + (found.concurrency > 1) if found.groups > 1 else 1
    return rows * held + rows * (found.groups - 1) // 2


def _refuse(fold: NearestPairs, left: Source, budget: Budget, need: int) -> None:
    tallest = fold.pairs.tallest()
    way_out = f"Give --memory {-(-need // 2**20)}MiB"
    if not left.row_grid.splittable and left.row_grid.longest == tallest:
        way_out += (
            f", or cut the store: its chunks of {tallest} rows must be held whole, and `rankfold import "
            "STORE NEW.zarr` writes one with small chunks"
        )
    elif fold.k > 64:
        way_out += ", or a smaller --k"
    raise MemoryBudgetError(
        f"knn of this {left.shape[0]} x {left.shape[1]} matrix needs {format_bytes(need)} in one worker, "
        f"but --memory gives {format_bytes(budget.memory_bytes)}. {way_out}."
    )
