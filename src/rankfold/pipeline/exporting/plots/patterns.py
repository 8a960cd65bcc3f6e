"""Patterns of a field: the map of each component, with what it does over time.

The picture that comes first where rows are times and columns are places. Several components have a line each,
map and series side by side; one alone has its map above its series.
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
"""Most pixels of the map of one component alone, and of one of several."""

BELOW = 96
"""Pixels below a map, or a series, for ticks and what they count."""

BETWEEN = 130
"""Pixels for the ticks of a series beside a map."""

SERIES, NARROWEST = 300, 420
"""Pixels upwards of a series below a map, and least pixels across one beside it."""


@dataclass(frozen=True, slots=True)
class Patterns:
    """Maps and series."""

    maps: tuple[Map, ...]
    lines: tuple[Line, ...]
    right: int = 40

    @property
    def left(self) -> int:
        """Pixels left of the maps."""
        return max(BETWEEN, self.maps[0].left)

    @property
    def _map(self) -> tuple[int, int]:
        return self.maps[0].size(self._most)

    @property
    def _most(self) -> tuple[int, int]:
        return LARGE if len(self.maps) == 1 else MEDIUM

    @property
    def size(self) -> tuple[int, int]:
        """Pixels of all of it."""
        width, height = self._map
        if len(self.maps) == 1:
            return max(width + BAR, 900), TITLE + height + BELOW + SERIES
        across = max(WIDTH - self.left - self.right, width + BAR + BETWEEN + NARROWEST)
        return across, len(self.maps) * (TITLE + height + BELOW) - BELOW

    @property
    def alt(self) -> str:
        """The picture in words."""
        return f"Maps of {', '.join(one.title for one in self.maps)}, and each along {self.lines[0].x}"

    def draw(self, axes: Axes, theme: Theme = LIGHT) -> None:
        """Into axes of their own, or of a user."""
        axes.set_axis_off()
        width, height = self._map
        for number, (one, line) in enumerate(zip(self.maps, self.lines, strict=True)):
            top = number * (TITLE + height + BELOW) + TITLE
            place_map(axes, self.size, one, (0, top), self._most, theme)
            if len(self.maps) == 1:
                place = inset(axes, self.size, 0, top + height + BELOW, self.size[0] - BAR, SERIES)
            else:
                left = width + BAR + BETWEEN
                place = inset(axes, self.size, left, top, self.size[0] - left, height)
            line.draw(place, theme)


def has_patterns(result: Plottable) -> bool:
    """Whether rows of a result are times and its columns places of two axes."""
    return has_maps(result) and has_series(result)


def patterns_of(result: Plottable, components: Sequence[int] | None = None) -> Patterns:
    """Components as maps with their series: the first of them by default."""
    maps, sizes = read_maps(result, components, SHOWN)
    return Patterns(maps, tuple(read_lines(result, components, sizes)))
