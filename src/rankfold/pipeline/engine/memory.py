"""Memory that a process really holds: anonymous resident memory, sampled while work is done.

RssAnon leaves out page cache and mapped files, which the kernel takes back at will. Reading it costs
some ten microseconds. Linux only: elsewhere there is no such number, and it is ``None``.

Memory that control groups leave to a process: those of SLURM jobs, of services, and of containers.

Groups form a tree, and a process may take no more than each group on its path leaves. The kernel reports in
``/proc/self/cgroup`` where a process is, and in ``/proc/self/mountinfo`` where the tree is mounted: version 2
has one tree, version 1 one for each controller. Groups above the root of a mount cannot be seen.

Page cache counts as usage of a group, but the kernel reclaims its inactive part before it refuses memory. So
this part of the usage is counted as room.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_STATUS = Path("/proc/self/status")
_MEMINFO = Path("/proc/meminfo")
FIELDS_BYTES = 2**16
"""Largest number of bytes read of ``status`` and ``meminfo`` in ``/proc``, which have some thousand bytes."""


def anonymous_bytes() -> int | None:
    """Anonymous resident memory of this process in bytes, or None where the system does not say."""
    return _field(_STATUS, "RssAnon:")


_baseline: list[int] = []


def note_baseline() -> None:
    """Record the memory that this process holds now, before any work, as its baseline."""
    _baseline[:] = [anonymous_bytes() or 0]


def renew_baseline() -> None:
    """Record the baseline again, if one was noted: for new memory that stays and belongs to no work."""
    if _baseline:
        note_baseline()


def forget_baseline() -> None:
    """Forget the baseline: the process may live on, and hold memory that is not from work of ours."""
    _baseline.clear()


def bytes_above_baseline() -> int:
    """Bytes of anonymous memory of this process above its noted baseline; 0 if it noted none."""
    return max(0, (anonymous_bytes() or 0) - _baseline[0]) if _baseline else 0


def available_bytes() -> int:
    """Bytes of memory that this process could still take, within its control groups."""
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
"""Bytes from which on blocks are mapped, and returned to the system when they are freed.

NumPy asks for huge pages from this size on, so that fresh ones cost few faults.
"""


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
    """Bytes that the line of a file of ``/proc`` that begins with ``name`` states in kB; None without it.

    Few operations, as it is read a hundred times a second.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            text = b"\n" + file.read(FIELDS_BYTES)
    except OSError:
        return None
    _, found, rest = text.partition(f"\n{name}".encode())
    return int(rest.split(maxsplit=1)[0]) * 1024 if found else None


@dataclass(slots=True)
class PeakMemory:
    """Anonymous memory of a process while some work was done."""

    baseline: int | None
    """Bytes before the work: interpreter, imports and compiled kernels."""

    peak: int | None
    """Largest number of bytes sampled during the work; None where the system does not say."""

    @property
    def above_baseline(self) -> int | None:
        """Peak less baseline, in bytes."""
        return None if self.peak is None or self.baseline is None else self.peak - self.baseline


@contextlib.contextmanager
def watched_memory(interval_seconds: float = 0.01) -> Iterator[PeakMemory]:
    """Sample anonymous memory in a thread during the block; yields the ``PeakMemory``, which it updates."""
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


PROC = Path("/proc/self")

INACTIVE = {"memory.max": b"inactive_file", "memory.limit_in_bytes": b"total_inactive_file"}
"""Name of the line of ``memory.stat`` for the page cache of a group, by the file that has its limit.

Groups below it are included.
"""

USAGE = {"memory.max": "memory.current", "memory.limit_in_bytes": "memory.usage_in_bytes"}


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """Bytes that a control group may hold, and bytes that it still may take."""

    limit_bytes: int
    room_bytes: int


