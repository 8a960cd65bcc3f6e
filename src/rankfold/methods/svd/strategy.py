"""Choices that decide the numbers of a result: orientation, method, block width, cuts.

Pure functions of the request and of the shape, type and native chunks of the matrix; memory and speed of the
machine never enter. The long side of a matrix is the one that sweeps run along, usually the longer one. Long
rows are its rows, or its columns if sweeps run along the columns. A panel is the long rows in memory at a
time.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.parts.combination import Combination
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.panels import Panels
from rankfold.methods.parts.sample import BLOCK_BYTES, FEWEST_ROWS, Sample, sampled_columns
from rankfold.methods.parts.sparse_panels import SparsePanels
from rankfold.methods.svd.orientation import (
    ADAPTIVE_WIDTH,
    adaptive_width,
    block_width,
    long_side,
    orientation_of,
    sweeps_stored_entries,
)
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.solvers.solver import SOLVERS, Dimensions, Solver
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.real_parts import is_complex, numbers_dtype, numbers_of_parts
from rankfold.pipeline.data.source import Source, compressed, index_dtype, number_bytes, sparse, stored_size
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.blocks import Cut, cut, cut_by_numbers
from rankfold.pipeline.errors import InputError, argument
from rankfold.pipeline.planning.seconds import (
    NOMINAL_FLOPS,
    NOMINAL_GATHERED_FLOPS,
    NOMINAL_READ,
    ORDER_SECONDS,
)
from rankfold.pipeline.storage.scratch import ScratchMatrix

DIFFERENCE = {4: 1e-3, 8: 1e-7}
"""Smallest relative error of an approximation, by item size, that is found as a difference of sums of
squares."""

SMALL_BYTES = 2**29
"""Memory in bytes up to which a sparse matrix is decomposed in memory by default; larger only on request."""

LARGEST_SQUARE = 2**14
"""Length of the shorter side up to which a request without a rank may choose a method that keeps a square of
it."""

BOUND_ROWS = 256
"""Number of rows of a sketch that only bounds errors and chooses no directions: three standard deviations of
its relative error are a quarter."""

SKETCH_BYTES = 2**28
"""Largest number of bytes of a dense sketch of ``BOUND_ROWS`` rows for a sparse matrix: wider matrices get
none."""

PAIR_SECONDS = 1e-9
"""Seconds for each ordered pair of numbers of a sparse row in a Gram pass: half of a product, which serves
both orders."""

NOMINAL_LAPACK = 8e9
"""Flops per second of the eigenproblem of a symmetric matrix."""

EIGENPROBLEM = 4 / 3
"""Flops of the eigenproblem of a symmetric matrix, in cubes of its size."""

LIKELY_BLOCKS = 3
"""Typical number of blocks of a basis, for estimates of time: in the middle of its growth."""

BASIS_PRODUCTS = 100
"""Flops between two passes, in units of length of short side times columns of a block times columns of the
basis."""

BASIS_EIGENPROBLEMS = 16
"""Number of eigenproblems of the size of a basis between two passes, those of a sketch included."""

NEAR_SQUARE = 2
"""Largest ratio of sides at which a dense matrix takes no more memory than the squares of ``gram`` do."""

NOMINAL_NARROW = 5e9
"""Flops per second of products of a dense matrix in memory with blocks of a few vectors."""

FLAT_PRODUCTS = (200, 5)
"""Number of vectors that ``lanczos`` multiplies for a flat spectrum and ``tol`` 1e-4: a constant, and per
component.

