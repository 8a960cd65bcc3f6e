"""What decides the numbers: orientation, method, block width, cuts. Pure functions of the request and
of the shape, type and native chunks of the matrix; memory and speed of the machine never enter.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rankfold.methods.parts.combination import Combination
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.panels import Panels
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.solvers.solver import SOLVERS, Dimensions, Solver
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.sample import Sample
from rankfold.pipeline.data.source import Source, compressed
from rankfold.pipeline.data.view import Orientation, View, working_dtype
from rankfold.pipeline.engine.blocks import Cut, cut, grain_rows
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.planning.seconds import NOMINAL_FLOPS, NOMINAL_READ
from rankfold.pipeline.storage.scratch import ScratchMatrix

ADAPTIVE_WIDTH = 256
"""Columns of a block at most where the rank is to be found."""

DIFFERENCE = {4: 1e-3, 8: 1e-7}
"""Least approximation error, by item size, that a difference of sums of squares is trusted with."""

SMALL_BYTES = 2**29
"""Memory up to which a sparse matrix is decomposed in memory unasked; more, where that is asked for."""

LARGEST_FILL = 0.15
"""Share of stored numbers from which on dense products, of 3 ns a number, beat sparse ones, of 20 ns."""

LARGEST_SQUARE = 2**14
"""Shorter side up to which a tolerance alone may choose a method that keeps a matrix of its square."""

BOUND_ROWS = 256
"""Rows of a sketch that bounds errors and chooses no directions: three deviations are a quarter."""

CHUNK_BYTES = (2 * 2**20, 64 * 2**20)
"""Smallest and largest chunk of a row output."""

PANEL_BYTES = 32 * 2**20
"""A panel that becomes a chunk of an output is read in about this size, whatever that chunk would like."""

TARGET_CHUNKS = 10_000
"""Row outputs grow their chunks, within bounds, to stay near this many files."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """The static half of a plan."""

    view: View
    solver: Solver
    width: int
    """Columns of one block, of the range sketch, or of R."""

    passes: int
    """Most passes over the matrix."""

    cut: Cut
    """Of the solver's passes and statistics."""

    out_chunk: int
    """Long rows in one chunk of the long factor."""

    statistics_passes: int
    """1 where scaling needs the columns' statistics first."""

    sample: Sample
    """What is looked at before the first pass."""

    sketch_rows: int
    """Rows of the sketch that tells what a block misses; 0 where nobody asks."""

    @property
    def method(self) -> str:
        """The name of the solver."""
        return self.solver.name

    @property
    def sample_bytes(self) -> int:
        """Memory of reading a sample, and of the block that it gives."""
        block = self.sample.gives_block * 8 * 8 * self.view.short * self.width
        return self.sample.memory_bytes + block

    @property
    def long_vectors_bytes(self) -> int:
        """Memory of vectors of the long side, where columns lie along it."""
        return 4 * 8 * self.view.long if self.view.orientation is Orientation.COLUMNS else 0

    def panels(self, slots: int) -> Panels:
        """Buffers of a pass in the working type."""
        return Panels(self.view, self.cut, slots, self.view.dtype)

    def wide_panels(self, slots: int) -> Panels:
        """Buffers of a pass in float64 whatever the data."""
        return Panels(self.view, self.cut, slots, np.dtype(np.float64))

    def row_seconds(self, flops_per_element: float) -> float:
        """Nominal time of one long row."""
        item = self.view.dtype.itemsize
        per_element = self.view.source.dtype.itemsize / NOMINAL_READ + flops_per_element / NOMINAL_FLOPS[item]
        return self.view.short * per_element

    def y(self, folder: Path, index: int, width: int) -> ScratchMatrix:
        """Scratch file of one block."""
        return ScratchMatrix(folder / f"Y-{index:02d}.bin", self.view.long, width, self.view.dtype)

    def columns(self, folder: Path) -> ScratchMatrix:
        """Scratch file of mean and scale of each column, when the sweep runs along the columns."""
        return ScratchMatrix(folder / "columns.bin", self.view.long, 2, np.dtype(np.float64))

    def column_file(self, folder: Path, centering: Centering) -> ScratchMatrix | None:
        """That file, where a sweep needs it."""
        local = centering.center or centering.scale
        return self.columns(folder) if local and self.view.orientation is Orientation.COLUMNS else None

    def for_rank(self, rank: int) -> Strategy:
        """With chunks of the output for so many components, where sweeps of the matrix do not write them."""
        if self.solver.rows_from_matrix:
            return self
        row_bytes = rank * self.view.dtype.itemsize
        return dataclasses.replace(self, out_chunk=chunk_rows(self.view.long, row_bytes))

    def narrow_cut(self, combination: Combination, rank: int) -> Cut:
        """Cut of sweeps over scratch, whose panels are whole chunks of the result."""
        grid = Grid.regular(self.view.long, self.out_chunk, splittable=False)
        return cut(grid, combination.working_row_bytes, 8 * rank * rank)


