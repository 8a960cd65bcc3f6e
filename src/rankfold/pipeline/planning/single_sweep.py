"""The plan of a task that is a single sweep, from the same pieces as the plan of a reduction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.fold import Fold
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import MemoryBudgetError
from rankfold.pipeline.planning.fit import fit
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.units import format_bytes


class PlannedFold(Fold, Protocol):
    """A fold that says what it allocates."""

    @property
    def memory_bytes(self) -> int:
        """Most memory of one segment, and of the accumulators that a merge holds."""


@dataclass(frozen=True, slots=True)
class SingleSweep:
    """A task in numbers, but for those that follow from the budget."""

    kind: str
    method: str
    source: Source
    """What is swept."""

    dtype: np.dtype[np.generic]
    """Of the output."""

    orientation: Orientation
    rank: int
    flops: float
    writes_bytes: int
    """During the sweep."""

    result_bytes: int
    scratch_bytes: int
    accumulator_bytes: int
    driver_bytes: int
    remedy: str
    """What could be changed besides the memory, from ", or" on; empty if nothing could."""


def plan_single_sweep(task: SingleSweep, fold_of: Callable[[int], PlannedFold], budget: Budget) -> Plan:
    """Plan a sweep whose fold has the given number of buffers for panels.

    Raises
    ------
    MemoryBudgetError
        One segment, or the algebra after the sweep, takes more than the budget.
    """
    reads = task.source.shape[0] * task.source.shape[1] * task.source.dtype.itemsize

    def sweep_of(slots: int) -> Pass:
        return numbers_of(task.kind, fold_of(slots), reads, task.writes_bytes, task.flops)

    concurrency, slots, peak = fit(lambda slots: [sweep_of(slots)], task.driver_bytes, budget)
    if concurrency < 1 or peak > budget.memory_bytes:
        raise MemoryBudgetError(
            f"{task.kind} needs {format_bytes(peak)} in one worker, but --memory gives "
            f"{format_bytes(budget.memory_bytes)}. Give --memory {-(-peak // 2**20)}MiB{task.remedy}."
        )
    fold, sweep = fold_of(slots), sweep_of(slots)
    streams = sweep.streams
    return Plan(
        kind=task.kind,
        method=task.method,
        shape=task.source.shape,
        dtype=task.source.dtype.name,
        working_dtype=task.dtype.name,
        orientation=task.orientation.value,
        rank=task.rank,
        adaptive=False,
        width=task.rank,
        grain_rows=fold.cut.grain_rows,
        panel_rows=fold.cut.panel_rows,
        passes=(sweep,),
        most_passes=1,
        likely_passes=1,
        concurrency=concurrency,
        slots=slots,
        driver_bytes=task.driver_bytes,
        peak_bytes=peak,
        budget_bytes=budget.memory_bytes,
        scratch_bytes=task.scratch_bytes,
        result_bytes=task.result_bytes,
        checkpoint_bytes=task.accumulator_bytes * streams,
        useful_workers=-(-streams // concurrency),
        seconds=None,
    )
