"""A folder that lives as long as the object, or the program. After a kill the next program removes it."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import secrets
import socket
import tempfile
import weakref
from pathlib import Path

from rankfold.pipeline.durable import rename
from rankfold.pipeline.removal import remove


class TemporaryFolder:
    """Unlike that of the standard library it goes without a warning when nobody holds it any more."""

    def __init__(self) -> None:
        parent, name = Path(tempfile.gettempdir()), _of_this_machine() + secrets.token_hex(8)
        _remove_orphans(parent)
        self.path = parent / f"rankfold-{name}"
        fresh, locks = parent / f"rankfold-new-{name}", list[int]()
        # Before the folder is there: a signal in between would leave it behind.
        weakref.finalize(self, _end, locks, fresh, self.path)
        fresh.mkdir(mode=0o700)
        with contextlib.suppress(OSError):  # where folders have no locks, nobody can tell, and nobody removes
            locks.append(_lock_folder(fresh))
        # It has its name when it is locked: whoever finds it unlocked knows that its program is gone.
        rename(fresh, self.path)


def _of_this_machine() -> str:
    """What names of folders begin with. Of others nothing is known: their locks may not be seen from here."""
    return hashlib.blake2b(socket.gethostname().encode(), digest_size=4).hexdigest()


def _lock_folder(folder: str | Path) -> int:
    """A folder that is open, and locked by this process alone."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _end(locks: list[int], *paths: Path) -> None:
    try:
        _remove(*paths)
    except BaseException:  # a signal; it says so when all is gone
        _remove(*paths)
        raise
    finally:
        for lock in locks:
            os.close(lock)


def _remove(*paths: str | Path) -> None:
    for path in paths:
        remove(path)


@functools.lru_cache(maxsize=8)  # once in a program
def _remove_orphans(parent: Path) -> None:
    """Folders of programs that were killed: nobody holds their locks."""
    ours = re.compile(f"rankfold-{_of_this_machine()}[0-9a-f]{{16}}")
    with contextlib.suppress(OSError):
        for entry in os.scandir(parent):
            if ours.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    lock = _lock_folder(entry.path)
                    _remove(entry.path)
                    os.close(lock)
