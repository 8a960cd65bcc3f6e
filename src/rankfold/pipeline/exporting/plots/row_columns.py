"""A column with one number or word for each row: in memory, a ``.npy`` file, a table, Zarr, or AnnData.

Arrays on disk are read by slices. A column of a table is read once, into 8 bytes a row.
"""

from __future__ import annotations

import array
import csv
import io
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.edition import edition_around
from rankfold.pipeline.data.named_objects import labels_of_index
from rankfold.pipeline.data.names import Axis, Names, find_places, names_of_result
from rankfold.pipeline.data.origin import names_of
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError, RankfoldError, SourceNotFoundError
from rankfold.pipeline.formats.arrays import is_cells
from rankfold.pipeline.formats.frame_columns import column_of, columns_of, is_records
from rankfold.pipeline.formats.locate import node_kind, require_path, split_location
from rankfold.pipeline.formats.naming import UNREADABLE, index_of_frame
from rankfold.pipeline.formats.npy import map_npy
from rankfold.pipeline.formats.open_files import open_hdf5, refuse_damage
from rankfold.pipeline.formats.packed import open_text
from rankfold.pipeline.formats.tables.columns import index_names
from rankfold.pipeline.formats.tables.dialect import separator_of
from rankfold.pipeline.formats.tables.parquet import (
    STREAM_BYTES,
    index_columns,
    names_in,
    open_parquet,
    parquet_paths,
    require_columns,
)
from rankfold.pipeline.formats.tables.row_names import RowNames
from rankfold.pipeline.formats.tables.several import is_text_table
from rankfold.pipeline.regular import bounded_lines, require_regular
from rankfold.pipeline.text import suggest_name

Array = npt.NDArray[Any]

GENE_ROWS = 2**14
"""Rows of a matrix that are read at a time for one gene."""

NAMED_ROWS = 2**16
"""Largest number of names of rows that are processed at a time."""

MOST_NAMES = 8
"""Largest number of columns that a message names."""

HDF5 = (".h5ad", ".h5", ".hdf5")
FILES = ".npy, .csv, .tsv, .txt, .parquet, .h5ad, a Zarr store, or a result"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of values, one for each row, read by slices."""

    name: str
    """Name of the column in messages."""

    values: Any
    """Array (n,) of values, or of codes of categories, in memory or on disk, that can be sliced."""

    categories: tuple[str, ...] | None = None
    """Text of each category, if ``values`` holds their codes; the code -1 stands for none."""

    mask: Any = None
    """Mask (n,) that is True where a value is missing, as in pandas' nullable types; None without."""

    has_header: bool = False
    """True if the column comes from a table with a header line."""

    names: Names | None = None
    """Names of its rows."""

    @property
    def length(self) -> int:
        """Number of rows."""
        return int(self.values.shape[0])

    @property
    def kind(self) -> str:
        """Kind of its type, as in ``numpy.dtype.kind``; ``U`` for text of any sort."""
        kind = getattr(self.values.dtype, "kind", "O")
        if kind == "O" and isinstance(next(iter(self.values[:1]), None), bool | np.bool_):
            return "b"
        masked = self.mask is not None and kind in "iu"
        return "U" if kind in "SOT" else "f" if masked else str(kind)

    def among(self, wanted: Names | None) -> Column:
        """The column for the ``wanted`` rows, in their order; the column itself if it or they have no names.

        Raises
        ------
        InputError
            The column has no row of a wanted name, or several.
        """
        places = find_places(self.names, wanted, "row", self.name, "the result")
        if places is None:
            return self
        taken = (None if each is None else np.asarray(each[...])[places] for each in (self.values, self.mask))
        values, mask = taken
        return replace(self, values=values, mask=mask, names=wanted)

    def read(self, start: int, stop: int) -> Array:
        """Values of rows ``start:stop``; text is of NumPy's kind ``U``. Missing: empty text, or NaN."""
        with refuse_damage(self.name):
            block = np.asarray(self.values[start:stop])
        if block.dtype.kind in "SOT" and self.kind == "U":
            block = np.asarray([_text(each) for each in block], np.str_)
        if self.mask is not None:
            empty = np.asarray(self.mask[start:stop], np.bool_)
            block = np.where(empty, "" if self.kind == "U" else np.nan, block)
        return block


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None or value != value else str(value)


