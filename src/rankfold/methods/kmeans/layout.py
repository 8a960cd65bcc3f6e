"""Cut of the rows of a clustering into panels (rows read at a time), and its intermediate files."""

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
"""Number of centers that share a lower bound of their distances from a row."""

COLUMNS_PER_GROUP = 16
"""Columns for each bound of a row: storing bounds should cost little compared with reading the row."""

ROWS_PER_CENTER = (4, 256)
"""Fewest and most rows per center in the sample for a start; ``SAMPLE_BYTES`` decides in between."""

SAMPLE_BYTES = 32 * 2**20

FEWEST_ROWS = 4000
"""Upper limit of the rows of a sample for few centers, for which that of ``ROWS_PER_CENTER`` is lower."""

LABEL_CHUNKS = (2**18, 2**22)
"""Fewest and most labels in a chunk of the result; ``TARGET_CHUNKS`` chunks decide in between."""

TARGET_CHUNKS = 8192


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of a clustering: a matrix by rows, a number of clusters, and weights."""

    source: Source
    k: int
    weights: RowWeights | None = None
    """Weights of the rows; None for one each."""

    @property
    def view(self) -> View:
        """View of the matrix by rows, whichever side is longer."""
        return View(self.source, Orientation.ROWS)

    @property
    def groups(self) -> int:
        """Largest number of groups of centers, each of which shares a bound of distances."""
        columns = self.source.shape[1]
        return max(1, min(self.k // CENTERS_PER_GROUP, columns // COLUMNS_PER_GROUP))

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in the working type."""
        return self.view.short * self.view.dtype.itemsize

    @property
    def sums_bytes(self) -> int:
        """Bytes of the sums (k, n) and counts (k,) of clusters."""
        return 8 * self.k * (self.view.short + 1)

    def panels(self, slots: int, *, sums_bytes: int = 0) -> Panels:
        """Panels of rows in their stored type, which kernels read directly; ``slots`` buffers are reused."""
        view = self.view
        pieces = cut(view.grid, self.row_bytes, max(self.sums_bytes, sums_bytes))
        return Panels(view, pieces, slots, view.source.dtype, borrows=True)

    @property
    def row_seconds(self) -> float:
        """Nominal seconds for a row in a pass."""
        return 1e-9 * self.view.short + 2e-11 * self.view.short * self.k

    @property
    def sample(self) -> tuple[KeptRows, KeptRows]:
        """Storage for two samples drawn by one pass: of all rows, and of rows far from the first centers.

        Each has one row more than is used: the key of that row gives the sampling probabilities.
        """
        rows, columns = self.source.shape
        fewest, most = (each * self.k for each in ROWS_PER_CENTER)
        wanted = max(fewest, min(max(most, FEWEST_ROWS), SAMPLE_BYTES // self.row_bytes))
        return (
            KeptRows(min(rows, wanted) + 1, columns, self.view.dtype, "any"),
            KeptRows(min(rows, wanted // 2) + 1, columns, self.view.dtype, "far"),
        )

    def labels(self, folder: Path, index: int) -> ScratchMatrix:
        """Intermediate file, in ``folder``, for the labels (rows, 1) of step ``index``."""
        return ScratchMatrix(folder / f"labels-{index:04d}.bin", self.view.long, 1, np.dtype(np.int32))

    def bounds(self, folder: Path, index: int, groups: int) -> ScratchMatrix:
        """Intermediate file, in ``folder``, for bounds of distances (rows, 1 + groups) of step ``index``."""
        path = folder / f"bounds-{index:04d}.bin"
        return ScratchMatrix(path, self.view.long, 1 + groups, np.dtype(np.float32))

    @property
    def label_cut(self) -> Cut:
        """Cut of the labels into chunks of the result."""
        rows = self.view.long
        chunk = min(rows, max(LABEL_CHUNKS[0], min(rows // TARGET_CHUNKS, LABEL_CHUNKS[1])))
        return cut(Grid.regular(rows, chunk, splittable=False), 4, 8)


def working_type(layout: Layout, sample: Any) -> np.dtype[Any]:
    """Type for products of rows: float64 if squares in a sample would leave the range of float32."""
    sizes = np.abs(sample)
    largest = float(sizes.max(initial=0.0))
    in_range = largest == 0 or SMALLEST_NUMBER < largest < LARGEST_NUMBER
    return layout.view.dtype if in_range else np.dtype(np.float64)


SMALLEST_NUMBER, LARGEST_NUMBER = 1e-12, 1e15
"""Range of the largest number of a sample in which float32 holds squares and their sums."""
