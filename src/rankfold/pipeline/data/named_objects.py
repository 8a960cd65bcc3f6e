"""What frames, Series and DataArrays call their rows and columns.

They are known by what they have, so neither pandas nor xarray is ever imported.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.names import Axis, Names, labels_of

Array = npt.NDArray[Any]

DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{9})?")
"""A label that was a date."""

TIME = re.compile(r"(-?\d+)-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{6}))?")
"""A label that was a time of cftime."""


def is_counted(index: Any) -> bool:
    """Whether an index is the places that pandas counts by itself from 0, which name nothing.

    That of rows 500 to 599 of a frame counts too, from 500, and so names its rows.
    """
    return type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)


def labels_of_index(index: Any) -> Array | None:
    """Labels of an index of pandas, as text where some are no finite numbers; None where it is counted."""
    if is_counted(index):
        return None
    labels = np.asarray(index)
    return labels.astype(str) if labels_of(labels) is None else labels


def axes_of_array(x: Any) -> list[Axis]:
    """Axes of a DataArray, with the coordinates that index them."""
    found = []
    for axis, length in zip(x.dims, x.shape, strict=True):
        # Asked for a coordinate that an axis does not have, xarray counts places.
        known = (x.coords[axis].values, x.coords[axis].attrs) if axis in x.coords else (None, None)
        found.append(Axis.of(str(axis), int(length), *known))
    return found


def names_of_values(values: Any) -> Names | None:
    """Names of what numbers of a Series, a frame of one row or column, or a DataArray are of; else None."""
    if hasattr(values, "index") and hasattr(values, "to_numpy"):
        return names_along(values, int(values.ndim == 2 and len(values) == 1))
    is_labeled = hasattr(values, "dims") and hasattr(values, "coords")
    return Names.of(axes_of_array(values)) if is_labeled else None


def names_along(values: Any, axis: int) -> Names | None:
    """What the rows (0) or columns (1) of a frame or a DataArray are called; None of others."""
    labels = getattr(values, ("index", "columns")[axis], None) if hasattr(values, "to_numpy") else None
    if labels is not None:
        return Names.of([Axis.of("label", len(labels), labels_of_index(labels))])
    is_labeled = hasattr(values, "dims") and hasattr(values, "coords") and len(values.dims) == 2
    return Names.of([axes_of_array(values)[axis]]) if is_labeled else None


def times_of_calendar(labels: Array, calendar: str) -> Array:
    """Labels that were times of cftime, as ``labels_of`` writes these, as such; others as they are."""
    found = [TIME.fullmatch(each) for each in labels] if labels.dtype.kind == "U" else [None]
    try:
        cftime = importlib.import_module("cftime")
    except ImportError:
        return labels
    numbers = [[int(each or 0) for each in one.groups()] for one in found if one is not None]
    if len(numbers) < len(labels):
        return labels
    try:
        times = [cftime.datetime(*each, calendar=calendar) for each in numbers]
    except (ValueError, TypeError):  # a calendar, or a date of it, that cftime does not know
        return labels
    return np.array(times, object)


def dates_among(labels: Array) -> Array:
    """Labels that were dates, as ``labels_of`` writes these, as dates; others as they are."""
    if labels.dtype.kind != "U" or not all(DATE.fullmatch(each) for each in labels):
        return labels
    return labels.astype("datetime64[ns]")
