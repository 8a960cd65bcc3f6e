"""A Dask array as a ``Source``: the blocks that a read needs, one after the other, never the whole.

The graph is carried and computed in the thread that reads (``scheduler="synchronous"``), so a sweep
keeps its own parallelism. What a block takes while it is computed is in the graph, not in our hands.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.data.dtypes import native, require_matrix
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.errors import ChunkError, InputError


@dataclass(frozen=True, slots=True, eq=False)
class DaskSource:
    """A two-dimensional Dask array with chunks of known, possibly unequal, sizes."""

    array: Any

    @property
    def name(self) -> str:
        """What messages call it: Dask's name."""
        return f"dask array {self.array.name}"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.array.shape
        return int(rows), int(columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements in native byte order."""
        return native(self.array.dtype)

    @property
    def format(self) -> str:
        """Where it comes from."""
        return "Dask array"

    @property
    def codec(self) -> str:
        """Blocks are computed, not decoded."""
        return "computed"

    @property
    def row_grid(self) -> Grid:
        """Blocks along the rows."""
        return Grid(np.unique(block_edges(self.array.chunks[0])), splittable=False)

    @property
    def column_grid(self) -> Grid:
        """Blocks along the columns."""
        return Grid(np.unique(block_edges(self.array.chunks[1])), splittable=False)

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; see ``Source``."""
        down, across = block_edges(self.array.chunks[0]), block_edges(self.array.chunks[1])
        for i, top, bottom in touched(down, rows):
            for j, left, right in touched(across, columns):
                block = computed_block(self.array, (i, j))[
                    top - down[i] : bottom - down[i], left - across[j] : right - across[j]
                ]
                out[top - rows[0] : bottom - rows[0], left - columns[0] : right - columns[0]] = block

    def read_bytes(self, rows: int, columns: int) -> int:
        """Largest block twice: the block itself, and what the last step of its graph started from."""
        return 2 * self.row_grid.longest * self.column_grid.longest * self.dtype.itemsize

    def check(self) -> None:
        """Nothing can be seen without computing."""

    def fingerprint(self) -> str:
        """Digest of Dask's name, which is a token of how the array is made, and of its chunks."""
        text = f"{self.array.name} {self.dtype.str} {self.array.chunks}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def stored_bytes(self) -> int:
        """Bytes on disk: not known of a graph."""
        return 0


def computed_block(array: Any, index: tuple[int, ...]) -> npt.NDArray[Any]:
    """One block, computed here and now."""
    try:
        block = array.blocks[index].compute(scheduler="synchronous")
        block = np.asarray(block.todense() if hasattr(block, "todense") else block)  # sparse chunks
    except MemoryError:
        raise
    except Exception as error:
        raise ChunkError(
            f"dask array {array.name}: block {index} could not be computed: {type(error).__name__}: {error}"
        ) from error
    promised = tuple(sizes[i] for sizes, i in zip(array.chunks, index, strict=True))
    if block.shape != promised:
        raise ChunkError(
            f"dask array {array.name}: block {index} has shape {block.shape}, promised was {promised}"
        )
    return block


def require_known_chunks(array: Any) -> None:
    """Raise ``InputError`` for a Dask array that does not know where its blocks end."""
    if any(math.isnan(size) for sizes in array.chunks for size in sizes):
        raise InputError(
            "the Dask array has chunks of unknown size, so its rows cannot be cut; "
            "call x.compute_chunk_sizes() first"
        )


def dask_source(array: Any) -> DaskSource:
    """A Dask array, checked."""
    require_known_chunks(array)
    require_matrix(f"dask array {array.name}", array.shape, array.dtype)
    return DaskSource(array)


def block_edges(sizes: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Edges of the blocks; an edge is there twice where Dask has an empty block."""
    return np.asarray([0, *itertools.accumulate(sizes)], dtype=np.int64)


def touched(edges: npt.NDArray[np.int64], span: Span) -> list[tuple[int, int, int]]:
    """Index, first and one past the last of every block that meets a span."""
    start = int(np.searchsorted(edges, span[0], side="right")) - 1
    stop = int(np.searchsorted(edges, span[1], side="left"))
    pieces = [(i, max(span[0], int(edges[i])), min(span[1], int(edges[i + 1]))) for i in range(start, stop)]
    return [piece for piece in pieces if piece[1] < piece[2]]