def choose_strategy(request: Request, source: Source, device: str = "cpu") -> Strategy:
    """Decide orientation, solver, width and cuts, for sweeps on a kind of device."""
    method = request.method
    if method == "auto" and device == "cpu" and is_sparse(request, source):
        in_memory = choose_strategy(dataclasses.replace(request, method="lanczos"), source)
        if in_memory.solver.driver_bytes(request, in_memory) <= SMALL_BYTES:
            return in_memory
    orientation = choose_orientation(source, request.rank, request.kind)
    if method != "auto" and SOLVERS[method].holds_matrix:
        orientation = long_side(source)
    view = View(source, orientation, device, request.working_dtype)
    width = block_width(request.rank, view.short, request.oversampling, passes=request.passes)
    if request.adaptive:
        width = adaptive_width(view.short)
    solver = SOLVERS[method if method != "auto" else choose_method(request, view, width)]
    check_solver(solver, request, view)
    dimensions = solver.arrange(request, view, width)
    sample = Sample.of(view, dimensions.block)
    scales_first = solver.scales_first and request.scale and view.orientation is Orientation.ROWS
    return Strategy(
        view=view,
        solver=solver,
        width=dimensions.width,
        passes=request.passes,
        cut=dimensions.cut,
        out_chunk=dimensions.out_chunk,
        statistics_passes=int(scales_first),
        sample=sample,
        sketch_rows=_sketch_rows(dimensions, request, gives_block=sample.gives_block),
    )


def _sketch_rows(dimensions: Dimensions, request: Request, *, gives_block: bool) -> int:
    """Four rows for each column of a block from the sample, which may lack directions.

    A random block lacks none, and only its errors are to be told: ``BOUND_ROWS`` are enough.
    """
    if not dimensions.looks_beyond:
        return 0
    rows = 4 * (dimensions.block or dimensions.width)
    return rows if gives_block else min(rows, BOUND_ROWS) * (not request.adaptive)


def check_solver(solver: Solver, request: Request, view: View) -> None:
    """Raise ``InputError`` where a solver cannot do with so few passes, or along this side."""
    least = solver.least_passes(request, view)
    if least > request.passes:
        without = dataclasses.replace(request, rows=False)
        way_out = request.rows and solver.least_passes(without, view) < least
        raise InputError(
            f"{request.kind} by {solver.name} takes {least} passes here, but passes={request.passes}. Allow "
            f"--passes {least}" + (", or leave out its rows with --no-rows" if way_out else "")
        )
    if solver.needs_long and view.long < view.short:
        raise InputError(
            f"{view.source.name} can only be swept along its {view.orientation.value}, its shorter side, and "
            f"{solver.name} is for the longer one. Take --solver krylov, or store the transpose"
        )


def resolve_request(request: Request, source: Source) -> Request:
    """A request that leaves the rank to its tolerance, with the method and the most components there can be.

    Gram, if it is the cheaper and the tolerance more than rounding of squares; TSQR below that.
    """
    if not request.adaptive:
        return request
    view = View(source, choose_orientation(source, ADAPTIVE_WIDTH), precision=request.working_dtype)
    width, method = adaptive_width(view.short), request.method
    if method == "auto":
        method = choose_method(dataclasses.replace(request, rank=width), view, width)
        if view.short > LARGEST_SQUARE:
            method = "krylov"
        elif request.tol < DIFFERENCE[8] and view.long >= view.short:
            method = "tsqr"
        elif request.tol < DIFFERENCE[view.dtype.itemsize]:
            method = "gram"
    most = SOLVERS[method].most_components(request, view, width)
    return dataclasses.replace(request, method=method, rank=min(most, *source.shape))


