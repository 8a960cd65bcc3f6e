"""Open new rows for a result, or rows to compare with another matrix: with its columns, prepared alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from rankfold.pipeline.data.missing_rows import without_missing_rows
from rankfold.pipeline.data.names import attributes_of_result, names_of_result
from rankfold.pipeline.data.origin import attributes_of, names_of
from rankfold.pipeline.data.source import Source, require_rows
from rankfold.pipeline.errors import InputError, SeveralAxesError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.law import is_of_step
from rankfold.pipeline.prepare.alike import column_names, compare_units, with_columns
from rankfold.pipeline.prepare.prepared import described, fitted_of, prepare_like


class Fit(Protocol):
    """A result that new rows are opened for, such as to be transformed."""

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the result; ``input`` describes its matrix and the preparation steps."""

    def __iter__(self) -> Iterator[str]:
        """Names of its arrays."""

    def __getitem__(self, name: str) -> Any:
        """Array of a given name."""


def open_like(x: object, result: Fit, whose: str) -> Source:
    """Open new rows for a result: with the columns of its matrix, and after the same preparation steps.

    Rows that are all missing are left out if the result left out such rows.

    Parameters
    ----------
    x : anything that ``open_source`` takes
        Raw rows, or rows that went through the same steps.
    result : Result
        Its matrix had the columns that are taken, and went through the steps that are applied.
    whose : str
        Name of the result in messages.

    Raises
    ------
    InputError
        Columns are missing or differ, or the rows went through other steps.
    """
    facts = result.attrs["input"]
    layout, steps = facts.get("layout", {}), facts.get("prepare")
    source = opened_rows(x, result)
    if "missing_rows" in layout and not described(source):
        source = without_missing_rows(source, names_of(source, 0))
    compare_units([source], attributes_of_result(whose, result.attrs), whose)
    names = [name for name in result if is_of_step(name)] if steps else []
    fitted = {name: np.asarray(result[name][...]) for name in names}
    return prepare_like(with_columns(source, names_of_result(whose, result.attrs, 1), whose), steps, fitted)


def opened_rows(x: object, result: Fit) -> Source:
    """Open new rows for a result, without preparation.

    If ``x`` has more than two axes, those become the rows that did so in the matrix of the result.
    """
    row_axes = result.attrs["input"].get("layout", {}).get("row_axes")
    if isinstance(x, Source) or row_axes is None:
        return open_source(x)
    try:
        return open_source(x)
    except SeveralAxesError:
        return open_source(x, row_axes=row_axes)


def has_columns_of(source: Source, result: Fit, whose: str) -> bool:
    """True if rows have the columns of a result in the same order already, or if either has no names.

    ``whose`` names the result in messages.
    """
    own, wanted = column_names(source), names_of_result(whose, result.attrs, 1)
    return own is None or wanted is None or own.is_like(wanted)


def require_comparable(source: Source, others: Source | None, called: str) -> None:
    """Raise ``InputError`` unless rows of ``source`` can be read and compared with rows of ``others``.

    ``called`` is put before the name of ``others`` in messages. ``others`` are None if the rows of ``source``
    are compared with each other.
    """
    for matrix in (source, others):
        if matrix is not None:
            require_rows(matrix)
    if others is not None and others.shape[1] != source.shape[1]:
        raise InputError(
            f"{called} {others.name} have {others.shape[1]} columns, but {source.name} has "
            f"{source.shape[1]}. Give rows of the same columns, in the same order"
        )


def open_beside(x: object, other: Source) -> Source:
    """Open rows to compare with those of ``other``: with its columns, after the steps it went through."""
    source = open_source(x)
    compare_units([source], attributes_of(other), other.name)
    same, steps = with_columns(source, column_names(other), other.name), described(other).get("prepare")
    return same if steps is None else prepare_like(same, steps, fitted_of(other))
