"""Centring and scaling of columns that lie whole inside a panel: a wide matrix, swept by columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.condition import measure
from rankfold.pipeline.folds.panels import numbers
from rankfold.pipeline.narrow import Narrow

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Centring:
    """What is done to columns before they are multiplied."""

    centre: bool
    scale: bool
    unit: float
    """Power of two near the reciprocal of the largest element: squares of ``A`` stay in range."""

    constant_below: float
    """Standard deviation, relative to the mean, under which a column counts as constant."""


@dataclass(frozen=True, slots=True)
class LocalColumns:
    """Mean, deviation, scale and sum of squares of some whole columns."""

    mean: Float64
    deviation: Float64
    """Standard deviation, 0 for constant columns; 1 where nothing is scaled."""

    scale: Float64
    """What centred columns are multiplied by: 1, or 1 / standard deviation (1 where that is 0)."""

    squares: Float64
    """Sum of squares of each column once centred and scaled, times unit squared."""


def kept_columns(
    x: npt.NDArray[Any], centring: Centring, first: int, kept: Narrow | None
) -> LocalColumns | None:
    """Statistics of whole columns from ``first`` on, also written to ``kept``; None if not finite."""
    columns = local_columns(x, centring)
    if not np.isfinite(columns.squares).all():
        return None
    if kept is not None:
        kept.write(first, np.column_stack([columns.mean, columns.deviation]))
    return columns


def local_columns(x: npt.NDArray[Any], centring: Centring) -> LocalColumns:
    """Statistics of whole columns (m, c); not finite where a column is not.

    The mean is taken twice, the second time of what the first left: for float64 data of mean 1e8 and
    standard deviation 1 a single sum leaves a residual mean of 1e-8.
    """
    rows, columns = x.shape
    x = numbers(x)
    mean = np.zeros(columns)
    if centring.centre:
        mean = measure(x, mean, 1.0)[0] / rows
    sums, squares = measure(x, mean, centring.unit)
    if centring.centre:
        correction = sums / rows
        mean = mean + correction / centring.unit
        squares = squares - rows * correction**2
    factor, deviation = np.ones(columns), np.ones(columns)
    if centring.scale:
        deviation = np.sqrt(np.maximum(squares, 0.0) / max(rows - 1, 1)) / centring.unit
        varies = deviation > centring.constant_below * np.abs(mean)
        deviation[~varies] = 0.0
        factor[varies] = 1.0 / deviation[varies]
        squares = squares * factor**2
    return LocalColumns(mean, deviation, factor, squares)
