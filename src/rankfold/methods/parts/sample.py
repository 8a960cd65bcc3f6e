"""Sample of rows that is read before the first pass: runs of rows, spread evenly along the matrix.

A place is where a run begins. Places depend on the shape alone and not on chunks, so passes start alike
however a matrix is cut. A sample of enough rows gives a block: approximate singular vectors to begin with.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.view import View

Array = npt.NDArray[Any]

PLACES = (8, 64)
"""Smallest and largest number of places. In between there is one for each GiB of the matrix, as compressed
chunks are decoded whole for each."""

ROWS_PER_PLACE = 64
"""Largest number of rows at a place if the sample gives no block: enough for a mean."""

PLACE_BYTES = 2**20
"""Largest number of bytes at a place if the sample gives no block, unless one row takes more."""

MANY_ROWS = 64
"""Largest number of sampled rows for each column of a block: more add little."""

BLOCK_BYTES = 32 * 2**20
"""Largest number of bytes of the sampled rows for a block, unless the fewest rows take more."""

LARGEST_SHARE = 16
"""At most one of this many rows is read to find a block, which then costs little compared with a pass."""

FEWEST_ROWS = 4
"""Smallest number of sampled rows for each column of a block: from fewer it is no better than a random
one."""


def sampled_columns(width: int, short: int) -> int:
    """Number of columns of the block to find from a sample: ``width``, or 0 if above half of ``short``."""
    return width if 2 * width <= short else 0


@dataclass(frozen=True, slots=True)
class Sample:
    """Sample of long rows: ``places`` along the matrix, and ``rows_per_place`` consecutive rows at each."""

    view: View
    places: int
    rows_per_place: int
    gives_block: bool
    """True if there are enough rows to find a first block of vectors from."""

    @classmethod
    def of(cls, view: View, width: int) -> Sample:
        """Sample to find a block of ``width`` columns from, or only mean and size if ``width`` is 0."""
        row_bytes = view.short * view.source.dtype.itemsize
        places = min(max(PLACES[0], view.long * row_bytes // 2**30), PLACES[1], view.long)
        working = view.short * view.dtype.itemsize
        size = max(FEWEST_ROWS * width, min(MANY_ROWS * width, BLOCK_BYTES // working))
        size = min(size, view.long // LARGEST_SHARE)
        if width and size >= FEWEST_ROWS * width:
            places = min(places, size)
            return cls(view, places, size // places, gives_block=True)
        few = min(ROWS_PER_PLACE, PLACE_BYTES // row_bytes, view.long // places)
        return cls(view, places, max(1, few), gives_block=False)

    @property
    def rows(self) -> int:
        """Number of rows in the sample."""
        return self.places * self.rows_per_place

    @property
    def spans(self) -> list[tuple[int, int]]:
        """For each place, the index of its first row and that after its last."""
        starts = (self.view.long * i // self.places for i in range(self.places))
        return [(start, start + self.rows_per_place) for start in starts]

    @property
    def read_bytes(self) -> int:
        """Bytes of reading a place in addition to its rows, which may begin anywhere in a chunk."""
        return max(self.view.read_bytes(self.rows_per_place), self.view.read_bytes(1))

    @property
    def memory_bytes(self) -> int:
        """Bytes of the rows as read, of a copy in the working type if that differs, and of a place's mask."""
        dtype, working = self.view.source.dtype, self.view.dtype
        item = dtype.itemsize + (dtype != working) * working.itemsize
        place = self.rows_per_place * self.view.short + self.read_bytes
        return self.rows * self.view.short * item + place + 4 * 8 * (self.view.short + self.rows)

    def read(self) -> Array:
        """Read the rows into an array (rows, short), or (short, rows) if swept by columns; 0 for NaN and Inf.

        A separate thread reads them, so that buffers for decoding chunks are freed when it ends.
        """
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._read).result()

    def _read(self) -> Array:
        view, each = self.view, self.rows_per_place
        out = view.panel_buffer(self.rows, view.source.dtype)
        for i, span in enumerate(self.spans):
            there = view.part(out, i * each, (i + 1) * each)
            view.read(there, *span)
            if out.dtype.kind == "f":
                there[~np.isfinite(there)] = 0
        return out
