"""Numbers before tasks: passes, bytes, flops, memory, scratch, tasks, and whether they fit.

A plan is computed from shapes alone, by the same formulas that the folds allocate by. It refuses what
does not fit with the number that is missing and the change that would do.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankfold.pipeline.blocks import Cut, Grid
from rankfold.pipeline.errors import DiskSpaceError, MemoryBudgetError
from rankfold.pipeline.folds.column_statistics import ColumnStatistics
from rankfold.pipeline.folds.combination import Combination
from rankfold.pipeline.folds.gram_pass import GramPass
from rankfold.pipeline.folds.local_columns import Centring
from rankfold.pipeline.folds.narrow_r import NarrowR
from rankfold.pipeline.folds.panel_pass import PanelPass
from rankfold.pipeline.folds.write_rows import WriteRows
from rankfold.pipeline.layout import Layout, expected_passes, lay_out
from rankfold.pipeline.methods.start import PLACES, sample_rows
from rankfold.pipeline.narrow import Narrow
from rankfold.pipeline.request import Request
from rankfold.pipeline.scheduler import Budget
from rankfold.pipeline.source import Source
from rankfold.pipeline.sweep import FAN_IN, SEGMENT_SECONDS
from rankfold.pipeline.units import format_bytes
from rankfold.pipeline.view import Orientation

BLAS_BYTES = 24 * 2**20
"""Packing buffers that a thread of OpenBLAS touches at most in our products."""

RESERVE_BYTES = 24 * 2**20
"""Graphs, tables, small vectors, and what the allocator keeps."""

_NOWHERE = Path("-")


@dataclass(frozen=True, slots=True)
class Pass:
    """One sweep in numbers."""

    name: str
    over: str
    """``"matrix"`` or ``"scratch"``."""

    reads_bytes: int
    writes_bytes: int
    flops: float
    segment_bytes: int
    """Most memory of one segment."""

    tasks: int
    streams: int


@dataclass(frozen=True, slots=True)
class Rates:
    """Measured speed of one core; feeds predicted seconds and nothing else."""

    flops_float32: float
    flops_float64: float
    read_bytes: float


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

    @property
    def tasks(self) -> int:
        """Dask tasks in all."""
        return sum(p.tasks for p in self.passes)

    @property
    def reads_bytes(self) -> int:
        """Bytes of the matrix read, all passes."""
        return sum(p.reads_bytes for p in self.passes if p.over == "matrix")

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**dataclasses.asdict(self), "tasks": self.tasks, "reads_bytes": self.reads_bytes}

    def __str__(self) -> str:
        return _table(self)


def make_plan(request: Request, source: Source, budget: Budget, rates: Rates | None = None) -> Plan:
    """Plan a request within a budget.

    Raises
    ------
    MemoryBudgetError
        One segment, or the algebra between passes, takes more than the budget.
    """
    layout = lay_out(request, source)
    driver = _driver_bytes(layout, request)
    concurrency, slots, peak = _fit(request, layout, budget, driver)
    sweeps = _sweeps(request, layout, slots)
    likely = sum(p.over == "matrix" for p in sweeps)
    if layout.method == "krylov":
        likely -= layout.block_passes - min(layout.block_passes, expected_passes(request.tol))
    item = layout.view.dtype.itemsize
    return Plan(
        kind=request.kind,
        method=layout.method,
        shape=source.shape,
        dtype=source.dtype.name,
        working_dtype=layout.view.dtype.name,
        orientation=layout.view.orientation.value,
        rank=request.rank,
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
        checkpoint_bytes=8 * layout.view.short * layout.width * layout.cut.stream_count,
        useful_workers=-(-max(p.streams for p in sweeps) // concurrency),
        seconds=_seconds(sweeps, likely, item, concurrency * budget.workers, rates),
    )


def check_disk(plan: Plan, free_bytes: int, folder: Path) -> None:
    """Raise ``DiskSpaceError`` when scratch, checkpoints and result exceed what is free."""
    need = plan.scratch_bytes + plan.result_bytes + plan.checkpoint_bytes
    if need > free_bytes:
        raise DiskSpaceError(
            f"scratch and result take {format_bytes(need)}, but {folder} has {format_bytes(free_bytes)} "
            "free. Free some space, or move scratch with --scratch DIR."
        )


def _fit(request: Request, layout: Layout, budget: Budget, driver: int) -> tuple[int, int, int]:
    """Segments at once, buffers each, and the peak they come to."""
    concurrency, slots, peak = _best(request, layout, budget, driver)
    if concurrency < 1 or peak > budget.memory_bytes:
        _refuse(request, layout, budget, peak)
    return concurrency, slots, peak


def _best(request: Request, layout: Layout, budget: Budget, driver: int) -> tuple[int, int, int]:
    options = []
    for slots in (2, 1):
        sweeps = _sweeps(request, layout, slots)
        segment = max(p.segment_bytes for p in sweeps) + BLAS_BYTES
        room = (budget.memory_bytes - RESERVE_BYTES) // segment
        most = max(p.streams for p in sweeps)
        options.append((min(budget.threads, most, room), slots, segment))
    # As many threads as fit come first: reading ahead gains less than a second thread does.
    concurrency, slots, segment = max(options, key=lambda option: option[0])
    if concurrency < 1:
        concurrency, slots, segment = options[-1]
    return concurrency, slots, RESERVE_BYTES + max(max(concurrency, 1) * segment, driver + BLAS_BYTES)


@dataclass(frozen=True, slots=True)
class _Recut:
    """A matrix as it would be with small chunks: what an import could make of it."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    row_grid: Grid
    column_grid: Grid
    name: str = ""

    def read_bytes(self, rows: int, columns: int) -> int:
        return 2 * rows * columns * self.dtype.itemsize

    def read_into(self, out: Any, rows: Any, columns: Any) -> None:
        raise TypeError("a plan reads nothing")

    def check(self) -> None:
        """Nothing to check."""

    def fingerprint(self) -> str:
        return ""


