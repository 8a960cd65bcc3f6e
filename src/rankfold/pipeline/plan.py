"""Numbers before tasks: passes, bytes, flops, memory, scratch, tasks, and whether they fit.

A plan is computed from shapes alone, by the same formulas that the folds allocate by. It refuses what
does not fit with the number that is missing and the change that would do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankfold.pipeline.errors import DiskSpaceError, MemoryBudgetError
from rankfold.pipeline.folds.sketch_pass import Sizes
from rankfold.pipeline.layout import Layout, expected_passes, lay_out, least_passes
from rankfold.pipeline.peak import fit
from rankfold.pipeline.plan_sweeps import Pass, driver_bytes, sweeps_of
from rankfold.pipeline.plan_table import passes_note, table
from rankfold.pipeline.request import Request
from rankfold.pipeline.scheduler import Budget
from rankfold.pipeline.seconds import Rates, Seconds, predicted_seconds
from rankfold.pipeline.shape_only import ShapeOnly
from rankfold.pipeline.source import Source
from rankfold.pipeline.traffic import Traffic
from rankfold.pipeline.units import format_bytes

STOPS_EARLY = ("krylov", "subspace")
"""Methods that make passes until the tolerance is met."""

NARROWER = {
    "krylov": {"subspace": "keeps one block, not one for each pass"},
    "sketch": {
        "krylov": "keeps narrower blocks, and is more accurate with more passes",
        "subspace": "keeps one narrower block, and is more accurate with more passes",
    },
}
"""By method, those that may fit where it does not, and why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is known before the first byte is read."""

    kind: str
    method: str
    shape: tuple[int, int]
    dtype: str
    working_dtype: str
    orientation: str
    rank: int
    adaptive: bool
    """Whether that is the most that the tolerance may take."""

    width: int
    grain_rows: int
    panel_rows: int
    passes: tuple[Pass, ...]
    most_passes: int
    """Most sweeps over the matrix; a method that stops on its tolerance may make fewer."""

    likely_passes: int
    concurrency: int
    """Segments that one worker runs at once within its memory."""

    slots: int
    """2 when panels are read ahead, 1 when memory does not allow it or the matrix is in memory."""

    driver_bytes: int
    peak_bytes: int
    """Most memory of one worker process above its baseline."""

    budget_bytes: int
    scratch_bytes: int
    result_bytes: int
    checkpoint_bytes: int
    useful_workers: int
    seconds: float | None
    groups: int = 0
    """Runs of blocks that tasks hold, in a sweep over pairs."""

    traffic: Traffic | None = None
    """Between workers, where a matrix product decides it."""

    shares: Seconds | None = None
    """Where those seconds go."""

    @property
    def tasks(self) -> int:
        """Dask tasks in all."""
        return sum(p.tasks for p in self.passes)

    @property
    def reads_bytes(self) -> int:
        """Bytes of the matrix read, all passes."""
        return sum(p.reads_bytes for p in self.passes if p.over == "matrix")

    @property
    def likely_sweeps(self) -> list[Pass]:
        """Sweeps without those over the matrix that a method is likely to be spared."""
        matrix = [p for p in self.passes if p.over == "matrix"]
        if self.likely_passes < self.most_passes:
            matrix = matrix[: self.likely_passes]
        return [*matrix, *(p for p in self.passes if p.over == "scratch")]

    def timed(self, rates: Rates, source: Source, workers: int) -> Plan:
        """With predicted seconds; one panel of the matrix is read to learn how fast that is."""
        shares = predicted_seconds(self, rates, source, workers)
        return dataclasses.replace(self, seconds=shares.total, shares=shares)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        sums = {"tasks": self.tasks, "reads_bytes": self.reads_bytes}
        return {**dataclasses.asdict(self), **sums, "passes_note": passes_note(self)}

    def __str__(self) -> str:
        return table(self)


def make_plan(request: Request, source: Source, budget: Budget) -> Plan:
    """Plan a request within a budget.

    Raises
    ------
    MemoryBudgetError
        One segment, or the algebra between passes, takes more than the budget.
    """
    layout = lay_out(request, source)
    driver = driver_bytes(layout, request)
    concurrency, slots, peak = _fit(request, layout, budget, driver)
    sweeps = sweeps_of(request, layout, slots)
    likely = sum(p.over == "matrix" for p in sweeps)
    if layout.method in STOPS_EARLY:
        expected = expected_passes(request.tol, layout.method, sampled=layout.sample.gives_block)
        likely -= max(0, layout.block_passes - expected)
    elif layout.method == "tsqr":
        likely = least_passes(request, layout.view, layout.method)
    item = layout.view.dtype.itemsize
    return Plan(
        kind=request.kind,
        method=layout.method,
        shape=source.shape,
        dtype=source.dtype.name,
        working_dtype=layout.view.dtype.name,
        orientation=layout.view.orientation.value,
        rank=request.rank,
        adaptive=request.adaptive,
        width=layout.width,
        grain_rows=layout.cut.grain_rows,
        panel_rows=layout.cut.panel_rows,
        passes=tuple(sweeps),
        most_passes=sum(p.over == "matrix" for p in sweeps),
        likely_passes=likely,
        concurrency=concurrency,
        slots=slots,
        driver_bytes=driver,
        peak_bytes=peak,
        budget_bytes=budget.memory_bytes,
        scratch_bytes=layout.view.long * (layout.basis_columns * item + 16),
        result_bytes=sum(source.shape) * request.rank * item,
        checkpoint_bytes=_accumulator_bytes(request, layout) * max(p.streams for p in sweeps),
        useful_workers=-(-max(p.streams for p in sweeps) // concurrency),
        seconds=None,
    )


def _accumulator_bytes(request: Request, layout: Layout) -> int:
    if layout.method == "sketch":
        return Sizes.of(request.rank, layout.view.short).accumulator_bytes(layout.view.short)
    sketch = layout.sketch_rows * layout.view.short * layout.view.dtype.itemsize
    return sketch + 8 * layout.view.short * layout.width


def check_disk(plan: Plan, free_bytes: int, folder: Path, held: Callable[[], int] = lambda: 0) -> None:
    """Raise ``DiskSpaceError`` when scratch, checkpoints and result exceed what is free, and what an earlier
    attempt has left of them.
    """
    need = plan.scratch_bytes + plan.result_bytes + plan.checkpoint_bytes
    if need > free_bytes and need > free_bytes + held():  # a look at every file, only where it matters
        raise DiskSpaceError(
            f"scratch and result take {format_bytes(need)}, but {folder} has {format_bytes(free_bytes)} "
            f"free. Free some space, or move scratch with --scratch DIR{_narrower(plan, need - free_bytes)}."
        )


def _narrower(plan: Plan, missing: int) -> str:
    """The method that would do with the disk there is, as a way out."""
    long = plan.shape[0 if plan.orientation == "rows" else 1]
    scratch = long * (plan.width * np.dtype(plan.working_dtype).itemsize + 16)
    if plan.method != "krylov" or plan.scratch_bytes - scratch < missing:
        return ""
    return f", or take --method subspace, whose scratch is {format_bytes(scratch)} however many its passes"


def _fit(request: Request, layout: Layout, budget: Budget, driver: int) -> tuple[int, int, int]:
    """Segments at once, buffers each, and the peak they come to."""
    concurrency, slots, peak = fit(lambda slots: sweeps_of(request, layout, slots), driver, budget)
    if concurrency < 1 or peak > budget.memory_bytes:
        _refuse(request, layout, budget, peak)
    return concurrency, slots, peak


def _fits(request: Request, source: Source, budget: Budget) -> bool:
    layout = lay_out(request, source)
    driver = driver_bytes(layout, request)
    concurrency, _, peak = fit(lambda slots: sweeps_of(request, layout, slots), driver, budget)
    return concurrency >= 1 and peak <= budget.memory_bytes


def _import_would_fit(request: Request, source: Source, budget: Budget) -> bool:
    return _fits(request, ShapeOnly.plain(source.shape, source.dtype), budget)


def _rank_that_fits(request: Request, source: Source, budget: Budget) -> int:
    """The largest rank below the one asked for that fits, or 0."""
    fits, fails = 0, request.rank
    while fails - fits > 1:
        rank = (fits + fails) // 2
        good = _fits(dataclasses.replace(request, rank=rank), source, budget)
        fits, fails = (rank, fails) if good else (fits, rank)
    return fits


def _refuse(request: Request, layout: Layout, budget: Budget, need: int) -> None:
    source, have = layout.view.source, format_bytes(budget.memory_bytes)
    way_out = f"Give --memory {-(-need // 2**20)}MiB"
    panels = {"gram": layout.gram_panels, "tsqr": layout.wide_panels}.get(layout.method, layout.panels)(1)
    if panels.cut.panel_rows > panels.cut.grain_rows and _import_would_fit(request, source, budget):
        way_out += (
            f", or cut the store: its chunks make panels of {panels.cut.panel_rows} rows, which take "
            f"{format_bytes(panels.memory_bytes)} to read, and `rankfold import STORE NEW.zarr` writes one "
            "with small chunks"
        )
    elif layout.method == "tsqr" and request.kind != "qr" and request.rank == min(source.shape):
        way_out += ", or say how many components are enough, rank= (--rank): all of them were asked for"
    elif layout.method in ("gram", "tsqr") and request.kind != "qr":
        way_out += ", or --method krylov, which keeps no (n, n) matrix"
    elif request.adaptive:
        way_out += ", or say --rank"
    else:
        for method, reason in NARROWER.get(layout.method, {}).items():
            if _fits(dataclasses.replace(request, method=method), source, budget):
                way_out += f", or --method {method}, which {reason}"
                break
        if rank := _rank_that_fits(request, source, budget):
            way_out += f", or --rank {rank}"
    raise MemoryBudgetError(
        f"{request.kind} of this {source.shape[0]} x {source.shape[1]} matrix by "
        f"{layout.method} needs {format_bytes(need)} in one worker, but --memory gives {have}. {way_out}."
    )