def open_column(color: Any) -> Column:
    """The column that ``color`` is (an array, a Series, a result) or at its path ``FILE`` or ``FILE::NAME``.

    Raises
    ------
    InputError
        Another kind of file, or several numbers for a row; ``SourceNotFoundError`` if nothing is there.
    """
    if isinstance(color, str | os.PathLike):
        place = os.fsdecode(color)
        with refuse_damage(place):
            return _one_axis(_at(place))
    if is_cells(color):
        return _of_variable(color)
    if isinstance(color, Mapping) and hasattr(color, "dimensions"):
        return _of_result(color)
    if hasattr(color, "index") and hasattr(color, "array"):  # a Series of pandas
        names = Names.of([Axis.of("row", len(color), labels_of_index(color.index))])
        return replace(open_column(color.array), names=names)
    if hasattr(color, "categories") and hasattr(color, "codes"):
        return Column("color", np.asarray(color.codes), tuple(str(each) for each in color.categories))
    if hasattr(color, "to_numpy"):
        color = color.to_numpy()
    return _one_axis(Column("color", color if hasattr(color, "dtype") else np.asarray(color)))


def _of_variable(cells: Any) -> Column:
    """Column of the values of an AnnData object that has a single variable."""
    if cells.shape[1] != 1:
        raise InputError(
            f"the AnnData object has {cells.shape[1]} variables, and rows are colored by one: give it as "
            "adata[:, 'NAME'], or a column as adata.obs['NAME']"
        )
    from rankfold.pipeline.formats import open_source

    return _of_column(open_source(cells), 0, str(cells.var_names[0]))


def _of_result(result: Any) -> Column:
    """Column of the labels of the rows in a result, such as one of k-means; ``InputError`` if it has none."""
    if "labels" not in result:
        raise InputError(
            f"a result of {result.attrs['kind']} has no labels of rows: give one of its arrays, as r.counts"
        )
    return replace(open_column(result["labels"]), names=names_of_result("color", result.attrs, 0))


def words_of(names: Any) -> tuple[str, ...]:
    """All values of a column as text; ``names`` is an array, object or path, as for ``open_column``."""
    column = open_column(names)
    values = column.read(0, column.length)
    if column.categories is not None:
        return tuple(column.categories[code] if code >= 0 else "" for code in values)
    return tuple(str(each) for each in values)


def name_of(color: Any) -> str:
    """Name of a column in a legend; ``color`` is as for ``open_column``. Empty if it has no name."""
    if isinstance(color, str | os.PathLike):
        store, name = split_location(os.fsdecode(color))
        return Path(store).stem if name in ("", "labels") else name.rpartition("/")[2]
    if is_cells(color):
        return str(color.var_names[0])
    given = getattr(color, "name", None)
    return "" if given is None else str(given)


def _one_axis(column: Column) -> Column:
    shape = tuple(column.values.shape)
    if len(shape) == 2 and shape[1] == 1:
        return replace(column, values=np.asarray(column.values[...])[:, 0])
    if len(shape) != 1:
        raise InputError(f"{column.name} has shape {shape}: rows are colored by one label or value each")
    return column


def _at(place: str) -> Column:
    """The column at ``FILE::NAME``, or else the column ``NAME`` of the matrix in the file, such as a gene."""
    store, name = split_location(place)
    require_path(store)
    try:
        return _by_path(store, name)
    except InputError as error:
        if not name or is_text_table(store) or parquet_paths(store):
            raise
        column, hint = _of_gene(store, name)
        if column is None:
            raise type(error)(f"{error}{hint}") from error
        return column


def _by_path(store: str, name: str) -> Column:
    suffix = Path(store).suffix.lower()
    if os.path.isdir(store) and node_kind(store) is not None:
        from rankfold.pipeline.chunks.edition_array import open_edition
        from rankfold.pipeline.chunks.regular_store import zarr_node

        edition = edition_around(store)
        node: Any
        if edition is None:
            node = zarr_node(store)
        else:
            path = os.path.relpath(os.path.abspath(store), edition.path)
            node = open_edition(edition, "" if path == os.curdir else path)
        return _in_group(node, store, name) if node_kind(store) == "group" else _array(node, store, name)
    if paths := parquet_paths(store):
        return _parquet(store, paths, name)
    require_regular(store)
    if suffix == ".npy":
        return _npy(store, name)
    if is_text_table(store):
        return _table(store, name)
    if suffix in HDF5:
        # The file stays open as long as the column exists.
        return _in_group(open_hdf5(store), store, name)
    raise InputError(f"{store} is no file of labels that is known: give {FILES}")


# Arrays and groups ------------------------------------------------------------------------------------


def _array(values: Any, store: str, name: str) -> Column:
    if name:
        raise InputError(f"{store} is one array, and has none called {name!r}")
    return Column(store, values)


def _npy(store: str, name: str) -> Column:
    return _array(map_npy(store), store, name)


