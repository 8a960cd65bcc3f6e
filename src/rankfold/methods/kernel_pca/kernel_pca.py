"""Principal components in the space of a kernel function: from all pairs of rows, none of which is stored.

Each step of the iteration is a sweep over all pairs. Its product is stored, so that a run that was killed
loads finished products from disk and goes on. Vectors are in memory, and rows if there is room for them.

References
----------
Schoelkopf, Smola, Mueller, Nonlinear component analysis as a kernel eigenvalue problem, Neural Computation
10(5), 1998.

Memory of kernel_pca, and whether rows stay in it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankfold.methods.claims import claim, has_converged, in_words
from rankfold.methods.kernel_pca.arguments import KernelPcaArguments
from rankfold.methods.kernel_pca.eigenpairs import (
    CenteredSimilarities,
    Eigenpairs,
    dense_bytes,
    is_dense,
    pairs_by_products,
    pairs_of_dense,
)
from rankfold.methods.kernel_pca.request import KernelPcaRequest
from rankfold.methods.parts.outputs import create_output, write_outputs
from rankfold.methods.parts.square_range import refuse_faint
from rankfold.methods.similarity.blocks import RowBlocks, block_bytes, edges_of, tallest
from rankfold.methods.similarity.features import EVALUATION_FLOPS
from rankfold.methods.similarity.operator import SimilarityMatrix, passing_bytes
from rankfold.methods.svd.in_memory.lanczos import BLOCK, room
from rankfold.methods.svd.strategy import chunk_rows
from rankfold.methods.task import Output, count, vectors
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import working_dtype
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.planning.passes import BLAS_BYTES, RESERVE_BYTES, Pass
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, TaskFacts, plan_task
from rankfold.pipeline.prepare.moments import FAINTEST
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks

DOUBLE = np.dtype(np.float64)


@dataclass(frozen=True, slots=True)
class KernelPca:
    """Task of the principal components of a matrix in the space of a kernel function."""

    source: Source
    parameters: KernelPcaRequest

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """Type of the copy of the rows in the result, which new rows are compared with: no digit is lost."""
        return working_dtype(self.source.dtype)

    def request(self) -> dict[str, Any]:
        """Everything besides the numbers in ``source`` that determines the scores, as JSON types."""
        return self.parameters.as_dict()

    def outputs(self) -> tuple[Output, ...]:
        """Declare the arrays of the result: scores, copy of the rows, eigenvalues with errors, means."""
        (rows, columns), rank = self.source.shape, self.parameters.rank
        return (
            Output("scores", (rows, rank), DOUBLE, count(rows, chunk_rows(rows, 8 * rank))),
            Output("rows", (rows, columns), self.stored_dtype, count(rows, self._tall)),
            *vectors(rank, "eigenvalues", "residuals", "error_estimates", "offset"),
            *vectors(columns, "shift"),
        )

    @property
    def _tall(self) -> int:
        """Rows in a chunk of the copy of the matrix in the result."""
        return chunk_rows(self.source.shape[0], self.source.shape[1] * self.stored_dtype.itemsize)

    # Plan -----------------------------------------------------------------------------------------

    def plan(self, budget: Budget) -> Plan:
        """Plan of the sweeps over all pairs, with rows in memory if they fit."""
        (rows, columns), rank = self.source.shape, self.parameters.rank
        copy = rows * columns * self.stored_dtype.itemsize
        task_facts = TaskFacts(
            "kernel_pca",
            "dense" if is_dense(rows, rank) else "lanczos",
            self.source,
            DOUBLE,
            "rows",
            rank,
            result_bytes=8 * rows * rank + copy,
            scratch_bytes=0,
            subject=f"kernel_pca of {rows} rows with {rank} components",
        )
        return plan_task(task_facts, self, budget)

    def arrange(self, budget: Budget) -> FittedSweeps:
        """Arrange the sweeps in one process with its threads; rows stay in memory if they fit."""
        return arrange(self.source, self.parameters, budget)

    # Run ------------------------------------------------------------------------------------------

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Compute the eigenpairs and write the scores; returns the facts (metadata) of the result."""
        asked, (rows, _) = self.parameters, self.source.shape
        stays = run.slots == IN_MEMORY
        with one_blas_thread():
            blocks = RowBlocks.of(self.source, asked.choice.similarity, stay=stays)
            began = time.perf_counter()
            if is_dense(rows, asked.rank):
                method, pairs = "dense", pairs_of_dense(blocks, asked.rank)
                run.passes += 1
                if run.progress:
                    run.progress("pairs", rows, rows)
            else:
                method, pairs = "lanczos", self._iterate(run, blocks, 1 if stays else run.slots)
            run.seconds["pairs"] = time.perf_counter() - began
            if asked.choice.kernel == "linear" and pairs.values[0] < FAINTEST**2:
                refuse_faint(self.source)
            self._write(run, blocks, pairs)
        self._warn(run, pairs)
        facts = {
            **run.facts(self.request(), method, self.source, fingerprint),
            **_facts(pairs, self.parameters.tol),
        }
        run.describe(facts)
        return facts

    def _iterate(self, run: Run, blocks: RowBlocks, group: int) -> Eigenpairs:
        """Eigenpairs by sweeps over all pairs of rows.

        Products are stored if the run may be resumed. ``group`` is the number of blocks of rows in memory
        while others pass.
        """
        asked, rows = self.parameters, self.source.shape[0]
        matrix = SimilarityMatrix(blocks, run.concurrency, group)
        part = (
            (lambda number: run.part("products", f"{number:04d}.part")) if run.file_policy.resumable else None
        )
        centered = CenteredSimilarities(matrix, part, run.prepare)
        tell, matrix.tell = _tellers(run, rows, asked.tol)
        pairs = pairs_by_products(centered, asked.rank, (asked.tol, asked.passes, asked.seed), tell)
        run.passes += centered.products
        return pairs

    def _write(self, run: Run, blocks: RowBlocks, pairs: Eigenpairs) -> None:
        """Write all arrays of the result, from the eigenpairs; ``blocks`` gives the shift of rows."""
        rank, (rows, columns) = self.parameters.rank, self.source.shape
        roots = np.sqrt(pairs.values)
        inverse = np.divide(1.0, roots, out=np.zeros(rank), where=roots > 0)
        height = chunk_rows(rows, 8 * rank)
        path = create_output(run.result, "scores", (rows, rank), DOUBLE, (height, rank))
        for start in range(0, rows, height):
            stop = min(rows, start + height)
            write_whole_chunks(path, pairs.vectors[start:stop] * roots, (start, stop), (0, rank))
        path = create_output(run.result, "rows", (rows, columns), self.stored_dtype, (self._tall, columns))
        for start in range(0, rows, self._tall):
            stop = min(rows, start + self._tall)
            raw = np.empty((stop - start, columns), self.source.dtype)
            self.source.read_into(raw, (start, stop), (0, columns))
            write_whole_chunks(path, raw.astype(self.stored_dtype), (start, stop), (0, columns))
        small = {
            "eigenvalues": pairs.values,
            "residuals": pairs.residuals,
            "error_estimates": pairs.errors,
            "offset": (pairs.means @ pairs.vectors) * inverse,
            "shift": blocks.shift,
        }
        write_outputs(run.result, small)

    def _warn(self, run: Run, pairs: Eigenpairs) -> None:
        """Add warnings to ``run``, on a kernel function that is not positive, and on low accuracy."""
        asked, none = self.parameters, int((pairs.values <= 0).sum())
        if pairs.negative:
            some = str(pairs.negative) if pairs.is_whole else f"at least {pairs.negative}"
            run.warnings.append(
                f"the kernel {asked.choice.kernel} is not positive here: {some} eigenvalues are negative, "
                f"down to {pairs.least:.3g}, beside the largest of {pairs.values[0]:.3g}"
            )
        if none:
            run.warnings.append(
                f"{none} of {asked.rank} components have no variance beyond rounding: their scores are 0"
            )
        if not has_converged(pairs.largest_error, asked.tol):
            error, allowed = in_words(pairs.largest_error, asked.tol)
            way = "rounding hides what is left: give" if pairs.is_whole else "allow more passes, or"
            run.warnings.append(
                f"eigenvalues are off by up to {error} of themselves after {run.passes} sweeps, above what "
                f"tol {allowed} asks for: {way} a larger tol"
            )


