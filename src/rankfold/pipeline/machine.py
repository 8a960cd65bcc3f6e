"""Place, time and command of an attempt at a run: one start of a command, which a later one may continue."""

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
