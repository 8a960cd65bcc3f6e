"""What the arrays and facts of a result may be, looked at before a kernel follows them.

A file may hold any number. An index beyond the rows, a NaN or a pointer that falls is found here by comparing
the least and the most number of a panel with bounds, which is cheap beside reading it.

The trap: NaN is neither below nor above anything, so a fault is what is not within bounds.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LARGEST = sys.float_info.max
"""Most of a number that is finite."""


def first_outside(values: Array, least: float, most: float) -> int | None:
    """Place, in C order, of the first number that is not between two bounds; None where all are.

    Complex numbers are within bounds if both of their parts are.
    """
    if values.dtype.kind == "c":
        values = np.ascontiguousarray(values).view(values.real.dtype)
        place = first_outside(values, least, most)
        return None if place is None else place // 2
    # Python's numbers: a bound beyond float32 would overflow in the type of the values.
    if not values.size or (values.min().item() >= least and values.max().item() <= most):
        return None
    wide = values if values.dtype.kind in "iub" else values.astype(np.float64)
    return int(np.argmax(~((wide >= least) & (wide <= most))))


def first_fall(values: Array) -> int | None:
    """Place of the first number of a vector that is below the one before it; None where none is."""
    down = values[1:] < values[:-1]
    return int(down.argmax()) + 1 if down.any() else None
