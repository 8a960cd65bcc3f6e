"""Bytes, operations, memory and tasks of a sweep, computed from its fold (what it does with each panel).

A sweep reads a matrix, or scratch, in panels: rows that are read at once. A stream is a run of panels that
are folded into one set of sums, its accumulator; accumulators are merged in the end. A segment is a part of a
stream, the unit of work of a worker.

Most memory of a process in a sweep, and how many segments fit at once.

A segment is a part of a stream, the unit of work of a worker; a stream is a run of panels (rows read at once)
that are folded into an accumulator, a set of sums.

Memory of different phases is not added up: segments hold their workspaces and one accumulator each, merges
hold two accumulators besides the idle workspaces, and the driver does its algebra when there are neither. A
sweep of two streams never has more than two segments, however many threads there are.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import runs_on_device
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.engine.sweep import FAN_IN, SEGMENT_SECONDS, part_counts

BLAS_BYTES = 24 * 2**20
"""Largest number of bytes of packing buffers that a thread of OpenBLAS touches in our products."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Bytes, operations, memory and tasks of one sweep, for a plan."""

    name: str
    over: str
    """What the sweep reads: ``"matrix"`` or ``"scratch"``."""

    reads_bytes: int
    """Bytes that the whole sweep reads."""

    writes_bytes: int
    """Bytes that the whole sweep writes."""

    flops: float
    """Floating-point operations of the whole sweep."""

    segment_bytes: int
    """Largest bytes of one segment, with a workspace and two accumulators; a merge takes its place."""

    tasks: int
    """Number of Dask tasks: segments and merges."""

    streams: int
    """Number of streams, so the largest number of segments that run at once."""

    accumulator_bytes: int = 0
    """Bytes of the sums of a stream; 0 where they are not worth counting."""

    merge_bytes: int = 0
    """Bytes that a merge takes in addition to its two accumulators and the workspace of a segment."""

    blas_bytes: int = BLAS_BYTES
    """Bytes of packing buffers that a BLAS thread allocates in a segment, and keeps."""

    item: int = 0
    """Bytes of a value in the matrix products of the sweep; 0 if they are made in the working dtype."""

    numbers: int = 0
    """Number of stored entries that the sweep reads, if a sparse matrix is not made dense; else 0."""

    is_likely: bool = True
    """False if a method is likely to skip the sweep because of what earlier ones find."""

    on_device: bool = False
    """True if every kernel of its fold has a body for a GPU."""

    resident_bytes: int = 0
    """Bytes that the driver keeps in memory during the sweep, besides those of segments."""

    device_bytes: int = 0
    """Largest bytes of a GPU's memory in the sweep; 0 if it does not run on one."""

    exchange_bytes: int = 0
    """Bytes that each worker reads from others in the whole pass."""


