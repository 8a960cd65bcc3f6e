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
    width: int = WIDTH
    """Pixels for all of it; where they are fewer than by default, each series is below its map."""

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
        width, height = LARGE if len(self.maps) == 1 else MEDIUM
        room = self.width - self.left - self.right - BAR
        return (width if self.width == WIDTH else min(width, room)), height

    @property
    def _is_stacked(self) -> bool:
        """Whether each series is below its map."""
        return len(self.maps) == 1 or self.width < WIDTH

    @property
    def _step(self) -> int:
        """Pixels from one component down to the next."""
        return TITLE + self._map[1] + BELOW + (SERIES + BELOW if self._is_stacked else 0)

    @property
    def size(self) -> tuple[int, int]:
        """Pixels of all of it."""
        width, room = self._map[0] + BAR, self.width - self.left - self.right
        across = max(width, min(900, room)) if self._is_stacked else max(room, width + BETWEEN + NARROWEST)
        return across, len(self.maps) * self._step - BELOW

    @property
    def alt(self) -> str:
        """The picture in words."""
        return f"Maps of {', '.join(one.title for one in self.maps)}, and each along {self.lines[0].x}"

    def draw(self, axes: Axes, theme: Theme = LIGHT) -> None:
        """Into axes of their own, or of a user."""
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
    """Whether rows of a result are times and its columns places of two axes."""
    return has_maps(result) and has_series(result)


def patterns_of(result: Plottable, components: Sequence[int] | None = None) -> Patterns:
    """Components as maps with their series: the first of them by default."""
    maps, sizes = read_maps(result, components, SHOWN)
    return Patterns(maps, tuple(read_lines(result, components, sizes)))
