"""What counts as a matrix: two axes, neither of them empty, numbers of a type that is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankfold.pipeline.errors import InputError

SUPPORTED = "float16, float32, float64, integers of 8 to 64 bits with or without sign, and bool"


def require_matrix(name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Raise ``InputError`` unless an array of this shape and type is a matrix that can be read."""
    if len(shape) != 2:
        raise InputError(
            f"{name} has {len(shape)} axes, shape {tuple(shape)}; a matrix has two, samples in rows and "
            "features in columns. Reshape it, or name another array"
        )
    if 0 in shape:
        empty = "rows" if shape[0] == 0 else "columns"
        raise InputError(f"{name} has shape {tuple(shape)}: a matrix without {empty} cannot be reduced")
    require_numbers(name, dtype)


def require_numbers(name: str, dtype: np.dtype[Any]) -> None:
    """Raise ``InputError`` for a type that is not read."""
    if not (dtype.kind in "iub" or (dtype.kind == "f" and dtype.itemsize <= 8)):
        raise InputError(f"{name} holds {dtype}; supported are {SUPPORTED}. Convert it first")


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The same type in the byte order of this machine."""
    return dtype.newbyteorder("=")
