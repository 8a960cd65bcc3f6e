"""Preparation steps that change each value by itself, or by the sum of its row, before a method reads it.

Names and defaults are those of scanpy and NumPy. All these steps keep zeros, so that a sparse matrix stays
sparse, and none needs a measurement: the output of a row depends on that row alone.

Steps change ``Numbers``: a dense block of rows, or the stored values of some lines of a sparse matrix (rows,
or columns if it is stored by columns). Vectors along either axis are broadcast to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import DataError, InputError

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Numbers:
    """Values that steps change in place: a dense block, or the stored values of lines of a sparse matrix."""

    values: Array
    """Values of a dense block (rows, columns), or stored values (count,), float32 or float64."""

    by_columns: bool = False
    """True if the lines of stored values are columns."""

    first: int = 0
    """Index of the first column of a dense block, or of the first line of stored values."""

    places: Array | None = None
    """Index of each stored value in its line: column of a row, or row of a column; None if dense."""

    counts: npt.NDArray[np.int64] | None = None
    """Number of stored values in each line, (lines,); None if dense."""

    top: int = 0
    """Index of the first row of a dense block."""

    def along_rows(self, vector: Array) -> Array:
        """Broadcast a vector with an entry for each row of this block, or of these lines, to the values."""
        if self.places is None or self.counts is None:
            return vector[:, None]
        return vector[self.places] if self.by_columns else np.repeat(vector, self.counts)

    def along_all_rows(self, vector: Array) -> Array:
        """Broadcast a vector with an entry for each row of the whole matrix to the values."""
        if self.places is None or self.counts is None:
            return vector[self.top : self.top + len(self.values), None]
        if self.by_columns:
            return vector[self.places]
        return np.repeat(vector[self.first : self.first + len(self.counts)], self.counts)

    def along_columns(self, vector: Array) -> Array:
        """Broadcast a vector with an entry for each column of the whole matrix to the values."""
        if self.places is None or self.counts is None:
            return vector[self.first : self.first + self.values.shape[1]]
        if self.by_columns:
            return np.repeat(vector[self.first : self.first + len(self.counts)], self.counts)
        return vector[self.places]

    def sum_rows(self, values: Array) -> Float64:
        """Sum of each row, in float64, of an array with the shape of ``self.values``."""
        if self.counts is None:
            return np.asarray(values.sum(axis=1, dtype=np.float64))
        filled = self.counts > 0
        sums = np.zeros(len(self.counts))
        if filled.any():
            starts = (np.cumsum(self.counts) - self.counts)[filled]
            sums[filled] = np.add.reduceat(values, starts, dtype=np.float64)
        return sums


Measured = Callable[[str], Float64]
"""Function that takes the name of an array that was measured for a step, and returns the array."""

Shifted = tuple[Float64 | float, Float64 | float]
"""Shift that a step subtracts from each column, and factor by which it multiplies what is left.

Each is (n,), or one number for all columns.
"""


class Step(Protocol):
    """A preparation step, ready to apply: a frozen dataclass of its parameters, or of what was measured."""

    name: ClassVar[str]

    @property
    def by_row(self) -> bool:
        """True if a new value depends on others in its row."""

    def apply(self, numbers: Numbers) -> None:
        """Change values in place; zeros that are not stored stay zeros."""


@dataclass(frozen=True, slots=True)
class RowsOfSum:
    """Scale rows so that each sums to ``target_sum``; rows of zeros stay."""

    target_sum: float

    name: ClassVar[str] = "normalize_total"
    by_row: ClassVar[bool] = True

    def apply(self, numbers: Numbers) -> None:
        """Scale rows in place."""
        sums = numbers.sum_rows(numbers.values)
        # A row with NaN or Inf stays as it is, so that only that number is refused, not its row.
        known = np.isfinite(sums) & (sums != 0)
        factors = np.divide(self.target_sum, sums, out=np.ones_like(sums), where=known)
        numbers.values[...] *= numbers.along_rows(factors).astype(numbers.values.dtype)


@dataclass(frozen=True, slots=True)
class Log1p:
    """``log(1 + x)``, natural or to a base, as ``scanpy.pp.log1p``."""

    base: float | None = None

    name: ClassVar[str] = "log1p"
    by_row: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.base is not None:
            require(self, "base", above=1)

    def apply(self, numbers: Numbers) -> None:
        """Take logarithms in place."""
        values = numbers.values
        require_least(self, values, -1.0, strict=True)
        np.log1p(values, out=values)
        if self.base is not None:
            values /= values.dtype.type(math.log(self.base))


@dataclass(frozen=True, slots=True)
class Sqrt:
    """Square root of each value."""

    name: ClassVar[str] = "sqrt"
    by_row: ClassVar[bool] = False

    def apply(self, numbers: Numbers) -> None:
        """Take square roots in place."""
        values = numbers.values
        require_least(self, values, 0.0, strict=False)
        np.sqrt(values, out=values)


@dataclass(frozen=True, slots=True)
class Arcsinh:
    """``arcsinh(x / cofactor)``, as in cytometry."""

    cofactor: float = 1.0

    name: ClassVar[str] = "arcsinh"
    by_row: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(self, "cofactor", above=0)

    def apply(self, numbers: Numbers) -> None:
        """Take inverse hyperbolic sines in place."""
        values = numbers.values
        values /= values.dtype.type(self.cofactor)
        np.arcsinh(values, out=values)


@dataclass(frozen=True, slots=True)
class Binarize:
    """1 above a threshold, else 0; NaN and Inf stay, and are refused as usual."""

    threshold: float = 0.0

    name: ClassVar[str] = "binarize"
    by_row: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(self, "threshold", least=0)

    def apply(self, numbers: Numbers) -> None:
        """Binarize in place."""
        values = numbers.values
        np.copyto(values, values > self.threshold, where=np.isfinite(values))


def require(step: Any, field: str, *, above: float = -math.inf, least: float = -math.inf) -> None:
    """Convert the parameter ``field`` of a step to float, in place.

    ``InputError`` if it is no finite number, not above ``above``, or below ``least``.
    """
    value = getattr(step, field)
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value <= above or value < least:
        bound = f"above {above:g}" if above > -math.inf else f"of at least {least:g}"
        raise InputError(f"{step.name}: {field} must be a number {bound}, not {value!r}")
    object.__setattr__(step, field, float(value))


def require_least(step: Step, values: Array, least: float, *, strict: bool) -> None:
    """Raise ``DataError`` if a value is below ``least`` or, if ``strict``, equal to it.

    NaN is no error here; the methods refuse it later.
    """
    with np.errstate(invalid="ignore"):
        outside = values <= least if strict else values < least
    if outside.any():
        bound = f"above {least:g}" if strict else f"of at least {least:g}"
        raise DataError(
            f"{step.name} takes numbers {bound}, and there is {values[outside][0]:g}. Is the matrix raw? "
            "Leave the step out of prepare, or give the data that it is for"
        )


def require_flags(step: Any, *fields: str) -> None:
    """Raise ``InputError`` if one of these parameters of a step is not bool."""
    for field in fields:
        if not isinstance(getattr(step, field), bool):
            raise InputError(f"{step.name}: {field} must be True or False, not {getattr(step, field)!r}")
