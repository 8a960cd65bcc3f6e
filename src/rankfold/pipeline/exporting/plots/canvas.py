"""Figures without global state: sizes in pixels, colors passed, the same bytes for the same figure.

matplotlib is loaded when a figure is made. What a user has set in ``rcParams`` is neither changed
nor used: text, lines and fonts are those of matplotlib's defaults.

Figures as files, which appear once they are complete.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankfold.pipeline.errors import InputError
from rankfold.pipeline.outputs import FileOutput, Foreign, carries, file_output, head_of
from rankfold.pipeline.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


DPI = 200
WIDTH = 1640
"""Pixels across a picture, so that type has one size in all of them."""

TITLE = 92
"""Height of the title of a picture in pixels."""

TITLE_SIZE, TITLE_SIGN = 11.5, 20
"""Largest font size of a title in points, and pixels that a character of it takes, to shrink long titles."""

MARGIN = 12

TICK_ROOM = 44
"""Least distance in pixels from one tick of a vertical scale to the next."""

BAR_WIDTH = 26
"""Width of a color scale in pixels."""

MOST_SIGNS = 24
"""Largest number of characters of a name in a legend or beside an axis."""

NO_GLYPH = r"(?s)Glyph \d+ .*missing from|Matplotlib currently does not"
"""Pattern of matplotlib's warnings for characters that its font lacks."""

SALT = "rankfold"
"""Salt for the names of parts of an SVG, so that the same figure has the same bytes."""

MARK = "rankfold-picture"
"""Mark in the metadata by which pictures made by rankfold are recognized."""


@dataclass(frozen=True, slots=True)
class Theme:
    """Colors of a picture. The accents are safe for color-blind eyes (Okabe and Ito's palette)."""

    paper: str
    ink: str
    muted: str
    rule: str
    accent: str
    second: str
    density: tuple[str, str, str]
    """Colors of density, from a bin of a single point to that of the most, between which shades lie."""


LIGHT = Theme(
    "#ffffff", "#1b1f24", "#59636e", "#e1e5ea", "#0072b2", "#d55e00", ("#b5d3ea", "#0072b2", "#061d33")
)
DARK = Theme(
    "#161b22", "#e6edf3", "#9aa4af", "#30363d", "#56b4e9", "#e69f00", ("#1f4a66", "#56b4e9", "#f4fbff")
)


def new_figure(height: int, title: str, theme: Theme, width: int = WIDTH) -> Figure:
    """Empty figure of ``width`` by ``height`` pixels, with its title in ``TITLE`` more; notebooks show it."""
    figure: Figure = _figure_type()(
        (width / DPI, (TITLE + height) / DPI), dpi=DPI, facecolor=theme.paper, edgecolor=theme.paper
    )
    top = 1 - MARGIN / (TITLE + height)
    size = min(TITLE_SIZE, TITLE_SIZE * (width - 2 * MARGIN) / (TITLE_SIGN * max(1, len(title))))
    figure.text(
        MARGIN / width, top, drawn(title), color=theme.ink, fontsize=size, fontweight="bold", va="top"
    )
    return figure


def place_axes(figure: Figure, left: int, top: int, width: int, height: int) -> Axes:
    """Add axes to a figure; ``left`` and ``top`` are pixels from its left and from below the title.

    ``width`` and ``height`` are those of the axes in pixels.
    """
    across, full = (round(inches * DPI) for inches in figure.get_size_inches())
    return figure.add_axes((left / across, 1 - (TITLE + top + height) / full, width / across, height / full))


def inset(axes: Axes, size: tuple[int, int], left: float, top: float, width: float, height: float) -> Axes:
    """Add axes within others, ``size`` (width, height) pixels large, and return them.

    ``left`` and ``top`` are pixels from the left and top of the others, ``width`` and ``height`` are those of
    the new axes in pixels.
    """
    across, full = size
    place: Axes = axes.inset_axes((left / across, 1 - (top + height) / full, width / across, height / full))
    return place


