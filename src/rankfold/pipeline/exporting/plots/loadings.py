"""Heat map of the weights of columns in components: of all columns, or of those of largest weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.names import Names
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.exporting.outcome import Outcome, names_in
from rankfold.pipeline.exporting.plots.canvas import (
    BAR_WIDTH,
    LIGHT,
    Theme,
    color_bar,
    inset,
    label_axes,
    quiet,
    short,
)
from rankfold.pipeline.exporting.plots.coordinates import MOST_COMPONENTS, numbers_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

FACTORS = {"components": "principal component", "Vt": "singular vector", "H": "nonnegative component"}
"""What a component is called, by the name of the array of components, (components, columns)."""

MOST_COLUMNS = 48
"""Largest number of columns of the matrix for which all are shown, in their order."""

OF_EACH = 4
"""Number of columns, those of largest weight, shown for each component if there are over ``MOST_COLUMNS``."""

BAR_LEAST = 150
"""Least height of a color scale in pixels."""

LINE = 26
"""Height in pixels of the line of one column of the matrix."""

SIGNED = ("#b35806", "#f7f7f7", "#0a5a94")
"""Colors below 0, at 0, and above 0; safe for color-blind eyes."""


@dataclass(frozen=True, slots=True)
class Loadings:
    """Data of a heat map of loadings: weights of columns in components."""

    weights: Float64
    """Weights (columns, components)."""

    columns: tuple[str, ...]
    components: str
    """What the components are called, as the label of the horizontal axis."""

    numbers: tuple[int, ...]
    """Numbers of the components, counted from 1."""

    unit: str
    signed: bool
    right: int = 250

    @property
    def left(self) -> int:
        """Pixels left of the axes, which depend on the longest name."""
        return 110 + 12 * max(map(len, self.columns), default=0)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the axes in pixels."""
        return min(980, 76 * self.weights.shape[1]), max(120, LINE * len(self.columns))

    @property
    def alt(self) -> str:
        """Description of the picture in words."""
        return f"Weights of {len(self.columns)} columns in {self.weights.shape[1]} components"

    def draw(self, axes: Axes, theme: Theme = LIGHT) -> None:
        """Draw the plot into matplotlib axes, which rankfold or a user has made."""
        shown = shades_of(self.weights, signed=self.signed)
        axes.imshow(shown.to_rgba(self.weights), aspect="auto", interpolation="nearest")
        quiet(axes, theme)
        axes.set_xticks(range(len(self.numbers)), [str(number) for number in self.numbers])
        axes.set_yticks(range(len(self.columns)), self.columns)
        axes.tick_params(axis="y", labelsize=7)
        axes.spines["bottom"].set_visible(False)
        label_axes(axes, theme, self.components, "column")
        width, height = self.size
        tall = max(BAR_LEAST, 0.4 * height)
        place = inset(axes, self.size, width + 40, max(40, (height - tall) / 2), BAR_WIDTH, tall)
        color_bar(place, shown, self.unit, theme, tall)


def shades_of(weights: Float64, *, signed: bool) -> Any:
    """``ScalarMappable`` with a color map of weights: from 0 to the largest, or symmetric if ``signed``."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    most = float(np.nanmax(np.abs(weights), initial=0.0)) or 1.0
    colors = SIGNED if signed else ("#f7f7f7", *LIGHT.density[1:])
    shades = LinearSegmentedColormap.from_list("weights", colors)
    return ScalarMappable(Normalize(-most if signed else 0.0, most), shades)


def factor_name(result: Outcome) -> str | None:
    """Name of the array of a result that holds components, (components, columns); None if it has none."""
    names = set(result)
    return next((name for name in FACTORS if name in names), None)


@dataclass(frozen=True, slots=True)
class Leading:
    """The components of a result that are drawn, with their weights."""

    weights: Float64
    """Weights (components, columns)."""

    numbers: tuple[int, ...]
    """Numbers of the components, counted from 1."""

    sizes: Float64
    """Divisors (components,) by which the weights have been divided: 1, or the largest weight of each."""

    unit: str
    """Name of what the weights are, for the color scale."""

    signed: bool
    """True if weights may be below 0."""


def leading(
    result: Outcome, components: Sequence[int] | None = None, default: int = MOST_COMPONENTS
) -> Leading:
    """Read the weights of the components to draw, counted from 1: by default the first ``default``.

    Weights of ``H`` are divided by the largest of each component.

    Raises
    ------
    InputError
        They are complex, or do not exist.
    """
    factor = factor_name(result)
    assert factor is not None  # noqa: S101  asked before
    array: Any = result[factor]
    if np.dtype(array.dtype).kind == "c":
        raise InputError(f"{factor} is {array.dtype}, and pictures are of real numbers")
    numbers = numbers_of(components, factor, array.shape[0], default=default, most=MOST_COMPONENTS)
    weights = np.stack([np.asarray(array[number - 1], np.float64) for number in numbers])
    if factor != "H":
        return Leading(weights, numbers, np.ones(len(numbers)), "weight", signed=True)
    # A component of H can be scaled freely, since the scale is made up for in W.
    sizes = np.maximum(weights.max(axis=1), 1e-300)
    return Leading(weights / sizes[:, None], numbers, sizes, "of largest", signed=False)


def loadings_of(
    result: Outcome, names: tuple[str, ...] | None = None, components: Sequence[int] | None = None
) -> Loadings:
    """Weights of the leading components of a result.

    ``names`` are those of the columns: those of the data by default, if it had any; else columns are counted
    from 0, as in ``select_columns``.

    Raises
    ------
    InputError
        The number of names is wrong, or components are complex.
    """
    found = leading(result, components)
    weights = found.weights
    columns = weights.shape[1]
    if names is not None and len(names) != columns:
        raise InputError(f"names are of {len(names)} columns, and the matrix has {columns}")
    own = names_in(result, "columns")
    chosen = np.arange(columns) if columns <= MOST_COLUMNS else _heaviest(weights)
    return Loadings(
        np.ascontiguousarray(weights[:, chosen].T),
        tuple(_title(int(at), names, own) for at in chosen),
        FACTORS[str(factor_name(result))],
        found.numbers,
        found.unit,
        found.signed,
    )


def _title(at: int, names: tuple[str, ...] | None, own: Names | None) -> str:
    """Name of the column with index ``at``: from ``names``, else from ``own`` of the data, else the index."""
    if names is not None:
        return short(names[at])
    return str(at) if own is None else short(own.title(at))


def _heaviest(weights: Float64) -> Int64:
    """Indices of the ``OF_EACH`` columns of largest weight in each component, without repetition.

    ``weights`` are (components, columns).
    """
    chosen: dict[int, None] = {}
    for component in weights:
        order = np.argsort(-np.abs(component), kind="stable")[:OF_EACH]
        chosen.update(dict.fromkeys(order.tolist()))
    return np.array([*chosen], np.int64)
