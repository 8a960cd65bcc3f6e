"""Shift and factor that the preparation steps (``prepare=``) applied to each column, and their inverse.

    prepared = (data - shift) * factor

The method ``affine`` of a step returns its own shift and factor. A step without that method changes the data
in another way, such as by logarithms, and no sum of components leads back from that.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import InputError
from rankfold.pipeline.prepare.chosen_columns import CHOOSING
from rankfold.pipeline.prepare.parse import parse_steps

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Affine:
    """Map ``(data - shift) * factor`` from columns of a raw matrix to those after some preparation steps."""

    shift: Float64
    """Shift (n,) subtracted from each column, in units of the data."""

    factor: Float64
    """Factor (n,) of each column."""

    def take(self, columns: npt.NDArray[np.int64]) -> Affine:
        """The map restricted to some columns, given by their indices."""
        return Affine(self.shift[columns], self.factor[columns])

    def digest(self) -> str:
        """Digest of shift and factor."""
        mark = hashlib.blake2b(digest_size=16)
        for vector in (self.shift, self.factor):
            mark.update(np.ascontiguousarray(vector).data)
        return mark.hexdigest()

    @property
    def divisor(self) -> Float64:
        """Divisors (n,) that undo ``factor``: its values, but NaN where a step set the whole column to 0."""
        return np.where(self.factor == 0, np.nan, self.factor)

    def data(self, values: Any) -> Any:
        """Map prepared values, (..., n), back to units of the data; NaN if a step set their column to 0."""
        return self.shift + values / self.divisor


def affine_of(facts: Mapping[str, Any], array: Callable[[str], Array]) -> Affine:
    """Shift and factor that the preparation steps of a result applied to the columns that they kept.

    Parameters
    ----------
    facts : mapping
        Facts of the result on its matrix: ``attrs["input"]``.
    array : function
        Returns, by name, an array that the result keeps of what its steps measured.

    Raises
    ------
    InputError
        A step changed values other than by a shift and a factor, such as by logarithms.
    """
    shift: Any = np.zeros(1)
    factor: Any = np.ones(1)
    for place, step in enumerate(parse_steps(facts.get("prepare")), 1):
        prefix = f"prepare_{place}_{step.name}_"
        if step.name in CHOOSING:
            kept = array(f"{prefix}columns")
            shift, factor = (each if len(each) == 1 else each[kept] for each in (shift, factor))
            continue
        own = step.affine(functools.partial(_measured, array, prefix)) if hasattr(step, "affine") else None
        if own is None:
            raise InputError(
                "physical=True takes back steps that multiply and shift columns, such as weights, coslat and "
                f"scale, and {step.name} is none: there is no form in units of the data then"
            )
        off, times = own
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = shift + np.where(np.equal(off, 0), 0.0, off / factor)
        factor = factor * times
    width = (int(facts["shape"][1]),)
    return Affine(np.broadcast_to(shift, width), np.broadcast_to(factor, width))


def _measured(array: Callable[[str], Array], prefix: str, name: str) -> Float64:
    return np.asarray(array(prefix + name), np.float64)


def columns_left(facts: Mapping[str, Any], array: Callable[[str], Array]) -> Array | None:
    """Indices of the columns that the preparation steps of a result kept, in order; None if all.

    Parameters are those of ``affine_of``.
    """
    kept: Array | None = None
    for place, step in enumerate(parse_steps(facts.get("prepare")), 1):
        if step.name in CHOOSING:
            own = array(f"prepare_{place}_{step.name}_columns")
            kept = own if kept is None else kept[own]
    return kept


def keeps_numbers(facts: Mapping[str, Any]) -> bool:
    """True if the steps of a result left present values as they were.

    They may have filled missing values, and chosen columns.
    """
    steps = parse_steps(facts.get("prepare"))
    return all(step.name in CHOOSING or step.name.startswith("impute_") for step in steps)
