"""An array of a result as a pandas or polars frame, with the names of the data's rows or columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankfold.pipeline.data.names import Axis, Names, is_counted
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.exporting.outcome import (
    Outcome,
    names_in,
    places_among,
    require_length,
    whole_length,
)
from rankfold.pipeline.formats.handles import library

LINES = ("scores", "U", "W", "indices")
"""What is taken where no name is given: coordinates of the rows, or their neighbors."""

PREFIXES = {"scores": "PC", "components": "PC", "U": "SV", "Vt": "SV", "W": "NMF", "H": "NMF"}


def pandas_frame(result: Outcome, name: str | None = None, like: Any = None) -> Any:
    """A ``pandas.DataFrame`` with a line for each row, or each column, of the data.

    Parameters
    ----------
    result : Result
    name : str, optional
        An array; coordinates of the rows by default. Components have a line for each column of the data.
    like : DataFrame, optional
        The data: its index names rows, its columns name columns. Without it, these are what the result has
        kept of them.
    """
    pandas = library("pandas", extra="frames", what="a frame of pandas")
    name, values, side = _lines(result, name)
    index = None
    if like is not None and side is not None:
        index = like.index if side == "rows" else like.columns
        require_length(side, "like", len(index), whole_length(result, side))
        labels = None if is_counted(index) else np.asarray(index)
        own = Names.of([Axis.of(side, len(index), labels)])
        places = places_among(result, side, own, "like", side)
        index = index if places is None else index[places]
    elif side is not None and (names := names_in(result, side)) is not None:
        index = names.labels if names.labels is not None else [names.title(at) for at in range(len(values))]
    return pandas.DataFrame(values, index=index, columns=_titles(result, name, values.shape[1]))


def polars_frame(result: Outcome, name: str | None = None) -> Any:
    """The same as a ``polars.DataFrame``, which has no index."""
    polars = library("polars", extra="frames", what="a frame of polars")
    name, values, _ = _lines(result, name)
    return polars.DataFrame(np.ascontiguousarray(values), schema=_titles(result, name, values.shape[1]))


def _lines(result: Outcome, name: str | None) -> tuple[str, Any, str | None]:
    """The array with rows or columns of the data going down, and which of them do."""
    if name is None:
        name = next((each for each in LINES if each in set(result)), None)
        if name is None:
            raise InputError(
                f"this result has no coordinates of rows. Name one of its arrays: {', '.join(result)}"
            )
    if name not in set(result):
        raise InputError(f"this result has no {name!r}; it has {', '.join(result)}")
    values, kinds = np.asarray(result[name][...]), result.dimensions(name)
    if kinds[-1] == "column" and len(kinds) == 2:
        return name, values.T, "columns"
    side = {"row": "rows", "column": "columns"}.get(kinds[0])
    return name, values.reshape(len(values), -1), side


def _titles(result: Outcome, name: str, count: int) -> list[str]:
    """Names of the columns of a frame."""
    if len(result.dimensions(name)) == 1:
        return [name]
    prefix = PREFIXES.get(name, "neighbor" if name in ("indices", "distances") else name)
    return [f"{prefix}{number}" for number in range(1, count + 1)]