def _in_group(root: Any, store: str, name: str) -> Column:
    """Column ``name`` of an open group: an array, or a column of AnnData's ``obs``, by path or name alone.

    ``store`` is the path of the file, for messages.
    """
    if not name and "labels" in root:
        name = "labels"  # of k-means
    for path in (name, f"obs/{name}"):
        if name and path in root and path != "obs":
            return _with_names(_element(root[path], f"{store}::{path}"), root, path)
    if name and (column := _of_cells(root, store, name)) is not None:
        return _with_names(column, root, f"obs/{name}")
    known = [f"obs/{each}" for each in columns_of(root["obs"])] if "obs" in root else [*root]
    choices = ", ".join(sorted(known)[:MOST_NAMES]) + ", ..." * (len(known) > MOST_NAMES)
    choices += ", or the name of a gene" if "var" in root else ""
    asked = f"no {name!r}" if name else "several arrays"
    raise SourceNotFoundError(f"{store} has {asked}: name one after ::, of {choices}")


def _of_cells(root: Any, store: str, name: str) -> Column | None:
    """Column ``name`` of ``obs`` of an open file, as AnnData before 0.7 stored it; None for other files."""
    if not {"obs", "var"} <= set(root):
        return None
    frame = root["obs"]
    if is_records(frame) and name in columns_of(frame):
        words = root.get(f"uns/{name}_categories")
        return Column(
            f"{store}::obs/{name}", column_of(frame, name), None if words is None else _words(words)
        )
    return None


def _of_gene(store: str, name: str) -> tuple[Column | None, str]:
    """The column called ``name`` of the matrix in a store; or None, and a hint with a similar name."""
    from rankfold.pipeline.formats import open_source

    try:
        source = open_source(store)
    except RankfoldError:
        return None, ""
    names = names_of(source, 1)
    if names is None or names.labels is None:
        return None, ""
    places = np.flatnonzero(names.labels == name)
    if not len(places):
        return None, suggest_name(name, map(str, names.labels))
    return _of_column(source, int(places[0]), f"{store}::{name}"), ""


def _of_column(source: Source, at: int, name: str) -> Column:
    """Column of the matrix ``source`` with index ``at``, read into memory as float64, 8 bytes a row.

    Counts are therefore values too, not labels. ``name`` is that of the column in messages.
    """
    rows = source.shape[0]
    values, block = np.empty(rows), np.empty((min(rows, GENE_ROWS), 1), source.dtype)
    for top in range(0, rows, GENE_ROWS):
        bottom = min(rows, top + GENE_ROWS)
        part = block[: bottom - top]
        source.read_into(part, (top, bottom), (at, at + 1))
        values[top:bottom] = part[:, 0]
    return Column(name, values, names=names_of(source, 0))


def _with_names(column: Column, root: Any, path: str) -> Column:
    """The column, with names of rows from the index of ``obs``, or those that a result has kept.

    ``path`` is that of the column in the open group ``root``.
    """
    with suppress(*UNREADABLE):
        if path.startswith("obs/"):
            frame, index = index_of_frame(root, "X", 0) or ("", None)
            return replace(column, names=Names.of([Axis.of(frame, column.length, index)]))
        if (facts := root.attrs.get("rankfold")) is not None:
            return replace(column, names=names_of_result(column.name, facts, 0))
    return column


def _element(node: Any, place: str) -> Column:
    """Column of ``node``, an element as AnnData writes it: an array, categories or nullable numbers.

    ``place`` is the name of the column in messages.
    """
    if hasattr(node, "shape"):
        attributes: Mapping[str, Any] = node.attrs
        if "categories" in attributes and hasattr(node, "file"):  # as older versions wrote them
            return Column(place, node, _words(node.file[attributes["categories"]]))
        return Column(place, node)
    parts = set(node)
    if {"codes", "categories"} <= parts:
        return Column(place, node["codes"], _words(node["categories"]))
    if {"values", "mask"} <= parts:
        return Column(place, node["values"], mask=node["mask"])
    raise InputError(f"{place} holds {', '.join(sorted(parts))}: name one array")


def _words(categories: Any) -> tuple[str, ...]:
    return tuple(_text(each) for each in np.asarray(categories[...]))


# Tables -----------------------------------------------------------------------------------------------


