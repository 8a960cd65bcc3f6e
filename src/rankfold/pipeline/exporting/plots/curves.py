"""Curves that fall: singular values with their errors, inertia of clusters by passes over the matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.exporting.outcome import Outcome
from rankfold.pipeline.exporting.plots.canvas import LIGHT, Theme, label_axes, log_scale, quiet, whole_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Float64 = npt.NDArray[np.float64]

VALUES = ("s", "singular_values")

FEW = 64
"""Largest number of components that are drawn with large points and caps."""


@dataclass(frozen=True, slots=True)
class Scree:
    """Data of a scree plot: singular values by component, with error bars."""

    values: Float64
    errors: Float64
    """Estimated relative error of each singular value, (k,); NaN where there is no estimate."""

    left: int = 150
    right: int = 12
    size: tuple[int, int] = (1478, 500)

    @property
    def alt(self) -> str:
        """Description of the picture in words."""
        return f"{len(self.values)} singular values with their errors"

    def draw(self, axes: Axes, theme: Theme = LIGHT) -> None:
        """Draw the plot into matplotlib axes, which rankfold or a user has made."""
        order, relative = np.arange(1, len(self.values) + 1), self.values / (self.values[0] or 1.0)
        known = np.isfinite(self.errors)
        bars = np.where(known, np.minimum(np.where(known, self.errors, 0), 0.999) * relative, 0.0)
        few = len(self.values) <= FEW
        axes.errorbar(
            order,
            np.maximum(relative, 1e-18),
            bars,
            color=theme.accent,
            ecolor=theme.second,
            marker="o",
            markersize=4 if few else 2,
            linewidth=1.2,
            capsize=2 if few else 0,
        )
        shown = relative[relative > 0]
        log_scale(axes, shown.min(initial=1.0), 1.0)
        label_axes(axes, theme, "component", "singular value / largest")
        axes.xaxis.set_major_locator(whole_numbers(10))
        quiet(axes, theme, grid="y")


def has_singular_values(result: Outcome) -> bool:
    """True if a result has an array of singular values."""
    names = set(result)
    return any(name in names for name in VALUES)


def scree_of(result: Outcome) -> Scree:
    """Scree plot of a result that has singular values."""
    names = set(result)
    values = np.asarray(result[next(name for name in VALUES if name in names)][...], np.float64)
    errors = np.full(len(values), np.nan)
    if "error_estimates" in names:
        errors = np.asarray(result["error_estimates"][...], np.float64)
    return Scree(values, errors)


@dataclass(frozen=True, slots=True)
class Curve:
    """Data of a curve of one value after each pass over the matrix."""

    values: Float64
    y: str
    left: int = 190
    right: int = 12
    size: tuple[int, int] = (1438, 500)

    @property
    def alt(self) -> str:
        """Description of the picture in words."""
        return f"{self.y} of {len(self.values)} passes"

    def draw(self, axes: Axes, theme: Theme = LIGHT) -> None:
        """Draw the plot into matplotlib axes, which rankfold or a user has made."""
        passes = np.arange(1, len(self.values) + 1)
        axes.plot(passes, self.values, color=theme.accent, marker="o", markersize=5, linewidth=1.4)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.7g}")
        axes.xaxis.set_major_locator(whole_numbers(10))
        label_axes(axes, theme, "pass", self.y)
        quiet(axes, theme, grid="y")


def inertia_of(result: Outcome) -> Curve:
    """Curve of the inertia of a k-means result after each pass over the matrix."""
    return Curve(np.asarray(result["inertia"][...], np.float64), "inertia")
