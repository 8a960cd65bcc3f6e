"""Rows of a stored graph, a block at a time, as a sparse matrix by rows.

Kernels use its pointers and columns without bounds checks, so both are checked as they are read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import DataError
from rankfold.pipeline.formats.csr import csr_source
from rankfold.pipeline.formats.zarr.vector import VectorSource
from rankfold.pipeline.law import LARGEST, first_outside

Array = npt.NDArray[Any]

BLOCK = 2**18
"""Largest number of edges of a block of rows, unless a single row has more."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Edges of consecutive rows of a graph, in order of rows and then columns; each array is (edges,)."""

    rows: Array
    columns: Array
    weights: Array


class StoredRows:
    """A stored graph, a sparse matrix by rows, in the folder ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.source = csr_source(str(folder.parent), folder.name)
        self.source.check_lengths()

    @functools.cached_property
    def pointers(self) -> Array:
        """(rows + 1,) number of edges before those of each row, and in all."""
        return self.ends(0, self.source.shape[0])

    def ends(self, top: int, bottom: int) -> npt.NDArray[np.int64]:
        """(bottom - top + 1,) number of edges before each of rows ``top:bottom``, and before ``bottom``."""
        return self.source.pointers(top, bottom)

    def columns(self, some: slice) -> Array:
        """(edges,) column (target row) of each edge in the slice ``some`` of all edges, as stored."""
        return self.source.places(some.start, some.stop)

    def weights(self, some: slice) -> Array:
        """(edges,) weight of each edge in the slice ``some`` of all edges.

        Raises ``DataError`` unless weights are finite and at least 0.
        """
        values = self.source.data.take(some.start, some.stop)
        if (place := first_outside(values, 0, LARGEST)) is not None:
            raise DataError(
                f"{self.source.name}: data[{some.start + place}] is {values[place]}: weights of a graph are "
                "finite, and not negative. Restore the result, or make it again"
            )
        return values

    @property
    def column_dtype(self) -> np.dtype[Any]:
        """Integer type of the stored columns (target rows) of edges."""
        return self.source.indices.dtype

    @property
    def count(self) -> int:
        """Number of edges stored in the whole graph, over all rows."""
        return self.source.nnz

    def chunks(self, first: int = 0, last: int | None = None) -> Iterator[slice]:
        """Yield slices of the edges ``first:last`` (all by default), cut where stored chunks are cut."""
        assert isinstance(self.source.data, VectorSource)  # noqa: S101 - it is in a folder
        end, height = self.count if last is None else last, self.source.data.chunks[1]
        for start in range(first - first % height, end, height):
            yield slice(max(first, start), min(end, start + height))

    def smallest(self) -> float:
        """Smallest weight of an edge; infinite if there are no edges."""
        return min((float(self.weights(some).min()) for some in self.chunks()), default=np.inf)

    def between(self, top: int, bottom: int) -> Edges:
        """Read the edges of rows ``top:bottom``; rows and columns are numbered as in the whole graph."""
        ends = self.pointers[top : bottom + 1]
        some = slice(int(ends[0]), int(ends[-1]))
        rows = np.repeat(np.arange(top, bottom), np.diff(ends))
        return Edges(rows, self.columns(some).astype(np.int64), self.weights(some))


def row_spans(graphs: list[StoredRows]) -> Iterator[tuple[int, int]]:
    """Yield first row and end of successive blocks of rows, which have up to ``BLOCK`` edges in all graphs.

    A row with more edges is a block of its own.
    """
    ends = np.sum([graph.pointers for graph in graphs], axis=0)
    top, rows = 0, len(ends) - 1
    while top < rows:
        bottom = int(np.searchsorted(ends, ends[top] + BLOCK, side="right")) - 1
        bottom = min(rows, max(top + 1, bottom))
        yield top, bottom
        top = bottom