Measured on 3000 x 2000 numbers: 264 for 10 components, 448 for 50; a third of that for falling spectra.
"""

WORTH = 1.3
"""Largest time of ``lanczos`` for a flat spectrum, relative to that of ``gram``, at which it is chosen."""

SWEEP_SECONDS = 0.1
"""Seconds to start a pass and store its state, however small the matrix is."""

SQUARE_UNASKED = 2048
"""Length of the shorter side up to which ``auto`` plans a Gram matrix, then of 32 MiB, to follow
``krylov``."""

DEAREST = 20.0
"""Cost of ``gram``, in fused passes, above which it does not follow a ``krylov`` that misses the
tolerance."""

LEAST_TRIED = 1.5
"""Cost of ``gram``, in fused passes, up to which it is chosen outright where a sample shows the spectrum."""

PASSES_UNTOLD = 8
"""Cost of ``gram``, in fused passes, up to which it is chosen where no sample shows the spectrum."""

LINE_SECONDS = 1e-7
"""Seconds for a row of a sparse matrix (a column, if the sweep runs along columns) without stored numbers."""

CHUNK_BYTES = (2 * 2**20, 64 * 2**20)
"""Smallest and largest size in bytes of a chunk of an output with a row for each row of the matrix."""

PANEL_BYTES = 32 * 2**20
"""Largest number of bytes, about, that are read of the matrix for one chunk of an output, however small that
chunk is."""

TARGET_CHUNKS = 10_000
"""Number of chunks that one output should not exceed: they grow for that, within ``CHUNK_BYTES``."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """The part of a plan that does not depend on memory and speed of the machine."""

    view: View
    solver: Solver
    width: int
    """Number of columns of one block, of the range sketch, or of R."""

    passes: int
    """Largest number of passes over the matrix."""

    cut: Cut
    """Cut of the long rows into panels for the solver's passes, and for those that measure columns."""

    out_chunk: int
    """Number of long rows in one chunk of the long factor."""

    statistics_passes: int
    """Number of passes that measure columns before all others: 1 where scaling needs that, else 0."""

    sample: Sample
    """Sample of rows to read before the first pass."""

    sketch_rows: int
    """Number of rows of the sketch that shows what a block misses; 0 for no sketch."""

    fullest: int = 0
    """Number of stored numbers of the fullest panel if passes multiply those alone; 0 if zeros are filled
    in."""

    otherwise: Strategy | None = None
    """The strategy that follows where the solver returns no decomposition; None where it always has one."""

    @property
    def paired(self) -> bool:
        """True if the matrix is a complex one as its real parts, with two columns for each complex one."""
        return is_complex(self.view.source)

    def vectors(self, columns: int) -> int:
        """Number of vectors in ``columns`` columns: half as many where these are parts of complex vectors."""
        return columns // (1 + self.paired)

    def numbers_of(self, parts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Complex numbers from columns, or a vector, of their real parts; unchanged if the matrix is real."""
        return numbers_of_parts(parts, paired=self.paired)

    def as_asked(self, request: Request) -> Request:
        """The request for a complex matrix, from that for its real parts, which has twice the rank."""
        return dataclasses.replace(request, rank=self.vectors(request.rank))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of vectors in the result, complex if the matrix is."""
        return numbers_dtype(self.view.dtype, paired=self.paired)

    @property
    def wide_dtype(self) -> np.dtype[Any]:
        """Type of small matrices: float64, or complex128 for a complex matrix."""
        return numbers_dtype(np.dtype(np.float64), paired=self.paired)

    @property
    def numbers(self) -> int:
        """Number of elements of the matrix that a pass multiplies: all, or stored ones alone."""
        stored = compressed(self.view.source) if self.fullest else None
        return self.view.long * self.view.short if stored is None else stored.nnz

    @property
    def read_bytes(self) -> int:
        """Bytes that a pass reads; for a sparse matrix with indices and pointers."""
        stored = compressed(self.view.source) if self.fullest else None
        return self.numbers * self.view.source.dtype.itemsize if stored is None else stored_size(stored)[1]

    @property
    def stored_numbers(self) -> int:
        """Number of stored elements that a pass multiplies if these alone; 0 where zeros are filled in."""
        return self.numbers if self.fullest else 0

    @property
    def method(self) -> str:
        """The name of the solver."""
        return self.solver.name

    @property
    def sample_bytes(self) -> int:
        """Bytes of memory for reading a sample, and for finding the block that it gives."""
        block = self.sample.gives_block * 8 * 8 * self.view.short * self.width
        return self.sample.memory_bytes + block

    @property
    def long_vectors_bytes(self) -> int:
        """Bytes of vectors along the long side, if the columns of the matrix are that side."""
        return 4 * 8 * self.view.long if self.view.orientation is Orientation.COLUMNS else 0

    def panels(self, slots: int) -> Panels:
        """Buffers for panels of a pass in the working type; ``slots`` panels are in memory at once."""
        return Panels(self.view, self.cut, slots, self.view.dtype)

    def sparse_panels(self, slots: int) -> SparsePanels:
        """Buffers for panels of a pass over stored numbers alone; ``slots`` panels are in memory at once."""
        return SparsePanels(self.view, self.cut, slots, self.fullest)

    def wide_panels(self, slots: int) -> Panels:
        """Buffers for panels of a pass in float64; ``slots`` panels are in memory at once."""
        return Panels(self.view, self.cut, slots, np.dtype(np.float64))

    def row_seconds(self, flops_per_element: float) -> float:
        """Nominal seconds of a pass for one long row, with so many flops per element of the matrix."""
        item = self.view.dtype.itemsize
        if self.fullest:
            seconds = number_seconds(self.view, flops_per_element)
            return max(self.numbers * seconds, self.view.long * LINE_SECONDS) / self.view.long
        per_element = self.view.source.dtype.itemsize / NOMINAL_READ + flops_per_element / NOMINAL_FLOPS[item]
        return self.view.short * per_element

    def y(self, folder: Path, index: int, width: int) -> ScratchMatrix:
        """Scratch file for the products Y = A Q of the block with that index, (long, width)."""
        return ScratchMatrix(folder / f"Y-{index:02d}.bin", self.view.long, width, self.view.dtype)

    def columns(self, folder: Path) -> ScratchMatrix:
        """Scratch matrix (columns, 2) of mean and deviation of each column, for sweeps along the columns."""
        return ScratchMatrix(folder / "columns.bin", self.view.long, 2, np.dtype(np.float64))

    def column_file(self, folder: Path, centering: Centering) -> ScratchMatrix | None:
        """The scratch matrix of ``columns``, or None where a sweep does not need it."""
        local = centering.center or centering.scale
        return self.columns(folder) if local and self.view.orientation is Orientation.COLUMNS else None

    def for_rank(self, rank: int) -> Strategy:
        """Strategy with output chunks for ``rank`` columns; unchanged if sweeps of the matrix write them."""
        if self.solver.rows_from_matrix:
            return self
        row_bytes = rank * self.view.dtype.itemsize
        return dataclasses.replace(self, out_chunk=chunk_rows(self.view.long, row_bytes))

    def narrow_cut(self, combination: Combination, rank: int) -> Cut:
        """Cut of the rows of a combination into panels, which are whole chunks of the long factor.

        Sums of a stream are (rank, rank).
        """
        grid = Grid.regular(self.view.long, self.out_chunk, splittable=False)
        return cut(grid, combination.working_row_bytes, 8 * rank * rank)


def choose_strategy(request: Request, source: Source, device: str = "cpu") -> Strategy:
    """Decide orientation, solver, width and cuts for a request on ``source``, swept on a kind of device."""
    method = request.method
    in_memory = not request.adaptive and request.kind != "qr"
    if method == "auto" and device == "cpu" and in_memory and sparse(source) is not None:
        small = choose_strategy(dataclasses.replace(request, method="lanczos"), source)
        if small.solver.driver_bytes(request, small) <= SMALL_BYTES:  # a limit that no machine decides
            return small
    orientation = orientation_of(request, source, device)
    if method != "auto" and SOLVERS[method].holds_matrix:
        orientation = long_side(source)
    view = View(source, orientation, device, request.working_dtype)
    width = block_width(request.rank, view.short, request.oversampling, passes=request.passes)
    if request.adaptive:
        width = adaptive_width(view.short)
    if method == "auto" and in_memory and is_for_lanczos(request, view, width):
        return choose_strategy(dataclasses.replace(request, method="lanczos"), source, device)
    method, tried = choose_method(request, view, width) if method == "auto" else (method, 0)
    solver = SOLVERS[method]
    check_solver(solver, request, view)
    otherwise = (
        choose_strategy(dataclasses.replace(request, method="gram"), source, device) if tried else None
    )
    dimensions, fullest = solver.arrange(request, view, width), 0
    if is_complex(source):
        dimensions = dimensions.paired()
    if solver.multiplies_stored and sweeps_stored_entries(view):
        sums = view.short if solver.keeps_square else dimensions.width
        dimensions, fullest = _arrange_stored(dimensions, view, 8 * view.short * sums)
    sample = Sample.of(view, dimensions.block)
    scales_first = solver.scales_first and request.scale and view.orientation is Orientation.ROWS
    return Strategy(
        view=view,
        solver=solver,
        width=dimensions.width,
        passes=tried or request.passes,
        cut=dimensions.cut,
        out_chunk=dimensions.out_chunk,
        statistics_passes=int(scales_first),
        sample=sample,
        sketch_rows=_sketch_rows(dimensions, request, gives_block=sample.gives_block),
        fullest=fullest,
        otherwise=otherwise,
    )


def _arrange_stored(dimensions: Dimensions, view: View, accumulator_bytes: int) -> tuple[Dimensions, int]:
    """Cut panels by their count of stored numbers; drop the dense sample and sketch where they are large.

    ``accumulator_bytes`` are those of the sums of a stream. Returns the dimensions and the count of stored
    numbers in the fullest panel. A matrix without any stored number keeps its dimensions, with a count of 0:
    zeros are as quick to fill in.
    """
    stored = compressed(view.source)
    if stored is None or not stored.nnz:
        return dimensions, 0
    sizes = stored.nnz, number_bytes(stored), accumulator_bytes
    panels, fullest = cut_by_numbers(stored.pointers, view.grid, view.short, *sizes)
    row_bytes = view.short * view.dtype.itemsize
    block = dimensions.block if FEWEST_ROWS * dimensions.block * row_bytes <= BLOCK_BYTES else 0
    looks_beyond = dimensions.looks_beyond and BOUND_ROWS * row_bytes <= SKETCH_BYTES
    return dataclasses.replace(dimensions, cut=panels, block=block, looks_beyond=looks_beyond), fullest


def _sketch_rows(dimensions: Dimensions, request: Request, *, gives_block: bool) -> int:
    """Number of rows of a sketch: four for each column of a block from a sample, which may lack directions.

    A random block lacks none, and only its errors are to be bounded: ``BOUND_ROWS`` are enough.
    """
    if not dimensions.looks_beyond:
        return 0
    rows = 4 * (dimensions.block or dimensions.width)
    return rows if gives_block else min(rows, BOUND_ROWS) * (not request.adaptive)


def check_solver(solver: Solver, request: Request, view: View) -> None:
    """Raise ``InputError`` if a solver takes no complex matrix, needs more passes, or another orientation."""
    paired = is_complex(view.source)
    if paired and not solver.takes_complex:
        others = ", ".join(name for name in SOLVERS.ours if SOLVERS[name].takes_complex)
        raise InputError(f"{solver.name} takes no complex matrix, as {view.source.name} is one: say {others}")
    least = solver.least_passes(request, view)
    if least > request.passes:
        without = dataclasses.replace(request, rows=False)
        way_out = request.rows and solver.least_passes(without, view) < least
        raise InputError(
            f"{request.kind} by {solver.name} takes {least} passes here, but passes is {request.passes}. "
            f"Allow {argument('passes', least)}"
            + (", or leave out its rows with with_rows=False (--no-rows)" if way_out else "")
        )
    if solver.needs_long and view.long < view.short // (1 + paired):
        raise InputError(
            f"{view.source.name} can only be swept along its {view.orientation.value}, its shorter side, and "
            f"{solver.name} is for the longer one. Take solver='krylov' (--solver krylov), or store the "
            "transpose"
        )


def resolve_request(request: Request, source: Source) -> Request:
    """A request without a rank, with method and largest number of components filled in; others unchanged.

    The method is the cheaper of Gram and Krylov. If rounding of squares hides the tolerance, it is Gram, and
    below that of float64 TSQR. If the shorter side is above ``LARGEST_SQUARE``, it is Krylov.
    """
    if not request.adaptive:
        return request
    wide = dataclasses.replace(request, rank=ADAPTIVE_WIDTH)
    view = View(source, orientation_of(wide, source), precision=request.working_dtype)
    width, method = adaptive_width(view.short), request.method
    if method == "auto":
        method, _ = choose_method(dataclasses.replace(request, rank=width), view, width)
        if view.short > LARGEST_SQUARE:
            method = "krylov"
        elif request.tol < DIFFERENCE[8] and view.long >= view.short:
            method = "tsqr"
        elif request.tol < DIFFERENCE[view.dtype.itemsize]:
            method = "gram"
    most = SOLVERS[method].most_components(request, view, width)
    return dataclasses.replace(request, method=method, rank=min(most, *source.shape))


def expected_passes(tol: float, method: str = "krylov", *, from_sample: bool = False) -> int:
    """Number of fused passes that a method typically needs for a relative error of ``tol``.

    ``from_sample`` is True if a sample gives the first block.

    >>> [expected_passes(t) for t in (1e-2, 1e-4, 1e-8)]
    [4, 4, 5]
    >>> [expected_passes(t, "subspace", from_sample=True) for t in (1e-2, 1e-4, 1e-8)]
    [4, 7, 13]
    """
    digits = -math.log10(tol) - 1e-9
    passes = 2 + math.ceil(1.5 * digits) if method == "subspace" else 3 + max(1, math.ceil(digits / 4))
    return passes - from_sample


def number_seconds(view: View, flops: float) -> float:
    """Nominal seconds to read a stored number, sort it into the other order and do ``flops`` with it."""
    item = view.dtype.itemsize
    size = view.source.dtype.itemsize + index_dtype(*view.source.shape, 0).itemsize
    return size / NOMINAL_READ + ORDER_SECONDS + flops / NOMINAL_GATHERED_FLOPS[item]


@dataclass(frozen=True, slots=True)
class Weights:
    """Nominal seconds on one core of ``gram`` and ``krylov``, by which they are compared."""

    gram: float
    """Seconds of ``gram``: the Gram pass, the eigenproblem and the fused pass for the long factor."""

    fused: float
    """Seconds of one fused pass of ``krylov``, with the algebra between it and the next."""

    statistics: float
    """Seconds of the pass that measures columns before the first fused pass, where columns are scaled."""

    @classmethod
    def of(cls, request: Request, view: View, width: int) -> Weights:
        """Seconds for a request with blocks of ``width`` columns, from flops and bytes.

        A Gram pass takes ``short`` float64 flops per element, and a fused pass ``4 width`` of the working
        type. The Gram method adds an eigenproblem, and a fused pass where the long factor is wanted. Between
        fused passes a basis of some blocks is made orthonormal, and eigenproblems of its size and of that of
        a row sketch estimate the errors.
        """
        elements, item = float(view.long) * view.short, view.dtype.itemsize
        read = view.source.dtype.itemsize / NOMINAL_READ
        flop = 1 / NOMINAL_FLOPS[item]
        long_factor = request.rows or view.orientation is Orientation.COLUMNS
        eigenproblem = EIGENPROBLEM * view.short**3 / NOMINAL_LAPACK
        stored = compressed(view.source)
        if stored is not None and sweeps_stored_entries(view):
            share = stored.nnz / elements
            fused, statistics = (share * number_seconds(view, flops) for flops in (4 * width, 0))
            gram = statistics + min(share**2 * view.short * PAIR_SECONDS, view.short / NOMINAL_FLOPS[8])
            gram += long_factor * share * number_seconds(view, 4 * request.rank)
            # If few numbers are stored, the eigenproblem takes most time, and its square most memory.
            gram = math.inf if view.short > LARGEST_SQUARE else gram
        else:
            fused, statistics = read + 4 * width * flop, read
            gram = read + view.short / NOMINAL_FLOPS[8] + long_factor * (read + 4 * request.rank * flop)
        columns = LIKELY_BLOCKS * width
        algebra = BASIS_PRODUCTS * view.short * width * columns / NOMINAL_FLOPS[8]
        algebra += EIGENPROBLEM * BASIS_EIGENPROBLEMS * columns**3 / NOMINAL_LAPACK
        between = SWEEP_SECONDS + algebra
        return cls(elements * gram + eigenproblem, elements * fused + between, elements * statistics)


def choose_method(request: Request, view: View, width: int) -> tuple[str, int]:
    """Choose one Gram pass or several narrow ones: whichever a nominal core is likely to finish first.

    ``width`` is the number of columns of a block.

    Returns
    -------
    method : str
        ``"gram"`` or ``"krylov"``.
    tried : int
        Passes after which ``krylov`` gives up and ``gram`` follows; 0 where it does not. They take half of
        the time of ``gram``: a spectrum that falls more slowly than a sample shows costs half as much again.
    """
    statistics = int(request.scale and view.orientation is Orientation.ROWS)
    left = request.passes - SOLVERS["gram"].least_passes(request, view)
    if left < 0:
        return "krylov", 0
    keeps_square = may_keep_square(request, view)
    passes: float = expected_passes(request.tol)
    if keeps_square:
        sample = Sample.of(view, sampled_columns(width, view.short))
        passes = LEAST_TRIED if sample.gives_block else PASSES_UNTOLD
    passes = min(passes, request.passes, -(-view.short // width))
    weights = Weights.of(request, view, width)
    if weights.gram <= passes * weights.fused + statistics * weights.statistics:
        return "gram", 0
    ratio, most = weights.gram / weights.fused, left - statistics
    if not keeps_square or ratio > DEAREST or most < 1:
        return "krylov", 0
    return "krylov", statistics + min(max(round(ratio / 2), 1), most)


def may_keep_square(request: Request, view: View) -> bool:
    """True if ``auto`` may plan for a square of the shorter side, in case ``krylov`` does not converge."""
    return not (
        request.adaptive or sweeps_stored_entries(view) or view.device != "cpu" or view.short > SQUARE_UNASKED
    )


def is_for_lanczos(request: Request, view: View, width: int) -> bool:
    """True if a dense matrix is best held in memory: nearly square, with an eigenproblem that takes long.

    ``width`` is the number of columns of a block. ``lanczos`` then takes less memory than the squares of
    ``gram``. It takes the time of ``gram`` where the spectrum is flat, and half of it or less for other
    spectra. ``krylov`` is no faster on so few numbers.
    """
    near = view.long <= NEAR_SQUARE * view.short and not is_complex(view.source)
    if not near or not may_keep_square(request, view):
        return False
    elements, (some, more) = float(view.long) * view.short, FLAT_PRODUCTS
    products = (some + more * request.rank) * max(1.0, -math.log10(request.tol) / 4)
    seconds = elements * (view.source.dtype.itemsize / NOMINAL_READ + 4 * products / NOMINAL_NARROW)
    return seconds <= WORTH * Weights.of(request, view, width).gram


def matching_chunk(native: Grid, read_bytes: int, written_bytes: int) -> int:
    """Number of rows in a chunk of an output that is written panel by panel as the matrix is read.

    They are whole chunks ``native`` of the matrix where those cannot be split. A row takes ``read_bytes`` of
    the matrix and ``written_bytes`` of the output.
    """
    height = max(1, min(chunk_rows(native.length, written_bytes), PANEL_BYTES // read_bytes, native.length))
    if native.longest <= height:
        return height - height % native.longest
    return height if native.splittable else native.longest


def chunk_rows(length: int, row_bytes: int) -> int:
    """Number of rows in a chunk of an output of ``length`` rows of ``row_bytes`` bytes each."""
    target_bytes = min(max(length * row_bytes // TARGET_CHUNKS, CHUNK_BYTES[0]), CHUNK_BYTES[1])
    return max(1, target_bytes // row_bytes)
