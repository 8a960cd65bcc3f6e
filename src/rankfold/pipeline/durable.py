"""Durable files: data flushed to the disk in an order that survives a loss of power.

A file that was written and closed may be empty after the machine has lost power, and so may a folder whose
files are whole. Contents are flushed first, then the folder that names them, then the name by which others
trust them, then the folder of that name.

The trap: flushing one file after another waits for the disk each time. Parallel flushes share one wait.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rankfold.pipeline.regular import open_regular

FLUSHES_AT_ONCE = 16
"""Largest number of threads that flush files at the same time."""

WAIT_SECONDS = 1e-4
"""Seconds of a flush above which it has waited for the disk; one that has not waited takes 2e-6.

``flush_all`` flushes the files after it in parallel. It is about the time to start a thread.
"""

LEAST_BYTES = 2**20
"""Least bytes of a block that ``begin_flush`` writes at once; smaller ones are better written together."""

WRITE = 2
"""Flag of ``sync_file_range``: start writing modified pages to the disk, without waiting for the end."""


def begin_flush(path: str | os.PathLike[str], start: int, length: int) -> None:
    """Start to write ``length`` bytes of a file to the disk, from byte ``start`` on, and return at once.

    So the final flush has little to wait for. Nothing is done for blocks below ``LEAST_BYTES``, and on
    systems other than Linux.
    """
    begin = _sync_file_range()
    if length < LEAST_BYTES or begin is None:
        return
    with contextlib.suppress(OSError), open_regular(path, buffering=0) as file:
        begin(file.fileno(), start, length, WRITE)  # file systems without support may ignore it


@functools.cache
def _sync_file_range() -> Any:
    """The ``sync_file_range`` of Linux; None elsewhere, where the final flush takes longer."""
    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


def flush(path: str | os.PathLike[str]) -> None:
    """Flush a file, or the names in a folder, to the disk; a missing one is ignored."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_all(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Flush many files to the disk: in sequence until one has to wait for it, then in parallel."""
    rest = iter(paths)
    for path in rest:
        began = time.perf_counter()
        flush(path)
        if time.perf_counter() - began > WAIT_SECONDS:
            break
    if later := list(rest):
        with ThreadPoolExecutor(min(FLUSHES_AT_ONCE, len(later)), "rankfold-flush") as pool:
            for _ in pool.map(flush, later):
                pass


def flush_tree(folder: str | os.PathLike[str]) -> None:
    """Flush all files below a folder to the disk, then the names in all folders, the innermost first."""
    files: list[str] = []
    folders: list[str] = []
    for parent, _, names in os.walk(folder):
        folders.append(parent)
        files += (os.path.join(parent, name) for name in names)
    flush_all(files)
    flush_all(reversed(folders))


HERE, NO_REPLACE, EXCHANGE = -100, 1, 2
"""Working folder as a descriptor, and flags of ``renameat2``: fail if the name is taken; exchange names."""


def exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two files or folders in one step, so that neither name is ever missing.

    Returns False, without any change, if the system or file system cannot: Linux can on ext4, XFS, Btrfs,
    tmpfs.
    """
    rename = _renameat2()
    if rename is None or rename(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE) != 0:
        return False
    flush_names(one, other)
    return True


@functools.cache
def _renameat2() -> Any:
    """The ``renameat2`` of Linux; None elsewhere, where names cannot be exchanged in one step."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is not None:
        path = ctypes.c_char_p
        function.argtypes = (ctypes.c_int, path, ctypes.c_int, path, ctypes.c_uint)
    return function


def rename(source: Path, target: Path) -> None:
    """Rename a file or folder; a file at ``target`` is replaced, so the caller must have checked it."""
    os.replace(source, target)


def rename_new(source: Path, target: Path) -> None:
    """Give a file or folder a name that must be free.

    Raises
    ------
    FileExistsError
        The name is taken, even by an empty folder or a dangling link; nothing has changed.

    Notes
    -----
    Atomic where the system has ``renameat2``. Elsewhere a file is linked, which is atomic as well; for a
    folder there is a moment between the check and the rename.
    """
    function = _renameat2()
    if function is not None:
        if function(HERE, os.fsencode(source), HERE, os.fsencode(target), NO_REPLACE) == 0:
            return
        error = ctypes.get_errno()
        if error not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
            raise OSError(error, os.strerror(error), str(source), None, str(target))
    if not source.is_dir():
        with contextlib.suppress(PermissionError, NotImplementedError):  # file systems without links
            os.link(source, target, follow_symlinks=False)
            source.unlink()
            return
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(source), None, str(target))
    os.rename(source, target)


def rename_durably(source: Path, target: Path) -> None:
    """Rename something that is already on the disk, and flush its name to the disk as well."""
    rename(source, target)
    flush_names(source, target)


def flush_names(*paths: Path) -> None:
    """Flush the names of files or folders to the disk, by flushing the folders that they are in."""
    for folder in {path.parent for path in paths}:
        flush(folder)
