"""Where the buffers of a fold live: the only place that decides host or device, and the only mover."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.view import aligned_empty

Array = npt.NDArray[Any]
Kernel = Callable[..., Any]

HOST = "cpu"


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """A buffer whose contents mean nothing yet, on a cache line."""
    return aligned_empty(shape, dtype)


def placed(array: Array, dtype: npt.DTypeLike) -> Array:
    """A constant where buffers are, in the type that it is multiplied in."""
    return np.ascontiguousarray(array, dtype)


@functools.cache
def bodies(kernel: Kernel) -> tuple[str, ...]:
    """Devices that a kernel has a body of its own for, by file name; the host always has one."""
    module, name = str(kernel.__module__), str(kernel.__name__)
    family, _, stem = module.rpartition(".")
    found = importlib.util.find_spec(family)
    folders = [] if found is None else list(found.submodule_search_locations or ())
    file = Path(folders[0]) / "gpu" / f"{stem}.py" if folders else None
    device = file is not None and file.exists() and f"\ndef {name}(" in file.read_text()
    return (HOST, "gpu") if device else (HOST,)


def runs_on_device(kernels: Iterable[Kernel]) -> bool:
    """Whether every kernel of a fold has a body for a device; one that names none stays on the host."""
    names = list(kernels)
    return bool(names) and all("gpu" in bodies(each) for each in names)
