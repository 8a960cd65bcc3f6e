"""Block Lanczos in memory: the matrix is read once, and multiplied in memory.

For matrices that fit in half of the memory. A sparse one takes memory and work for its stored numbers alone;
zeros are never filled in. The leading process does all the work, and nothing of it is kept on disk: a run
that was killed begins again, and ends with the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.start import Start
from rankfold.methods.svd.in_memory.lanczos import BLOCK, room
from rankfold.methods.svd.in_memory.matrix import MatrixInMemory, read_dense, read_sparse
from rankfold.methods.svd.in_memory.triplets import FactorInMemory, is_tiny, leading_triplets
from rankfold.methods.svd.long_factor import zeros_in_words
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.solvers.blocks import squared_norm
from rankfold.methods.svd.solvers.solver import Decomposition, Dimensions, Solver
from rankfold.methods.svd.strategy import Strategy, chunk_rows
from rankfold.pipeline.data.source import compressed, index_dtype, number_bytes
from rankfold.pipeline.data.view import View
from rankfold.pipeline.engine.blocks import cut
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.planning.passes import Pass

LIKELY_PRODUCTS = 4
"""Typical number of columns multiplied by the matrix, for each component, where the spectrum is not flat."""

PERCENT = 100


class Lanczos(Solver):
    """Solver by block Lanczos on a matrix held in memory, eight vectors of the shorter side at a time."""

    name = "lanczos"
    scales_first = False
    holds_matrix = True
    loops = ("panels",)
    narrower: ClassVar[Mapping[str, str]] = {"krylov": "reads the matrix panel by panel, several times"}
    remedy = "the spectrum is flat beyond what was asked for, or {dtype} holds no smaller values. Raise tol"

    def arrange(self, request: Request, view: View, width: int) -> Dimensions:
        """Blocks of a fixed number of columns; panels (rows read at a time) along the chunks of the store."""
        item = view.dtype.itemsize
        panels = cut(view.grid, view.short * item, 8 * view.short * BLOCK)
        return Dimensions(min(BLOCK, view.short), panels, chunk_rows(view.long, request.rank * item))

    def sweeps(self, request: Request, strategy: Strategy, slots: int) -> list[Pass]:
        """The one planned read of the matrix, with the work of all products."""
        view = strategy.view
        source, elements = view.source, view.long * view.short
        reads, numbers = elements * source.dtype.itemsize, elements
        stored = compressed(source)
        if stored is not None:
            numbers = stored.nnz
            reads = numbers * number_bytes(stored)
        products = view.short if is_tiny(request.rank, view.short) else LIKELY_PRODUCTS * request.rank
        memory = self.driver_bytes(request, strategy)
        stored_numbers = numbers if stored is not None else 0
        sizes = (memory, 1, 1)
        return [
            Pass(
                "whole", "matrix", reads, 0, 4.0 * numbers * products, *sizes, item=8, numbers=stored_numbers
            )
        ]

    def resident_bytes(self, request: Request, strategy: Strategy, over: str) -> int:
        """0 bytes: the matrix is counted with the sweep itself."""
        return 0

    def accumulator_bytes(self, request: Request, strategy: Strategy) -> int:
        """0 bytes: no sums are written to disk."""
        return 0

    def driver_bytes(self, request: Request, strategy: Strategy) -> int:
        """Bytes of the matrix while it is read, or with the vectors it is multiplied by: the larger."""
        reading, resident = matrix_bytes(request, strategy)
        return max(reading, resident + algebra_bytes(request.rank, strategy.view))

    def solve(
        self, run: Run, strategy: Strategy, request: Request, centering: Centering, start: Start
    ) -> Decomposition:
        """Read the matrix into memory and find its leading triplets; both factors stay in memory."""
        view, progress = strategy.view, run.progress

        def tell_error(error: float) -> None:
            if progress is not None:
                progress("lanczos", PERCENT - int(PERCENT * (error > request.tol)), PERCENT)

        matrix = self._read(run, strategy, centering)
        triplets = leading_triplets(matrix, view.short, request.rank, request.tol, request.seed, tell_error)
        if zeros := int((triplets.s == 0).sum()):
            run.warnings.append(zeros_in_words(zeros, request.rank))
        return Decomposition(
            triplets.s / matrix.unit,
            triplets.short,
            FactorInMemory(triplets.long),
            matrix.statistics,
            triplets.residuals,
            triplets.errors,
            triplets.convergence,
            squared_norm(strategy, matrix.statistics.total, matrix.unit),
            {"products": triplets.products},
        )

    def _read(self, run: Run, strategy: Strategy, centering: Centering) -> MatrixInMemory:
        view = strategy.view
        run.passes += 1

        def tell_lines(done: int) -> None:
            if run.progress is not None:
                run.progress("whole", done, view.long)

        stored = compressed(view.source)
        if stored is not None:
            return read_sparse(stored, centering, lambda lines: tell_lines(view.long))
        return read_dense(view, strategy.cut, centering, tell_lines)


def matrix_bytes(request: Request, strategy: Strategy) -> tuple[int, int]:
    """Bytes of a matrix while it is read, and as it is kept: sparse by rows and columns, or dense float64."""
    view, source = strategy.view, strategy.view.source
    vectors = 8 * 8 * (view.long + view.short)
    stored = compressed(source)
    if stored is None:
        resident = 8 * view.long * view.short
        panel = strategy.cut.panel_rows * view.short * source.dtype.itemsize
        return resident + panel + view.read_bytes(strategy.cut.panel_rows) + vectors, resident + vectors
    index = index_dtype(*source.shape, stored.nnz).itemsize
    both = 2 * (8 + index)
    # In addition to both orders: stored numbers, squares of numbers about their means, and weighted copies.
    reading = source.dtype.itemsize + index + both + 2 * 8 + 3 * 8 * request.scale
    return stored.nnz * reading + stored.sparse_bytes(stored.nnz) + vectors, stored.nnz * both + vectors


def algebra_bytes(rank: int, view: View) -> int:
    """Bytes of the basis and its small matrices, with blocks or with both factors, whichever take more."""
    if is_tiny(rank, view.short):
        return 8 * 4 * (view.long + view.short) * view.short
    columns = room(rank, view.short)
    basis = 8 * view.short * (columns + 4 * BLOCK) + 6 * 8 * columns**2
    blocks = 4 * 8 * BLOCK * view.long
    return basis + max(blocks, 4 * 8 * rank * view.long + 2 * 8 * rank * view.short)


LANCZOS = Lanczos()
