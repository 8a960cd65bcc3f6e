"""The position of an element of a matrix in the array that it was made from: indices and coordinates there.

A matrix may be made from an array by selecting rows and columns, leaving out missing columns and stacking
axes. A person who is to fix a value needs its position in the array.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.cf_attributes import Attributes
from rankfold.pipeline.data.dtypes import ConvertedSource
from rankfold.pipeline.data.index_selection import runs_of
from rankfold.pipeline.data.missing_columns import WithoutMissing
from rankfold.pipeline.data.missing_rows import PresentRows
from rankfold.pipeline.data.names import Names
from rankfold.pipeline.data.real_parts import RealParts
from rankfold.pipeline.data.selection import SelectedSource
from rankfold.pipeline.data.source import SamePlaces, Source
from rankfold.pipeline.data.stacked import StackedSource, axis_of
from rankfold.pipeline.errors import InputError

if TYPE_CHECKING:
    from rankfold.pipeline.data.index_selection import Picks


def place_of(source: Source, row: int, column: int) -> str:
    """Text on an element of ``source``: its row and column in the whole array, from 0, and their names.

    ``row`` and ``column`` count what ``source`` keeps of that array.

    Such as ``row 7, column 53 (from 0), which is time 7, lat 4, lon 5; row 7, column 31 of what is kept``.
    """
    if isinstance(source, RealParts):
        (row, column), source = source.place(row, column), source.inner
    inner: Source = source
    place = row, column
    for wrapper in wrappers(source):
        if isinstance(wrapper, WithoutMissing):
            place = place[0], wrapper.chosen.place(place[1])
        elif isinstance(wrapper, SelectedSource):
            place = _pick(wrapper.rows, place[0]), _pick(wrapper.columns, place[1])
        inner = _within(wrapper)
    words = f"row {place[0]}, column {place[1]} (from 0)"
    if isinstance(inner, StackedSource) and len(inner.inner.shape) > 2:
        words += f", which is {_coordinates(inner, *place)}"
    elif called := _called(inner, *place):
        words += f", which is {called}"
    return words if place == (row, column) else f"{words}; row {row}, column {column} of what is kept"


def _called(source: Source, row: int, column: int) -> str:
    """Text with the names of an element's row and column, as ``row 'AAC-1', column 'income'``; else empty."""
    words = []
    for axis, number in enumerate((row, column)):
        names: Names | None = source.names(axis) if hasattr(source, "names") else None
        if names is not None and (len(names.axes) > 1 or names.labels is not None):
            what = f"{('row', 'column')[axis]} " if len(names.axes) == 1 else ""
            words.append(f"{what}{names.word(number)}")
    return ", ".join(words)


def _within(source: Source) -> Source:
    """The source that a wrapper reads from."""
    inner: Source = source.source if isinstance(source, ConvertedSource) else source.inner  # type: ignore[attr-defined]
    return inner


def wrappers(source: Source) -> Iterator[Source]:
    """Yield the wrappers (selections, conversions) that a matrix is read through, the outermost first."""
    while isinstance(source, WithoutMissing | SelectedSource | ConvertedSource | SamePlaces):
        yield source
        source = _within(source)


# All of them --------------------------------------------------------------------------------------


MOST_RUNS = 2**16
"""Largest number of runs of kept rows or columns that a layout lists; of more, it keeps only their number."""


def columns_in_words(source: Source, columns: Sequence[int]) -> str:
    """Text that lists columns in a message: by name if they have names, else by number."""
    names = names_of(source, 1)
    if names is None or (len(names.axes) == 1 and names.labels is None):
        return f"{', '.join(map(str, columns))} (from 0)"
    return ", ".join(map(names.word, columns))


def layout_of(source: Source) -> dict[str, Any]:
    """Facts on which rows and columns of an array a matrix consists of, for JSON.

    Empty if the matrix is all of an array of two axes without names. Else ``shape`` of the whole matrix,
    ``axes`` with their ``lengths`` and the ``row_axes`` if they have names or are stacked, and ``rows``
    and ``columns`` as runs of first index, count and step if not all are kept. ``missing_rows`` is the number
    of rows without a number that were left out, if any were.
    """
    inner, kept = _kept(source)
    gone = [w.inner.shape[0] - w.shape[0] for w in wrappers(source) if isinstance(w, PresentRows)]
    layout: dict[str, Any] = {}
    if isinstance(inner, StackedSource):
        axes = inner.inner.axes
        layout = {"axes": list(axes), "lengths": [int(n) for n in inner.inner.shape]}
        layout["row_axes"] = [axes[i] for i in inner.row_axes]
    elif dims := getattr(inner, "dims", ()):
        layout = {"axes": list(dims), "lengths": [int(n) for n in inner.shape], "row_axes": [dims[0]]}
    layout |= {axis: _in_words(places) for axis, places in kept.items() if places is not None}
    layout |= {"missing_rows": sum(gone)} if gone else {}
    return {"layout": {"shape": [int(n) for n in inner.shape], **layout}} if layout else {}


def places_in_words(layout: Mapping[str, Any], axis: str) -> npt.NDArray[np.int64] | None:
    """Indices in the array of the kept rows or columns, (n,), from the facts that ``layout_of`` made.

    ``axis`` is ``"rows"`` or ``"columns"``. None if all are kept.
    """
    runs = layout.get(axis)
    if runs is None:
        return None
    if isinstance(runs, str):
        raise InputError(f"the {axis} of this result are {runs}, which is more than a result keeps")
    return np.concatenate([first + step * np.arange(count) for first, count, step in runs])


