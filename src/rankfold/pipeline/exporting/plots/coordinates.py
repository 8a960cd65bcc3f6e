"""Coordinates of a result that are drawn, read block after block, never all at once."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError, NonFiniteError
from rankfold.pipeline.exporting.outcome import Outcome

Float64 = npt.NDArray[np.float64]

BLOCK_NUMBERS = 2**20
"""Largest number of elements read at a time, counting all columns from the first to the last drawn."""

MOST_COMPONENTS = 12
"""Largest number of components in one picture."""

ARRAYS = {"embedding": "", "scores": "PC", "U": "SV", "W": "NMF"}
"""Prefix of names of columns, by name of the array of coordinates of rows; empty for name of the method."""


class Plottable(Outcome, Protocol):
    """A result that can be plotted: an ``Outcome`` with a path and arrays that are read by blocks of rows."""

    @property
    def path(self) -> os.PathLike[str]:
        """Path of the result."""

    def matrix(self, name: str) -> Source:
        """An array as a source that is read by blocks."""


@dataclass(frozen=True, slots=True)
class View:
    """Viewpoint for points in space: elevation and azimuth in degrees, as matplotlib counts them."""

    elevation: float = 25.0
    azimuth: float = -60.0

    def axes(self) -> Float64:
        """Unit vectors in space, (2, 3), that point to the right, and up, on the paper.

        Column ``j`` is thus the direction of coordinate axis ``j`` on the paper.
        """
        e, a = math.radians(self.elevation), math.radians(self.azimuth)
        right = (-math.sin(a), math.cos(a), 0.0)
        up = (-math.sin(e) * math.cos(a), -math.sin(e) * math.sin(a), math.cos(e))
        return np.array([right, up])


@dataclass(frozen=True, slots=True)
class Points:
    """Rows of a result as points of one or two coordinates, or of three projected by a view."""

    source: Source
    columns: tuple[int, ...]
    names: tuple[str, ...]
    """Names of the columns, for labels of axes."""

    view: View | None
    """Viewpoint from which three columns are projected; None for one or two."""

    same_scale: bool
    """True if both axes have the same scale, so that distances on paper are those of the data."""

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.source.shape[0]

    @property
    def dimensions(self) -> int:
        """Number of coordinates on the paper."""
        return min(2, len(self.columns))

    @property
    def block_rows(self) -> int:
        """Number of rows read at a time; it depends on the columns alone, so that sums are reproducible."""
        return max(1, BLOCK_NUMBERS // (max(self.columns) - min(self.columns) + 1))

    def blocks(self) -> Iterator[tuple[int, Float64]]:
        """Yield blocks of rows in order: index of the first row, coordinates on paper, (dimensions, rows).

        ``NonFiniteError`` if a coordinate is NaN or Inf.
        """
        span = min(self.columns), max(self.columns) + 1
        buffer = np.empty((min(self.block_rows, self.count), span[1] - span[0]), self.source.dtype)
        for start in range(0, self.count, self.block_rows):
            stop = min(start + self.block_rows, self.count)
            block = buffer[: stop - start]
            self.source.read_into(block, (start, stop), span)
            values = np.ascontiguousarray(block[:, [c - span[0] for c in self.columns]].T, np.float64)
            if not np.isfinite(values).all():
                row = start + int(np.flatnonzero(~np.isfinite(values).all(axis=0))[0])
                raise NonFiniteError(
                    f"{self.source.name} holds NaN or Inf, first in row {row}: no place in a picture"
                )
            yield start, values if self.view is None else project(values, self.view)


def view_of(angles: Sequence[float]) -> View:
    """Make a view from its elevation and azimuth in degrees."""
    if len(angles) != 2 or not all(isinstance(a, int | float) and math.isfinite(a) for a in angles):
        raise InputError(f"view is an elevation and an azimuth in degrees, such as (25, -60), not {angles!r}")
    return View(*map(float, angles))


def project(values: Float64, view: View) -> Float64:
    """Project coordinates (3, n) to (2, n) on the paper (right, up) as it is seen from ``view``."""
    x, y, z = values
    return np.stack([a * x + b * y + c * z for a, b, c in view.axes()])


def has_coordinates(result: Outcome) -> bool:
    """True if a result has coordinates of rows that can be drawn."""
    return row_array(result) is not None


def points_of(result: Plottable, components: Sequence[int] | None, view: View | None) -> Points:
    """Coordinates of the rows of a result, as points to draw.

    Parameters
    ----------
    components : sequence of int, optional
        One, two or three, counted from 1; the first two by default, or all that there are if fewer.
    view : View, optional
        Viewpoint of three components.

    Raises
    ------
    InputError
        Components that do not exist, or too many; complex coordinates; a view without three components.
    """
    points = columns_of(result, components, default=2, most=3)
    count = len(points.columns)
    if view is not None and count != 3:
        raise InputError(
            f"view is for three components, and {count} {'is' if count == 1 else 'are'} drawn: "
            "say components=(1, 2, 3) (--components 1,2,3), or leave view out"
        )
    if count == 3 and view is None:
        view = View()
    same_scale = row_array(result) == "embedding" or view is not None
    return replace(points, view=view, same_scale=same_scale)


def columns_of(
    result: Plottable, components: Sequence[int] | None, *, default: int, most: int = MOST_COMPONENTS
) -> Points:
    """Coordinates of the rows along the given components, at most ``most``; by default the first ``default``.

    Components count from 1.

    Raises
    ------
    InputError
        Components that do not exist, or too many; complex coordinates.
    """
    name = row_array(result)
    if name is None:
        raise InputError(f"this result has no coordinates of rows; it has {', '.join(result)}")
    source = result.matrix(name)
    if source.dtype.kind not in "fiu":
        raise InputError(f"{name} is {source.dtype}, and pictures are of real numbers")
    numbers = numbers_of(components, name, source.shape[1], default=default, most=most)
    titles = tuple(_title(result, name, number) for number in numbers)
    return Points(source, tuple(number - 1 for number in numbers), titles, None, same_scale=False)


def row_array(result: Outcome) -> str | None:
    """Name of the array of a result with coordinates of rows, such as ``scores``; None if it has none."""
    names = set(result)
    return next((name for name in ARRAYS if name in names and len(result.dimensions(name)) == 2), None)


def numbers_of(
    components: Sequence[int] | None, name: str, width: int, *, default: int, most: int
) -> tuple[int, ...]:
    """Check the numbers of components to draw, counted from 1, and return them.

    If ``components`` is None, they are the first ``default``. Raises ``InputError`` for numbers above
    ``width``, the number of components in the array ``name``, and for more than ``most`` of them.
    """
    if components is None:
        return tuple(range(1, min(default, width) + 1))
    numbers = tuple(components)
    if not 1 <= len(numbers) <= most:
        words = "one, two or three" if most == 3 else f"1 to {most}"
        raise InputError(f"a picture is of {words} components, not of {len(numbers)}")
    for number in numbers:
        if not isinstance(number, int | np.integer) or isinstance(number, bool):
            raise InputError(f"components are numbers from 1 on, not {number!r}")
        if not 1 <= number <= width:
            raise InputError(f"{name} has components 1 to {width}, and {number} is none of them")
    if len(set(numbers)) < len(numbers):
        raise InputError(f"components {', '.join(map(str, numbers))}: name each once")
    return numbers


def _title(result: Outcome, name: str, number: int) -> str:
    prefix = ARRAYS[name] or str(result.attrs["kind"]).upper()
    title = f"{prefix} {number}" if name == "embedding" else f"{prefix}{number}"
    share = share_of(result, number) if name == "scores" else ""
    return f"{title} ({share})" if share else title


def share_of(result: Outcome, number: int) -> str:
    """Text of the share of the variance that component ``number``, from 1, explains; empty if unknown.

    Such as ``34.2 %``.
    """
    if "explained_variance_ratio" not in set(result):
        return ""
    ratio: Any = result["explained_variance_ratio"]
    return f"{100 * float(ratio[number - 1]):.3g} %"
