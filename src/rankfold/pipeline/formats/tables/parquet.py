"""Parquet files, or a folder of them in the order of their names: columns of numbers, or one of vectors.

Embeddings are mostly stored as one column of lists, or of tensors, that all have the same length. If this
column is chosen alone, it is the matrix. Row groups may be larger than memory, so pages are read one after
the other: no ``pre_buffer``, and a buffered stream for each column.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rankfold.pipeline.data.dtypes import cut
from rankfold.pipeline.errors import ChunkError, DataError, InputError, RankfoldError
from rankfold.pipeline.formats.locate import natural_key
from rankfold.pipeline.formats.tables.columns import (
    ALL_NUMBERS,
    INDEX_NAME,
    MOST_COLUMNS,
    Batch,
    Look,
    NumericTable,
    TableColumn,
    clip_bytes,
    index_names,
    load_arrow,
)
from rankfold.pipeline.formats.tables.options import (
    ReadOptions,
    choose_columns,
    left_out_of,
    list_names,
    name_rows,
    without_columns,
)
from rankfold.pipeline.formats.tables.row_names import RowNames, texts_of_values
from rankfold.pipeline.regular import require_regular

PARQUET_ENDINGS = (".parquet", ".pq")

STREAM_BYTES = (2**14, 2**20)
"""Least and most bytes of the buffer through which one column of a file is read."""

PARTITION = re.compile(r"([^=]+)=(.*)")
"""Pattern of a folder ``column=value`` of a partitioned table: a column with one value in all files below."""

NAME_NUMBERS = 64
"""Memory that the name of a row takes, as a multiple of that of an element of the matrix."""

BATCH_FACTOR = 6
"""Memory of a batch, as a multiple of that of its values: they are decoded, joined and converted."""


@dataclass(frozen=True, slots=True)
class ParquetReader(NumericTable):
    """Columns of one or more Parquet files."""

    list_length: int | None
    """Length of the lists in the only column, which is the matrix; None for columns of numbers."""

    decided: tuple[str, ...] = field(default=())
    """Decisions about the files when they were opened, as text."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Decisions about the files, as text, as far as they have been read."""
        return (*self.decided, *(() if self.row_names is None else self.row_names.notes()))

    @property
    def stored_names(self) -> tuple[str, ...]:
        """Names of the columns that are read from the files: those of numbers, then any that names rows."""
        return (*self.column_names, *(() if self.row_names is None else (self.row_names.column,)))

    @property
    def columns(self) -> int:
        """Number of elements in a row."""
        return len(self.column_names) if self.list_length is None else self.list_length

    @property
    def rows(self) -> int:
        """Number of rows of all files, by their metadata."""
        total = 0
        for path in self.paths:
            with open_parquet(path, STREAM_BYTES[0]) as file:
                total += file.metadata.num_rows
        return total

    def batches(self, memory_bytes: int) -> Iterator[Batch]:
        """Yield rows of the files in order, in batches that take about ``memory_bytes``.

        Raises ``ChunkError`` for damaged files, ``DataError`` for lists of another length.
        """
        arrow, before = load_arrow(self.name), 0
        buffer_bytes = clip_bytes(memory_bytes // (8 * len(self.stored_names)), STREAM_BYTES)
        width = self.columns + (0 if self.row_names is None else NAME_NUMBERS)
        rows = max(1, memory_bytes // (BATCH_FACTOR * width * max(8, self.dtype.itemsize)))
        for path in self.paths:
            size, row = os.path.getsize(path), 0
            with open_parquet(path, buffer_bytes) as file:
                require_columns(path, self.paths[0], self.stored_names, file.schema_arrow.names)
                total = file.metadata.num_rows
                try:
                    for batch in file.iter_batches(
                        min(rows, 2**17), columns=list(self.stored_names), use_threads=False
                    ):
                        if batch.num_rows:
                            columns, first, row = self._columns(batch, path, row), row, row + batch.num_rows
                            names = (
                                None
                                if self.row_names is None
                                else names_in(batch.column(self.row_names.column))
                            )
                            yield Batch(columns, path, first, before + size * row // max(1, total), names)
                except (arrow.ArrowException, OSError) as error:
                    raise ChunkError(f"{path} cannot be read: {error}. Restore the file") from error
            if row != total:
                raise ChunkError(f"{path} promises {total} rows but has {row}. Restore the file")
            before += size

    def _columns(self, batch: Any, path: str, row: int) -> list[Any]:
        """Arrow arrays of the columns of a batch in order; of a column of lists, one with all elements.

        ``path`` is that of the file, ``row`` the index of the first row in it, for messages.
        """
        if self.list_length is None:
            return [batch.column(name) for name in self.column_names]
        (name,) = self.column_names
        column = batch.column(name)
        column = getattr(column, "storage", column)
        lengths = column.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
        if (lengths != self.list_length).any():
            wrong = int(np.argmax(lengths != self.list_length))
            what = "no list" if lengths[wrong] < 0 else f"a list of {lengths[wrong]} numbers"
            raise DataError(
                f"{path}, rows {row}:{row + batch.num_rows}: column {name!r} has {what} at row {wrong} of "
                f"these, where the first list has {self.list_length}. A matrix needs lists of one length"
            )
        return [column.flatten()]


def names_in(column: Any) -> list[str]:
    """Values of an Arrow column, of any type that is not nested, as names of rows; empty if missing."""
    column = column.dictionary_decode() if hasattr(column, "dictionary_decode") else column
    if str(column.type).startswith(("timestamp", "date")):
        return texts_of_values(column.to_numpy(zero_copy_only=False).astype("datetime64[ns]"))
    return texts_of_values(column.cast("string").to_pylist())


def parquet_paths(path: str) -> tuple[str, ...]:
    """A Parquet file, or the Parquet files of a folder in the order of their names; empty if there are none.

    A folder without Parquet files may be partitioned: files are then in folders named ``column=value``.
    """
    if not os.path.isdir(path):
        return (path,) if path.endswith(PARQUET_ENDINGS) else ()
    names = [name for name in sorted(os.listdir(path), key=natural_key) if not name.startswith(("_", "."))]
    paths = tuple(os.path.join(path, name) for name in names if name.endswith(PARQUET_ENDINGS))
    if paths:
        return paths
    folders = (os.path.join(path, name) for name in names if PARTITION.fullmatch(name))

    def is_folder(name: str) -> bool:  # links may lead back
        return os.path.isdir(name) and not os.path.islink(name)

    return tuple(each for folder in folders if is_folder(folder) for each in parquet_paths(folder))


def _partitions(path: str, file: str) -> list[str]:
    """Names of the columns that folders ``column=value`` between ``path`` and the file ``file`` stand for."""
    folders = os.path.relpath(file, path).split(os.sep)[:-1]
    return [found[1] for folder in folders if (found := PARTITION.fullmatch(folder))]


def parquet_reader(path: str, paths: Sequence[str], options: ReadOptions) -> ParquetReader:
    """Reader of the Parquet files ``paths`` with the columns that ``options`` choose.

    ``path`` is the file or folder as the caller gave it, for messages.
    With ``options.numeric`` columns that hold no numbers in one of the files are left out.
    """
    notes = list[str]()
    if options.has_style:
        raise InputError(f"{path} is no text: decimal, thousands and skip_lines are for .csv, .tsv and .txt")
    if partitions := _partitions(path, paths[0]):
        notes.append(
            f"{list_names(partitions)} of {path} are names of folders, no columns of files, and were left out"
        )
    with open_parquet(paths[0], STREAM_BYTES[0]) as file:
        schema = file.schema_arrow
        row_names, index = None, index_columns(schema)
        because = f"{list_names(index)} of {path} names rows, as pandas wrote it"
        by_itself = len(index) == 1 and options.may_name_rows(index[0])
        if by_itself:
            options = replace(options, index_col=index[0])
        others = [] if options.selects else [name for name in index if name != options.index_col]
        if others:
            options = replace(options, without=others)
            notes.append(f"{because}, and was left out")
        names = [schema.names[i] for i in choose_columns(schema.names, options, path)]
        if options.index_col is not None:
            kind = schema.field(options.index_col).type
            if hasattr(storage_of(kind), "num_fields") and storage_of(kind).num_fields:
                raise InputError(f"{path}: column {options.index_col!r} holds {kind}, which names no rows")
            title = "row" if INDEX_NAME.fullmatch(options.index_col) else options.index_col
            row_names = RowNames(options.index_col, path, title=title, because=because if by_itself else "")
    if options.numeric and len(names) > 1:
        look = _look(paths, names)
        names = [each.name for each in look.columns if each.obstacle is None]
        if not names:
            raise DataError(f"{path} has no column of numbers: {look.left_out()}")
        if len(names) < len(look.columns):
            notes.append(f"left out of {path}: {look.left_out()}")
            notes += [
                f"the lists of {each.name!r} are a matrix by themselves: {path}::{each.name}"
                for each in look.columns
                if each.vector
            ]
    return replace(_reader_of(path, tuple(paths), names, tuple(notes), options), row_names=row_names)


def _reader_of(
    path: str, paths: tuple[str, ...], names: list[str], notes: tuple[str, ...], options: ReadOptions
) -> ParquetReader:
    """Reader of the columns ``names``, in a type that holds the values of all files, whose types may differ.

    ``path`` is the name of the table in messages, ``paths`` are its files, ``notes`` are kept in the reader.
    """
    types, lacks, length, firsts = list[np.dtype[Any]](), False, None, list[str]()
    is_vector = False
    for place, each in enumerate(paths):
        with open_parquet(each, STREAM_BYTES[0]) as file:
            schema = file.schema_arrow
            require_columns(each, paths[0], names, schema.names)
            firsts = schema.names if place == 0 else firsts
            if extra := [
                name for name in schema.names if name not in firsts and name not in index_columns(schema)
            ]:
                notes = (*notes, left_out_of(each, extra, paths[0]))
            if place == 0:
                is_vector = len(names) == 1 and is_list(schema.field(names[0]).type)
            types += _types(path, each, file, names, is_vector=is_vector)
            lacks = lacks or _has_missing(file.metadata, names)
            if place == 0 and is_vector:
                length = _length(file, schema.field(names[0]))
                if length == 0:
                    raise DataError(f"{path} holds no rows of numbers, so there is nothing to import")
    dtype = np.result_type(*types)
    if dtype.kind in "iub" and lacks:
        dtype = np.result_type(dtype, np.float32)
    if dtype.kind in "iub" and options.dtype is not None and options.dtype.name in ("float32", "float64"):
        dtype = options.dtype  # has NaN for values that are missing though the statistics do not say so
    return ParquetReader(path, paths, dtype, tuple(names), True, length, notes)


def look_at_parquet(paths: Sequence[str]) -> Look:
    """Describe all columns of Parquet files by the metadata of the files, and first values."""
    with open_parquet(paths[0], STREAM_BYTES[0]) as file:
        names, index = file.schema_arrow.names, index_columns(file.schema_arrow)
    look = _look(paths, names)
    columns = tuple(
        each._replace(obstacle="it names rows, as pandas wrote it", names_rows=len(index) == 1)
        if each.name in index
        else each
        for each in look.columns
    )
    return replace(look, columns=columns)


def _look(paths: Sequence[str], names: Sequence[str]) -> Look:
    """Describe the columns ``names``: types, and obstacles in any of the files to reading them as numbers."""
    kinds, obstacles, vectors, rows = dict[str, str](), dict[str, str](), dict[str, int](), 0
    for path in paths:
        with open_parquet(path, STREAM_BYTES[0]) as file:
            schema, rows = file.schema_arrow, rows + file.metadata.num_rows
            require_columns(path, paths[0], names, schema.names)
            for name in names:
                kind = schema.field(name).type
                kinds.setdefault(name, str(kind))
                if _type(kind) is None and name not in obstacles:
                    obstacles[name] = str(kind) + _first_value(file, name, kind)
                    if is_list(kind) and _type(storage_of(kind).value_type) is not None:
                        vectors[name] = _length(file, schema.field(name))
    columns = tuple(
        TableColumn(name, kinds[name], obstacles.get(name), vectors.get(name, 0)) for name in names
    )
    return Look(columns, rows, True)


def require_columns(path: str, first: str, wanted: Sequence[str], names: Sequence[str]) -> None:
    """Raise ``InputError`` if a file lacks one of the columns ``wanted``, or has it twice.

    ``names`` are those of all its columns; ``first`` is the file that has the wanted ones, for the message.
    """
    if not set(wanted) <= set(names):
        raise InputError(f"{path} has columns {list_names(names)}, not all of those of {first}")
    twice = [name for name, count in Counter(names).items() if count > 1 and name in wanted]
    if twice:
        raise InputError(
            f"{path} has several columns of the name {twice[0]!r}. Rename them, or leave them out"
        )


def index_columns(schema: Any) -> tuple[str, ...]:
    """Names of columns that pandas wrote as index, by its metadata in an Arrow schema or by their names."""
    try:
        said = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
        index = [
            name for name in said.get("index_columns", ()) if isinstance(name, str) and name in schema.names
        ]
    except (ValueError, AttributeError):
        index = []
    return tuple(dict.fromkeys((*index, *index_names(schema.names))))


def _types(
    location: str, path: str, file: Any, names: Sequence[str], *, is_vector: bool
) -> list[np.dtype[Any]]:
    """NumPy types of columns ``names`` of an open file, or of the elements of their lists (``is_vector``).

    ``DataError`` if a column holds no numbers; ``location``, of the table, and ``path``, of the file, are for
    its message.
    """
    schema, found, wrong = file.schema_arrow, [], []
    for each in map(schema.field, names):
        of_lists = is_vector and is_list(each.type)
        kind = (
            _type(storage_of(each.type).value_type if of_lists else each.type)
            if of_lists == is_vector
            else None
        )
        if kind is None:
            wrong.append(each)
        else:
            found.append(kind)
    if wrong:
        raise _no_numbers(location, path, file, wrong)
    return found


@contextlib.contextmanager
def open_parquet(path: str, buffer_bytes: int) -> Iterator[Any]:
    """Open a Parquet file, each column of which is read through a buffer of ``buffer_bytes``."""
    arrow, parquet = load_arrow(path), load_arrow(path, "parquet")
    require_regular(path)
    try:
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=buffer_bytes, memory_map=False) as file:
            yield file
    except RankfoldError:
        raise
    except (arrow.ArrowException, OSError, UnicodeError) as error:
        raise ChunkError(f"{path} is not a whole Parquet file: {error}. Restore the file") from error


def storage_of(kind: Any) -> Any:
    """Storage type of an Arrow extension type, such as tensors of one shape; other types unchanged."""
    return getattr(kind, "storage_type", kind)


def is_list(kind: Any) -> bool:
    """True for Arrow types of lists, and of tensors, which are stored as lists."""
    return str(storage_of(kind)).startswith(("list<", "fixed_size_list<", "large_list<"))


def _type(kind: Any) -> np.dtype[Any] | None:
    """NumPy type for an Arrow type of numbers; None for other Arrow types."""
    text = str(kind)
    if text.startswith("decimal"):
        return np.dtype(np.float64)
    names = {"float": "float32", "double": "float64", "halffloat": "float16", "bool": "bool"}
    name = names.get(text, text)
    return np.dtype(name) if name in names.values() or name.lstrip("u").startswith("int") else None


def _no_numbers(location: str, path: str, file: Any, fields: Sequence[Any]) -> Exception:
    """The error that names ``fields``, columns that hold no numbers, each with its first value.

    ``location`` is that of the table, ``path`` that of ``file``, which is open.
    """
    place = location.partition("::")[0]
    lists = [each for each in fields if is_list(each.type)]
    if len(lists) == len(fields) == 1:
        name = lists[0].name
        return InputError(
            f"{path}: column {name!r} holds lists ({lists[0].type}), which is a matrix by itself. Take it "
            f"alone: {place}::{name}"
        )
    vectors = [each.name for each in file.schema_arrow if is_list(each.type)]
    other = f", or take the column of lists alone: {place}::{vectors[0]}" if vectors else ""
    names = [each.name for each in fields]
    words = [
        f"column {each.name!r} holds {each.type}, no numbers{_first_value(file, each.name, each.type)}"
        for each in fields[:MOST_COLUMNS]
    ]
    more = f"; and {len(fields) - MOST_COLUMNS} more" if len(fields) > MOST_COLUMNS else ""
    first = file.schema_arrow.names[0]
    named = f" If {first!r} names the rows, say {name_rows(first)}." if first in names and not lists else ""
    return DataError(
        f"{path}: {'; '.join(words)}{more}.{named} {ALL_NUMBERS} with {without_columns(names)}{other}"
    )


def _first_value(file: Any, name: str, kind: Any) -> str:
    """Text of the first value of a column of an open file; empty for lists and columns without values."""
    if is_list(kind):
        return ""
    batch = next(file.iter_batches(batch_size=1, columns=[name], use_threads=False), None)
    return f", its first value is {cut(repr(batch.column(0)[0].as_py()))}" if batch and batch.num_rows else ""


def _length(file: Any, field_: Any) -> int:
    """Length of the lists of a column of an open file, by its type or its first list; 0 if there is none."""
    kind = storage_of(field_.type)
    if str(kind).startswith("fixed_size_list<"):
        return int(kind.list_size)
    for batch in file.iter_batches(batch_size=1, columns=[field_.name], use_threads=False):
        if batch.num_rows and batch.column(0)[0].is_valid:
            return len(batch.column(0)[0])
    return 0


def _has_missing(metadata: Any, names: Sequence[str]) -> bool:
    """True if the statistics in a file's metadata state that values of the columns ``names`` are missing."""
    statistics = (chunk.statistics for chunks in column_chunks(metadata, names) for chunk in chunks)
    return any(each and each.has_null_count and each.null_count for each in statistics)


def column_chunks(metadata: Any, names: Sequence[str]) -> Iterator[Iterator[Any]]:
    """Yield, for each row group, the metadata of the chunks of the columns ``names``."""
    choice = set(names)
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        chunks = map(group.column, range(group.num_columns))
        yield (chunk for chunk in chunks if chunk.path_in_schema.partition(".")[0] in choice)
