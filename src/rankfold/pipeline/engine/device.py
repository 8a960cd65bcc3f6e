"""Where the buffers of a fold live: the only place that decides host or device, and the only mover."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import has_body
from rankfold.pipeline.data.view import aligned_empty

Array = npt.NDArray[Any]
Kernel = Callable[..., Any]


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """A buffer whose contents mean nothing yet, on a cache line."""
    return aligned_empty(shape, dtype)


def placed(array: Array, dtype: npt.DTypeLike) -> Array:
    """A constant where buffers are, in the type that it is multiplied in."""
    return np.ascontiguousarray(array, dtype)


def runs_on_device(kernels: Iterable[Kernel]) -> bool:
    """Whether every kernel of a fold has a body for a device; one that names none stays on the host."""
    names = [(str(each.__module__), str(each.__name__)) for each in kernels]
    return bool(names) and all(has_body(*name, "gpu") for name in names)
