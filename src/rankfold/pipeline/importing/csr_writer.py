"""Write the stored values of an ``EntryReader`` as a CSR group in AnnData's layout.

https://anndata.readthedocs.io/en/stable/fileformat-prose.html#sparse-arrays. Columns of a row are
sorted and unique, whatever the order in the file.

The stored values are sorted by row and column, also if they exceed the memory.

That is a distribution sort by the position ``row * columns + column``: every value goes to one of several
files, each of which holds a range of positions. A file that fits into memory is sorted there; a larger one is
split in the same way again. Duplicates have the same position, so they end up together and are summed in
their original order.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.dtypes import convert_into
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats.csr import CsrSource, csr_source
from rankfold.pipeline.importing.readers.reader import Entries, EntryReader
from rankfold.pipeline.importing.rows import GrowingArray
from rankfold.pipeline.importing.tiles import Ticker, require_room
from rankfold.pipeline.removal import remove

TARGET_CHUNKS = 8192
"""Number of chunk files of stored values from which the length of a chunk follows, within bounds."""

CHUNK_LENGTHS = (2**17, 2**22)

POINTERS_CHUNK = 2**17

BLOCK_SHARE, SORT_SHARE = 4, 2
"""Divisors of the memory: the shares of it for a block of entries as read, and for a file being sorted."""


def copy_entries(
    reader: EntryReader, folder: Path, dtype: np.dtype[Any], *, memory_bytes: int, ticker: Ticker
) -> CsrSource:
    """Write all stored values of a reader, in type ``dtype``, as a new CSR group in ``folder``.

    Unsorted ones are first sorted by files in a folder next to it. ``memory_bytes`` bounds the memory.
    """
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
    """Number of stored values of a chunk, for a matrix with ``entries`` of them."""
    return min(max(entries // TARGET_CHUNKS, CHUNK_LENGTHS[0]), CHUNK_LENGTHS[1])


class CsrWriter:
    """Appends entries, in order of rows and columns, to a new CSR group in ``folder``.

    ``shape`` and ``dtype`` are those of the matrix, ``entries`` is about the number of its stored values,
    ``name`` that of its source in messages.
    """

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
        """Append entries, at least one; the last row may continue in the next call.

        The end of that row in ``indptr`` is therefore written later.
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
        """Append to ``indptr`` the ends of all rows before ``last``.

        ``rows`` are the row indices, not decreasing, of the entries to be added next.
        """
        for start in range(self.indptr.length - 1, last, POINTERS_CHUNK):
            row_numbers = np.arange(start, min(last, start + POINTERS_CHUNK))
            self.indptr.append(self.data.length + np.searchsorted(rows, row_numbers, side="right"), self.name)


def _at_most(length: int) -> Callable[[int], tuple[int, ...]]:
    return lambda size: (min(length, max(1, size)),)


SORT_BYTES = 96
"""Bytes of memory that sorting takes for each stored value: as read, its position, the order, and output."""

FAN_OUT = 256
"""Number of files to which entries are distributed by position, and that are written at the same time."""

Records = npt.NDArray[Any]
"""Structured array (entries,): ``place``, the position ``row * columns + column``, and ``value``."""


@dataclass(frozen=True, slots=True)
class _Bucket:
    """A file of records whose positions are in ``range(first, last)``."""

    path: Path
    first: int
    last: int
    """One more than the largest position."""