def _table(store: str, name: str) -> Column:
    """Column ``name`` of a text table with a header: numbers if all fields are, else words.

    It has the names of rows that the table has. An empty name takes the only column.
    """
    separator = separator_of(store)
    with _opened(store) as file:
        lines = csv.reader(bounded_lines(file, store), delimiter=separator)
        header, first = next(lines, []), next(filter(None, lines), [])
    if len(first) == len(header) + 1:
        header = ["", *header]  # as R writes names of rows
    index = index_names(header)
    at = header.index(_column_name(store, name, header, index))
    place = f"{store}::{name}" if name else store

    def fields(at: int = at) -> Iterator[str]:
        with _opened(store) as file:
            lines = csv.reader(bounded_lines(file, store), delimiter=separator)
            next(lines)
            for line in lines:
                if line and at >= len(line):
                    raise InputError(f"{store}, line {lines.line_num}: there is no column {at + 1}")
                if line or len(header) == 1:
                    yield line[at] if line else ""

    def cells() -> Iterator[str]:
        return map(str.strip, fields())

    names = _names_of_rows(store, [fields(0)]) if len(index) == 1 and at else None
    return replace(_numbers(cells, place) or _coded(cells, place), has_header=True, names=names)


def _names_of_rows(store: str, parts: Iterable[Iterable[str]]) -> Names | None:
    """Names of rows from the index that a table stores; None if it only counts the rows.

    ``parts`` yields the labels of each file; ``store`` is the name of the table in messages.
    """
    names = RowNames("index", store, title="row", because="index")
    for part in parts:
        before, rest = names.rows, iter(part)
        while block := list(itertools.islice(rest, NAMED_ROWS)):
            names.add(block, names.rows - before)
    return Names.of([names.axis()])


@contextmanager
def _opened(store: str) -> Iterator[Any]:
    with open_text(store) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
        yield file


def _column_name(store: str, name: str, header: Sequence[str], index: Sequence[str] = ()) -> str:
    """Name of the column to read: ``name`` if not empty, or the only one besides the index.

    ``header`` has the names of all columns of ``store``, ``index`` those that name rows. ``InputError`` if
    there is no such column, or if several may be meant.
    """
    others = [each for each in header if each not in index]
    if not name and len(others) == 1:
        return others[0]
    more = f" and {len(header) - MOST_NAMES} more" if len(header) > MOST_NAMES else ""
    shown = (", ".join(header[:MOST_NAMES]) or "none") + more
    if not name and len(header) != 1:
        raise InputError(f"{store} has {len(header)} columns: name one after ::, of {shown}")
    if name and name not in header:
        raise SourceNotFoundError(f"{store} has no column {name!r}; it has {shown}")
    return name or header[0]


def _parquet(store: str, paths: Sequence[str], name: str) -> Column:
    """Column ``name`` of the Parquet files ``paths``, read some rows at a time: numbers, else words.

    ``store`` is the name of the table in messages.
    """
    with open_parquet(paths[0], STREAM_BYTES[0]) as file:
        index = index_columns(file.schema_arrow)
        name = _column_name(store, name, file.schema_arrow.names, index)
    place = f"{store}::{name}"

    def batches(path: str, name: str) -> Iterator[Any]:
        with open_parquet(path, STREAM_BYTES[0]) as file:
            require_columns(path, paths[0], [name], file.schema_arrow.names)
            for batch in file.iter_batches(columns=[name], use_threads=False):
                yield batch.column(0)

    def values() -> Iterator[Any]:
        return (value for path in paths for part in batches(path, name) for value in part.to_pylist())

    def labels(path: str) -> Iterator[str]:
        return (label for part in batches(path, index[0]) for label in names_in(part))

    names = _names_of_rows(store, map(labels, paths)) if len(index) == 1 and name not in index else None
    with suppress(ValueError, TypeError):
        numbers = np.frombuffer(array.array("d", map(_real, values())))
        return Column(place, numbers, has_header=True, names=names)
    return replace(_coded(lambda: map(_text, values()), place), has_header=True, names=names)


def _numbers(fields: Callable[[], Iterator[str]], place: str) -> Column | None:
    """Column of all fields as int64, or else float64; None if one is not a number.

    ``fields`` begins to yield their texts anew at each call; ``place`` is the name of the column.
    """
    for code in ("q", "d"):
        number: Any = int if code == "q" else _real
        with suppress(ValueError, OverflowError):
            values = array.array(code, (number(field) for field in fields()))
            return Column(place, np.frombuffer(values, np.int64 if code == "q" else np.float64))
    return None


def _real(field: Any) -> float:
    return float("nan") if field is None or field == "" else float(field)


def _coded(fields: Callable[[], Iterator[str]], place: str) -> Column:
    codes: dict[str, int] = {}
    values = array.array("i", (codes.setdefault(f, len(codes)) if f else -1 for f in fields()))
    return Column(place, np.frombuffer(values, np.int32), tuple(codes))
