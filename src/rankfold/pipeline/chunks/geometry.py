"""Spans, boxes and pieces: parts of an array to read, and where their values go."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy.typing as npt

Span = tuple[int, int]
"""First and one past the last index along an axis."""


# Boxes and pieces ---------------------------------------------------------------------------------


Box = tuple[Span, ...]
"""A span for every axis."""


class Piece(NamedTuple):
    """A box (a span along every axis) of an array, and the memory ``out`` that its values are read into."""

    box: Box
    out: npt.NDArray[Any]
    """View of the destination, of any strides, whose axes are those of the array in their order."""


def runs(start: int, stop: int, lengths: tuple[int, ...]) -> Iterator[tuple[Box, Span]]:
    """Yield the fewest boxes that cover flat positions ``start:stop`` of axes stacked in C order.

    ``lengths`` are those of the axes. Each box comes with the positions that it covers, which are
    consecutive.

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
    """Yield the boxes of ``runs`` at one index of the first axis.

    ``start`` and ``stop`` are positions within the other axes at that index.
    """
    shift = index * math.prod(lengths[1:])
    for box, (first, last) in runs(start, stop, lengths[1:]):
        yield ((index, index + 1), *box), (first + shift, last + shift)


def cells(pieces: Sequence[Piece], extent: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], list[Piece]]]:
    """Yield the cells of a regular grid that overlap pieces, in grid order.

    ``extent`` is the shape of a cell. Each comes as its index in the grid, with the parts of pieces in it.
    """
    ranges = [
        range(min(start for start, _ in spans) // step, -(-max(stop for _, stop in spans) // step))
        for spans, step in zip(zip(*(piece.box for piece in pieces), strict=True), extent, strict=True)
    ]
    for index in itertools.product(*ranges):
        cell = tuple((i * step, (i + 1) * step) for i, step in zip(index, extent, strict=True))
        parts = [part for piece in pieces if (part := intersect(piece, cell)) is not None]
        if parts:
            yield index, parts


def intersect(piece: Piece, box: Box) -> Piece | None:
    """The part of a piece that lies in a box of the same array; None if there is none."""
    both = tuple(
        (max(mine[0], other[0]), min(mine[1], other[1])) for mine, other in zip(piece.box, box, strict=True)
    )
    if any(start >= stop for start, stop in both):
        return None
    return Piece(both, piece.out[local(both, piece.box)])


def local(box: Box, within: Box) -> tuple[slice, ...]:
    """Slices that select a box in an array that holds the box ``within``."""
    return tuple(slice(a - at, b - at) for (a, b), (at, _) in zip(box, within, strict=True))


def requests(piece: Piece, chunks: tuple[int, ...], most: int) -> Iterator[Piece]:
    """Cut a piece at edges of chunks into parts that are read one after another.

    ``chunks`` is the shape of a chunk. The chunks of a part hold at most ``most`` elements together, or are
    one.
    """
    steps, size = list(chunks), math.prod(chunks)
    for axis in reversed(range(len(chunks))):
        start, stop = piece.box[axis]
        count = -(-stop // chunks[axis]) - start // chunks[axis]
        several = max(1, min(count, most // max(1, size)))
        steps[axis] *= several
        size *= several
        if several < count:
            break
    for _, (part,) in cells([piece], tuple(steps)):
        yield part
