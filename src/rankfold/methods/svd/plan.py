"""Every sweep of a request in numbers, by the formulas that the folds allocate by."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from rankfold.methods.parts.column_statistics import ColumnStatistics
from rankfold.methods.parts.combination import Combination
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.narrow import NarrowR
from rankfold.methods.parts.write_rows import WriteRows
from rankfold.methods.svd.fused import PanelPass
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.solvers.gram import GramPass
from rankfold.methods.svd.solvers.preconditioned import (
    PanelFactor,
    PreconditionedFactor,
    PreconditionedGram,
    Preconditioner,
    WritePreconditioned,
)
from rankfold.methods.svd.solvers.sketch_pass import Sizes, SketchPass
from rankfold.methods.svd.strategy import Strategy, choose_strategy, expected_passes, leads_qr, least_passes
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import MemoryBudgetError
from rankfold.pipeline.planning.fit import fit
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.shape_only import ShapeOnly
from rankfold.pipeline.storage.scratch import ScratchMatrix
from rankfold.pipeline.units import format_bytes

_NOWHERE = Path("-")


def sweeps_of(request: Request, layout: Strategy, slots: int) -> list[Pass]:
    """Every sweep that the request may make, in order, with ``slots`` buffers for panels."""
    held = {over: held_bytes(layout, request, over) for over in ("matrix", "scratch")}
    found = []
    for sweep in _sweeps_of(request, layout, slots):
        wide = sweep.name == "gram" or layout.method == "tsqr"  # float64 whatever the data
        found.append(dataclasses.replace(sweep, held_bytes=held[sweep.over], item=8 * wide))
    return found


def held_bytes(layout: Strategy, request: Request, over: str) -> int:
    """Memory that the process which leads keeps while a sweep ``over`` the matrix or scratch is made.

    The basis of a pass, with and without weights, and what a sketch of rows has found beside it; small
    matrices of a basis, and short factors.
    """
    short, rank, basis = layout.view.short, request.rank, layout.basis_columns
    if layout.method == "tsqr":
        return 5 * 8 * short * short
    if layout.method == "sketch":
        sizes = Sizes.of(rank, short)
        sums = 8 * (short * sizes.down + sizes.across * sizes.right)
        return 8 * short * sizes.right if over == "matrix" else sums
    blocks = 3 * 8 * short * layout.width
    return blocks if over == "matrix" else 3 * 8 * short * rank + 2 * 8 * basis * basis


def _sweeps_of(request: Request, layout: Strategy, slots: int) -> list[Pass]:
    view, width = layout.view, layout.width
    centering = Centering(request.center, request.scale, 1.0, 0.0)
    data = view.long * view.short * view.source.dtype.itemsize
    elements = float(view.long * view.short)
    sweeps = []
    if layout.method == "gram":
        vector = np.zeros(0)
        gram = GramPass(
            layout.gram_panels(slots), centering, vector, None, layout.row_seconds(2 * view.short)
        )
        sweeps.append(numbers_of("gram", gram, data, 0, elements * view.short))
    elif layout.method == "tsqr":
        return _tsqr_sweeps(request, layout, slots, centering)
    elif layout.statistics_passes:
        statistics = ColumnStatistics(layout.panels(slots), np.zeros(0), 1.0, layout.row_seconds(4))
        sweeps.append(numbers_of("statistics", statistics, data, 0, 4 * elements))
    if layout.method == "sketch":
        sizes = Sizes.of(request.rank, view.short)
        y, products = layout.y(_NOWHERE, 1, sizes.range), 2 * (sizes.right + sizes.down)
        fold = SketchPass(
            layout.panels(slots), centering, _NOWHERE, sizes, y, None, True, 0, layout.row_seconds(products)
        )
        flops = elements * products + 2.0 * view.long * sizes.right * sizes.across
        sweeps.append(numbers_of("sketch", fold, data, y.nbytes, flops))
        return sweeps + _narrow_sweeps(request, layout, (y,))
    left = view.short
    blocks: list[ScratchMatrix] = []
    for index in range(layout.block_passes):
        y = layout.y(_NOWHERE, index, width if layout.method == "subspace" else min(width, left))
        block = PanelPass(
            layout.panels(slots),
            centering,
            _NOWHERE,
            y,
            None,
            True,
            layout.row_seconds(4 * y.columns),
            0 if blocks else layout.sketch_rows,
        )
        name = f"pass-{len(sweeps) + 1:02d}"
        sweeps.append(numbers_of(name, block, data, y.nbytes, 4 * elements * y.columns))
        blocks.append(y)
        left -= y.columns
    kept = blocks[-1:] if layout.method == "subspace" else blocks
    return sweeps + _narrow_sweeps(request, layout, tuple(kept))


def _tsqr_sweeps(request: Request, layout: Strategy, slots: int, centering: Centering) -> list[Pass]:
    """Sweeps of a matrix that a sample helps with or that needs none, then what others take besides."""
    view, short, panels = layout.view, layout.view.short, layout.wide_panels(slots)
    data = view.long * short * view.source.dtype.itemsize
    elements, preconditioner = float(view.long * short), Preconditioner(_NOWHERE, short, 0, 0)
    gram = PreconditionedGram(panels, centering, preconditioner, None, layout.row_seconds(3 * short))
    factor = PanelFactor(panels, centering, np.zeros(0), None, layout.row_seconds(8 * short))
    by_gram = numbers_of("gram", gram, data, 0, 3 * elements * short)
    by_reflections = numbers_of("reflections", factor, data, 0, 2 * elements * short)
    sweeps = [by_gram, by_reflections] if layout.sample.gives_block else [by_reflections]
    if leads_qr(request, view):
        sweeps = []
    if request.rows or view.orientation is Orientation.COLUMNS:
        rank, long = request.rank, view.long * request.rank * view.dtype.itemsize
        seconds = layout.row_seconds(2 * (short + rank))
        written = (_NOWHERE, _NOWHERE, view.orientation is Orientation.COLUMNS, view.dtype, rank, seconds)
        write = WritePreconditioned(panels, centering, preconditioner, None, *written)
        sweeps.insert(1, numbers_of("rows", write, data, long, 2 * elements * (short + rank)))
        if leads_qr(request, view):
            return sweeps
        again = PreconditionedFactor(panels, centering, preconditioner, None, layout.row_seconds(10 * short))
        sweeps.append(numbers_of("reflections again", again, data, 0, 4 * elements * short))
    return sweeps


def _narrow_sweeps(request: Request, layout: Strategy, blocks: tuple[ScratchMatrix, ...]) -> list[Pass]:
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
    names = ("range" if layout.method == "sketch" else "ritz", "rows")
    for name, same in zip(names, folds, strict=False):
        writes = view.long * request.rank * view.dtype.itemsize if name == "rows" else 0
        sweep = numbers_of(name, same[0], reads, writes, flops, over="scratch")
        largest = max(same, key=lambda fold: int(fold.memory_bytes))
        sweeps.append(
            dataclasses.replace(
                sweep, segment_bytes=largest.memory_bytes, accumulator_bytes=largest.accumulator_bytes
            )
        )
    return sweeps


def driver_bytes(layout: Strategy, request: Request) -> int:
    """Memory of the algebra between passes, and of the sample before them: the largest of these.

    In blocks of the short side: what is loaded of a basis and its images, their products, and what LAPACK
    copies of one. A sketch of rows is there as it was made, weighted, without what the block holds, and as
    that part of it. Of small matrices, squares of a basis with the workspace of their decomposition.
    """
    view, short, width, basis = layout.view, layout.view.short, layout.width, layout.basis_columns
    sample = sample_bytes(layout)
    vectors = 4 * 8 * view.long if view.orientation is Orientation.COLUMNS else 0
    if layout.method in ("gram", "tsqr"):
        sample = max(sample, (2 if layout.method == "gram" else 16) * 8 * short * short)
    if layout.method == "sketch":
        return max(sample, _sketch_algebra_bytes(Sizes.of(request.rank, short), short)) + vectors
    resident = 8 * max(layout.block_passes, 1) if request.adaptive else 8
    small = 14 * basis**2
    if layout.method == "subspace":  # the block before is set against the last one
        resident, small = 10, max(small, 6 * min(short, 2 * width) ** 2)
    blocks, rows = 8 * (resident * short * width + small), layout.sketch_rows
    sketch = rows * short * (view.dtype.itemsize + 3 * 8) + 8 * (3 * rows**2 + 4 * short * width)
    return max(sample, blocks, sketch * bool(rows)) + vectors


def sample_bytes(layout: Strategy) -> int:
    """Memory of reading a sample, and of the block that it gives."""
    block = layout.sample.gives_block * 8 * 8 * layout.view.short * layout.width
    return layout.sample.memory_bytes + block


def _sketch_algebra_bytes(sizes: Sizes, short: int) -> int:
    """Test vectors as drawn and as stored, sums and what centering takes off; then a basis of the sums."""
    centered = 2 * short * (sizes.right + sizes.down)
    basis = short * (sizes.down + 5 * sizes.range)
    return 8 * (max(centered, basis) + 3 * sizes.across * sizes.right + 14 * sizes.range**2)


# What fits ----------------------------------------------------------------------------------------


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


def make_plan(request: Request, source: Source, budget: Budget) -> Plan:
    """Plan a request within a budget.

    Raises
    ------
    MemoryBudgetError
        One segment, or the algebra between passes, takes more than the budget.
    """
    layout = choose_strategy(request, source)
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


def _accumulator_bytes(request: Request, layout: Strategy) -> int:
    if layout.method == "sketch":
        return Sizes.of(request.rank, layout.view.short).accumulator_bytes(layout.view.short)
    sketch = layout.sketch_rows * layout.view.short * layout.view.dtype.itemsize
    return sketch + 8 * layout.view.short * layout.width


def _fit(request: Request, layout: Strategy, budget: Budget, driver: int) -> tuple[int, int, int]:
    """Segments at once, buffers each, and the peak they come to."""
    concurrency, slots, peak = fit(lambda slots: sweeps_of(request, layout, slots), driver, budget)
    if concurrency < 1 or peak > budget.memory_bytes:
        _refuse(request, layout, budget, peak)
    return concurrency, slots, peak


def _fits(request: Request, source: Source, budget: Budget) -> bool:
    layout = choose_strategy(request, source)
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


def _refuse(request: Request, layout: Strategy, budget: Budget, need: int) -> None:
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
