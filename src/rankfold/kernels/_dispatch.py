"""Dispatch of kernels: the arrays decide the device, and a contract finds its tuned body by file name.

``kernels/FAMILY/NAME.py`` holds contracts with their reference bodies. Where ``cpu/NAME.py`` or
``gpu/NAME.py`` beside it has a function of the same name, calls with arrays of that device go there.
Devices are recognized by the name of the library that made the array: comparing classes would
import CuPy.

The module also brings arrays into the one layout in memory that loops are compiled for, so that each loop is
compiled once for a type, and aligns new arrays to cache lines.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

P = ParamSpec("P")
R = TypeVar("R")

FEW = 2**16
"""Largest number of elements of the first argument for which a light kernel runs its reference body on the
host: that takes a millisecond or two, and loading numba and a compiled body takes a second."""

_DEVICES = {"numpy": "cpu", "cupy": "gpu"}


def device_of(*arguments: object) -> str:
    """Device of the arrays among ``arguments``, and in tuples of them: ``"cpu"`` (also if none) or ``"gpu"``.

    Raises
    ------
    TypeError
        Arrays of both devices are mixed.
    """
    device = None
    for argument in arguments:
        for each in argument if isinstance(argument, tuple) else (argument,):
            own = _device_of_type(type(each))  # type: ignore[arg-type]
            if own is None or own == device:
                continue
            if device is not None:
                raise TypeError(
                    "arrays of host and device are mixed in one kernel call: move them to one side first "
                    "(rankfold moves data only at the border of a task)"
                )
            device = own
    return device or "cpu"


@functools.cache
def _device_of_type(kind: type) -> str | None:
    """``"cpu"`` or ``"gpu"`` for a class of arrays; None for NumPy's scalars and for what is no array."""
    return None if issubclass(kind, np.generic) else _DEVICES.get(kind.__module__.partition(".")[0])


@functools.cache
def has_body(module: str, name: str, device: str) -> bool:
    """True if kernel ``name`` has a tuned body for ``device``; reads its source, and does not import it.

    ``module`` is the dotted name of the module of its contract.
    """
    family, _, stem = module.rpartition(".")
    if not family or importlib.util.find_spec(f"{family}.{device}") is None:
        return False
    body_module = f"{family}.{device}.{stem}"
    spec = importlib.util.find_spec(body_module)
    return spec is not None and f"\ndef {name}(" in spec.loader.get_source(body_module)  # type: ignore[union-attr]


@functools.cache
def implementation(module: str, name: str, device: str) -> Callable[..., Any] | None:
    """Tuned body of a kernel for a device, or None where only the reference body exists.

    ``module`` is the dotted name of the module of its contract. A tuned module is loaded only if it has this
    body: loading it to find out would load numba.
    """
    if not has_body(module, name, device):
        return None
    family, _, stem = module.rpartition(".")
    return getattr(importlib.import_module(f"{family}.{device}.{stem}"), name)  # type: ignore[no-any-return]


def kernel(reference: Callable[P, R]) -> Callable[P, R]:
    """Turn a contract with a reference body into a kernel that dispatches on the device of its arrays."""
    return _kernel(reference, 0)


def light_kernel(reference: Callable[P, R]) -> Callable[P, R]:
    """Like ``kernel``, for host bodies that agree to the last bit: if the first array has few elements, the
    reference body runs, so that a small matrix neither compiles nor loads numba.
    """
    return _kernel(reference, FEW)


def portable(call: Callable[P, R]) -> Callable[P, R]:
    """Mark a kernel that a fold (the work of a pass over the matrix) may call on the host and on a device.

    Either its reference body accepts arrays of any device: a few operations on whole arrays that never
    inspect single elements. Or it takes no arrays, and returns arrays of the host.
    """
    call.portable = True  # type: ignore[attr-defined]
    return call


def _kernel(reference: Callable[P, R], few: int) -> Callable[P, R]:
    @functools.wraps(reference)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        device = device_of(*args, *kwargs.values())
        light = few > 0 and device == "cpu" and np.size(args[0]) <= few  # type: ignore[arg-type]
        body = None if light else implementation(reference.__module__, reference.__name__, device)
        return reference(*args, **kwargs) if body is None else body(*args, **kwargs)

    call.reference = reference  # type: ignore[attr-defined]
    return call


Array = npt.NDArray[Any]

CACHE_LINE = 64
"""Bytes of a cache line."""


def aligned_empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """Uninitialized C-order array that starts on a cache line: equal speed on every run."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + CACHE_LINE, dtype=np.uint8)
    offset = -memory.ctypes.data % CACHE_LINE
    return memory[offset : offset + size].view(dtype).reshape(shape)


def plain(a: Array) -> Array:
    """Read-only view of an array in C order; of a copy if the array has another layout."""
    view = np.ascontiguousarray(a).view()
    view.flags.writeable = False
    return view


def wide(a: Array) -> Array:
    """Read-only C-order matrix whose first columns are those of ``a``.

    If ``a`` is part of a wider matrix, it is a view with the further columns of that matrix, not a copy.
    """
    return plain(_whole(a))


def writable(a: Array) -> Array:
    """C-order matrix to write into, whose first columns are those of ``a``; wider if ``a`` is part of one.

    If ``a`` has another layout, it is a copy, which the caller writes back: see ``write_back``.
    """
    return np.ascontiguousarray(_whole(a))


def write_back(into: Array, a: Array) -> None:
    """Copy ``into = writable(a)`` back to ``a``, unless both share memory."""
    if not np.may_share_memory(into, a):
        a[...] = into


def _whole(a: Array) -> Array:
    """The wider matrix that ``a`` is the first columns of, or ``a`` itself."""
    width, rest = divmod(a.strides[0], a.itemsize)
    if not a.flags.c_contiguous and a.strides[1] == a.itemsize and width >= a.shape[1] and not rest:
        # The last row may seem to end beyond the memory: nothing reads or writes what is between rows.
        return np.lib.stride_tricks.as_strided(a, (len(a), width), a.strides)
    return a
