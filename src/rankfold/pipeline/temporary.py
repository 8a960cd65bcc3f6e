"""A folder that lives as long as the object, or the program. After a kill the next program removes it."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import secrets
import shutil
import socket
import tempfile
import weakref
from pathlib import Path

NAME = re.compile(r"rankfold-[0-9a-f]{16}")
LOCK = "lock"


class TemporaryFolder:
    """Unlike that of the standard library it goes without a warning when nobody holds it any more."""

    def __init__(self) -> None:
        parent, name = Path(tempfile.gettempdir()), secrets.token_hex(8)
        _remove_abandoned(parent)
        self.path = parent / f"rankfold-{name}"
        fresh, held = parent / f"rankfold-new-{name}", list[int]()
        # Before the folder is there: a signal in between would leave it behind.
        weakref.finalize(self, _end, held, fresh, self.path)
        fresh.mkdir(mode=0o700)
        with contextlib.suppress(OSError):  # without locks nobody can tell, and nobody removes it
            held.append(os.open(fresh / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            fcntl.flock(held[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(held[0], socket.gethostname().encode())
        # It has its name when it is locked: whoever finds it unlocked knows that its program is gone.
        fresh.rename(self.path)


def _end(held: list[int], *paths: Path) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
    for lock in held:
        os.close(lock)


@functools.lru_cache(maxsize=8)  # once in a program
def _remove_abandoned(parent: Path) -> None:
    """Folders of programs of this machine that were killed: nobody holds their locks.

    The trap: where several machines share a folder, some file systems keep locks for each of them alone.
    """
    with contextlib.suppress(OSError):
        for entry in os.scandir(parent):
            if not NAME.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
                continue
            with contextlib.suppress(OSError), open(os.path.join(entry.path, LOCK), "r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if lock.read() == socket.gethostname():
                    shutil.rmtree(entry.path, ignore_errors=True)