def tightest_limit(most_bytes: int, proc: Path = PROC) -> MemoryLimit | None:
    """The limit on the path of this process that leaves the least room; None where no group limits it.

    Parameters
    ----------
    most_bytes
        Memory of the machine: a limit of as much or more is none.
    proc
        Folder in which the kernel describes the process.

    Notes
    -----
    Reads one small file for each group on the path, some ten microseconds each, and two more for each that
    has a limit. Where the tree is mounted is read once in a process.
    """
    limits = []
    for limit_file in _limit_files(proc, _content(proc / "cgroup")):
        with contextlib.suppress(ValueError):  # "max"
            limit = int(_content(limit_file))
            if limit < most_bytes:
                limits.append(MemoryLimit(limit, _room(limit, limit_file)))
    return min(limits, key=lambda each: (each.room_bytes, each.limit_bytes), default=None)


def _room(limit: int, limit_file: str) -> int:
    folder, name = os.path.split(limit_file)
    used = int(_content(os.path.join(folder, USAGE[name])) or 0)
    inactive = re.search(
        rb"^%s (\d+)$" % INACTIVE[name], _content(os.path.join(folder, "memory.stat")), re.MULTILINE
    )
    return max(0, limit - max(0, used - (int(inactive[1]) if inactive else 0)))


@functools.lru_cache(maxsize=8)
def _limit_files(proc: Path, groups: bytes) -> tuple[str, ...]:
    """Paths of the files with the memory limits of all groups on the path of a process.

    ``groups`` is the content of its ``cgroup`` file.
    """
    mounts = _mounts(proc)
    files = list[str]()
    for line in os.fsdecode(groups).splitlines():
        number, controllers, group = line.split(":", 2)
        is_v2 = number == "0" and not controllers
        if not is_v2 and "memory" not in controllers.split(","):
            continue
        name = "memory.max" if is_v2 else "memory.limit_in_bytes"
        folders = next(
            (found for mount in mounts if mount.is_v2 == is_v2 and (found := mount.folders(group))), ()
        )
        files += [path for folder in folders if os.path.exists(path := os.path.join(folder, name))]
    return tuple(files)


@dataclass(frozen=True, slots=True)
class _Mount:
    """Mount point of a tree of control groups that may limit memory."""

    is_v2: bool
    root: PurePosixPath
    """Control group that the folder of the mount stands for."""

    folder: Path

    def folders(self, group: str) -> list[str]:
        """Folders from the root of the mount down to a group; that of the root if the group is elsewhere."""
        path = PurePosixPath(group)
        parts = path.relative_to(self.root).parts if path.is_relative_to(self.root) else ()
        below = [] if ".." in parts else [os.path.join(*parts[:i]) for i in range(1, len(parts) + 1)]
        folders = [str(self.folder), *(os.path.join(self.folder, each) for each in below)]
        return [folder for folder in folders if os.path.isdir(folder)]


@functools.lru_cache(maxsize=8)
def _mounts(proc: Path) -> tuple[_Mount, ...]:
    return tuple(_mounts_in(os.fsdecode(_content(proc / "mountinfo"))))


def _mounts_in(text: str) -> Iterator[_Mount]:
    """Mounts of control groups in the text of ``mountinfo``; see proc_pid_mountinfo(5)."""
    for line in text.splitlines():
        first, _, last = line.partition(" - ")
        fields, (kind, _, options) = first.split(), last.split()[:3]
        if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(",")):
            root, folder = map(_unescaped, fields[3:5])
            yield _Mount(kind == "cgroup2", PurePosixPath(root), Path(folder))


def _unescaped(path: str) -> str:
    r"""A path of ``mountinfo``, in which blanks are octal numbers.

    >>> _unescaped(r"/my\040groups")
    '/my groups'
    """
    return re.sub(r"\\([0-7]{3})", lambda sign: chr(int(sign[1], 8)), path)


def _content(path: str | Path) -> bytes:
    """Content of a file of the kernel; empty where there is none, or it may not be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
