"""Where an element of a matrix lies in what the matrix was made of: its cell, and the coordinates of that.

Rows and columns may be selected, columns of places on land left out, axes stacked. A person who is to mend
a number needs the place that it has in the array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankfold.pipeline.data.dtypes import ConvertedSource
from rankfold.pipeline.data.missing_columns import WithoutMissing
from rankfold.pipeline.data.selection import SelectedSource
from rankfold.pipeline.data.source import SamePlaces, Source
from rankfold.pipeline.data.stacked import StackedSource

if TYPE_CHECKING:
    from rankfold.pipeline.data.picks import Picks


def place_of(source: Source, row: int, column: int) -> str:
    """Words for an element: its row and column in the whole matrix, from 0, and what else it is called.

    As ``row 7, column 53 (from 0), which is time 7, lat 4, lon 5; row 7, column 31 of what is kept``.
    """
    inner: Source = source
    place = row, column
    while True:
        if isinstance(inner, WithoutMissing):
            place = place[0], inner.chosen.place(place[1])
            inner = inner.inner
        elif isinstance(inner, SelectedSource):
            place = _pick(inner.rows, place[0]), _pick(inner.columns, place[1])
            inner = inner.inner
        elif isinstance(inner, ConvertedSource):
            inner = inner.source
        elif isinstance(inner, SamePlaces):
            inner = inner.inner
        else:
            break
    words = f"row {place[0]}, column {place[1]} (from 0)"
    if isinstance(inner, StackedSource) and len(inner.inner.shape) > 2:
        words += f", which is {_coordinates(inner, *place)}"
    return words if place == (row, column) else f"{words}; row {row}, column {column} of what is kept"


def leaves_out_missing(source: Source) -> bool:
    """Whether columns without numbers have been left out of a matrix already."""
    if isinstance(source, ConvertedSource):
        return leaves_out_missing(source.source)
    if isinstance(source, SamePlaces):
        return leaves_out_missing(source.inner)
    return isinstance(source, WithoutMissing)


def _pick(picks: Picks | None, index: int) -> int:
    """Place of an element that a selection has as number ``index``."""
    return index if picks is None else next(picks.parts((index, index + 1))).first


def _coordinates(source: StackedSource, row: int, column: int) -> str:
    """Index along every axis of the array, in its order."""
    positions: dict[int, int] = {}
    for axes, index in ((source.row_axes, row), (source.column_axes, column)):
        places = np.unravel_index(index, [source.inner.shape[axis] for axis in axes])
        positions.update(zip(axes, map(int, places), strict=True))
    return ", ".join(f"{name} {positions[axis]}" for axis, name in enumerate(source.inner.axes))
