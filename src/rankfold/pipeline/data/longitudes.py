"""Axes of longitudes: how to recognize them, and their labels from 0 to 360 degrees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from rankfold.pipeline.data.names import Axis

LONGITUDES = ("lon", "long", "longitude", "nav_lon")
"""Names of axes of longitudes, in lower case."""

DEGREES_EAST = ("degreeseast", "degreeeast", "degreee", "degreese")
"""CF units of longitudes, in lower case and without underscores."""

NEARLY_360 = 360.0 * (1 - 4 * float(np.finfo(np.float32).eps))
"""Degrees above which a longitude, modulo 360, counts as 0: it is 360 up to rounding."""


def are_longitudes(axis: Axis) -> bool:
    """True if an axis has longitudes in degrees: by its units or, if these do not decide, by its name."""
    if axis.labels is None or axis.labels.dtype.kind == "U":
        return False
    said = {name: text.casefold().replace("_", "") for name, text in axis.attributes.items()}
    units = said.get("units", "")
    if units in DEGREES_EAST:
        return True
    called = axis.name.casefold() in LONGITUDES or said.get("standard_name") == "longitude"
    return called and units in ("", "degree", "degrees", "deg")


def degrees_east(axis: Axis) -> npt.NDArray[Any]:
    """Labels of an axis of longitudes, taken modulo 360 degrees."""
    labels = np.mod(np.asarray(axis.labels, np.float64), 360.0)
    return np.where(labels > NEARLY_360, 0.0, labels)
