"""Place, time and command of an attempt at a run: one start of a command, which a later one may continue.

One BLAS thread, everywhere and always: with two threads last bits differ, and not always in the same way.

A sweep (one run through the matrix) is parallel over its streams, row ranges that are accumulated
independently. The limit to one thread holds while a task runs. Its users are counted, so that nested and
concurrent ones share it; it is lifted when the last of them leaves.

Space on file systems: which one holds a folder, how much is free there, and how much a folder takes.

Folders need not exist yet: a result and scratch are planned before they are made.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rankfold.pipeline.text import shell_words


def command_line() -> str:
    """The command that started this process, in a form that can be typed again."""
    program = Path(sys.argv[0] if sys.argv else "")
    if program.name == "rankfold" or program.parts[-2:] == ("rankfold", "__main__.py"):
        return shell_words(["rankfold", *sys.argv[1:]])
    return shell_words(sys.orig_argv)


def machine_facts() -> dict[str, Any]:
    """Facts on the machine and this process, for the record of attempts (``run.json``)."""
    return {
        "started": _timestamp(time.time_ns()),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "command": command_line(),
        "folder": os.getcwd(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "blas": core_type(),
    }


def _timestamp(nanoseconds: int) -> str:
    """UTC time as text, to the nanosecond, from nanoseconds since 1970.

    Seconds and their fraction come from one reading: ``gmtime()`` alone reads a coarser clock, some
    milliseconds behind, which sometimes still shows the second before.
    """
    seconds, part = divmod(nanoseconds, 10**9)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{part:09d}Z"


_LOCK = threading.Lock()
_USERS: list[Any] = []


@functools.cache
def _controller() -> Any:
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread in this process while the block runs."""
    with _LOCK:
        _USERS.append(None if _USERS else _controller().limit(limits=1))
    try:
        yield
    finally:
        with _LOCK:
            limiter = _USERS[0]
            _USERS.pop()
            if not _USERS and limiter is not None:
                limiter.restore_original_limits()


@functools.cache
def core_type() -> str:
    """Name of the BLAS library and of the processor family of its kernels, which decide the last bits."""
    cores = {
        f"{pool['internal_api']} {pool.get('version')} {pool.get('architecture', '')}".strip()
        for pool in _controller().info()
        if pool["user_api"] == "blas"
    }
    return ", ".join(sorted(cores)) or "unknown"


def nearest_folder(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    return folder


def device_of(folder: Path) -> int:
    """Device number (``st_dev``) of the file system that holds, or will hold, a folder."""
    return os.stat(nearest_folder(folder)).st_dev


def free_bytes(folder: Path) -> int:
    """Free bytes on the file system that holds, or will hold, a folder."""
    return shutil.disk_usage(nearest_folder(folder)).free


def bytes_under(folder: Path) -> int:
    """Total size of all files in a folder; 0 if it does not exist."""
    return sum(
        os.lstat(os.path.join(parent, name)).st_size for parent, _, names in os.walk(folder) for name in names
    )
