"""Blocks of rows for folds over pairs of blocks: a group is held in memory while others pass one by one.

Each block is read into new memory, as its size depends on what its rows store.
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
    """Protocol of a reader of rows."""

    @property
    def bytes_to_read(self) -> int:
        """Bytes to read for a row."""

    def read(self, start: int, stop: int) -> Rows_co:
        """Read rows ``start:stop`` into new memory."""


@dataclass(slots=True)
class HeldBlocks(Generic[Rows]):
    """Workspace of one task: the held group, and the block that passes."""

    precise: bool = False
    """True if products are made in float64."""

    span: tuple[int, int] = (-1, -1)
    """First block in memory, and one past the last."""

    blocks: dict[int, Rows] = field(default_factory=dict)
    """Held blocks by index."""

    now: Rows | None = None
    """The block that passes."""

    room: Room = field(default_factory=Room)


@dataclass(frozen=True, slots=True)
class BlockFold(Generic[Rows]):
    """Base class of folds over pairs of such blocks: a ``PairFold``."""

    pairs: Pairs
    left: Reader[Rows]
    """Rows that have lists."""

    right: Reader[Rows]
    """Rows that are in lists; the same ones unless there are queries."""

    k: int
    metric: int

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Empty: no kernels run on a device."""
        return ()

    @property
    def resident(self) -> frozenset[str]:
        """Empty: no sums stay on a device."""
        return frozenset()

    @property
    def product_bytes(self) -> int:
        """Bytes of each number in products, before these are made in float64."""
        return 4

    def device_bytes(self, rows: int) -> int:
        """0: nothing runs on a device."""
        return 0

    def start(self, block: int) -> State:
        """Empty lists for the rows of a block."""
        return empty_lists(self.pairs, block, self.k)

    def list_bytes(self, rows: int) -> int:
        """Bytes of lists of ``rows`` held rows and a passing block, and of marks of blocks that were met."""
        # Marks are counted packed, and as a byte for each.
        met = 2 * (2 * rows * self.pairs.count // int(self.pairs.rows[-1]) + 4) * len(self.pairs.met)
        return (rows + 3 * self.pairs.tallest()) * 2 * 8 * self.k + met

    def workspace(self, rows: int, device: Device = HOST) -> HeldBlocks[Rows]:
        """An empty workspace: memory is allocated when blocks are read."""
        return HeldBlocks()

    def holds(self, work: HeldBlocks[Rows], group: tuple[int, int]) -> bool:
        """True if the group is in memory."""
        return work.span == group

    def load_resident(self, work: HeldBlocks[Rows], group: tuple[int, int]) -> int:
        """Read a group, block by block; return the bytes that were read."""
        if work.span == group:
            return 0
        work.span, work.blocks, work.now = (-1, -1), {}, None
        edges = self.pairs.rows
        for block in range(*group):
            work.blocks[block] = self.left.read(int(edges[block]), int(edges[block + 1]))
        work.span = group
        return int(edges[group[1]] - edges[group[0]]) * self.left.bytes_to_read

    def load_passing(self, work: HeldBlocks[Rows], block: int, group: tuple[int, int]) -> int:
        """Make a block the passing one, from the group or by reading it; return the bytes that were read."""
        if self.pairs.others is None and block in work.blocks:
            work.now = work.blocks[block]
            return 0
        work.now = None
        start, stop = int(self.pairs.met[block]), int(self.pairs.met[block + 1])
        work.now = self.right.read(start, stop)
        return (stop - start) * self.right.bytes_to_read
