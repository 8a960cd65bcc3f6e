"""Start ``driver.py``, or one like it, and follow what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).parent

PATIENCE_SECONDS = 900.0
"""For what must come, however busy the machine is: a test that hangs ends, and nothing else depends on it."""

GONE_SECONDS = 45.0
"""For workers and jobs to be gone with their driver: less than they take to miss it by themselves."""


class Driver:
    """A running driver and every line it has written."""

    def __init__(
        self, store: Path, out: Path, seconds: float = 0.0, *, script: str = "driver.py", **where: Any
    ) -> None:
        # Workers take the source apart as well: they find its module the way the driver does.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path[1:]])}
        command = [str(HERE / script), str(store), str(out), str(seconds), json.dumps(where)]
        self.log = out.with_name(out.name + ".driver.log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command], stdout=log, stderr=log, env=environment
            )

    @property
    def said(self) -> str:
        """Everything so far."""
        return self.log.read_text()

    def until(self, text: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait for it to say something."""
        wait_for(lambda: text in self.said or self.process.poll() is not None, seconds, lambda: self.said)
        assert text in self.said, self.said

    def until_within(self, sweep: str, first: int, last: int) -> None:
        """Wait until a sweep is between some numbers of rows."""
        wait_for(
            lambda: self.rows(sweep) > first or self.process.poll() is not None, otherwise=self.log.read_text
        )
        assert first < self.rows(sweep) < last, self.said

    def rows(self, sweep: str) -> int:
        """How far a sweep has come, as far as it has said."""
        lines = [line.split() for line in self.said.splitlines() if line.startswith(f"{sweep} ")]
        return int(lines[-1][1]) if lines else 0

    def end(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Its exit status."""
        return self.process.wait(seconds)


def workers_of(pid: int) -> list[psutil.Process]:
    """Worker processes that a driver has started, but for those that end meanwhile."""
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [p for p in children if "distributed.cli.dask_worker" in _command_of(p)]


def _command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # it has ended, or waits to be asked how
        return ""


def wait_for(what: Callable[[], bool], seconds: float = PATIENCE_SECONDS, otherwise: object = "") -> None:
    """Until ``what`` holds; ``otherwise`` is what there was when it did not, or a function that says it."""
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, otherwise() if callable(otherwise) else otherwise
        time.sleep(0.05)


def folded_again(log: Path, passes: int = 2) -> float:
    """The share of panels that were folded more often than there were passes over the matrix."""
    counts = Counter(log.read_text().splitlines())
    panels = [count for count in counts.values() if count > 1]  # others were looked at before any pass
    return sum(count - passes for count in panels) / (passes * len(panels))
