"""One self-contained HTML page: numbers, pictures drawn for light and dark screens, how to repeat the run.

Pictures are embedded in the page as data, so it can be mailed, archived and opened without a network.
See ``plots.canvas`` for what figures share.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.exporting.plots.canvas import (
    DARK,
    LIGHT,
    MARGIN,
    WIDTH,
    Theme,
    encoded,
    new_figure,
    place_axes,
    quiet,
)
from rankfold.pipeline.outputs import FileOutput, carries, file_output, head_of
from rankfold.pipeline.storage.run_directory import PAGE_MARK
from rankfold.pipeline.text import Lines, harmless, json_text, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Draw = Callable[[Theme], Figure]

Float64 = npt.NDArray[np.float64]

GAP = 24
"""Least horizontal distance between tiles of a grid, in pixels."""

NARROW = WIDTH // 2
"""Width of a picture for a narrow screen, in pixels."""

OURS = carries(PAGE_MARK)
"""Function of a path: None for a page that rankfold made, else a message that it is none."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of the table of facts: a label and a value."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class ImageTile:
    """A small square image with labels below it."""

    image: Float64
    """Colors (side, side, 3) in [0, 1]."""

    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure of the page, as PNG files for light and for dark screens, with its size in pixels."""

    title: str
    caption: str
    alt: str
    light: bytes
    dark: bytes
    width: int
    height: int
    narrow: Picture | None = None
    """The same picture for a narrow screen, with letters of the same size."""

    @property
    def share(self) -> float:
        """Percentage of the page's width that it takes, so that letters have one size in all pictures."""
        return round(100 * self.width / WIDTH, 1)


@dataclass(frozen=True, slots=True)
class Page:
    """Content of a page, which its template shows."""

    title: str
    lead: str
    headline: Sequence[Fact]
    """The few facts that matter most."""

    facts: Sequence[Fact]
    remarks: Sequence[str]
    pictures: Sequence[Picture]
    command: str
    script: str
    origin: str
    """Version of rankfold, time and machine."""


def page_output(path: Path, subject: str, *, overwrite: bool) -> FileOutput:
    """Output file of a page, checked before anything is read.

    ``subject`` is a text that identifies what the page is about. A page of the same subject is replaced.
    Another page of rankfold is replaced with ``overwrite``, and nothing else ever.

    Raises
    ------
    OutputError
        The name belongs to something else, or its folder is missing.
    """
    same = f'content="rankfold {_digest(subject)}"'.encode()
    with contextlib.suppress(OSError):
        overwrite = overwrite or same in head_of(path)
    return file_output(path, OURS, replaces=overwrite)


def write_page(page: Any, output: FileOutput, subject: str, template: str = "demo.html") -> None:
    """Render a page by a template, and write it to ``output``, where it appears when it is complete.

    ``page`` and ``subject`` are as for ``render``.
    """
    output.write(render(page, subject, template).encode())


def _digest(subject: str) -> str:
    return hashlib.blake2b(subject.encode(), digest_size=8).hexdigest()


