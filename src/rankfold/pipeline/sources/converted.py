"""A matrix in another type, converted as it is read; numbers that do not fit are an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.blocks import Grid
from rankfold.pipeline.convert import convert_into
from rankfold.pipeline.source import Source, Span

STRIP_BYTES = 4 * 2**20
"""Numbers of the source that are held at a time, unless its chunks are taller."""


@dataclass(frozen=True, slots=True)
class ConvertedSource:
    """Another source, and the type that its numbers are given out in."""

    source: Source
    dtype: np.dtype[Any]

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.source.name

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.source.shape

    @property
    def row_grid(self) -> Grid:
        """Native chunks along the rows."""
        return self.source.row_grid

    @property
    def column_grid(self) -> Grid:
        """Native chunks along the columns."""
        return self.source.column_grid

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; see ``Source``."""
        height, width = rows[1] - rows[0], columns[1] - columns[0]
        step = self._strip(height, width)
        strip = np.empty((min(step, height), width), self.source.dtype)
        for top in range(0, height, step):
            part = strip[: min(step, height - top)]
            span = rows[0] + top, rows[0] + top + len(part)
            self.source.read_into(part, span, columns)
            convert_into(out[top : top + len(part)], part, f"{self.name}, rows {span[0]}:{span[1]}")

    def read_bytes(self, rows: int, columns: int) -> int:
        """A strip in the old type, what tells whether it fits, and what reading it takes."""
        strip = self._strip(rows, columns)
        return strip * columns * (self.source.dtype.itemsize + 16) + self.source.read_bytes(strip, columns)

    def check(self) -> None:
        """See the source."""
        self.source.check()

    def fingerprint(self) -> str:
        """That of the source, and the type."""
        return f"{self.source.fingerprint()} {self.dtype.str}"

    def _strip(self, rows: int, columns: int) -> int:
        least = 1 if self.row_grid.splittable else self.row_grid.longest
        return min(rows, max(least, STRIP_BYTES // (columns * self.source.dtype.itemsize)))
