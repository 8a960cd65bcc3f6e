"""Memory of kernel_pca, and whether rows stay in it."""

from __future__ import annotations

from rankfold.methods.kernel_pca.eigenpairs import dense_bytes, is_dense
from rankfold.methods.kernel_pca.request import KernelPcaRequest
from rankfold.methods.similarity.blocks import block_bytes, edges_of, tallest
from rankfold.methods.similarity.features import EVALUATION_FLOPS
from rankfold.methods.similarity.operator import passing_bytes
from rankfold.methods.svd.in_memory.lanczos import BLOCK, room
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.planning.passes import BLAS_BYTES, Pass
from rankfold.pipeline.planning.peak_memory import RESERVE_BYTES
from rankfold.pipeline.planning.planner import FittedSweeps

IN_MEMORY = 0
"""Value of ``slots`` in a plan with all rows in memory; others are the number of blocks of a group."""

GROUP = 16
"""Most blocks of rows of a group, which stays in memory while other blocks pass. Sums are saved after each
group."""

VECTORS = 12 * BLOCK + 40
"""Float64 values for each row besides basis and eigenvectors: vectors in use, their products, and sums."""

LIKELY_PASSES = 12


def arrange(source: Source, asked: KernelPcaRequest, budget: Budget) -> FittedSweeps:
    """Arrange the sweeps in one process with as many threads as fit; rows stay in memory if there is room."""
    rows, columns = source.shape
    dense = is_dense(rows, asked.rank)
    basis = 0 if dense else room(asked.rank, rows)
    vectors = 8 * rows * (basis + VECTORS + 3 * asked.rank) + 6 * 8 * basis**2
    vectors += dense_bytes(rows) if dense else 0
    whole, block = block_bytes(source, rows), block_bytes(source, tallest(source))
    count, available = len(edges_of(source)) - 1, budget.memory_bytes - RESERVE_BYTES - vectors
    kind = asked.choice.similarity.kind
    fits = (t for t in range(budget.threads, 1, -1) if _passing(source, kind, t) + block <= available)
    threads = next(fits, 1)
    passing, beside = (_passing(source, kind, threads, stays=stays) for stays in (False, True))
    # If all rows take no more memory than blocks that pass, they stay whatever the budget is.
    stays = whole + beside <= max(available, passing + block)
    group = max(1, min(GROUP, count, (available - passing) // block))
    memory = vectors + (beside + whole if stays else passing + group * block)
    met = 1 if stays else max(1.0, count / group / 2)
    reads = int(rows * columns * source.dtype.itemsize * met)
    flops = float(rows) ** 2 / 2 * (2 * columns + EVALUATION_FLOPS + 4 * BLOCK)
    item = 8 * rows * BLOCK
    sweeps = (Pass("pairs", "matrix", reads, item, flops, memory, 1, 1, blas_bytes=0),)
    most = 1 if dense else asked.passes + 1
    likely = 1 if dense else min(asked.passes, LIKELY_PASSES)
    each = RESERVE_BYTES + memory, memory, (likely + 2) * item * (not dense)
    where = threads, rows, rows, most, likely, IN_MEMORY if stays else group
    return FittedSweeps(sweeps, threads, *each, *where)


def _passing(source: Source, kind: int, threads: int, *, stays: bool = False) -> int:
    return passing_bytes(source, kind, threads, BLOCK + 1, stays=stays) + BLAS_BYTES
