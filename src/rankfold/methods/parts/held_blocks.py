"""Blocks of rows for searches of neighbors by pairs of blocks: a group is held while others pass one by one.

A group is consecutive blocks that a task holds in memory. The passing block is the one that is compared with
them. Each block is read into new memory, as its size depends on what its rows store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from rankfold.methods.knn.pair_fold import BufferPool, empty_lists
from rankfold.pipeline.engine.device import HOST, Device, Kernel
from rankfold.pipeline.engine.pairs import Pairs
from rankfold.pipeline.storage.checkpoint import State

Rows = TypeVar("Rows")
Rows_co = TypeVar("Rows_co", covariant=True)


class Reader(Protocol[Rows_co]):
    """Protocol of a reader of rows of a matrix, which returns them in any representation."""

    @property
    def bytes_to_read(self) -> int:
        """Bytes to read for one row, on average."""

    def read(self, start: int, stop: int) -> Rows_co:
        """Rows ``start:stop``, read into new memory."""


@dataclass(slots=True)
class HeldBlocks(Generic[Rows]):
    """Workspace of one task: the group of blocks held in memory, and the passing block compared with them."""

    precise: bool = False
    """True if products are made in float64."""

    span: tuple[int, int] = (-1, -1)
    """Index of the first block of the held group, and one past the last; (-1, -1) for none."""

    blocks: dict[int, Rows] = field(default_factory=dict)
    """Rows of each held block, by index of the block."""

    now: Rows | None = None
    """Rows of the passing block; None if none is loaded."""

    room: BufferPool = field(default_factory=BufferPool)
    """Buffers that comparisons reuse."""


@dataclass(frozen=True, slots=True)
class BlockFold(Generic[Rows]):
    """Base class of folds that find nearest neighbors by comparing pairs of blocks: a ``PairFold``."""

    pairs: Pairs
    """Edges of the blocks of rows that are compared."""

    left: Reader[Rows]
    """Reader of the rows whose neighbors are searched for, and which have lists of them."""

    right: Reader[Rows]
    """Reader of the rows that are searched, and may be in lists; the same rows unless there are queries."""

    k: int
    """Number of neighbors in the list of a row."""

    metric: int
    """Code of the distance, as the kernels that compare rows number it."""

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
        """Bytes of each number that is multiplied, unless products are made in float64."""
        return 4

    def device_bytes(self, rows: int) -> int:
        """0 bytes of a GPU, for any number of held rows: nothing runs on a device."""
        return 0

    def start(self, block: int) -> State:
        """Lists of neighbors, still empty, of the rows of block number ``block``: see ``empty_lists``."""
        return empty_lists(self.pairs, block, self.k)

    def list_bytes(self, rows: int) -> int:
        """Bytes of the lists of neighbors of ``rows`` held rows and of a passing block.

        Flags that say which blocks were compared with which are included.
        """
        # Flags are counted packed, and as a byte for each.
        met = 2 * (2 * rows * self.pairs.count // int(self.pairs.rows[-1]) + 4) * len(self.pairs.met)
        return (rows + 3 * self.pairs.tallest()) * 2 * 8 * self.k + met

    def workspace(self, rows: int, device: Device = HOST) -> HeldBlocks[Rows]:
        """An empty workspace for a group of ``rows`` rows: memory is allocated when blocks are read."""
        return HeldBlocks()

    def holds(self, work: HeldBlocks[Rows], group: tuple[int, int]) -> bool:
        """True if the blocks ``group[0]`` to ``group[1]``, excluded, are in memory."""
        return work.span == group

    def load_resident(self, work: HeldBlocks[Rows], group: tuple[int, int]) -> int:
        """Read the blocks ``group[0]`` to ``group[1]``, excluded, into ``work``; return the bytes read.

        These are 0 if the group is in memory already.
        """
        if work.span == group:
            return 0
        work.span, work.blocks, work.now = (-1, -1), {}, None
        edges = self.pairs.rows
        for block in range(*group):
            work.blocks[block] = self.left.read(int(edges[block]), int(edges[block + 1]))
        work.span = group
        return int(edges[group[1]] - edges[group[0]]) * self.left.bytes_to_read

    def load_passing(self, work: HeldBlocks[Rows], block: int, group: tuple[int, int]) -> int:
        """Make block number ``block`` the passing one, read unless it is held; return the bytes read."""
        if self.pairs.others is None and block in work.blocks:
            work.now = work.blocks[block]
            return 0
        work.now = None
        start, stop = int(self.pairs.met[block]), int(self.pairs.met[block + 1])
        work.now = self.right.read(start, stop)
        return (stop - start) * self.right.bytes_to_read
