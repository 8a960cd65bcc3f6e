"""Names of the rows and columns of pandas-like frames and Series, and of xarray DataArrays.

These objects are recognized by their attributes, so neither pandas nor xarray is ever imported.
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
"""Pattern of a text label that was made of a NumPy date."""

TIME = re.compile(r"(-?\d+)-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{6}))?")
"""Pattern of a text label that was made of a time of ``cftime``."""


def is_counted(index: Any) -> bool:
    """True if an index is the default index of pandas, a count from 0, which names nothing.

    The index of rows 500 to 599 of a frame counts too, but from 500, and so names its rows.
    """
    return type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)


def labels_of_index(index: Any) -> Array | None:
    """Labels of an index of pandas, as text if some are not finite numbers; None for a default index."""
    if is_counted(index):
        return None
    labels = np.asarray(index)
    return labels.astype(str) if labels_of(labels) is None else labels


def axes_of_array(x: Any) -> list[Axis]:
    """Axes of a DataArray, with the coordinates that index them."""
    found = []
    for axis, length in zip(x.dims, x.shape, strict=True):
        # For an axis without a coordinate, xarray would return a count.
        known = (x.coords[axis].values, x.coords[axis].attrs) if axis in x.coords else (None, None)
        found.append(Axis.of(str(axis), int(length), *known))
    return found


def names_of_values(values: Any) -> Names | None:
    """Names of the elements of a vector: a Series, a frame of one row or column, or a DataArray.

    None for other objects.
    """
    if hasattr(values, "index") and hasattr(values, "to_numpy"):
        return names_along(values, int(values.ndim == 2 and len(values) == 1))
    is_labeled = hasattr(values, "dims") and hasattr(values, "coords")
    return Names.of(axes_of_array(values)) if is_labeled else None


def names_along(values: Any, axis: int) -> Names | None:
    """Names of the rows (0) or columns (1) of a frame or a DataArray; None for other objects."""
    labels = getattr(values, ("index", "columns")[axis], None) if hasattr(values, "to_numpy") else None
    if labels is not None:
        return Names.of([Axis.of("label", len(labels), labels_of_index(labels))])
    is_labeled = hasattr(values, "dims") and hasattr(values, "coords") and len(values.dims) == 2
    return Names.of([axes_of_array(values)[axis]]) if is_labeled else None


def times_of_calendar(labels: Array, calendar: str) -> Array:
    """Convert text labels back to the ``cftime`` times they were made of; other labels stay unchanged."""
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
    """Convert text labels back to the NumPy dates they were made of; other labels stay unchanged."""
    if labels.dtype.kind != "U" or not all(DATE.fullmatch(each) for each in labels):
        return labels
    return labels.astype("datetime64[ns]")
