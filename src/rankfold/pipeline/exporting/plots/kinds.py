"""Kinds of plots, the kinds that a result has, and figures of one plot."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rankfold.pipeline.errors import InputError
from rankfold.pipeline.exporting.outcome import names_in
from rankfold.pipeline.exporting.plots.bars import degrees_of, has_graph, line_of, sizes_of
from rankfold.pipeline.exporting.plots.canvas import (
    LIGHT,
    MARK,
    Theme,
    new_figure,
    own_style,
    picture_output,
    place_axes,
    short,
    write_picture,
)
from rankfold.pipeline.exporting.plots.coordinates import Plottable, has_coordinates, points_of, view_of
from rankfold.pipeline.exporting.plots.curves import has_singular_values, inertia_of, scree_of
from rankfold.pipeline.exporting.plots.loadings import factor_name, loadings_of
from rankfold.pipeline.exporting.plots.maps import has_maps, maps_of
from rankfold.pipeline.exporting.plots.patterns import has_patterns, patterns_of
from rankfold.pipeline.exporting.plots.row_colors import colors_of
from rankfold.pipeline.exporting.plots.row_columns import name_of, open_column, words_of
from rankfold.pipeline.exporting.plots.scatter import scatter_of
from rankfold.pipeline.exporting.plots.series import has_series, series_of
from rankfold.pipeline.formats.arrays import is_cells
from rankfold.pipeline.formats.locate import split_location
from rankfold.pipeline.presentation import presentation_of
from rankfold.pipeline.text import suggest_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NARROWEST = 1000
"""Least width of a figure in pixels, so that its title has room."""

BELOW = 100
"""Pixels of a figure below its axes, for ticks and the label of the axis."""


class Drawing(Protocol):
    """Protocol of the data of a plot, already read from a result; it can be drawn several times."""

    @property
    def left(self) -> int:
        """Pixels left of the axes."""

    @property
    def right(self) -> int:
        """Pixels right of the axes."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the axes in pixels."""

    @property
    def alt(self) -> str:
        """Description of the picture in words."""

    def draw(self, axes: Axes, theme: Theme = LIGHT) -> None:
        """Draw the plot into matplotlib axes, which rankfold or a user has made."""


HAS: dict[str, Callable[[Plottable], bool]] = {
    "patterns": has_patterns,
    "scatter": has_coordinates,
    "scree": has_singular_values,
    "loadings": lambda result: factor_name(result) is not None,
    "maps": has_maps,
    "series": has_series,
    "sizes": lambda result: "counts" in set(result),
    "inertia": lambda result: "inertia" in set(result),
    "degrees": has_graph,
}
"""Test whether a result has a plot, by its kind; ``auto`` takes the first, or one that the method prefers."""


def kinds_of(result: Plottable) -> tuple[str, ...]:
    """Kinds of plots that a result has, that of ``auto`` first."""
    kinds = [kind for kind, has in HAS.items() if has(result)]
    first = next((kind for kind in presentation_of(result.attrs["kind"]).plots if kind in kinds), None)
    return tuple(sorted(kinds, key=lambda kind: kind != first))


