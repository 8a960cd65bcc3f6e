"""Base class of solvers by blocks of vectors: fused passes, and sweeps over their blocks on scratch.

A fused pass computes both products of a block, A Q and A'A Q, from one read of the matrix; A Q goes to
scratch (intermediate files).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rankfold.methods.parts.combination import Combination, NarrowR, WriteRows
from rankfold.methods.parts.conditioned import Centering, Statistics
from rankfold.methods.parts.sample import sampled_columns
from rankfold.methods.parts.start import NO_BLOCK, leading_block, tells_of_others
from rankfold.methods.svd.error_estimates import Truncation
from rankfold.methods.svd.long_factor import Triplets
from rankfold.methods.svd.orientation import BASIS_SQUARES
from rankfold.methods.svd.passes import fused_pass, statistics_fold
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.solvers.solver import Decomposition, Dimensions, Solver
from rankfold.methods.svd.strategy import Strategy, chunk_rows
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.blocks import cut
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import NOWHERE, ScratchMatrix

LOOPS_BYTES = 48 * 2**20
"""Bytes of compiled loops over stored numbers, which a process loads when it first needs them."""

STORAGE_ROUNDING = 4
"""Relative error that storing the factors adds to an approximation, in eps of the working type."""


class BlockSolver(Solver):
    """Solver by passes that multiply a block by A and A', and a small problem from the blocks on scratch."""

    multiplies_stored: ClassVar[bool] = True
    takes_complex: ClassVar[bool] = True
    keeps_blocks: ClassVar[bool] = True
    """True if every block stays on scratch; False if only the last one does."""

    def least_passes(self, request: Request, view: View) -> int:
        """Smallest number of passes: one, and one before it that measures columns where these are scaled."""
        return 2 if request.scale and view.orientation is Orientation.ROWS else 1

    def arrange(self, request: Request, view: View, width: int) -> Dimensions:
        """Blocks of ``width`` columns; a sample gives the first where it may be better than a random one."""
        item = view.dtype.itemsize
        grains = cut(view.grid, view.short * item, 8 * view.short * width, device=view.device)
        block = sampled_columns(width, view.short)
        looks_beyond = width < view.short and (block > 0 or not request.adaptive)
        return Dimensions(width, grains, chunk_rows(view.long, request.rank * item), block, looks_beyond)

    def block_passes(self, strategy: Strategy) -> int:
        """Largest number of fused passes."""
        return 1 if strategy.width == strategy.view.short else strategy.passes - strategy.statistics_passes

    def basis_columns(self, strategy: Strategy) -> int:
        """Largest number of columns of all blocks that stay on scratch."""
        block_count = self.block_passes(strategy) if self.keeps_blocks else 1
        return min(strategy.view.short, strategy.width * block_count)

    def sweeps(self, request: Request, strategy: Strategy, slots: int) -> list[Pass]:
        """Planned sweeps with ``slots`` panels in memory: a statistics pass if due, and ``block_sweeps``."""
        before = [statistics_sweep(strategy, slots)] * strategy.statistics_passes
        return [*before, *self.block_sweeps(request, strategy, slots, len(before))]

    def block_sweeps(self, request: Request, strategy: Strategy, slots: int, before: int) -> list[Pass]:
        """Planned fused passes, numbered from ``before`` + 1, and sweeps over their blocks on scratch."""
        width, free_columns = strategy.width, strategy.view.short
        centering = Centering(request.center, request.scale, 1.0, 0.0, 1.0)
        numbers = float(strategy.numbers)
        blocks: list[ScratchMatrix] = []
        sweeps = []
        for index in range(self.block_passes(strategy)):
            y = strategy.y(NOWHERE, index, min(width, free_columns) if self.keeps_blocks else width)
            # A second sketch may be due where the first has chosen directions.
            rows = strategy.sketch_rows if len(blocks) < 2 else 0
            fold = fused_pass(
                strategy,
                slots,
                centering,
                NOWHERE,
                y,
                None,
                measures_columns=True,
                sketch_rows=rows,
                is_double=strategy.fullest > 0,  # if columns are far from zero
            )
            name = f"pass-{before + index + 1:02d}"
            sweep = numbers_of(name, fold, strategy.read_bytes, y.nbytes, 4 * numbers * y.columns)
            sweeps.append(dataclasses.replace(sweep, numbers=strategy.stored_numbers))
            blocks.append(y)
            free_columns -= y.columns
        basis_blocks = blocks if self.keeps_blocks else blocks[-1:]
        return sweeps + narrow_sweeps(request, strategy, tuple(basis_blocks), "ritz")

    def resident_bytes(self, request: Request, strategy: Strategy, over: str) -> int:
        """Bytes that the leading process keeps during a sweep ``over`` ``"matrix"`` or ``"scratch"``.

        Over the matrix: the basis of the pass, with and without weights. Over scratch: small matrices of the
        basis, and short factors.
        """
        short, basis = strategy.view.short, self.basis_columns(strategy)
        if over == "matrix":
            return 3 * 8 * short * strategy.width + LOOPS_BYTES * bool(strategy.fullest)
        return 3 * 8 * short * request.rank + 2 * 8 * basis**2

    def driver_bytes(self, request: Request, strategy: Strategy) -> int:
        """Bytes that the leading process takes at most between sweeps.

        They are those of loaded blocks and images, their products, and what LAPACK copies of them. A sketch
        of rows is counted as it was made, weighted, without the part in the block, and as that part.
        """
        view, short, width = strategy.view, strategy.view.short, strategy.width
        resident, small = self.resident(request, strategy)
        blocks, rows = 8 * (resident * short * width + small), strategy.sketch_rows
        sketch = rows * short * (view.dtype.itemsize + 3 * 8) + 8 * (3 * rows**2 + 4 * short * width)
        loops = LOOPS_BYTES * bool(strategy.fullest)
        return max(strategy.sample_bytes, blocks, sketch * bool(rows)) + strategy.long_vectors_bytes + loops

    def resident(self, request: Request, strategy: Strategy) -> tuple[int, int]:
        """Number of (short, width) blocks in memory at once, and of values in small matrices of the basis.

        The latter are (p, p) for a basis of p columns; those that decomposing them takes are included.
        """
        blocks = 8 * max(self.block_passes(strategy), 1) if request.adaptive else 8
        return blocks, BASIS_SQUARES * self.basis_columns(strategy) ** 2

    def accumulator_bytes(self, request: Request, strategy: Strategy) -> int:
        """Bytes of the sums of a stream: Z, and a sketch of rows."""
        short = strategy.view.short
        return 8 * short * strategy.width + strategy.sketch_rows * short * strategy.view.dtype.itemsize

    def make_sample_block(self, request: Request, strategy: Strategy, rows: npt.NDArray[Any]) -> State:
        """``leading_block`` of sampled ``rows`` (l, short), or ``NO_BLOCK`` if it does not fit other rows."""
        if not tells_of_others(rows, request.seed):
            return NO_BLOCK
        return leading_block(rows, strategy.vectors(strategy.width), request.seed, paired=strategy.paired)


