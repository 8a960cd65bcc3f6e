"""Data frames of AnnData on disk, such as ``obsm/frame``, as matrices: each column is an array of its own.

Columns are read one after the other, each in its type, and joined in a type that holds them all.

Data frames of AnnData, ``obs`` and ``var``: groups of columns, or records in files older than version 0.7.

https://anndata.readthedocs.io/en/stable/fileformat-prose.html#dataframes. Records are one dataset whose first
field is the index; the values of a category are in ``uns/NAME_categories``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.absence import Absence, sum_absences
from rankfold.pipeline.chunks.geometry import Piece
from rankfold.pipeline.data.dtypes import SUPPORTED_DTYPES
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.names import Axis
from rankfold.pipeline.data.source import MOST_FILES, Volume, absence_of
from rankfold.pipeline.errors import ChunkError, InputError

FRAME = "dataframe"
"""Value of AnnData's attribute ``encoding-type`` for a group that is a data frame."""


@dataclass(frozen=True, slots=True)
class FrameVolume:
    """The columns of a data frame, joined to an array of two axes that is read box by box."""

    name: str
    store: str
    element: str
    """Path of the frame in its store."""

    labels: tuple[str, ...]
    parts: tuple[Volume, ...]
    """The columns, each of one axis."""

    index: Callable[[str, str, int, str, int], Axis]
    """Function that reads the axis of the rows, with its labels.

    It takes path of the store, path of the frame there, number, name and length of the axis.
    """

    axes = ("row", "column")

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self.parts[0].shape[0], len(self.parts)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type that holds all columns."""
        return np.result_type(*(part.dtype for part in self.parts))

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Native chunks of the first column along the rows; columns can be cut anywhere."""
        return self.parts[0].grids[0], Grid.regular(len(self.parts), len(self.parts), splittable=True)

    @property
    def path(self) -> str | None:
        """Local file or folder."""
        return self.parts[0].path

    @property
    def format(self) -> str:
        """Kind of store, as text."""
        return f"{self.parts[0].format}, data frame"

    @property
    def codec(self) -> str:
        """Compression of the chunks of the first column, as text."""
        return self.parts[0].codec

    def axis(self, number: int) -> Axis:
        """Axis ``number`` with its labels: those of the index for rows (0), names of the columns for 1."""
        if number == 1:
            return Axis.of("column", len(self.labels), self.labels)
        return self.index(self.store, self.element, 0, "row", self.shape[0])

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Read every box into ``out`` of its piece, column by column; see ``Volume``."""
        for (rows, (left, right)), out in pieces:
            for number in range(left, right):
                part = self.parts[number]
                values = np.empty(rows[1] - rows[0], part.dtype)
                part.read_boxes([Piece((rows,), values)])
                out[:, number - left] = values

    def read_bytes(self, elements: int) -> int:
        """Upper bound in bytes on the memory of one read of that many elements, beside its destination.

        It covers reading of a column, and the column in its own type.
        """
        return max(part.read_bytes(elements) + elements * part.dtype.itemsize for part in self.parts)

    def check(self) -> None:
        """Raise ``ChunkError`` for damage of any column that can be found without reading the data."""
        for part in self.parts:
            part.check()

    def absent_chunks(self, most: int = MOST_FILES) -> Absence | None:
        """Number of missing chunks of all columns, by a look at up to ``most`` files of each."""
        return sum_absences([absence_of(part, most) for part in self.parts])

    def fingerprint(self) -> str:
        """Digest of all columns and of their names."""
        marks = [*self.labels, *(part.fingerprint() for part in self.parts)]
        return hashlib.blake2b(repr(marks).encode(), digest_size=16).hexdigest()

    def stored_bytes(self) -> int:
        """Bytes of all columns."""
        return sum(part.stored_bytes() for part in self.parts)


def is_frame_group(node: Any) -> bool:
    """True if ``node``, an open element of AnnData, is a data frame stored as a group, by its attributes."""
    return text_of(node.attrs.get("encoding-type")) == FRAME and not is_records(node)


def frame_volume(
    frame: Any,
    name: str,
    place: tuple[str, str],
    index: Callable[[str, str, int, str, int], Axis],
    volume_of: Callable[[Any, str], Volume],
) -> FrameVolume:
    """Check the columns of an open data frame and make a ``Volume`` of them.

    Parameters
    ----------
    frame : group of h5py or Zarr
    name : str
        Name of the frame in messages.
    place : (str, str)
        Path of the store, and path of the frame in it.
    index : callable
        Reads the axis of the rows: see ``FrameVolume.index``.
    volume_of : callable
        Makes a ``Volume`` of a column; it takes the open array of one axis and its name in messages.

    Raises
    ------
    InputError
        A column holds no numbers; or there are no columns.
    ChunkError
        A column does not exist, or is not as long as the first.
    """
    labels = columns_of(frame)
    if not labels:
        raise InputError(
            f"{name} is a data frame without columns, and a matrix without them cannot be reduced"
        )
    parts: list[Volume] = []
    for label in labels:
        column = frame.get(label)
        if column is None:
            raise ChunkError(f"{name} has no column {label!r}, which it names. Restore the file")
        kind = _kind(column)
        if kind:
            raise InputError(
                f"column {label!r} of {name} holds {kind}; supported are {SUPPORTED_DTYPES}. Write "
                "columns of numbers alone, as obsm['numbers'] = frame.select_dtypes('number')"
            )
        part = volume_of(column, f"{name}/{label}")
        if len(part.shape) != 1 or (parts and part.shape != parts[0].shape):
            raise ChunkError(
                f"{part.name} has shape {part.shape}, which no column here has. Restore the file"
            )
        parts.append(part)
    return FrameVolume(name, *place, tuple(labels), tuple(parts), index)


def _kind(column: Any) -> str:
    """Text on what an open column of a data frame holds if it holds no numbers; empty for numbers."""
    if not hasattr(column, "shape"):
        return text_of(column.attrs.get("encoding-type")) or "a group"
    if "categories" in column.attrs:  # before AnnData 0.8: codes, with a reference to their words
        return "categories"
    return "" if getattr(column.dtype, "kind", "O") in "iufb" else str(column.dtype)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a dataset of records, as an array that is read slice by slice."""

    records: Any
    name: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of records, which are the rows of the frame."""
        return tuple(self.records.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the field."""
        dtype: np.dtype[Any] = self.records.dtype[self.name]
        return dtype

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes: none, since fields have no attributes."""
        return {}

    def __getitem__(self, part: Any) -> npt.NDArray[Any]:
        return np.asarray(self.records[part][self.name])


def columns_of(frame: Any) -> list[str]:
    """Names of the columns of an open data frame, without the index."""
    if is_records(frame):
        return list(frame.dtype.names[1:])
    index = _index_name(frame)
    return [str(each) for each in frame.attrs.get("column-order", [name for name in frame if name != index])]


def column_of(frame: Any, name: str) -> Any:
    """Column ``name`` of an open data frame: a dataset, a group of AnnData's encodings, or a ``Field``."""
    return Field(frame, name) if is_records(frame) else frame[name]


def index_of(frame: Any) -> Any:
    """Labels of the rows of an open data frame, as an array that can be read slice by slice.

    Raises
    ------
    KeyError
        The frame has no index.
    """
    if is_records(frame):
        return Field(frame, frame.dtype.names[0])
    index = frame[_index_name(frame)]
    return index if hasattr(index, "shape") else index["values"]  # with a mask since AnnData 0.13


def is_records(frame: Any) -> bool:
    """True if a frame is one dataset of records, as before version 0.7."""
    return bool(getattr(getattr(frame, "dtype", None), "names", None))


def _index_name(frame: Any) -> str:
    return text_of(frame.attrs.get("_index", "_index"))


def text_of(value: Any) -> str:
    """Text of an attribute, which HDF5 gives as text or as bytes; empty if it is None.

    >>> text_of(b"csr_matrix"), text_of("csr_matrix"), text_of(None)
    ('csr_matrix', 'csr_matrix', '')
    """
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
