"""Memory that control groups leave to a process: those of SLURM jobs, of services, and of containers.

Groups form a tree, and a process may take no more than each group on its path leaves. The kernel reports in
``/proc/self/cgroup`` where a process is, and in ``/proc/self/mountinfo`` where the tree is mounted: version 2
has one tree, version 1 one for each controller. Groups above the root of a mount cannot be seen.

Page cache counts as usage of a group, but the kernel reclaims its inactive part before it refuses memory. So
this part of the usage is counted as room.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

PROC = Path("/proc/self")

INACTIVE = {"memory.max": b"inactive_file", "memory.limit_in_bytes": b"total_inactive_file"}
"""Line of ``memory.stat`` for the page cache of a group and those below it, by the file of its limit."""

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
    """Files with limits on memory of all groups on the path of a process, by its ``cgroup`` file."""
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
