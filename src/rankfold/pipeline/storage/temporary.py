"""A folder that exists as long as its object, at most as long as the program.

If the program is killed, the next program that makes such a folder removes it.
"""

from __future__ import annotations

import contextlib
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
from rankfold.pipeline.outputs import lock_folder
from rankfold.pipeline.removal import remove


class TemporaryFolder:
    """Folder at ``path`` that is removed when this object is garbage collected, without a warning.

    ``tempfile.TemporaryDirectory`` warns.
    """

    def __init__(self) -> None:
        parent, name = Path(tempfile.gettempdir()), _of_this_machine() + secrets.token_hex(8)
        _remove_orphans(parent)
        self.path = parent / f"rankfold-{name}"
        fresh, locks = parent / f"rankfold-new-{name}", list[int]()
        # Before the folder exists: a signal in between would leave it behind.
        weakref.finalize(self, _end, locks, fresh, self.path)
        fresh.mkdir(mode=0o700)
        with contextlib.suppress(OSError):  # without locks on folders, nobody removes orphans
            locks.append(lock_folder(fresh))
        # It gets its name once it is locked: if it is found unlocked, its program is gone.
        rename(fresh, self.path)


def _of_this_machine() -> str:
    """Digest of the name of this machine, in names of its folders: other machines may not see its locks."""
    return hashlib.blake2b(socket.gethostname().encode(), digest_size=4).hexdigest()


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
    """Remove temporary folders of killed programs in ``parent``: those that no process has locked."""
    ours = re.compile(f"rankfold-{_of_this_machine()}[0-9a-f]{{16}}")
    with contextlib.suppress(OSError):
        for entry in os.scandir(parent):
            if ours.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    lock = lock_folder(entry.path)
                    _remove(entry.path)
                    os.close(lock)
