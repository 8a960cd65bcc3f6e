"""A Parquet file, or a folder of them in the order of their names: columns of numbers, or one of vectors.

Embeddings are mostly kept as one column of lists that all have the same length; named alone, it is the
matrix. Row groups may be larger than memory, so pages are read one after the other: no ``pre_buffer``,
and a buffered stream for each column.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.memory import return_freed_memory
from rankfold.pipeline.errors import ChunkError, DataError, InputError, RankfoldError
from rankfold.pipeline.formats.locate import natural_key
from rankfold.pipeline.formats.npy import npy_source
from rankfold.pipeline.importing.readers.reader import (
    ImportOptions,
    choose_columns,
    list_names,
    write_columns_header,
)
from rankfold.pipeline.importing.readers.tables import Batch, NumericTable, clip_bytes, load_arrow
from rankfold.pipeline.regular import require_regular

PARQUET_ENDINGS = (".parquet", ".pq")

STREAM_BYTES = (2**14, 2**20)
"""Least and most of the buffer of one column."""

PAGE_BYTES = 2**20
"""What writers put into a page. Of every column that is read a page is held, its dictionary and its bytes."""

BATCH_FACTOR = 6
"""Memory that a batch takes in times of its numbers: decoded, joined, converted."""


@dataclass(frozen=True, slots=True)
class ParquetReader(NumericTable):
    """Columns of one or more Parquet files."""

    list_length: int | None
    """Of the lists in the one column that is the matrix."""

    notes: tuple[str, ...] = field(default=())

    @property
    def columns(self) -> int:
        """Numbers in a row."""
        return len(self.column_names) if self.list_length is None else self.list_length

    def batches(self, memory_bytes: int) -> Iterator[Batch]:
        """Rows of the files one after the other."""
        arrow, before = load_arrow(self.name), 0
        buffer_bytes = clip_bytes(memory_bytes // (8 * len(self.column_names)), STREAM_BYTES)
        rows = max(1, memory_bytes // (BATCH_FACTOR * self.columns * max(8, self.dtype.itemsize)))
        for path in self.paths:
            size, row = os.path.getsize(path), 0
            with open_parquet(path, buffer_bytes) as file:
                require_columns(path, self.paths[0], self.column_names, file.schema_arrow.names)
                total = file.metadata.num_rows
                try:
                    for batch in file.iter_batches(
                        min(rows, 2**17), columns=list(self.column_names), use_threads=False
                    ):
                        if batch.num_rows:
                            columns, first, row = self._columns(batch, path, row), row, row + batch.num_rows
                            yield Batch(columns, path, first, before + size * row // max(1, total))
                except (arrow.ArrowException, OSError) as error:
                    raise ChunkError(f"{path} cannot be read: {error}. Restore the file") from error
            if row != total:
                raise ChunkError(f"{path} promises {total} rows but has {row}. Restore the file")
            before += size

    def _columns(self, batch: Any, path: str, row: int) -> list[Any]:
        """The columns in the order they are taken, or what the lists of one hold."""
        if self.list_length is None:
            return [batch.column(name) for name in self.column_names]
        (name,) = self.column_names
        column = batch.column(name)
        lengths = column.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
        if (lengths != self.list_length).any():
            wrong = int(np.argmax(lengths != self.list_length))
            what = "no list" if lengths[wrong] < 0 else f"a list of {lengths[wrong]} numbers"
            raise DataError(
                f"{path}, rows {row}:{row + batch.num_rows}: column {name!r} has {what} at row {wrong} of "
                f"these, where the first list has {self.list_length}. A matrix needs lists of one length"
            )
        return [column.flatten()]


def parquet_paths(path: str) -> tuple[str, ...]:
    """The file, or the Parquet files of a folder by name; nothing if there are none."""
    if os.path.isdir(path):
        return tuple(
            os.path.join(path, name)
            for name in sorted(os.listdir(path), key=natural_key)
            if name.endswith(PARQUET_ENDINGS)
        )
    return (path,) if path.endswith(PARQUET_ENDINGS) else ()


@dataclass(frozen=True, slots=True)
class WideTable:
    """A table of so many columns that a page of each does not fit into memory.

    Some columns at a time go to a file in Fortran order, which is then read at any place.
    """

    table: ParquetReader
    memory_bytes: int

    @property
    def at_a_time(self) -> int:
        """Columns whose pages take a quarter of the memory; the allocator keeps about as much again."""
        return max(1, self.memory_bytes // 4 // (3 * PAGE_BYTES))

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.table.name

    @property
    def notes(self) -> tuple[str, ...]:
        """Those of the table."""
        return self.table.notes

    @property
    def total_bytes(self) -> int:
        """Bytes of the numbers."""
        return self._rows() * self.table.columns * self.table.dtype.itemsize

    def unpack(self, folder: Path, progress: Callable[[int], None]) -> Source:
        """Write the columns one after the other."""
        target, dtype, rows = folder / "columns.npy", self.table.dtype, self._rows()
        with open(target, "wb") as out:
            write_columns_header(out, dtype, (rows, self.table.columns))
            start = out.tell()
            for first in range(0, self.table.columns, self.at_a_time):
                names = self.table.column_names[first : first + self.at_a_time]
                group = replace(self.table, column_names=names)
                row = 0
                for block, _ in group.blocks(self.memory_bytes // 8):
                    for column in range(len(names)):
                        out.seek(start + ((first + column) * rows + row) * dtype.itemsize)
                        out.write(np.ascontiguousarray(block[:, column]).data)
                    row += len(block)
                _give_back(self.name)
                progress((first + len(names)) * rows * dtype.itemsize)
        return npy_source(str(target))

    def _rows(self) -> int:
        total = 0
        for path in self.table.paths:
            with open_parquet(path, STREAM_BYTES[0]) as file:
                total += file.metadata.num_rows
        return total


def _give_back(path: str) -> None:
    """Return what Arrow and the heap keep for later: what comes next does not need it there."""
    load_arrow(path).default_memory_pool().release_unused()
    return_freed_memory()


def parquet_reader(path: str, options: ImportOptions) -> ParquetReader | WideTable:
    """The columns to take from a file or a folder of files, read row by row where memory allows."""
    paths, notes = parquet_paths(path), list[str]()
    with open_parquet(paths[0], STREAM_BYTES[0]) as file:
        schema, metadata = file.schema_arrow, file.metadata
        if not options.selects and (index := _index_columns(schema)):
            options = replace(options, without=index)
            notes.append(f"{list_names(index)} of {path} names rows, as pandas wrote it, and was left out")
        names = [schema.names[i] for i in choose_columns(schema.names, options, path)]
        is_vector = len(names) == 1 and _is_list(schema.field(names[0]).type)
        types = _types(paths[0], file, names, is_vector=is_vector)
        length = _length(file, schema.field(names[0])) if is_vector else None
    if length == 0:
        raise DataError(f"{path} holds no rows of numbers, so there is nothing to import")
    lacks, page_bytes = _has_missing(metadata, names), _page_bytes(metadata, names)
    for other in paths[1:]:  # the first does not speak for them
        with open_parquet(other, STREAM_BYTES[0]) as file:
            require_columns(other, paths[0], names, file.schema_arrow.names)
            types += _types(other, file, names, is_vector=is_vector)
            lacks = lacks or _has_missing(file.metadata, names)
    dtype = np.result_type(*types)
    if dtype.kind in "iub" and lacks:
        dtype = np.result_type(dtype, np.float32)
    if dtype.kind in "iub" and options.dtype is not None and options.dtype.name in ("float32", "float64"):
        dtype = options.dtype  # holds NaN, where values are missing without a word in the statistics
    reader = ParquetReader(path, paths, dtype, tuple(names), length, tuple(notes))
    if is_vector or page_bytes <= options.memory_bytes // 2:
        return reader
    return WideTable(reader, options.memory_bytes)


def require_columns(path: str, first: str, wanted: Sequence[str], names: Sequence[str]) -> None:
    """Raise ``InputError`` for a file that lacks columns of the first one, or has one of them twice."""
    if not set(wanted) <= set(names):
        raise InputError(f"{path} has columns {list_names(names)}, not all of those of {first}")
    twice = [name for name, count in Counter(names).items() if count > 1 and name in wanted]
    if twice:
        raise InputError(
            f"{path} has several columns of the name {twice[0]!r}. Rename them, or leave them out"
        )


def _index_columns(schema: Any) -> tuple[str, ...]:
    """Columns that pandas wrote as names of the rows: pandas's metadata, ``index_columns``."""
    try:
        said = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
        index = said.get("index_columns", ())
    except (ValueError, AttributeError):
        return ()
    return tuple(name for name in index if isinstance(name, str) and name in schema.names)


