"""Rows as points: markers if they are few, else a density of any number of them, shaded or colored.

A bin of one point is visible; shades are logarithmic, so dense bins hide nothing. Labels color a bin by the
mean of its points' colors, values by their mean. In an SVG the density is an image, text and axes are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import InputError
from rankfold.pipeline.exporting.plots.canvas import (
    BAR_WIDTH,
    LIGHT,
    Theme,
    color_bar,
    drawn,
    inset,
    label_axes,
    quiet,
    short,
)
from rankfold.pipeline.exporting.plots.coordinates import Points
from rankfold.pipeline.exporting.plots.density import Extent, Grid, count_points, extent_of
from rankfold.pipeline.exporting.plots.row_colors import MOST_HUES, NO_LABEL, Labels, Values, hues, rgb

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Float64 = npt.NDArray[np.float64]

MOST_MARKERS = 20_000
"""Largest number of points drawn as markers; more are counted on a grid."""

MOST_VECTORS = 2_000
"""Largest number of markers drawn as vectors in an SVG; more are an image."""

SIDE = 1160
"""Pixels of the longer side of a scatter plot."""

FLATTEST = 0.4
"""Least ratio of the shorter to the longer side of axes, in pixels, that have the same scale along both."""

BIN_PIXELS = {200_000: 4, 2_000_000: 3}
"""Width of a bin in pixels, by the largest number of points for which it is used; 2 for more points."""

SIGN_PIXELS, NAME_PIXELS = 17, 34
"""Approximate width in pixels of a character of a name among the points, and height in pixels of a name."""

FEW_ROWS = 0.02
"""Share of the rows below which the name of a label is drawn above its points, not among them."""

STEPS = sorted(range(-3, 4), key=abs)
"""Numbers of lines of text by which a name is moved upwards to avoid others, in the order of trial."""

MOST_SIGNS_INSIDE = 16
"""Largest number of characters of a label among the points."""

ENTRY_PIXELS = 38
"""Pixels from one entry of a legend up to the next."""

FAINTEST = 0.4
"""Opacity of a bin of one point that has a color."""

VALUE_COLORS = ("viridis", 0.93)
"""Color map of values, and the end of its used part: brighter colors are hardly visible on white."""


@dataclass(frozen=True, slots=True)
class Legend:
    """Legend of labels: those with a color of their own, and one entry for all others."""

    names: tuple[str, ...]
    colors: tuple[str, ...]
    palette: npt.NDArray[np.int64]
    """Red, green and blue of each label, (labels + 1, 3), 0 to 255; the last is of rows without a label."""

    labels: npt.NDArray[np.int64]
    """Codes of the labels with a color of their own, the most frequent first."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """Data of a scatter plot: markers, or counts on a grid, and what colors them."""

    points: Points
    extent: Extent
    grid: Grid
    positions: Float64 | None
    """Coordinates of markers on the paper, (2, n); None if there are too many, so that ``grid`` is drawn."""

    color: Labels | Values | None
    color_name: str
    legend: Legend

    @property
    def left(self) -> int:
        """Pixels left of the axes."""
        return 130

    @property
    def right(self) -> int:
        """Pixels right of the axes."""
        least = 40 if self.points.view is None else 260
        if isinstance(self.color, Labels):
            text = 14 * max(map(len, (*self.legend.names, short(self.color_name))))
            return max(least, 110 + text + (105 + text) * (self.legend_columns - 1))
        return least if self.color is None and self.positions is not None else max(least, 230)

    @property
    def legend_columns(self) -> int:
        """Number of columns of the legend, each at most as high as the axes."""
        return -(-len(self.legend.names) // max(1, self.size[1] // ENTRY_PIXELS - 1))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the axes in pixels."""
        return _pixels(self.points, self.extent)

    @property
    def alt(self) -> str:
        """Description of the picture in words."""
        colored = f", colored by {self.color_name}" if self.color is not None else ""
        return f"{self.points.count:,} rows by {' and '.join(self.points.names)}{colored}"

    def draw(self, axes: Axes, theme: Theme = LIGHT) -> None:
        """Draw the plot into matplotlib axes, which rankfold or a user has made."""
        quiet(axes, theme)
        if self.points.view is None:
            label_axes(axes, theme, *self.points.names)
        (left, bottom), (right, top) = self.extent.low, self.extent.high
        shown = self._raster(axes, theme) if self.positions is None else self._markers(axes, theme)
        axes.set_xlim(left, right)
        axes.set_ylim(bottom, top)
        if self.points.same_scale:
            axes.set_aspect("equal", adjustable="box")
        if self.points.view is not None:
            _draw_axes_of_space(axes, self.points, self.size, theme)
        if isinstance(self.color, Labels):
            _draw_legend(axes, self.legend, self.color_name, self.legend_columns, theme)
            self._draw_names(axes, self.color, theme)
        elif shown is not None:
            words = self.color_name if self.color is not None else "rows in a bin"
            _draw_scale(axes, self.size, shown, words, theme, counts=self.color is None)

    def _markers(self, axes: Axes, theme: Theme) -> Any:
        assert self.positions is not None  # noqa: S101
        count = self.positions.shape[1]
        # Rows are often sorted by their color, and the last would hide the others.
        order = np.random.default_rng(0).permutation(count)
        colors: Any = theme.accent
        shown = None
        if isinstance(self.color, Labels):
            colors = self.legend.palette[self.color.read(0, count)][order] / 255
        elif isinstance(self.color, Values):
            values = self.color.read(0, count)[order]
            order = np.concatenate([order[~np.isfinite(values)], order[np.isfinite(values)]])
            values = self.color.read(0, count)[order]
            shown = _scale(self.color)
            colors = np.where(
                np.isfinite(values)[:, None], shown.to_rgba(np.nan_to_num(values)), _rgba(NO_LABEL)
            )
        axes.scatter(
            self.positions[0, order],
            self.positions[1, order],
            s=float(np.clip(12_000 / count, 2.5, 40)),
            c=colors,
            alpha=0.85 if count > 50 else 1.0,
            linewidths=0,
            rasterized=count > MOST_VECTORS,
        )
        return shown

    def _raster(self, axes: Axes, theme: Theme) -> Any:
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import LinearSegmentedColormap, LogNorm

        grid = self.grid
        most = int(grid.counts.max())
        if isinstance(self.color, Labels):
            assert grid.colors is not None  # noqa: S101
            shown = None
            image = np.ones((*grid.counts.shape, 4))
            image[..., :3] = grid.colors / np.maximum(grid.counts, 1)[..., None] / 255
            depth = np.log1p(grid.counts - 1.0, where=grid.counts > 0, out=np.zeros(grid.counts.shape))
            image[..., 3] = FAINTEST + (1 - FAINTEST) * depth / max(1e-9, np.log(most))
        elif isinstance(self.color, Values):
            assert grid.values is not None and grid.value_counts is not None  # noqa: S101
            shown = _scale(self.color)
            image = shown.to_rgba(grid.values / np.maximum(grid.value_counts, 1))
            image[grid.value_counts == 0] = _rgba(NO_LABEL)
        else:
            shades = LinearSegmentedColormap.from_list("density", theme.density)
            shown = ScalarMappable(LogNorm(1, max(most, 2)), shades)
            image = shown.to_rgba(np.maximum(grid.counts, 1))
        image[grid.counts == 0] = 0
        (left, bottom), (right, top) = grid.extent.low, grid.extent.high
        pixels = np.round(np.swapaxes(image, 0, 1) * 255).astype(np.uint8)
        axes.imshow(
            pixels,
            extent=(left, right, bottom, top),
            origin="lower",
            interpolation="nearest",
            aspect="auto",
            zorder=2,
        )
        return shown

    def _draw_names(self, axes: Axes, labels: Labels, theme: Theme) -> None:
        """Write labels where most of their points lie, so that readers need not rely on colors alone.

        Labels whose points overlap with those of others are in the legend alone.
        """
        from matplotlib.patheffects import withStroke

        sides = np.array(self.size)
        taken: list[Float64] = []
        for label, place in self.grid.places.items():
            text = short(labels.names[label], MOST_SIGNS_INSIDE)
            box = np.array([SIGN_PIXELS * len(text), NAME_PIXELS])
            at = (np.array(place) - self.extent.low) / self.extent.size * sides
            at = np.clip(at, box / 2, sides - box / 2)
            # The name of a label of few rows is above them, since it would hide them.
            first = int(labels.counts[label] < FEW_ROWS * self.points.count)
            tries = [at + np.array([0, NAME_PIXELS * (first + step)]) for step in STEPS]
            free = (each for each in tries if not any(_overlap(each, box, other) for other in taken))
            at = next(free, None)
            if at is None:  # the legend has it
                continue
            taken.append(np.concatenate([at, box]))
            axes.annotate(
                text,
                at / sides,
                xycoords="axes fraction",
                color=theme.ink,
                fontsize=8.5,
                ha="center",
                va="center",
                path_effects=[withStroke(linewidth=2.5, foreground=theme.paper)],
            )


