"""Find the process that holds a lock. No other module looks at locks of other processes.

The trap: the check takes the lock for a moment, shared, so a process that wants to hold it must try more than
once: see ``pipeline.storage.run_directory.hold_lock``.
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
    """A process that holds a lock; ``pid`` is 0 and ``host`` is empty if the lock file does not name it."""

    pid: int
    host: str

    def __str__(self) -> str:
        """The process in words, for messages."""
        return f"process {self.pid} on {self.host}" if self.pid else "a process that is not known"

    @property
    def here(self) -> bool:
        """True if it runs on this machine."""
        return self.host == socket.gethostname()

    def command(self) -> list[str]:
        """Words of its command line; empty for a process that is not on this machine, or has ended."""
        with contextlib.suppress(OSError):
            if Path("/proc/self").exists():
                return Path(f"/proc/{self.pid}/cmdline").read_text(errors="replace").split("\0")
            arguments = ["ps", "-ww", "-o", "args=", "-p", str(self.pid)]
            return subprocess.run(arguments, capture_output=True, text=True, check=False).stdout.split()
        return []

    def is_ours(self) -> bool:
        """True if it is a command of rankfold: others must not be signaled."""
        return any(os.path.basename(word) == "rankfold" for word in self.command()[:8])


def holder_of(lock: Path) -> Holder | None:
    """The process that holds the lock file ``lock``, as that file names it; None if no process does."""
    with contextlib.suppress(FileNotFoundError), open_regular(lock, "r", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            read = re.match(r"process (\d+) on (\S+)", file.read(HOLDER_LENGTH))
            return Holder(int(read[1]), read[2]) if read else Holder(0, "")
    return None
