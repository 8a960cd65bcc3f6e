"""How rows are cut for a clustering, and what lies on scratch between two passes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankfold.methods.kmeans.kept_rows import KeptRows
from rankfold.methods.parts.panels import Panels
from rankfold.methods.parts.row_weights import RowWeights
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.blocks import Cut, cut
from rankfold.pipeline.storage.scratch import ScratchMatrix

CENTERS_PER_GROUP = 4
"""Centers that share a bound."""

COLUMNS_PER_GROUP = 16
"""A row has at most one bound for so many columns: keeping them is to cost little beside reading it."""

ROWS_PER_CENTER = (4, 256)
"""Fewest and most rows of a sample that a start is made from, and ``SAMPLE_BYTES`` in between."""

SAMPLE_BYTES = 32 * 2**20

FEWEST_ROWS = 4000
"""Of a sample, where rows are short."""

LABEL_CHUNKS = (2**18, 2**22)
"""Fewest and most labels of a chunk of the result, of which there are ``TARGET_CHUNKS`` in between."""

TARGET_CHUNKS = 8192


@dataclass(frozen=True, slots=True)
class Layout:
    """A matrix by rows, and a number of clusters."""

    source: Source
    k: int
    weights: RowWeights | None = None
    """What each row counts; None for one each."""

    @property
    def view(self) -> View:
        """By rows, whichever side is longer."""
        return View(self.source, Orientation.ROWS)

    @property
    def groups(self) -> int:
        """Groups of centers that share a bound, at most."""
        columns = self.source.shape[1]
        return max(1, min(self.k // CENTERS_PER_GROUP, columns // COLUMNS_PER_GROUP))

    @property
    def row_bytes(self) -> int:
        """Of a row in the working type."""
        return self.view.short * self.view.dtype.itemsize

    @property
    def sums_bytes(self) -> int:
        """Of the sums of clusters."""
        return 8 * self.k * (self.view.short + 1)

    def panels(self, slots: int, *, sums_bytes: int = 0) -> Panels:
        """Panels of rows as they are stored; kernels read any type."""
        view = self.view
        pieces = cut(view.grid, self.row_bytes, max(self.sums_bytes, sums_bytes))
        return Panels(view, pieces, slots, view.source.dtype, borrows=True)

    @property
    def row_seconds(self) -> float:
        """Nominal time of a row in a pass."""
        return 1e-9 * self.view.short + 2e-11 * self.view.short * self.k

    @property
    def sample(self) -> tuple[KeptRows, KeptRows]:
        """Rows that one read samples, any and far; one more of each tells how likely they were."""
        rows, columns = self.source.shape
        fewest, most = (each * self.k for each in ROWS_PER_CENTER)
        wanted = max(fewest, min(max(most, FEWEST_ROWS), SAMPLE_BYTES // self.row_bytes))
        return (
            KeptRows(min(rows, wanted) + 1, columns, self.view.dtype, "any"),
            KeptRows(min(rows, wanted // 2) + 1, columns, self.view.dtype, "far"),
        )

    def labels(self, folder: Path, index: int) -> ScratchMatrix:
        """Labels after so many steps."""
        return ScratchMatrix(folder / f"labels-{index:04d}.bin", self.view.long, 1, np.dtype(np.int32))

    def bounds(self, folder: Path, index: int, groups: int) -> ScratchMatrix:
        """Bounds of distances after so many steps."""
        path = folder / f"bounds-{index:04d}.bin"
        return ScratchMatrix(path, self.view.long, 1 + groups, np.dtype(np.float32))

    @property
    def label_cut(self) -> Cut:
        """Labels by chunks of the result."""
        rows = self.view.long
        chunk = min(rows, max(LABEL_CHUNKS[0], min(rows // TARGET_CHUNKS, LABEL_CHUNKS[1])))
        return cut(Grid.regular(rows, chunk, splittable=False), 4, 8)


def working_type(layout: Layout, sample: Any) -> np.dtype[Any]:
    """In which rows are multiplied: float64 where squares of some would leave the range of float32."""
    sizes = np.abs(sample)
    largest = float(sizes.max(initial=0.0))
    in_range = largest == 0 or SMALLEST_NUMBER < largest < LARGEST_NUMBER
    return layout.view.dtype if in_range else np.dtype(np.float64)


SMALLEST_NUMBER, LARGEST_NUMBER = 1e-12, 1e15
"""Of the largest number of a sample, between which float32 holds squares and their sums."""
