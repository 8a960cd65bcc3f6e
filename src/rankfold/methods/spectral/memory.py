"""Memory of a spectral embedding, and whether the graph stays in it."""

from __future__ import annotations

from rankfold.methods.spectral.request import SpectralRequest
from rankfold.methods.spectral.walk.blocks import AHEAD, BLOCK_NUMBERS
from rankfold.methods.spectral.walk.filter import block_width
from rankfold.methods.spectral.walk.solve import dense_bytes, is_dense
from rankfold.pipeline.data.source import Source, compressed
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.formats.csr import entry_bytes
from rankfold.pipeline.importing.csr_writer import chunk_length
from rankfold.pipeline.planning.passes import Pass
from rankfold.pipeline.planning.peak_memory import RESERVE_BYTES
from rankfold.pipeline.planning.planner import FittedSweeps

IN_MEMORY = 1
"""Value of ``slots`` in a plan whose graph stays in memory; with other values it is read in each sweep."""

VECTORS = 6
"""Most blocks of vectors in memory at once: in a filter, or in a Rayleigh-Ritz step with copies by LAPACK."""

OF_ROW = 12
"""Other float64 values for each vertex: degrees, factors, components, coefficients of steps."""

OF_EDGE = 48
"""Bytes for each edge of a block of rows while degrees are summed."""

LIKELY_READS = 200


def arrange(source: Source, numbers: int, asked: SpectralRequest, budget: Budget) -> FittedSweeps:
    """Arrange the passes in one process with all its threads; the graph stays in memory if it fits.

    ``numbers`` is the count of stored weights.
    """
    rows, width = source.shape[0], block_width(asked.n_components)
    vectors = 8 * rows * (VECTORS * width + OF_ROW + 3 * asked.n_components)
    if is_dense(rows, asked.n_components):
        vectors += dense_bytes(rows)
    in_memory, streamed = (vectors + _graph_bytes(source, numbers, stay=stay) for stay in (True, False))
    stays = RESERVE_BYTES + in_memory <= budget.memory_bytes
    memory = in_memory if stays else streamed
    item = 4 + (4 if max(rows, numbers) < 2**31 else 8)
    reads, block = numbers * item, 16 * rows * width
    sweeps = (
        Pass("degrees", "matrix", reads, 0, 20.0 * numbers, memory, 1, 1, blas_bytes=0),
        Pass(
            "filters",
            "matrix",
            reads,
            block,
            2.0 * numbers * width * LIKELY_READS,
            memory,
            1,
            1,
            blas_bytes=0,
        ),
    )
    most, likely = asked.passes + 2, min(asked.passes, LIKELY_READS) + 2
    each = RESERVE_BYTES + memory, memory, block
    where = budget.threads, rows, rows, most, likely, IN_MEMORY if stays else AHEAD
    return FittedSweeps(sweeps, budget.threads, *each, *where)


def _graph_bytes(source: Source, numbers: int, *, stay: bool) -> int:
    """Bytes of the whole graph if it stays in memory, else of the blocks of rows held at once.

    Includes reading a block, and summing its degrees.
    """
    rows = source.shape[0]
    block = min(numbers, BLOCK_NUMBERS + rows)
    item = 4 + (4 if max(rows, numbers) < 2**31 else 8)
    stored = compressed(source)
    if stored is not None:
        item = source.dtype.itemsize + item - 4
        reading = stored.sparse_bytes(block)
    else:
        chunk = chunk_length(numbers)
        reading = 16 * chunk + entry_bytes(rows, block)
    at_once = numbers if stay else min(numbers, AHEAD * block)
    return at_once * item + 8 * rows + reading + OF_EDGE * block
