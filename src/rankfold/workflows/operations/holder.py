"""Who holds a lock: the one way to look at it.

The trap: a look takes the lock for a moment, shared, so that whoever would hold it must ask more than once:
see ``pipeline.storage.run_directory.hold_lock``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rankfold.pipeline.regular import open_regular
from rankfold.pipeline.storage.lock import HOLDER_LENGTH


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a lock; of number 0 where the lock does not say which."""

    pid: int
    host: str

    def __str__(self) -> str:
        """In words."""
        return f"process {self.pid} on {self.host}" if self.pid else "a process that is not known"

    @property
    def here(self) -> bool:
        """Whether it is on this machine."""
        return self.host == socket.gethostname()

    def command(self) -> list[str]:
        """What it was started as; nothing of a process that is not here, or not any more."""
        with contextlib.suppress(OSError):
            if Path("/proc/self").exists():
                return Path(f"/proc/{self.pid}/cmdline").read_text(errors="replace").split("\0")
            arguments = ["ps", "-ww", "-o", "args=", "-p", str(self.pid)]
            return subprocess.run(arguments, capture_output=True, text=True, check=False).stdout.split()
        return []

    def is_ours(self) -> bool:
        """Whether it is a command of rankfold: others are not to be signalled."""
        return any(os.path.basename(word) == "rankfold" for word in self.command()[:8])


def holder_of(lock: Path) -> Holder | None:
    """The process that holds a lock, as it says itself; None where nobody does."""
    with contextlib.suppress(FileNotFoundError), open_regular(lock, "r", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            read = re.match(r"process (\d+) on (\S+)", file.read(HOLDER_LENGTH))
            return Holder(int(read[1]), read[2]) if read else Holder(0, "")
    return None