def _types(path: str, file: Any, names: Sequence[str], *, is_vector: bool) -> list[np.dtype[Any]]:
    """Types of numbers of columns of a file."""
    schema, found = file.schema_arrow, []
    for each in map(schema.field, names):
        of_lists = is_vector and _is_list(each.type)
        kind = _type(each.type.value_type if of_lists else each.type) if of_lists == is_vector else None
        if kind is None:
            raise _no_number(path, file, each, schema)
        found.append(kind)
    return found


@contextlib.contextmanager
def open_parquet(path: str, buffer_bytes: int) -> Iterator[Any]:
    """A Parquet file, each column of which is read by a buffer of so many bytes."""
    arrow, parquet = load_arrow(path), load_arrow(path, "parquet")
    require_regular(path)
    try:
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=buffer_bytes, memory_map=False) as file:
            yield file
    except RankfoldError:
        raise
    except (arrow.ArrowException, OSError, UnicodeError) as error:
        raise ChunkError(f"{path} is not a whole Parquet file: {error}. Restore the file") from error


def _is_list(kind: Any) -> bool:
    return str(kind).startswith(("list<", "fixed_size_list<", "large_list<"))


def _type(kind: Any) -> np.dtype[Any] | None:
    """The type of NumPy for numbers, ``None`` for what is none."""
    text = str(kind)
    if text.startswith("decimal"):
        return np.dtype(np.float64)
    names = {"float": "float32", "double": "float64", "halffloat": "float16", "bool": "bool"}
    name = names.get(text, text)
    return np.dtype(name) if name in names.values() or name.lstrip("u").startswith("int") else None


