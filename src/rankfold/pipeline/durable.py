"""On the disk, not only in the memory of the machine: what a loss of power leaves of files.

A file that was written and closed may be empty after the machine has lost power, and so may a folder be whose
files are whole. Contents go first, then the folder that names them, then the name that makes others trust
them, then the folder of that name.

The trap: flushing one file after another waits for the disk each time. Many at once share the wait.
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
"""Flushes that wait for the disk together."""

WAIT_SECONDS = 1e-4
"""Of a flush that waits for the disk, about what it takes to start a thread; in memory it takes 2e-6."""

LEAST_BYTES = 2**20
"""Of a block that the disk is given at once: smaller ones are better written together."""

WRITE = 2
"""Flag of ``sync_file_range``: begin to write what is not being written yet, and wait for nothing."""


def begin_flush(path: str | os.PathLike[str], start: int, length: int) -> None:
    """Have the disk begin with a block of a file, so that the flush in the end finds little to wait for."""
    begin = _sync_file_range()
    if length < LEAST_BYTES or begin is None:
        return
    with contextlib.suppress(OSError), open_regular(path, buffering=0) as file:
        begin(file.fileno(), start, length, WRITE)  # what a file system does not know it may leave


@functools.cache
def _sync_file_range() -> Any:
    """Of Linux; elsewhere a flush has more to wait for."""
    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


def flush(path: str | os.PathLike[str]) -> None:
    """Have a file, or the names in a folder, on the disk; one that is gone needs no flushing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_all(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Have many files on the disk; one after the other as long as none waits for it."""
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
    """Have all files below a folder on the disk, then the names of all folders, the innermost first."""
    files: list[str] = []
    folders: list[str] = []
    for parent, _, names in os.walk(folder):
        folders.append(parent)
        files += (os.path.join(parent, name) for name in names)
    flush_all(files)
    flush_all(reversed(folders))


HERE, NO_REPLACE, EXCHANGE = -100, 1, 2
"""The working folder, and flags of ``renameat2``: fail where the name is taken; two names change places."""


def exchange(one: Path, other: Path) -> bool:
    """Have two files or folders change names in one step, so that no moment is without either name.

    False, and nothing done, where the system or the file system cannot: Linux can on ext4, XFS, Btrfs, tmpfs.
    """
    rename = _renameat2()
    if rename is None or rename(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE) != 0:
        return False
    flush_names(one, other)
    return True


@functools.cache
def _renameat2() -> Any:
    """Of Linux; elsewhere there is a moment between two renames."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is not None:
        path = ctypes.c_char_p
        function.argtypes = (ctypes.c_int, path, ctypes.c_int, path, ctypes.c_uint)
    return function


def rename(source: Path, target: Path) -> None:
    """Give a file or folder another name. A file of that name is replaced: the caller knows whose it is."""
    os.replace(source, target)


def rename_new(source: Path, target: Path) -> None:
    """Give a file or folder a name that nothing has.

    Raises
    ------
    FileExistsError
        The name is taken, if only by an empty folder or a link that leads nowhere; nothing has changed.

    Notes
    -----
    One step where the system has ``renameat2``. Elsewhere a file is linked, which is one step as well; for a
    folder there is a moment between looking and renaming.
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
    """Give what is on the disk already its name, and have that on the disk as well."""
    rename(source, target)
    flush_names(source, target)


def flush_names(*paths: Path) -> None:
    """Have the names of files or folders on the disk."""
    for folder in {path.parent for path in paths}:
        flush(folder)