def plot(
    result: Plottable,
    kind: str = "auto",
    options: Mapping[str, Any] = MappingProxyType({}),
    *,
    ax: Axes | None = None,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> Figure:
    """Draw a result and return the figure; implements ``Result.plot``, whose parameters these are.

    ``options`` are those of the kind of plot, by name: components, color, view and names.
    """
    options = {name: value for name, value in options.items() if value is not None}
    if isinstance(options.get("components"), int | np.integer):
        options["components"] = (options["components"],)
    kind = resolve_kind(result, kind)
    _require_options(kind, options)
    subject = subject_of(result, kind, options)
    output = None if out is None else picture_output(Path(out), overwrite=overwrite, subject=subject)
    drawing = drawing_of(result, kind, **options)
    if ax is None:
        figure = figure_of(drawing, title_of(result, kind))
    else:
        drawing.draw(ax)
        figure = ax.figure.figure
    if output is not None:
        write_picture(figure, output, {"Identifier": subject})
    return figure


def subject_of(result: Plottable, kind: str, options: Mapping[str, Any]) -> str:
    """Text in the metadata of a picture that identifies its content: equal for the same call and result.

    The content of arrays and objects in ``options`` counts; of files, only their path.
    """
    facts, digest = result.attrs, hashlib.blake2b(digest_size=16)
    known = [facts["kind"], facts["request"], facts["input"]["name"], facts["input"].get("fingerprint"), kind]
    digest.update(json.dumps(known, sort_keys=True, default=str).encode())
    for name, value in sorted(options.items()):
        if isinstance(value, Mapping) or is_cells(value):
            value = open_column(value).values[...]
        values = np.asarray(os.fspath(value) if isinstance(value, os.PathLike) else value)
        text = values.dtype.kind in "OSUT"
        values = values.astype(np.float64) if values.dtype.kind in "iu" else values  # 30 is 30.0
        digest.update(f"{name} {values.shape} {values.astype(str).tolist() if text else ''}".encode())
        digest.update(b"" if text else np.ascontiguousarray(values).data)
    return f"{MARK} {digest.hexdigest()}"


def drawing_of(result: Plottable, kind: str = "auto", **options: Any) -> Drawing:
    """Read the data of a plot of a result; see ``Result.plot`` for its options.

    Raises
    ------
    InputError
        The result has no such plot, or the plot has no such option.
    """
    kind = resolve_kind(result, kind)
    given = {name: value for name, value in options.items() if value is not None}
    _require_options(kind, given)
    return DRAW[kind](result, **given)


def _scatter(
    result: Plottable,
    components: Sequence[int] | None = None,
    color: Any = None,
    view: tuple[float, float] | None = None,
) -> Drawing:
    points = points_of(result, components, None if view is None else view_of(view))
    if points.dimensions == 1 and color is None:
        return line_of(points)
    return scatter_of(
        points,
        None if color is None else colors_of(color, points.count, names_in(result, "rows")),
        name_of(color),
    )


def _loadings(result: Plottable, names: Any = None, components: Sequence[int] | None = None) -> Drawing:
    return loadings_of(result, None if names is None else words_of(names), components)


DRAW: dict[str, Callable[..., Drawing]] = {
    "scatter": _scatter,
    "scree": scree_of,
    "loadings": _loadings,
    "maps": maps_of,
    "patterns": patterns_of,
    "series": series_of,
    "sizes": sizes_of,
    "inertia": inertia_of,
    "degrees": degrees_of,
}

OPTIONS = {
    "scatter": ("components", "color", "view"),
    "loadings": ("components", "names"),
    "maps": ("components",),
    "patterns": ("components",),
    "series": ("components",),
}
"""Names of the options of each kind of plot that has any."""


def title_of(result: Plottable, kind: str = "auto") -> str:
    """Title of a figure with a plot of a result, such as ``pca of x: 1,000 rows``."""
    kind, title = resolve_kind(result, kind), str(result.attrs["kind"]).replace("_", " ")
    store, array = split_location(str(result.attrs["input"]["name"]))
    if array not in OF_NEIGHBORS:
        # Without what was selected, and which axes became the rows.
        name = Path(store).name.partition(" [")[0].partition(" by ")[0]
        title += f" of {short(name, MOST_TITLE)}"
    if kind == "scatter":
        return f"{title}: {result.attrs['input']['shape'][0]:,} rows"
    return f"{title}: {TITLES.get(kind, kind)}"


MOST_TITLE = 32
"""Largest number of characters of the name of a matrix in a title."""

TITLES = {"scree": "singular values", "sizes": "rows of clusters"}

OF_NEIGHBORS = ("distances", "graph")
"""Arrays of neighbor results that can be inputs of other results.

A title does not name the matrix of such a result: the matrix whose neighbors these are is not known.
"""


def figure_of(drawing: Drawing, title: str, theme: Theme = LIGHT, least: int = NARROWEST) -> Figure:
    """A figure of matplotlib with one plot and its title, at least ``least`` pixels wide."""
    width, height = drawing.size
    across = max(drawing.left + width + drawing.right, least)
    with own_style():
        figure = new_figure(height + BELOW, title, theme, across)
        axes = place_axes(figure, drawing.left, 20, width, height)
        drawing.draw(axes, theme)
    return figure


def resolve_kind(result: Plottable, kind: str) -> str:
    """The kind of plot to draw: ``kind``, or what suits best for ``auto``.

    ``InputError``, which lists the kinds that the result has, if it has no such plot.
    """
    kinds = kinds_of(result)
    what = f"this result of {result.attrs['kind']}"
    if not kinds:
        raise InputError(f"{what} has nothing to plot: neither coordinates, components, clusters nor a graph")
    if kind == "auto":
        return kinds[0]
    if kind not in kinds:
        hint = suggest_name(kind, kinds) or suggest_name(kind, HAS)
        other = f", not {kind}" if kind in HAS else f", and there is no kind {kind!r}{hint}"
        raise InputError(f"{what} has plots of kind {', '.join(kinds)}{other}")
    return kind


def _require_options(kind: str, options: Iterable[str]) -> None:
    for name in options:
        if name not in OPTIONS.get(kind, ()):
            others = ", ".join(each for each, names in OPTIONS.items() if name in names)
            raise InputError(f"{name} is for plots of kind {others}, and this is {kind}: leave it out")
