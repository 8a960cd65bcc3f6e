"""One self-contained page: numbers, pictures drawn for light and dark screens, how to repeat it.

Pictures go into the page as data, so it can be mailed, archived and opened without a network.
Nothing here touches the state of matplotlib: figures are objects, colours and sizes are passed.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.checkpoint import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Draw = Callable[["Theme"], Figure]

Float64 = npt.NDArray[np.float64]

DPI = 200
WIDTH = 1600
"""Pixels across a picture, so that type has one size in all of them."""


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of a picture. The accents are told apart by all eyes (Okabe and Ito's palette)."""

    paper: str
    ink: str
    muted: str
    rule: str
    accent: str
    second: str


LIGHT = Theme("#ffffff", "#1b1f24", "#59636e", "#e1e5ea", "#0072b2", "#d55e00")
DARK = Theme("#161b22", "#e6edf3", "#9aa4af", "#30363d", "#56b4e9", "#e69f00")


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of the table of numbers."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure of the page, as PNG."""

    title: str
    caption: str
    alt: str
    light: bytes
    dark: bytes
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that the template shows."""

    title: str
    lead: str
    headline: Sequence[Fact]
    """The few numbers that matter most."""

    facts: Sequence[Fact]
    remarks: Sequence[str]
    pictures: Sequence[Picture]
    command: str
    script: str
    origin: str
    """Version, time and machine."""


def write_page(page: Page, path: Path) -> None:
    """Render a page; it appears under its name when it is whole."""
    text = render(page)
    with atomic_file(path, durable=False) as file:
        file.write(text.encode())


def render(page: Page) -> str:
    """The page as HTML."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["data_uri"] = _data_uri
    template = files("rankfold.workflows").joinpath("report.html").read_text(encoding="utf-8")
    return environment.from_string(template).render(page=page)


def plain_text(facts: Sequence[Fact]) -> str:
    """Facts in aligned columns, for a terminal."""
    labels = max(len(fact.label) for fact in facts)
    values = max((len(fact.value) for fact in facts if fact.note), default=0)
    lines = [f"{fact.label:<{labels}}  {fact.value:<{values}}  {fact.note}".rstrip() for fact in facts]
    return "\n".join(lines)


def take_picture(path: Path, draw: Draw, *, title: str, caption: str, alt: str) -> Picture:
    """Draw a figure for light and for dark screens; the light one is also kept as a file."""
    light, dark = (_png(draw(theme), theme) for theme in (LIGHT, DARK))
    with atomic_file(path, durable=False) as file:
        file.write(light)
    width, height = (int.from_bytes(light[at : at + 4], "big") for at in (16, 20))  # of the PNG header
    return Picture(title, caption, alt, light, dark, width, height)


def new_figure(height: int, theme: Theme) -> Figure:
    """An empty figure of ``WIDTH`` by ``height`` pixels."""
    # Loaded when a picture is drawn: before, it would only raise the baseline of the reduction.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure((WIDTH / DPI, height / DPI), dpi=DPI, facecolor=theme.paper)
    FigureCanvasAgg(figure)
    return figure


def pixel_axes(figure: Figure, left: int, top: int, width: int, height: int) -> Axes:
    """Axes at a place in pixels from the top left corner."""
    _, full = figure.canvas.get_width_height()
    axes = figure.add_axes((left / WIDTH, 1 - (top + height) / full, width / WIDTH, height / full))
    axes.set_axis_off()
    return axes


def scree(ratio: Float64, errors: Float64, theme: Theme) -> Figure:
    """Variance that each component explains, and what the leading ones capture together.

    ``errors`` are relative errors of singular values, so those of ``ratio`` are twice as large.
    """
    figure = new_figure(1040, theme)
    upper = figure.add_axes((0.115, 0.47, 0.86, 0.44))
    lower = figure.add_axes((0.115, 0.125, 0.86, 0.27), sharex=upper)
    order = np.arange(1, len(ratio) + 1)
    bars = 2 * errors * ratio
    upper.errorbar(
        order, 100 * ratio, 100 * np.where(np.isfinite(bars), bars, 0.0), color=theme.accent,
        ecolor=theme.second, marker="o", markersize=4, linewidth=1.2, elinewidth=1.2, capsize=2,
    )
    upper.set_yscale("log")
    upper.set_ylabel("of one component", color=theme.muted, fontsize=8)
    upper.tick_params(labelbottom=False)
    together = 100 * np.cumsum(ratio)
    lower.plot(order, together, color=theme.accent, marker="o", markersize=4, linewidth=1.2)
    lower.set_ylabel("of all so far", color=theme.muted, fontsize=8)
    lower.set_xlabel("component", color=theme.muted, fontsize=8)
    lower.set_xticks([1, *range(4, len(ratio) + 1, 4)])
    for k in sorted({1, len(ratio) // 8, len(ratio) // 4, len(ratio)} - {0}):
        lower.annotate(
            f"{together[k - 1]:.1f} %", (k, together[k - 1]), (0, -13), textcoords="offset points",
            ha="center" if k > 1 else "left", color=theme.ink, fontsize=8,
        )
    for axes in (upper, lower):
        _calm(axes, theme)
    return figure


def _calm(axes: Axes, theme: Theme) -> None:
    """Percent on the left, faint horizontal rules, no box."""
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    axes.set_facecolor(theme.paper)
    axes.grid(axis="y", color=theme.rule, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=theme.muted, labelsize=8, length=0, which="both")
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(theme.rule)


def _png(figure: Figure, theme: Theme) -> bytes:
    buffer = io.BytesIO()
    # Without a name of the software the same figure is the same bytes on every version's patch level.
    figure.savefig(buffer, format="png", facecolor=theme.paper, metadata={"Software": None})
    return buffer.getvalue()


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