def _overlap(at: Float64, box: Float64, other: Float64) -> bool:
    return bool((np.abs(at - other[:2]) < (box + other[2:]) / 2).all())


def scatter_of(points: Points, color: Labels | Values | None, color_name: str = "") -> Scatter:
    """Read the data of a scatter plot; ``color`` are labels or values of its points, if any.

    Coordinates are read twice, three times if they are drawn as markers. ``color_name`` is the title of the
    legend or color scale.

    Raises
    ------
    NonFiniteError
        A coordinate is NaN or Inf.
    """
    if points.dimensions < 2 and color is not None:
        raise InputError("color is for two or three components, and one is drawn: name more, or leave it out")
    extent, legend = extent_of(points), _legend_of(color)
    pixels = next((size for most, size in BIN_PIXELS.items() if points.count <= most), 2)
    width, height = (max(1, side // pixels) for side in _pixels(points, extent))
    grid = count_points(points, extent, (width, height), color, legend.palette, legend.labels)
    positions = None
    if points.count <= MOST_MARKERS:
        positions = np.concatenate([block for _, block in points.blocks()], axis=1)
    return Scatter(points, extent, grid, positions, color, color_name, legend)


def _pixels(points: Points, extent: Extent) -> tuple[int, int]:
    """Width and height of the axes of a plot in pixels: of fixed ratio, unless both have the same scale.

    Then they are in proportion to the extent, as far as ``FLATTEST`` permits.
    """
    if not points.same_scale:
        return SIDE, SIDE * 3 // 4
    width, height = extent.size / extent.size.max()
    return round(SIDE * max(width, FLATTEST)), round(SIDE * max(height, FLATTEST))


def _legend_of(color: Labels | Values | None) -> Legend:
    """Legend in which the most frequent labels have a color each, and the others share one."""
    if not isinstance(color, Labels):
        return Legend((), (), np.zeros((1, 3), np.int64), np.zeros(0, np.int64))
    counts = color.counts[:-1]
    chosen = np.sort(np.argsort(-counts, kind="stable")[:MOST_HUES])
    chosen = chosen[counts[chosen] > 0]
    palette = np.tile(rgb(NO_LABEL), (len(counts) + 1, 1))
    names, colors = [], []
    for label, hue in zip(chosen, hues(len(chosen)), strict=True):
        palette[label] = rgb(hue)
        names.append(short(color.names[label]))
        colors.append(hue)
    others = int((counts > 0).sum()) - len(chosen)
    rest = [f"{others} others"] * (others > 0) + ["without a label"] * bool(color.counts[-1])
    if rest:
        names.append(", ".join(rest))
        colors.append(NO_LABEL)
    order = chosen[np.argsort(-counts[chosen], kind="stable")]
    return Legend(tuple(names), tuple(colors), palette, order)


def _rgba(color: str) -> Float64:
    return np.append(rgb(color) / 255, 1.0)


# Beside the axes --------------------------------------------------------------------------------------


def _scale(color: Values) -> Any:
    """``ScalarMappable`` with the color map of values, from the lowest to the highest."""
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    high = color.high if color.high > color.low else color.low + max(1.0, abs(color.low) * 1e-3)
    name, end = VALUE_COLORS
    shades = ListedColormap(matplotlib.colormaps[name](np.linspace(0, end, 256)))
    return ScalarMappable(Normalize(color.low, high), shades)


def _draw_legend(axes: Axes, legend: Legend, name: str, columns: int, theme: Theme) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], linestyle="none", marker="o", markersize=7, markeredgewidth=0, color=color)
        for color in legend.colors
    ]
    box = axes.legend(
        handles,
        ["label"] * len(handles),
        title=short(name),
        ncols=columns,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        frameon=False,
        fontsize=9,
        labelcolor=theme.ink,
        handletextpad=0.2,
        alignment="left",
    )
    for text, label in zip(box.get_texts(), legend.names, strict=True):
        text.set_text(label)  # with those that begin with an underscore, which matplotlib would leave out
    box.get_title().set(color=theme.muted, fontsize=9)