def _no_number(path: str, file: Any, field_: Any, schema: Any) -> Exception:
    """The error for a column that holds no numbers, with its first value."""
    name = field_.name
    if _is_list(field_.type):
        return InputError(
            f"{path}: column {name!r} holds lists ({field_.type}), which is a matrix by itself. Take it "
            f"alone: --columns {name!r} (columns=[{name!r}])"
        )
    lists = [each.name for each in schema if _is_list(each.type)]
    batch = next(file.iter_batches(batch_size=1, columns=[name], use_threads=False), None)
    first = f", its first value is {batch.column(0)[0].as_py()!r}" if batch and batch.num_rows else ""
    other = f", or take the column of lists alone with --columns {lists[0]!r}" if lists else ""
    return DataError(
        f"{path}: column {name!r} holds {field_.type}, no numbers{first}. Leave it out with --without "
        f"{name!r} (without=[{name!r}]){other}"
    )


def _length(file: Any, field_: Any) -> int:
    """Length of the lists of a column, by its type or by the first that is there."""
    if str(field_.type).startswith("fixed_size_list<"):
        return int(field_.type.list_size)
    for batch in file.iter_batches(batch_size=1, columns=[field_.name], use_threads=False):
        if batch.num_rows and batch.column(0)[0].is_valid:
            return len(batch.column(0)[0])
    return 0


def _has_missing(metadata: Any, names: Sequence[str]) -> bool:
    """Whether the statistics of the file say that values are missing."""
    statistics = (chunk.statistics for chunks in _column_chunks(metadata, names) for chunk in chunks)
    return any(each and each.has_null_count and each.null_count for each in statistics)


def _page_bytes(metadata: Any, names: Sequence[str]) -> int:
    """About the memory that a page of each of the columns takes, in the row group where it is most."""
    return max(
        (
            sum(3 * min(chunk.total_uncompressed_size, PAGE_BYTES) for chunk in chunks)
            for chunks in _column_chunks(metadata, names)
        ),
        default=0,
    )


def _column_chunks(metadata: Any, names: Sequence[str]) -> Iterator[Iterator[Any]]:
    """What the file says of the columns, row group by row group."""
    choice = set(names)
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        chunks = map(group.column, range(group.num_columns))
        yield (chunk for chunk in chunks if chunk.path_in_schema.partition(".")[0] in choice)
