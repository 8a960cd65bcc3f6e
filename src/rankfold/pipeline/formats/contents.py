"""Describe a store of several arrays, or an array of several axes: ``rankfold info STORE``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rankfold.pipeline.data.names import Axis
from rankfold.pipeline.data.origin import attributes_of, names_of
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.stacked import StackedSource, axis_of
from rankfold.pipeline.errors import RankfoldError, SeveralAxesError, in_command
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.formats.locate import split_location
from rankfold.pipeline.text import Lines, shell_words

MOST_ARRAYS = 12
"""Largest number of arrays of a store that are described."""

MIDNIGHT = "T00:00:00"
"""End of the label of a date at midnight, which is not shown."""


@dataclass(frozen=True, slots=True)
class AxisInfo:
    """One axis of an array."""

    name: str
    length: int
    first: Any = None
    """Label of the first index along the axis (``last`` has that of the last); None without labels."""

    last: Any = None
    units: str = ""

    def __str__(self) -> str:
        """Name, length, and first and last label, as text."""
        if self.first is None:
            return f"{self.name} {self.length}"
        words = [f"{each:g}" if isinstance(each, float) else str(each) for each in (self.first, self.last)]
        return f"{self.name} {self.length} ({' '.join([' to '.join(words), self.units]).rstrip()})"


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """One array of a store."""

    location: str
    """Location that opens it, as ``STORE::array``."""

    axes: tuple[AxisInfo, ...]
    dtype: str
    format: str
    chunks: tuple[int, ...]
    """Length of the longest native chunk along each axis."""

    attributes: dict[str, str]
    """Units, long name and similar attributes."""

    refusal: str = ""
    """Message that says why it cannot be read; all other fields but ``location`` are then empty."""

    def lines(self, name: str) -> Iterator[str]:
        """Yield lines of text that describe the array, which is called ``name`` in them."""
        if self.refusal:
            yield f"array     {name}: {self.refusal}"
            return
        shape = " x ".join(str(axis.length) for axis in self.axes)
        said = [self.attributes[key] for key in ("long_name", "units") if key in self.attributes]
        yield f"array     {', '.join([f'{name}: {shape} {self.dtype}', *said, self.format])}"
        yield f"axes      {', '.join(map(str, self.axes))}"
        yield f"chunks    {' x '.join(map(str, self.chunks))}"

    @property
    def options(self) -> str:
        """Text of the options that a command needs to read it as a matrix; empty if it has two axes."""
        return f" --row-axes {self.axes[0].name}" if len(self.axes) > 2 else ""


@dataclass(frozen=True, slots=True)
class Contents:
    """Description of a store and its arrays."""

    name: str
    arrays: tuple[ArrayInfo, ...]
    others: int
    """Number of arrays that are not described, because there are too many."""

    def __str__(self) -> str:
        """The description as lines of text."""
        count = len(self.arrays) + self.others
        lines = [f"{self.name}: {count} array{'s' if count != 1 else ''} of two axes or more"]
        for each in self.arrays:
            lines += each.lines(split_location(each.location)[1] or each.location)
        if self.others:
            lines.append(f"          and {self.others} more")
        if (first := next((each for each in self.arrays if not each.refusal), None)) is not None:
            words = shell_words([first.location])
            lines.append(f"next      rankfold pca {words}{first.options} --rank K --out RESULT.zarr")
        return Lines(*lines)

    def as_dict(self) -> dict[str, Any]:
        """The description as values for ``json.dumps``."""
        return asdict(self)


def describe_contents(location: str, arrays: Sequence[str], **view: Any) -> Contents:
    """Describe the given arrays of a store, or the array at ``location`` itself if none are given.

    Reads metadata and labels of axes, but no values. ``view`` are options of ``open_source``.
    """
    store = split_location(location)[0]
    places = [f"{store}::{array}" for array in arrays] or [location]
    found = tuple(_array(place, view) for place in places[:MOST_ARRAYS])
    return Contents(location, found, len(places) - len(found))


def _array(location: str, view: Any) -> ArrayInfo:
    try:
        try:
            source = open_source(location, **view)
        except SeveralAxesError:
            source = open_source(location, **{**view, "row_axes": 0})
    except RankfoldError as error:
        return ArrayInfo(location, (), "", "", (), {}, in_command(error.message))
    return ArrayInfo(
        location,
        tuple(_axis(axis) for axis in _axes(source)),
        source.dtype.name,
        getattr(source.inner if isinstance(source, StackedSource) else source, "format", "unknown"),
        _chunks(source),
        dict(attributes_of(source)),
    )


def _axes(source: Source) -> list[Axis]:
    """Axes of the array that a matrix was made from, in their stored order."""
    if isinstance(source, StackedSource):
        return [axis_of(source.inner, number) for number in range(len(source.inner.shape))]
    sides = zip((0, 1), ("row", "column"), source.shape, strict=True)
    names = [(names_of(source, side), name, length) for side, name, length in sides]
    return [
        axis
        for found, name, length in names
        for axis in (found.axes if found is not None else (Axis(name, length),))
    ]


def _chunks(source: Source) -> tuple[int, ...]:
    grids = source.inner.grids if isinstance(source, StackedSource) else (source.row_grid, source.column_grid)
    return tuple(grid.longest for grid in grids)


def _axis(axis: Axis) -> AxisInfo:
    if axis.labels is None or not axis.length:
        return AxisInfo(axis.name, axis.length)
    first, last = (axis.labels[place].item() for place in (0, -1))
    if all(str(each).endswith(MIDNIGHT) for each in axis.labels):
        first, last = first.removesuffix(MIDNIGHT), last.removesuffix(MIDNIGHT)
    return AxisInfo(axis.name, axis.length, first, last, axis.attributes.get("units", ""))
