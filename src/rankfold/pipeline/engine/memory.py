"""Memory that a process really holds: anonymous resident memory, sampled while work is done.

RssAnon leaves out page cache and mapped files, which the kernel takes back at will. Reading it costs
some ten microseconds. Linux only: elsewhere there is no such number, and it is ``None``.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rankfold.pipeline.engine.control_groups import MemoryLimit, tightest_limit

_STATUS = Path("/proc/self/status")
_MEMINFO = Path("/proc/meminfo")
FIELDS_BYTES = 2**16
"""Most bytes that are read of such files, which are some thousand bytes long."""


def anonymous_bytes() -> int | None:
    """Anonymous resident memory of this process in bytes, or None where the system does not say."""
    return _field(_STATUS, "RssAnon:")


_baseline: list[int] = []


def note_baseline() -> None:
    """Record the memory that this process holds now as its baseline, without any work."""
    _baseline[:] = [anonymous_bytes() or 0]


def renew_baseline() -> None:
    """Record the baseline again, if one was noted, for new memory that stays and is no work."""
    if _baseline:
        note_baseline()


def forget_baseline() -> None:
    """Forget the baseline: the process may live on, and hold memory that is not from work of ours."""
    _baseline.clear()


def bytes_above_baseline() -> int:
    """Anonymous memory above the noted baseline; 0 in a process that noted none."""
    return max(0, (anonymous_bytes() or 0) - _baseline[0]) if _baseline else 0


def available_bytes() -> int:
    """Memory that this process could still take, within its control groups."""
    available = _field(_MEMINFO, "MemAvailable:")
    if available is None:
        available = _machine_bytes() // 2
    limit = memory_limit()
    return available if limit is None else min(available, limit.room_bytes)


def memory_limit() -> MemoryLimit | None:
    """Limit of the control groups of this process, as of a SLURM job; None where there is none."""
    return tightest_limit(_machine_bytes())


@functools.cache
def _machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Numbers of the options of ``mallopt`` in glibc's malloc.h."""

HEAP_BLOCK_BYTES = 4 * 2**20
"""Size from which blocks are mapped, and returned to the system when they are freed. NumPy asks for huge
pages from this size on, so that fresh ones cost few faults."""


@functools.cache
def bound_heaps() -> None:
    """Make the C library of this process keep little freed memory, where it has options for that.

    By default glibc gives each thread a heap, and keeps freed memory in it: after the first block of 8 MiB is
    freed, all that are as large come from heaps. So a process keeps the largest temporary of every thread
    that it ever had, including threads that have ended. Here there is one heap, blocks of
    ``HEAP_BLOCK_BYTES`` lie outside it, and twice that much is kept at its end.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = _c_library().mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, HEAP_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * HEAP_BLOCK_BYTES)


def return_freed_memory() -> None:
    """Give freed heap pages back to the system, where the C library can; it keeps them otherwise."""
    with contextlib.suppress(OSError, AttributeError):
        _c_library().malloc_trim(0)


@functools.cache
def _c_library() -> ctypes.CDLL:
    """C library of this process, cached: opening it takes longer than the calls to it."""
    return ctypes.CDLL(None)


def _field(path: Path, name: str) -> int | None:
    """Bytes in a line of a file of ``/proc``; few operations, as it is read a hundred times a second."""
    try:
        with open(path, "rb", buffering=0) as file:
            text = b"\n" + file.read(FIELDS_BYTES)
    except OSError:
        return None
    _, found, rest = text.partition(f"\n{name}".encode())
    return int(rest.split(maxsplit=1)[0]) * 1024 if found else None


@dataclass(slots=True)
class PeakMemory:
    """Anonymous memory of a process over a stretch of time."""

    baseline: int | None
    """Bytes before the work: interpreter, imports and compiled kernels."""

    peak: int | None
    """Largest number of bytes sampled."""

    @property
    def above_baseline(self) -> int | None:
        """Peak less baseline."""
        return None if self.peak is None or self.baseline is None else self.peak - self.baseline


@contextlib.contextmanager
def watched_memory(interval_seconds: float = 0.01) -> Iterator[PeakMemory]:
    """Sample anonymous memory in a thread of its own until the block ends."""
    start = anonymous_bytes()
    peak = PeakMemory(start, start)
    end = threading.Event()

    def sample() -> None:
        while not end.wait(interval_seconds):
            peak.peak = max(peak.peak or 0, anonymous_bytes() or 0)

    thread = threading.Thread(target=sample, name="rankfold-memory", daemon=True)
    if start is not None:
        thread.start()
    try:
        yield peak
    finally:
        end.set()
        if start is not None:
            thread.join()
            peak.peak = max(peak.peak or 0, anonymous_bytes() or 0)
