"""Components as maps, if columns of the matrix lie on two axes: pixels of images, or a grid on the earth.

Of columns with levels or other axes beside these two, a map shows the first that has a column.

Each has a scale of colors of its own, symmetric around 0; columns that were left out, such as land,
are gray. Along an axis with coordinates these rise upwards, so that north is at the top; pixels are
drawn from the top down, as images are.

Maps of the earth: names of axes of latitudes and levels, text of degrees, coastlines.

Coastlines are those of cartopy, if it is installed and has its files already. Nothing is downloaded, so a
picture never needs or waits for a network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.longitudes import LONGITUDES
from rankfold.pipeline.data.names import Axis
from rankfold.pipeline.exporting.fields import Side, sides_of
from rankfold.pipeline.exporting.outcome import Outcome, names_in
from rankfold.pipeline.exporting.plots.canvas import BAR_WIDTH, LIGHT, WIDTH, Theme, color_bar, drawn, inset
from rankfold.pipeline.exporting.plots.coordinates import MOST_COMPONENTS, share_of
from rankfold.pipeline.exporting.plots.loadings import factor_name, leading, shades_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

NAMES = {"components": "PC", "Vt": "SV", "H": "NMF"}
"""Prefix of components in the titles of maps, by the name of their array."""

TITLE, BELOW = 50, 66
"""Pixels above a map, for its title, and below it, for ticks and the name of the axis."""

TICKS, BAR = 124, 164
"""Pixels left of a map, for ticks and the name of the axis, and right of it, for its color scale."""

EDGE, SPACE = 12, 24
"""Pixels left of a map without ticks, and below it."""

LARGE, MEDIUM, SMALL = (1340, 760), (530, 450), (340, 340)
"""Largest size in pixels (width, height) of a map: alone, one of several, one of several without ticks."""

FLATTEST = 0.25
"""Least ratio of the shorter to the longer side of a map, below which each axis has a scale of its own."""

TICK_PIXELS = 110, 60
"""Least pixels from one tick to the next: across and upwards."""

COAST_WIDTH = 0.6
"""Line width of a coastline in points."""


@dataclass(frozen=True, slots=True)
class Along:
    """One of the two axes of a map: its name, length and coordinates."""

    name: str
    length: int
    values: Float64 | None
    """Coordinates (length,) in rising order; None if they are not numbers: cells are then equally wide."""

    @property
    def is_east(self) -> bool:
        """True if these are longitudes."""
        return self.values is not None and self.name.lower() in LONGITUDES

    @property
    def is_north(self) -> bool:
        """True if these are latitudes."""
        return self.values is not None and self.name.lower() in LATITUDES

    @property
    def in_degrees(self) -> bool:
        """True if these are degrees on the earth."""
        return self.is_east or self.is_north

    @property
    def edges(self) -> Float64:
        """Edges (length + 1,) of the cells, halfway between coordinates; no latitude beyond a pole.

        Without coordinates these are 0, 1, 2, ...
        """
        if self.values is None:
            return np.arange(self.length + 1, dtype=np.float64)
        middle = (self.values[1:] + self.values[:-1]) / 2
        ends = 2 * self.values[0] - middle[0], 2 * self.values[-1] - middle[-1]
        edges = np.array([ends[0], *middle, ends[1]])
        return np.clip(edges, -90.0, 90.0) if self.is_north else edges

    def thin(self, step: int) -> Along:
        """The axis reduced to every ``step``-th coordinate."""
        values = None if self.values is None else self.values[::step]
        return Along(self.name, len(range(0, self.length, step)), values)


@dataclass(frozen=True, slots=True)
class Map:
    """Map of one component: its weights over two axes."""

    image: Float64
    """Weights (length of ``up``, length of ``right``); NaN where the matrix has no column."""

    up: Along
    right: Along
    title: str
    unit: str
    signed: bool
    """True if weights may be below 0."""

    @property
    def has_ticks(self) -> bool:
        """True if either axis has coordinates."""
        return self.up.values is not None or self.right.values is not None

    @property
    def left(self) -> int:
        """Pixels left of the map, for ticks."""
        return TICKS if self.has_ticks else EDGE

    @property
    def same_scale(self) -> bool:
        """True if both axes have the same scale, in units of their coordinates."""
        alike = self.up.in_degrees == self.right.in_degrees
        alike &= (self.up.values is None) == (self.right.values is None)
        width, height = self._lengths
        return alike and FLATTEST <= height / width <= 1 / FLATTEST

    @property
    def _lengths(self) -> tuple[float, float]:
        """Extents of both axes in their units: (horizontal, vertical)."""
        width, height = (float(along.edges[-1] - along.edges[0]) or 1.0 for along in (self.right, self.up))
        return width, height

    def size(self, most: tuple[int, int]) -> tuple[int, int]:
        """Width and height of the map in pixels, at most ``most``, (width, height)."""
        if not self.same_scale:
            return most[0], min(most[1], most[0] // 2)
        width, height = self._lengths
        pixels = min(most[0] / width, most[1] / height)
        return max(40, round(width * pixels)), max(40, round(height * pixels))

    def draw(self, axes: Axes, bar: Axes, theme: Theme, size: tuple[int, int]) -> None:
        """Draw the map into axes of ``size`` (width, height) pixels, and its color scale into ``bar``."""
        shown = shades_of(self.image, signed=self.signed)
        step = [max(1, -(-length // most)) for length, most in zip(self.image.shape, size[::-1], strict=True)]
        up, right, image = self.up.thin(step[0]), self.right.thin(step[1]), self.image[:: step[0], :: step[1]]
        axes.set_facecolor(theme.rule)
        axes.pcolormesh(
            right.edges,
            up.edges,
            np.ma.masked_invalid(image),
            cmap=shown.cmap,
            norm=shown.norm,
            rasterized=True,
        )
        _draw_coasts(axes, up, right, theme)
        axes.set_xlim(right.edges[0], right.edges[-1])
        axes.set_ylim(*(up.edges[[0, -1]] if up.values is not None else up.edges[[-1, 0]]))
        if self.same_scale:
            axes.set_aspect("equal", adjustable="box")
        lines = zip((axes.xaxis, axes.yaxis), (right, up), size, TICK_PIXELS, strict=True)
        for axis, along, pixels, room in lines:
            _mark(axis, along, theme, max(2, pixels // room))
        axes.tick_params(colors=theme.muted, labelsize=9, length=3, color=theme.muted)
        for spine in axes.spines.values():
            spine.set_color(theme.muted)
            spine.set_linewidth(0.6)
        axes.set_title(drawn(self.title), loc="left", color=theme.ink, fontsize=9.5, pad=7)
        color_bar(bar, shown, self.unit, theme, 0.8 * size[1])


def place_map(
    axes: Axes, whole: tuple[int, int], one: Map, at: tuple[float, float], most: tuple[int, int], theme: Theme
) -> None:
    """Draw the map ``one`` and its color scale within axes that are ``whole`` (width, height) pixels large.

    ``at`` are pixels from their left and top to the map, which takes at most ``most`` (width, height) pixels.
    """
    width, height = size = one.size(most)
    place = inset(axes, whole, *at, width, height)
    bar = inset(axes, whole, at[0] + width + 20, at[1] + 0.14 * height, BAR_WIDTH, 0.8 * height)
    one.draw(place, bar, theme, size)


@dataclass(frozen=True, slots=True)
class Maps:
    """Maps of several components, side by side in as many lines as needed."""

    maps: tuple[Map, ...]
    width: int = WIDTH
    """Width for maps side by side, in pixels. Unless it is the default, no map is wider than it allows."""

    @property
    def left(self) -> int:
        """Pixels left of the first map."""
        return self.maps[0].left

    @property
    def right(self) -> int:
        """Pixels right of the last map."""
        return BAR

    @property
    def _most(self) -> tuple[int, int]:
        width, height = LARGE if len(self.maps) == 1 else MEDIUM if self.maps[0].has_ticks else SMALL
        room = self.width - self.left - self.right
        return (width if self.width == WIDTH else min(width, room)), height

    @property
    def _step(self) -> tuple[int, int]:
        """Pixels from one map to the next, across and downwards."""
        width, height = self.maps[0].size(self._most)
        return self.left + width + self.right, TITLE + height + self._below

    @property
    def _below(self) -> int:
        return BELOW if self.maps[0].has_ticks else SPACE

    @property
    def across(self) -> int:
        """Number of maps side by side."""
        return max(1, min(len(self.maps), self.width // self._step[0]))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of all maps together in pixels."""
        across, down = self._step
        width = self.across * across - self.left - self.right
        return width, -(-len(self.maps) // self.across) * down - self._below

    @property
    def alt(self) -> str:
        """Description of the picture in words."""
        return f"Maps of {', '.join(one.title for one in self.maps)}"

    def draw(self, axes: Axes, theme: Theme = LIGHT) -> None:
        """Draw the plot into matplotlib axes, which rankfold or a user has made."""
        axes.set_axis_off()
        for number, one in enumerate(self.maps):
            down, across = divmod(number, self.across)
            at = across * self._step[0], down * self._step[1] + TITLE
            place_map(axes, self.size, one, at, self._most, theme)


def has_maps(result: Outcome) -> bool:
    """True if a result has components, and its columns have two axes that a map can show."""
    factor = factor_name(result)
    if factor is None or result[factor].dtype.kind == "c":
        return False
    columns = _columns(result)
    count = math.prod(columns.lengths) if columns.places is None else len(columns.places)
    return count == result[factor].shape[1] and len(_plane(result, columns)) == 2


def maps_of(result: Outcome, components: Sequence[int] | None = None) -> Maps:
    """Maps of the given components, counted from 1; by default of the first ``MOST_COMPONENTS``."""
    return Maps(read_maps(result, components, MOST_COMPONENTS)[0])


def read_maps(
    result: Outcome, components: Sequence[int] | None, default: int
) -> tuple[tuple[Map, ...], Float64]:
    """Maps of components, counted from 1, and the divisors (components,) by which their weights were divided.

    If ``components`` is None, these are the first ``default``.

    Raises
    ------
    InputError
        A component does not exist.
    """
    found = leading(result, components, default)
    columns, names = _columns(result), NAMES[str(factor_name(result))]
    plane = _plane(result, columns)
    level = _first_level(columns, plane)
    images = np.moveaxis(columns.unstack(found.weights.T), -1, 0)
    images = images[:, *(level.get(number, slice(None)) for number in range(len(columns.axes)))]
    (up, down), (right, across) = (_along(result, columns, number) for number in plane)
    images = images[:, down][:, :, across]
    if up.is_east or right.is_north:
        up, right, images = right, up, images.swapaxes(1, 2)
    words = ", ".join(_words(_axis(result, columns, axis), place) for axis, place in level.items())
    at = f" at {words}" if words else ""
    maps = []
    for number, image in zip(found.numbers, images, strict=True):
        share = share_of(result, number)
        title = f"{names}{number}{at}" + (f": {share} of the variance" if share else "")
        maps.append(Map(image, up, right, title, found.unit, found.signed))
    return tuple(maps), found.sizes


def _columns(result: Outcome) -> Side:
    """Axes of the data that columns are made of, those longer than 1, and the indices that were kept."""
    _, columns = sides_of(result, None)
    axes = [pair for pair in zip(columns.axes, columns.lengths, strict=True) if pair[1] > 1]
    names = names_in(result, "columns")
    places = columns.places if names is None or len(names.axes) == 1 else names.places
    return Side(tuple(name for name, _ in axes), tuple(length for _, length in axes), places)


def _plane(result: Outcome, columns: Side) -> tuple[int, ...]:
    """Numbers, from 0, of the two axes of ``columns`` that a map shows; empty if these are not known.

    Of more than two these are latitude and longitude, or the two beside one vertical axis.
    """
    numbers = range(len(columns.axes))
    if len(numbers) == 2:
        return 0, 1
    alongs = [_along(result, columns, number)[0] for number in numbers]
    plane = tuple(number for number in numbers if alongs[number].in_degrees)
    if len(plane) == 2 and {alongs[number].is_east for number in plane} == {True, False}:
        return plane
    plane = tuple(number for number in numbers if not is_vertical(_axis(result, columns, number)))
    return plane if len(numbers) == 3 and len(plane) == 2 else ()


def _first_level(columns: Side, plane: tuple[int, ...]) -> dict[int, int]:
    """Index along each axis of ``columns`` outside ``plane``, by number of the axis: the first with a column.

    ``plane`` has the numbers of the two axes that a map shows.
    """
    others = [number for number in range(len(columns.axes)) if number not in plane]
    if columns.places is None or not others:
        return dict.fromkeys(others, 0)
    lengths = [columns.lengths[number] for number in others]
    indices = np.unravel_index(columns.places, columns.lengths)
    first = np.ravel_multi_index([indices[number] for number in others], lengths).min()
    return dict(zip(others, map(int, np.unravel_index(first, lengths)), strict=True))


def _words(axis: Axis, place: int) -> str:
    """Text of index ``place`` along an axis: ``level 850 hPa``, or ``level 1 of 17`` if it has no labels."""
    if axis.labels is None:
        return f"{axis.name} {place + 1} of {axis.length}"
    label = axis.labels[place].item()
    text = label if isinstance(label, str) else f"{label:.6g}"
    return f"{axis.name} {text} {axis.attributes.get('units', '')}".rstrip()


def _axis(result: Outcome, columns: Side, number: int) -> Axis:
    """Axis ``number`` of ``columns``, with the labels that the result has kept."""
    name, length = columns.axes[number], columns.lengths[number]
    names = names_in(result, "columns")
    axes = () if names is None else names.axes
    return next((axis for axis in axes if (axis.name, axis.length) == (name, length)), Axis(name, length))


def _along(result: Outcome, columns: Side, number: int) -> tuple[Along, Array]:
    """Axis ``number`` of ``columns``, and the order (n,), indices along it, that sorts its coordinates.

    Longitudes across the date line begin after their widest gap.
    """
    name, length = columns.axes[number], columns.lengths[number]
    labels = _axis(result, columns, number).labels
    if labels is None or labels.dtype.kind == "U":
        return Along(name, length, None), np.arange(length)
    values = np.asarray(labels, np.float64)
    order = np.argsort(values, kind="stable")
    along = Along(name, length, values[order])
    gaps = np.diff(values[order])
    if along.is_east and gaps.max() > 360 - gaps.sum() + 1e-6:
        # Across the date line: a map begins after the widest gap, not in the middle of the sea.
        first = int(np.argmax(gaps)) + 1
        order = np.roll(order, -first)
        turned = np.where(np.arange(length) < length - first, 0.0, 360.0)
        along = Along(name, length, values[order] + turned)
    return along, order


def _draw_coasts(axes: Axes, up: Along, right: Along, theme: Theme) -> None:
    """Draw coastlines, if both axes are degrees and coastlines are found."""
    if not (up.is_north and right.is_east):
        return
    from matplotlib.collections import LineCollection

    lines = coastlines(float(right.edges[0]), float(right.edges[-1]))
    if lines:
        axes.add_collection(LineCollection(lines, colors=theme.ink, linewidths=COAST_WIDTH), autolim=False)


def _mark(axis: Any, along: Along, theme: Theme, most: int) -> None:
    """Set the ticks of a matplotlib axis, about ``most``: degrees as text, or numbers and a label.

    There are none without coordinates.
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    if along.values is None:
        axis.set_ticks([])
        return
    if along.in_degrees:
        axis.set_major_locator(MaxNLocator(min(most, 6), steps=ROUND))
        axis.set_major_formatter(FuncFormatter(lambda value, _: in_degrees(value, east=along.is_east)))
        return
    axis.set_major_locator(MaxNLocator(min(most, 6)))
    axis.set_label_text(drawn(along.name), color=theme.muted, fontsize=9)


LATITUDES = ("lat", "latitude", "nav_lat")

LEVELS = (
    *("lev", "level", "levels", "plev", "pressure", "pressure_level", "isobaricinhpa", "model_level"),
    *("depth", "deptht", "height", "altitude", "layer", "z"),
)
"""Names of vertical axes, in lower case."""

ROUND = (1, 1.5, 2, 3, 4.5, 6, 9, 10)
"""Round steps between ticks in degrees, for ``MaxNLocator``: 3 gives 30, 4.5 gives 45."""

WIDE, NARROW = 100.0, 20.0
"""Widths of a map in degrees: coasts are coarse from ``WIDE`` on, and fine up to ``NARROW``."""


def is_vertical(axis: Axis) -> bool:
    """True if an axis has levels, heights or depths: by its name, or by its attributes in CF conventions."""
    said = axis.attributes
    return axis.name.casefold() in LEVELS or said.get("axis") == "Z" or "positive" in said


def in_degrees(value: float, *, east: bool) -> str:
    """A latitude, or a longitude where ``east``, as maps write it.

    >>> in_degrees(-30.0, east=False), in_degrees(190.0, east=True), in_degrees(0.0, east=True)
    ('30°S', '170°W', '0°')
    """
    if east:
        value = (value + 180) % 360 - 180
    value = round(float(value), 6) + 0.0
    ends = ("E", "W") if east else ("N", "S")
    letter = "" if value == 0 or (abs(value) == 180 and east) else ends[value < 0]
    return f"{abs(value):g}°{letter}"


def coastlines(left: float, right: float) -> list[Float64]:
    """Longitudes and latitudes (n, 2) along each coast, in degrees; empty without cartopy or its file.

    ``left`` and ``right`` bound the longitudes of the map; coasts are repeated around the earth.
    """
    path = _coast_file(right - left)
    if path is None:
        return []
    from cartopy.io.shapereader import Reader

    lines: list[Float64] = []
    for geometry in Reader(path).geometries():
        for part in getattr(geometry, "geoms", (geometry,)):
            line: Float64 = np.asarray(part.coords, np.float64)[:, :2]
            for turn in (-360.0, 0.0, 360.0):
                moved = line + np.array([turn, 0.0])
                if moved[:, 0].max() >= left and moved[:, 0].min() <= right:
                    lines.append(moved)
    return lines


def _coast_file(degrees: float) -> Path | None:
    """Path of a shapefile of coasts that cartopy has on this machine; None without.

    Its detail is the nearest to that for a map that is ``degrees`` of longitude wide.
    """
    try:
        import cartopy
        from cartopy.io import Downloader
    except ImportError:
        return None
    details = ["110m", "50m", "10m"]
    fit = 0 if degrees >= WIDE else 1 if degrees > NARROW else 2
    for detail in sorted(details, key=lambda each: abs(details.index(each) - fit)):
        facts: dict[str, Any] = {"resolution": detail, "category": "physical", "name": "coastline"}
        known = Downloader.from_config(("shapefiles", "natural_earth", *facts.values()))
        facts["config"] = cartopy.config
        for path in (known.pre_downloaded_path(facts), known.target_path(facts)):
            if path is not None and path.is_file():
                return Path(path)
    return None