def _facts(pairs: Eigenpairs, tol: float) -> dict[str, Any]:
    """Facts on the accuracy of the eigenpairs, and on the share of the trace that they explain."""
    total = pairs.trace
    return {
        "trace": total,
        "explained_share": min(float(pairs.values.sum()) / total, 1.0) if total > 0 else 0.0,
        "negative_eigenvalues": pairs.negative,
        "least_eigenvalue": pairs.least,
        "all_eigenvalues": pairs.is_whole,
        **claim(pairs.largest_error, tol),
    }


def _tellers(run: Run, rows: int, tol: float) -> tuple[Callable[[float], None], Callable[[int], None]]:
    """Two callbacks that report progress.

    The first takes an error, and computes the share done from its digits beyond ``tol``; the second shows
    that share, as a number of rows, whatever it is called with.
    """
    first: list[float] = []
    done = [0]

    def tell_error(error: float) -> None:
        first.append(max(error / max(tol, 1e-16), math.e))
        share = 1 - math.log(max(first[-1], 1.0)) / math.log(max(first))
        done[0] = max(done[0], int(rows * min(share, 0.99)))

    def tell(_: int) -> None:
        if run.progress:
            run.progress("pairs", done[0], rows)

    return tell_error, tell


def kernel_pca_task(x: object, arguments: KernelPcaArguments) -> KernelPca:
    """Make the task of kernel principal components of a matrix."""
    source = open_source(x)
    return KernelPca(source, KernelPcaRequest.of(source, arguments))


IN_MEMORY = 0
"""Value of ``slots`` in a plan where all rows stay in memory; other values are the number of blocks of a
group."""

GROUP = 16
"""Largest number of blocks of rows in a group, which stays in memory while other blocks pass. Sums are saved
after each group."""

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