def render(page: Any, subject: str, template: str = "demo.html") -> str:
    """Render a page as HTML; templates lie next to this file.

    ``page`` is a ``Page`` or what another template shows; of ``subject`` the HTML holds a digest.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(
            lambda name: files("rankfold.workflows.reports").joinpath(name).read_text(encoding="utf-8")
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown,
    )
    environment.filters["data_uri"] = _data_uri
    environment.filters["to_json"] = _json
    return harmless(environment.get_template(template).render(page=page, subject=_digest(subject)))


def _shown(value: Any) -> Any:
    """Value in the form that a template shows: text as one printable line; markup,
    ``Lines`` and numbers unchanged.
    """
    from markupsafe import Markup

    return value if isinstance(value, Markup | Lines | int | float) else printable(str(value))


def _json(value: Any) -> Any:
    """Value as JSON that cannot end the HTML element that holds it."""
    from jinja2.utils import htmlsafe_json_dumps

    return htmlsafe_json_dumps(value, dumps=json_text)


def plain_text(facts: Sequence[Fact]) -> Lines:
    """Facts in aligned columns, for a terminal."""
    labels = max(len(fact.label) for fact in facts)
    values = max((len(fact.value) for fact in facts if fact.note), default=0)
    lines = [f"{fact.label:<{labels}}  {fact.value:<{values}}  {fact.note}".rstrip() for fact in facts]
    return Lines(*lines)


def take_picture(output: FileOutput, draw: Draw, *, title: str, caption: str, alt: str) -> Picture:
    """Draw a figure for the page by ``draw``, a function of the theme.

    Its version for light screens is also written to ``output``.
    """
    picture = draw_picture(draw, title=title, caption=caption, alt=alt)
    output.write(picture.light)
    return picture


def draw_picture(draw: Draw, *, title: str, caption: str, alt: str, narrow: Draw | None = None) -> Picture:
    """Draw a figure for light and for dark screens by ``draw``, a function of the theme.

    ``narrow`` is a function that draws it for phones.
    """
    small = None if narrow is None else draw_picture(narrow, title=title, caption=caption, alt=alt)
    light, dark = (encoded(draw(theme), "png") for theme in (LIGHT, DARK))
    width, height = (int.from_bytes(light[at : at + 4], "big") for at in (16, 20))  # in the PNG header
    return Picture(title, caption, alt, light, dark, width, height, small)


def tile_grid(tiles: Sequence[ImageTile], across: int, title: str, theme: Theme) -> Figure:
    """Figure of square images of one size with labels below, ``across`` of them in a row.

    Each pixel of an image covers a whole number of screen pixels.
    """
    label = 64
    side = len(tiles[0].image)
    size = max(1, (WIDTH - 2 * MARGIN - GAP * (across - 1)) // across // side) * side
    gap = (WIDTH - 2 * MARGIN - across * size) // max(1, across - 1)
    figure = new_figure(-(-len(tiles) // across) * (size + label), title, theme)
    for i, tile in enumerate(tiles):
        axes = place_axes(
            figure, MARGIN + i % across * (size + gap), i // across * (size + label), size, size
        )
        axes.set_axis_off()
        axes.imshow(tile.image, interpolation="nearest", aspect="auto")
        for at, text, side_of in ((0, tile.left, "left"), (1, tile.right, "right")):
            axes.text(
                at,
                -6 / size,
                text,
                transform=axes.transAxes,
                va="top",
                ha=side_of,
                fontsize=8.5,
                color=theme.muted if at else theme.ink,
            )
    return figure


def scree(ratio: Float64, errors: Float64, title: str, theme: Theme) -> Figure:
    """Figure of the share of the variance that each component explains, and of the cumulative sum.

    ``ratio`` (k,) are these shares. ``errors`` (k,) are relative errors of singular values, so those of
    ``ratio`` are twice as large.
    """
    figure = new_figure(1000, title, theme)
    left, across = 150, WIDTH - 150 - MARGIN
    upper, lower = place_axes(figure, left, 50, across, 430), place_axes(figure, left, 600, across, 290)
    order, bars, together = np.arange(1, len(ratio) + 1), 200 * errors * ratio, 100 * np.cumsum(ratio)
    upper.errorbar(
        order,
        100 * ratio,
        np.where(np.isfinite(bars), bars, 0.0),
        color=theme.accent,
        ecolor=theme.second,
        marker="o",
        markersize=4,
        linewidth=1.2,
        elinewidth=1.2,
        capsize=2,
    )
    upper.set_yscale("log")
    lower.plot(order, together, color=theme.accent, marker="o", markersize=4, linewidth=1.2)
    lower.set_ylim(min(90.0, together[0] - 6), 101.5)
    lower.set_xlabel("component", color=theme.muted, fontsize=9)
    for k in sorted({1, len(ratio) // 8, len(ratio) // 4, len(ratio) // 2, len(ratio)} - {0}):
        lower.annotate(
            f"{together[k - 1]:.1f} %",
            (k, together[k - 1]),
            (0, -14),
            textcoords="offset points",
            color=theme.ink,
            fontsize=8.5,
            ha="center",
        )
    for axes, name in ((upper, "of each component, logarithmic"), (lower, "of all components up to it")):
        _calm(axes, name, theme)
        axes.set_xticks([1, *range(4, len(ratio) + 1, 4)])
    return figure


def _calm(axes: Axes, name: str, theme: Theme) -> None:
    """Style axes: the title ``name`` above, percent on the left, faint horizontal rules, no box."""
    axes.set_title(name, loc="left", color=theme.muted, fontsize=9, pad=8)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    quiet(axes, theme, grid="y")


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
