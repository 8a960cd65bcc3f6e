"""Series of components over time: a line for each, if the rows of a result are times.

Long series are drawn as the minimum and maximum of every stretch, in memory that does not grow with them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.names import Names
from rankfold.pipeline.exporting.outcome import names_in
from rankfold.pipeline.exporting.plots.canvas import LIGHT, WIDTH, Theme, drawn, inset, label_axes, quiet
from rankfold.pipeline.exporting.plots.coordinates import (
    Plottable,
    columns_of,
    has_coordinates,
    row_array,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

TIMES = ("time", "times", "date", "dates", "t", "year", "month", "day", "hour", "valid_time")
"""Names of axes of times, in lower case; any other axis is one if its labels are dates."""

DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]|$)")

MOST_POINTS = 4000
"""Largest number of points of a line. A longer series is cut into half as many stretches of rows.

The line then shows the minimum and maximum of each stretch.
"""

SHOWN = 4
"""Number of components that are drawn by default."""

WORDS = {"scores": "score", "U": "coordinate of U", "W": "coordinate of W"}
"""Labels of the y axis, by name of the array that is drawn."""

HEIGHT, GAP, TITLE = 230, 96, 48
"""Pixels: height of one of several lines, gap between two, room for the title above each."""


@dataclass(frozen=True, slots=True)
class Line:
    """Series of one component over time."""

    times: Array
    """Times (n,), float64 or datetime64."""

    values: Float64
    title: str
    x: str
    y: str

    def draw(self, axes: Axes, theme: Theme = LIGHT) -> None:
        """Draw the series into axes that hold nothing else."""
        import matplotlib.dates

        dates: Any = matplotlib.dates
        quiet(axes, theme, grid="y")
        times: Any = self.times
        if times.dtype.kind == "M":
            times = dates.date2num(times)
            ticks = dates.AutoDateLocator(minticks=3, maxticks=7)
            axes.xaxis.set_major_locator(ticks)
            axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(ticks))
            axes.xaxis.get_offset_text().set(color=theme.muted, fontsize=9)
        axes.axhline(0, color=theme.muted, linewidth=0.7)
        axes.plot(times, self.values, color=theme.accent, linewidth=0.9, marker="o" * (len(times) == 1))
        if len(times) > 1:
            axes.set_xlim(times[0], times[-1])
        label_axes(axes, theme, self.x, self.y)


@dataclass(frozen=True, slots=True)
class Series:
    """Series of several components, one below the other."""

    lines: tuple[Line, ...]
    width: int = WIDTH
    """Width of the picture in pixels."""

    left: int = 170
    right: int = 40

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of all series together in pixels."""
        return self.width - self.left - self.right, len(self.lines) * (TITLE + self.height + GAP) - GAP

    @property
    def height(self) -> int:
        """Height of one series in pixels."""
        return HEIGHT if len(self.lines) > 1 else 2 * HEIGHT

    @property
    def alt(self) -> str:
        """Description of the picture in words."""
        return f"{', '.join(line.title for line in self.lines)} along {self.lines[0].x}"

    def draw(self, axes: Axes, theme: Theme = LIGHT) -> None:
        """Draw the plot into matplotlib axes, which rankfold or a user has made."""
        axes.set_axis_off()
        for number, line in enumerate(self.lines):
            top = number * (TITLE + self.height + GAP) + TITLE
            place = inset(axes, self.size, 0, top, self.size[0], self.height)
            place.set_title(drawn(line.title), loc="left", color=theme.ink, fontsize=9.5, pad=7)
            line.draw(place, theme)


def has_series(result: Plottable) -> bool:
    """True if the rows of a result are times, with coordinates that can be drawn."""
    names = names_in(result, "rows")
    return has_coordinates(result) and names is not None and len(names.axes) == 1 and _are_times(names)


def _are_times(names: Names) -> bool:
    axis = names.axes[0]
    if axis.name.lower() in TIMES:
        return True
    labels = axis.labels
    return labels is not None and labels.dtype.kind == "U" and all(DATE.match(each) for each in labels)


def series_of(result: Plottable, components: Sequence[int] | None = None) -> Series:
    """Series of the given components, counted from 1, over time; by default of the first ``SHOWN``."""
    return Series(tuple(read_lines(result, components)))


def read_lines(
    result: Plottable, components: Sequence[int] | None = None, sizes: Float64 | None = None
) -> list[Line]:
    """Series of each given component over time, from one read of the coordinates of the rows.

    ``components`` count from 1; by default they are the first ``SHOWN``. Each series is multiplied by its
    entry of ``sizes``, (components,), if given.

    Raises
    ------
    InputError
        A component does not exist.
    NonFiniteError
        A coordinate is NaN or Inf.
    """
    points = columns_of(result, components, default=SHOWN)
    count = points.count
    stretches = count if count <= MOST_POINTS else MOST_POINTS // 2
    low = np.full((len(points.columns), stretches), np.inf)
    high = -low
    for start, block in points.blocks():
        stretch = (start + np.arange(block.shape[1])) * stretches // count
        first = np.flatnonzero(np.diff(stretch, prepend=-1))
        at = stretch[first]
        low[:, at] = np.minimum(low[:, at], np.minimum.reduceat(block, first, axis=1))
        high[:, at] = np.maximum(high[:, at], np.maximum.reduceat(block, first, axis=1))
    times, x = _times(names_in(result, "rows"), count)
    if stretches < count:
        times = np.repeat(times[(np.arange(stretches) * count + count // 2) // stretches], 2)
        low = np.stack([low, high], axis=2).reshape(len(low), -1)
    if sizes is not None:
        low = low * sizes[:, None]
    y = WORDS.get(str(row_array(result)), "coordinate")
    return [Line(times, values, name, x, y) for values, name in zip(low, points.names, strict=True)]


def _times(names: Names | None, count: int) -> tuple[Array, str]:
    """Return the x values (count,) of the rows, and the label of the x axis.

    The values are the dates or numbers that label the rows in ``names``, or else their numbers from 0.
    """
    name = "row" if names is None else names.axes[0].name
    labels = None if names is None else names.labels
    if labels is None or len(labels) != count:
        return np.arange(count, dtype=np.float64), f"number of {name}, from 0"
    if labels.dtype.kind != "U":
        return np.asarray(labels, np.float64), name
    try:
        return labels.astype("datetime64[s]"), name
    except ValueError:  # a calendar of its own, as of 360 days
        first, last = (re.split("[T ]", labels[at])[0] for at in (0, -1))
        return np.arange(count, dtype=np.float64), f"number of {name}, from {first} to {last}"
