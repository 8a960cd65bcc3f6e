"""A lock on an output, which the kernel releases when its process dies, however it dies.

The trap: some file systems, as Lustre mounted with ``localflock``, let one process on each node hold the same
lock. So each holder writes its identity into the file, and checks the file again before it publishes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rankfold.pipeline.errors import LockedError, OutputError
from rankfold.pipeline.regular import open_regular, read_text
from rankfold.pipeline.storage.checkpoint import disk_errors, move_aside

HOLDER_LENGTH = 2**12
"""Number of first characters of a lock file that are read, enough for the description of its holder."""

_TEXT = re.compile(r"process \d+ on .+\n([0-9a-f]{32}\n)?")
"""Pattern of the content of a lock file: its holder, and a random mark, which may be missing."""

PATIENCE = 2.0
"""Seconds for which a taken lock is tried again: processes that only inspect a lock hold it briefly."""


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock that this process holds, as far as its file system can ensure it."""

    path: Path
    output: Path
    """Path of the output that the lock protects."""

    text: str
    """Content of the lock file: process and machine of this holder, and a random mark."""

    @property
    def other(self) -> str | None:
        """Description of another process that has taken the lock since.

        None if no other has, or if the lock file is gone with the whole run.
        """
        try:
            found = read_text(self.path, errors="replace")
        except OSError:
            return None
        return None if found == self.text else _holder(found)

    def require(self) -> None:
        """Raise ``LockedError`` if another process has taken the lock as well."""
        if (other := self.other) is not None:
            raise LockedError(
                f"another run ({other}) has begun to write {self.output} beside this one, which leaves it to "
                "the other. Locks of this file system keep nobody out: mount Lustre with flock, not "
                "localflock. Wait for the other run, or give the command again."
            )


def is_lock(path: Path) -> bool:
    """True if ``hold_lock`` wrote the content of a file; False for an empty one, which anybody may make."""
    try:
        return _TEXT.fullmatch(read_text(path, HOLDER_LENGTH)) is not None
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def hold_lock(path: Path, output: Path) -> Iterator[Lock]:
    """Hold the lock file ``path`` of an output in the block; ``LockedError`` if another process holds it.

    The content of the file is replaced, so the caller has made sure that rankfold wrote the file: see
    ``is_lock``.
    """
    with disk_errors(path):
        if path.is_dir() or path.is_symlink():
            move_aside(path)
        path.touch()
    with open_regular(path, "r+", errors="replace") as file:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise OutputError(
                        f"the file system of {output} keeps no locks ({error.strerror}), so a second run "
                        "could not be told from the first. Choose out= (--out) on another file system."
                    ) from error
                if time.monotonic() > until:
                    raise LockedError(
                        f"another run is writing {output} ({_holder(file.read(HOLDER_LENGTH))}). Wait for "
                        "it, or choose another out= (--out)."
                    ) from error
            time.sleep(0.02)
        text = f"process {os.getpid()} on {socket.gethostname()}\n{uuid.uuid4().hex}\n"
        file.truncate(0)
        file.write(text)
        file.flush()
        yield Lock(path, output, text)
    # The file stays: unlinking it would let a third process lock a name that no longer exists.


def _holder(text: str) -> str:
    return text.partition("\n")[0].strip() or "holder unknown"
