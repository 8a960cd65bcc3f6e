"""A Parquet file, or a folder of them in the order of their names: columns of numbers, or one of vectors.

Embeddings are mostly kept as one column of lists that all have the same length; named alone, it is the
matrix. Row groups may be larger than memory, so pages are read one after the other: no ``pre_buffer``,
and a buffered stream for each column.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.memory import return_freed_memory
from rankfold.pipeline.errors import ChunkError, DataError, InputError
from rankfold.pipeline.formats.handles import library
from rankfold.pipeline.formats.npy import npy_source
from rankfold.pipeline.importing.readers.reader import Wanted, choose_columns, shown

ENDINGS = (".parquet", ".pq")

STREAM_BYTES = (2**14, 2**20)
"""Least and most of the buffer of one column."""

PAGE_BYTES = 2**20
"""What writers put into a page. Of every column that is read a page is held, its dictionary and its bytes."""

DECODED = 6
"""Memory that a batch takes in times of its numbers: decoded, joined, converted."""


@dataclass(frozen=True, slots=True)
class ParquetReader:
    """Columns of one or more Parquet files."""

    name: str
    paths: tuple[str, ...]
    dtype: np.dtype[Any]
    taken: tuple[str, ...]
    columns: int
    nested: bool
    """Whether the matrix is one column of lists."""

    notes: tuple[str, ...] = field(default=())

    @property
    def total_bytes(self) -> int:
        """Bytes of the files."""
        return sum(map(os.path.getsize, self.paths))

    def blocks(self, memory_bytes: int) -> Iterator[tuple[npt.NDArray[Any], int]]:
        """Batches of rows; see ``RowReader``."""
        before = 0
        for path in self.paths:
            size, rows = os.path.getsize(path), 0
            with open_parquet(
                path, min(max(memory_bytes // (8 * len(self.taken)), STREAM_BYTES[0]), STREAM_BYTES[1])
            ) as file:
                total = max(1, file.metadata.num_rows)
                for batch in self._batches(path, file, memory_bytes):
                    if batch.num_rows:
                        place = f"{path}, rows {rows}:{rows + batch.num_rows}"
                        rows += batch.num_rows
                        yield self._numbers(batch, place), before + size * rows // total
            if rows != file.metadata.num_rows:
                raise ChunkError(
                    f"{path} promises {file.metadata.num_rows} rows but has {rows}. Restore the file"
                )
            before += size

    def _batches(self, path: str, file: Any, memory_bytes: int) -> Iterator[Any]:
        arrow = library("pyarrow", extra="formats", what=f"reading {path}")
        if tuple(name for name in self.taken if name in file.schema_arrow.names) != self.taken:
            raise InputError(
                f"{path} has columns {shown(file.schema_arrow.names)}, not all of those of {self.paths[0]}"
            )
        size = max(1, memory_bytes // (DECODED * self.columns * max(8, self.dtype.itemsize)))
        try:
            yield from file.iter_batches(
                batch_size=min(size, 2**17), columns=list(self.taken), use_threads=False
            )
        except (arrow.ArrowException, OSError) as error:
            raise ChunkError(f"{path} cannot be read: {error}. Restore the file") from error

    def _numbers(self, batch: Any, place: str) -> npt.NDArray[Any]:
        if self.nested:
            return self._vectors(batch.column(self.taken[0]), place)
        out = np.empty((batch.num_rows, self.columns), self.dtype)
        for position, name in enumerate(self.taken):
            out[:, position] = self._column(batch.column(name), name, place)
        return out

    def _column(self, column: Any, name: str, place: str) -> npt.NDArray[Any]:
        """One column, missing values as NaN."""
        if str(column.type).startswith("decimal"):
            column = column.cast("float64", safe=False)
        if column.null_count and self.dtype.kind != "f":
            raise DataError(
                f"{place}: column {name!r} has missing values, and {self.dtype} cannot say so. Import it as "
                "float64 or float32"
            )
        if column.null_count and str(column.type) == "bool":
            column = column.cast("uint8")
        numbers: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return numbers

    def _vectors(self, column: Any, place: str) -> npt.NDArray[Any]:
        """A column of lists as rows."""
        lengths = column.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
        if (lengths != self.columns).any():
            row = int(np.argmax(lengths != self.columns))
            what = "no list" if lengths[row] < 0 else f"a list of {lengths[row]} numbers"
            raise DataError(
                f"{place}: column {self.taken[0]!r} has {what} at row {row} of these, where the first list "
                f"has {self.columns}. A matrix needs lists of one length"
            )
        return self._column(column.flatten(), self.taken[0], place).reshape(-1, self.columns)


def parquet_paths(path: str) -> tuple[str, ...]:
    """The file, or the Parquet files of a folder by name; nothing if there are none."""
    if os.path.isdir(path):
        return tuple(os.path.join(path, name) for name in sorted(os.listdir(path)) if name.endswith(ENDINGS))
    return (path,) if path.endswith(ENDINGS) else ()


@dataclass(frozen=True, slots=True)
class PackedColumns:
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
        """Nothing to note."""
        return ()

    @property
    def total_bytes(self) -> int:
        """Bytes of the numbers."""
        return self._rows() * self.table.columns * self.table.dtype.itemsize

    def unpack(self, folder: Path, progress: Callable[[int], None]) -> Source:
        """Write the columns one after the other."""
        target, dtype, rows = folder / "columns.npy", self.table.dtype, self._rows()
        with open(target, "wb") as out:
            header = {"descr": dtype.str, "fortran_order": True, "shape": (rows, self.table.columns)}
            np.lib.format.write_array_header_2_0(out, header)
            start = out.tell()
            for first in range(0, self.table.columns, self.at_a_time):
                names = self.table.taken[first : first + self.at_a_time]
                group = replace(self.table, taken=names, columns=len(names))
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
    library("pyarrow", extra="formats", what=f"reading {path}").default_memory_pool().release_unused()
    return_freed_memory()


def parquet_reader(path: str, wanted: Wanted) -> ParquetReader | PackedColumns:
    """The columns that are wanted of a file or a folder of files."""
    paths = parquet_paths(path)
    with open_parquet(paths[0], STREAM_BYTES[0]) as file:
        schema, metadata = file.schema_arrow, file.metadata
        taken = [schema.field(i) for i in choose_columns(schema.names, wanted, path)]
        nested = len(taken) == 1 and _listed(taken[0].type)
        types = [_type(each.type.value_type if nested else each.type) for each in taken]
        for each, kind in zip(taken, types, strict=True):
            if kind is None:  # never "None in types": NumPy takes None for float64
                raise _no_number(paths[0], file, each, schema)
        columns = _length(file, taken[0]) if nested else len(taken)
    if not columns:
        raise DataError(f"{path} holds no rows of numbers, so there is nothing to import")
    common = np.result_type(*[kind for kind in types if kind is not None])
    if common.kind in "iub" and _has_missing(metadata, [each.name for each in taken]):
        common = np.result_type(common, np.float32)
    reader = ParquetReader(path, paths, common, tuple(each.name for each in taken), columns, nested)
    if nested or _page_bytes(metadata, reader.taken) <= wanted.memory_bytes // 2:
        return reader
    return PackedColumns(reader, wanted.memory_bytes)


def open_parquet(path: str, buffer_bytes: int) -> Any:
    arrow, parquet = (
        library("pyarrow", extra="formats", what=f"reading {path}"),
        library("pyarrow.parquet", extra="formats", what=f"reading {path}"),
    )
    try:
        return parquet.ParquetFile(path, pre_buffer=False, buffer_size=buffer_bytes, memory_map=False)
    except (arrow.ArrowException, OSError) as error:
        raise ChunkError(f"{path} is not a whole Parquet file: {error}. Restore the file") from error


def _listed(kind: Any) -> bool:
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
    if _listed(field_.type):
        return InputError(
            f"{path}: column {name!r} holds lists ({field_.type}), which is a matrix by itself. Take it "
            f"alone: --columns {name!r} (columns=[{name!r}])"
        )
    lists = [each.name for each in schema if _listed(each.type)]
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


def _has_missing(metadata: Any, names: list[str]) -> bool:
    """Whether the statistics of the file say that values are missing."""
    wanted = set(names)
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index in range(row_group.num_columns):
            column = row_group.column(index)
            said = column.statistics
            if (
                column.path_in_schema.partition(".")[0] in wanted
                and said
                and said.has_null_count
                and said.null_count
            ):
                return True
    return False


def _page_bytes(metadata: Any, names: tuple[str, ...]) -> int:
    """About the memory that a page of each of the columns takes, in the row group where it is most."""
    wanted, most = set(names), 0
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        columns = map(row_group.column, range(row_group.num_columns))
        taken = (c for c in columns if c.path_in_schema.partition(".")[0] in wanted)
        most = max(most, sum(3 * min(c.total_uncompressed_size, PAGE_BYTES) for c in taken))
    return most
