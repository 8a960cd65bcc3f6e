"""Some rows and columns of a matrix, as a matrix: only what they need is read.

A slice without a step is read straight to its place. Other selections may pass through a buffer of a
few MiB, or of one chunk where chunks are decoded whole: ``Picks.fetches`` decides what is read at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.chunks.reads import SKIP_BYTES
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.picks import Fetch, Part, Picks, Selection, pick
from rankfold.pipeline.data.source import Source, Wrapper


def steps(span: Span, grid: Grid, most: int) -> Iterator[Span]:
    """Cut a span into pieces of at most ``most``, or one chunk where chunks are not to be split.

    >>> list(steps((1, 10), Grid.regular(12, 4, splittable=False), 5))
    [(1, 4), (4, 8), (8, 10)]
    """
    start, stop = span
    while start < stop:
        end = min(stop, start + max(1, most))
        if not grid.splittable and end < stop:
            end = int(grid.edges[np.searchsorted(grid.edges, end, side="right") - 1])
            if end <= start:
                end = min(stop, int(grid.edges[np.searchsorted(grid.edges, start, side="right")]))
        yield start, end
        start = end


def unit(grid: Grid) -> int:
    """Places that are read at once at the least."""
    return 1 if grid.splittable else grid.longest


# The selected matrix ------------------------------------------------------------------------------


FETCH_BYTES = 4 * 2**20
"""Buffer for what is read only in part, unless one chunk takes more."""


@dataclass(frozen=True, slots=True, eq=False)
class SelectedSource(Wrapper):
    """Rows and columns of another matrix; ``None`` keeps all."""

    inner: Source
    rows: Picks | None
    columns: Picks | None

    @property
    def name(self) -> str:
        """What messages call it: the matrix and what is kept."""
        choices = (("rows", self.rows), ("columns", self.columns))
        return f"{self.inner.name} [{', '.join(f'{what} {picks.words}' for what, picks in choices if picks)}]"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns kept."""
        rows, columns = self.inner.shape
        return self.rows.count if self.rows else rows, self.columns.count if self.columns else columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements in native byte order."""
        return self.inner.dtype

    @property
    def format(self) -> str:
        """Kind of store."""
        return f"part of {getattr(self.inner, 'format', type(self.inner).__name__)}"

    @property
    def row_grid(self) -> Grid:
        """Chunks along the rows kept."""
        return self.rows.grid(self.inner.row_grid) if self.rows else self.inner.row_grid

    @property
    def column_grid(self) -> Grid:
        """Chunks along the columns kept."""
        return self.columns.grid(self.inner.column_grid) if self.columns else self.inner.column_grid

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; see ``Source``."""
        tall, wide = (unit(grid) for grid in (self.inner.row_grid, self.inner.column_grid))
        item = self.dtype.itemsize
        down = _fetches(
            self.rows,
            rows,
            self.inner.row_grid,
            gap=SKIP_BYTES // (item * max(1, columns[1] - columns[0])),
            most=max(1, FETCH_BYTES // (item * max(wide, columns[1] - columns[0]))),
        )
        for row in down:
            across = _fetches(
                self.columns,
                columns,
                self.inner.column_grid,
                gap=SKIP_BYTES // item,
                most=max(1, FETCH_BYTES // (item * tall)),
            )
            for column in across:
                self._fetch(out, row, column)

    def read_bytes(self, rows: int, columns: int) -> int:
        """Most memory of one ``read_into``: that of the matrix, and the buffer unless all is contiguous."""
        if all(picks is None or picks.contiguous for picks in (self.rows, self.columns)):
            # One row more: what is selected begins anywhere in a chunk.
            return max(self.inner.read_bytes(rows, columns), self.inner.read_bytes(rows + 1, columns))
        tall, wide = (unit(grid) for grid in (self.inner.row_grid, self.inner.column_grid))
        # Twice: the heap of a thread keeps one that was freed.
        buffer = 2 * max(FETCH_BYTES, tall * wide * self.dtype.itemsize)
        return self.inner.read_bytes(max(rows, tall) + 1, max(columns, wide)) + buffer

    def fingerprint(self) -> str:
        """Digest of the matrix and of what is kept."""
        digest = hashlib.blake2b(self.inner.fingerprint().encode(), digest_size=16)
        for picks in (self.rows, self.columns):
            digest.update(b"all" if picks is None else np.ascontiguousarray(picks.runs, "<i8").data)
            digest.update(b";")
        return digest.hexdigest()

    def _fetch(self, out: npt.NDArray[Any], row: Fetch, column: Fetch) -> None:
        """Read one piece straight to its place, or what must be read with it into a buffer."""
        if row.direct and column.direct:
            self.inner.read_into(out[_to(row.parts[0]), _to(column.parts[0])], row.inner, column.inner)
            return
        item = self.dtype.itemsize
        for top in _chop(row, self.inner.row_grid, FETCH_BYTES // (item * column.length)):
            for left in _chop(column, self.inner.column_grid, FETCH_BYTES // (item * top.length)):
                buffer = np.empty((top.length, left.length), self.dtype)
                self.inner.read_into(buffer, top.inner, left.inner)
                for down in top.parts:
                    for across in left.parts:
                        rows, columns = _from(down, top), _from(across, left)
                        out[_to(down), _to(across)] = buffer[rows, columns]


def select(source: Source, *, rows: Selection, columns: Selection) -> Source:
    """What is asked for of a matrix, or the matrix itself if nothing is."""
    down = pick(rows, source.shape[0], what="row", name=source.name)
    across = pick(columns, source.shape[1], what="column", name=source.name)
    return source if down is None and across is None else SelectedSource(source, down, across)


def _fetches(picks: Picks | None, span: Span, grid: Grid, *, gap: int, most: int) -> Iterator[Fetch]:
    if picks is None:
        if span[0] < span[1]:
            yield Fetch(span, [Part(span[0], span[1] - span[0], 1, 0)])
        return
    yield from picks.fetches(span, grid, gap=gap, most=most)


def _chop(fetch: Fetch, grid: Grid, most: int) -> Iterator[Fetch]:
    """A direct fetch in pieces of whole chunks, at most ``most`` places or one chunk at a time."""
    if not fetch.direct:
        yield fetch
        return
    shift = fetch.parts[0].at - fetch.inner[0]
    for start, stop in steps(fetch.inner, grid, most):
        yield Fetch((start, stop), [Part(start, stop - start, 1, start + shift)])


def _to(part: Part) -> slice:
    return slice(part.at, part.at + part.size)


def _from(part: Part, fetch: Fetch) -> slice:
    start = part.first - fetch.inner[0]
    return slice(start, start + (part.size - 1) * part.step + 1, part.step)