def statistics_sweep(strategy: Strategy, slots: int) -> Pass:
    """The planned pass that measures columns before all others, for scaling; ``slots`` panels in memory."""
    fold = statistics_fold(strategy, slots, np.zeros(0), Centering(True, True, 1.0, 0.0, 1.0))
    sweep = numbers_of("statistics", fold, strategy.read_bytes, 0, 4.0 * strategy.numbers)
    return dataclasses.replace(sweep, numbers=strategy.stored_numbers)


def narrow_sweeps(
    request: Request, strategy: Strategy, blocks: tuple[ScratchMatrix, ...], name: str
) -> list[Pass]:
    """Planned sweeps over ``blocks`` on scratch: one finds R, another writes the long factor if it is wanted.

    ``name`` is that of the first. Their memory is the most of one block of directions and of all, which are
    kept where rounding mixes them.
    """
    view, most = strategy.view, strategy.solver.basis_columns(strategy)
    by_rows, seconds = view.orientation is Orientation.ROWS, strategy.row_seconds(4)
    choices = [
        Combination(blocks, NOWHERE, columns, 0, 0) for columns in sorted({min(strategy.width, most), most})
    ]
    cuts = [strategy.narrow_cut(choice, request.rank) for choice in choices]
    reads = view.long * choices[0].row_bytes
    flops = 2.0 * view.long * choices[0].width * (most + choices[0].width)
    folds: list[list[Any]] = [[NarrowR(c, cut, seconds) for c, cut in zip(choices, cuts, strict=True)]]
    if request.rows or not by_rows:
        chunks = (NOWHERE, NOWHERE, not by_rows, view.dtype, request.rank, seconds)
        folds.append([WriteRows(c, cut, *chunks) for c, cut in zip(choices, cuts, strict=True)])
    sweeps = []
    for sweep_name, same in zip((name, "rows"), folds, strict=False):
        writes = view.long * request.rank * view.dtype.itemsize if sweep_name == "rows" else 0
        sweep = numbers_of(sweep_name, same[0], reads, writes, flops, over="scratch")
        largest = max(same, key=lambda fold: int(fold.memory_bytes))
        bytes_ = {"segment_bytes": largest.memory_bytes, "accumulator_bytes": largest.accumulator_bytes}
        sweeps.append(dataclasses.replace(sweep, **bytes_))
    return sweeps


# Decompositions -------------------------------------------------------------------------------------


def of_triplets(
    strategy: Strategy,
    centering: Centering,
    triplets: Triplets,
    columns: Statistics,
    convergence: list[float],
) -> Decomposition:
    """Convert triplets of the matrix times its factor to a decomposition in the units of the data.

    ``columns`` are the statistics of its columns, ``convergence`` the largest error after each pass.
    """
    return Decomposition(
        triplets.s / centering.factor,
        triplets.short,
        triplets,
        columns,
        triplets.residuals,
        triplets.errors,
        convergence,
        squared_norm(strategy, columns.total, centering.factor),
    )


def truncation_facts(cut: Truncation, strategy: Strategy) -> dict[str, Any]:
    """The fact ``approximation_error``: that of ``cut``, with the rounding of factors as they are stored."""
    storage_error = STORAGE_ROUNDING * float(np.finfo(strategy.view.dtype).eps)
    return {"approximation_error": float(np.hypot(cut.error, storage_error))}


def squared_norm(strategy: Strategy, total: float, factor: float) -> float:
    """Sum of squares in the units of the data, from that of the matrix times ``factor``, ``total``.

    Raises
    ------
    DataError
        Float64 does not hold it.
    """
    value = float(total) / factor / factor
    if not np.isfinite(value) or (value < np.finfo(np.float64).tiny and total > 0):
        raise DataError(
            f"the sum of squares of {strategy.view.source.name}, with elements near {1 / factor:.0e}, "
            "leaves the range of float64. Rescale it"
        )
    return value
