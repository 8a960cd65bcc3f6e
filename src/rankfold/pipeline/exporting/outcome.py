"""What is exported: the arrays of a result, its facts, and where its rows and columns lie in the whole.

Rows and columns that were selected, or left out as missing, are put back at their places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import InputError

Array = npt.NDArray[Any]


class Outcome(Protocol):
    """A result, as exports see it."""

    @property
    def attrs(self) -> dict[str, Any]:
        """Facts."""

    def __iter__(self) -> Iterator[str]:
        """Names of the arrays."""

    def __getitem__(self, name: str) -> Any:
        """An array: NumPy's, or Zarr's where it is large."""

    def dimensions(self, name: str) -> tuple[str, ...]:
        """What each axis of an array counts: ``row``, ``column``, ``component`` or ``neighbor``."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """An array on disk whose columns are multiplied as it is read."""

    values: Any
    factors: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """As on disk."""
        return tuple(self.values.shape)

    @property
    def chunks(self) -> tuple[int, ...]:
        """As on disk."""
        return tuple(self.values.chunks)

    @property
    def dtype(self) -> np.dtype[Any]:
        """As on disk."""
        dtype: np.dtype[Any] = np.dtype(self.values.dtype)
        return dtype

    def __getitem__(self, part: Any) -> Array:
        return np.asarray(self.values[part]) * self.factors


def kept_places(result: Outcome, axis: str) -> Array | None:
    """Places of the rows or columns of a result in the whole matrix, in order; None where it has all."""
    runs = layout(result).get(axis)
    if runs is None:
        return None
    if isinstance(runs, str):
        raise InputError(f"the {axis} of this result are {runs}, which is more than a result keeps")
    return np.concatenate([first + step * np.arange(count) for first, count, step in runs])


def whole_length(result: Outcome, axis: str) -> int:
    """Rows or columns of the matrix before any were selected."""
    shape = layout(result).get("shape", result.attrs["input"]["shape"])
    return int(shape[0 if axis == "rows" else 1])


def layout(result: Outcome) -> dict[str, Any]:
    """What the result says of where its matrix lies in an array; nothing where it is all of it."""
    found: dict[str, Any] = result.attrs["input"].get("layout", {})
    return found


def spread(values: Any, places: Array | None, length: int, fill: float) -> Any:
    """Lines of ``values`` at their places among ``length``, others filled."""
    if places is None:
        return values
    values = np.asarray(values[...])
    out = np.full((length, *values.shape[1:]), fill, values.dtype)
    out[places] = values
    return out


def require_length(what: str, name: str, found: int, expected: int) -> None:
    """Raise ``InputError`` unless both are of one length."""
    if found != expected:
        raise InputError(
            f"{name} has {found} {what}, but the result is of a matrix with {expected}. Give the one that "
            "the matrix was taken from"
        )
