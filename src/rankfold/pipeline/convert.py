"""Numbers in another type, without loss that nobody asked for.

Rounding to fewer digits is what asking for float32 means. A number that overflows, or a fraction where
whole numbers were asked for, is an error: NumPy would wrap around or cut off without a word.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.sources.matrix import require_matrix


def parse_dtype(text: str) -> np.dtype[Any]:
    """The type of that name, if a matrix may have it."""
    try:
        dtype = np.dtype(text)
    except TypeError:
        raise InputError(
            f"dtype={text!r} is not a type; say for instance float32, float64 or uint8"
        ) from None
    require_matrix("the new store", (1, 1), dtype)
    return dtype.newbyteorder("=")


def convert_into(out: npt.NDArray[Any], x: npt.NDArray[Any], where: str) -> None:
    """Copy ``x`` into ``out``, which has its shape, or raise ``DataError`` for what does not fit."""
    if x.dtype == out.dtype or np.can_cast(x.dtype, out.dtype):
        out[...] = x
        return
    with np.errstate(invalid="ignore", over="ignore"):
        out[...] = x
        bad = np.isinf(out) & np.isfinite(x) if out.dtype.kind == "f" else _changed(out, x)
    if bad.any():
        first = x[tuple(index[0] for index in np.nonzero(bad))]
        raise DataError(f"{where}: {first} cannot be written as {out.dtype}. Choose a type that holds it")


def _changed(out: npt.NDArray[Any], x: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Where a whole number, or a truth value, is not what it was made of."""
    changed: npt.NDArray[np.bool_]
    if out.dtype.kind == "b":
        changed = (x != 0) & (x != 1)
    elif x.dtype.kind == "f":
        low, high = np.iinfo(out.dtype).min, np.iinfo(out.dtype).max
        # 2^63 - 1 rounds up to 2^63 as a float: compare with the power of two, strictly.
        changed = ~((x >= float(low)) & (x < float(high) + 1) & (x == np.trunc(x)))
    else:
        changed = (out != x) | ((out < 0) != (x < 0))
    return changed
