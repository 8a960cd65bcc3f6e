"""Describe the columns of a table, and which of them are numbers: ``rankfold info TABLE``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rankfold.pipeline.data.names import MOST_LABELS
from rankfold.pipeline.errors import RankfoldError
from rankfold.pipeline.formats.locate import split_location
from rankfold.pipeline.formats.tables.columns import MOST_COLUMNS, Look, TableColumn, index_names
from rankfold.pipeline.formats.tables.delimited import whole_reader
from rankfold.pipeline.formats.tables.options import ReadOptions, choose_columns, count_words
from rankfold.pipeline.formats.tables.parquet import look_at_parquet
from rankfold.pipeline.formats.tables.several import (
    LARGEST_FILES,
    LARGEST_TABLE,
    READ_BYTES,
    is_text_table,
    table_paths,
    table_reader,
)
from rankfold.pipeline.text import Lines, shell_words
from rankfold.pipeline.units import format_bytes

TEXT = ("text", "string", "large_string", "string_view")
"""Names of the kinds of columns that hold text, in text files and in Parquet."""


@dataclass(frozen=True, slots=True)
class TableInfo:
    """Description of a table."""

    name: str
    files: int
    stored_bytes: int
    rows: int
    """Number of rows of all files, or of those that were examined."""

    whole: bool
    """True if all rows were examined."""

    columns: tuple[TableColumn, ...]
    notes: tuple[str, ...]
    index_col: str | None = None
    """Name of the only text column whose values all differ, which may name the rows; None without one."""

    def __str__(self) -> str:
        """The description as lines of text."""
        rows = f"{self.rows}" if self.whole else f"more than {self.rows}"
        files = f"{self.files} files, " if self.files > 1 else ""
        wrong = [each for each in self.columns if each.obstacle is not None and not each.vector]
        shown = [*wrong, *(each for each in self.columns if each not in wrong)][:MOST_COLUMNS]
        width = max(len(repr(each.name)) for each in self.columns)
        lines = [
            f"{self.name}: a table of {rows} rows and {count_words(len(self.columns), 'column')}",
            f"size      {files}{format_bytes(self.stored_bytes)} on disk",
            *(
                f"column    {each.name!r:{width}}  {self._words(each)}"
                for each in self.columns
                if each in shown
            ),
        ]
        if len(self.columns) > len(shown):
            lines.append(f"          and {len(self.columns) - len(shown)} more")
        return Lines(
            *lines, *(f"note      {note}" for note in self.notes), f"next      {self._next(len(wrong))}"
        )

    def _words(self, column: TableColumn) -> str:
        if column.vector:
            return f"{column.vector} numbers in each row: {column.kind}"
        able = "; all differ, so it may name rows" if column.name == self.index_col else ""
        return column.kind if column.obstacle is None else f"no numbers: {column.obstacle}{able}"

    def _next(self, wrong: int) -> str:
        """Command that the user may run next; ``wrong`` is the number of columns without numbers."""
        numbers, name = len(self.columns) - wrong, self.name
        texts = wrong - sum(each.names_rows for each in self.columns) - (self.index_col is not None)
        option = f" --index-col {shell_words([self.index_col])}" if self.index_col is not None else ""
        option += f" --numeric  ({numbers} columns; {texts} left out)" if texts else ""
        if vectors := [each for each in self.columns if each.vector]:
            widest = max(vectors, key=lambda each: each.vector)
            name = name if len(self.columns) == 1 else f"{name}::{widest.name}"
            numbers, option = widest.vector, ""
        if not numbers:
            return (
                "no column holds numbers; import it with header='no' (--header no) if the first line is data"
            )
        place = shell_words([name])
        size = 8 * self.rows * numbers
        if self.whole and size <= LARGEST_TABLE and self.stored_bytes <= LARGEST_FILES:
            return f"rankfold pca {place} --rank K --out RESULT.zarr{option}"
        return f"rankfold import {place} STORE.zarr{option}"

    def as_dict(self) -> dict[str, Any]:
        """The description as values for ``json.dumps``."""
        return {
            "name": self.name,
            "format": "table",
            "files": self.files,
            "stored_bytes": self.stored_bytes,
            "rows": self.rows,
            "whole": self.whole,
            "columns": [each._asdict() for each in self.columns],
            "notes": list(self.notes),
            "index_col": self.index_col,
        }


def describe_table(location: str) -> TableInfo | None:
    """Describe the table at a location; None if it is not a table.

    Reads at most 64 MiB of each text file, and the metadata of Parquet files.
    ``TABLE::COLUMN`` is one column.
    """
    if not (paths := table_paths(location)):
        return None
    table, column = _describe(location, paths), split_location(location)[1]
    if not column:
        return replace(table, index_col=_index_of(table, paths))
    options = ReadOptions().of_column(column)
    (position,) = choose_columns([each.name for each in table.columns], options, location)
    return replace(table, columns=(table.columns[position],))


def _describe(location: str, paths: Sequence[str]) -> TableInfo:
    """Describe all columns of the table that consists of the given files."""
    size = sum(map(os.path.getsize, paths))
    if not is_text_table(paths[0]):
        look = look_at_parquet(paths)
        return TableInfo(location, len(paths), size, look.rows, look.whole, look.columns, ())
    looks, notes = list[Look](), tuple[str, ...]()
    for path in paths:
        reader = whole_reader(path, ReadOptions())
        looks.append(reader.look(READ_BYTES))
        notes += reader.notes
        if not looks[-1].whole:
            break
    whole = len(looks) == len(paths) and looks[-1].whole
    columns = {each.name: each for look in reversed(looks) for each in look.columns}
    columns |= {each.name: each for look in looks for each in look.columns if each.obstacle is not None}
    first = [columns[each.name] for each in looks[0].columns]
    index = index_names([each.name for each in first])
    for place, name in enumerate(index):
        why = f"it has {f'the name {name}' if name.strip() else 'no name'}, so it names rows"
        first[place] = TableColumn(
            name.strip() or f"column {place + 1}", first[place].kind, why, names_rows=len(index) == 1
        )
    notes += tuple(dict.fromkeys(look.hint.strip() for look in looks if look.hint))
    return TableInfo(location, len(paths), size, sum(each.rows for each in looks), whole, tuple(first), notes)


def _index_of(table: TableInfo, paths: Sequence[str]) -> str | None:
    """Name of the only text column of a table whose values all differ, if no column names rows by default.

    Only for small tables, since each text column is read once for that. None if there is no such column, or
    more than one.
    """
    numbers = [each.name for each in table.columns if each.obstacle is None]
    texts = [each.name for each in table.columns if each.kind in TEXT and each.obstacle is not None]
    named = any(each.names_rows for each in table.columns)
    if named or not numbers or not table.whole or table.rows > MOST_LABELS or len(texts) > MOST_COLUMNS:
        return None
    found = []
    for name in texts:
        options = ReadOptions(columns=numbers[:1], index_col=name, memory_bytes=READ_BYTES)
        with contextlib.suppress(RankfoldError):  # damage is reported when the data are read
            reader = table_reader(table.name, paths, options)
            for _ in reader.blocks(READ_BYTES):
                pass
            found += [name] if reader.row_names is not None and reader.row_names.are_unique else []
    return found[0] if len(found) == 1 else None
