"""A matrix whose numbers go through steps whenever they are read, so that what they make is never written.

Rows are read whole where a number depends on its row. Sweeps then run along the rows, of wide matrices too.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.encoding import scratch
from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import CompressedSource, Csr, SamePlaces, Source, compressed, sum_places
from rankfold.pipeline.data.view import working_dtype
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.prepare.steps import Steps, in_words, parse_steps

Array = npt.NDArray[Any]

BLOCK_BYTES = 2**20
"""Numbers of whole rows that go through the steps together, in the working type."""

TEMPORARIES = 4
"""Arrays of float64, each as long as those numbers, that steps make beside them at most."""


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSource(SamePlaces):
    """A matrix after some steps, in the working type."""

    inner: Source
    steps: Steps

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.inner.name} [{in_words(self.steps)}]"

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 where it holds what is stored, else float64."""
        return working_dtype(self.inner.dtype)

    @property
    def format(self) -> str:
        """Kind of store, and the steps."""
        return f"{getattr(self.inner, 'format', type(self.inner).__name__)}, {in_words(self.steps)}"

    @property
    def column_grid(self) -> Grid:
        """Chunks along the columns; where rows are read whole, none is read for less than all of them."""
        grid = self.inner.column_grid
        return Grid(grid.edges, grid.splittable, scattered=True) if self.takes_rows else grid

    @property
    def takes_rows(self) -> bool:
        """Whether rows are read whole."""
        return any(step.by_row for step in self.steps)

    def read_into(self, out: Array, rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; see ``Source``."""
        count, read = rows[1] - rows[0], (0, self.shape[1]) if self.takes_rows else columns
        width = read[1] - read[0]
        if not count or columns[0] >= columns[1]:
            return
        raw_dtype = self.inner.dtype
        raw = (
            scratch.get("unprepared", count * width * raw_dtype.itemsize)
            .view(raw_dtype)
            .reshape(count, width)
        )
        self.inner.read_into(raw, rows, read)
        step = max(1, BLOCK_BYTES // (width * self.dtype.itemsize))
        for top in range(0, count, step):
            block = raw[top : top + step].astype(self.dtype)
            self._apply(block.reshape(-1), np.full(len(block), width))
            out[top : top + step] = block[:, columns[0] - read[0] : columns[1] - read[0]]

    def read_bytes(self, rows: int, columns: int) -> int:
        """Most memory of one ``read_into``: the matrix's own, what is stored, and what steps make."""
        width = self.shape[1] if self.takes_rows else columns
        # Buffers of a thread are an eighth larger than what was asked for.
        raw = rows * width * self.inner.dtype.itemsize * 9 // 8
        numbers = max(BLOCK_BYTES // self.dtype.itemsize, width)
        return self.inner.read_bytes(rows, width) + raw + TEMPORARIES * 8 * numbers

    def fingerprint(self) -> str:
        """Digest of the matrix and of the steps."""
        text = f"{self.inner.fingerprint()} {in_words(self.steps)}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def _apply(self, values: Array, counts: npt.NDArray[np.int64]) -> None:
        """Change the numbers of whole rows where they lie."""
        ends = np.cumsum(counts)
        filled = counts > 0
        for step in self.steps:
            sums = None
            if step.by_row:
                sums = np.zeros(len(counts))
                if filled.any():
                    sums[filled] = np.add.reduceat(values, (ends - counts)[filled], dtype=np.float64)
            step.apply(values, sums, counts)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSparse(PreparedSource):
    """A sparse matrix after some steps: what is stored is all that changes."""

    @property
    def _stored(self) -> CompressedSource:
        stored = compressed(self.inner)
        if stored is None:
            raise TypeError(f"{self.inner.name} does not tell its stored numbers")
        return stored

    @property
    def by(self) -> str:
        """``rows`` or ``columns``: the lines that lie together."""
        return self._stored.by

    @property
    def nnz(self) -> int:
        """Stored numbers."""
        return self._stored.nnz

    def pointers(self, top: int, bottom: int) -> npt.NDArray[np.int64]:
        """See ``CompressedSource``."""
        return self._stored.pointers(top, bottom)

    def read_sparse(self, lines: Span) -> Csr:
        """Lines ``start:stop``, every place once: see ``CompressedSource``."""
        stored = self._stored.read_sparse(lines)
        across = self.shape[1 if self.by == "rows" else 0]
        stored = sum_places(dataclasses.replace(stored, data=stored.data.astype(self.dtype)), across)
        data, first, most = stored.data, 0, BLOCK_BYTES // self.dtype.itemsize
        pointers = stored.indptr.astype(np.int64)
        while first < len(pointers) - 1:
            last = int(np.searchsorted(pointers, pointers[first] + most, side="right")) - 1
            last = max(first + 1, last)
            part = pointers[first : last + 1]
            self._apply(data[part[0] : part[-1]], np.diff(part))
            first = last
        return stored

    def sparse_bytes(self, numbers: int) -> int:
        """What reading takes, the numbers as they are stored, copies that are in order, what steps make."""
        lines = self.shape[0 if self.by == "rows" else 1]
        copies = numbers * (self.inner.dtype.itemsize + self.dtype.itemsize + 16)
        most = max(BLOCK_BYTES // self.dtype.itemsize, self.shape[1 if self.by == "rows" else 0])
        return self._stored.sparse_bytes(numbers) + copies + TEMPORARIES * 8 * most + 8 * (lines + 1)


def prepare_source(source: Source, steps: Steps) -> Source:
    """The matrix after some steps; itself if there are none.

    Raises
    ------
    InputError
        Rows are to be read whole, and what lies together are columns.
    """
    if not steps:
        return source
    if isinstance(source, PreparedSource):
        return prepare_source(source.inner, (*source.steps, *steps))
    stored = compressed(source)
    kind = PreparedSource if stored is None else PreparedSparse
    prepared = kind(source, steps)
    if prepared.takes_rows and source.row_grid.scattered:
        by_row = next(step.name for step in steps if step.by_row)
        raise InputError(
            f"{source.name} is compressed by columns, and {by_row} needs whole rows. Write it by rows (CSR) "
            "first"
        )
    return prepared


def described(source: Source) -> dict[str, str]:
    """What a result says of the steps that made its matrix: nothing, if there were none."""
    return {"prepare": in_words(source.steps)} if isinstance(source, PreparedSource) else {}


def prepare_like(source: Source, steps: str | None) -> Source:
    """A matrix after the steps that another one went through; one that went through them already stays.

    Raises
    ------
    InputError
        It went through others.
    """
    own = described(source).get("prepare")
    if steps is None or own == steps:
        return source
    if own is not None:
        raise InputError(
            f"the result is of a matrix after {steps}, and this one went through {own}. Open it without "
            "prepare: the steps of the result are taken"
        )
    return prepare_source(source, parse_steps(steps))
