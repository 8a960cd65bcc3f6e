"""A result as exports see it: its arrays, its facts, and the indices of its rows and columns in the data.

If rows or columns were selected, or left out as missing, exports put the others at their original indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.names import Names, names_of_result, require_order
from rankfold.pipeline.data.origin import places_in_words
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.prepare.affine import columns_left

Array = npt.NDArray[Any]

SIDES = ("rows", "columns")
"""The two axes of a matrix, in order."""


class Outcome(Protocol):
    """Protocol of a result that can be exported: arrays by name, attributes, and the kinds of axes."""

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the result by name, JSON values such as ``kind``, ``request`` and ``input``."""

    def __iter__(self) -> Iterator[str]:
        """Names of the arrays."""

    def __getitem__(self, name: str) -> Any:
        """The array of that name: a NumPy array, or a Zarr array if it is large."""

    def dimensions(self, name: str) -> tuple[str, ...]:
        """Kind of each axis of an array: ``row``, ``column``, ``component`` or ``neighbor``."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """An array on disk, ``values`` (m, n), whose columns are multiplied by ``factors`` (n,) as it is read."""

    values: Any
    factors: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array on disk."""
        return tuple(self.values.shape)

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of its chunks on disk."""
        return tuple(self.values.chunks)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the array on disk."""
        dtype: np.dtype[Any] = np.dtype(self.values.dtype)
        return dtype

    def __getitem__(self, part: Any) -> Array:
        return np.asarray(self.values[part]) * self.factors


def kept_places(result: Outcome, axis: str) -> Array | None:
    """Indices of the ``rows`` or ``columns`` (``axis``) of a result in the matrix before any were selected.

    They are in the order of the result; None if it has all.
    """
    return places_in_words(layout(result), axis)


def exported_facts(result: Outcome, *, physical: bool = False) -> dict[str, Any]:
    """Attributes of a result as exported files keep them, without names of rows and columns.

    Such files have names of their own. ``physical`` is stated if True: arrays are in units of the data.
    """
    known = {name: fact for name, fact in result.attrs["input"].items() if name != "names"}
    return {**result.attrs, "input": known, **({"physical": True} if physical else {})}


def names_in(result: Outcome, axis: str) -> Names | None:
    """Names of the ``rows`` or ``columns`` (``axis``) of a result; None if it has kept none.

    Of columns, only those that its preparation steps kept.
    """
    names = names_of_result("the result", result.attrs, SIDES.index(axis))
    if names is None or axis == "rows":
        return names
    kept = columns_left(result.attrs["input"], lambda array: np.asarray(result[array][...]))
    return names if kept is None else names.take(kept)


def places_among(result: Outcome, axis: str, own: Names | None, name: str, what: str) -> Array | None:
    """Indices of the rows or columns of a result among those of an object; None if both are the same.

    Parameters
    ----------
    axis : {"rows", "columns"}
    own : Names, optional
        Names of the rows or columns of the object. If it or the result has none, the indices are those in the
        matrix before any were selected.
    name, what : str
        Name of the object, and of its rows or columns, in messages.

    Raises
    ------
    InputError
        The object lacks one of them, or has it twice; without names, their number differs.
    """
    wanted = names_in(result, axis)
    if axis == "columns":
        require_order(own, wanted, name, "the result")
    if own is None or wanted is None:
        return kept_places(result, axis)
    if own.is_like(wanted):
        return None
    try:
        places = own.find(wanted)
    except ValueError as error:
        raise InputError(f"{what} of {name} are not those of the result: {error}. {_TAKEN}") from None
    if (places < 0).any():
        first = int(np.argmax(places < 0))
        found = "has two of" if places[first] == -2 else "has none of"
        raise InputError(
            f"{name} {found} the {what} that are called {wanted.word(first)}, as number {first} (from 0) of "
            f"the result is. {_TAKEN}"
        )
    return places


_TAKEN = "Give the one that the matrix was taken from"


def whole_length(result: Outcome, axis: str) -> int:
    """Number of ``rows`` or ``columns`` (``axis``) of the matrix of a result, before any were selected."""
    shape = layout(result).get("shape", result.attrs["input"]["shape"])
    return int(shape[0 if axis == "rows" else 1])


def layout(result: Outcome) -> dict[str, Any]:
    """Attributes on how the matrix of a result was selected from a larger array, or stacked from its axes.

    Empty if nothing was selected or stacked.
    """
    found: dict[str, Any] = result.attrs["input"].get("layout", {})
    return found


def spread(values: Any, places: Array | None, length: int, fill: float) -> Any:
    """Array of ``length`` rows with those of ``values`` at the indices ``places``, and ``fill`` elsewhere.

    Returns ``values`` itself if ``places`` is None.
    """
    if places is None:
        return values
    values = np.asarray(values[...])
    out = np.full((length, *values.shape[1:]), fill, values.dtype)
    out[places] = values
    return out


def require_length(what: str, name: str, found: int, expected: int) -> None:
    """Raise ``InputError`` unless ``found``, the number of ``what`` that ``name`` has, is that ``expected``.

    ``what`` are rows, columns, observations or variables, in words for the message.
    """
    if found != expected:
        raise InputError(
            f"{name} has {found} {what}, but the result is of a matrix with {expected}. {_TAKEN}"
        )
