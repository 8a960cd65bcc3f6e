"""What falls from pass to pass: the inertia of clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.exporting.outcome import Outcome
from rankfold.pipeline.exporting.plots.canvas import LIGHT, Theme, label_axes, quiet, whole_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Curve:
    """A number after each pass."""

    values: npt.NDArray[np.float64]
    y: str
    left: int = 190
    right: int = 12
    size: tuple[int, int] = (1438, 500)

    @property
    def alt(self) -> str:
        """The picture in words."""
        return f"{self.y} of {len(self.values)} passes"

    def draw(self, axes: Axes, theme: Theme = LIGHT) -> None:
        """Into axes of their own, or of a user."""
        passes = np.arange(1, len(self.values) + 1)
        axes.plot(passes, self.values, color=theme.accent, marker="o", markersize=5, linewidth=1.4)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.7g}")
        axes.xaxis.set_major_locator(whole_numbers(10))
        label_axes(axes, theme, "pass", self.y)
        quiet(axes, theme, grid="y")


def inertia_of(result: Outcome) -> Curve:
    """Of a result of k-means."""
    return Curve(np.asarray(result["inertia"][...], np.float64), "inertia")
