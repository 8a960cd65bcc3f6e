"""A matrix whose reads wait, as those of a busy file system do: the same numbers, only later."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import Source


@dataclass(frozen=True, slots=True)
class SlowSource:
    """Another source with ``seconds`` added to every read, until there is a file of the name ``hurry``."""

    inner: Source
    seconds: float
    hurry: str = field(default="", kw_only=True)

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def shape(self) -> tuple[int, int]:
        return self.inner.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.inner.dtype

    @property
    def row_grid(self) -> Grid:
        return self.inner.row_grid

    @property
    def column_grid(self) -> Grid:
        return self.inner.column_grid

    @property
    def dims(self) -> tuple[str, ...]:
        return getattr(self.inner, "dims", ())

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        until = time.monotonic() + self.seconds
        while (left := until - time.monotonic()) > 0 and not (self.hurry and os.path.exists(self.hurry)):
            time.sleep(min(left, 0.1) if self.hurry else left)
        self.inner.read_into(out, rows, columns)

    def read_bytes(self, rows: int, columns: int) -> int:
        return self.inner.read_bytes(rows, columns)

    def check(self) -> None:
        self.inner.check()

    def fingerprint(self) -> str:
        return self.inner.fingerprint()
