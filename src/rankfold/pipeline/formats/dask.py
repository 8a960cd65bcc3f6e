"""Dask arrays: the blocks that a read needs, one after the other, each once for all its boxes.

The graph is carried and computed in the thread that reads (``scheduler="synchronous"``), so a sweep
keeps its own parallelism. What a block takes while it is computed is in the graph, not in our hands.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.geometry import Box, Piece, Span, intersect, local
from rankfold.pipeline.data.dtypes import native, require_matrix
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import Matrix
from rankfold.pipeline.errors import ChunkError, InputError


@dataclass(frozen=True, slots=True, eq=False)
class DaskBlocks:
    """A Dask array with chunks of known, possibly unequal, sizes."""

    array: Any

    codec = "computed"
    path = None

    @property
    def name(self) -> str:
        """What messages call it: Dask's name."""
        return f"dask array {self.array.name}"

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements in native byte order."""
        return native(self.array.dtype)

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Blocks along every axis."""
        return tuple(Grid(np.unique(block_edges(sizes)), splittable=False) for sizes in self.array.chunks)

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Copy every box to its place, block by block; see ``Volume``."""
        edges = [block_edges(sizes) for sizes in self.array.chunks]
        blocks: dict[tuple[int, ...], Box] = {}
        for piece in pieces:
            hits = (blocks_within(along, span) for along, span in zip(edges, piece.box, strict=True))
            for index in itertools.product(*hits):
                blocks[index] = tuple((int(e[i]), int(e[i + 1])) for e, i in zip(edges, index, strict=True))
        for index, box in sorted(blocks.items()):
            block = computed_block(self.array, index)
            for piece in pieces:
                if part := intersect(piece, box):
                    np.copyto(part.out, block[local(part.box, box)])

    def check(self) -> None:
        """Nothing can be seen without computing."""

    def fingerprint(self) -> str:
        """Digest of Dask's name, which is a token of how the array is made, and of its chunks."""
        text = f"{self.array.name} {self.dtype.str} {self.array.chunks}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def stored_bytes(self) -> int:
        """Bytes on disk: not known of a graph."""
        return 0

    @property
    def _computed_bytes(self) -> int:
        """Largest block twice: the block itself, and what the last step of its graph started from."""
        return 2 * math.prod(grid.longest for grid in self.grids) * self.dtype.itemsize


class DaskSource(Matrix, DaskBlocks):
    """A Dask array as a matrix of its two axes."""

    __slots__ = ()
    format = "Dask array"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.array.shape
        return int(rows), int(columns)

    def read_bytes(self, rows: int, columns: int) -> int:
        """Most memory of one ``read_into`` besides ``out``."""
        return self._computed_bytes


@dataclass(frozen=True, slots=True, eq=False)
class DaskVolume(DaskBlocks):
    """A Dask array with names for its axes."""

    axes: tuple[str, ...]
    format: str = "Dask array"

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of every axis."""
        return tuple(int(length) for length in self.array.shape)

    def read_bytes(self, elements: int) -> int:
        """Most memory of one ``read_boxes`` besides the places."""
        return self._computed_bytes


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
    shape = tuple(sizes[i] for sizes, i in zip(array.chunks, index, strict=True))
    if block.shape != shape:
        raise ChunkError(
            f"dask array {array.name}: block {index} has shape {block.shape}, promised was {shape}"
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


def dask_volume(array: Any, axes: tuple[str, ...], *, format: str = "Dask array") -> DaskVolume:
    """A Dask array of any number of axes, checked."""
    require_known_chunks(array)
    return DaskVolume(array, axes, format)


def block_edges(sizes: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Edges of the blocks; an edge is there twice where Dask has an empty block."""
    return np.asarray([0, *itertools.accumulate(sizes)], dtype=np.int64)


def blocks_within(edges: npt.NDArray[np.int64], span: Span) -> list[int]:
    """Number of every block that meets a span, other than empty ones."""
    start = int(np.searchsorted(edges, span[0], side="right")) - 1
    stop = int(np.searchsorted(edges, span[1], side="left"))
    return [i for i in range(start, stop) if max(span[0], edges[i]) < min(span[1], edges[i + 1])]
