"""Loops whose last bits follow from how they are optimized are no symbols that another copy may stand for."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from numba.core.dispatcher import Dispatcher

from rankfold import kernels


def loops() -> Iterator[Dispatcher]:
    """All compiled loops of the kernels."""
    for module in pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}."):
        if ".cpu." in module.name:
            yield from (
                one
                for one in vars(importlib.import_module(module.name)).values()
                if isinstance(one, Dispatcher)
            )


def test_what_loops_call_is_taken_into_them_where_its_bits_depend_on_its_surroundings() -> None:
    found = {id(loop): loop for loop in loops()}
    called = {
        id(value): (caller, value)
        for caller in found.values()
        for name in caller.py_func.__code__.co_names
        if isinstance(value := caller.py_func.__globals__.get(name), Dispatcher)
    }
    assert len(called) > 50
    loose = [
        f"{caller.py_func.__qualname__} calls {value.py_func.__qualname__}"
        for caller, value in called.values()
        if value.targetoptions.get("fastmath") and not value.targetoptions.get("forceinline")
    ]
    assert not loose
