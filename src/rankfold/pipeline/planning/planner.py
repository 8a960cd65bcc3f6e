"""The one planner: it makes a plan, or a refusal, from facts of a task and its sweeps within a budget.

Sweeps over panels are arranged here. Others, over pairs of blocks or with rows held in memory, are arranged
by their methods.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.fold import Fold
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import MemoryBudgetError, argument
from rankfold.pipeline.planning.passes import Pass, fit, numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.units import format_bytes


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """Facts on a task that do not depend on the budget, from which its plan is made."""

    kind: str
    method: str
    source: Source
    """Matrix that is swept."""

    dtype: np.dtype[Any]
    """Dtype of the computation, or of the output."""

    orientation: Orientation | str
    rank: int
    """Number of components, or another number that the plan shows as ``rank``, such as of neighbors."""

    result_bytes: int
    """Bytes of the result on disk."""

    scratch_bytes: int = 0
    """Bytes of scratch on disk, at most."""

    width: int = 0
    """Columns of a block of vectors, or another value that the plan shows as ``width``; 0 for the rank."""

    adaptive: bool = False
    """True if the tolerance decides the number of components, which is at most ``rank``."""

    decided_by: str = ""
    """Property of the data that decides the number of passes, as in ``Plan``."""

    subject: str = ""
    """Name of the task in the message that refuses it; empty for its kind."""

    details: tuple[tuple[str, str], ...] = ()
    """Lines for the table of the plan, as in ``Plan``."""


@dataclass(frozen=True, slots=True)
class FittedSweeps:
    """Sweeps of a task as arranged for a budget: passes, segments at once, and memory."""

    passes: tuple[Pass, ...]
    concurrency: int
    """Segments (parts of a sweep) that a process runs at once; 0 if not even one fits."""

    peak_bytes: int
    driver_bytes: int
    checkpoint_bytes: int
    most_at_once: int
    """Largest number of tasks of any sweep that can run at the same time, in all processes."""

    grain_rows: int
    panel_rows: int
    most_passes: int
    likely_passes: int
    slots: int = 1
    groups: int = 0


class Sweeps(Protocol):
    """Sweeps of a task that can be arranged in any budget."""

    def arrange(self, budget: Budget) -> FittedSweeps:
        """Arrange the sweeps to fit in a budget, or in the least possible memory if that is more."""


def plan_task(
    task_facts: TaskFacts,
    sweeps: Sweeps,
    budget: Budget,
    way_out: Callable[[], str] = lambda: "",
    smaller: Callable[[], str] = lambda: "",
) -> Plan:
    """Plan a task within a budget.

    Parameters
    ----------
    task_facts, sweeps, budget
        The task, and the memory, threads and workers it is given.
    way_out, smaller : function, optional
        Texts of a refusal, from ", or" on: what besides memory could be changed so that it fits; and which
        argument of the task, see ``smaller_argument``.

    Raises
    ------
    MemoryBudgetError
        What a process must hold takes more than the budget.
    """
    fitted = sweeps.arrange(budget)
    if not _has_room(fitted, budget):
        raise MemoryBudgetError.of(
            f"{task_facts.subject or task_facts.kind} needs {format_bytes(fitted.peak_bytes)} in one worker, "
            f"but memory= (--memory) gives {format_bytes(budget.memory_bytes)}. Give "
            f"{argument('memory', f'{-(-fitted.peak_bytes // 2**20)}MiB')}",
            fitted.peak_bytes,
            way_out(),
            smaller(),
        )
    orientation = task_facts.orientation
    return Plan(
        kind=task_facts.kind,
        method=task_facts.method,
        shape=task_facts.source.shape,
        dtype=task_facts.source.dtype.name,
        working_dtype=task_facts.dtype.name,
        orientation=orientation.value if isinstance(orientation, Orientation) else orientation,
        rank=task_facts.rank,
        adaptive=task_facts.adaptive,
        width=task_facts.width or task_facts.rank,
        grain_rows=fitted.grain_rows,
        panel_rows=fitted.panel_rows,
        passes=fitted.passes,
        most_passes=fitted.most_passes,
        likely_passes=fitted.likely_passes,
        concurrency=fitted.concurrency,
        slots=fitted.slots,
        driver_bytes=fitted.driver_bytes,
        peak_bytes=fitted.peak_bytes,
        budget_bytes=budget.memory_bytes,
        scratch_bytes=task_facts.scratch_bytes,
        result_bytes=task_facts.result_bytes,
        checkpoint_bytes=fitted.checkpoint_bytes,
        useful_workers=max(1, -(-fitted.most_at_once // fitted.concurrency)),
        seconds=None,
        decided_by=task_facts.decided_by,
        groups=fitted.groups,
        device=budget.device,
        details=task_facts.details,
        bandwidth=budget.bandwidth,
    )


def _has_room(fitted: FittedSweeps, budget: Budget) -> bool:
    return fitted.concurrency >= 1 and fitted.peak_bytes <= budget.memory_bytes


# Ways out -----------------------------------------------------------------------------------------


def fits(sweeps: Sweeps, budget: Budget) -> bool:
    """True if the sweeps of a task fit in a budget."""
    return _has_room(sweeps.arrange(budget), budget)


def largest_that_fits(asked: int, fits: Callable[[int], bool], *, least: int = 1) -> int:
    """The largest number from ``least`` to ``asked - 1`` for which ``fits`` returns True; 0 if there is none.

    If a number fits, all smaller ones must.

    >>> largest_that_fits(100, lambda rank: rank < 23), largest_that_fits(100, lambda rank: False)
    (22, 0)
    """
    below, above = least - 1, asked
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if fits(middle) else (below, middle)
    return below if below >= least else 0


def smaller_argument(
    name: str, asked: int, sweeps_of: Callable[[int], Sweeps], budget: Budget, *, least: int = 1
) -> str:
    """Text that proposes the largest value of an argument, below ``asked``, with which a task fits a budget.

    It is for a refusal, and empty if no value of at least ``least`` fits. ``sweeps_of`` returns the sweeps of
    a task with a given value.
    """
    value = largest_that_fits(asked, lambda value: fits(sweeps_of(value), budget), least=least)
    return f", or {argument(name, value)}" if value else ""


def cut_store(what: str, sweeps: Sweeps, budget: Budget) -> str:
    """Text that proposes to import a store whose chunks are large, for a refusal; empty if it is no help.

    Parameters
    ----------
    what : str
        What is wrong with its chunks, as "of 900 rows must be held whole".
    sweeps : Sweeps
        Sweeps of the same task over a store with small chunks, as of ``ShapeOnly.plain``.
    budget : Budget
        Budget that they are to fit in.
    """
    if not fits(sweeps, budget):
        return ""
    return (
        f", or cut the store: its chunks {what}, and `rankfold import STORE NEW.zarr` writes one with small "
        "chunks"
    )


@dataclass(frozen=True, slots=True)
class FixedSweeps:
    """Sweeps that are arranged in the same way for any budget."""

    fitted: FittedSweeps

    def arrange(self, budget: Budget) -> FittedSweeps:
        """The given sweeps, for any budget."""
        return self.fitted


# Over panels --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PanelSweeps:
    """Sweeps over panels (rows read at once): as many threads as fit, reading ahead if that fits too."""

    sweeps_of: Callable[[int], Sequence[Pass]]
    """Function that returns the sweeps for a number of panel buffers in each segment."""

    cut: Cut
    """Cut of the long axis, whose rows of a grain and of a panel the plan shows."""

    driver_bytes: int
    """Bytes that the algebra between sweeps takes in the driver."""

    accumulator_bytes: int
    """Bytes of the sums of a stream (panels folded in order), which are left on disk."""

    likely: Callable[[int], int] = lambda most: most
    """Function that returns the likely number of passes over the matrix, given the largest."""

    def arrange(self, budget: Budget) -> FittedSweeps:
        """Arrange as many segments at once as fit in the budget, with two panel buffers each if these fit."""
        sweeps_of = functools.cache(self.sweeps_of)
        concurrency, slots, peak = fit(sweeps_of, self.driver_bytes, budget)
        passes = tuple(sweeps_of(slots))
        streams, most = (
            max(each.streams for each in passes),
            sum(each.over == "matrix" for each in passes),
        )
        return FittedSweeps(
            passes,
            concurrency,
            peak,
            self.driver_bytes,
            self.accumulator_bytes * streams,
            streams,
            self.cut.grain_rows,
            self.cut.panel_rows,
            most,
            self.likely(most),
            slots,
        )


class PlannedFold(Fold, Protocol):
    """A fold (work on each panel of a sweep) that reports the memory it allocates."""

    @property
    def memory_bytes(self) -> int:
        """Upper bound on the memory of one segment, including the two accumulators that a merge holds."""


def one_sweep(
    task_facts: TaskFacts,
    fold_of: Callable[[int], PlannedFold],
    *,
    flops: float,
    driver_bytes: int,
    accumulator_bytes: int,
    writes_bytes: int = 0,
    stored: tuple[int, int] = (0, 0),
    other_reads_bytes: int = 0,
) -> PanelSweeps:
    """The sweeps of a task that makes a single pass over the matrix.

    Parameters
    ----------
    fold_of : function
        Returns the fold of the pass for a number of panel buffers.
    flops : float
        Operations of the pass.
    driver_bytes, accumulator_bytes : int
        Memory of the algebra between sweeps, and bytes of the sums of a stream.
    writes_bytes, other_reads_bytes : int
        Bytes that the pass writes, and that it reads in addition to the matrix.
    stored : (int, int)
        Number and bytes of the stored entries of a sparse matrix, if only these are read; else zeros.
    """
    source = task_facts.source
    reads = other_reads_bytes + (stored[1] or source.shape[0] * source.shape[1] * source.dtype.itemsize)

    def sweeps_of(slots: int) -> list[Pass]:
        sweep = numbers_of(task_facts.kind, fold_of(slots), reads, writes_bytes, flops)
        return [dataclasses.replace(sweep, numbers=stored[0])]

    return PanelSweeps(sweeps_of, fold_of(1).cut, driver_bytes, accumulator_bytes)