def _import_would_fit(request: Request, layout: Layout, budget: Budget) -> bool:
    source = layout.view.source
    rows, columns = (Grid.regular(length, length, splittable=True) for length in source.shape)
    other = lay_out(request, _Recut(source.shape, source.dtype, rows, columns))
    concurrency, _, peak = _best(request, other, budget, _driver_bytes(other, request))
    return concurrency >= 1 and peak <= budget.memory_bytes


def _rank_that_fits(request: Request, source: Source, budget: Budget) -> int:
    """The largest rank below the one asked for that fits, or 0."""
    fits, fails = 0, request.rank
    while fails - fits > 1:
        rank = (fits + fails) // 2
        other = dataclasses.replace(request, rank=rank)
        layout = lay_out(other, source)
        concurrency, _, peak = _best(other, layout, budget, _driver_bytes(layout, other))
        fits, fails = (rank, fails) if concurrency and peak <= budget.memory_bytes else (fits, rank)
    return fits


def _refuse(request: Request, layout: Layout, budget: Budget, need: int) -> None:
    have = format_bytes(budget.memory_bytes)
    way_out = f"Give --memory {-(-need // 2**20)}MiB"
    panels = layout.gram_panels(1) if layout.method == "gram" else layout.panels(1)
    if panels.cut.panel_rows > panels.cut.grain_rows and _import_would_fit(request, layout, budget):
        way_out += (
            f", or cut the store: its chunks make panels of {panels.cut.panel_rows} rows, which take "
            f"{format_bytes(panels.memory_bytes)} to read, and `rankfold import STORE NEW.zarr` writes one "
            "with small chunks"
        )
    elif layout.method == "gram" and request.method in ("auto", "gram"):
        way_out += ", or --method krylov, which keeps no (n, n) matrix"
    elif rank := _rank_that_fits(request, layout.view.source, budget):
        way_out += f", or --rank {rank}"
    raise MemoryBudgetError(
        f"{request.kind} of this {layout.view.source.shape[0]} x {layout.view.source.shape[1]} matrix by "
        f"{layout.method} needs {format_bytes(need)} in one worker, but --memory gives {have}. {way_out}."
    )


def _sweeps(request: Request, layout: Layout, slots: int) -> list[Pass]:
    """Every sweep that the request may make, in order."""
    view, width = layout.view, layout.width
    centring = Centring(request.center, request.scale, 1.0, 0.0)
    data = view.long * view.short * view.source.dtype.itemsize
    elements = float(view.long * view.short)
    sweeps = []
    if layout.method == "gram":
        vector = np.zeros(0)
        gram = GramPass(layout.gram_panels(slots), centring, vector, None, layout.row_seconds(2 * view.short))
        sweeps.append(_pass("gram", gram, data, 0, elements * view.short))
    elif layout.statistics_passes:
        statistics = ColumnStatistics(layout.panels(slots), np.zeros(0), 1.0, layout.row_seconds(4))
        sweeps.append(_pass("statistics", statistics, data, 0, 4 * elements))
    left = view.short
    blocks = []
    for index in range(layout.block_passes):
        y = layout.y(_NOWHERE, index, min(width, left))
        fold = PanelPass(
            layout.panels(slots), centring, _NOWHERE, y, None, True, layout.row_seconds(4 * y.columns)
        )
        sweeps.append(_pass(f"pass {len(sweeps) + 1}", fold, data, y.nbytes, 4 * elements * y.columns))
        blocks.append(y)
        left -= y.columns
    return sweeps + _narrow_sweeps(request, layout, tuple(blocks))