def _draw_scale(
    axes: Axes, size: tuple[int, int], shown: Any, name: str, theme: Theme, *, counts: bool
) -> None:
    width, height = size
    place = inset(axes, size, 1.04 * width, 0.3 * height, BAR_WIDTH, 0.4 * height)
    bar = color_bar(place, shown, name, theme, 0.4 * height)
    if counts:
        _, high = shown.get_clim()
        steps = (1, 2, 5) if high < 50 else (1,)
        ticks = [tick for power in range(19) for step in steps if (tick := step * 10**power) <= high]
        bar.set_ticks(ticks, labels=[f"{tick:,}" for tick in ticks])
        bar.minorticks_off()


def _draw_axes_of_space(axes: Axes, points: Points, size: tuple[int, int], theme: Theme) -> None:
    """Draw the directions of the three coordinates, with their names, beside the lower right corner of axes.

    ``size`` is that of the axes in pixels, (width, height).
    """
    assert points.view is not None  # noqa: S101
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines["bottom"].set_visible(False)
    width, height = size
    place = axes.inset_axes((1 + 10 / width, 0.0, 230 / width, 230 / height))
    place.set_axis_off()
    place.set_xlim(-1.4, 1.4)
    place.set_ylim(-1.4, 1.4)
    place.set_aspect("equal")
    for direction, name in zip(points.view.axes().T, points.names, strict=True):
        place.annotate(
            drawn(name.partition(" (")[0]),
            xy=(0, 0),
            xytext=tuple(1.1 * direction),
            arrowprops={"arrowstyle": "<-", "color": theme.muted, "shrinkA": 0, "shrinkB": 0, "linewidth": 1},
            color=theme.muted,
            fontsize=8.5,
            ha="center",
            va="center",
        )
