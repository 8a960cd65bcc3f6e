"""Bytes, operations, memory and tasks of a sweep, computed from its fold (what it does with each panel).

A sweep reads a matrix, or scratch, in panels: rows that are read at once. A stream is a run of panels that
are folded into one set of sums, its accumulator; accumulators are merged in the end. A segment is a part of a
stream, the unit of work of a worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import runs_on_device
from rankfold.pipeline.engine.sweep import SEGMENT_SECONDS, part_counts

BLAS_BYTES = 24 * 2**20
"""Most bytes of packing buffers that a thread of OpenBLAS touches in our products."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Bytes, operations, memory and tasks of one sweep, for a plan."""

    name: str
    over: str
    """What the sweep reads: ``"matrix"`` or ``"scratch"``."""

    reads_bytes: int
    writes_bytes: int
    flops: float
    segment_bytes: int
    """Most memory of one segment, with a workspace and two accumulators; a merge takes its place."""

    tasks: int
    streams: int
    accumulator_bytes: int = 0
    """Bytes of the sums of a stream; 0 where they are not worth counting."""

    merge_bytes: int = 0
    """Bytes of a merge besides its two accumulators, and beyond those of a segment."""

    blas_bytes: int = BLAS_BYTES
    """Bytes of packing buffers that a BLAS thread allocates in a segment, and keeps."""

    item: int = 0
    """Bytes of a value in its products; 0 if these are made in the working dtype."""

    numbers: int = 0
    """Number of stored entries that it reads, if a sparse matrix is not made dense; else 0."""

    is_likely: bool = True
    """False if a method is likely to skip it because of earlier findings."""

    on_device: bool = False
    """True if every kernel of its fold has a body for a GPU."""

    resident_bytes: int = 0
    """Bytes that the driver keeps in memory during the sweep, besides those of segments."""

    device_bytes: int = 0
    """Most memory of a GPU; 0 if the sweep does not run on one."""

    exchange_bytes: int = 0
    """Bytes that each worker reads from others in the whole pass."""


def numbers_of(name: str, fold: Any, reads: int, writes: int, flops: float, *, over: str = "matrix") -> Pass:
    """Make the ``Pass`` of a sweep by a fold, from the bytes that it reads and writes and its operations."""
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
    """Most bytes that a thread of OpenBLAS packs of operands with at most these sides and bytes.

    Of one operand a block of at most 2 MiB, of the other at most 512 rows of 8 bytes, as long as it is up
    to some thousand columns (parameters P, Q and R of its products; Q is 256 to 384 on common processors),
    and no more than there is of it.

    >>> blas_bytes(1000) / 2**20, blas_bytes(10**6) / 2**20, blas_bytes(10**6, 2**22) / 2**20
    (5.90625, 24.0, 6.0)
    """
    return min(BLAS_BYTES, 2 * 2**20 + min(512 * 8 * longest_side, operand_bytes))
