"""Text files of the same columns stacked by rows, and the files and reader of a table.

A small table as a matrix in memory: read once, when it is opened.

Text can only be read from beginning to end, so every pass over a table would parse all of it again. A table
of up to ``LARGEST_TABLE`` is held in memory instead, like an array of the caller; larger ones are imported.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.names import Axis
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.formats.arrays import ArraySource
from rankfold.pipeline.formats.locate import matching_files, node_kind, require_path, split_location
from rankfold.pipeline.formats.open_files import file_version
from rankfold.pipeline.formats.packed import plain_name
from rankfold.pipeline.formats.tables.columns import NumericTable
from rankfold.pipeline.formats.tables.delimited import DelimitedReader, delimited_reader
from rankfold.pipeline.formats.tables.dialect import SEPARATORS
from rankfold.pipeline.formats.tables.options import ReadOptions, left_out_of
from rankfold.pipeline.formats.tables.parquet import (
    PARQUET_ENDINGS,
    ParquetReader,
    parquet_paths,
    parquet_reader,
)
from rankfold.pipeline.formats.tables.row_names import RowNames
from rankfold.pipeline.text import shell_words
from rankfold.pipeline.units import format_bytes

TABLE_ENDINGS = (*SEPARATORS, *PARQUET_ENDINGS)
"""Endings of names of files that are tables; those of text tables may be followed by .gz or .bz2."""


def is_text_table(path: str) -> bool:
    """True if a file is a text table, by its name."""
    return os.path.splitext(plain_name(path))[1].lower() in SEPARATORS


def is_table_file(path: str) -> bool:
    """True if a file is a text or Parquet table, by its name."""
    return is_text_table(path) or path.endswith(PARQUET_ENDINGS)


def table_paths(location: str) -> tuple[str, ...]:
    """Files of the table that ``TABLE``, or ``TABLE::COLUMN``, names; empty if it is not a table.

    Raises
    ------
    SourceNotFoundError
        There is no file or folder of that name.
    """
    places = matching_files(location)
    if places is None:
        path, _ = split_location(location)
        require_path(path)
        if os.path.isdir(path) and node_kind(path) is not None:
            return ()
        return (path,) if is_text_table(path) else parquet_paths(path)
    places = [each.partition("::")[0] for each in places]
    if all(map(is_text_table, places)) or all(each.endswith(PARQUET_ENDINGS) for each in places):
        return tuple(places)
    return ()


def table_reader(location: str, paths: Sequence[str], options: ReadOptions) -> NumericTable | SeveralTables:
    """Reader of the files ``paths`` as one table, with the columns that ``options`` choose.

    ``location`` is the name of the table in messages.
    """
    options.require_known()
    of_text = [is_text_table(path) for path in paths]
    if any(of_text) and not all(of_text):
        raise InputError(
            f"{paths[of_text.index(True)]} is text and {paths[of_text.index(False)]} is Parquet: the files "
            "of a table are all of one kind. Write them as one, as pandas.read_csv(FILE).to_parquet(FILE)"
        )
    if not of_text[0]:
        return parquet_reader(location, paths, options)
    if len(paths) == 1:
        return delimited_reader(paths[0], options)
    return _several(location, paths, options)


@dataclass(frozen=True, slots=True)
class SeveralTables:
    """Reader of text files of the same columns, stacked by rows.

    It implements ``RowReader``, the protocol of what an import reads.
    """

    name: str
    parts: tuple[DelimitedReader, ...]
    decided: tuple[str, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self.parts[0].dtype

    @property
    def columns(self) -> int:
        """Number of elements in a row."""
        return self.parts[0].columns

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        return self.parts[0].column_names

    @property
    def has_names(self) -> bool:
        """True if ``column_names`` are from the first file, and not plain numbers."""
        return self.parts[0].has_names

    @property
    def row_names(self) -> RowNames | None:
        """Collector of the names of the rows of all files, filled as they are read; None without names."""
        return self.parts[0].row_names

    @property
    def total_bytes(self) -> int:
        """Bytes of all files as they are stored."""
        return sum(part.total_bytes for part in self.parts)

    @property
    def notes(self) -> tuple[str, ...]:
        """Decisions about the files, as text, as far as they have been read."""
        return (*self.decided, *dict.fromkeys(note for part in self.parts for note in part.notes))

    def blocks(self, memory_bytes: int) -> Iterator[tuple[npt.NDArray[Any], int]]:
        """Yield rows of the files in order, as arrays (rows, columns), each with the bytes read so far.

        ``memory_bytes`` is about what parsing of an array takes; the bytes are those of the stored files.
        """
        before = 0
        for part in self.parts:
            for block, count in part.blocks(memory_bytes):
                yield block, before + count
            before += part.total_bytes


def _several(location: str, paths: Sequence[str], options: ReadOptions) -> SeveralTables:
    """Reader of the text files ``paths`` as one table, called ``location`` in messages.

    Columns of a file are matched with those of the first by name if both have names, else by position.
    """
    readers = [delimited_reader(path, options) for path in paths]
    first, others, notes = readers[0], readers[1:], list[str]()
    named = [each for each in others if first.has_names and each.has_names]
    kept = list(first.column_names)
    if options.numeric:
        texts = {name for each in named for name in each.names if name not in each.column_names}
        kept = [name for name in kept if name not in texts]
        if not kept:
            raise InputError(f"{location}: no column holds numbers in all {len(paths)} files")
    index = first.row_names.column if first.row_names is not None else None
    by_name = replace(options, numeric=False, columns=kept, without=None, index_col=index)
    parts = [delimited_reader(first.name, by_name) if first.has_names else first]
    parts[0] = replace(parts[0], decided=first.decided, row_names=first.row_names)
    for each in others:
        if each in named:
            part = delimited_reader(each.name, by_name)
            if extra := [name for name in each.column_names if name not in first.names]:
                notes.append(left_out_of(each.name, extra, first.name))
            if list(part.positions) != sorted(part.positions) and options.columns is None:
                notes.append(
                    f"columns of {each.name} are in another order, and were put in that of {first.name}"
                )
            parts.append(replace(part, decided=each.decided, row_names=first.row_names))
        elif len(each.names) != len(first.names):
            raise InputError(
                f"{each.name} has {len(each.names)} columns, but {first.name} has {len(first.names)}: files "
                "of a series have the same columns"
            )
        else:
            same = {
                name: getattr(parts[0], name) for name in ("positions", "column_names", "index", "row_names")
            }
            parts.append(replace(each, **same))
            if first.has_names != each.has_names:
                notes.append(
                    f"of {first.name} and {each.name} one has no names of columns: taken by position"
                )
    return SeveralTables(location, tuple(parts), tuple(notes))


LOG = logging.getLogger("rankfold")

LARGEST_TABLE = 32 * 2**20
"""Largest number of bytes of the numbers of a table that is read in place."""

LARGEST_FILES = 128 * 2**20
"""Largest number of bytes of the files of a table that is read in place, as they are stored."""

READ_BYTES = 64 * 2**20
"""Bytes of memory for parsing a block of a table that is read in place, or described."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TableSource(ArraySource):
    """A table of numbers that was read into memory, as a matrix."""

    table: str = field(default="", kw_only=True)
    file_bytes: int = field(default=0, kw_only=True)

    format = "table"

    @property
    def name(self) -> str:
        """Name in messages: location of the table."""
        return self.table

    @property
    def path(self) -> str | None:
        """Local file or folder."""
        return split_location(self.table)[0]

    def stored_bytes(self) -> int:
        """Bytes of its files."""
        return self.file_bytes


