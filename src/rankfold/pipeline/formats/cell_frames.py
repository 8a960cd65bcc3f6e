"""Data frames of AnnData, ``obs`` and ``var``: groups of columns, or records in files older than version 0.7.

https://anndata.readthedocs.io/en/stable/fileformat-prose.html#dataframes. Records are one dataset whose first
field is the index; the values of a category are in ``uns/NAME_categories``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a dataset of records, as an array that is read slice by slice."""

    records: Any
    name: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of records."""
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
    """Names of the columns, without the index."""
    if is_records(frame):
        return list(frame.dtype.names[1:])
    index = _index_name(frame)
    return [str(each) for each in frame.attrs.get("column-order", [name for name in frame if name != index])]


def column_of(frame: Any, name: str) -> Any:
    """A column: a dataset, a group of AnnData's encodings, or a field of records."""
    return Field(frame, name) if is_records(frame) else frame[name]


def index_of(frame: Any) -> Any:
    """Labels of the rows, which can be read slice by slice.

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
