"""Rows of a stored graph, some of them at a time, as a sparse matrix by rows."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import zarr

Array = npt.NDArray[Any]

BLOCK = 2**18
"""Edges that are taken at a time; more where a row has more."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Of consecutive rows, in order of rows and columns."""

    rows: Array
    columns: Array
    weights: Array


class StoredRows:
    """The graph in a folder."""

    def __init__(self, folder: Path) -> None:
        group = zarr.open_group(folder, mode="r")
        self.data, self.indices, self.indptr = (
            cast("zarr.Array[Any]", group[name]) for name in ("data", "indices", "indptr")
        )

    @functools.cached_property
    def pointers(self) -> Array:
        """(m + 1,) edges before each row, and in all."""
        return np.asarray(self.indptr[...]).astype(np.int64, copy=False)

    @property
    def count(self) -> int:
        """Of all edges."""
        return int(self.data.shape[0])

    def chunks(self, first: int = 0, last: int | None = None) -> Iterator[slice]:
        """Edges of a chunk after the other, from one to another; all by default."""
        end, height = self.count if last is None else last, self.data.chunks[0]
        for start in range(first - first % height, end, height):
            yield slice(max(first, start), min(end, start + height))

    def smallest(self) -> float:
        """Weight; infinite where there are no edges."""
        return min((float(np.asarray(self.data[some]).min()) for some in self.chunks()), default=np.inf)

    def between(self, top: int, bottom: int) -> Edges:
        """Edges of some rows."""
        ends = self.pointers[top : bottom + 1]
        some = slice(int(ends[0]), int(ends[-1]))
        rows = np.repeat(np.arange(top, bottom), np.diff(ends))
        return Edges(rows, np.asarray(self.indices[some]).astype(np.int64), np.asarray(self.data[some]))


def row_spans(graphs: list[StoredRows]) -> Iterator[tuple[int, int]]:
    """The rows of a block, the same of all graphs."""
    ends = np.sum([graph.pointers for graph in graphs], axis=0)
    top, rows = 0, len(ends) - 1
    while top < rows:
        bottom = int(np.searchsorted(ends, ends[top] + BLOCK, side="right")) - 1
        bottom = min(rows, max(top + 1, bottom))
        yield top, bottom
        top = bottom
