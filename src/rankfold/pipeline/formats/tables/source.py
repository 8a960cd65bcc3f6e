"""A small table as a matrix in memory: read once, when it is opened.

Text can only be read from beginning to end, so every pass over a table would parse all of it again. A table
of up to ``LARGEST_TABLE`` is held in memory instead, like an array of the caller; larger ones are imported.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rankfold.pipeline.data.names import Axis
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.formats.arrays import ArraySource
from rankfold.pipeline.formats.locate import split_location
from rankfold.pipeline.formats.open_files import file_version
from rankfold.pipeline.formats.tables.columns import NumericTable
from rankfold.pipeline.formats.tables.options import ReadOptions
from rankfold.pipeline.formats.tables.parquet import ParquetReader
from rankfold.pipeline.formats.tables.several import SeveralTables, table_reader
from rankfold.pipeline.text import shell_words
from rankfold.pipeline.units import format_bytes

LOG = logging.getLogger("rankfold")

LARGEST_TABLE = 32 * 2**20
"""Most bytes of the numbers of a table that is read in place."""

LARGEST_FILES = 128 * 2**20
"""Most bytes of the files of a table that is read in place, as they are stored."""

READ_BYTES = 64 * 2**20
"""Memory for parsing a block of a table, as for an import."""


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
    """Read a table from its files, or one column of it, into memory; ``location`` is its name in messages.

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
    """Names of the columns that are read; None if they are plain numbers 0, 1, ..., or parts of vectors."""
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
