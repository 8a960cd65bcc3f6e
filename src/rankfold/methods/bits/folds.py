"""Nearest rows of two blocks (runs of rows) of sets, exactly: folds as in ``methods/knn/pair_fold.py``.

Distances follow from counts, which are integers, so packed bits and sparse rows give the same bytes. A fold
is the work of a sweep over pairs of blocks on each pair.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.bits.bit_meeting import BitRows, meet_bits, scratch_bytes
from rankfold.kernels.bits.set_keys import SetMetric, set_key
from rankfold.kernels.bits.set_meeting import meet_sets
from rankfold.kernels.bits.set_meeting import scratch_bytes as set_scratch_bytes
from rankfold.kernels.neighbors.lists import EMPTY, merge_lists, sort_lists
from rankfold.kernels.neighbors.meeting import Lists
from rankfold.kernels.neighbors.sparse_meeting import SparseRows
from rankfold.methods.bits.rows import BitReader, SetReader
from rankfold.methods.knn.pair_fold import lists_of
from rankfold.methods.knn.sparse_fold import SparseFold
from rankfold.methods.parts.held_blocks import BlockFold, HeldBlocks
from rankfold.pipeline.storage.checkpoint import State

Int64 = npt.NDArray[np.int64]

WORD_FLOPS = 10.0
"""Floating-point operations of a matrix product that take as long as counting the shared bits of two words.
"""


@dataclass(frozen=True, slots=True)
class NearestBits(BlockFold[BitRows]):
    """Fold that compares pairs of blocks of packed bits, and keeps the ``k`` nearest of each row.

    See ``PairFold``.
    """

    left: BitReader
    right: BitReader

    def memory_bytes(self, rows: int) -> int:
        """Upper bound on the bytes of a task that holds ``rows`` rows in memory: rows, lists, a block, kernel
        buffers."""
        tallest = self.pairs.tallest()
        blocks = self.left.memory_bytes(rows) + self.right.memory_bytes(tallest)
        reading = max(self.left.read_bytes(tallest), self.right.read_bytes(tallest))
        return blocks + reading + self.list_bytes(rows) + scratch_bytes(tallest, self.left.words)

    @property
    def pair_flops(self) -> float:
        """Time to count the shared bits of a pair of rows, in floating-point operations of a product."""
        return WORD_FLOPS * self.left.words

    def measure(self, row: int, other: int) -> float:
        """Distance of two rows of ``left``, by index, computed as the sweep computes it."""
        x, y = (self.left.read(index, index + 1) for index in (row, other))
        shared = int(np.bitwise_count(x.words & y.words).sum())
        return set_key(shared, int(x.sizes[0]), int(y.sizes[0]), x.bits, self.metric)

    def accumulate(
        self, work: HeldBlocks[BitRows], block: int, state: State, other: int, other_state: State | None
    ) -> None:
        """Compare a held block with the block ``work.now``, and update the nearest rows of both, in place.

        ``block`` and ``other`` are the numbers of the two blocks, ``state`` and ``other_state`` their lists.
        ``other_state`` is None if the other block has no lists of its own, or is the held one itself.
        """
        assert work.now is not None  # noqa: S101 - load_passing came before
        meet_bits(
            work.blocks[block],
            work.now,
            lists_i=lists_of(state),
            lists_j=None if other_state is None else lists_of(other_state),
            metric=self.metric,
            same=self.pairs.others is None and block == other,
        )


@dataclass(frozen=True, slots=True)
class NearestSets(SparseFold):
    """Fold that compares pairs of blocks of sets (lists of members), and keeps the ``k`` nearest of each."""

    left: SetReader
    right: SetReader

    def memory_bytes(self, rows: int) -> int:
        """Upper bound on the bytes of a task that holds ``rows`` rows in memory: members, lists, and tiles of
        pairs."""
        scratch = set_scratch_bytes(*self.largest, self.left.columns, self.pairs.tallest())
        return self.block_bytes(rows) + scratch

    def measure(self, row: int, other: int) -> float:
        """Distance of two rows of ``left``, by index, computed as the sweep computes it."""
        x, y = (self.left.read(index, index + 1) for index in (row, other))
        shared = len(np.intersect1d(x.indices, y.indices, assume_unique=True))
        return set_key(shared, len(x.indices), len(y.indices), x.columns, self.metric)

    def accumulate(
        self, work: HeldBlocks[SparseRows], block: int, state: State, other: int, other_state: State | None
    ) -> None:
        """Compare a held block with the block ``work.now``, and update the nearest rows of both, in place.

        ``block`` and ``other`` are the numbers of the two blocks, ``state`` and ``other_state`` their lists.
        ``other_state`` is None if the other block has no lists of its own, or is the held one itself.
        """
        assert work.now is not None  # noqa: S101 - load_passing came before
        meet_sets(
            work.blocks[block],
            work.now,
            common=self.common,
            lists_i=lists_of(state),
            lists_j=None if other_state is None else lists_of(other_state),
            metric=self.metric,
            same=self.pairs.others is None and block == other,
            room=work.room.array,
        )


@functools.cache
def warm_sets(way: str, index: np.dtype[Any]) -> None:
    """Compile the loops for packed bits, if ``way`` is ``"bits"``, or for lists of members, if ``"sets"``.

    ``index`` is the type of the columns in lists of members.
    """
    rows = 4
    one, two = (
        Lists(np.full((rows, 2), np.inf), np.full((rows, 2), EMPTY), np.zeros(1, np.int64)) for _ in "xy"
    )
    how: dict[str, Any] = {"lists_i": one, "lists_j": two, "metric": int(SetMetric.HAMMING), "same": False}
    if way == "bits":
        x = BitRows(0, 64, np.ones((rows, 1), np.uint64), np.ones(rows, np.int64))
        meet_bits(x, x, **how)
    else:
        arrays = np.arange(rows + 1), np.zeros(rows, index), np.ones(rows, np.uint8)
        y = SparseRows(0, 2, *arrays, np.ones(rows), np.ones(rows), np.ones((rows, 2)))
        how |= {"common": np.zeros(0, np.int64), "room": lambda name, shape, kind: np.empty(shape, kind)}
        meet_sets(y, y, **how)
    merge_lists(one.keys, one.ids, other_keys=two.keys, other_ids=two.ids)
    sort_lists(one.keys, one.ids)
