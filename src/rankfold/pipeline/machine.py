"""Where an attempt at a run is made, when, and by which command."""

from __future__ import annotations

import os
import platform
import socket
import sys
import time
from pathlib import Path
from typing import Any

from rankfold.pipeline.blas import core_type
from rankfold.pipeline.text import shell_words


def command_line() -> str:
    """What was typed, as it can be typed again."""
    program = Path(sys.argv[0] if sys.argv else "")
    if program.name == "rankfold" or program.parts[-2:] == ("rankfold", "__main__.py"):
        return shell_words(["rankfold", *sys.argv[1:]])
    return shell_words(sys.orig_argv)


def machine_facts() -> dict[str, Any]:
    """Where an attempt ran."""
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
    """A moment since 1970, to the nanosecond.

    Seconds and their part come from one reading: ``gmtime()`` alone reads a coarser clock, some milliseconds
    behind, which now and then tells the second before.
    """
    seconds, part = divmod(nanoseconds, 10**9)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{part:09d}Z"
