"""Number of partitions of an index, and cuts of its rows for writing and for reading.

Everything follows from the shape, the native chunks and the request, and nothing from memory or workers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rankfold.methods.partitions.layout import SAMPLE_ROWS, Layout, pack_partitions
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.blocks import Cut, own_streams, panel_edges

Int64 = npt.NDArray[np.int64]

LEAST_ROWS = 256
"""Least average rows of a partition: with fewer, starting a comparison costs more than its products."""

ROWS_AT_ONCE = 8 * 2**20
"""Bytes of rows in float32 that a search reads at once."""

CHUNK_BYTES = (2**20, 16 * 2**20)
"""Least and most bytes of a chunk of rows; between these limits there are about ``TARGET_CHUNKS`` chunks."""

TARGET_CHUNKS = 8192


@dataclass(frozen=True)
class IndexLayout(Layout):
    """Layout of an index: each row of the matrix is in one partition."""

    @classmethod
    def of_index(cls, source: Source, partition_rows: int | None) -> IndexLayout:
        """Layout of an index. Neighbors are searched for later, so k and recall have no meaning."""
        return cls(source, 1, partition_rows, 0.0, 1)

    @cached_property
    def count(self) -> int:
        """Number of partitions that is aimed at; a query is compared with all centers and some partitions."""
        usual = max(LEAST_ROWS, math.isqrt(self.rows) // 2)
        least = max(self.partition_rows or usual, 2)
        return max(1, min(self.rows // least, self._most_sample_rows // SAMPLE_ROWS[0]))

    @property
    def spill(self) -> int:
        """Partitions of a row: 1, since more probes find the neighbors that more copies would."""
        return 1

    @property
    def stored_chunk(self) -> int:
        """Rows of a chunk of the result."""
        least, most = (max(1, size // self.row_bytes) for size in CHUNK_BYTES)
        return min(self.rows, max(1, min(max(self.rows // TARGET_CHUNKS, least), most)))

    @cached_property
    def stored(self) -> Cut:
        """Cut of the rows, by partition, into whole chunks of the result."""
        chunk = self.stored_chunk
        chunks = max(1, CHUNK_BYTES[1] // (self.row_bytes * chunk))
        edges = panel_edges(Grid.regular(self.rows, chunk * chunks, splittable=False), 1)
        return own_streams(edges, int(np.diff(edges).max()))


def rows_at_once(columns: int) -> int:
    """Most rows of an index that a search reads at once."""
    return max(1, ROWS_AT_ONCE // (4 * columns))


def reads_of(edges: Int64, columns: int) -> Int64:
    """Edges of the runs of rows that are read at once: adjacent partitions, or a piece of a large one.

    ``edges`` (partitions + 1,) are those of the partitions.

    >>> reads_of(np.array([0, 3, 5, 40]), 2**17).tolist()
    [0, 5, 16, 28, 40]
    >>> reads_of(np.array([0, 3, 6, 19, 22]), 2**17).tolist()
    [0, 6, 22]
    """
    most = rows_at_once(columns)
    return pack_partitions(edges, most, most)


def most_together(reads: Int64, edges: Int64) -> int:
    """Most partitions that are read at once, pieces counted as well.

    >>> most_together(np.array([0, 6, 22]), np.array([0, 3, 6, 19, 22]))
    2
    """
    first = np.searchsorted(edges, reads[:-1], side="right") - 1
    last = np.searchsorted(edges, reads[1:], side="left")
    return int((last - first).max())


AT_ONCE = 2048
"""Most queries that are compared with centers, or with a partition, at a time."""

BYTES_AT_ONCE = 8 * 2**20
"""Most bytes, in float32, of the queries that are compared at a time."""


def at_once(columns: int) -> int:
    """Number of queries that are compared with centers, or with a partition, at a time."""
    return max(64, min(AT_ONCE, BYTES_AT_ONCE // (4 * columns)))