def numbers_of(name: str, fold: Any, reads: int, writes: int, flops: float, *, over: str = "matrix") -> Pass:
    """Make the ``Pass`` of the sweep ``name`` by a fold, from the bytes it reads and writes, and its flops.

    ``over`` is what it reads: ``"matrix"`` or ``"scratch"``.
    """
    cut: Cut = fold.cut
    segment_rows = max(1, int(SEGMENT_SECONDS / fold.row_seconds))
    segments = max(cut.stream_count, -(-cut.length // segment_rows))
    merges = sum(part_counts(cut.stream_count)[1:])
    tasks, sums = segments + merges, getattr(fold, "accumulator_bytes", 0)
    more = getattr(fold, "merge_bytes", 0)
    sizes = (
        fold.memory_bytes,
        tasks,
        cut.stream_count,
        sums,
        more,
        blas_bytes(getattr(fold, "longest_side", BLAS_BYTES), getattr(fold, "operand_bytes", BLAS_BYTES)),
    )
    on_device = runs_on_device(getattr(fold, "kernels", ()))
    device_bytes = fold.device_bytes if on_device else 0
    return Pass(name, over, reads, writes, flops, *sizes, on_device=on_device, device_bytes=device_bytes)


def blas_bytes(longest_side: int, operand_bytes: int = BLAS_BYTES) -> int:
    """Upper bound on the bytes of packing buffers that a thread of OpenBLAS takes for a product.

    ``longest_side`` is the largest number of rows or columns of an operand, ``operand_bytes`` its largest
    size. Of one operand a block of at most 2 MiB, of the other at most 512 rows of 8 bytes, as long as it is
    up to some thousand columns (parameters P, Q and R of its products; Q is 256 to 384 on common processors),
    and no more than there is of it.

    >>> blas_bytes(1000) / 2**20, blas_bytes(10**6) / 2**20, blas_bytes(10**6, 2**22) / 2**20
    (5.90625, 24.0, 6.0)
    """
    return min(BLAS_BYTES, 2 * 2**20 + min(512 * 8 * longest_side, operand_bytes))


RESERVE_BYTES = 12 * 2**20
"""Bytes reserved for graphs, tables, small vectors, and memory that the allocator keeps."""

SAVED_BYTES = 16 * 2**20
"""Bytes of an accumulator that are copied at a time while a checkpoint is written."""


def sweep_bytes(sweep: Pass, concurrency: int) -> int:
    """Upper bound on the bytes of a process, without BLAS, that runs ``concurrency`` segments of a sweep.

    There are no more segments than streams. Merges begin when all streams have ended, as many at once as
    there are groups of ``FAN_IN`` streams; one stream is not merged.
    """
    segments, each = min(concurrency, sweep.streams), sweep.accumulator_bytes
    accumulators = segments * (each + min(each, SAVED_BYTES))
    if sweep.streams > 1:
        merges = min(segments, -(-sweep.streams // FAN_IN))
        accumulators = max(accumulators, merges * (2 * each + sweep.merge_bytes))
    beside = sweep.segment_bytes - 2 * each
    return sweep.resident_bytes + segments * beside + accumulators


def peak_bytes(sweeps: Sequence[Pass], concurrency: int, driver_bytes: int) -> int:
    """Upper bound on the bytes of a process: in one of its sweeps, or in the algebra between them.

    ``concurrency`` is the number of segments at once, ``driver_bytes`` the memory of that algebra.

    BLAS keeps its packing buffers, for as many threads as ever called it at once.
    """
    concurrency = max(concurrency, 1)
    most = max(sweep_bytes(sweep, concurrency) for sweep in sweeps)
    buffers = sum(
        max((sweep.blas_bytes for sweep in sweeps if sweep.streams > thread), default=0)
        for thread in range(concurrency)
    )
    return RESERVE_BYTES + max(most + buffers, driver_bytes + BLAS_BYTES)


def _is_above(sweeps: Sequence[Pass], memory_bytes: int, concurrency: int) -> bool:
    return peak_bytes(sweeps, concurrency, 0) > memory_bytes


def fit(
    sweeps_of: Callable[[int], Sequence[Pass]], driver_bytes: int, budget: Budget
) -> tuple[int, int, int]:
    """Segments at once (0 if not even one fits), panel buffers of each segment, and the peak in bytes.

    ``sweeps_of`` returns the sweeps for a number of buffers, ``driver_bytes`` is the memory of the algebra
    between them. Threads go before buffers: reading ahead gains less than a second thread does.
    """
    options = []
    for slots in (2, 1) if budget.device == "cpu" else range(budget.readers + 2, 2, -1):
        sweeps = sweeps_of(slots)
        most = min(budget.threads, max(sweep.streams for sweep in sweeps))
        # More segments at once never take less memory.
        is_above = functools.partial(_is_above, sweeps, budget.memory_bytes)
        concurrency = bisect.bisect_left(range(1, most + 1), True, key=is_above)
        options.append((concurrency, slots, peak_bytes(sweeps, concurrency, driver_bytes)))
        if concurrency == budget.threads:  # fewer buffers cannot let more fit
            break
    best = max(options, key=lambda option: option[0])
    return best if best[0] else options[-1]