def adaptive_width(short: int) -> int:
    """Columns of a block where the rank is to be found: an eighth of all, in whole sixteens.

    >>> adaptive_width(40), adaptive_width(1000), adaptive_width(10**6)
    (16, 128, 256)
    """
    return min(short, ADAPTIVE_WIDTH, -(-short // 128) * 16)


def leads_qr(request: Request, view: View) -> bool:
    """Whether the leading square of a wide matrix is what has a QR factorization to find."""
    return request.kind == "qr" and view.orientation is Orientation.COLUMNS


def block_width(rank: int, short: int, oversampling: int | None = None, *, passes: int = 8) -> int:
    """Columns of a block in whole sixteens: a quarter more than the rank, at least 8 more.

    A single pass has no other to mend what it misses, and is given four times the rank.

    >>> block_width(50, 2000), block_width(10, 2000), block_width(50, 55)
    (64, 32, 55)
    >>> block_width(50, 2000, 200), block_width(50, 2000, passes=1)
    (256, 208)
    """
    if oversampling is None:
        oversampling = 3 * rank if passes == 1 else max(8, -(-rank // 4))
    return min(short, -(-(rank + oversampling) // 16) * 16)


def choose_orientation(source: Source, rank: int, kind: str = "svd") -> Orientation:
    """Along the long axis, unless a panel that way takes over 1 GiB and the other way takes less.

    Always along the long one for ``"qr"``. Never along an axis whose pieces are scattered over the store,
    as the columns of CSR are.
    """
    if kind == "qr":
        return Orientation.ROWS if source.shape[0] >= source.shape[1] else Orientation.COLUMNS
    if source.row_grid.scattered or source.column_grid.scattered:
        return Orientation.COLUMNS if source.row_grid.scattered else Orientation.ROWS
    rows, columns = source.shape
    item = working_dtype(source.dtype).itemsize
    width = block_width(rank, min(rows, columns))

    def working_set(grid: Grid, short: int) -> int:
        panel = grain_rows(short * item) if grid.splittable else max(grid.longest, 1)
        return panel * short * item + 16 * short * width

    by_rows, by_columns = working_set(source.row_grid, columns), working_set(source.column_grid, rows)
    long_is_rows = rows >= columns
    along, across = (by_rows, by_columns) if long_is_rows else (by_columns, by_rows)
    if along > 2**30 and across < along:
        long_is_rows = not long_is_rows
    return Orientation.ROWS if long_is_rows else Orientation.COLUMNS


def long_side(source: Source) -> Orientation:
    """The longer axis, however the matrix is stored."""
    return Orientation.ROWS if source.shape[0] >= source.shape[1] else Orientation.COLUMNS


def is_sparse(request: Request, source: Source) -> bool:
    """Whether a matrix is so sparse that it is decomposed in memory unasked if it is small.

    That takes work for stored numbers alone. Where a good part of all numbers is stored, dense products are
    faster; and what is taken unasked has a limit that no machine decides.
    """
    stored = compressed(source)
    if request.adaptive or request.kind == "qr" or stored is None:
        return False
    rows, columns = source.shape
    return stored.nnz <= LARGEST_FILL * rows * columns


def expected_passes(tol: float, method: str = "krylov", *, from_sample: bool = False) -> int:
    """Fused passes that a method typically needs for a relative error of ``tol``.

    ``from_sample`` where the first block is one that a sample gives.

    >>> [expected_passes(t) for t in (1e-2, 1e-4, 1e-8)]
    [4, 4, 5]
    >>> [expected_passes(t, "subspace", from_sample=True) for t in (1e-2, 1e-4, 1e-8)]
    [4, 7, 13]
    """
    digits = -math.log10(tol) - 1e-9
    passes = 2 + math.ceil(1.5 * digits) if method == "subspace" else 3 + max(1, math.ceil(digits / 4))
    return passes - from_sample


def choose_method(request: Request, view: View, width: int) -> str:
    """One Gram pass or several narrow ones: whichever a nominal core finishes first.

    A Gram pass costs ``short`` float64 flops per element, a fused pass ``4 width`` of the working type;
    the Gram method adds one fused pass of width ``rank`` where the long factor is wanted. What a fair
    sample would save is not counted on.
    """
    element = view.source.dtype.itemsize / NOMINAL_READ
    flop = 1 / NOMINAL_FLOPS[view.dtype.itemsize]
    long_factor = request.rows or view.orientation is Orientation.COLUMNS
    gram = element + view.short / NOMINAL_FLOPS[8] + long_factor * (element + 4 * request.rank * flop)
    passes = min(expected_passes(request.tol), request.passes, -(-view.short // width))
    if request.passes < SOLVERS["gram"].least_passes(request, view):
        return "krylov"
    statistics = request.scale and view.orientation is Orientation.ROWS
    krylov = passes * (element + 4 * width * flop) + statistics * element
    return "gram" if gram <= krylov else "krylov"


def matching_chunk(native: Grid, read_bytes: int, written_bytes: int) -> int:
    """Rows in a chunk of an output that is written panel by panel as the matrix is read.

    Whole chunks of the matrix, where those cannot be split. Rows have ``read_bytes`` and ``written_bytes``.
    """
    height = max(1, min(chunk_rows(native.length, written_bytes), PANEL_BYTES // read_bytes, native.length))
    if native.longest <= height:
        return height - height % native.longest
    return height if native.splittable else native.longest


def chunk_rows(length: int, row_bytes: int) -> int:
    """Rows in a chunk of an output of so many rows of so many bytes."""
    target_bytes = min(max(length * row_bytes // TARGET_CHUNKS, CHUNK_BYTES[0]), CHUNK_BYTES[1])
    return max(1, target_bytes // row_bytes)
