"""Sort the stored values of a sparse matrix by row and column, also if they exceed the memory.

This is a distribution sort by the position ``row * columns + column``: every value goes to one of several
files, each of which holds a range of positions. A file that fits into memory is sorted there; a larger one is
split in the same way again. Duplicates have the same position, so they end up together and are summed in
their original order.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.dtypes import convert_into
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.importing.readers.reader import Entries
from rankfold.pipeline.removal import remove

SORT_BYTES = 96
"""Bytes of memory that sorting takes for each stored value: as read, its position,
the order, and the output.
"""

FAN_OUT = 256
"""Number of files that are written at a time."""

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
    """Yield stored values in order of rows, then columns, duplicates summed; ``folder``
    takes temporary files.
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
    """Sort the entries of whole rows by row and column, and sum duplicates; unchanged
    if nothing is to be done.
    """
    rows = entries.rows.astype(np.int64, copy=False)
    ahead = np.diff(rows), np.diff(entries.columns.astype(np.int64, copy=False))
    if bool(((ahead[0] > 0) | ((ahead[0] == 0) & (ahead[1] > 0))).all()):
        return entries
    record = np.dtype([("place", np.int64), ("value", entries.values.dtype)])
    block = _in_order(_records(Entries(rows - rows[0], *entries[1:]), columns, record))
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
    """Yield all records in order of position: distribute them to files, then sort each
    file or split it again.

    ``most`` is the largest number of records that is sorted in memory.
    """
    for bucket in _distribute(blocks, first, last, folder, record):
        count = os.path.getsize(bucket.path) // record.itemsize
        if bucket.last - bucket.first == 1:
            yield _one_place(_pieces(bucket.path, record, most))
        elif count <= most:
            yield _in_order(np.fromfile(bucket.path, record))
        else:
            pieces = _pieces(bucket.path, record, most)
            yield from _sort_blocks(pieces, bucket.first, bucket.last, folder, record, most)
        remove(bucket.path)


def _distribute(
    blocks: Iterable[Records], first: int, last: int, folder: Path, record: np.dtype[Any]
) -> list[_Bucket]:
    """Distribute records to ``FAN_OUT`` files of equal ranges of positions; returns
    those that hold any, in order.
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


def _in_order(block: Records) -> Records:
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
    """A single record: the sum of all values of one position, of which there are more than memory holds."""
    parts = np.concatenate([_in_order(piece) for piece in pieces])
    return _in_order(parts)
