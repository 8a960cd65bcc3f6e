"""Patterns of a field: the map of each component, with its series over time.

This is the default picture where rows are times and columns are points on two axes. With several components,
each has a line with map and series side by side; a single one has its map above its series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rankfold.pipeline.exporting.plots.canvas import LIGHT, WIDTH, Theme, inset
from rankfold.pipeline.exporting.plots.coordinates import Plottable
from rankfold.pipeline.exporting.plots.maps import BAR, TITLE, Map, has_maps, place_map, read_maps
from rankfold.pipeline.exporting.plots.series import SHOWN, Line, has_series, read_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LARGE, MEDIUM = (1340, 700), (700, 400)
"""Largest number of pixels (width, height) of the map of a single component, and of one of several."""

BELOW = 96
"""Pixels below a map, or a series, for ticks and the name of the axis."""

BETWEEN = 130
"""Pixels for the ticks of a series beside a map."""

SERIES, NARROWEST = 300, 420
"""Height in pixels of a series below a map, and least width in pixels of one beside it."""


@dataclass(frozen=True, slots=True)
class Patterns:
    """Data of a picture with the map of each component, and its series over time."""

    maps: tuple[Map, ...]
    lines: tuple[Line, ...]
    width: int = WIDTH
    """Width of the picture in pixels; where it is less than the default, each series is below its map."""

    right: int = 40

    @property
    def left(self) -> int:
        """Pixels left of the maps, for ticks."""
        return max(BETWEEN, self.maps[0].left)

    @property
    def _map(self) -> tuple[int, int]:
        return self.maps[0].size(self._most)

    @property
    def _most(self) -> tuple[int, int]:
        width, height = LARGE if len(self.maps) == 1 else MEDIUM
        room = self.width - self.left - self.right - BAR
        return (width if self.width == WIDTH else min(width, room)), height

    @property
    def _is_stacked(self) -> bool:
        """True if each series is below its map."""
        return len(self.maps) == 1 or self.width < WIDTH

    @property
    def _step(self) -> int:
        """Pixels from one component down to the next."""
        return TITLE + self._map[1] + BELOW + (SERIES + BELOW if self._is_stacked else 0)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the whole picture in pixels."""
        width, room = self._map[0] + BAR, self.width - self.left - self.right
        across = max(width, min(900, room)) if self._is_stacked else max(room, width + BETWEEN + NARROWEST)
        return across, len(self.maps) * self._step - BELOW

    @property
    def alt(self) -> str:
        """Description of the picture in words."""
        return f"Maps of {', '.join(one.title for one in self.maps)}, and each along {self.lines[0].x}"

    def draw(self, axes: Axes, theme: Theme = LIGHT) -> None:
        """Draw the plot into matplotlib axes, which rankfold or a user has made."""
        axes.set_axis_off()
        width, height = self._map
        for number, (one, line) in enumerate(zip(self.maps, self.lines, strict=True)):
            top = number * self._step + TITLE
            place_map(axes, self.size, one, (0, top), self._most, theme)
            if self._is_stacked:
                place = inset(axes, self.size, 0, top + height + BELOW, self.size[0] - BAR, SERIES)
            else:
                left = width + BAR + BETWEEN
                place = inset(axes, self.size, left, top, self.size[0] - left, height)
            line.draw(place, theme)


def has_patterns(result: Plottable) -> bool:
    """True if rows of a result are times and its columns lie on two axes, such as latitude and longitude."""
    return has_maps(result) and has_series(result)


def patterns_of(result: Plottable, components: Sequence[int] | None = None) -> Patterns:
    """Maps and series of the given components, counted from 1; by default of the first ``SHOWN``."""
    maps, sizes = read_maps(result, components, SHOWN)
    return Patterns(maps, tuple(read_lines(result, components, sizes)))
