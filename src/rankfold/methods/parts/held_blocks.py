"""Blocks of rows that are read into new memory, some held while others pass: for folds of pairs of blocks
that are as large as what their rows store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from rankfold.methods.knn.pair_fold import Room, empty_lists
from rankfold.pipeline.engine.device import HOST, Device, Kernel
from rankfold.pipeline.engine.pairs import Pairs
from rankfold.pipeline.storage.checkpoint import State

Rows = TypeVar("Rows")
Rows_co = TypeVar("Rows_co", covariant=True)


class Reader(Protocol[Rows_co]):
    """How rows are brought into memory."""

    @property
    def bytes_to_read(self) -> int:
        """Bytes to read for a row."""

    def read(self, start: int, stop: int) -> Rows_co:
        """Rows ``start:stop``."""


@dataclass(slots=True)
class HeldBlocks(Generic[Rows]):
    """What one task has in memory."""

    precise: bool = False
    """Whether products are made in float64."""

    span: tuple[int, int] = (-1, -1)
    """First block in memory, and one past the last."""

    blocks: dict[int, Rows] = field(default_factory=dict)
    now: Rows | None = None
    """The block that passes."""

    room: Room = field(default_factory=Room)


@dataclass(frozen=True, slots=True)
class BlockFold(Generic[Rows]):
    """What folds of such blocks share: see ``PairFold``."""

    pairs: Pairs
    left: Reader[Rows]
    """Rows that have lists."""

    right: Reader[Rows]
    """Rows that are in lists; the same ones unless there are queries."""

    k: int
    metric: int

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """None that run on a device."""
        return ()

    @property
    def resident(self) -> frozenset[str]:
        """Nothing."""
        return frozenset()

    @property
    def product_bytes(self) -> int:
        """Of the numbers that are multiplied, until these are in float64."""
        return 4

    def device_bytes(self, rows: int) -> int:
        """None."""
        return 0

    def start(self, block: int) -> State:
        """Empty lists."""
        return empty_lists(self.pairs, block, self.k)

    def list_bytes(self, rows: int) -> int:
        """Lists of so many rows that are held and of a block that passes; which blocks each has met."""
        # Packed, and a byte for each.
        met = 2 * (2 * rows * self.pairs.count // int(self.pairs.rows[-1]) + 4) * len(self.pairs.met)
        return (rows + 3 * self.pairs.tallest()) * 2 * 8 * self.k + met

    def workspace(self, rows: int, device: Device = HOST) -> HeldBlocks[Rows]:
        """Nothing is allocated before it is read."""
        return HeldBlocks()

    def holds(self, work: HeldBlocks[Rows], group: tuple[int, int]) -> bool:
        """Whether a group is there."""
        return work.span == group

    def load_resident(self, work: HeldBlocks[Rows], group: tuple[int, int]) -> int:
        """Read a group, block by block."""
        if work.span == group:
            return 0
        work.span, work.blocks, work.now = (-1, -1), {}, None
        edges = self.pairs.rows
        for block in range(*group):
            work.blocks[block] = self.left.read(int(edges[block]), int(edges[block + 1]))
        work.span = group
        return int(edges[group[1]] - edges[group[0]]) * self.left.bytes_to_read

    def load_passing(self, work: HeldBlocks[Rows], block: int, group: tuple[int, int]) -> int:
        """Read a block, or find it in the group."""
        if self.pairs.others is None and block in work.blocks:
            work.now = work.blocks[block]
            return 0
        work.now = None
        start, stop = int(self.pairs.met[block]), int(self.pairs.met[block + 1])
        work.now = self.right.read(start, stop)
        return (stop - start) * self.right.bytes_to_read
