"""The arrays decide the device: a contract finds its tuned body by file name.

``kernels/NAME.py`` holds the contract with its reference body. Where ``kernels/cpu/NAME.py`` or
``kernels/gpu/NAME.py`` has a function of the same name, calls with arrays of that device go there.
Devices are told apart by the name of the library that made the array: comparing classes would
import CuPy.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")

REGISTRY: dict[str, dict[str, tuple[str, ...]]] = {
    "condition": {"measure": ("cpu",), "subtract": ("cpu",)},
    "count_sketch": {"draw_buckets": (), "add_to_buckets": ("cpu",)},
    "divergence": {"quotients": ("cpu",)},
    "mixing": {"mix_words": ("cpu",)},
    "moments": {"add_rows": (), "merge_moments": ()},
    "multiplicative": {"multiply_rows": ("cpu",)},
    "neighbours": {
        "scan_pairs": ("cpu",),
        "refine_rows": ("cpu",),
        "exhaust_rows": ("cpu",),
        "measure_pairs": ("cpu",),
        "compare_pairs": ("cpu",),
        "merge_lists": ("cpu",),
        "sort_lists": ("cpu",),
    },
    "nonnegative": {"descend_rows": ("cpu",), "solve_rows": ("cpu",)},
    "normal": {"gaussian_rows": ()},
    "orthonormal": {"orthonormalise": ()},
    "panel": {"panel_product": ("gpu",)},
    "qr": {"panel_r": (), "merge_r": (), "r_of_gram": ()},
    "ranks": {"count_nearer": ("cpu",), "count_measured": ("cpu",), "measure_listed": ("cpu",)},
    "sketch": {"sketch_product": ()},
    "small": {"leading_eigenpairs": (), "leading_singular_triplets": (), "fix_signs": ()},
    "splitting": {"split_rows": ("cpu",)},
    "stationarity": {"gradient_rows": ("cpu",)},
}
"""Module, kernel, and the devices that have a tuned body; a test compares it with the files."""

FEW = 2**16
"""Numbers up to which a light kernel takes its reference body: it takes a millisecond or two, and loading
numba and a compiled body a second."""

_DEVICES = {"numpy": "cpu", "cupy": "gpu"}


def device_of(*arguments: object) -> str:
    """Device of the arrays among ``arguments``: ``"cpu"`` or ``"gpu"``.

    Raises
    ------
    TypeError
        Arrays of both devices are mixed.
    """
    libraries = (type(a).__module__.partition(".")[0] for a in arguments if not isinstance(a, np.generic))
    found = {_DEVICES[library] for library in libraries if library in _DEVICES}
    if len(found) > 1:
        raise TypeError(
            "arrays of host and device are mixed in one kernel call: move them to one side first "
            "(rankfold moves data only at the border of a task)"
        )
    return found.pop() if found else "cpu"


@functools.cache
def implementation(module: str, name: str, device: str) -> Callable[..., Any] | None:
    """Tuned body of a kernel on a device, or None where the reference body is the best there is."""
    if device not in REGISTRY[module][name]:
        return None
    return getattr(importlib.import_module(f"rankfold.kernels.{device}.{module}"), name)  # type: ignore[no-any-return]


def kernel(reference: Callable[P, R]) -> Callable[P, R]:
    """Turn a contract with a reference body into a kernel that dispatches on its arrays."""
    return _kernel(reference, 0)


def light_kernel(reference: Callable[P, R]) -> Callable[P, R]:
    """The same where the bodies of the host agree to the last bit: a first array of few numbers takes the
    reference body, so that a small matrix neither compiles nor loads numba.
    """
    return _kernel(reference, FEW)


def _kernel(reference: Callable[P, R], few: int) -> Callable[P, R]:
    module = reference.__module__.rpartition(".")[2]

    @functools.wraps(reference)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        device = device_of(*args, *kwargs.values())
        light = few > 0 and device == "cpu" and np.size(args[0]) <= few  # type: ignore[arg-type]
        body = None if light else implementation(module, reference.__name__, device)
        return reference(*args, **kwargs) if body is None else body(*args, **kwargs)

    call.reference = reference  # type: ignore[attr-defined]
    return call
