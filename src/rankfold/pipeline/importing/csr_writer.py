"""Write the stored values of an ``EntryReader`` as a CSR group in AnnData's layout.

https://anndata.readthedocs.io/en/stable/fileformat-prose.html#sparse-arrays. Columns of a row are
sorted and unique, whatever the order in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rankfold.pipeline.formats.csr import CsrSource, csr_source
from rankfold.pipeline.importing.coo_sort import merge_duplicates, sorted_entries
from rankfold.pipeline.importing.readers.reader import Entries, EntryReader
from rankfold.pipeline.importing.rows import GrowingArray
from rankfold.pipeline.importing.tiles import Ticker, require_room

TARGET_CHUNKS = 8192
"""Number of chunk files of the stored values that is aimed at; chunks grow, within
bounds, to stay near it.
"""

CHUNK_LENGTHS = (2**17, 2**22)

POINTERS_CHUNK = 2**17

BLOCK_SHARE, SORT_SHARE = 4, 2
"""Divisors of the memory: its share for a block of entries as read, and for a file that is being sorted."""


def copy_entries(
    reader: EntryReader, folder: Path, dtype: np.dtype[Any], *, memory_bytes: int, ticker: Ticker
) -> CsrSource:
    """Write all stored values into the group ``folder``; unsorted ones are sorted in a folder next to it."""
    # Sorted numbers are compressed at once; others are first written uncompressed, with their place.
    entry = (
        (4 + dtype.itemsize) / 2
        if reader.in_row_order
        else 8 + np.promote_types(reader.dtype, dtype).itemsize
    )
    # With far more rows than numbers, row ends dominate; these hardly differ, and compress to an eighth.
    need = max(int(entry * reader.entry_count), reader.shape[0])
    require_room(need, folder.parent, reader.name)
    writer = CsrWriter(folder, reader.shape, dtype, reader.entry_count, reader.name)
    wide = np.promote_types(reader.dtype, dtype)  # in which numbers of one place are summed
    for entries in _in_order(reader, wide, folder.parent, memory_bytes, ticker):
        writer.append(entries)
    writer.finish()
    ticker.at(reader.total_bytes)
    return csr_source(str(folder), "")


def _in_order(
    reader: EntryReader, dtype: np.dtype[Any], folder: Path, memory_bytes: int, ticker: Ticker
) -> Iterator[Entries]:
    def entry_blocks() -> Iterator[Entries]:
        for entries, bytes_read in reader.blocks(memory_bytes // BLOCK_SHARE):
            ticker.at(bytes_read)
            if len(entries.values):
                yield entries._replace(values=entries.values.astype(dtype, copy=False))

    if reader.in_row_order:
        for entries in entry_blocks():
            yield merge_duplicates(entries, reader.shape[1])
        return
    (folder / "buckets").mkdir()
    share = memory_bytes // SORT_SHARE
    yield from sorted_entries(entry_blocks(), reader.shape, dtype, folder / "buckets", share)


def chunk_length(entries: int) -> int:
    """Stored values per chunk, for a matrix with ``entries`` of them."""
    return min(max(entries // TARGET_CHUNKS, CHUNK_LENGTHS[0]), CHUNK_LENGTHS[1])


class CsrWriter:
    """Appends entries, in order of rows and columns, to a new CSR group."""

    def __init__(
        self, folder: Path, shape: tuple[int, int], dtype: np.dtype[Any], entries: int, name: str
    ) -> None:
        import zarr

        from rankfold.pipeline.chunks.regular_store import RegularStore

        self.shape, self.name = shape, name
        group = zarr.create_group(RegularStore(folder))
        group.attrs.update(
            {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [int(n) for n in shape]}
        )
        length = chunk_length(entries)
        index = np.dtype(np.int32 if shape[1] < 2**31 else np.int64)
        self.data = GrowingArray(folder / "data", dtype, (length,), (), _at_most(length))
        self.indices = GrowingArray(folder / "indices", index, (length,), (), _at_most(length))
        self.indptr = GrowingArray(
            folder / "indptr", np.dtype(np.int64), (POINTERS_CHUNK,), (), _at_most(POINTERS_CHUNK)
        )
        self.indptr.append(np.zeros(1, np.int64), name)

    def append(self, entries: Entries) -> None:
        """Append entries; the last row may continue in the next call, so its end in
        ``indptr`` is written later.
        """
        self._close_rows(int(entries.rows[-1]), entries.rows)
        self.data.append(entries.values, self.name)
        self.indices.append(entries.columns, self.name)

    def finish(self) -> None:
        """Write the ends of the remaining rows to ``indptr``, and all buffered values."""
        self._close_rows(self.shape[0], np.empty(0, np.int64))
        for vector in (self.data, self.indices, self.indptr):
            vector.finish()

    def _close_rows(self, last: int, rows: Any) -> None:
        """Append to ``indptr`` the ends of all rows before ``last``; ``rows`` are the
        row indices of entries to be added next.
        """
        for start in range(self.indptr.length - 1, last, POINTERS_CHUNK):
            row_numbers = np.arange(start, min(last, start + POINTERS_CHUNK))
            self.indptr.append(self.data.length + np.searchsorted(rows, row_numbers, side="right"), self.name)


def _at_most(length: int) -> Callable[[int], tuple[int, ...]]:
    return lambda size: (min(length, max(1, size)),)
