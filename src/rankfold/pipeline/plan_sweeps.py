"""Every sweep of a request in numbers, by the formulas that the folds allocate by."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankfold.pipeline.blocks import Cut
from rankfold.pipeline.folds.column_statistics import ColumnStatistics
from rankfold.pipeline.folds.combination import Combination, OverCombination
from rankfold.pipeline.folds.gram_pass import GramPass
from rankfold.pipeline.folds.local_columns import Centring
from rankfold.pipeline.folds.narrow_r import NarrowR
from rankfold.pipeline.folds.panel_factor import PanelFactor
from rankfold.pipeline.folds.panel_pass import PanelPass
from rankfold.pipeline.folds.panels import OverPanels
from rankfold.pipeline.folds.sketch_pass import Sizes, SketchPass
from rankfold.pipeline.folds.whitened import WhitenedFactor, WhitenedGram, Whitening, WriteWhitened
from rankfold.pipeline.folds.write_rows import WriteRows
from rankfold.pipeline.layout import Layout, leads_qr
from rankfold.pipeline.narrow import Narrow
from rankfold.pipeline.request import Request
from rankfold.pipeline.sweep import FAN_IN, SEGMENT_SECONDS
from rankfold.pipeline.view import Orientation

_NOWHERE = Path("-")

BLAS_BYTES = 24 * 2**20
"""Packing buffers that a thread of OpenBLAS touches at most in our products."""


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
    """Most memory of one segment: a workspace and two accumulators, which a merge takes in its place."""

    tasks: int
    streams: int
    accumulator_bytes: int = 0
    """Of the sums of a stream, where they are worth counting."""

    merge_bytes: int = 0
    """What a merge takes beyond a segment, besides its two accumulators."""

    blas_bytes: int = BLAS_BYTES
    """What a thread of BLAS packs in a segment, and keeps."""

    item: int = 0
    """Bytes of a number in its products, where they are not of the working type."""

    held_bytes: int = 0
    """What the process that leads keeps in memory meanwhile."""


def sweeps_of(request: Request, layout: Layout, slots: int) -> list[Pass]:
    """Every sweep that the request may make, in order, with ``slots`` buffers for panels."""
    held = {over: held_bytes(layout, request, over) for over in ("matrix", "scratch")}
    found = []
    for sweep in _sweeps_of(request, layout, slots):
        wide = sweep.name == "gram" or layout.method == "tsqr"  # float64 whatever the data
        found.append(dataclasses.replace(sweep, held_bytes=held[sweep.over], item=8 * wide))
    return found


def held_bytes(layout: Layout, request: Request, over: str) -> int:
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


def _sweeps_of(request: Request, layout: Layout, slots: int) -> list[Pass]:
    view, width = layout.view, layout.width
    centring = Centring(request.center, request.scale, 1.0, 0.0)
    data = view.long * view.short * view.source.dtype.itemsize
    elements = float(view.long * view.short)
    sweeps = []
    if layout.method == "gram":
        vector = np.zeros(0)
        gram = GramPass(layout.gram_panels(slots), centring, vector, None, layout.row_seconds(2 * view.short))
        sweeps.append(numbers_of("gram", gram, data, 0, elements * view.short))
    elif layout.method == "tsqr":
        return _tsqr_sweeps(request, layout, slots, centring)
    elif layout.statistics_passes:
        statistics = ColumnStatistics(layout.panels(slots), np.zeros(0), 1.0, layout.row_seconds(4))
        sweeps.append(numbers_of("statistics", statistics, data, 0, 4 * elements))
    if layout.method == "sketch":
        sizes = Sizes.of(request.rank, view.short)
        y, products = layout.y(_NOWHERE, 1, sizes.range), 2 * (sizes.right + sizes.down)
        fold = SketchPass(
            layout.panels(slots), centring, _NOWHERE, sizes, y, None, True, 0, layout.row_seconds(products)
        )
        flops = elements * products + 2.0 * view.long * sizes.right * sizes.across
        sweeps.append(numbers_of("sketch", fold, data, y.nbytes, flops))
        return sweeps + _narrow_sweeps(request, layout, (y,))
    left = view.short
    blocks: list[Narrow] = []
    for index in range(layout.block_passes):
        y = layout.y(_NOWHERE, index, width if layout.method == "subspace" else min(width, left))
        block = PanelPass(
            layout.panels(slots),
            centring,
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


def _tsqr_sweeps(request: Request, layout: Layout, slots: int, centring: Centring) -> list[Pass]:
    """Sweeps of a matrix that a sample helps with or that needs none, then what others take besides."""
    view, short, panels = layout.view, layout.view.short, layout.wide_panels(slots)
    data = view.long * short * view.source.dtype.itemsize
    elements, whitening = float(view.long * short), Whitening(_NOWHERE, short, 0, 0)
    gram = WhitenedGram(panels, centring, whitening, None, layout.row_seconds(3 * short))
    factor = PanelFactor(panels, centring, np.zeros(0), None, layout.row_seconds(8 * short))
    by_gram = numbers_of("gram", gram, data, 0, 3 * elements * short)
    by_reflections = numbers_of("reflections", factor, data, 0, 2 * elements * short)
    sweeps = [by_gram, by_reflections] if layout.sample.gives_block else [by_reflections]
    if leads_qr(request, view):
        sweeps = []
    if request.rows or view.orientation is Orientation.COLUMNS:
        rank, long = request.rank, view.long * request.rank * view.dtype.itemsize
        seconds = layout.row_seconds(2 * (short + rank))
        written = (_NOWHERE, _NOWHERE, view.orientation is Orientation.COLUMNS, view.dtype, rank, seconds)
        write = WriteWhitened(panels, centring, whitening, None, *written)
        sweeps.insert(1, numbers_of("rows", write, data, long, 2 * elements * (short + rank)))
        if leads_qr(request, view):
            return sweeps
        again = WhitenedFactor(panels, centring, whitening, None, layout.row_seconds(10 * short))
        sweeps.append(numbers_of("reflections again", again, data, 0, 4 * elements * short))
    return sweeps


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


def numbers_of(name: str, fold: Any, reads: int, writes: int, flops: float, *, over: str = "matrix") -> Pass:
    """A sweep of a fold."""
    cut: Cut = fold.cut
    segment_rows = max(1, int(SEGMENT_SECONDS / fold.row_seconds))
    segments = max(cut.stream_count, -(-cut.length // segment_rows))
    merges, layer = 0, cut.stream_count
    while layer > 1:
        layer = -(-layer // FAN_IN)
        merges += layer
    tasks, sums = segments + merges, getattr(fold, "accumulator_bytes", 0)
    more = getattr(fold, "merge_bytes", 0)
    sizes = (fold.memory_bytes, tasks, cut.stream_count, sums, more, blas_bytes(getattr(fold, "longest_side", BLAS_BYTES)))
    return Pass(name, over, reads, writes, flops, *sizes)


def blas_bytes(longest_side: int) -> int:
    """What a thread of OpenBLAS packs at most of operands whose sides are no longer.

    Of one operand a block of at most 2 MiB, of the other at most 512 rows of 8 bytes, as long as it is up
    to some thousand columns (parameters P, Q and R of its products; Q is 256 to 384 on common processors).

    >>> blas_bytes(1000) / 2**20, blas_bytes(10**6) / 2**20
    (5.90625, 24.0)
    """
    return min(BLAS_BYTES, 2 * 2**20 + 512 * 8 * longest_side)




def driver_bytes(layout: Layout, request: Request) -> int:
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


def sample_bytes(layout: Layout) -> int:
    """Memory of reading a sample, and of the block that it gives."""
    block = layout.sample.gives_block * 8 * 8 * layout.view.short * layout.width
    return layout.sample.memory_bytes + block


def _sketch_algebra_bytes(sizes: Sizes, short: int) -> int:
    """Test vectors as drawn and as stored, sums and what centering takes off; then a basis of the sums."""
    centered = 2 * short * (sizes.right + sizes.down)
    basis = short * (sizes.down + 5 * sizes.range)
    return 8 * (max(centered, basis) + 3 * sizes.across * sizes.right + 14 * sizes.range**2)