def _narrow_sweeps(request: Request, layout: Layout, blocks: tuple[Narrow, ...]) -> list[Pass]:
    """Sweeps over scratch: a block of directions is kept, or all of them where rounding mixes them."""
    view, most = layout.view, layout.basis_columns
    by_rows, seconds = view.orientation is Orientation.ROWS, layout.row_seconds(4)
    choices = [Combination(blocks, _NOWHERE, kept, 0, 0) for kept in sorted({min(layout.width, most), most})]
    cuts = [layout.narrow_cut(choice, request.rank) for choice in choices]
    reads = view.long * choices[0].row_bytes
    flops = 2.0 * view.long * choices[0].width * (most + choices[0].width)
    folds: list[list[Any]] = [[NarrowR(c, cut, seconds) for c, cut in zip(choices, cuts, strict=True)]]
    if request.rows or not by_rows:
        chunks = (_NOWHERE, _NOWHERE, not by_rows, view.dtype, request.rank, seconds)
        folds.append([WriteRows(c, cut, *chunks) for c, cut in zip(choices, cuts, strict=True)])
    sweeps = []
    for name, same in zip(("ritz", "rows"), folds, strict=False):
        writes = view.long * request.rank * view.dtype.itemsize if name == "rows" else 0
        sweep = _pass(name, same[0], reads, writes, flops, over="scratch")
        sweeps.append(dataclasses.replace(sweep, segment_bytes=max(fold.memory_bytes for fold in same)))
    return sweeps


def _pass(name: str, fold: Any, reads: int, writes: int, flops: float, *, over: str = "matrix") -> Pass:
    cut: Cut = fold.cut
    segment_rows = max(1, int(SEGMENT_SECONDS / fold.row_seconds))
    segments = max(cut.stream_count, -(-cut.length // segment_rows))
    merges, layer = 0, cut.stream_count
    while layer > 1:
        layer = -(-layer // FAN_IN)
        merges += layer
    return Pass(name, over, reads, writes, flops, fold.memory_bytes, segments + merges, cut.stream_count)


def _driver_bytes(layout: Layout, request: Request) -> int:
    """Memory of the algebra between passes, and of the sample before them."""
    view, short, width, basis = layout.view, layout.view.short, layout.width, layout.basis_columns
    sample = 3 * 8 * PLACES * sample_rows(view) * short + view.read_bytes(sample_rows(view))
    blocks = 8 * 8 * short * width + 18 * 8 * basis * basis
    scatter = 2 * 8 * short * short if layout.method == "gram" else 0
    vectors = 4 * 8 * view.long if view.orientation is Orientation.COLUMNS else 0
    return max(sample, blocks, scatter) + vectors


def _seconds(sweeps: list[Pass], likely: int, item: int, cores: int, rates: Rates | None) -> float | None:
    if rates is None:
        return None
    flops = rates.flops_float32 if item == 4 else rates.flops_float64
    matrix = [p for p in sweeps if p.over == "matrix"][:likely]
    total = 0.0
    for p in [*matrix, *(p for p in sweeps if p.over == "scratch")]:
        speed = flops if p.over == "matrix" else rates.flops_float64 / 2
        seconds = (p.reads_bytes + p.writes_bytes) / rates.read_bytes + p.flops / speed
        total += seconds / min(cores, p.streams)
    return total


def _table(plan: Plan) -> str:
    rows = [("sweep", "reads", "writes", "flops", "memory of a segment", "tasks")]
    for name, p in _grouped(plan.passes):
        rows.append(
            (
                f"{name} over {p.over}",
                format_bytes(p.reads_bytes),
                format_bytes(p.writes_bytes),
                f"{p.flops:.1e}",
                format_bytes(p.segment_bytes),
                str(p.tasks),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    lines = [
        f"{plan.kind} by {plan.method}: {plan.shape[0]} x {plan.shape[1]} {plan.dtype}, rank {plan.rank}, "
        f"swept by {plan.orientation}",
        f"passes over the matrix   {plan.likely_passes} likely, at most {plan.most_passes}",
        f"block width, grain       {plan.width} columns, {plan.grain_rows} rows "
        f"({plan.panel_rows} read at once)",
        f"memory of a worker       {format_bytes(plan.peak_bytes)} of {format_bytes(plan.budget_bytes)}, "
        f"{plan.concurrency} segments at once, {'reading ahead' if plan.slots == 2 else 'not reading ahead'}",
        f"scratch, result          {format_bytes(plan.scratch_bytes)} at most, "
        f"{format_bytes(plan.result_bytes)}",
        f"tasks, useful workers    {plan.tasks} at most, {plan.useful_workers}",
    ]
    if plan.seconds is not None:
        lines.append(f"time                     about {plan.seconds:.3g} s with the data in page cache")
    lines.append("")
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in range(1, 6))]
        lines.append("  ".join(cells))
    return "\n".join(lines)


def _grouped(passes: tuple[Pass, ...]) -> list[tuple[str, Pass]]:
    """Sweeps that follow each other and cost the same, under one name and with the cost of each."""
    groups: list[list[Pass]] = []
    for p in passes:
        if groups and dataclasses.replace(groups[-1][0], name=p.name) == p:
            groups[-1].append(p)
        else:
            groups.append([p])
    return [
        (g[0].name if len(g) == 1 else f"{g[0].name} to {g[-1].name.split()[-1]}, each", g[0]) for g in groups
    ]
