"""The cut of one axis of a store into native chunks: the parts that are stored and read together.

Chunks of one length take two numbers of memory, however many a header declares; edges are computed on demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import PlanError

GRAIN_BYTES_CEILING = 256 * 2**20
"""Bytes of a grain (rows of one matrix product) above which it may have fewer than the usual least rows.

Such rows are long, so memory decides.
"""


MOST_EDGES = 2**24
"""Largest number of edges that are computed: they take 128 MiB."""


class Even(NamedTuple):
    """Edges at multiples of ``chunk``, and at the length of the axis."""

    length: int
    chunk: int


@dataclass(frozen=True, slots=True)
class Grid:
    """The cut of one axis of a store into native chunks: ranges of indices that are stored together."""

    cuts: npt.NDArray[np.int64] | Even
    """All edges of chunks, (chunks + 1,), or ``Even`` if they follow from one length."""

    splittable: bool
    """True if a part of a chunk can be read without reading the rest."""

    scattered: bool = False
    """True if every piece of this axis is spread over the whole store: reading one costs reading all."""

    @classmethod
    def regular(cls, length: int, chunk: int, *, splittable: bool) -> Grid:
        """Grid with edges at multiples of ``chunk``; the last chunk may be shorter.

        >>> Grid.regular(10, 4, splittable=False).edges.tolist()
        [0, 4, 8, 10]
        """
        return cls(Even(int(length), int(chunk)), splittable)

    @property
    def edges(self) -> npt.NDArray[np.int64]:
        """Increasing, from 0 to the length of the axis: chunk ``i`` spans ``edges[i]:edges[i + 1]``.

        Raises
        ------
        PlanError
            There are more than ``MOST_EDGES``.
        """
        if not isinstance(self.cuts, Even):
            return self.cuts
        require_few_edges(self.count)
        length, chunk = self.cuts
        edges = np.arange(0, length + chunk, chunk, dtype=np.int64)
        edges[-1] = length
        return edges

    @property
    def count(self) -> int:
        """Number of chunks."""
        return -(-self.cuts.length // self.cuts.chunk) if isinstance(self.cuts, Even) else len(self.cuts) - 1

    @property
    def length(self) -> int:
        """Length of the axis."""
        return self.cuts.length if isinstance(self.cuts, Even) else int(self.cuts[-1])

    @property
    def longest(self) -> int:
        """Length of the longest chunk."""
        return min(self.cuts) if isinstance(self.cuts, Even) else int(np.diff(self.cuts).max())

    def chunk_of(self, place: int) -> tuple[int, int]:
        """First index of the chunk that holds index ``place``, and first index of the next chunk.

        >>> Grid.regular(10, 4, splittable=False).chunk_of(9)
        (8, 10)
        """
        if isinstance(self.cuts, Even):
            first = place - place % self.cuts.chunk
            return first, min(first + self.cuts.chunk, self.cuts.length)
        after = int(np.searchsorted(self.cuts, place, side="right"))
        return int(self.cuts[after - 1]), int(self.cuts[after])


def require_few_edges(count: int) -> None:
    """Raise ``PlanError`` if an axis has more pieces than ``MOST_EDGES``."""
    if count > MOST_EDGES:
        raise PlanError(
            f"an axis falls into {count} pieces, and at most {MOST_EDGES} are planned. Is its shape right? "
            "Select some rows or columns, or write it in larger chunks"
        )


def regular_grids(shape: Sequence[int], chunks: Sequence[int], *, splittable: bool) -> tuple[Grid, ...]:
    """The cut of every axis into chunks of one shape.

    >>> [grid.edges.tolist() for grid in regular_grids((3, 4), (2, 4), splittable=False)]
    [[0, 2, 3], [0, 4]]
    """
    return tuple(
        Grid.regular(length, chunk, splittable=splittable)
        for length, chunk in zip(shape, chunks, strict=True)
    )
