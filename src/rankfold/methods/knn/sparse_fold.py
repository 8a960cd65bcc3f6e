"""Nearest neighbors of two blocks of sparse rows, exactly, without their zeros.

The counterpart of ``pair_fold.py`` for sparse rows; see ``kernels/neighbors/sparse_meeting.py`` for the
comparison. The size of a block depends on its stored numbers, so rows are read into new memory. A fold is the
work of a sweep over pairs of blocks (runs of rows) on each pair.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import EMPTY, Metric, merge_lists, sort_lists
from rankfold.kernels.neighbors.meeting import Lists, shortlist_length
from rankfold.kernels.neighbors.sparse_meeting import (
    SparseRows,
    meet_sparse_rows,
    scratch_bytes,
    sparse_distance,
    square_rows,
)
from rankfold.methods.knn.pair_fold import METRIC_OF_WAY, lists_of
from rankfold.methods.knn.row_blocks import LARGEST_SQUARE, SMALLEST_SQUARE, row_dtype
from rankfold.methods.knn.sparse_rows import SparseBlocks, SparseReader
from rankfold.methods.parts.held_blocks import BlockFold, HeldBlocks
from rankfold.pipeline.storage.checkpoint import State

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SparseFold(BlockFold[SparseRows]):
    """Base of folds that compare pairs of blocks (runs of rows) of a sparse matrix."""

    left: SparseReader
    right: SparseReader
    blocks: SparseBlocks
    """Blocks of the rows whose nearest are found."""

    others: SparseBlocks
    """Blocks of the rows among which the nearest are looked for."""

    common: Int64
    """Columns that many rows hold, (c,): they are multiplied as a dense matrix."""

    def block_bytes(self, rows: int) -> int:
        """Bytes of ``rows`` held rows, of a block compared with them, of reading a block, and of lists."""
        tallest = self.pairs.tallest()
        held = self.left.memory_bytes(rows, self.blocks.most_of(rows))
        passing = self.right.memory_bytes(tallest, self.others.most)
        reading = max(
            self.left.read_bytes(tallest, self.blocks.most, self.blocks.longest),
            self.right.read_bytes(tallest, self.others.most, self.others.longest),
        )
        return held + passing + reading + self.list_bytes(rows)

    @property
    def largest(self) -> tuple[int, int]:
        """Largest number of stored entries of a block of rows, and of a single row."""
        return max(self.blocks.most, self.others.most), max(self.blocks.longest, self.others.longest)

    @property
    def pair_flops(self) -> float:
        """Estimated floating-point operations to multiply a pair of rows: four for each entry of a row."""
        return 4.0 * self.left.source.nnz / self.left.source.shape[0]


@dataclass(frozen=True, slots=True)
class NearestSparsePairs(SparseFold):
    """Fold that compares pairs of blocks of sparse rows, and keeps the ``k`` nearest of each row.

    See ``PairFold``.
    """

    def memory_bytes(self, rows: int) -> int:
        """Upper bound on the bytes of a task that holds ``rows`` rows in memory: entries, lists, shortlists,
        tiles."""
        length, tallest = shortlist_length(self.k), self.pairs.tallest()
        return self.block_bytes(rows) + scratch_bytes(*self.largest, self.left.columns, length, tallest)

    def measure(self, row: int, other: int) -> float:
        """Distance of two rows of ``left``, by index, computed as the sweep computes it."""
        x, y = (self.left.read(index, index + 1) for index in (row, other))
        return sparse_distance(x, 0, y, 0, self.metric)

    def accumulate(
        self, work: HeldBlocks[SparseRows], block: int, state: State, other: int, other_state: State | None
    ) -> None:
        """Compare a held block with the block ``work.now``, and update the nearest rows of both, in place.

        ``block`` and ``other`` are the numbers of the two blocks, ``state`` and ``other_state`` their lists.
        ``other_state`` is None if the other block has no lists of its own, or is the held one itself.
        """
        x, y = work.blocks[block], work.now
        assert y is not None  # noqa: S101 - load_passing came before
        work.precise |= meet_sparse_rows(
            x,
            y,
            common=self.common,
            lists_i=lists_of(state),
            lists_j=None if other_state is None else lists_of(other_state),
            metric=self.metric,
            same=self.pairs.others is None and block == other,
            precise=work.precise or self._is_wild(x, y),
            room=work.room.array,
        )

    def _is_wild(self, x: SparseRows, y: SparseRows) -> bool:
        """True if squared norms of rows leave the range in which float32 products are safe."""
        if self.metric == Metric.COSINE:
            return False
        largest = max(float(each.norms.max(initial=0.0)) for each in (x, y))
        return not SMALLEST_SQUARE < largest < LARGEST_SQUARE


@functools.cache
def warm_sparse(dtype: np.dtype[Any], way: str, index: np.dtype[Any]) -> None:
    """Run the compiled loops that compare sparse rows once, for values stored as ``dtype``.

    ``way`` is ``"squares"`` or ``"inner"``, as from ``way_of``; ``index`` is the type of columns.
    """
    # More equal rows than a shortlist holds: none can be certain, and all of them are compared in float64.
    rows, k = 16, 1
    arrays = 2 * np.arange(rows + 1), np.array([0, 1] * rows, index), np.ones(2 * rows, row_dtype(dtype))
    x = SparseRows(0, 2, *arrays, np.zeros(rows), np.ones(rows), np.zeros((rows, 2)))
    square_rows(*arrays, x.scale, squares=x.squares)
    for precise in (False, True):
        one, two = (
            Lists(np.full((rows, k), np.inf), np.full((rows, k), EMPTY), np.zeros(1, np.int64)) for _ in "xy"
        )
        asked: dict[str, Any] = {"common": np.zeros(0, np.int64), "metric": METRIC_OF_WAY[way], "same": False}
        asked |= {"lists_i": one, "lists_j": two, "precise": precise}
        meet_sparse_rows(x, x, room=lambda name, shape, kind: np.empty(shape, kind), **asked)
    keys, ids = np.full((4, 2), np.inf), np.full((4, 2), -1)
    merge_lists(keys, ids, other_keys=keys, other_ids=ids)
    sort_lists(keys, ids)
