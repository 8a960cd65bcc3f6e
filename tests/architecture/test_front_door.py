"""Importing rankfold costs nothing, and shows exactly what it offers."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from typing import Any

import pytest

import rankfold
import rankfold.estimators

HEAVY = ("numba", "cupy", "dask", "distributed", "zarr", "scipy", "matplotlib")


def run(code: str) -> str:
    """Output of a fresh interpreter that finds the same rankfold."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout


def loaded_after(code: str) -> set[str]:
    before, after = (set(run(f"{c}\nimport sys; print(*sys.modules)").split()) for c in ("", code))
    return {name.partition(".")[0] for name in after - before}


def test_importing_loads_nothing_heavy() -> None:
    loaded = loaded_after("import rankfold; rankfold.__version__; dir(rankfold)")
    assert "rankfold" in loaded
    assert not loaded & {*HEAVY, "numpy"}


def test_kernels_load_neither_numba_nor_cupy_nor_dask_before_they_are_called() -> None:
    # SciPy is LAPACK: rankfold.kernels.linear.dense is made of it.
    path = importlib.import_module("rankfold.kernels").__path__
    names = [m.name for m in pkgutil.walk_packages(path, "rankfold.kernels.") if m.name.count(".") < 4]
    contracts = [n for n in names if not n.endswith((".cpu", ".gpu", "._compiled")) and ".gpu." not in n]
    code = "\n".join(f"import {n}" for n in contracts)
    assert not loaded_after(code) & (set(HEAVY) - {"scipy"})


def test_the_front_door_is_sorted_and_whole() -> None:
    assert rankfold.__all__ == sorted(set(rankfold.__all__))
    assert dir(rankfold) == rankfold.__all__
    assert set(rankfold.__all__) == {*rankfold._HOMES, "__version__"}


@pytest.mark.parametrize("name", rankfold.__all__)
def test_every_name_resolves_to_something_documented(name: str) -> None:
    value = getattr(rankfold, name)
    assert isinstance(value, str) or value.__doc__


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'rankfold' has no attribute 'pac'"):
        rankfold.pac  # noqa: B018


def test_star_imports_what_is_offered() -> None:
    assert run(
        "from rankfold import *; print(*sorted(n for n in globals() if n in __import__('rankfold').__all__))"
    )


def test_the_command_line_loads_no_numbers_before_it_is_told_what_to_do() -> None:
    assert not loaded_after("import rankfold.workflows.cli") & {*HEAVY, "numpy", "pydantic"}


@pytest.mark.parametrize("name", [name for name in rankfold.__all__ if name[0].islower()])
def test_functions_say_what_they_take_give_raise_and_cost(name: str) -> None:
    told = inspect.getdoc(getattr(rankfold, name)) or ""
    sections = re.findall(r"^(\w+)\n-+$", told, re.MULTILINE)
    assert {"Parameters", "Returns", "Raises", "Notes", "Examples"} <= set(sections), sections
    require_explained(getattr(rankfold, name))


@pytest.mark.parametrize("name", rankfold.estimators.__all__)
def test_estimators_say_what_they_take(name: str) -> None:
    estimator = getattr(rankfold.estimators, name)
    assert "Examples" in re.findall(r"^(\w+)\n-+$", inspect.getdoc(estimator) or "", re.MULTILINE)
    require_explained(estimator)


def require_explained(function: Any) -> None:
    """Each argument has an entry: its name, its type, its default, and what it is for."""
    named = re.search(r"Parameters\n-+\n(.*?)\n\n+\w+\n-+\n", inspect.getdoc(function) or "", re.DOTALL)
    assert named is not None
    entries = dict(re.findall(r"^(\w+) : (\S.*)\n    \w*\W", named[1], re.MULTILINE))
    for parameter in inspect.signature(function).parameters.values():
        kind = entries[parameter.name]
        if parameter.default is not parameter.empty:
            assert "default" in kind or "optional" in kind, parameter
