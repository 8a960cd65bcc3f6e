"""The cut of one axis of a store into native chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

GRAIN_BYTES_CEILING = 256 * 2**20
"""Above this the floor on rows gives way: rows are then so long that memory decides."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The cut of one axis of a store into native chunks."""

    edges: npt.NDArray[np.int64]
    """Increasing, from 0 to the length of the axis: chunk ``i`` spans ``edges[i]:edges[i + 1]``."""

    splittable: bool
    """Whether a part of a chunk can be read without reading the rest."""

    scattered: bool = False
    """Whether any piece of this axis is spread over the whole store, so that it costs reading all."""

    @classmethod
    def regular(cls, length: int, chunk: int, *, splittable: bool) -> Grid:
        """Edges at multiples of ``chunk``, the last chunk as short as need be.

        >>> Grid.regular(10, 4, splittable=False).edges.tolist()
        [0, 4, 8, 10]
        """
        edges = np.arange(0, length + chunk, chunk, dtype=np.int64)
        edges[-1] = length
        return cls(edges, splittable)

    @property
    def length(self) -> int:
        """Extent of the axis."""
        return int(self.edges[-1])

    @property
    def longest(self) -> int:
        """Extent of the longest chunk."""
        return int(np.diff(self.edges).max())


def regular_grids(shape: Sequence[int], chunks: Sequence[int], *, splittable: bool) -> tuple[Grid, ...]:
    """The cut of every axis into chunks of one shape.

    >>> [grid.edges.tolist() for grid in regular_grids((3, 4), (2, 4), splittable=False)]
    [[0, 2, 3], [0, 4]]
    """
    return tuple(
        Grid.regular(length, chunk, splittable=splittable)
        for length, chunk in zip(shape, chunks, strict=True)
    )
