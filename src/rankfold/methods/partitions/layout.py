"""Number of partitions of a matrix, and cuts of the sweeps that make and search them.

Everything follows from the shape, the native chunks and the request, and nothing from memory or workers.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rankfold.methods.knn.row_blocks import row_dtype
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.blocks import Cut, own_streams, panel_edges

Int64 = npt.NDArray[np.int64]

SPILL = 3
"""Largest number of partitions that a row is put into: those of its nearest centers."""

REACH = 1.2
"""A row is put into a partition if its squared distance from the center is at most this times that from its
nearest center. Rows well within a cluster are in one partition. Those between are in several, so that visits
know where else to look."""

VISITS = 3
"""Largest number of partitions that a row visits after a round: it is in none of them, but has neighbors
there, and is compared with all rows there."""

LIKELY_SPILL = 1.5
"""Number of partitions that a row is put into on average, in estimates of cost; also of those it visits."""

LEAST_ROWS = 600
"""Least average number of rows of a partition, each row counted once; with fewer, lists cost more than
products."""

ROWS_PER_NEIGHBOR = 32
"""Least average number of rows of a partition, each row counted once, for each neighbor that is searched
for."""

ROOTS = 1.3
"""Least average number of rows of a partition, each row counted once, over the square root of the number of
all rows. Larger partitions cost more pairs, smaller ones more distances from centers."""

SAMPLE_ROWS = (8, 16)
"""Fewest and most rows of the sample for each center; in between, the sample has ``SAMPLE_BYTES``."""

SAMPLE_BYTES = 64 * 2**20

FEW_CENTERS = 64
"""Largest number of centers that are made in one step; more are made in two: of groups, and within each
group."""

LARGEST = 12
"""A partition larger than this times the average, each row counted once, is searched in pieces."""

PIECE_BYTES = 64 * 2**20
"""Largest number of bytes, in float32, of the rows in a piece of a large partition, searched as a whole."""

PANEL_BYTES = 8 * 2**20
"""Bytes, in float32, of the rows that are put into partitions together."""

MOST_PANELS = 1024
"""Largest number of panels (rows put into partitions together): each writes rows for every partition."""

BATCH_BYTES = 16 * 2**20
"""Bytes, in float32, of the rows whose partitions one step searches, unless a piece has more."""

LIST_BYTES = 32 * 2**20
"""Bytes of the lists that one step merges."""

RECALL_ROWS = 400
"""Least number of rows that are compared with all others, to measure the recall."""

CERTAINTY = 8
"""The recall is measured by at least ``CERTAINTY / (1 - min_recall)`` rows. Half as many rows, with all
neighbors found, give an interval that just reaches down to ``min_recall``."""


@dataclass(frozen=True)
class Layout:
    """A matrix, and the parameters of its partitions."""

    source: Source
    k: int
    partition_rows: int | None
    """Rows of a partition on average, if the caller says so."""

    min_recall: float
    chunk_rows: int
    """Number of rows whose lists are a chunk of the result."""

    @property
    def rows(self) -> int:
        """Number of rows of the matrix."""
        return self.source.shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in memory."""
        return self.source.shape[1] * row_dtype(self.source.dtype).itemsize

    # Partitions -----------------------------------------------------------------------------------

    @cached_property
    def count(self) -> int:
        """Number of partitions that is aimed at.

        The actual number may differ, since groups have whole numbers of centers: see ``most_count``.
        """
        usual = max(LEAST_ROWS, ROWS_PER_NEIGHBOR * self.k, int(ROOTS * math.isqrt(self.rows)))
        least = max(self.partition_rows or usual, 2 * (self.k + 1))
        return max(1, min(self.rows // least, self._most_sample_rows // SAMPLE_ROWS[0]))

    @property
    def groups(self) -> int:
        """Number of groups of sampled rows, in each of which centers are made."""
        return math.isqrt(self.count) if self.count > FEW_CENTERS else 1

    @property
    def most_count(self) -> int:
        """Largest number of partitions that there can be: see ``count``."""
        return self.count + self.groups

    @property
    def spill(self) -> int:
        """Largest number of partitions that a row is put into."""
        return min(SPILL, self.count)

    @property
    def visits(self) -> int:
        """Largest number of partitions that a row visits after a round, see ``VISITS``."""
        return min(VISITS, max(1, self.count - 1))

    @property
    def places(self) -> int:
        """Largest number of rows of all partitions together, a row counted in each partition that it is
        in."""
        return self.spill * self.rows

    @property
    def most_rows(self) -> int:
        """Largest number of rows of a partition that is searched as a whole."""
        most = min(LARGEST * -(-self.rows // self.count), PIECE_BYTES // (4 * self.source.shape[1]))
        return max(most, 2 * (self.k + 1))

    @property
    def _most_sample_rows(self) -> int:
        return max(1, min(self.rows, SAMPLE_BYTES // self.row_bytes))

    @property
    def sample_rows(self) -> int:
        """Number of sampled rows that centers are made from."""
        return min(self._most_sample_rows, SAMPLE_ROWS[1] * self.count)

    @property
    def recall_rows(self) -> int:
        """Number of sampled rows whose true neighbors are found, to measure the recall."""
        return min(self.rows, max(RECALL_ROWS, math.ceil(CERTAINTY / (1 - self.min_recall) - 1e-6)))

    # Cuts -----------------------------------------------------------------------------------------

    @cached_property
    def cut(self) -> Cut:
        """Cut of the matrix into panels (rows put into partitions together)."""
        least = max(1, PANEL_BYTES // (4 * self.source.shape[1]))
        return _work(panel_edges(self.source.row_grid, max(least, -(-self.rows // MOST_PANELS))))

    @property
    def batch_rows(self) -> int:
        """Largest number of rows of partitions that are searched by one step."""
        return max(self.most_rows, BATCH_BYTES // (4 * self.source.shape[1]))

    @property
    def planned_batches(self) -> Cut:
        """Cut of the partitions into batches, searched by one step each, as if of one size; for plans."""
        return _work(np.append(np.arange(0, self.places, self.batch_rows), self.places))

    def batches(self, ends: Int64) -> Cut:
        """Cut of the rows of all partitions into batches: several partitions, or a piece of a large one.

        ``ends`` (count + 1,) are the edges of the partitions among these rows.
        """
        return _work(pack_partitions(ends, self.batch_rows, self.most_rows))

    @cached_property
    def merges(self) -> Cut:
        """Cut of the rows into panels whose lists are merged at a time, in whole chunks of the result."""
        chunks = max(1, LIST_BYTES // (16 * self.k * self.chunk_rows))
        return _work(panel_edges(Grid.regular(self.rows, self.chunk_rows * chunks, splittable=False), 1))


def pack_partitions(ends: Int64, batch_rows: int, most_rows: int) -> Int64:
    """Edges of batches of at most ``batch_rows`` rows: several whole partitions, or a piece of a large one.

    ``ends`` (count + 1,) are those of the partitions; one of more than ``most_rows`` rows is cut. Both count
    the rows of all partitions, one after the other.
    """
    edges = [0]
    for start, stop in itertools.pairwise(ends.tolist()):
        is_large = stop - start > most_rows
        if edges[-1] < start and (is_large or stop - edges[-1] > batch_rows):
            edges.append(start)
        if is_large:
            pieces = -(-(stop - start) // most_rows)
            edges.extend(start + (stop - start) * i // pieces for i in range(1, pieces + 1))
    if edges[-1] < ends[-1]:
        edges.append(int(ends[-1]))
    return np.array(edges, np.int64)


def _work(edges: Int64) -> Cut:
    """Cut with these edges into panels, each of which is processed as a whole."""
    return own_streams(edges, int(np.diff(edges).max()))


def edges_of(counts: Int64) -> Int64:
    """(partitions + 1,) first row of each partition, and the end, from the number of rows of each.

    Rows are those of all partitions, one after the other.
    """
    return np.concatenate([[0], np.cumsum(counts)])


def pieces_of(edges: Int64, start: int, stop: int) -> list[tuple[int, slice]]:
    """Partitions, or pieces of them, among rows ``start:stop`` of all rows sorted by partition.

    Returns the number and the slice of rows of each. ``edges`` (partitions + 1,) are the rows at which
    partitions begin.
    """
    first = int(np.searchsorted(edges, start, side="right")) - 1
    last = int(np.searchsorted(edges, stop, side="left"))
    ends = np.clip(edges[first : last + 1], start, stop).tolist()
    return [(first + i, slice(ends[i], ends[i + 1])) for i in range(last - first)]
