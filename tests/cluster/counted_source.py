"""A slow matrix that notes which rows are read, so that a test can tell what was done twice.

For drivers and their workers alone: loaded by tests, it would do away with reading ahead in all of them.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from slow_source import SlowSource

from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.engine import fold as read_ahead

# Workers take the source apart and load this module with it. Nothing is read ahead there, so every read is
# a panel that is folded.
assert "pytest" not in sys.modules, "folded_again is in drivers.py"
read_ahead.PANELS_BETWEEN_PROBES = 1


@dataclass(frozen=True, slots=True)
class CountedSource(SlowSource):
    """Another source with ``seconds`` added to every read, and a line for it in ``log``."""

    log: str = ""

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        SlowSource.read_into(self, out, rows, columns)
        line = f"{rows[0]} {rows[1]}\n".encode()
        # One write at the end of the file: lines of several processes do not mix.
        file = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, line)
        finally:
            os.close(file)
