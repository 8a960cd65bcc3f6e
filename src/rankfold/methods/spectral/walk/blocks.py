"""Rows of a stored graph, block by block: all stay in memory, or each is read whenever it is its turn.

Where blocks are cut, and so the order of all sums, follows from the graph alone; what stays in memory changes
nothing but the time of a sweep.

Steps of a random walk on a graph, block by block of its rows, in any threads.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.graph.walk import Steps, step_rows
from rankfold.pipeline.data.source import CompressedSource, Csr
from rankfold.pipeline.errors import DataError

Array = npt.NDArray[Any]

BLOCK_NUMBERS = 2**20
"""Largest number of stored weights of a block of rows, unless a single row has more."""

POINTERS = 2**18
"""Number of rows whose pointers are read at a time."""

AHEAD = 2
"""Number of blocks in memory at once if none stays: the one that is multiplied, and the next."""


@dataclass(slots=True)
class GraphBlocks:
    """Stored graph that is iterated over in blocks of consecutive rows."""

    source: CompressedSource
    stay: bool
    """True if blocks stay in memory once they are read."""

    edges: Array
    """(blocks + 1,) first row of each block, and the number of all rows."""

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
        """Yield the first row of each block, and its rows in CSR form; reads the next block meanwhile."""
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


Float64 = npt.NDArray[np.float64]

PIECES = 4
"""Pieces for each thread into which a block is cut, since rows have different numbers of edges."""


class Walk:
    """A stored graph and a pool of threads, for products of the graph with blocks of vectors."""

    def __init__(self, blocks: GraphBlocks, threads: int) -> None:
        self.blocks, self.threads = blocks, threads
        self.reads = 0
        """Sweeps over the graph so far."""
        self._pool = ThreadPoolExecutor(threads, "rankfold-walk")

    def __enter__(self) -> Walk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def step(self, u: Float64, before: Float64 | None, steps: Steps, out: Float64 | None = None) -> Float64:
        """``walk * (W @ u) + stay * u + back * before`` at all vertices, (m, b), for a graph of weights W.

        Parameters
        ----------
        u : (m, b) float64
            Vectors.
        before : (m, b) float64, or None
            Vectors one step before; None where ``back`` is 0.
        steps : Steps
            Coefficients ``walk`` (m,), ``stay`` (m,) and ``back``.
        out : (m, b) float64, or None
            Written and returned; allocated if None.
        """
        into = np.empty(u.shape) if out is None else out
        then = u if before is None else before
        for first, block in self.blocks:
            height = len(block.indptr) - 1
            pieces = 1 if self.threads == 1 else PIECES * self.threads
            edges = [height * i // pieces for i in range(pieces + 1)]

            def move(ends: tuple[int, int], block: Csr = block, first: int = first) -> None:
                rows = slice(first + ends[0], first + ends[1])
                some = Steps(steps.walk[rows], steps.stay[rows], steps.back)
                beside: dict[str, Any] = {"own": u[rows], "before": then[rows], "steps": some}
                starts = block.indptr[ends[0] : ends[1] + 1]
                step_rows(starts, block.indices, block.data, u, **beside, out=into[rows])

            for _ in self._pool.map(move, itertools.pairwise(edges)):
                pass
        self.reads += 1
        return into
