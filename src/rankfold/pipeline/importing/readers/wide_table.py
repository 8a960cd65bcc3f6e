"""Parquet files with so many columns that a page (unit of decoding) of each does not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.memory import return_freed_memory
from rankfold.pipeline.formats.npy import npy_source
from rankfold.pipeline.formats.tables.columns import load_arrow
from rankfold.pipeline.formats.tables.parquet import (
    STREAM_BYTES,
    ParquetReader,
    column_chunks,
    open_parquet,
)
from rankfold.pipeline.importing.readers.reader import write_columns_header

PAGE_BYTES = 2**20
"""Bytes of a page, as writers usually choose. For each column a page is held, its dictionary and bytes."""


def fit_columns(table: ParquetReader, memory_bytes: int) -> ParquetReader | WideTable:
    """The table itself if a page of each column fits into half of the memory; else a ``WideTable``."""
    if table.list_length is not None or _table_page_bytes(table) <= memory_bytes // 2:
        return table
    return WideTable(table, memory_bytes)


def _table_page_bytes(table: ParquetReader) -> int:
    with open_parquet(table.paths[0], STREAM_BYTES[0]) as file:
        return _page_bytes(file.metadata, table.stored_names)


def _page_bytes(metadata: Any, names: Sequence[str]) -> int:
    """Approximate bytes of memory of a page of each of the columns ``names``, decoded.

    ``metadata`` are those of a Parquet file, of which the row group with the largest pages counts.
    """
    return max(
        (
            sum(3 * min(chunk.total_uncompressed_size, PAGE_BYTES) for chunk in chunks)
            for chunks in column_chunks(metadata, names)
        ),
        default=0,
    )


@dataclass(frozen=True, slots=True)
class WideTable:
    """A table of so many columns that a page of each does not fit into memory.

    Some columns at a time are written to a file in Fortran order, of which any part can then be read.
    """

    table: ParquetReader
    memory_bytes: int

    @property
    def at_a_time(self) -> int:
        """Number of columns read at a time: their pages take a quarter of the memory.

        The allocator keeps about as much again.
        """
        return max(1, self.memory_bytes // 4 // (3 * PAGE_BYTES))

    @property
    def name(self) -> str:
        """Name of the table in messages."""
        return self.table.name

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the owner of the table: how it was understood where it was ambiguous."""
        return self.table.notes

    @property
    def total_bytes(self) -> int:
        """Bytes of the values, once unpacked."""
        return self.table.rows * self.table.columns * self.table.dtype.itemsize

    def unpack(self, folder: Path, progress: Callable[[int], None]) -> Source:
        """Write some columns at a time to a ``.npy`` file in Fortran order in ``folder``, and open it.

        ``progress`` is called with the number of bytes written so far.
        """
        target, dtype, rows = folder / "columns.npy", self.table.dtype, self.table.rows
        with open(target, "wb") as out:
            write_columns_header(out, dtype, (rows, self.table.columns))
            start = out.tell()
            for first in range(0, self.table.columns, self.at_a_time):
                names = self.table.column_names[first : first + self.at_a_time]
                row_names = None if first else self.table.row_names  # which are read once
                group = replace(self.table, column_names=names, row_names=row_names)
                row = 0
                for block, _ in group.blocks(self.memory_bytes // 8):
                    for column in range(len(names)):
                        out.seek(start + ((first + column) * rows + row) * dtype.itemsize)
                        out.write(np.ascontiguousarray(block[:, column]).data)
                    row += len(block)
                _give_back(self.name)
                progress((first + len(names)) * rows * dtype.itemsize)
        return npy_source(str(target))


def _give_back(path: str) -> None:
    """Return memory that Arrow and the heap keep for later use to the system; ``path`` is for messages."""
    load_arrow(path).default_memory_pool().release_unused()
    return_freed_memory()
