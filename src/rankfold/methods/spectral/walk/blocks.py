"""Rows of a stored graph, block by block: all stay in memory, or each is read whenever it is its turn.

Where blocks are cut, and so the order of all sums, follows from the graph alone; what stays in memory changes
nothing but the time of a sweep.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.source import CompressedSource, Csr
from rankfold.pipeline.errors import DataError

Array = npt.NDArray[Any]

BLOCK_NUMBERS = 2**20
"""Most stored weights of a block, unless a single row has more."""

POINTERS = 2**18
"""Rows whose pointers are read at a time."""

AHEAD = 2
"""Blocks in memory at once if none stays: the one that is multiplied, and the next."""


@dataclass(slots=True)
class GraphBlocks:
    """Stored graph that is iterated over in blocks of consecutive rows."""

    source: CompressedSource
    stay: bool
    """True if blocks stay in memory once they are read."""

    edges: Array
    """(blocks + 1,) first row of each block, and the number of rows."""

    resident: dict[int, Csr] = field(default_factory=dict)

    @classmethod
    def of(cls, source: CompressedSource, *, stay: bool) -> GraphBlocks:
        """Cut a graph into blocks of rows with up to ``BLOCK_NUMBERS`` stored weights."""
        rows, edges, first = source.shape[0], [0], 0
        for top in range(0, rows, POINTERS):
            ends = source.pointers(top, min(rows, top + POINTERS))
            while ends[-1] - first > BLOCK_NUMBERS:
                inside = int(np.searchsorted(ends, first + BLOCK_NUMBERS, side="right")) - 1
                cut = max(top + inside, edges[-1] + 1)
                first = int(ends[cut - top])
                edges.append(cut)
        return cls(source, stay, np.array([*(edges if edges[-1] < rows else edges[:-1]), rows]))

    @property
    def count(self) -> int:
        """Number of blocks."""
        return len(self.edges) - 1

    def __iter__(self) -> Iterator[tuple[int, Csr]]:
        """Yield the first row of each block, and its rows; the next block is read meanwhile."""
        with ThreadPoolExecutor(1, "rankfold-graph") as reader:
            future = None if 0 in self.resident else reader.submit(self._read, 0)
            for index in range(self.count):
                block = self.resident[index] if future is None else future.result()
                if self.stay:
                    self.resident[index] = block
                follows = index + 1 < self.count and index + 1 not in self.resident
                future = reader.submit(self._read, index + 1) if follows else None
                yield int(self.edges[index]), block

    def _read(self, index: int) -> Csr:
        block = self.source.read_sparse((int(self.edges[index]), int(self.edges[index + 1])))
        data = block.data
        if data.dtype not in (np.float32, np.float64):
            data = data.astype(np.float64)
        bad = ~((data >= 0) & np.isfinite(data))
        if bad.any():
            place = int(bad.argmax())
            row = int(self.edges[index]) + int(np.searchsorted(block.indptr, place, side="right")) - 1
            raise DataError(
                f"row {row} of {self.source.name} has an edge to {block.indices[place]} that weighs "
                f"{data[place]}: weights of a graph are finite, and not negative"
            )
        return Csr(block.indptr, block.indices, data)
