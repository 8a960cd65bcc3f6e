"""An array of any number of axes that is read box by box, and the arithmetic of boxes.

What stands behind ``stacked.py``: a store of (time, latitude, longitude) is a ``Volume``, and the
matrix of time by places is a way of asking it for boxes. All boxes of one read are handed over
together, since several of them may lie in the same chunk, which is to be decoded once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.blocks import Grid
from rankfold.pipeline.source import Span

Box = tuple[Span, ...]
"""A span for every axis."""


class Piece(NamedTuple):
    """A box of a volume and where its numbers go."""

    box: Box
    out: npt.NDArray[Any]
    """View of the destination with the axes of the volume in its order, of any strides."""


class Volume(Protocol):
    """What a stacked matrix needs to know of an array; see ``Source`` for what is alike. Pickles."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of every axis."""

    @property
    def axes(self) -> tuple[str, ...]:
        """Name of every axis, or its number where it has none."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements in native byte order."""

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Native chunks along every axis."""

    @property
    def path(self) -> str | None:
        """Local file or folder, if it lies in one."""

    @property
    def format(self) -> str:
        """Kind of store."""

    @property
    def codec(self) -> str:
        """How chunks are compressed."""

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Copy every box to its place; ``ChunkError`` for what is missing or damaged. Thread-safe."""

    def read_bytes(self, elements: int) -> int:
        """Most memory of one ``read_boxes`` of so many elements besides their places."""

    def check(self) -> None:
        """Raise ``ChunkError`` for what can be found wrong without reading the data."""

    def fingerprint(self) -> str:
        """Digest that changes when the data may have changed."""

    def stored_bytes(self) -> int:
        """Bytes on disk, 0 where there are none."""


def runs(start: int, stop: int, lengths: tuple[int, ...]) -> Iterator[tuple[Box, Span]]:
    """The fewest boxes that make up positions ``start:stop`` of axes stacked in C order.

    Every box comes with the positions that it covers, which are consecutive.

    >>> list(runs(2, 9, (3, 4)))
    [(((0, 1), (2, 4)), (2, 4)), (((1, 2), (0, 4)), (4, 8)), (((2, 3), (0, 1)), (8, 9))]
    """
    if start >= stop:
        return
    if len(lengths) < 2:
        yield (((start, stop),) if lengths else ()), (start, stop)
        return
    inner = math.prod(lengths[1:])
    first, last = -(-start // inner), stop // inner
    if first > last:
        yield from _within(last, start - last * inner, stop - last * inner, lengths)
        return
    if start < first * inner:
        yield from _within(first - 1, start - (first - 1) * inner, inner, lengths)
    if first < last:
        yield ((first, last), *((0, length) for length in lengths[1:])), (first * inner, last * inner)
    if last * inner < stop:
        yield from _within(last, 0, stop - last * inner, lengths)


def _within(index: int, start: int, stop: int, lengths: tuple[int, ...]) -> Iterator[tuple[Box, Span]]:
    """Boxes at one index of the first axis."""
    shift = index * math.prod(lengths[1:])
    for box, (first, last) in runs(start, stop, lengths[1:]):
        yield ((index, index + 1), *box), (first + shift, last + shift)


def stack_grids(grids: Sequence[Grid]) -> Grid:
    """Chunks of axes stacked in C order: an edge where what lies before and after shares no chunk.

    >>> day, lat = (Grid.regular(3, chunk, splittable=False) for chunk in (1, 2))
    >>> stack_grids([lat, day]).edges.tolist(), stack_grids([day, lat]).edges.tolist()
    ([0, 6, 9], [0, 2, 3, 5, 6, 8, 9])
    """
    if not grids:
        return Grid.regular(1, 1, splittable=True)
    # Axes of single chunks cut everywhere; the first of longer ones cuts, and what follows lies across it.
    at = next((i for i, grid in enumerate(grids) if grid.longest > 1), len(grids) - 1)
    before = math.prod(grid.length for grid in grids[:at])
    inner = math.prod(grid.length for grid in grids[at + 1 :])
    steps = grids[at].edges[1:] * inner
    edges = (np.arange(before, dtype=np.int64)[:, None] * (grids[at].length * inner) + steps).ravel()
    return Grid(np.concatenate([[0], edges]), splittable=all(grid.splittable for grid in grids))


def cells(pieces: Sequence[Piece], extent: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], list[Piece]]]:
    """Cells of a regular grid that the pieces meet, each with what lies in it, in grid order."""
    ranges = [
        range(min(start for start, _ in spans) // step, -(-max(stop for _, stop in spans) // step))
        for spans, step in zip(zip(*(piece.box for piece in pieces), strict=True), extent, strict=True)
    ]
    for index in itertools.product(*ranges):
        cell = tuple((i * step, (i + 1) * step) for i, step in zip(index, extent, strict=True))
        parts = [part for piece in pieces if (part := meet(piece, cell)) is not None]
        if parts:
            yield index, parts


def meet(piece: Piece, box: Box) -> Piece | None:
    """The part of a piece that lies in a box."""
    both = tuple(
        (max(mine[0], other[0]), min(mine[1], other[1])) for mine, other in zip(piece.box, box, strict=True)
    )
    if any(start >= stop for start, stop in both):
        return None
    return Piece(both, piece.out[local(both, piece.box)])


def local(box: Box, within: Box) -> tuple[slice, ...]:
    """A box as slices of an array that holds the box ``within``."""
    return tuple(slice(a - at, b - at) for (a, b), (at, _) in zip(box, within, strict=True))


def requests(piece: Piece, chunks: tuple[int, ...], most: int) -> Iterator[Piece]:
    """Cut a piece at edges of chunks into parts whose chunks hold at most ``most`` elements, or one chunk."""
    steps, size = list(chunks), math.prod(chunks)
    for axis in reversed(range(len(chunks))):
        start, stop = piece.box[axis]
        touched = -(-stop // chunks[axis]) - start // chunks[axis]
        several = max(1, min(touched, most // max(1, size)))
        steps[axis] *= several
        size *= several
        if several < touched:
            break
    for _, (part,) in cells([piece], tuple(steps)):
        yield part