def column_coordinates(source: Source, axis: str) -> npt.NDArray[np.int64] | None:
    """Index of each column along the axis of that name, (columns,); None if columns have no such axis."""
    inner, kept = _kept(source)
    if isinstance(inner, StackedSource):
        names = [inner.inner.axes[i] for i in inner.column_axes]
        lengths = [inner.inner.shape[i] for i in inner.column_axes]
    else:
        column = inner.axis(1) if hasattr(inner, "axis") else None
        names, lengths = ([] if column is None else [column.name]), [inner.shape[1]]
    if axis not in names:
        return None
    places = np.arange(inner.shape[1]) if kept["columns"] is None else kept["columns"]
    return np.asarray(np.unravel_index(places, lengths)[names.index(axis)])


def column_coordinate(source: Source, axis: str) -> npt.NDArray[np.float64] | None:
    """Coordinate of each column along the axis of that name, (columns,); None without numeric labels."""
    names = names_of(source, 1)
    return None if names is None else names.coordinate(axis)


def kept_columns(source: Source) -> tuple[int, npt.NDArray[np.int64] | None]:
    """Number of columns of the array that a matrix was taken from, and indices of those kept.

    Indices are None if all are kept.
    """
    inner, kept = _kept(source)
    return inner.shape[1], kept["columns"]


def kept_rows(source: Source) -> tuple[int, npt.NDArray[np.int64] | None]:
    """Number of rows of the array that a matrix was taken from, and indices of those kept.

    Indices are None if all are kept.
    """
    inner, kept = _kept(source)
    return inner.shape[0], kept["rows"]


def names_of(source: Source, axis: int) -> Names | None:
    """Names that the source of a matrix gives its rows (0) or columns (1); None if it has none."""
    inner, kept = _within_all(source)
    found: Names | None = inner.names(axis) if hasattr(inner, "names") else None
    return found and found.take(kept[("rows", "columns")[axis]])


def attributes_of(source: Source) -> Attributes:
    """Attributes that the store of a matrix gives its values, such as units."""
    inner, _ = _within_all(source)
    return getattr(inner, "attributes", {})


def _kept(source: Source) -> tuple[Source, dict[str, npt.NDArray[np.int64] | None]]:
    """The whole array that a matrix is taken from, and indices there of its ``rows`` and ``columns``.

    Indices are None if all are kept.
    """
    inner, kept = _within_all(source)
    return getattr(inner, "stacked", None) or inner, kept


def _within_all(source: Source) -> tuple[Source, dict[str, npt.NDArray[np.int64] | None]]:
    """The innermost source that a matrix is read from, and indices there of its ``rows`` and ``columns``.

    Indices are None if all are kept.
    """
    chain = list(wrappers(source))
    kept: dict[str, npt.NDArray[np.int64] | None] = {"rows": None, "columns": None}
    for wrapper in reversed(chain):
        if isinstance(wrapper, SelectedSource):
            kept["rows"] = _chosen(kept["rows"], wrapper.rows)
            kept["columns"] = _chosen(kept["columns"], wrapper.columns)
        elif isinstance(wrapper, WithoutMissing):
            places = np.flatnonzero(wrapper.chosen.mask(0, wrapper.chosen.length))
            kept["columns"] = places if kept["columns"] is None else kept["columns"][places]
    return (_within(chain[-1]) if chain else source), kept


def _chosen(places: npt.NDArray[np.int64] | None, picks: Picks | None) -> npt.NDArray[np.int64] | None:
    """Those of the indices ``places`` that a selection of them keeps; None stands for all indices."""
    if picks is None:
        return places
    chosen = picks.places()
    return chosen if places is None else places[chosen]


def _in_words(places: npt.NDArray[np.int64]) -> list[list[int]] | str:
    """Runs [first, count, step] of indices, or text with the number of runs if there are too many."""
    runs = runs_of(places)
    return runs if len(runs) <= MOST_RUNS else f"in {len(runs)} runs"


def leaves_out_missing(source: Source) -> bool:
    """True if missing columns have been left out of a matrix already (``drop_missing_columns``)."""
    if isinstance(source, ConvertedSource):
        return leaves_out_missing(source.source)
    if isinstance(source, SamePlaces):
        return leaves_out_missing(source.inner)
    return isinstance(source, WithoutMissing)


def _pick(picks: Picks | None, index: int) -> int:
    """Index along the axis of the element that is number ``index`` of a selection; None selects all."""
    return index if picks is None else next(picks.parts((index, index + 1))).first


def _coordinates(source: StackedSource, row: int, column: int) -> str:
    """Text with index and coordinate along every axis of the array of an element of the stacked matrix."""
    positions: dict[int, int] = {}
    for axes, index in ((source.row_axes, row), (source.column_axes, column)):
        places = np.unravel_index(index, [source.inner.shape[axis] for axis in axes])
        positions.update(zip(axes, map(int, places), strict=True))
    words = []
    for axis, name in enumerate(source.inner.axes):
        labels = axis_of(source.inner, axis).labels
        label = str(positions[axis] if labels is None else labels[positions[axis]])
        called = "" if label == str(positions[axis]) else f" ({label})"
        words.append(f"{name} {positions[axis]}{called}")
    return ", ".join(words)
