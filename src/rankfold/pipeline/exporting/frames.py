"""An array of a result as a frame of pandas or polars, or a table in a file, with names of the data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankfold.pipeline.data.named_objects import labels_of_index
from rankfold.pipeline.data.names import Axis, Names
from rankfold.pipeline.data.pandas_index import index_of_labels
from rankfold.pipeline.errors import InputError, OutputError
from rankfold.pipeline.exporting.outcome import (
    Outcome,
    names_in,
    places_among,
    require_length,
    whole_length,
)
from rankfold.pipeline.formats.open_files import library
from rankfold.pipeline.outputs import file_output, head_of
from rankfold.pipeline.regular import open_regular

LINES = ("scores", "U", "W", "embedding", "features", "labels", "indices", "X")
"""Names of arrays with one row for each row of the data; the first that a result has is the default."""

SEPARATORS = {".csv": ",", ".tsv": "\t"}
"""Separators of columns in files of text, by suffix."""

TABLES = (*SEPARATORS, ".parquet")
"""Suffixes of table files."""

TABLE_ROWS = 2**16
"""Largest number of rows of a table that are written at a time."""

TABLE_NUMBERS = 2**25
"""Largest number of elements of a table that are written at a time; above 512 columns it bounds the rows."""

UNNAMED = ("row", "column")
"""Names of axes that are not used as the name of the index of a frame."""

MARK = b"rankfold"
"""Name of a metadata entry that marks a Parquet file as written by rankfold."""

PREFIXES = {"scores": "PC", "components": "PC", "U": "SV", "Vt": "SV", "W": "NMF", "H": "NMF"}


def pandas_frame(result: Outcome, name: str | None = None, like: Any = None) -> Any:
    """A ``pandas.DataFrame`` of an array, with one row for each row, or each column, of the data.

    Parameters
    ----------
    result : Result
    name : str, optional
        Name of the array; by default that of coordinates of the rows. Components have one row for each column
        of the data.
    like : DataFrame, optional
        The data: its index names rows, its columns name columns. Without it, names are those that the
        result has kept.
    """
    pandas = library("pandas", extra="frames", what="a frame of pandas")
    name, values, side = _lines(result, name)
    index = None
    if like is not None and side is not None:
        index = like.index if side == "rows" else like.columns
        require_length(side, "like", len(index), whole_length(result, side))
        own = Names.of([Axis.of(side, len(index), labels_of_index(index))])
        places = places_among(result, side, own, "like", side)
        index = index if places is None else index[places]
    elif side is not None and (names := names_in(result, side)) is not None:
        index = [names.title(at) for at in range(len(values))]
        if names.labels is not None:
            title = names.axes[0].name
            given = title not in UNNAMED and not title.isdecimal()
            said = names.axes[0].attributes
            index = index_of_labels(pandas, names.labels, said, title if given else None)
    return pandas.DataFrame(values, index=index, columns=_titles(result, name, values.shape[1]))


def polars_frame(result: Outcome, name: str | None = None) -> Any:
    """An array of a result as a ``polars.DataFrame``, whose first columns name its rows: it has no index.

    ``name`` is that of the array; by default it is that of coordinates of the rows.
    """
    polars = library("polars", extra="frames", what="a frame of polars")
    name, values, side = _lines(result, name)
    titles = _titles(result, name, values.shape[1])
    numbers = polars.DataFrame(np.ascontiguousarray(values), schema=titles)
    names = names_in(result, side) if side is not None else None
    if names is None:
        return numbers
    return polars.DataFrame(_names_of_lines(names, 0, len(values), titles)).hstack(numbers)


def _lines(result: Outcome, name: str | None) -> tuple[str, Any, str | None]:
    """Name of an array, its values as a table, and the axis of the matrix that rows of the table belong to.

    The axis is ``rows``, ``columns``, or None if it is neither. If ``name`` is None, the array is that of
    coordinates of the rows.
    """
    name, side, turned = _named(result, name)
    values = np.asarray(result[name][...])
    return name, (values.T if turned else values.reshape(len(values), -1)), side


def _named(result: Outcome, name: str | None) -> tuple[str, str | None, bool]:
    """Name of an array, the axis of the matrix that rows of its table belong to, True if it is transposed.

    The axis is ``rows``, ``columns``, or None if it is neither. An array is transposed to a table if its last
    axis is that of columns, as of components. If ``name`` is None, it is that of coordinates of the rows.
    """
    if name is None:
        name = next((each for each in LINES if each in set(result)), None)
        if name is None:
            raise InputError(
                f"this result has no coordinates of rows. Name one of its arrays: {', '.join(result)}"
            )
    if name not in set(result):
        raise InputError(f"this result has no {name!r}; it has {', '.join(result)}")
    kinds = result.dimensions(name)
    if kinds[-1] == "column" and kinds[0] != "row" and len(kinds) == 2:
        return name, "columns", True
    return name, {"row": "rows", "column": "columns"}.get(kinds[0]), False


# Files --------------------------------------------------------------------------------------------------


def write_table(result: Outcome, path: Path, name: str | None = None, *, overwrite: bool = False) -> Path:
    """Write an array to a ``.csv``, ``.tsv`` or ``.parquet`` file: a line for each row, or column, of data.

    The first columns name the lines, one for each axis of the data that has names. The file appears once
    it is complete; one that rankfold wrote may be replaced.

    Parameters
    ----------
    result : Result
    path : Path
    name : str, optional
        Name of the array; by default that of coordinates of the rows. Components have a line for each column
        of the data.

    Raises
    ------
    InputError, OutputError
        There is no such array; its numbers are complex; the file exists.

    Notes
    -----
    Reads at most 65 536 lines, and 2^25 numbers, at a time.
    """
    table = Table.of(result, path, name)
    titles = table.schema.names
    output = file_output(path, lambda there: _foreign_table(there, path.suffix, titles), replaces=overwrite)
    with output.draft() as draft:
        table.write(draft, path.suffix)
    return output.path


@dataclass(frozen=True, slots=True)
class Table:
    """An array of a result as a table, read in parts of at most ``TABLE_ROWS`` rows."""

    schema: Any
    """Names and types of its columns, as a pyarrow schema."""

    parts: Iterator[Any]

    @classmethod
    def of(cls, result: Outcome, path: Path, name: str | None) -> Table:
        """The table of the array ``name`` of a result, to be written to ``path``; see ``write_table``."""
        arrow = library("pyarrow", extra="formats", what=f"writing {path}")
        name, side, turned = _named(result, name)
        array = np.asarray(result[name][...]).T if turned else result[name]
        if array.dtype.kind == "c":
            raise OutputError(f"{path}: tables hold no complex numbers. Write real and imaginary parts")
        names = names_in(result, side) if side is not None else None
        titles = _titles(result, name, array.shape[1] if len(array.shape) > 1 else 1)
        parts = _tables(arrow, array, names, titles)
        first = next(parts)
        schema = first.schema.with_metadata({MARK: str(result.attrs["kind"]).encode()})
        return cls(schema, itertools.chain([first], parts))

    def write(self, path: Path, suffix: str) -> None:
        """Write all rows to a new file, in the format of the ``suffix``, as ``.csv``; can be called once."""
        with _writer(suffix, path, self.schema) as writer:
            for part in self.parts:
                writer.write_table(part.replace_schema_metadata(self.schema.metadata))


def _tables(arrow: Any, array: Any, names: Names | None, titles: list[str]) -> Iterator[Any]:
    """Yield the rows of an array as pyarrow tables of equally many, the last one shorter; at least one table.

    ``arrow`` is the module, ``names`` are those of the rows, ``titles`` those of the columns.
    """
    rows = min(TABLE_ROWS, max(1, TABLE_NUMBERS // max(1, len(titles))))
    for start in range(0, max(1, len(array)), rows):
        part = np.asarray(array[start : start + rows])
        part = part.reshape(len(part), len(titles))
        columns = {} if names is None else _names_of_lines(names, start, start + len(part), titles)
        columns |= {title: np.ascontiguousarray(part[:, at]) for at, title in enumerate(titles)}
        yield arrow.table({title: arrow.array(values) for title, values in columns.items()})


def _names_of_lines(names: Names, start: int, stop: int, titles: list[str]) -> dict[str, Any]:
    """Labels of the rows ``start:stop`` of a table, (stop - start,) for each axis of ``names``, by its name.

    An axis without labels gives indices along it. An underscore is added to a name that is one of ``titles``,
    the names of the other columns.
    """
    columns: dict[str, Any] = {}
    for axis, labels in zip(names.axes, names.along_axes(start, stop), strict=True):
        title = "name" if axis.name.isdecimal() else axis.name
        while title in titles or title in columns:
            title += "_"
        columns[title] = labels.astype(str) if labels.dtype.kind in "UO" else labels
    return columns


def _writer(suffix: str, path: Path, schema: Any) -> Any:
    if suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.ParquetWriter(path, schema)
    import pyarrow.csv

    options = pyarrow.csv.WriteOptions(delimiter=SEPARATORS[suffix])
    return pyarrow.csv.CSVWriter(path, schema, write_options=options)


def _foreign_table(path: Path, suffix: str, titles: list[str]) -> str | None:
    """Message that rankfold did not write the file at ``path``, a table with columns ``titles``; or None.

    The file may have been renamed meanwhile, so ``suffix`` is given.

    A Parquet file is recognized by its metadata, a CSV by its first line, since nothing else fits in one.
    """
    if suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        try:
            with open_regular(path) as file:
                made_here = MARK in (pyarrow.parquet.read_schema(file).metadata or {})
        except pyarrow.ArrowException:
            made_here = False
    else:
        header = SEPARATORS[suffix].join(f'"{title}"' for title in titles).encode() + b"\n"
        made_here = head_of(path).startswith(header)
    return None if made_here else "is no table of such an array that rankfold wrote"


def _titles(result: Outcome, name: str, count: int) -> list[str]:
    """Names of the ``count`` columns of a frame of the array ``name``."""
    kinds = result.dimensions(name)
    if len(kinds) == 1:
        return [name]
    if kinds == ("row", "column") and count == result.attrs["input"]["shape"][1]:
        names = names_in(result, "columns")
        if names is not None:
            return [names.title(at) for at in range(count)]
    prefix = PREFIXES.get(name, "neighbor" if name in ("indices", "distances") else name)
    return [f"{prefix}{number}" for number in range(1, count + 1)]