def table_source(
    location: str,
    paths: Sequence[str],
    *,
    numeric: bool = False,
    index_col: str | None = None,
    column: str = "",
) -> TableSource:
    """Read the table in the files ``paths`` into memory, as a matrix.

    ``location`` is its name in messages, ``column`` the only column that is read (empty for all). ``numeric``
    and ``index_col`` are the options of ``open_source``.

    Decisions about its files are logged as warnings, once in a process as long as the files do not change.

    Raises
    ------
    InputError
        It is too large to be read in place.
    DataError
        It holds values that are not numbers, or no rows.

    Notes
    -----
    Memory: the numbers twice, and ``READ_BYTES`` while they are parsed.
    """
    size = sum(map(os.path.getsize, paths))
    if size > LARGEST_FILES:
        raise _too_large(location, f"has files of {format_bytes(size)}")
    options = ReadOptions(numeric=numeric, memory_bytes=READ_BYTES, index_col=index_col).of_column(column)
    reader = table_reader(location, paths, options)
    blocks, count = list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]](), 0
    if isinstance(reader, ParquetReader):
        _require_small(location, reader.rows * reader.columns * reader.dtype.itemsize)
    for block, _ in reader.blocks(READ_BYTES):
        _require_small(location, count := count + block.nbytes)
        blocks.append(np.array(block, dtype=reader.dtype))
    if not count:
        raise DataError(f"{location} holds no rows of numbers")
    for note in reader.notes:
        _tell(note, tuple(map(file_version, paths)))
    names = reader.row_names
    rows = Axis("row", sum(map(len, blocks))) if names is None else names.axis()
    numbers = np.concatenate(blocks)
    columns = Axis.of("column", reader.columns, names_of_columns(reader))
    return TableSource(numbers, named=(rows, columns), table=location, file_bytes=size)


@functools.lru_cache(maxsize=1024)  # once for the same files, which a workflow opens for plan and run
def _tell(note: str, versions: tuple[str, ...]) -> None:
    LOG.warning("%s", note)


def names_of_columns(
    reader: NumericTable | SeveralTables,
) -> np.ndarray[tuple[int], np.dtype[np.str_]] | None:
    """Names (n,) of the columns that are read; None if they only count 0, 1, ..., or are parts of vectors."""
    names = reader.column_names
    if not reader.has_names or len(names) != reader.columns or list(names) == [*map(str, range(len(names)))]:
        return None
    return np.asarray(names)


def _require_small(location: str, size: int) -> None:
    if size > LARGEST_TABLE:
        raise _too_large(location, f"holds more than {format_bytes(LARGEST_TABLE)} of numbers")


def _too_large(location: str, what: str) -> InputError:
    return InputError(
        f"{location} {what}, and tables of up to {format_bytes(LARGEST_TABLE)} of numbers, in files of up to "
        f"{format_bytes(LARGEST_FILES)}, are read in place; import it first: rankfold import "
        f"{shell_words([location])} STORE.zarr"
    )