def sorted_entries(
    blocks: Iterable[Entries], shape: tuple[int, int], dtype: np.dtype[Any], folder: Path, memory_bytes: int
) -> Iterator[Entries]:
    """Yield the stored values of ``blocks`` in order of rows, then columns, with duplicates summed.

    ``shape`` is that of the matrix, ``dtype`` the type of the values. ``folder`` takes temporary files,
    ``memory_bytes`` bounds the memory of sorting.
    """
    places = shape[0] * shape[1]
    if places >= 2**63:
        raise InputError(
            f"a sparse matrix of {shape[0]} x {shape[1]} has more than 2^63 places, too many to sort"
        )
    record = np.dtype([("place", np.int64), ("value", dtype)])
    most = max(1, memory_bytes // SORT_BYTES)
    records = (_records(block, shape[1], record) for block in blocks)
    for block in _sort_blocks(records, 0, places, folder, record, most):
        rows, columns = np.divmod(block["place"], shape[1])
        yield Entries(rows, columns, block["value"])


def merge_duplicates(entries: Entries, columns: int) -> Entries:
    """Sort the entries of whole rows by row and column, and sum duplicates.

    ``columns`` is the number of columns of the matrix. Entries in order are returned unchanged.
    """
    rows = entries.rows.astype(np.int64, copy=False)
    ahead = np.diff(rows), np.diff(entries.columns.astype(np.int64, copy=False))
    if bool(((ahead[0] > 0) | ((ahead[0] == 0) & (ahead[1] > 0))).all()):
        return entries
    record = np.dtype([("place", np.int64), ("value", entries.values.dtype)])
    block = _sorted_block(_records(Entries(rows - rows[0], *entries[1:]), columns, record))
    above, across = np.divmod(block["place"], columns)
    return Entries(above + rows[0], across, block["value"])


def _records(entries: Entries, columns: int, record: np.dtype[Any]) -> Records:
    records = np.empty(len(entries.values), record)
    records["place"] = entries.rows
    records["place"] *= columns
    records["place"] += entries.columns
    records["value"] = entries.values
    return records


def _sort_blocks(
    blocks: Iterable[Records], first: int, last: int, folder: Path, record: np.dtype[Any], most: int
) -> Iterator[Records]:
    """Yield the records of ``blocks`` in order of position, with the values of equal positions summed.

    Records are distributed to files in ``folder``; each file is sorted in memory if it has at most ``most``
    records, else split again. All positions are in ``range(first, last)``; ``record`` is the structured type.
    """
    for bucket in _distribute(blocks, first, last, folder, record):
        count = os.path.getsize(bucket.path) // record.itemsize
        if bucket.last - bucket.first == 1:
            yield _one_place(_pieces(bucket.path, record, most))
        elif count <= most:
            yield _sorted_block(np.fromfile(bucket.path, record))
        else:
            pieces = _pieces(bucket.path, record, most)
            yield from _sort_blocks(pieces, bucket.first, bucket.last, folder, record, most)
        remove(bucket.path)


def _distribute(
    blocks: Iterable[Records], first: int, last: int, folder: Path, record: np.dtype[Any]
) -> list[_Bucket]:
    """Distribute records to up to ``FAN_OUT`` files, which share ``range(first, last)`` of positions equally.

    Returns the files that hold any, in order.
    """
    width = -(-(last - first) // FAN_OUT)
    starts = range(first, last, width)
    files: dict[int, Any] = {}
    buckets = [
        _Bucket(folder / f"{start}-{min(last, start + width)}", start, min(last, start + width))
        for start in starts
    ]
    try:
        for block in blocks:
            # Numbers this small are sorted digit by digit, which is several times as fast.
            where = ((block["place"] - first) // width).astype(np.uint16)
            order = np.argsort(where, kind="stable")
            edges = np.searchsorted(where[order], np.arange(len(starts) + 1))
            for index, (start, stop) in enumerate(itertools.pairwise(edges.tolist())):
                if stop > start:
                    if index not in files:
                        files[index] = open(buckets[index].path, "wb", buffering=0)  # noqa: SIM115
                    files[index].write(block[order[start:stop]].data)
    finally:
        for file in files.values():
            file.close()
    return [buckets[index] for index in sorted(files)]


def _pieces(path: Path, record: np.dtype[Any], most: int) -> Iterator[Records]:
    for offset in range(0, os.path.getsize(path), most * record.itemsize):
        yield np.fromfile(path, record, most, offset=offset)


def _sorted_block(block: Records) -> Records:
    """Sort records by position, and sum the values of equal positions."""
    block = block[np.argsort(block["place"], kind="stable")]
    new = np.concatenate([[True], np.diff(block["place"]) != 0])
    if new.all():
        return block
    starts = np.flatnonzero(new)
    sums = block[starts]
    values = block["value"]
    is_narrow = values.dtype.kind in "iu" and values.dtype.itemsize < 8
    total = np.add.reduceat(values, starts, dtype=np.int64 if is_narrow else values.dtype)
    convert_into(
        sums["value"], total, "numbers of one place that are summed: dtype='int64' (--dtype int64) holds them"
    )
    return sums


def _one_place(pieces: Iterable[Records]) -> Records:
    """A single record, the sum of all ``pieces`` of the records of one position, too many for the memory."""
    parts = np.concatenate([_sorted_block(piece) for piece in pieces])
    return _sorted_block(parts)
