"""NumPy and Dask arrays of any number of axes, read box by box; see ``memory.py`` and ``dask.py``.

A Dask block is computed once for all boxes of a read that meet it, and never two at a time.
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

from rankfold.pipeline.blocks import Grid
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.sources.dask import block_edges, computed_block, require_known_chunks, touched
from rankfold.pipeline.sources.matrix import native
from rankfold.pipeline.sources.memory import DIGEST_BYTES
from rankfold.pipeline.sources.volume import Box, Piece, local, meet, requests


@dataclass(frozen=True, slots=True, eq=False)
class ArrayVolume:
    """A NumPy array with names for its axes."""

    array: npt.NDArray[Any]
    axes: tuple[str, ...]
    format: str = "NumPy array"

    codec = "none"
    path = None

    @property
    def name(self) -> str:
        """What messages call it: type and shape."""
        return f"array {self.dtype} {self.shape}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of every axis."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements in native byte order."""
        return native(self.array.dtype)

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Pieces that can be cut anywhere."""
        return tuple(Grid.regular(length, length, splittable=True) for length in self.shape)

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Copy every box to its place."""
        for box, out in pieces:
            np.copyto(out, self.array[tuple(slice(*span) for span in box)])

    def read_bytes(self, elements: int) -> int:
        """Nothing: the copy goes from one array to the other."""
        return 0

    def check(self) -> None:
        """Nothing can be wrong with it."""

    def fingerprint(self) -> str:
        """Digest of type, shape and content; order in memory does not matter."""
        digest = hashlib.blake2b(f"{self.dtype.str} {self.shape}".encode(), digest_size=16)
        whole = Piece(tuple((0, length) for length in self.shape), self.array)
        step = max(1, DIGEST_BYTES // self.dtype.itemsize)
        for _, part in requests(whole, (1,) * self.array.ndim, step):
            digest.update(np.ascontiguousarray(part, self.dtype).data)
        return digest.hexdigest()

    def stored_bytes(self) -> int:
        """Bytes on disk: none."""
        return 0


@dataclass(frozen=True, slots=True, eq=False)
class DaskVolume:
    """A Dask array with chunks of known sizes and names for its axes."""

    array: Any
    axes: tuple[str, ...]
    format: str = "Dask array"

    codec = "computed"
    path = None

    @property
    def name(self) -> str:
        """What messages call it: Dask's name."""
        return f"dask array {self.array.name}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of every axis."""
        return tuple(int(length) for length in self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements in native byte order."""
        return native(self.array.dtype)

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Blocks along every axis."""
        return tuple(Grid(np.unique(block_edges(sizes)), splittable=False) for sizes in self.array.chunks)

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Copy every box to its place, block by block."""
        edges = [block_edges(sizes) for sizes in self.array.chunks]
        met: dict[tuple[int, ...], Box] = {}
        for piece in pieces:
            hits = (touched(along, span) for along, span in zip(edges, piece.box, strict=True))
            for index in itertools.product(*([i for i, _, _ in each] for each in hits)):
                met[index] = tuple((int(e[i]), int(e[i + 1])) for e, i in zip(edges, index, strict=True))
        for index, box in sorted(met.items()):
            block = computed_block(self.array, index)
            for piece in pieces:
                if part := meet(piece, box):
                    np.copyto(part.out, block[local(part.box, box)])

    def read_bytes(self, elements: int) -> int:
        """Largest block twice: the block itself, and what the last step of its graph started from."""
        return 2 * math.prod(grid.longest for grid in self.grids) * self.dtype.itemsize

    def check(self) -> None:
        """Nothing can be seen without computing."""

    def fingerprint(self) -> str:
        """Digest of Dask's name, which is a token of how the array is made, and of its chunks."""
        text = f"{self.array.name} {self.dtype.str} {self.array.chunks}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def stored_bytes(self) -> int:
        """Bytes on disk: not known of a graph."""
        return 0


def array_volume(
    array: npt.NDArray[Any], axes: tuple[str, ...], *, format: str = "NumPy array"
) -> ArrayVolume:
    """An array in memory, checked."""
    if isinstance(array, np.ma.MaskedArray):
        raise InputError("a masked array has gaps, which would be taken for numbers; pass x.filled(value)")
    return ArrayVolume(np.asarray(array), axes, format)


def dask_volume(array: Any, axes: tuple[str, ...], *, format: str = "Dask array") -> DaskVolume:
    """A Dask array, checked."""
    require_known_chunks(array)
    return DaskVolume(array, axes, format)
