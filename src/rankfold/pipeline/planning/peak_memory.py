"""Most memory of a process in a sweep, and how many segments fit at once.

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

from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.engine.sweep import FAN_IN
from rankfold.pipeline.planning.passes import BLAS_BYTES, Pass

RESERVE_BYTES = 12 * 2**20
"""Bytes reserved for graphs, tables, small vectors, and memory that the allocator keeps."""

SAVED_BYTES = 16 * 2**20
"""Bytes of an accumulator that are copied at a time while a checkpoint is written."""


def sweep_bytes(sweep: Pass, concurrency: int) -> int:
    """Most memory of a sweep, without BLAS, in a process that runs ``concurrency`` segments at once.

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
    """Most memory of a process: in one of its sweeps, or in the algebra between them.

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

    ``sweeps_of`` gives the sweeps for a number of buffers. Threads go before buffers: reading ahead gains
    less than a second thread does.
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
