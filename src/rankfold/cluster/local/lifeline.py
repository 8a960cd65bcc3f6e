"""Run a module only as long as the process that started it lives.

    python -m rankfold.cluster.local.lifeline FOLDER MODULE ARGUMENTS...

The standard input of this process is a pipe whose other end the starter holds and never writes to: the kernel
closes it when the starter ends, however it ends. Then segments (units of work) may leave a checkpoint, FOLDER
is removed, and the process ends, whatever its threads are doing.

The trap: a process that the starter has forked holds the other end too. So the parent is checked as well.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import select
import sys
import threading
import time
from pathlib import Path

from rankfold.pipeline.removal import remove

POLL_SECONDS = 0.5
"""Seconds between two checks of the parent."""

GRACE_SECONDS = 1.0
"""Seconds for segments to leave a checkpoint when the starter is gone."""


def main(folder: str, module: str, *arguments: str) -> None:
    """Run a module as ``python -m`` does; when the parent process ends, remove ``folder`` and end too."""
    watch = threading.Thread(target=_watch, args=(os.getppid(), Path(folder)), name="rankfold-lifeline")
    watch.daemon = True
    watch.start()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _watch(parent: int, folder: Path) -> None:
    """Wait until the process with the id ``parent`` ends, then remove the folder and end this process."""
    while os.getppid() == parent:
        if select.select([0], [], [], POLL_SECONDS)[0] and not os.read(0, 1):
            break
    try:
        until = time.monotonic() + GRACE_SECONDS
        while not _without_segments() and time.monotonic() < until:
            time.sleep(0.02)
        remove(folder)
    finally:
        os._exit(1)


def _without_segments() -> bool:
    """Ask the segments (units of work) that run in this process to end; True if none runs any more."""
    attempt = sys.modules.get("rankfold.pipeline.engine.attempt")
    with contextlib.suppress(AttributeError):  # it is being loaded
        return attempt is None or bool(attempt.stop_all())
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
