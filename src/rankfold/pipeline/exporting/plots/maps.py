"""Components as images, where columns of the matrix are places of two axes: pixels, or a grid on the earth.

Each has colors of its own, from its largest weight down; columns that were left out, such as land, are gray.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.exporting.fields import Side, sides_of
from rankfold.pipeline.exporting.outcome import Outcome
from rankfold.pipeline.exporting.plots.canvas import LIGHT, Theme, drawn
from rankfold.pipeline.exporting.plots.loadings import factor_name, leading, shades_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Float64 = npt.NDArray[np.float64]

NAMES = {"components": "PC", "Vt": "SV", "H": "NMF"}
"""What components are called above their images."""

ACROSS = 4
SIDE = 340
"""Pixels across an image, or upwards where it is higher than wide."""

GAP, NAME = 24, 44
"""Pixels between images, and for the name above each."""


@dataclass(frozen=True, slots=True)
class Maps:
    """What such a picture shows."""

    images: Float64
    """(components, height, width), NaN where there is no column."""

    names: str
    left: int = 12
    right: int = 12

    @property
    def tile(self) -> tuple[int, int]:
        """Pixels of an image."""
        height, width = self.images.shape[1:]
        longest = max(height, width)
        return max(40, round(SIDE * width / longest)), max(40, round(SIDE * height / longest))

    @property
    def size(self) -> tuple[int, int]:
        """Pixels of all of them."""
        width, height = self.tile
        across = min(ACROSS, len(self.images))
        down = -(-len(self.images) // ACROSS)
        return across * (width + GAP) - GAP, down * (height + NAME)

    @property
    def alt(self) -> str:
        """The picture in words."""
        return f"The first {len(self.images)} components as images"

    def draw(self, axes: Axes, theme: Theme = LIGHT) -> None:
        """Into axes of their own, or of a user."""
        (width, height), (right, bottom) = self.tile, self.size
        axes.set_axis_off()
        for number, image in enumerate(self.images):
            down, across = divmod(number, ACROSS)
            x, y = across * (width + GAP), down * (height + NAME) + NAME
            colors = shades_of(image).to_rgba(np.nan_to_num(image))
            colors[np.isnan(image)] = [*(int(theme.rule[i : i + 2], 16) / 255 for i in (1, 3, 5)), 1]
            axes.imshow(colors, extent=(x, x + width, y + height, y), interpolation="nearest", aspect="auto")
            axes.text(
                x, y - 8, drawn(f"{self.names}{number + 1}"), color=theme.muted, fontsize=8, va="bottom"
            )
        axes.set_xlim(0, right)
        axes.set_ylim(bottom, 0)
        axes.set_aspect("equal")


def has_maps(result: Outcome) -> bool:
    """Whether a result has components, and columns of two axes that are longer than 1."""
    factor = factor_name(result)
    return factor is not None and result[factor].dtype.kind != "c" and len(_columns(result).lengths) == 2


def maps_of(result: Outcome) -> Maps:
    """The first components of a result as images."""
    weights, _ = leading(result)
    columns = _columns(result)
    whole = np.moveaxis(Side(columns.axes, columns.lengths, columns.places).unstack(weights.T), -1, 0)
    step = max(1, -(-max(whole.shape[1:]) // SIDE))
    return Maps(whole[:, ::step, ::step], NAMES[str(factor_name(result))])


def _columns(result: Outcome) -> Side:
    """The axes of the columns that are longer than 1."""
    _, columns = sides_of(result, None)
    axes = [pair for pair in zip(columns.axes, columns.lengths, strict=True) if pair[1] > 1]
    return Side(tuple(name for name, _ in axes), tuple(length for _, length in axes), columns.places)