def color_bar(place: Axes, shown: Any, name: str, theme: Theme, height: float) -> Any:
    """Draw a color scale into the axes ``place``, ``height`` pixels high, with as many ticks as have room.

    ``shown`` is the ``ScalarMappable`` whose colors it shows, ``name`` its title. Returns the ``Colorbar``.
    """
    from matplotlib.ticker import MaxNLocator

    assert place.figure is not None  # noqa: S101  axes are in one
    bar = place.figure.colorbar(shown, cax=place)
    bar.outline.set_visible(False)
    place.yaxis.set_major_locator(MaxNLocator(max(2, int(height // TICK_ROOM)), steps=[1, 2, 2.5, 5, 10]))
    place.tick_params(colors=theme.muted, labelsize=9, length=0, which="both")
    place.yaxis.get_offset_text().set(color=theme.muted, fontsize=9)
    place.set_title(short(name), loc="left", color=theme.muted, fontsize=9, pad=8)
    return bar


def short(name: str, most: int = MOST_SIGNS) -> str:
    """A name, shortened to ``most`` characters, and made printable as by ``drawn``."""
    name = printable(" ".join(name.split()))
    return drawn(name if len(name) <= most else f"{name[: most - 1]}…")


def drawn(text: str) -> str:
    """Text as a picture shows it: printable, with its dollar signs escaped so that they begin no formula."""
    return re.sub(r"(?<!\\)\$", r"\\$", printable(text))


def quiet(axes: Axes, theme: Theme, *, grid: Any = None) -> None:
    """Style axes: no frame except for the line below, and faint grid lines along ``grid``: x, y or both."""
    axes.set_facecolor(theme.paper)
    if grid is not None:
        axes.grid(axis=grid, color=theme.rule, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=theme.muted, labelsize=9, length=0, which="both")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(theme.rule)


def label_axes(axes: Axes, theme: Theme, x: str, y: str) -> None:
    """Label the horizontal axis with the text ``x``, the vertical one with ``y``."""
    axes.set_xlabel(drawn(x), color=theme.muted, fontsize=9)
    axes.set_ylabel(drawn(y), color=theme.muted, fontsize=9)


def log_scale(axes: Axes, least: float, most: float) -> None:
    """Set a logarithmic y scale with plain numbers as ticks.

    If the values, from ``least`` to ``most``, span few decades, there are ticks within a decade too.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    steps = (
        (1.0, 2.0, 3.0, 5.0, 7.0) if most < 10 * least else (1.0, 2.0, 5.0) if most < 1e2 * least else (1.0,)
    )
    axes.yaxis.set_major_locator(LogLocator(10, steps))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")


def whole_numbers(count: int) -> Any:
    """Tick locator for at most about ``count`` ticks at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(count, integer=True, min_n_ticks=1)


@contextlib.contextmanager
def own_style() -> Iterator[None]:
    """Use the default settings of matplotlib within the block, then restore those of the user.

    No warning is given of a character that the font lacks, which is drawn as a box.
    """
    import matplotlib

    defaults: Any = {name: value for name, value in matplotlib.rcParamsDefault.items() if name != "backend"}
    with warnings.catch_warnings(), matplotlib.rc_context({**defaults, "svg.hashsalt": SALT}):
        warnings.filterwarnings(
            "ignore", message=r"(?s)(Glyph \d+ .*missing from|Matplotlib currently does not)"
        )
        yield


def encoded(figure: Figure, kind: str, facts: Mapping[str, str] | None = None) -> bytes:
    """Bytes of a figure as ``png`` or ``svg`` (``kind``), with rankfold's mark, but no time or version.

    ``facts`` are entries of its metadata, by name. The same figure has the same bytes with every patch level
    of one version of matplotlib.
    """
    buffer = io.BytesIO()
    plain = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    more = {name: printable(text) for name, text in (facts or {}).items()}
    with own_style():
        figure.savefig(
            buffer,
            format=kind,
            dpi=DPI,
            facecolor=figure.get_facecolor(),
            metadata={**plain, "Identifier": MARK, **more},
        )
    return buffer.getvalue()


@functools.cache
def _figure_type() -> Any:
    """Type of figures that notebooks show; matplotlib alone shows only figures of pyplot there."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class InlineFigure(Figure):
        """A figure that is unknown to pyplot, and displays itself in notebooks."""

        def __init__(self, *arguments: Any, **others: Any) -> None:
            super().__init__(*arguments, **others)
            FigureCanvasAgg(self)

        def _repr_png_(self) -> bytes:
            return encoded(self, "png")

    return InlineFigure


TYPES = (".png", ".svg")

OURS = carries(MARK)
"""Function that returns None for a path of a picture that rankfold made, else a message that it is none."""


def picture_output(
    path: Path, *, overwrite: bool, foreign: Foreign = OURS, subject: str | None = None
) -> FileOutput:
    """Output file for a picture at ``path``, checked before anything is read.

    A picture that carries the same ``subject``, the text of ``subject_of``, is replaced; another one for
    which ``foreign`` returns None, as one of rankfold, only with ``overwrite``; and nothing else ever.

    Raises
    ------
    InputError
        The suffix is none of ``TYPES``.
    OutputError
        The file exists, or its folder does not.
    """
    if path.suffix.lower() not in TYPES:
        raise InputError(f"{path} is no picture that can be written: give a name that ends in .png or .svg")
    if subject is not None:
        with contextlib.suppress(OSError):
            overwrite = overwrite or subject.encode() in head_of(path)
    return file_output(path, foreign, replaces=overwrite)


def write_picture(figure: Figure, output: FileOutput, facts: Mapping[str, str] | None = None) -> Path:
    """Write a figure in the format of the suffix of the file, and return its path.

    ``facts`` are entries of the metadata of the picture, by name.
    """
    return output.write(encoded(figure, output.path.suffix.lower().removeprefix("."), facts))
