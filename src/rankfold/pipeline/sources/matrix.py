"""What counts as a matrix: two axes, neither of them empty, numbers of a type that is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rankfold.pipeline.errors import InputError

SUPPORTED = "float16, float32, float64, integers of 8 to 64 bits with or without sign, and bool"


MOST_BYTES = 2**60
"""Of a matrix, or of a chunk: more is no size but a damaged header."""

MOST_CHUNKS = 2**26
"""Along one axis: their edges alone take 512 MiB."""


def require_matrix(name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Raise ``InputError`` unless an array of this shape and type is a matrix that can be read."""
    if len(shape) != 2:
        raise InputError(
            f"{name} has {len(shape)} axes, shape {tuple(shape)}; a matrix has two, samples in rows and "
            "features in columns. Reshape it, or name another array"
        )
    require_lengths(name, shape, dtype)
    if 0 in shape:
        empty = "rows" if shape[0] == 0 else "columns"
        raise InputError(f"{name} has shape {tuple(shape)}: a matrix without {empty} cannot be reduced")
    require_numbers(name, dtype)


def require_lengths(name: str, shape: Sequence[int], dtype: np.dtype[Any], *, what: str = "shape") -> None:
    """Raise ``InputError`` for a shape, of an array or a chunk, that is none, as damaged headers say."""
    if not all(isinstance(length, int | np.integer) and not isinstance(length, bool) for length in shape):
        raise InputError(f"{name} has {what} {cut(shape)}, which are not whole numbers. Restore it")
    if min(shape, default=0) < 0 or math.prod(map(int, shape)) * max(1, dtype.itemsize) > MOST_BYTES:
        raise InputError(f"{name} has {what} {cut(shape)}, which no array has. Is it damaged? Restore it")


def require_chunks(name: str, shape: Sequence[int], chunks: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Raise ``InputError`` for shapes of an array and its chunks that cannot be, or cannot be handled."""
    require_lengths(name, shape, dtype)
    require_lengths(name, chunks, dtype, what="chunks of shape")
    if min(chunks, default=1) < 1:
        raise InputError(f"{name} has chunks of shape {cut(chunks)}; none can be empty. Restore it")
    most = max((-(-length // chunk) for length, chunk in zip(shape, chunks, strict=True)), default=1)
    if most > MOST_CHUNKS:
        raise InputError(
            f"{name} has {most} chunks of shape {cut(chunks)} along one axis; at most {MOST_CHUNKS} "
            "are read. Is it damaged? Restore it, or write it in larger chunks"
        )


def whole_lengths(name: str, shape: Any) -> tuple[int, int]:
    """Rows and columns that the attributes of a sparse matrix say, checked."""
    values = np.asarray(shape, object).tolist() if isinstance(shape, list | tuple | np.ndarray) else None
    if not isinstance(values, list) or len(values) != 2 or not all(map(_is_length, values)):
        raise InputError(f"{name} is sparse, but says that its shape is {cut(shape)}. Restore it")
    rows, columns = values
    return int(rows), int(columns)


def cut(value: object, most: int = 80) -> str:
    """Something from a file for a message, which may be of any length."""
    text = str(tuple(value)) if isinstance(value, list) else str(value)
    return text if len(text) <= most else f"{text[:most]}..."


def _is_length(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and value % 1 == 0


def require_numbers(name: str, dtype: np.dtype[Any]) -> None:
    """Raise ``InputError`` for a type that is not read."""
    if not (dtype.kind in "iub" or (dtype.kind == "f" and dtype.itemsize <= 8)):
        raise InputError(f"{name} holds {dtype}; supported are {SUPPORTED}. Convert it first")


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The same type in the byte order of this machine."""
    return dtype.newbyteorder("=")
